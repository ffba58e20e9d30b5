package shield

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// TransportConfig says how connections to one kind of server are made.
type TransportConfig struct {
	// Connect bounds name look-up, TCP connect and TLS handshake together.
	// Zero means 2 s, below zero there is no bound.
	Connect time.Duration

	// FirstByte bounds the time from the end of the request to the end of the
	// answer's head, interim responses included. Zero means 30 s, below zero
	// there is no bound.
	FirstByte time.Duration

	// Idle bounds each wait for the next bytes of a body that is being read,
	// and each wait for the server to take more of a request. Zero means 30 s,
	// below zero there is no bound. It ends when a connection switches protocols.
	Idle time.Duration

	// KeepAlive is how long an unused connection is kept. Zero means 90 s.
	KeepAlive time.Duration

	// MaxIdlePerHost is the number of unused connections kept per server.
	// Zero means 256: a node has few origins and many requests for each.
	MaxIdlePerHost int

	// MaxHeaderBytes bounds an answer's head together with its interim
	// responses, and its trailers. Zero means 256 KiB.
	MaxHeaderBytes int

	// TLS is used for https; nil means the system's roots and the name of the
	// server in its URL. NextProtos is replaced: HTTP/1.1 is all we speak.
	// Sessions are resumed, from a cache of our own if it has none.
	TLS *tls.Config

	// DialContext makes the TCP connections; nil means net.Dialer's.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (cfg TransportConfig) withDefaults() TransportConfig {
	cfg.Connect = cmp.Or(cfg.Connect, 2*time.Second)
	cfg.FirstByte = max(cmp.Or(cfg.FirstByte, 30*time.Second), 0)
	cfg.Idle = max(cmp.Or(cfg.Idle, 30*time.Second), 0)
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 90*time.Second)
	cfg.MaxIdlePerHost = cmp.Or(cfg.MaxIdlePerHost, 256)
	cfg.MaxHeaderBytes = cmp.Or(cfg.MaxHeaderBytes, 256<<10)
	if cfg.TLS == nil {
		cfg.TLS = &tls.Config{}
	}
	cfg.TLS = cfg.TLS.Clone()
	cfg.TLS.NextProtos = []string{"http/1.1"}
	if cfg.TLS.ClientSessionCache == nil {
		cfg.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	if cfg.DialContext == nil {
		cfg.DialContext = (&net.Dialer{}).DialContext
	}
	return cfg
}

// Transport sends requests over HTTP/1.1 connections that it keeps and reuses:
// net/http's Transport with the corners cut off that a cache falls over.
//
// It takes no proxy from the environment, follows no redirect, asks for no
// compression of its own, adds no User-Agent and speaks no HTTP/2. An answer is
// only what a request asked for: a surplus one never reaches the next request,
// and a 101, 206 or 304 that nobody asked for is an error. Every error is an
// [*Error].
//
// Interim responses reach the caller's httptrace.ClientTrace in the request's
// context; there are at most 100. A 101 has a Body that is an
// io.ReadWriteCloser with CloseWrite. Trailers are in Response.Trailer at the
// end of the body. Hop-by-hop fields other than those that frame the message
// are left to [HopByHop]; the fields that the answer's Connection listed are
// gone already.
//
// It is safe for concurrent use.
type Transport struct {
	cfg TransportConfig

	keep *http.Transport // reuses connections
	once *http.Transport // uses each connection once: for second attempts

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

// NewTransport returns a Transport, for a [Pool] or for requests between nodes.
func NewTransport(cfg TransportConfig) *Transport {
	t := &Transport{cfg: cfg.withDefaults(), conns: make(map[*conn]struct{})}
	t.keep = t.inner()
	t.once = t.inner()
	t.once.DisableKeepAlives = true
	return t
}

func (t *Transport) inner() *http.Transport {
	return &http.Transport{
		DialContext:           t.dial,
		DialTLSContext:        t.dialTLS,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   t.cfg.MaxIdlePerHost,
		IdleConnTimeout:       t.cfg.KeepAlive,
		ResponseHeaderTimeout: t.cfg.FirstByte,
		ExpectContinueTimeout: time.Second,
		// conn is the one that bounds heads; what it writes anew may be
		// somewhat longer than what came.
		MaxResponseHeaderBytes: 2*int64(t.cfg.MaxHeaderBytes) + 64<<10,
	}
}

func (t *Transport) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := t.connectContext(ctx)
	defer cancel()
	tcp, err := t.cfg.DialContext(ctx, network, addr)
	if err != nil {
		return nil, classify(err, PhaseConnect)
	}
	return t.adopt(tcp, tcp)
}

func (t *Transport) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := t.connectContext(ctx)
	defer cancel()
	tcp, err := t.cfg.DialContext(ctx, network, addr)
	if err != nil {
		return nil, classify(err, PhaseConnect)
	}
	cfg := t.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	c := tls.Client(&recordConn{Conn: tcp}, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		tcp.Close()
		return nil, classify(err, PhaseConnect)
	}
	return t.adopt(c, tcp)
}

func (t *Transport) connectContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.cfg.Connect < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, t.cfg.Connect)
}

