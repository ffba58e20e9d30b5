package shield

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawOrigin is a server that says exactly the bytes that a test wants.
type rawOrigin struct {
	url string

	mu       sync.Mutex
	requests []string // heads as they came, over all connections
	conns    []net.Conn
}

// peer is the origin's end of one connection; n counts them from 1.
type peer struct {
	net.Conn
	br *bufio.Reader
	o  *rawOrigin
	n  int
}

// startOrigin serves each connection with serve, and closes it afterwards.
// At the end of the test everything is closed and waited for.
func startOrigin(t *testing.T, serve func(*peer)) *rawOrigin {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &rawOrigin{url: "http://" + ln.Addr().String()}
	o.serve(t, ln, serve)
	return o
}

func (o *rawOrigin) serve(t *testing.T, ln net.Listener, serve func(*peer)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns = append(o.conns, c)
			o.mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(&peer{c, bufio.NewReader(c), o, n})
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		o.mu.Lock()
		for _, c := range o.conns {
			c.Close()
		}
		o.mu.Unlock()
		wg.Wait()
	})
}

// request reads one request and its body of Content-Length bytes; ok is false
// when the other side closed the connection.
func (p *peer) request() (head, body string, ok bool) {
	head, ok = p.head()
	if !ok {
		return "", "", false
	}
	for line := range strings.SplitSeq(head, "\r\n") {
		if v, is := strings.CutPrefix(line, "Content-Length: "); is {
			n, _ := strconv.Atoi(v)
			b := make([]byte, n)
			if _, err := io.ReadFull(p.br, b); err != nil {
				return head, "", false
			}
			body = string(b)
		}
	}
	return head, body, true
}

// head reads one request's head.
func (p *peer) head() (string, bool) {
	var b strings.Builder
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return "", false
		}
		if b.WriteString(line); line == "\r\n" {
			break
		}
	}
	p.o.mu.Lock()
	p.o.requests = append(p.o.requests, b.String())
	p.o.mu.Unlock()
	return b.String(), true
}

func (p *peer) say(s string) { io.WriteString(p, s) }

// reset closes the connection with RST.
func (p *peer) reset() {
	p.Conn.(*net.TCPConn).SetLinger(0)
	p.Close()
}

// untilClosed waits until the other side closes.
func (p *peer) untilClosed() { io.Copy(io.Discard, p.br) }

func (o *rawOrigin) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

func (o *rawOrigin) connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conns)
}

// answers is an origin that gives one answer to every request on a connection.
func answers(s string) func(*peer) {
	return func(p *peer) {
		for {
			if _, _, ok := p.request(); !ok {
				return
			}
			p.say(s)
		}
	}
}

const hello = ok + "Content-Length: 5\r\n\r\nhello"

// client is a Transport that ends with the test. No test waits longer than 10 s.
func client(t *testing.T, cfg TransportConfig) *Transport {
	t.Helper()
	tr := NewTransport(cfg)
	t.Cleanup(tr.Close)
	return tr
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// get sends a GET and returns status and body; the error is that of either.
func get(t testing.TB, rt http.RoundTripper, url string) (int, string, error) {
	t.Helper()
	return do(rt, newRequest(t, "GET", url, nil))
}

func do(rt http.RoundTripper, req *http.Request) (int, string, error) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// mustGet wants status 200 and this body.
func mustGet(t testing.TB, rt http.RoundTripper, url, want string) {
	t.Helper()
	if code, body, err := get(t, rt, url); err != nil || code != 200 || body != want {
		t.Fatalf("%d %q, %v; want 200 %q", code, body, err, want)
	}
}

// wantError wants an *Error of this kind and phase.
func wantError(t testing.TB, err error, kind Kind, phase Phase) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T %v, want an *Error", err, err)
	}
	if e.Kind != kind || e.Phase != phase {
		t.Errorf("%s in phase %s (%v), want %s in phase %s", e.Kind, e.Phase, e.Err, kind, phase)
	}
	if e.URL == "" || e.Err == nil || errors.Unwrap(e) != e.Err || e.Timeout() != (kind == Timeout) {
		t.Errorf("incomplete: %#v", e)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }
