package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// adminFlags are those of every command that speaks to a running node.
type adminFlags struct {
	Admin     string        `default:"127.0.0.1:9901" env:"EDGED_ADMIN" placeholder:"URL" help:"The node's admin address, as URL or HOST:PORT (${default})."`
	TokenFile string        `env:"EDGED_TOKEN_FILE" placeholder:"FILE" type:"path" help:"File with the admin API's token."`
	Timeout   time.Duration `default:"30s" help:"How long the node may take to answer (${default})."`
	JSON      bool          `help:"Print the node's answer as JSON."`
}

// maxAnswerBytes bounds an answer of the admin API; the largest, of a cluster
// of a thousand members, is below a megabyte.
const maxAnswerBytes = 16 << 20

// An adminClient speaks to one node's admin API.
type adminClient struct {
	base  *url.URL
	token string
	http  *http.Client
}

// client checks the flags and reads the token.
func (f adminFlags) client() (*adminClient, error) {
	raw := f.Admin
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, usagef("--admin %q is not an admin address: want HOST:PORT or http://HOST:PORT", f.Admin)
	}
	if f.Timeout <= 0 {
		return nil, usagef("--timeout %v: want above 0s", f.Timeout)
	}
	c := &adminClient{
		base: u,
		http: &http.Client{
			Timeout: f.Timeout,
			// The token goes to the node that was named, and nowhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
		},
	}
	if f.TokenFile != "" {
		if c.token, err = readToken(f.TokenFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// send sends a request, with body as JSON unless it is nil, and returns the
// answer, whose body the caller closes. An answer other than 2xx is an error
// that says what the node said.
func (c *adminClient) send(ctx context.Context, method, path string, query url.Values, body any, accept string) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(data)
	}
	u := *c.base
	u.Path, u.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), payload)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", accept)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		if c.token == "" {
			return nil, fmt.Errorf("%s asks for a token: give its file with --token-file", c.base.Host)
		}
		return nil, fmt.Errorf("%s refuses the token", c.base.Host)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, c.brokeOff(err)
	}
	text := fmt.Sprintf("%s answers %s: %s", c.base.Host, resp.Status, reason(data))
	if resp.StatusCode/100 == 4 && !json.Valid(data) {
		text += "; is this its admin address? See --admin"
	}
	return nil, &refusal{resp.StatusCode, text}
}

// refusal is an answer of a node that is none of 2xx.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// asUsage makes wrong usage of what a node has refused as malformed, for a
// command whose arguments the node alone can judge.
func asUsage(err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) && r.status == http.StatusBadRequest {
		return usageError{err}
	}
	return err
}

func (c *adminClient) brokeOff(err error) error {
	return fmt.Errorf("the answer of %s broke off: %w", c.base.Host, err)
}

// do sends a request and returns the answer's body.
func (c *adminClient) do(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	resp, err := c.send(ctx, method, path, query, body, "application/json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, c.brokeOff(err)
	case len(data) > maxAnswerBytes:
		return nil, fmt.Errorf("the answer of %s has more than %s: is this an admin address?", c.base.Host, formatSize(maxAnswerBytes))
	}
	return data, nil
}

// postLines is post for an answer that comes line by line: each is called with
// each, until it returns an error. A node that answers in one piece has one.
func (c *adminClient) postLines(ctx context.Context, path string, body any, each func(line json.RawMessage) error) error {
	resp, err := c.send(ctx, http.MethodPost, path, nil, body, "application/x-ndjson, application/json;q=0.5")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes))
	for {
		var line json.RawMessage
		err := lines.Decode(&line)
		var syntax *json.SyntaxError
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &syntax):
			return fmt.Errorf("the answer of %s is not that of an admin API: %w", c.base.Host, err)
		case err != nil:
			return c.brokeOff(err)
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// get decodes the answer to a GET into out and returns it as it came, too.
func (c *adminClient) get(ctx context.Context, path string, query url.Values, out any) ([]byte, error) {
	data, err := c.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	return data, c.decode(data, out)
}

// post decodes the answer to a POST into out and returns it as it came, too.
func (c *adminClient) post(ctx context.Context, path string, body, out any) ([]byte, error) {
	data, err := c.do(ctx, http.MethodPost, path, nil, body)
	if err != nil || out == nil {
		return data, err
	}
	return data, c.decode(data, out)
}

// unexpected is the error of an answer in JSON that does not say what it should.
func (c *adminClient) unexpected(what string) error {
	return fmt.Errorf("the answer of %s does not say that %s: is this its admin address? See --admin", c.base.Host, what)
}

func (c *adminClient) decode(data []byte, out any) error {
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the answer of %s is not that of an admin API: %w", c.base.Host, err)
	}
	return nil
}

// errNoNode is in the error of a request that met no listener.
var errNoNode = errors.New("no node answers")

// unreachable says what to look at when no answer came.
func (c *adminClient) unreachable(err error) error {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w at %s (%w): is it running, and is this its admin address? See --admin", errNoNode, c.base.Host, op.Err)
	case os.IsTimeout(err):
		return fmt.Errorf("%s did not answer in %v: see --timeout", c.base.Host, c.http.Timeout)
	}
	return fmt.Errorf("ask %s: %w", c.base.Host, err)
}

// reason is what an error's body says: the text of JSON's "error", or the
// first line, without what could steer a terminal.
func reason(body []byte) string {
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		return printable(e.Error)
	}
	first, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
	return printable(string(first[:min(len(first), 300)]))
}

// printable is s with every control character shown as a dot: what comes from
// a peer or an origin may not steer the operator's terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '.'
		}
		return r
	}, s)
}

// printRaw prints a node's JSON indented.
func printRaw(w io.Writer, data []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(data), "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}
