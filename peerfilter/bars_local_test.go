package peerfilter

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/FastFilter/xorfilter"
	"github.com/bits-and-blooms/bloom/v3"
	"github.com/cespare/xxhash/v2"
	"github.com/maypok86/otter/v2"
	boom "github.com/tylertreat/BoomFilters"
)

// The bars of one filter.

// sizes are the numbers of keys that the bars use.
func (t *bars) sizes() []int {
	if t.short {
		return []int{100_000, 1_000_000}
	}
	return []int{100_000, 1_000_000, 10_000_000}
}

func named(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("n=%dM", n/1_000_000)
	}
	return fmt.Sprintf("n=%dk", n/1000)
}

func barRateAndBytes(b *testing.B, t *bars) {
	const absent = 10_000_000
	for _, n := range t.sizes()[1:] {
		for _, rate := range []float64{0.02, 0.01, 0.005, 0.001, 0.0006} {
			size := mustSize(b, n, rate, 1)
			c := hashFilter(b, size.Params, n, uint64(n))
			r := rand.New(rand.NewPCG(uint64(n), 78))
			positives := 0
			for range absent {
				if c.MayContain(randomHash(r)) {
					positives++
				}
			}
			got, want := float64(positives)/absent, Rate(size.Params, float64(n))
			t.atMost("1", fmt.Sprintf("rate off its formula, %s p=%v", named(n), rate), 0.05, exactly(relative(got, want)),
				fmt.Sprintf("measured %s, formula %s, of 10 M absent keys", percent(got), percent(want)))
			if n == 1_000_000 && rate == 0.01 {
				bitBytes, counterBytes := float64(len(c.bits)*8)/float64(n), float64(len(c.counters)*8)/float64(n)
				classicBytes := float64(size.ClassicBits) / 8 / float64(n)
				t.atMost("2", "bytes a key at 1 %, bits", 1.27, exactly(bitBytes), fmt.Sprintf("classic %.3f", classicBytes))
				t.atMost("2", "bytes a key at 1 %, with counters", 6.35, exactly(bitBytes+counterBytes), fmt.Sprintf("classic %.3f", 5*classicBytes))
			}
		}
	}
}

// testKey is the whole of a look-up from a key: hash, then filter. Sixteen keys
// are hashed before they are looked up, see givenHashes.
func testKey(c *Counting) candidate {
	k, i := newKeyBuffer(), uint64(absentFrom)
	return candidate{"ours", func(n int) {
		var found uint64
		var hs [16]Hash
		for range n / len(hs) {
			for j := range hs {
				i++
				hs[j] = Sum(benchSeed, k.at(i))
			}
			for j := range hs {
				found += count(c.MayContain(hs[j]))
			}
		}
		sink += found
	}}
}

// testKeyAtOnce looks each key up as soon as it is hashed.
func testKeyAtOnce(c *Counting) candidate {
	k, i := newKeyBuffer(), uint64(absentFrom)
	return candidate{"in one breath", func(n int) {
		var found uint64
		for range n {
			i++
			found += count(c.MayContain(Sum(benchSeed, k.at(i))))
		}
		sink += found
	}}
}

// testHash is a look-up with the hash given.
func testHash(name string, c *Counting) candidate {
	hs := givenHashes(c.Stats().Keys)
	i := 0
	return candidate{name, func(n int) {
		var found uint64
		for range n {
			i = (i + 1) & (len(hs) - 1)
			found += count(c.MayContain(hs[i]))
		}
		sink += found
	}}
}

func barKey(b *testing.B, t *bars) {
	for _, n := range t.sizes() {
		c := keyFilter(b, mustSize(b, n, 0.01, 1).Params, n)
		rival := bloom.NewWithEstimates(uint(n), 0.01)
		k := newKeyBuffer()
		for i := range n {
			k.at(uint64(i))
			rival.Add(k[:])
		}
		i := uint64(absentFrom)
		cs := []candidate{testKey(c), {"bits-and-blooms", func(n int) {
			var found uint64
			for range n {
				i++
				k.at(i)
				found += count(rival.Test(k[:]))
			}
			sink += found
		}}, testKeyAtOnce(c)}
		ts := interleave(200_000, threadTime, cs...)
		t.atMost("3", "Test from a 64-byte key against bits-and-blooms, "+named(n), 0.6, ts[0].over(ts[1]), detail(cs, ts))
	}
}

