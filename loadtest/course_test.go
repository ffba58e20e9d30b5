package loadtest

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestCourse(t *testing.T) {
	inf := math.Inf(1)
	for _, tc := range []struct {
		name string
		c    course
		n    float64
		want float64
	}{
		{"constant", course{100, 100, 0, 10}, 50, 0.5},
		{"constant, the last", course{100, 100, 0, 10}, 1000, 10},
		{"constant, after the last", course{100, 100, 0, 10}, 1001, inf},
		{"ramp, half of the time is a quarter of the way", course{0, 100, 0, 10}, 125, 5},
		{"ramp, the last", course{0, 100, 0, 10}, 500, 10},
		{"ramp, after the last", course{0, 100, 0, 10}, 501, inf},
		{"ramp down", course{100, 0, 0, 10}, 375, 5},
		{"ramp down, never", course{100, 0, 0, 10}, 501, inf},
		{"steps, in the first", course{100, 300, 3, 9}, 150, 1.5},
		{"steps, in the second", course{100, 300, 3, 9}, 500, 4},
		{"steps, in the third", course{100, 300, 3, 9}, 1200, 7},
		{"steps, the last", course{100, 300, 3, 9}, 1800, 9},
		{"steps, after the last", course{100, 300, 3, 9}, 1801, inf},
		{"nothing", course{0, 0, 0, 10}, 1, inf},
	} {
		if got := tc.c.when(tc.n); math.Abs(got-tc.want) > 1e-9 && got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// The times never go back, and their number is the integral of the rate.
func TestCourse_isMonotonous(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := course{rng.Float64() * 1000, rng.Float64() * 1000, rng.IntN(6), 1 + 9*rng.Float64()}
		last, n := 0.0, 0
		for ; ; n++ {
			at := c.when(float64(n + 1))
			if math.IsInf(at, 1) {
				break
			}
			if at < last || at > c.seconds {
				t.Fatalf("%+v: arrival %d at %v after %v", c, n+1, at, last)
			}
			last = at
		}
		if want := (c.from + c.to) / 2 * c.seconds; math.Abs(float64(n)-want) > 2 {
			t.Fatalf("%+v: %d arrivals, want %v", c, n, want)
		}
	}
}

// In each tenth of a ramp a Poisson process has as many arrivals as the rate
// says, within five standard deviations.
func TestSchedule_poissonRamp(t *testing.T) {
	s := onePhase(Phase{Duration: 100 * time.Second, Rate: 100, ToRate: 1100})
	s.Phases[0].Arrivals = Poisson
	sc := newSchedule(s, 1)
	var tenths [10]float64
	for {
		a, ok := sc.next()
		if !ok {
			break
		}
		tenths[min(int(a.at/(10*time.Second)), 9)]++
	}
	for i, got := range tenths {
		if want := 10 * (150 + 100*float64(i)); math.Abs(got-want) > 5*math.Sqrt(want) {
			t.Errorf("tenth %d: %v arrivals, want %v", i, got, want)
		}
	}
}

func TestSchedule_scans(t *testing.T) {
	s := onePhase(Phase{Duration: time.Second, Rate: 25, Scan: true, FirstKey: 5, Keys: 10})
	s.Size = SizeRange{100, 100}
	sc := newSchedule(s, 3)
	for i := range 25 {
		a, _ := sc.next()
		if want := KeyPath(uint64(5+i%10), 100); a.path != want {
			t.Errorf("request %d: %s, want %s", i, a.path, want)
		}
	}
}

func TestSchedule_affinity(t *testing.T) {
	targets := func(clients int, a Affinity) map[int]int {
		m := map[int]int{}
		sc := newSchedule(onePhase(Phase{Duration: time.Second, Rate: 900, Clients: clients, Affinity: a}), 3)
		for {
			a, ok := sc.next()
			if !ok {
				return m
			}
			m[a.target]++
		}
	}
	if m := targets(1, Pinned); len(m) != 1 {
		t.Errorf("one client, pinned, at the nodes %v", m)
	}
	if m := targets(1, Sprayed); len(m) != 3 {
		t.Errorf("one client, sprayed, at the nodes %v", m)
	}
	if m := targets(1000, Pinned); len(m) != 3 || m[0] < 200 || m[1] < 200 || m[2] < 200 {
		t.Errorf("many clients, pinned, at the nodes %v", m)
	}
}

func TestSchedule_thinkTime(t *testing.T) {
	s := onePhase(Phase{Duration: 10 * time.Second, Clients: 50, Think: 5 * time.Second})
	if err := s.problems(); err != nil {
		t.Fatal(err)
	}
	sc, n := newSchedule(s, 1), 0
	for {
		if _, ok := sc.next(); !ok {
			break
		}
		n++
	}
	if n != 100 {
		t.Errorf("%d requests, want 100", n)
	}
}

// The parts of a schedule are all of it.
func TestEveryNth(t *testing.T) {
	s := onePhase(Phase{Duration: time.Second, Rate: 100, Zipf: 0.9, Absent: 0.5})
	whole := newSchedule(s, 3)
	parts := make([]*everyNth, 3)
	for i := range parts {
		parts[i] = &everyNth{all: newSchedule(s, 3), index: i, of: 3}
	}
	for i := 0; ; i++ {
		want, ok := whole.next()
		got, gotOK := parts[i%3].next()
		if got != want || gotOK != ok {
			t.Fatalf("arrival %d: %+v %v, want %+v %v", i, got, gotOK, want, ok)
		}
		if !ok {
			break
		}
	}
}
