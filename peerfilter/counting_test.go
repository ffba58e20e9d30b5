package peerfilter

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// checkCounting compares every counter, bit and statistic of c with a fresh
// count of the keys that live holds, which must not have pinned a counter.
func checkCounting(t *testing.T, c *Counting, live map[Hash]int) {
	t.Helper()
	want := make([]int, c.params.Bits())
	keys := 0
	for h, n := range live {
		keys += n
		for _, pos := range positionsOf(h, c.params.Blocks) {
			want[pos] += n
		}
	}
	set := 0
	for pos, n := range want {
		counter := int(c.counters[pos/countersPerWord] >> (pos % countersPerWord * counterBits) & 15)
		bit := c.bits[pos/64]>>(pos%64)&1 != 0
		if counter != n || bit != (n > 0) {
			t.Fatalf("position %d: counter %d, bit %v, want %d", pos, counter, bit, n)
		}
		if bit {
			set++
		}
	}
	s := c.Stats()
	if s.Keys != keys || s.BitsSet != set || s.Pinned != 0 || s.Underflows != 0 || s.Fill != float64(set)/float64(len(want)) {
		t.Fatalf("stats %+v, want %d keys, %d bits, none pinned, no underflow", s, keys, set)
	}
}

func TestCounting_model(t *testing.T) {
	r := newRand(t)
	seed := Seed{r.Uint64(), r.Uint64()}
	c := newCounting(t, testParams(300))
	model := make(map[string]int)
	live := make(map[Hash]int)
	var names []string
	for step := range 60_000 {
		// Some 1200 keys on average, with the same key up to three times.
		if key := fmt.Sprintf("http://h/%d", r.IntN(3000)); r.IntN(5) < 3 && model[key] < 3 && len(names) < 2000 {
			c.Add(Sum(seed, key))
			model[key]++
			live[Sum(seed, key)]++
			names = append(names, key)
		} else if len(names) > 0 {
			i := r.IntN(len(names))
			key := names[i]
			names[i] = names[len(names)-1]
			names = names[:len(names)-1]
			c.Remove(Sum(seed, key))
			if model[key]--; model[key] == 0 {
				delete(model, key)
			}
			if live[Sum(seed, key)]--; live[Sum(seed, key)] == 0 {
				delete(live, Sum(seed, key))
			}
		}
		if step%1000 == 0 {
			for key := range model {
				if !c.MayContain(Sum(seed, key)) {
					t.Fatalf("step %d: %s is in the filter and is not found", step, key)
				}
			}
			checkCounting(t, c, live)
		}
	}
	for key, n := range model {
		for range n {
			c.Remove(Sum(seed, key))
		}
	}
	clear(live)
	checkCounting(t, c, live)
}

func TestCounting_agreesWithPositions(t *testing.T) {
	r := newRand(t)
	for _, blocks := range []uint32{1, 2, 3, 100, 257, 19726} {
		p := testParams(blocks)
		hs := randomHashes(r, int(blocks)*20)
		c := filled(t, p, hs)
		bitmap := bitmapOf(p, hs)
		if !slices.Equal(c.bits, bitmap) {
			t.Fatalf("%d blocks: bits are not the keys' positions", blocks)
		}
		for range 10_000 {
			h := randomHash(r)
			if got, want := c.MayContain(h), bitmapHas(p, bitmap, h); got != want {
				t.Fatalf("%d blocks: MayContain(%x) = %v, want %v", blocks, h, got, want)
			}
		}
	}
}

func TestCounting_stripeIsAFunctionOfTheBlock(t *testing.T) {
	for _, blocks := range []uint32{1, 2, 255, 256, 257, 1000, 19726, MaxBlocks} {
		c := &Counting{params: testParams(blocks), stripes: make([]stripe, min(maxStripes, blocks))}
		c.stripeMul = uint64(len(c.stripes)) << 32 / uint64(blocks)
		seen := make(map[*stripe]bool)
		step := max(1, blocks/5000)
		for b := uint32(0); b < blocks; b += step {
			seen[c.stripeOf(b)] = true
		}
		c.stripeOf(blocks - 1) // in range
		if len(seen) < len(c.stripes)*9/10 {
			t.Errorf("%d blocks use %d of %d stripes", blocks, len(seen), len(c.stripes))
		}
	}
}

func TestCounting_removeOfAbsentKeyChangesNothing(t *testing.T) {
	r := newRand(t)
	hs := randomHashes(r, 1000)
	c := filled(t, testParams(200), hs)
	before := slices.Clone(c.counters)
	refused := uint64(0)
	for range 1000 {
		h := randomHash(r)
		if c.MayContain(h) {
			continue // cannot be told from a key that is there
		}
		c.Remove(h)
		refused++
	}
	if got := c.Stats(); got.Underflows != refused || got.Keys != len(hs) {
		t.Errorf("%d underflows and %d keys, want %d and %d", got.Underflows, got.Keys, refused, len(hs))
	}
	if !slices.Equal(c.counters, before) {
		t.Error("counters changed")
	}
}

