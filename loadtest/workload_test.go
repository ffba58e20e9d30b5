package loadtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// drain returns all arrivals of a schedule.
func drain(sc *schedule) []arrival {
	var all []arrival
	for {
		a, ok := sc.next()
		if !ok {
			return all
		}
		all = append(all, a)
	}
}

// Each rank is drawn as often as its probability says, within five standard
// deviations of the binomial.
func TestZipf_hasTheExactDistribution(t *testing.T) {
	const n, draws = 40, 200_000
	for _, s := range []float64{0, 0.3, 0.7, 0.9, 0.999999, 1, 1.000001, 1.2, 2, 5} {
		t.Run(fmt.Sprintf("s=%v", s), func(t *testing.T) {
			z, rng := newZipf(s, n), rand.New(rand.NewPCG(1, 2))
			var counts [n]int
			for range draws {
				counts[z.draw(rng)]++
			}
			var norm float64
			for k := 1; k <= n; k++ {
				norm += math.Pow(float64(k), -s)
			}
			for k := range n {
				p := math.Pow(float64(k+1), -s) / norm
				sigma := math.Sqrt(draws * p * (1 - p))
				if diff := math.Abs(float64(counts[k]) - draws*p); diff > 5*sigma+1 {
					t.Errorf("rank %d: drawn %d times, want %.0f ± %.0f", k, counts[k], draws*p, 5*sigma)
				}
			}
		})
	}
	t.Run("one key", func(t *testing.T) {
		if got := newZipf(0.9, 1).draw(rand.New(rand.NewPCG(1, 2))); got != 0 {
			t.Errorf("drew %d of one key", got)
		}
	})
	t.Run("a thousand million keys", func(t *testing.T) {
		z, rng := newZipf(0.8, 1e9), rand.New(rand.NewPCG(3, 4))
		for range 10_000 {
			if k := z.draw(rng); k >= 1e9 {
				t.Fatalf("drew %d", k)
			}
		}
	})
}

func BenchmarkZipf(b *testing.B) {
	for _, s := range []float64{0, 0.9, 1.2} {
		b.Run(fmt.Sprintf("s=%v/n=1e6", s), func(b *testing.B) {
			z, rng := newZipf(s, 1e6), rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for b.Loop() {
				z.draw(rng)
			}
		})
	}
}

func TestSchedule_isAFunctionOfItsSeed(t *testing.T) {
	s := steady()
	s.Phases = []Phase{
		{Duration: time.Second, Rate: 500, Arrivals: Poisson, Zipf: 0.9, Absent: 0.5},
		{Duration: time.Second, Rate: 500, Arrivals: Constant, AbsentKeys: 10, Absent: 0.5},
	}
	first, second := drain(newSchedule(s, 3)), drain(newSchedule(s, 3))
	if !slices.Equal(first, second) {
		t.Error("the same seed gave two schedules")
	}
	s.Seed++
	if slices.Equal(first, drain(newSchedule(s, 3))) {
		t.Error("another seed gave the same schedule")
	}
	if !slices.IsSortedFunc(first, func(a, b arrival) int { return int(a.at - b.at) }) {
		t.Error("the arrivals are out of order")
	}
}

func TestSchedule_arrivals(t *testing.T) {
	s := steady()
	s.Phases = []Phase{{Duration: 10 * time.Second, Rate: 300, Arrivals: Constant}}
	all := drain(newSchedule(s, 1))
	if n := len(all); n < 2999 || n > 3000 {
		t.Errorf("constant: %d arrivals, want 3000", n)
	}
	for i, a := range all {
		if want := time.Duration(float64(i+1) / 300 * 1e9); (a.at - want).Abs() > time.Microsecond {
			t.Fatalf("constant: arrival %d at %v, want %v", i, a.at, want)
		}
	}

	// Poisson: the count has its mean as its variance, and so have the counts
	// of each tenth of a second.
	s.Phases = []Phase{{Duration: 100 * time.Second, Rate: 300, Arrivals: Poisson}}
	all = drain(newSchedule(s, 1))
	if diff := math.Abs(float64(len(all)) - 30_000); diff > 5*math.Sqrt(30_000) {
		t.Errorf("poisson: %d arrivals, want 30000 ± %.0f", len(all), 5*math.Sqrt(30_000))
	}
	var counts [1000]float64
	for _, a := range all {
		counts[min(int(a.at/(100*time.Millisecond)), 999)]++
	}
	var variance float64
	for _, c := range counts {
		variance += (c - 30) * (c - 30) / 1000
	}
	// The variance of that estimate is about 2 * 30^2 / 1000.
	if limit := 5 * math.Sqrt(2*30*30/1000.0); math.Abs(variance-30) > limit {
		t.Errorf("poisson: variance %.1f, want 30 ± %.1f", variance, limit)
	}
}

