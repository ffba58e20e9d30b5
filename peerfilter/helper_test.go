package peerfilter

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one, which is printed")

// newRand returns a source whose seed is in the test's log.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d; repeat with -seed %d", seed, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// fixedRand returns a source with the same seed every time, for tests of chances.
func fixedRand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(0x5EED, stream)) }

// positionsOf returns the K positions of h in a filter of n blocks, one in each
// sector, in rising order: the rule as LayoutSectors states it, which the code
// has unrolled in several places.
func positionsOf(h Hash, n uint32) [K]uint32 {
	var pos [K]uint32
	base := blockOf(h[0], n) * BlockBits
	for s := range uint32(K) {
		pos[s] = base + s*sectorBits + uint32(h[1]>>(6*s)&63)
	}
	return pos
}

func randomHash(r *rand.Rand) Hash { return Hash{r.Uint64(), r.Uint64()} }

func randomHashes(r *rand.Rand, n int) []Hash {
	hs := make([]Hash, n)
	for i := range hs {
		hs[i] = randomHash(r)
	}
	return hs
}

func testParams(blocks uint32) Params { return Params{Layout: LayoutSectors, Blocks: blocks} }

func newCounting(t testing.TB, p Params) *Counting {
	t.Helper()
	c, err := NewCounting(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustSize(t testing.TB, keys int, total float64, peers int) Sizing {
	t.Helper()
	s, err := Size(keys, total, peers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// filled returns a filter with hs in it.
func filled(t testing.TB, p Params, hs []Hash) *Counting {
	t.Helper()
	c := newCounting(t, p)
	for _, h := range hs {
		c.Add(h)
	}
	return c
}

// snapshotOf returns the published state of a filter with hs in it.
func snapshotOf(t testing.TB, p Params, hs []Hash) Snapshot {
	t.Helper()
	s := NewShadow(filled(t, p, hs))
	var tr Transitions
	for s.Diff(&tr) {
	}
	return s.Snapshot()
}

// bitmapOf is the model of a published state: the positions of hs, one by one.
func bitmapOf(p Params, hs []Hash) []uint64 {
	words := make([]uint64, p.words())
	for _, h := range hs {
		for _, pos := range positionsOf(h, p.Blocks) {
			words[pos/64] |= 1 << (pos % 64)
		}
	}
	return words
}

func bitmapHas(p Params, words []uint64, h Hash) bool {
	for _, pos := range positionsOf(h, p.Blocks) {
		if words[pos/64]>>(pos%64)&1 == 0 {
			return false
		}
	}
	return true
}

func bitmapSetHash(words []uint64) (setHash uint64) {
	for pos := range setBits(words) {
		setHash += mix64(pos)
	}
	return setHash
}

// exactRate is the false-positive probability of a filter as it stands: the
// mean over its blocks of the product of their sectors' fills.
func exactRate(c *Counting) float64 {
	var sum float64
	for b := range int(c.params.Blocks) {
		rate := 1.0
		for _, w := range c.bits[b*blockWords:][:blockWords] {
			rate *= float64(onesCount(w)) / 64
		}
		sum += rate
	}
	return sum / float64(c.params.Blocks)
}

func onesCount(w uint64) (n int) {
	for range setBits64(w) {
		n++
	}
	return n
}
