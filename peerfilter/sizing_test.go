package peerfilter

import (
	"fmt"
	"math"
	"testing"
)

// TestSize_bitsPerKey holds the sizes of the sectored layout for one peer. The
// textbook figures, in the third column, are lower, and would miss the rate.
func TestSize_bitsPerKey(t *testing.T) {
	for _, c := range []struct{ rate, bits, classic float64 }{
		{0.02, 8.72, 8.14},
		{0.01, 10.10, 9.59},
		{0.005, 11.61, 11.03},
		{0.001, 15.72, 14.38},
		{0.0005, 17.81, 15.82},
		{0.0001, 23.61, 19.17},
	} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			s := mustSize(t, 1_000_000, c.rate, 1)
			if math.Abs(s.BitsPerKey-c.bits) > 0.01 {
				t.Errorf("%.3f bits a key, want %.2f", s.BitsPerKey, c.bits)
			}
			if classic := float64(s.ClassicBits) / 1e6; math.Abs(classic-c.classic) > 0.01 {
				t.Errorf("classic: %.3f bits a key, want %.2f", classic, c.classic)
			}
			if s.ExpectedRate > c.rate || s.ExpectedRate < 0.999*c.rate {
				t.Errorf("expected rate %v, want just below %v", s.ExpectedRate, c.rate)
			}
		})
	}
}

// TestSize_classicOfTenMillion pins two textbook sizes, m = -n ln p / (ln 2)^2:
// 120 581 599 and 85 034 843, which one meets as well, are not what the formula gives.
func TestSize_classicOfTenMillion(t *testing.T) {
	for rate, want := range map[float64]uint64{0.005: 110_277_535, 0.02: 81_423_634} {
		if got := mustSize(t, 10_000_000, rate, 1).ClassicBits; got != want {
			t.Errorf("rate %v: %d bits, want %d", rate, got, want)
		}
	}
}

func TestSize_targetIsOverAllPeers(t *testing.T) {
	for _, peers := range []int{1, 2, 8, 16, 64, 200} {
		s := mustSize(t, 100_000, 0.01, peers)
		if total := 1 - math.Pow(1-s.Rate, float64(peers)); math.Abs(total-0.01) > 1e-9 {
			t.Errorf("%d peers at %v each: %v in all, want 0.01", peers, s.Rate, total)
		}
	}
	if s := mustSize(t, 1_000_000, 0.01, 16); math.Abs(s.Rate-0.000628) > 1e-6 || math.Abs(s.BitsPerKey-17.1) > 0.1 {
		t.Errorf("16 peers: rate %v, %.2f bits a key; want 0.000628 and 17.1", s.Rate, s.BitsPerKey)
	}
}

func TestSize_bytes(t *testing.T) {
	s := mustSize(t, 1_000_000, 0.01, 16)
	m := uint64(s.Params.Blocks) * 512
	if s.Bits != m || s.K != 8 || s.BitBytes != m/8 || s.CounterBytes != m/2 || s.ReplicaBytes != m/8 || s.AllReplicaBytes != m*16/8 {
		t.Errorf("%+v", s)
	}
	if s := mustSize(t, 1000, 0.01, 9); s.AllReplicaBytes != 16*s.ReplicaBytes {
		t.Errorf("nine peers take %d columns of %d bytes, want 16 lanes", s.AllReplicaBytes, s.ReplicaBytes)
	}
	if s := mustSize(t, 1000, 0.01, 65); s.AllReplicaBytes != 128*s.ReplicaBytes {
		t.Errorf("65 peers take %d bytes of %d, want 128 lanes", s.AllReplicaBytes, s.ReplicaBytes)
	}
}

func TestSize_rejects(t *testing.T) {
	for name, c := range map[string]struct {
		keys  int
		rate  float64
		peers int
	}{
		"no keys":        {0, 0.01, 1},
		"negative keys":  {-1, 0.01, 1},
		"rate 0":         {1, 0, 1},
		"rate 1":         {1, 1, 1},
		"rate NaN":       {1, math.NaN(), 1},
		"no peers":       {1, 0.01, 0},
		"too many peers": {1, 0.01, MaxMembers + 1},
		"beyond 2^32":    {500_000_000, 0.01, 1},
		"far beyond":     {math.MaxInt, 1e-300, 256},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Size(c.keys, c.rate, c.peers); err == nil {
				t.Errorf("no error: %+v", s)
			}
		})
	}
}