func barHashGiven(b *testing.B, t *bars) {
	const n = 100_000
	size := mustSize(b, n, 0.01, 1)
	hs := randomHashes(fixedRand(20), n)
	c := filled(b, size.Params, hs)
	k, i := newKeyBuffer(), uint64(0)
	xs := make([]uint64, n)
	for i := range xs {
		xs[i] = hs[i][0]
	}
	fuse, err := xorfilter.NewBinaryFuse[uint8](xs)
	if err != nil {
		b.Fatal(err)
	}
	given, j := givenHashes(n), 0
	cs := []candidate{testHash("ours", c), {"xxhash of 64 bytes", func(n int) {
		var sum uint64
		for range n {
			i++
			sum += xxhash.Sum64String(k.at(i))
		}
		sink += sum
	}}, {"binary fuse 8 (static)", func(n int) {
		var found uint64
		for range n {
			j = (j + 1) & (len(given) - 1)
			found += count(fuse.Contains(given[j][0]))
		}
		sink += found
	}}}
	ts := interleave(1_000_000, threadTime, cs...)
	t.atMost("4", "Test, hash given, against xxhash of a 64-byte key, n=100k", 1, ts[0].over(ts[1]), detail(cs, ts))
}

func barBlocked(b *testing.B, t *bars) {
	for _, n := range t.sizes()[:2] {
		size := mustSize(b, n, 0.01, 1)
		hs := randomHashes(fixedRand(21), n)
		c := filled(b, size.Params, hs)
		rival := newBlocked(uint64(float64(n)*10.45/512), 7) // near 1 % as well
		for _, h := range hs {
			rival.Add(h)
		}
		wrong := 0
		r := fixedRand(22)
		for range 1_000_000 {
			if rival.MayContain(randomHash(r)) {
				wrong++
			}
		}
		given, i := givenHashes(n), 0
		cs := []candidate{testHash("ours", c), {"double hashing in the block", func(n int) {
			var found uint64
			for range n {
				i = (i + 1) & (len(given) - 1)
				found += count(rival.MayContain(given[i]))
			}
			sink += found
		}}}
		ts := interleave(1_000_000, threadTime, cs...)
		t.atMost("5", "Test, hash given, against double hashing in a 512-bit block, "+named(n), 1, ts[0].over(ts[1]),
			detail(cs, ts)+fmt.Sprintf("; rates %s, %s", percent(exactRate(c)), percent(float64(wrong)/1e6)))
	}
}

func barTylertreat(b *testing.B, t *bars) {
	const n = 1_000_000
	c := keyFilter(b, mustSize(b, n, 0.01, 1).Params, n)
	rival := boom.NewCountingBloomFilter(n, 4, 0.01)
	k := newKeyBuffer()
	for i := range uint64(n) {
		k.at(i)
		rival.Add(k[:])
	}
	i := uint64(absentFrom)
	cs := []candidate{testKey(c), {"tylertreat counting", func(n int) {
		var found uint64
		for range n {
			i++
			k.at(i)
			found += count(rival.Test(k[:]))
		}
		sink += found
	}}}
	ts := interleave(200_000, threadTime, cs...)
	t.atMost("6", "Test from a 64-byte key against tylertreat counting, n=1M", 0.35, ts[0].over(ts[1]), detail(cs, ts))
}

// nothing is 0, which the compiler does not know.
var nothing uint64

// serialTest begins each look-up when the cache line of the one before has
// been read: the number of the next hash depends on it. The answer alone would
// not do, since a processor that predicts it does not wait.
func serialTest(c *Counting) candidate {
	given, i := givenHashes(c.Stats().Keys), uint64(0)
	return candidate{"ours", func(n int) {
		var found uint64
		for range n {
			h := &given[i&uint64(len(given)-1)]
			found += count(c.MayContain(*h))
			line := c.bits[blockOf(h[0], c.params.Blocks)*blockWords]
			i += 1 + line&nothing
		}
		sink += found
	}}
}

