package negative

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Five standard errors of 1.04/sqrt(4096); around the change from linear
// counting the raw estimator's bias adds a percent (Heule et al. 2013).
func TestDistinct_estimates(t *testing.T) {
	rnd := newRand(t)
	now := time.Now()
	for _, n := range []int{0, 1, 10, 100, 1000, 10_000, 12_000, 100_000, 1_000_000} {
		var d Distinct
		for range n {
			h := rnd.Uint64()
			d.Add(h, now)
			if n <= 10_000 {
				d.Add(h, now) // once more changes nothing
			}
		}
		if got := d.Estimate(now); math.Abs(got-float64(n)) > (5*1.04/64+.01)*float64(n)+.5 {
			t.Errorf("%d distinct keys are estimated as %.1f", n, got)
		}
	}
}

func TestDistinct_forgets(t *testing.T) {
	var d Distinct
	rnd := newRand(t)
	base := time.Now()
	within := func(at time.Duration, want float64) {
		t.Helper()
		if got := d.Estimate(base.Add(at)); math.Abs(got-want) > .1*want {
			t.Errorf("after %v: %.1f, want %.0f", at, got, want)
		}
	}
	add := func(at time.Duration, n int) {
		for range n {
			d.Add(rnd.Uint64(), base.Add(at))
		}
	}
	add(0, 5000)
	within(time.Second, 5000)
	add(time.Minute, 100)
	within(time.Minute, 5000) // the last whole minute
	add(90*time.Second, 20_000)
	within(90*time.Second, 20_100) // a flood shows before its minute is over
	within(2*time.Minute, 20_100)
	within(3*time.Minute, 0)
	add(10*time.Minute, 50)
	within(10*time.Minute, 50)
}

func TestDistinct_concurrently(t *testing.T) {
	var d Distinct
	base := time.Now()
	var wg sync.WaitGroup
	for g := range 8 {
		rnd := rand.New(rand.NewPCG(1, uint64(g)))
		wg.Go(func() {
			for i := range 20_000 {
				d.Add(rnd.Uint64(), base.Add(time.Duration(i)*10*time.Millisecond))
				if i%1000 == 0 {
					d.Estimate(base.Add(time.Duration(i) * 10 * time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkDistinct_Add(b *testing.B) {
	var d Distinct
	now := time.Now()
	b.ReportAllocs()
	h := uint64(0)
	for b.Loop() {
		h += 0x9e3779b97f4a7c15
		d.Add(h, now)
	}
}
