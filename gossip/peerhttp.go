package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"edged/peerfilter"
)

// The endpoints on the peer address.
const (
	pathPrefix   = "/_edged/v1/"
	pathDeltas   = pathPrefix + "filter/deltas"   // GET: part, boot, epoch, after; 410 when a snapshot is needed
	pathSnapshot = pathPrefix + "filter/snapshot" // GET: part
	pathPurge    = pathPrefix + "purge"           // POST: a Purge as JSON

	maxDeltasLen    = 4<<20 + 64<<10
	minSnapshotLen  = 8 << 20 // accepted of a peer, whatever our own size
	maxSnapshotsOut = 4       // served at once

	deltasTimeout   = 5 * time.Second
	snapshotTimeout = 30 * time.Second
)

// Handler returns what answers the other members under /_edged/v1/ on the
// peer address. With keys configured, it answers only requests that one of
// them has signed. It bounds what it reads and may be served to anybody; the
// server bounds the time of reading headers and bodies.
func (g *Gossip) Handler() http.Handler { return http.HandlerFunc(g.serveHTTP) }

func (g *Gossip) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPurgeLen))
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
	if r.URL.Path == pathPurge {
		method = http.MethodPost
	}
	if r.Method != method {
		return http.StatusMethodNotAllowed, []byte("want " + method + "\n")
	}
	switch r.URL.Path {
	case pathPurge:
		return g.servePurge(body)
	case pathDeltas:
		return g.serveDeltas(r.URL.Query())
	case pathSnapshot:
		return g.serveSnapshot(r.URL.Query())
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

func (g *Gossip) serveSnapshot(q url.Values) (int, []byte) {
	part, ok := g.partition(q)
	if !ok {
		return http.StatusNotFound, []byte("no such partition\n")
	}
	select {
	case g.snapshotsOut <- struct{}{}:
		defer func() { <-g.snapshotsOut }()
	default:
		return http.StatusServiceUnavailable, []byte("too many snapshots at once\n")
	}
	var s *snapshot
	g.do(func(now time.Duration) { s = g.core.snapshot(now, part) })
	if s == nil {
		return http.StatusNotFound, []byte("nothing is published yet\n")
	}
	b := s.append(nil)
	g.do(func(time.Duration) { g.core.counts.sent(kindSnapshot, len(b)) })
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

// append appends the wire form: the frame's first 20 bytes with type 2, then
//
//	20  partition u64
//	28  epoch     u32
//	32  seq       u64
//	40  layout    u8
//	41  blocks    u32
//	45  peerfilter's snapshot form
//	-4  crc32c    u32 over all before it
func (s *snapshot) append(b []byte) []byte {
	start := len(b)
	b = append(b, frameMagic, frameVersion, frameSnapshot, 0)
	b = binary.BigEndian.AppendUint64(b, s.sender)
	b = binary.BigEndian.AppendUint64(b, s.boot)
	b = binary.BigEndian.AppendUint64(b, s.part)
	b = binary.BigEndian.AppendUint32(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, s.seq)
	b = append(b, byte(s.state.Params().Layout))
	b = binary.BigEndian.AppendUint32(b, s.state.Params().Blocks)
	b = peerfilter.AppendSnapshot(b, s.state)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

const snapshotHeaderLen = frameHeaderLen + 25

// decodeSnapshot reads a snapshot whose bits take up to maxBytes.
func decodeSnapshot(b []byte, maxBytes int) (*snapshot, error) {
	if len(b) < snapshotHeaderLen+4 || b[0] != frameMagic || b[2] != frameSnapshot {
		return nil, errFrameMalformed
	}
	if b[1] != frameVersion {
		return nil, errFrameVersion
	}
	if crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, errFrameChecksum
	}
	s := &snapshot{
		sender: binary.BigEndian.Uint64(b[4:]),
		boot:   binary.BigEndian.Uint64(b[12:]),
		part:   binary.BigEndian.Uint64(b[20:]),
		epoch:  binary.BigEndian.Uint32(b[28:]),
		seq:    binary.BigEndian.Uint64(b[32:]),
	}
	p := peerfilter.Params{Layout: peerfilter.Layout(b[40]), Blocks: binary.BigEndian.Uint32(b[41:])}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Bits()/8 > uint64(maxBytes) {
		return nil, fmt.Errorf("a filter of %d bytes: %d are accepted at most", p.Bits()/8, maxBytes)
	}
	var err error
	s.state, err = peerfilter.DecodeSnapshot(b[snapshotHeaderLen:len(b)-4], p)
	return s, err
}

// maxSnapshotBytes is how large a peer's filter may be: four times our own.
func maxSnapshotBytes(own peerfilter.Params) int {
	return max(minSnapshotLen, int(min(4*(own.Bits()/8), 1<<30)))
}

// pull carries out a fetchEffect.
func (g *Gossip) pull(ctx context.Context, e fetchEffect) fetchResult {
	q := url.Values{"part": {g.cfg.Partitions[e.part].Name}}
	if e.snapshot {
		limit := maxSnapshotBytes(g.cfg.Partitions[e.part].Params)
		ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
		defer cancel()
		b, err := g.call(ctx, http.MethodGet, e.addr, pathSnapshot+"?"+q.Encode(), nil, limit+limit/8+4096)
		if err != nil {
			return fetchResult{err: err}
		}
		s, err := decodeSnapshot(b, limit)
		g.do(func(time.Duration) { g.core.counts.received(kindSnapshot, len(b)) })
		return fetchResult{state: s, err: err}
	}
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
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, bytes.NewReader(body))
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
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	if len(b) > limit {
		return nil, fmt.Errorf("the answer of %s is longer than %d bytes", addr, limit)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("%s: %.200q: compare the members' cluster.key_file and clocks", addr, b)
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

// newClient returns the client of peer requests: nobody else's connections,
// no proxy, a bound on every phase.
func newClient(dial func(context.Context, string, string) (net.Conn, error)) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dial,
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
