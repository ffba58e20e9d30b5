package peerfilter

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// This file keeps three filters that look right and are not, and shows that the
// tests which Counting passes catch them.

// filter is what the tests below need of a counting filter.
type filter interface {
	Add(h Hash)
	Remove(h Hash)
	MayContain(h Hash) bool
}

// storm lets goroutines add and remove keys of their own in a filter of few
// blocks, and look for them while they are in. Some keys stay all along and are looked for as
// well. It returns the number of keys in the filter that were not found, and
// stops at the first one if stop is set.
func storm(f filter, seed uint64, ops int, stop bool) (missed int64) {
	const goroutines = 4
	stay := randomHashes(rand.New(rand.NewPCG(seed, 99)), 4)
	for _, h := range stay {
		f.Add(h)
	}
	var total atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			own := randomHashes(r, 16)
			for range ops {
				h := own[r.IntN(len(own))]
				f.Add(h)
				runtime.Gosched()
				for _, h := range [2]Hash{h, stay[r.IntN(len(stay))]} {
					if !f.MayContain(h) {
						total.Add(1)
					}
				}
				f.Remove(h)
				if stop && total.Load() > 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, h := range stay {
		if !f.MayContain(h) {
			total.Add(1)
		}
	}
	return total.Load()
}

func TestCounting_noTransientFalseNegative(t *testing.T) {
	r := newRand(t)
	seed := r.Uint64()
	c := newCounting(t, testParams(4))
	if missed := storm(c, seed, 20_000, false); missed > 0 {
		t.Errorf("%d times a key that was in the filter was not found", missed)
	}
	live := make(map[Hash]int)
	for _, h := range randomHashes(rand.New(rand.NewPCG(seed, 99)), 4) {
		live[h]++
	}
	checkCounting(t, c, live)
}

func TestKnownBad_areCaught(t *testing.T) {
	for name, f := range map[string]filter{
		"stripe by hash":        newStripeByHash(4),
		"counters without lock": newLockless(4),
	} {
		t.Run(name, func(t *testing.T) {
			if missed := storm(f, newRand(t).Uint64(), 200_000, true); missed == 0 {
				t.Error("the storm does not catch this filter, so it proves nothing")
			}
		})
	}
}

// stripeByHash takes the lock from the hash instead of the block. Two keys of
// one block hold two locks: A reads the word, B reads it, A stores its bit, B
// stores its own over it.
type stripeByHash struct {
	blocks   uint32
	counters []atomic.Uint32
	bits     []atomic.Uint64
	locks    [256]sync.Mutex
}

func newStripeByHash(blocks uint32) *stripeByHash {
	return &stripeByHash{blocks: blocks, counters: make([]atomic.Uint32, blocks*BlockBits), bits: make([]atomic.Uint64, blocks*blockWords)}
}

// change is read, modify, write as plain code does it. The accesses are atomic
// for the race detector's sake, and the yield opens the gap that is there anyway.
func (f *stripeByHash) change(h Hash, by uint32) {
	mu := &f.locks[h[0]&255]
	mu.Lock()
	defer mu.Unlock()
	for _, pos := range positionsOf(h, f.blocks) {
		n := f.counters[pos].Load() + by
		f.counters[pos].Store(n)
		w := f.bits[pos/64].Load()
		runtime.Gosched()
		if n > 0 {
			w |= 1 << (pos % 64)
		} else {
			w &^= 1 << (pos % 64)
		}
		f.bits[pos/64].Store(w)
	}
}

func (f *stripeByHash) Add(h Hash)    { f.change(h, 1) }
func (f *stripeByHash) Remove(h Hash) { f.change(h, ^uint32(0)) }
func (f *stripeByHash) MayContain(h Hash) bool {
	return bitsHave(f.bits, h, f.blocks)
}

// lockless has atomic counters and atomic bits, and no lock. Remove takes a
// counter to 0, Add takes it to 1 and sets the bit, Remove goes on and clears it.
type lockless struct {
	blocks   uint32
	counters []atomic.Int32
	bits     []atomic.Uint64
}

func newLockless(blocks uint32) *lockless {
	return &lockless{blocks: blocks, counters: make([]atomic.Int32, blocks*BlockBits), bits: make([]atomic.Uint64, blocks*blockWords)}
}

func (f *lockless) Add(h Hash) {
	for _, pos := range positionsOf(h, f.blocks) {
		if f.counters[pos].Add(1) == 1 {
			f.bits[pos/64].Or(1 << (pos % 64))
		}
	}
}

func (f *lockless) Remove(h Hash) {
	for _, pos := range positionsOf(h, f.blocks) {
		if f.counters[pos].Add(-1) == 0 {
			runtime.Gosched() // as stripeByHash
			f.bits[pos/64].And(^uint64(1 << (pos % 64)))
			runtime.Gosched()
			if f.counters[pos].Load() > 0 { // settling afterwards does not help
				f.bits[pos/64].Or(1 << (pos % 64))
			}
		}
	}
}

func (f *lockless) MayContain(h Hash) bool { return bitsHave(f.bits, h, f.blocks) }

func bitsHave(words []atomic.Uint64, h Hash, blocks uint32) bool {
	for _, pos := range positionsOf(h, blocks) {
		if words[pos/64].Load()>>(pos%64)&1 == 0 {
			return false
		}
	}
	return true
}

// TestKnownBad_probesFromTheBlocksBits takes the bits inside the block from
// the half of the hash that chose the block: keys of one block then share
// bits. Such a filter has the same size, fill and speed, and is wrong three times
// as often.
func TestKnownBad_probesFromTheBlocksBits(t *testing.T) {
	const n = 50_000
	r := fixedRand(2)
	size := mustSize(t, n, 0.01, 1)
	good, bad := newCounting(t, size.Params), newCounting(t, size.Params)
	// 48 bits from the top: with 987 blocks the first ten choose the block.
	same := func(h Hash) Hash { return Hash{h[0], h[0] >> 16} }
	for _, h := range randomHashes(r, n) {
		good.Add(h)
		bad.Add(same(h))
	}
	const absent = 300_000
	var goodWrong, badWrong int
	for range absent {
		h := randomHash(r)
		if good.MayContain(h) {
			goodWrong++
		}
		if bad.MayContain(same(h)) {
			badWrong++
		}
	}
	want := Rate(size.Params, n) * absent
	limit := want*1.05 + 5*math.Sqrt(want)
	if float64(goodWrong) > limit {
		t.Errorf("%d of %d wrong, want at most %.0f", goodWrong, absent, limit)
	}
	if float64(badWrong) < 2*limit {
		t.Errorf("the known-bad filter is wrong %d times, below %.0f: the test proves nothing", badWrong, 2*limit)
	}
	t.Logf("rates: %.3f %% and %.3f %%", 100*float64(goodWrong)/absent, 100*float64(badWrong)/absent)
}