func TestCounting_pinnedCounterStays(t *testing.T) {
	c := newCounting(t, testParams(4))
	h := Hash{1 << 62, 0x123456789ABC}
	for range 14 {
		c.Add(h)
	}
	if s := c.Stats(); s.Pinned != 0 {
		t.Fatalf("%d counters pinned at 14", s.Pinned)
	}
	c.Add(h)
	if s := c.Stats(); s.Pinned != K {
		t.Fatalf("%d counters pinned at 15, want %d", s.Pinned, K)
	}
	for range 5 {
		c.Add(h)
	}
	for range 20 {
		c.Remove(h)
	}
	s := c.Stats()
	if !c.MayContain(h) || s.Pinned != K || s.Keys != 0 || s.BitsSet != K {
		t.Errorf("after as many removes: found %v, stats %+v; want the pinned bits to stay", c.MayContain(h), s)
	}
}

// TestCounting_turnover replaces the whole key set a hundred times at design
// load: no key is missed, and the filter is the same as one freshly built.
func TestCounting_turnover(t *testing.T) {
	r := newRand(t)
	const n = 2000
	size := mustSize(t, n, 0.01, 1)
	c := newCounting(t, size.Params)
	keys := randomHashes(r, n)
	for _, h := range keys {
		c.Add(h)
	}
	for range 100 {
		for i := range keys {
			c.Remove(keys[i])
			keys[i] = randomHash(r)
			c.Add(keys[i])
		}
		for _, h := range keys {
			if !c.MayContain(h) {
				t.Fatal("a key that is there is not found")
			}
		}
	}
	live := make(map[Hash]int)
	for _, h := range keys {
		live[h]++
	}
	checkCounting(t, c, live)
}

// TestCounting_overload plans for n keys and adds four times as many, over ten
// turnovers. Nothing is missed, the rate is what the formula says of such a
// load, and a rebuild from the keys brings the planned rate back.
func TestCounting_overload(t *testing.T) {
	r := fixedRand(1)
	const n = 5_000
	size := mustSize(t, n, 0.01, 1)
	c := newCounting(t, size.Params)
	keys := randomHashes(r, 4*n)
	for _, h := range keys {
		c.Add(h)
	}
	for range 10 {
		for i := range keys {
			c.Remove(keys[i])
			keys[i] = randomHash(r)
			c.Add(keys[i])
		}
	}
	for _, h := range keys {
		if !c.MayContain(h) {
			t.Fatal("a key that is there is not found")
		}
	}
	if got, want := exactRate(c), Rate(size.Params, 4*n); math.Abs(got/want-1) > 0.05 || got < 0.6 {
		t.Errorf("rate at 4 times the load %.3f, formula %.3f", got, want)
	}
	if got := c.Stats().ExpectedRate; math.Abs(got/exactRate(c)-1) > 0.05 {
		t.Errorf("statistics expect a rate of %.3f, it is %.3f", got, exactRate(c))
	}

	advice := Watch{Keys: n}.Advise(c.Stats())
	if advice.Level != Rebuild || advice.Reason != ReasonLoad {
		t.Fatalf("advice %+v, want a rebuild for load", advice)
	}
	rebuilt := newCounting(t, mustSize(t, advice.Keys, 0.01, 1).Params)
	rebuilt.AddAll(keys)
	for _, h := range keys {
		if !rebuilt.MayContain(h) {
			t.Fatal("a key that is there is not found after the rebuild")
		}
	}
	if got := exactRate(rebuilt); got > 0.01 {
		t.Errorf("rate after the rebuild %.4f, want at most 0.01", got)
	}
}

func TestCounting_addAllEqualsAdd(t *testing.T) {
	r := newRand(t)
	for _, n := range []int{0, 1, 100, 5000, 60_000} {
		p := testParams(3000)
		hs := randomHashes(r, n)
		for i := range hs { // some keys so often that counters are pinned
			if i%8 == 0 {
				hs[i] = hs[i%1000]
			}
		}
		one := filled(t, p, hs)
		all := newCounting(t, p)
		all.AddAll(hs[:n/3])
		all.AddAll(hs[n/3:])
		if !slices.Equal(one.counters, all.counters) || !slices.Equal(one.bits, all.bits) || one.Stats() != all.Stats() {
			t.Errorf("%d keys: AddAll and Add differ", n)
		}
	}
}

func TestNewCounting_rejects(t *testing.T) {
	for name, p := range map[string]Params{
		"zero":            {},
		"no layout":       {Blocks: 10},
		"unknown layout":  {Layout: 2, Blocks: 10},
		"no blocks":       {Layout: LayoutSectors},
		"too many blocks": {Layout: LayoutSectors, Blocks: MaxBlocks + 1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewCounting(p); err == nil {
				t.Error("no error")
			}
			if _, err := NewReplicas(p); err == nil {
				t.Error("no error from NewReplicas")
			}
			if _, err := NewRotating(RotatingConfig{Params: p}); err == nil {
				t.Error("no error from NewRotating")
			}
		})
	}
}

func TestCounting_allocatesNothing(t *testing.T) {
	c := newCounting(t, testParams(100))
	h := Hash{12345 << 40, 67890}
	if n := testing.AllocsPerRun(100, func() {
		c.Add(h)
		if !c.MayContain(h) {
			t.Fatal("not found")
		}
		c.Remove(h)
		Sum(Seed{1, 2}, "http://example.com/a/key/that/is/not/short?at=all")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
