package shield

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// PoolConfig is one origin.
type PoolConfig struct {
	// URLs are the origin's servers, scheme://host[:port], of equal worth:
	// requests are shared out among those that are healthy.
	URLs []string

	// Host is the Host that the origin is sent; empty: the request's own.
	Host string

	// The bounds of the phases; see TransportConfig. Zero: 2 s, 30 s, 30 s.
	Connect, FirstByte, Idle time.Duration

	// See TransportConfig.
	KeepAlive      time.Duration
	MaxIdlePerURL  int
	MaxHeaderBytes int
	TLS            *tls.Config
	DialContext    func(ctx context.Context, network, addr string) (net.Conn, error)

	// Failures is the number of failures, without a whole answer in between,
	// after which a server is skipped for a while. One to which no connection
	// could be made is skipped at once. Zero means 3.
	Failures int

	// BackoffMin is how long a server is skipped the first time; it doubles
	// each time in a row that the server fails again, up to BackoffMax. Zero
	// means 1 s and 30 s. Jitter of a quarter is added or taken away.
	BackoffMin, BackoffMax time.Duration

	// Logger is told when a server is put aside or comes back; nil discards.
	Logger *slog.Logger
}

// Pool is one origin: its servers, their health, and the connections to them.
// It is safe for concurrent use.
type Pool struct {
	cfg       PoolConfig
	transport *Transport
	log       *slog.Logger

	mu      sync.Mutex
	targets []*target // the slice is fixed; what it holds is not
	next    int       // where the turn is
}

// URLStats is one server of a pool at one moment.
type URLStats struct {
	URL      string // as configured
	Healthy  bool   // it is not being skipped
	Failures uint64 // attempts that failed, in any phase, since the start
	InFlight int    // requests whose answer is not over
	Attempts uint64 // times that a request was sent to it or should have been, since the start
}

// NewPool returns the pool of an origin, or all that is wrong with cfg.
func NewPool(cfg PoolConfig) (*Pool, error) {
	cfg.Failures = cmp.Or(cfg.Failures, 3)
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, time.Second)
	cfg.BackoffMax = max(cmp.Or(cfg.BackoffMax, 30*time.Second), cfg.BackoffMin)
	p := &Pool{cfg: cfg, log: cfg.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var bad []error
	if len(cfg.URLs) == 0 {
		bad = append(bad, errors.New("origin: no URL"))
	}
	if cfg.Failures < 0 || cfg.BackoffMin < 0 {
		bad = append(bad, errors.New("origin: Failures or BackoffMin is negative"))
	}
	seen := make(map[string]bool)
	for _, text := range cfg.URLs {
		u, err := parseOrigin(text)
		switch {
		case err != nil:
			bad = append(bad, err)
		case !seen[u.String()]: // one that stands twice counts once
			seen[u.String()] = true
			p.targets = append(p.targets, &target{text: text, url: u})
		}
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	p.transport = NewTransport(TransportConfig{
		Connect: cfg.Connect, FirstByte: cfg.FirstByte, Idle: cfg.Idle,
		KeepAlive: cfg.KeepAlive, MaxIdlePerHost: cfg.MaxIdlePerURL, MaxHeaderBytes: cfg.MaxHeaderBytes,
		TLS: cfg.TLS, DialContext: cfg.DialContext,
	})
	return p, nil
}

// parseOrigin reads scheme://host[:port], with a slash behind it or none.
func parseOrigin(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("origin %q: %w", text, err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("origin %q: want http://host[:port] or https://host[:port]", text)
	case u.Hostname() == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "", u.User != nil, u.Opaque != "":
		return nil, fmt.Errorf("origin %q: want scheme, host and port only", text)
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// Do sends an outgoing request and returns the answer when its head has come;
// the caller reads the body to its end or closes it. An error, and the one that
// breaks the body, is an [*Error].
//
// The request's URL gives path and query; scheme and host are the server's
// (so an Opaque that begins with a slash is sent as it is). Host is sent unless
// the configuration has another. Context, fields, body and trailers are sent as
// they are; the request is not changed.
//
// While no connection can be made, and the body is untouched, the next server
// is tried: nothing was sent yet. Beyond that a request is sent once, or twice
// as [Transport.RoundTrip] says; it is not sent to a second server.
func (p *Pool) Do(req *http.Request) (*http.Response, error) {
	b := newRequestBody(req)
	var where tries
	var last *Error
	for {
		t := p.pick(&where)
		if t == nil {
			break
		}
		var resp *http.Response
		if resp, last = p.try(t, req, b); last == nil {
			return resp, nil
		}
		if last.Phase != PhaseConnect || last.Kind == Canceled || req.Context().Err() != nil || !b.untouched() {
			break
		}
	}
	b.close()
	return nil, last
}

// try sends the request to one server.
func (p *Pool) try(t *target, req *http.Request, b *requestBody) (*http.Response, *Error) {
	out := *req
	u := *req.URL
	u.Scheme, u.Host, u.User = t.url.Scheme, t.url.Host, nil
	out.URL = &u
	if p.cfg.Host != "" {
		out.Host = p.cfg.Host
	}
	attempted := func() {
		p.mu.Lock()
		t.attempts++
		p.mu.Unlock()
	}
	over := func(e *Error) {
		p.over(t, e, e != nil && (e.Kind == Canceled || req.Context().Err() != nil))
	}
	resp, err := p.transport.send(&out, b, attempted, over)
	if err != nil {
		over(err)
		return nil, err
	}
	p.answered(t)
	resp.Request = req
	return resp, nil
}

// Stats returns the servers in the order of the configuration.
func (p *Pool) Stats() []URLStats {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := make([]URLStats, len(p.targets))
	for i, t := range p.targets {
		s[i] = URLStats{
			URL:      t.text,
			Healthy:  t.until.IsZero() || !now.Before(t.until),
			Failures: t.failures,
			InFlight: t.inFlight,
			Attempts: t.attempts,
		}
	}
	return s
}

// Close closes all connections, those in use as well: who reads from one gets
// an error, and later requests fail. It may be called twice. Whoever wants to
// let requests finish waits before it closes.
func (p *Pool) Close() { p.transport.Close() }
