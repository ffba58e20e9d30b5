package shield

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var limitSeed = flag.Uint64("limit.seed", 0, "seed of the limit's model test; 0: a new one")

func newLimit(t *testing.T, cfg LimitConfig) *Limit {
	t.Helper()
	l, err := NewLimit(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// take acquires n places, which must be there at once.
func take(t *testing.T, l *Limit, c Class, n int) (releases []func()) {
	t.Helper()
	for i := range n {
		r, err := l.Acquire(t.Context(), c)
		if err != nil {
			t.Fatalf("place %d of %d for %s: %v", i+1, n, c, err)
		}
		releases = append(releases, r)
	}
	return releases
}

func refusedWith(t *testing.T, err error, reason string) {
	t.Helper()
	var se *SaturatedError
	if !errors.As(err, &se) || se.Reason != reason {
		t.Fatalf("got %v, want a refusal for %q", err, reason)
	}
}

func TestLimit_none(t *testing.T) {
	l := newLimit(t, LimitConfig{})
	take(t, l, New, 5000)
	if st := l.Stats(New); st.InFlight != 5000 || st.Waited != 0 {
		t.Errorf("%+v", st)
	}
}

func TestLimit_configuration(t *testing.T) {
	for _, cfg := range []LimitConfig{{Max: -1}, {Queue: -1}, {MaxWait: -1}, {KnownShare: -.1}, {KnownShare: 1.1}} {
		if _, err := NewLimit(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

func TestLimit_keepsAShareForWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(t, LimitConfig{Max: 8, Queue: 8, KnownShare: .25, MaxWait: time.Second})
		take(t, l, New, 6)
		began := time.Now()
		_, err := l.Acquire(t.Context(), New)
		refusedWith(t, err, RefusedWait)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %v, want 1 s", took)
		}
		take(t, l, Known, 2)
		_, err = l.Acquire(t.Context(), Known)
		refusedWith(t, err, RefusedWait)
	})
}

func TestLimit_oneOfAllIsLeftToNew(t *testing.T) {
	take(t, newLimit(t, LimitConfig{Max: 1, KnownShare: 1}), New, 1)
	take(t, newLimit(t, LimitConfig{Max: 4, KnownShare: 1}), New, 1)
}

func TestLimit_queueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(t, LimitConfig{Max: 1, Queue: 4, KnownShare: .5, MaxWait: time.Minute})
		release := take(t, l, New, 1)[0]
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []Class
		wait := func(c Class) {
			wg.Go(func() {
				r, err := l.Acquire(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, c)
				mu.Unlock()
				r()
				r() // a second time does nothing
			})
			synctest.Wait()
		}
		wait(New)
		wait(New)
		_, err := l.Acquire(t.Context(), New) // the rest of the queue is not for it
		refusedWith(t, err, RefusedQueue)
		wait(Known)
		wait(Known)
		_, err = l.Acquire(t.Context(), Known)
		refusedWith(t, err, RefusedQueue)
		if a, b := l.Stats(New), l.Stats(Known); a.Waiting != 2 || b.Waiting != 2 || a.Refused[RefusedQueue] != 1 || b.Refused[RefusedQueue] != 1 {
			t.Errorf("new %+v, known %+v", a, b)
		}
		release()
		wg.Wait()
		// With one place there is no share: first come, first served.
		if len(order) != 4 {
			t.Errorf("served %v", order)
		}
		if a, b := l.Stats(New), l.Stats(Known); a.InFlight != 0 || b.InFlight != 0 || a.Waiting != 0 || b.Waiting != 0 {
			t.Errorf("at the end new %+v, known %+v", a, b)
		}
	})
}

func TestLimit_knownGoesFirstWithinItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(t, LimitConfig{Max: 4, Queue: 100, KnownShare: .25, MaxWait: time.Minute})
		news := take(t, l, New, 3)
		knowns := take(t, l, Known, 1)
		got := make(chan Class, 2)
		for _, c := range []Class{New, Known} {
			go func() {
				if _, err := l.Acquire(t.Context(), c); err == nil {
					got <- c
				}
			}()
			synctest.Wait()
		}
		knowns[0]() // frees the share: the known one overtakes
		if c := <-got; c != Known {
			t.Errorf("%s came first", c)
		}
		news[0]()
		if c := <-got; c != New {
			t.Errorf("%s came second", c)
		}
	})
}

func TestLimit_contextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(t, LimitConfig{Max: 1, Queue: 1, MaxWait: time.Minute})
		release := take(t, l, New, 1)[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, New); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if st := l.Stats(New); st.Waiting != 0 || st.Refused[RefusedWait] != 0 {
			t.Errorf("%+v", st)
		}
		release()
		take(t, l, New, 1)
	})
}

func TestLimit_resize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(t, LimitConfig{Max: 1, Queue: 10, MaxWait: time.Minute})
		take(t, l, New, 1)
		done := make(chan error)
		go func() { _, err := l.Acquire(t.Context(), New); done <- err }()
		synctest.Wait()
		if err := l.Resize(LimitConfig{Max: 2, Queue: 10}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("what waited was not let in: %v", err)
		}
		if err := l.Resize(LimitConfig{Max: -2}); err == nil || l.Max() != 2 {
			t.Errorf("a wrong configuration: %v, Max %d", err, l.Max())
		}
	})
}

// Many goroutines come, wait, give up and go at random; the bounds hold at
// every moment and nothing is left at the end.
func TestLimit_model(t *testing.T) {
	seed := *limitSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-limit.seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const maxN, queue = 7, 9
		l := newLimit(t, LimitConfig{Max: maxN, Queue: queue, KnownShare: .3, MaxWait: 40 * time.Millisecond})
		var wg sync.WaitGroup
		for g := range 40 {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			wg.Go(func() {
				for range 200 {
					c := Class(rnd.IntN(2))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(60))*time.Millisecond)
					began := time.Now()
					release, err := l.Acquire(ctx, c)
					if took := time.Since(began); took > 40*time.Millisecond {
						t.Errorf("%v in the queue", took)
					}
					l.mu.Lock()
					n, k := &l.lanes[New], &l.lanes[Known]
					if n.inFlight < 0 || k.inFlight < 0 || n.inFlight+k.inFlight > maxN || n.inFlight > maxN-l.kept || n.waiting.Len()+k.waiting.Len() > queue {
						t.Errorf("in flight %d and %d, waiting %d and %d", n.inFlight, k.inFlight, n.waiting.Len(), k.waiting.Len())
					}
					if room := l.roomLocked(Known) && k.waiting.Len() > 0 || l.roomLocked(New) && n.waiting.Len() > 0; room {
						t.Error("somebody waits although there is room")
					}
					l.mu.Unlock()
					if err == nil {
						time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
						release()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		for _, c := range Classes() {
			if st := l.Stats(c); st.InFlight != 0 || st.Waiting != 0 {
				t.Errorf("%s: %+v", c, st)
			}
		}
	})
}

// Go 1.26.8, Intel Xeon, 2 vCPU: 69 ns, 48 B and 2 allocations, limited or not.
func BenchmarkLimit_Acquire(b *testing.B) {
	for name, n := range map[string]int{"limited": 100, "unlimited": 0} {
		b.Run(name, func(b *testing.B) {
			l, err := NewLimit(LimitConfig{Max: n})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				release, err := l.Acquire(b.Context(), New)
				if err != nil {
					b.Fatal(err)
				}
				release()
			}
		})
	}
}