func barSerial(b *testing.B, t *bars) {
	if t.short {
		return
	}
	const n = 10_000_000
	c := hashFilter(b, mustSize(b, n, 0.01, 1).Params, n, 1)
	cs := []candidate{serialTest(c), chase(64 << 20)}
	ts := interleave(300_000, threadTime, cs...)
	t.atMost("7", "Test, hash given, one after the other, against a dependent read, n=10M", 1.3, ts[0].over(ts[1]), detail(cs, ts))
}

// besideWriter runs c while a goroutine adds and removes keys of its own.
func besideWriter(c candidate, write func(i uint64)) candidate {
	return candidate{c.name + " beside a writer", func(n int) {
		var done atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := uint64(0); !done.Load(); i++ {
				write(i)
			}
		})
		c.run(n)
		done.Store(true)
		wg.Wait()
	}}
}

func barBesideWriter(b *testing.B, t *bars) {
	const n = 1_000_000
	c := hashFilter(b, mustSize(b, n, 0.01, 1).Params, n, 1)
	alone := testHash("Test", c)
	cs := []candidate{alone, besideWriter(alone, func(i uint64) {
		h := quickHash(i)
		c.Add(h)
		c.Remove(h)
	})}
	ts := interleave(2_000_000, threadTime, cs...)
	t.atMost("8", "Test beside a busy writer against Test alone, n=1M", 1.5, ts[1].over(ts[0]), detail(cs, ts))
}

// contested runs two goroutines that read and one that writes. The time of an
// operation is that of one reader. Each reader makes its keys in a buffer of
// its own, where a request's key is as well: in the cache.
func contested(name string, read func(i uint64, k *keyBuffer) bool, write func(i uint64)) candidate {
	next := atomic.Uint64{}
	return candidate{name, func(n int) {
		var done atomic.Bool
		var readers, writer sync.WaitGroup
		for range 2 {
			from := absentFrom + next.Add(uint64(n))
			readers.Go(func() {
				k := newKeyBuffer()
				found := uint64(0)
				for i := range uint64(n) {
					found += count(read(from+i, k))
				}
				atomic.AddUint64(&sink, found)
			})
		}
		writer.Go(func() {
			for i := next.Add(1); !done.Load(); i++ {
				write(i)
			}
		})
		readers.Wait()
		done.Store(true)
		writer.Wait()
	}}
}

func barCaches(b *testing.B, t *bars) {
	const n = 1_000_000
	c := hashFilter(b, mustSize(b, n, 0.01, 1).Params, n, 1)
	present := make([]string, n)
	k := newKeyBuffer()
	for i := range present {
		present[i] = strings.Clone(k.at(1<<30 + uint64(i)))
	}
	lru := newListLRU(n)
	otterCache := otter.Must(&otter.Options[string, struct{}]{MaximumSize: n})
	for _, k := range present {
		lru.Put(k)
		otterCache.Set(k, struct{}{})
	}
	given := givenHashes(n)
	addRemove := func(i uint64) {
		h := quickHash(i)
		c.Add(h)
		c.Remove(h)
	}
	cs := []candidate{
		contested("hash given", func(i uint64, _ *keyBuffer) bool { return c.MayContain(given[i&uint64(len(given)-1)]) }, addRemove),
		contested("with hashing", func(i uint64, k *keyBuffer) bool { return c.MayContain(Sum(benchSeed, k.at(i))) }, addRemove),
		contested("list LRU", func(i uint64, k *keyBuffer) bool { return lru.Get(k.at(i)) }, func(i uint64) { lru.Put(present[i%n]) }),
		contested("otter", func(i uint64, k *keyBuffer) bool { _, ok := otterCache.GetIfPresent(k.at(i)); return ok },
			func(i uint64) { otterCache.Set(present[i%n], struct{}{}) }),
	}
	ts := interleave(200_000, wallTime, cs...)
	t.atLeast("9", "contested list LRU Get against Test, hash given, n=1M", 10, ts[2].over(ts[0]), detail(cs, ts))
	t.atLeast("9", "contested list LRU Get against Test with hashing, n=1M", 8, ts[2].over(ts[1]), "")
}

