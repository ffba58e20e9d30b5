package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The endpoints on the peer address.
const (
	pathPrefix   = "/_edged/v1/"
	pathDeltas   = pathPrefix + "filter/deltas"   // GET: part, boot, epoch, after; 410 when a snapshot is needed
	pathSnapshot = pathPrefix + "filter/snapshot" // GET: part; to go on: offset, boot, epoch, seq; 410 when that one is gone
	pathPurges   = pathPrefix + "purges"          // POST: a digest of the log of changes; answered with what it lacks

	maxBodyLen      = 1 << 20 // of a request
	maxDeltasLen    = 4<<20 + 64<<10
	minSnapshotLen  = 8 << 20 // accepted of a peer, whatever our own size
	maxSnapshotsOut = 4       // served at once

	deltasTimeout = 5 * time.Second
)

// Handler returns what answers the other members under /_edged/v1/ on the
// peer address. With keys configured, it answers only requests that one of
// them has signed, and with an [Identity] only those over TLS of the member that
// the certificate is of; the request's TLS field says so. It bounds what it reads and may be served to anybody; the
// server bounds the time of reading headers and bodies.
func (g *Gossip) Handler() http.Handler { return http.HandlerFunc(g.serveHTTP) }

func (g *Gossip) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(http.MaxBytesReader(w, r.Body, maxBodyLen), r.ContentLength)
	if err != nil {
		http.Error(w, "request body is too large or incomplete", http.StatusRequestEntityTooLarge)
		return
	}
	key, err := g.auth.verify(r, body)
	if err != nil {
		g.refused(r, err)
		http.Error(w, "refused: "+err.Error(), http.StatusUnauthorized)
		return
	}
	if id := g.cfg.TLS; id != nil {
		if err := id.is(r.TLS, r.Header.Get(fieldNode)); err != nil {
			http.Error(w, "refused: "+err.Error(), http.StatusUnauthorized)
			return
		}
	}
	status, answer := g.answer(r, body)
	h := w.Header()
	signAnswer(h, key, r.Header.Get(fieldNonce), status, answer)
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(len(answer)))
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	w.Write(answer)
}

// answer answers a request that was found to be a member's.
func (g *Gossip) answer(r *http.Request, body []byte) (status int, answer []byte) {
	method := http.MethodGet
	if r.URL.Path == pathPurges {
		method = http.MethodPost
	}
	if r.Method != method {
		return http.StatusMethodNotAllowed, []byte("want " + method + "\n")
	}
	switch r.URL.Path {
	case pathPurges:
		return g.servePull(body)
	case pathDeltas:
		return g.serveDeltas(r.URL.Query())
	case pathSnapshot:
		return g.serveSnapshot(r.URL.Query())
	case pathKeys:
		return g.serveKeys()
	}
	return http.StatusNotFound, []byte("there is nothing here\n")
}

// partition finds the partition that a request is about.
func (g *Gossip) partition(q url.Values) (int, bool) {
	for i, p := range g.cfg.Partitions {
		if p.Name == q.Get("part") {
			return i, true
		}
	}
	return 0, false
}

func (g *Gossip) serveDeltas(q url.Values) (int, []byte) {
	part, ok := g.partition(q)
	boot, err1 := strconv.ParseUint(q.Get("boot"), 10, 64)
	epoch, err2 := strconv.ParseUint(q.Get("epoch"), 10, 32)
	after, err3 := strconv.ParseUint(q.Get("after"), 10, 64)
	if !ok {
		return http.StatusNotFound, []byte("no such partition\n")
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return http.StatusBadRequest, []byte("want part, boot, epoch and after\n")
	}
	var b []byte
	g.do(func(time.Duration) {
		if b, ok = g.core.deltas(part, boot, uint32(epoch), after); ok {
			g.core.counts.sent(kindDeltas, len(b))
		}
	})
	if !ok {
		return http.StatusGone, []byte("fetch a snapshot\n")
	}
	return http.StatusOK, b
}

