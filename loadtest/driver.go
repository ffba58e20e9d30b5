package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"
)

const (
	// requestTimeout bounds one request, body included.
	requestTimeout = 10 * time.Second

	// defaultConnections is the number of workers, each with at most one
	// request in flight: enough for 50 000 requests a second at 10 ms.
	defaultConnections = 512

	// lateAfter is how much later than scheduled a start may be without being
	// counted: above the wake-up latency of an idle machine, below what anyone
	// would call a slow answer of a cache.
	lateAfter = 5 * time.Millisecond

	// maxErrorBodyBytes is read of an answer that has no content of ours.
	maxErrorBodyBytes = 64 << 10
)

// driver sends a schedule to its targets. The workers share the schedule: each
// takes the next arrival, sleeps until its time, sends it, reads and checks the
// answer. When all are busy, arrivals start late; they are sent all the same
// and their latency counts from the scheduled time.
type driver struct {
	targets []string // host:port
	host    string   // the Host of every request
	workers int
	rec     *recorder

	transports []*http.Transport // one per target, so that connections stay spread
}

func newDriver(targets []string, host string, workers int, rec *recorder) *driver {
	d := &driver{targets: targets, host: host, workers: workers, rec: rec}
	for range targets {
		d.transports = append(d.transports, newTransport(workers))
	}
	return d
}

func newTransport(conns int) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConnsPerHost:    conns,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // the bytes are checked as they come
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         16 << 10,
	}
}

// close drops the idle connections. No request may be running.
func (d *driver) close() {
	for _, t := range d.transports {
		t.CloseIdleConnections()
	}
}

// run sends the schedule from now on and returns when every request has been
// answered, or failed; at the latest grace after the schedule's end, when what
// was not started by then is counted as unsent. When ctx ends, it stops sooner
// and the requests in flight are forgotten.
func (d *driver) run(ctx context.Context, sc *schedule, length, grace time.Duration) {
	start := time.Now()
	d.rec.begin(start)
	var wg sync.WaitGroup
	for range d.workers {
		wg.Go(func() { d.work(ctx, sc, start, length+grace) })
	}
	wg.Wait()
	d.rec.end(time.Now())
}

func (d *driver) work(ctx context.Context, sc *schedule, start time.Time, giveUp time.Duration) {
	buf := make([]byte, 32<<10)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a, ok := sc.next()
		if !ok {
			return
		}
		at := start.Add(a.at)
		wait := time.Until(at)
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		sent := time.Now()
		if sent.Sub(start) > giveUp {
			d.rec.unsent(1)
			continue
		}
		d.rec.sent(sent.Sub(at), wait > 0)
		res := d.send(ctx, a, buf)
		if ctx.Err() != nil {
			d.rec.abandoned()
			return
		}
		d.rec.done(res, time.Now(), at)
	}
}

// outcome is what became of one request.
type outcome struct {
	kind string // "" for a right answer, else the kind of error
	err  error
	from string // by Cache-Status, see sourceOf; "" without an answer
}

// The kinds of errors; the first group had no complete answer, the second is a
// wrong one.
const (
	errTimeout   = "timeout"
	errRefused   = "refused"
	errReset     = "reset"
	errTransport = "transport"

	errStatus  = "wrong_status"
	errContent = "wrong_body"
)

// send makes one request and checks its answer to the last byte.
func (d *driver) send(ctx context.Context, a arrival, buf []byte) outcome {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "http", Host: d.targets[a.target], Path: a.path},
		Host:   d.host,
		Header: http.Header{"User-Agent": {"edged-loadtest"}},
	}).WithContext(ctx)
	resp, err := d.transports[a.target].RoundTrip(req)
	if err != nil {
		return outcome{kind: transportErrorKind(err), err: err}
	}
	defer resp.Body.Close()
	from := sourceOf(resp.Header.Values("Cache-Status"))
	want := http.StatusNotFound
	if a.exists {
		want = http.StatusOK
	}
	if resp.StatusCode != want {
		io.CopyN(io.Discard, resp.Body, maxErrorBodyBytes)
		return outcome{errStatus, fmt.Errorf("GET %s at %s: status %d, want %d", a.path, d.targets[a.target], resp.StatusCode, want), from}
	}
	if !a.exists {
		if _, err := io.CopyN(io.Discard, resp.Body, maxErrorBodyBytes); err != nil && err != io.EOF {
			return outcome{transportErrorKind(err), err, from}
		}
		return outcome{from: from}
	}
	if err := contentOf(a.path, a.size).check(resp.Body, buf); err != nil {
		kind := transportErrorKind(err)
		if errors.Is(err, errBody) {
			kind = errContent
		}
		return outcome{kind, fmt.Errorf("GET %s at %s: %w", a.path, d.targets[a.target], err), from}
	}
	return outcome{from: from}
}

func transportErrorKind(err error) string {
	var ne net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return errTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errReset
	}
	return errTransport
}