// twoWriters adds and removes with two goroutines; an operation is one Add or
// Remove of either.
func twoWriters(name string, f interface {
	Add(Hash)
	Remove(Hash)
}) candidate {
	return candidate{name, func(n int) {
		var wg sync.WaitGroup
		for g := range 2 {
			wg.Go(func() {
				for i := range uint64(n / 4) {
					h := quickHash(uint64(g+1)<<32 + i)
					f.Add(h)
					f.Remove(h)
				}
			})
		}
		wg.Wait()
	}}
}

func barWriters(b *testing.B, t *bars) {
	const n = 1_000_000
	size := mustSize(b, n, 0.01, 1)
	cs := []candidate{
		twoWriters("ours", hashFilter(b, size.Params, n, 1)),
		twoWriters("one mutex", &oneMutex{c: hashFilter(b, size.Params, n, 1)}),
	}
	ts := interleave(400_000, wallTime, cs...)
	t.atMost("12", "Add and Remove by two goroutines against one mutex, n=1M", 0.7, ts[0].over(ts[1]), detail(cs, ts))
}

func barRebuild(b *testing.B, t *bars) {
	for _, n := range t.sizes()[1:] {
		hs := randomHashes(fixedRand(23), n)
		p := mustSize(b, 2*n, 0.01, 1).Params
		rebuild := func(add func(c *Counting)) func(int) {
			return func(n int) {
				if n < len(hs) {
					return // nothing to warm: a rebuild begins with fresh memory
				}
				c := newCounting(b, p)
				add(c)
				runtime.KeepAlive(c)
			}
		}
		cs := []candidate{
			{"AddAll", rebuild(func(c *Counting) { c.AddAll(hs) })},
			{"Add", rebuild(func(c *Counting) {
				for _, h := range hs {
					c.Add(h)
				}
			})},
		}
		ts := interleave(n, threadTime, cs...)
		t.atMost("13", "rebuild at double size against plain Adds, "+named(n), 0.4, ts[0].over(ts[1]), detail(cs, ts))
		if n == 10_000_000 {
			t.atMost("13", "rebuild of 10M keys, s", 1, exactly(ts[0].median()/100), "")
			t.atMost("13", "longest stall of a reader during a rebuild of 10M keys, ms", 1, exactly(longestStall(b, hashFilter(b, mustSize(b, n/10, 0.01, 1).Params, n/10, 2), hs, p)), "gaps between look-ups above what the same loop shows without a rebuild")
		}
	}
}

// longestStall returns by how many ms the slowest look-up in old takes longer while a
// filter of layout p is built from hs.
func longestStall(b *testing.B, old *Counting, hs []Hash, p Params) float64 {
	slowest := func(until func() bool) time.Duration {
		var worst time.Duration
		i := uint64(absentFrom)
		last := threadTime()
		for !until() {
			for range 2000 { // the clock is a system call
				i++
				sink += count(old.MayContain(quickHash(i)))
			}
			now := threadTime()
			worst = max(worst, now-last)
			last = now
		}
		return worst
	}
	start := time.Now()
	alone := slowest(func() bool { return time.Since(start) > time.Second })
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		newCounting(b, p).AddAll(hs)
		done.Store(true)
	})
	with := slowest(done.Load)
	wg.Wait()
	return max(0, float64(with-alone)/1e6)
}

func barTruth(b *testing.B, t *bars) {
	c := newCounting(b, testParams(4))
	missed := storm(c, 1, 400_000, false)
	t.atMost("16", "false negatives among 3.2 M look-ups in a storm of 4 goroutines", 0, exactly(float64(missed)), "")

	const n = 200_000
	r := fixedRand(24)
	p := mustSize(b, n, 0.01, 1).Params
	keys := randomHashes(r, n)
	c = filled(b, p, keys)
	for range 100 {
		for i := range keys {
			c.Remove(keys[i])
			keys[i] = randomHash(r)
			c.Add(keys[i])
		}
	}
	fresh := filled(b, p, keys)
	differ := 0
	for i := range fresh.counters {
		if fresh.counters[i] != c.counters[i] {
			differ++
		}
	}
	t.atMost("16", "words of counters unlike a fresh build's after 100 turnovers of 200k keys", 0, exactly(float64(differ)), "")
}