// refused counts and logs a request that was not a member's.
func (g *Gossip) refused(r *http.Request, err error) {
	g.mu.Lock()
	g.refusals[err.Error()]++
	g.mu.Unlock()
	if skipped, ok := g.lines.allow("http_" + err.Error()); ok {
		hint := ""
		switch {
		case errors.Is(err, errBadMac), errors.Is(err, errNoMac):
			hint = "give all members the same cluster.key_file"
		case errors.Is(err, errClock):
			hint = "the two machines' clocks differ by more than " + clockSkew.String()
		}
		g.log.Error("a peer request was refused", "reason", err.Error(), "remote", r.RemoteAddr,
			"node", fmt.Sprintf("%.63q", r.Header.Get(fieldNode)), "hint", hint, "skipped", skipped)
	}
}

// pull carries out a fetchEffect.
func (g *Gossip) pull(ctx context.Context, e fetchEffect) fetchResult {
	if e.snapshot {
		s, err := g.pullSnapshot(ctx, e)
		return fetchResult{state: s, err: err}
	}
	q := url.Values{"part": {g.cfg.Partitions[e.part].Name}}
	q.Set("boot", strconv.FormatUint(e.boot, 10))
	q.Set("epoch", strconv.FormatUint(uint64(e.epoch), 10))
	q.Set("after", strconv.FormatUint(e.after, 10))
	ctx, cancel := context.WithTimeout(ctx, deltasTimeout)
	defer cancel()
	b, err := g.call(ctx, http.MethodGet, e.addr, pathDeltas+"?"+q.Encode(), nil, maxDeltasLen)
	if errors.Is(err, errGone) {
		return fetchResult{gone: true}
	}
	if err != nil {
		return fetchResult{err: err}
	}
	f, err := decodeFrame(b, maxDeltasLen)
	g.do(func(time.Duration) { g.core.counts.received(kindDeltas, len(b)) })
	return fetchResult{records: f, err: err}
}

// errGone is a pull that the peer cannot serve from its log.
var errGone = errors.New("the peer's log does not reach back so far")

// call makes one request of a peer and returns the body of its answer, of up
// to limit bytes (0: some). Only 200 is no error.
func (g *Gossip) call(ctx context.Context, method, addr, path string, body []byte, limit int) ([]byte, error) {
	scheme := "http://"
	if g.cfg.TLS != nil {
		scheme = "https://"
	}
	r, err := http.NewRequestWithContext(ctx, method, scheme+addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	g.auth.sign(r, body)
	resp, err := g.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	limit = max(limit, 4096)
	b, err := readBody(io.LimitReader(resp.Body, int64(limit)+1), resp.ContentLength)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	if len(b) > limit {
		return nil, fmt.Errorf("the answer of %s is longer than %d bytes", addr, limit)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("%s: %.200q: compare the members' cluster.key_file, cluster.tls and clocks", addr, b)
	}
	if err := g.auth.verifyAnswer(r, resp, b); err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return b, nil
	case http.StatusGone:
		return nil, errGone
	}
	return nil, fmt.Errorf("%s answered %d: %.200q", addr, resp.StatusCode, b)
}

// readBody reads all of a body that says that it has length bytes, -1 for
// unknown. Up to 256 KiB that is believed, so that nothing is allocated twice;
// else the memory follows what really comes.
func readBody(r io.Reader, length int64) ([]byte, error) {
	const believed = 256 << 10
	if length < 0 {
		length = 16 << 10
	}
	// One byte more, in which the end is found.
	b := make([]byte, 0, min(length, believed)+1)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		if len(b) == cap(b) {
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
	}
}

// newClient returns the client of peer requests: nobody else's connections,
// no proxy, a bound on every phase.
// With TLS, the member at an address must have its certificate: nameAt says who
// that is.
func newClient(dial func(context.Context, string, string) (net.Conn, error), id *Identity, nameAt func(addr string) string) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	}
	dialTLS := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		cfg := id.ClientConfig()
		cfg.ServerName = nameAt(addr)
		t := tls.Client(c, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		return t, nil
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dial,
			DialTLSContext:         dialTLS,
			MaxIdleConnsPerHost:    2,
			MaxConnsPerHost:        8,
			IdleConnTimeout:        30 * time.Second,
			ResponseHeaderTimeout:  10 * time.Second,
			MaxResponseHeaderBytes: 16 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
