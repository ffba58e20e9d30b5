package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	dial    dialFunc
}

func newDriver(targets []string, host string, workers int, rec *recorder) *driver {
	return &driver{targets: targets, host: host, workers: workers, rec: rec, dial: (&net.Dialer{Timeout: 5 * time.Second}).DialContext}
}

// arrivals is a sequence of arrivals in the order of their times. next is safe
// for concurrent use; ok is false after the last one.
type arrivals interface {
	next() (a arrival, ok bool)
}

// run sends the arrivals, counting their times from start, and returns when
// every request has been answered, or failed; at the latest grace after the
// schedule's length, when what was not started by then is counted as unsent.
// When ctx ends, it stops sooner and the requests in flight are forgotten.
func (d *driver) run(ctx context.Context, sc arrivals, start time.Time, length, grace time.Duration) {
	d.rec.begin(start)
	var wg sync.WaitGroup
	for range d.workers {
		wg.Go(func() { d.work(ctx, sc, start, length+grace) })
	}
	wg.Wait()
	d.rec.end(time.Now())
}

func (d *driver) work(ctx context.Context, sc arrivals, start time.Time, giveUp time.Duration) {
	w := d.newWorker(ctx)
	defer w.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a, ok := sc.next()
		if !ok {
			return
		}
		at := start.Add(a.at)
		sent := time.Now()
		wait := at.Sub(sent)
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			sent = time.Now()
		}
		if ctx.Err() != nil {
			return
		}
		if sent.Sub(start) > giveUp {
			d.rec.unsent(1)
			continue
		}
		d.rec.sent(sent.Sub(at), wait > 0)
		res := w.send(a)
		if ctx.Err() != nil {
			d.rec.abandoned()
			return
		}
		d.rec.done(res, time.Now(), at)
	}
}

// worker has a connection to each target, and at most one request in flight.
// It is for one goroutine; when its context ends its connections are closed
// under it, so that it does not wait for an answer.
type worker struct {
	ctx   context.Context
	conns []conn
	buf   []byte
	stop  func() bool

	mu      sync.Mutex
	open    []net.Conn // by target; nil: none
	stopped bool
}

func (d *driver) newWorker(ctx context.Context) *worker {
	w := &worker{ctx: ctx, conns: make([]conn, len(d.targets)), buf: make([]byte, 32<<10), open: make([]net.Conn, len(d.targets))}
	for i, addr := range d.targets {
		w.conns[i] = conn{addr: addr, host: d.host, dial: d.dial, hold: func(c net.Conn) { w.hold(i, c) }}
	}
	w.stop = context.AfterFunc(ctx, w.interrupt)
	return w
}

func (w *worker) hold(target int, c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[target] = c; c != nil && w.stopped {
		c.Close()
	}
}

func (w *worker) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, c := range w.open {
		if c != nil {
			c.Close()
		}
	}
}

func (w *worker) close() {
	w.stop()
	for i := range w.conns {
		w.conns[i].drop()
	}
}

// outcome is what became of one request.
type outcome struct {
	kind   string // "" for a right answer, else the kind of error
	err    error
	from   string // by Cache-Status, see sourceOf; "" without an answer
	resent bool   // sent a second time, as the first connection was closed
}

// The kinds of errors; the first group had no complete answer, the second says
// honestly that there is none, the third is a wrong one.
const (
	errTimeout   = "timeout"
	errRefused   = "refused"
	errReset     = "reset"
	errTransport = "transport"

	errServer = "server_error" // 5xx

	errStatus  = "wrong_status"
	errContent = "wrong_body"
)

// send makes one request and checks its answer to the last byte.
func (w *worker) send(a arrival) outcome {
	k := &w.conns[a.target]
	ans, err := k.get(w.ctx, a.path)
	if err != nil {
		return outcome{kind: transportErrorKind(err), err: err, resent: ans.resent}
	}
	o := outcome{from: ans.from, resent: ans.resent}
	want := http.StatusNotFound
	if a.exists {
		want = http.StatusOK
	}
	whole := false
	switch {
	case ans.status != want:
		o.kind = errStatus
		if ans.status >= 500 {
			o.kind = errServer
		}
		o.err = fmt.Errorf("GET %s at %s: status %d, want %d", a.path, k.addr, ans.status, want)
		whole, _ = skipBody(ans.body, w.buf)
	case !a.exists:
		if whole, err = skipBody(ans.body, w.buf); err != nil {
			o.kind, o.err = transportErrorKind(err), err
		}
	default:
		if err = contentOf(a.path, a.size).check(ans.body, w.buf); err != nil {
			o.kind = transportErrorKind(err)
			if errors.Is(err, errBody) {
				o.kind = errContent
			}
			o.err = fmt.Errorf("GET %s at %s: %w", a.path, k.addr, err)
		}
		whole = err == nil
	}
	k.finish(ans, whole)
	return o
}

// skipBody reads a body that has no content of ours, if it is not too long, and
// reports whether that was all of it.
func skipBody(body io.Reader, buf []byte) (whole bool, err error) {
	for n := 0; n <= maxErrorBodyBytes; {
		m, err := body.Read(buf)
		if n += m; err == io.EOF {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	return false, nil
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
