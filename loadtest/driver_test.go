package loadtest

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is a listener without a network, as a bubble needs it.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// drive sends a schedule to a handler, inside a bubble.
func drive(ctx context.Context, s Scenario, workers int, h http.Handler) tally {
	ln := newPipeListener()
	srv := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.Serve(ln)
	}()
	rec := newRecorder()
	d := newDriver([]string{"node:80"}, "host.test", workers, rec)
	d.dial = ln.dial
	d.run(ctx, newSchedule(s, 1), time.Now(), s.duration(), requestTimeout)
	srv.Close()
	<-served
	return rec.tally()
}

func onePhase(p Phase) Scenario {
	s := steady()
	p.Arrivals = Constant
	s.Phases = []Phase{p}
	return s
}

// rightAnswers serves the content of the test.
func rightAnswers(w http.ResponseWriter, r *http.Request) {
	_, size, ok := parseKeyPath(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Status", "a; hit")
	io.Copy(w, contentOf(r.URL.Path, size).reader())
}

// A server that stalls for a second delays everyone who comes in that second,
// by half a second on average, and the latencies must say so even if there is
// one connection only. A closed loop would have sent one request in that time,
// and reported one bad latency among hundreds.
func TestDriver_seesAStallAsItsUsersDo(t *testing.T) {
	for _, workers := range []int{1, 500} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			got := drive(t.Context(), onePhase(Phase{Duration: 10 * time.Second, Rate: 100}), workers, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if at := time.Since(began); at >= 5*time.Second && at < 6*time.Second {
					time.Sleep(6*time.Second - at) // fake time
				}
				rightAnswers(w, r)
			}))
			if got.Sent != 1000 || got.errors != 0 || got.Unsent != 0 {
				t.Fatalf("%d workers: sent %d, errors %d, unsent %d: want 1000, 0, 0", workers, got.Sent, got.errors, got.Unsent)
			}
			// A tenth of the requests waited up to a second, evenly spread.
			for _, tc := range []struct{ name, got, want any }{
				{"p50", got.latency.P50 < 1, true},
				{"p90", got.latency.P90 < 30, true},
				{"p99", math.Abs(got.latency.P99-900) < 30, true},
				{"max", math.Abs(got.latency.Max-1000) < 30, true},
				{"late starts with one worker", got.late > 90, workers == 1},
				{"late wake-ups", got.Asleep, int64(0)},
			} {
				if tc.got != tc.want {
					t.Errorf("%d workers: %s: %v, want %v (%+v, late %d)", workers, tc.name, tc.got, tc.want, got.latency, got.late)
				}
			}
		})
	}
}

func TestDriver_checksEveryAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		absent Share
		h      http.HandlerFunc
		kind   string // "" for none
		wrong  bool
	}{
		{"right", 0.5, rightAnswers, "", false},
		{"200 for an absent key", 1, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "here") }, errStatus, true},
		{"404 for an existing key", 0, http.NotFound, errStatus, true},
		{"another key's body", 0, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, contentOf("/other", 1024).reader()) }, errContent, true},
		{"no body", 0, func(w http.ResponseWriter, r *http.Request) {}, errContent, true},
		{"connection closed", 0, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, errReset, false},
		{"no answer", 0, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, errTimeout, false},
		{"another host", 0, func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "host.test" {
				rightAnswers(w, r)
			}
		}, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := drive(t.Context(), onePhase(Phase{Duration: time.Second, Rate: 20, Absent: tc.absent}), 50, tc.h)
				if got.Sent != 20 {
					t.Errorf("sent %d, want 20", got.Sent)
				}
				want := map[string]int64{}
				var wrong int64
				if tc.kind != "" {
					want[tc.kind] = 20
				}
				if tc.wrong {
					wrong = 20
				}
				if len(got.Kinds) != len(want) || got.Kinds[tc.kind] != want[tc.kind] || got.wrong != wrong {
					t.Errorf("errors %v (%d wrong answers), want %v (%d); %v", got.Kinds, got.wrong, want, wrong, got.samples)
				}
				if len(got.samples) != min(maxErrorSamples, int(got.errors)) {
					t.Errorf("%d samples of %d errors", len(got.samples), got.errors)
				}
			})
		})
	}
}

// What cannot be sent any more is counted, not forgotten.
func TestDriver_countsWhatItGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := drive(t.Context(), onePhase(Phase{Duration: 10 * time.Second, Rate: 10}), 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second) // fake time
			rightAnswers(w, r)
		}))
		if got.Sent+got.Unsent != 100 || got.Sent < 19 || got.Sent > 21 || got.Answered != got.Sent {
			t.Errorf("sent %d, unsent %d, answered %d: want some 20 sent and answered of 100", got.Sent, got.Unsent, got.Answered)
		}
		d := DriverReport{Connections: 1, Unsent: got.Unsent}
		if d.bottleneck(got.Sent) == "" {
			t.Error("no warning")
		}
	})
}

func TestDriver_stopsWhenToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		got := drive(ctx, onePhase(Phase{Duration: time.Hour, Rate: 10}), 30, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}))
		if took := time.Since(began); took > 2100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if got.Abandoned == 0 || got.Abandoned != got.Sent || got.errors != 0 {
			t.Errorf("sent %d, abandoned %d, errors %d: want all abandoned", got.Sent, got.Abandoned, got.errors)
		}
	})
}

func TestBottleneck(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    DriverReport
		want bool
	}{
		{"on time", DriverReport{LateStarts: 9, LateWakeups: 9}, false},
		{"no CPU", DriverReport{LateStarts: 20, LateWakeups: 20}, true},
		{"no connection", DriverReport{LateStarts: 20}, true},
	} {
		if got := tc.d.bottleneck(1000); (got != "") != tc.want {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}

// BenchmarkDriver is one request against an origin of this package over
// loopback, all workers busy: driver and server share the cores.
func BenchmarkDriver(b *testing.B) {
	o, err := NewOrigin(OriginConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	d := newDriver([]string{o.Addr()}, "host.test", 64, newRecorder())
	a := arrival{path: KeyPath(1, 1024), exists: true, size: 1024}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		w := d.newWorker(b.Context())
		defer w.close()
		for pb.Next() {
			if o := w.send(a); o.kind != "" {
				b.Error(o.err)
			}
		}
	})
}
