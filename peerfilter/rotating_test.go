package peerfilter

import (
	"sync"
	"testing"
	"time"
)

func newRotating(t *testing.T, cfg RotatingConfig) *Rotating {
	t.Helper()
	r, err := NewRotating(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRotating_turnsByAge(t *testing.T) {
	r := newRotating(t, RotatingConfig{Params: testParams(100), MaxAge: time.Minute})
	t0 := time.Unix(1000, 0)
	h := Hash{1 << 60, 42}
	if r.MayContain(h, t0) || r.Add(h, t0) {
		t.Fatal("remembered before it was added")
	}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {59 * time.Second, true}, {61 * time.Second, true}, {119 * time.Second, true}, {121 * time.Second, false}, {time.Hour, false}} {
		if got := r.MayContain(h, t0.Add(c.after)); got != c.want {
			t.Errorf("after %v: remembered %v, want %v", c.after, got, c.want)
		}
	}
}

func TestRotating_forgetsAfterSilence(t *testing.T) {
	r := newRotating(t, RotatingConfig{Params: testParams(100), MaxAge: time.Minute})
	t0 := time.Unix(1000, 0)
	h := Hash{1 << 60, 42}
	r.Add(h, t0)
	if r.MayContain(h, t0.Add(10*time.Minute)) {
		t.Error("remembered after ten times its age")
	}
}

// TestRotating_lateTurn leaves the pair alone past its turn: what is turned late
// is not remembered longer.
func TestRotating_lateTurn(t *testing.T) {
	r := newRotating(t, RotatingConfig{Params: testParams(100), MaxAge: time.Minute})
	t0 := time.Unix(1000, 0)
	h := Hash{1 << 60, 42}
	r.Add(h, t0)
	if !r.MayContain(h, t0.Add(90*time.Second)) || r.MayContain(h, t0.Add(121*time.Second)) {
		t.Error("want it remembered after 90 s and not after 121 s")
	}
}

func TestRotating_addRefreshes(t *testing.T) {
	r := newRotating(t, RotatingConfig{Params: testParams(100), MaxAge: time.Minute})
	now := time.Unix(1000, 0)
	h := Hash{1 << 60, 42}
	r.Add(h, now)
	for range 20 {
		now = now.Add(50 * time.Second)
		if !r.Add(h, now) {
			t.Fatal("forgotten although it was added again and again")
		}
	}
}

func TestRotating_turnsByCount(t *testing.T) {
	rnd := newRand(t)
	r := newRotating(t, RotatingConfig{Params: mustSize(t, 1000, 0.0001, 1).Params, MaxKeys: 1000})
	now := time.Time{} // any time will do
	hs := randomHashes(rnd, 10_000)
	for i, h := range hs {
		r.Add(h, now)
		r.Add(h, now) // not a new key
		for _, back := range []int{0, 1, 500, 990} {
			if back <= i && !r.MayContain(hs[i-back], now) {
				t.Fatalf("key %d forgotten after %d more", i-back, back)
			}
		}
	}
	forgotten := 0
	for _, h := range hs[:7900] {
		if !r.MayContain(h, now) {
			forgotten++
		}
	}
	if forgotten < 7850 {
		t.Errorf("%d of 7900 old keys forgotten", forgotten)
	}
	if s := r.Stats(); s.Turns < 9 || s.Turns > 10 || s.Keys > 1000 {
		t.Errorf("stats %+v", s)
	}
}

func TestRotating_defaultsAndRejects(t *testing.T) {
	size := mustSize(t, 10_000, 0.01, 1)
	if got := newRotating(t, RotatingConfig{Params: size.Params}).cfg.MaxKeys; got < 10_000 || got > 10_100 {
		t.Errorf("%d keys in a filter for 10 000 at 1 %%", got)
	}
	for name, cfg := range map[string]RotatingConfig{
		"negative keys": {Params: size.Params, MaxKeys: -1},
		"negative age":  {Params: size.Params, MaxAge: -1},
	} {
		if _, err := NewRotating(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRotating_concurrent(t *testing.T) {
	rnd := newRand(t)
	r := newRotating(t, RotatingConfig{Params: testParams(50), MaxKeys: 300})
	now := time.Unix(1000, 0)
	var wg sync.WaitGroup
	for range 4 {
		hs := randomHashes(rnd, 5000)
		wg.Go(func() {
			for _, h := range hs {
				r.Add(h, now)
				r.MayContain(h, now)
			}
		})
	}
	wg.Wait()
	if s := r.Stats(); s.Turns < 10 {
		t.Errorf("stats %+v", s)
	}
}

func TestRotating_allocatesNothing(t *testing.T) {
	r := newRotating(t, RotatingConfig{Params: testParams(50)})
	now := time.Unix(1000, 0)
	r.Add(Hash{}, now)
	if n := testing.AllocsPerRun(100, func() {
		r.Add(Hash{1, 2}, now)
		r.MayContain(Hash{3, 4}, now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