// adopt makes a new connection one of ours.
func (t *Transport) adopt(c, tcp net.Conn) (net.Conn, error) {
	nc := newConn(c, tcp, limits{t.cfg.Idle, t.cfg.MaxHeaderBytes}, t.forget)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		c.Close()
		return nil, failf(Canceled, PhaseConnect, "the transport was closed: %w", net.ErrClosed)
	}
	t.conns[nc] = struct{}{}
	return nc, nil
}

func (t *Transport) forget(c *conn) {
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
}

// RoundTrip sends the request and returns the answer when its head has come.
// The caller reads the body to its end or closes it. It neither changes req nor
// uses its GetBody.
//
// It sends the request a second time, on a new connection, in two cases only:
// nothing had been sent, because the connection turned out to be closed; or the
// method is idempotent, nobody had read from the body, and a reused connection
// was closed before the first byte of an answer. A third time it never does.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	b := newRequestBody(req)
	resp, err := t.send(req, b, func() {}, func(*Error) {})
	if err != nil {
		b.close()
		return nil, err
	}
	return resp, nil
}

// send is RoundTrip without closing the body in case of an error. attempted is
// called before each attempt, done once when an answer is over: read to its end
// or closed (nil), or broken.
func (t *Transport) send(req *http.Request, b *requestBody, attempted func(), done func(*Error)) (*http.Response, *Error) {
	if req.Method == http.MethodConnect {
		return nil, newError(req, failf(Protocol, PhaseRequest, "CONNECT is not forwarded"))
	}
	attempted()
	resp, x, f := t.attempt(t.keep, req, b, done)
	if f != nil && f.kind != Canceled && b.untouched() && x.mayResend(req.Method) {
		attempted()
		resp, _, f = t.attempt(t.once, req, b, done)
	}
	if f != nil {
		return nil, newError(req, f)
	}
	return resp, nil
}

func newError(req *http.Request, f *failure) *Error {
	return &Error{f.kind, f.phase, req.URL.Scheme + "://" + req.URL.Host, f.err}
}

func (t *Transport) attempt(via *http.Transport, req *http.Request, b *requestBody, done func(*Error)) (*http.Response, *exchange, *failure) {
	caller := req.Context()
	ctx, cancel := context.WithCancelCause(caller)
	x := &exchange{
		asked:  asked{head: req.Method == http.MethodHead, upgrade: asksForUpgrade(req.Header)},
		cancel: cancel,
	}
	view, over := b.view(x)
	out := req.WithContext(httptrace.WithClientTrace(ctx, x.trace()))
	out.Body, out.GetBody = view, nil
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header = out.Header.Clone()
		if out.Header == nil {
			out.Header = make(http.Header, 1)
		}
		out.Header["User-Agent"] = nil // net/http would put its own there
	}

	resp, err := via.RoundTrip(out)
	if err != nil {
		over(false)
		f := x.failure(err, caller)
		if cause := b.broken(); cause != nil {
			f = &failure{Canceled, PhaseRequest, fmt.Errorf("read the request's body: %w", cause)}
		}
		cancel(nil)
		return nil, x, f
	}
	over(true)
	x.markDelivered()
	if f := unasked(req, resp); f != nil {
		resp.Body.Close()
		cancel(nil)
		return nil, x, f
	}
	a := &answer{body: resp.Body, x: x, req: req, done: done}
	switch rwc, ok := resp.Body.(io.ReadWriteCloser); {
	case ok && resp.StatusCode == http.StatusSwitchingProtocols:
		resp.Body = &tunnel{a, rwc}
	case resp.Body == http.NoBody:
		a.finish(nil)
	default:
		resp.Body = a
	}
	resp.Request = req
	return resp, x, nil
}

// unasked says what is wrong with an answer that its request can't have asked
// for. net/http passes these on.
func unasked(req *http.Request, resp *http.Response) *failure {
	switch resp.StatusCode {
	case http.StatusNotModified:
		if req.Header.Get("If-None-Match") == "" && req.Header.Get("If-Modified-Since") == "" {
			return failf(Protocol, PhaseFirstByte, "304 to a request without condition (RFC 9110 section 15.4.5)")
		}
	case http.StatusPartialContent:
		if req.Header.Get("Range") == "" {
			return failf(Protocol, PhaseFirstByte, "206 to a request without Range (RFC 9110 section 15.3.7)")
		}
	}
	return nil
}

// asksForUpgrade reports whether a request's fields ask for another protocol.
func asksForUpgrade(h http.Header) bool {
	if h.Get("Upgrade") == "" {
		return false
	}
	for _, line := range h["Connection"] {
		for _, option := range appendElements(nil, []byte(line)) {
			if option == "upgrade" {
				return true
			}
		}
	}
	return false
}

// CloseIdleConnections closes the connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.keep.CloseIdleConnections()
	t.once.CloseIdleConnections()
}

// Close closes all connections, those in use as well: their readers get an
// error. Later requests fail. It may be called twice.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	open := make([]*conn, 0, len(t.conns))
	for c := range t.conns {
		open = append(open, c)
	}
	t.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	t.CloseIdleConnections()
}