func TestSchedule_absentShareAndKeys(t *testing.T) {
	s := steady()
	s.Keys = 100
	s.Phases = []Phase{{Duration: 10 * time.Second, Rate: 2000, Arrivals: Constant, Zipf: 0.9, Absent: 0.65}}
	absent := map[string]bool{}
	var n int
	for _, a := range drain(newSchedule(s, 3)) {
		if a.target < 0 || a.target > 2 {
			t.Fatalf("target %d of 3", a.target)
		}
		key, size, ok := parseKeyPath(a.path)
		if ok != a.exists || ok && (key >= 100 || size != a.size) {
			t.Fatalf("arrival %+v: key %d, size %d, %v", a, key, size, ok)
		}
		if !a.exists {
			n++
			absent[a.path] = true
		}
	}
	if sigma := math.Sqrt(20_000 * 0.65 * 0.35); math.Abs(float64(n)-13_000) > 5*sigma {
		t.Errorf("%d of 20000 absent, want 13000 ± %.0f", n, 5*sigma)
	}
	if len(absent) != n {
		t.Errorf("%d absent requests for %d keys: want each once", n, len(absent))
	}

	s.Phases[0].AbsentKeys = 7
	clear(absent)
	for _, a := range drain(newSchedule(s, 3)) {
		if !a.exists {
			absent[a.path] = true
		}
	}
	if len(absent) != 7 {
		t.Errorf("%d different absent keys, want 7", len(absent))
	}
}

func TestSchedule_phases(t *testing.T) {
	s := steady()
	s.Keys = 50
	s.Phases = []Phase{
		{Duration: time.Second, Rate: 100, Arrivals: Constant},
		{Duration: time.Second, Rate: 10, Arrivals: Constant, FirstKey: 50, Keys: 3},
	}
	var counts [2]int
	for _, a := range drain(newSchedule(s, 1)) {
		key, _, _ := parseKeyPath(a.path)
		phase := 0
		if a.at > time.Second {
			phase = 1
		}
		counts[phase]++
		if inSecond := key >= 50 && key < 53; inSecond != (phase == 1) {
			t.Errorf("key %d at %v", key, a.at)
		}
	}
	if counts != [2]int{100, 10} {
		t.Errorf("%v arrivals in the phases, want 100 and 10", counts)
	}
}

func TestPurges_followTheirPhases(t *testing.T) {
	s := steady()
	s.Phases = []Phase{
		{Duration: time.Second, Rate: 100, Arrivals: Constant, Absent: 0.9},
		{Duration: time.Second, Rate: 100, Arrivals: Constant, Absent: 0.9, PurgeRate: 20},
	}
	all := drain(purges(s))
	if len(all) != 20 {
		t.Errorf("%d purges, want 20", len(all))
	}
	for _, a := range all {
		if !a.exists || a.at <= time.Second {
			t.Errorf("purge of %s at %v: want existing keys, in the second phase", a.path, a.at)
		}
	}
}

func TestScatter_isAPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 10, 97, 1000, 65536} {
		seen := make(map[uint64]bool)
		for r := range n {
			seen[scatter(r, n)] = true
		}
		if uint64(len(seen)) != n {
			t.Errorf("n=%d: %d values", n, len(seen))
		}
	}
}

func BenchmarkSchedule(b *testing.B) {
	s := steady()
	s.Phases[0].Duration = 24 * time.Hour
	sc := newSchedule(s, 3)
	b.ReportAllocs()
	for b.Loop() {
		sc.next()
	}
}