func TestSize_limits(t *testing.T) {
	if s := mustSize(t, 1, 0.999999, 1); s.Params.Blocks != 1 {
		t.Errorf("one key at any rate: %d blocks", s.Params.Blocks)
	}
	if s := mustSize(t, 425_000_000, 0.01, 1); s.Bits > 1<<32 {
		t.Errorf("%d bits", s.Bits)
	}
}

// TestRate_overload holds the rates of a filter for 1 % beyond its plan.
func TestRate_overload(t *testing.T) {
	p := mustSize(t, 1_000_000, 0.01, 1).Params
	for load, want := range map[float64]float64{0.85: 0.0044, 1: 0.01, 1.2: 0.023, 1.5: 0.06, 2: 0.1668, 4: 0.7104} {
		if got := Rate(p, load*1e6); math.Abs(got/want-1) > 0.03 {
			t.Errorf("%v times the load: rate %.4f, want %.4f", load, got, want)
		}
	}
	if got := Rate(p, 0); got != 0 {
		t.Errorf("empty: %v", got)
	}
	if got := Rate(p, 1e15); got != 1 {
		t.Errorf("absurdly full: %v", got)
	}
}

func TestFill_formula(t *testing.T) {
	p := mustSize(t, 1_000_000, 0.01, 1).Params
	if got := Fill(p, 850_000); math.Abs(got-0.490) > 0.001 {
		t.Errorf("fill at 85 %% load %.4f, want 0.490", got)
	}
	if got := KeysAt(p, Fill(p, 123_456)); math.Abs(got-123_456) > 1 {
		t.Errorf("KeysAt does not invert Fill: %v", got)
	}
}

// TestRate_matchesFilters builds filters at design load and computes the exact
// rate of each from its bits. Their mean must lie within five standard errors
// of the formula and within 5 % of it; and what MayContain answers for absent
// keys must be what the bits say, within five standard deviations.
func TestRate_matchesFilters(t *testing.T) {
	const n = 10_000
	for i, rate := range []float64{0.02, 0.01, 0.005, 0.001, 0.0006} {
		t.Run(fmt.Sprintf("n=1e4/p=%v", rate), func(t *testing.T) {
			r := fixedRand(10 + uint64(i))
			size := mustSize(t, n, rate, 1)
			const filters = 60
			var sum, squares, positives, predicted float64
			queries := int(200 / rate / filters)
			for range filters {
				c := filled(t, size.Params, randomHashes(r, n))
				exact := exactRate(c)
				sum += exact
				squares += exact * exact
				predicted += exact * float64(queries)
				for range queries {
					if c.MayContain(randomHash(r)) {
						positives++
					}
				}
			}
			mean := sum / filters
			stderr := math.Sqrt((squares/filters - mean*mean) / filters)
			want := Rate(size.Params, n)
			if math.Abs(mean-want) > 5*stderr || math.Abs(mean/want-1) > 0.05 {
				t.Errorf("rate %.6f +- %.6f, formula %.6f", mean, stderr, want)
			}
			if math.Abs(positives-predicted) > 5*math.Sqrt(predicted) {
				t.Errorf("%.0f positives for absent keys, their filters' bits say %.0f", positives, predicted)
			}
		})
	}
}

// TestSum_spreadsURLs is the same test with real hashes of keys as like one
// another as URLs are.
func TestSum_spreadsURLs(t *testing.T) {
	const n = 100_000
	size := mustSize(t, n, 0.01, 1)
	c := newCounting(t, size.Params)
	seed := Seed{7, 11}
	for i := range n {
		c.Add(Sum(seed, fmt.Sprintf("https://www.example.com/img/%d.png", i)))
	}
	const absent = 300_000
	positives := 0.0
	for i := range absent {
		if c.MayContain(Sum(seed, fmt.Sprintf("https://www.example.com/img/%d.png", n+i))) {
			positives++
		}
	}
	want := Rate(size.Params, n) * absent
	if math.Abs(positives-want) > 5*math.Sqrt(want)+0.05*want {
		t.Errorf("%.0f positives, want about %.0f", positives, want)
	}
}
