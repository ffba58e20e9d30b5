package peerfilter

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// halves returns two snapshots and a key for each block. One snapshot holds the bits of the
// keys' lower sectors, the other those of the upper ones, so neither has a key; a
// bitmap of the upper ones that is half overwritten by the lower ones has.
func halves(t testing.TB, rnd *rand.Rand, p Params) (a, b Snapshot, keys []Hash) {
	t.Helper()
	var tra, trb Transitions
	for block := range p.Blocks {
		h := Hash{0, rnd.Uint64()}
		h[0] = uint64(block)<<32/uint64(p.Blocks)<<32 + 1<<32
		if blockOf(h[0], p.Blocks) != block {
			t.Fatalf("key is in block %d, want %d", blockOf(h[0], p.Blocks), block)
		}
		keys = append(keys, h)
		for s, pos := range positionsOf(h, p.Blocks) {
			if s < K/2 {
				tra.Set = append(tra.Set, pos)
			} else {
				trb.Set = append(trb.Set, pos)
			}
		}
	}
	make := func(tr *Transitions) Snapshot {
		words := makeWords(p.words())
		apply(words, tr)
		return Snapshot{params: p, words: words, count: uint64(tr.Len()), setHash: bitmapSetHash(words)}
	}
	return make(&tra), make(&trb), keys
}

// TestReplicas_noHalfSnapshot loads two snapshots in turn for one member, while
// readers look for keys that only a mixture of the two has, and for a key that
// all others have all along. A guest comes and goes where there is a lane for
// one, so both ways of loading are taken (into a spare lane, and in place) and
// lanes change hands.
//
// It fails within some hundred loads if Load leaves the lane live.
func TestReplicas_noHalfSnapshot(t *testing.T) {
	for _, members := range []int{1, 2, 3, 4, 7, 8, 16, 40, 64, 100, 128} {
		t.Run(fmt.Sprintf("members=%d", members), func(t *testing.T) {
			rnd := newRand(t)
			p := testParams(1) // so that a load is all the time in the block that is looked at
			a, b, keys := halves(t, rnd, p)
			r := newReplicas(t, p)
			stay := Hash{1 << 63, ^keys[0][1]}
			others := snapshotOf(t, p, []Hash{stay})
			for i := 1; i < members; i++ {
				mustLoad(t, r, fmt.Sprintf("other-%d", i), others)
			}
			mustLoad(t, r, "half", a)
			hasGuest := lanesFor(members+1) == lanesFor(members)

			var done atomic.Bool
			var lookups atomic.Int64
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for !done.Load() {
						if set := r.Lookup(keys[0]); set.Len() != 0 {
							t.Error("a look-up saw half a snapshot")
							return
						}
						set := r.Lookup(stay)
						if set.Len() != members-1 || set.Contains("half") || set.Contains("guest") {
							t.Errorf("a look-up found %d members with a key that the %d others have", set.Len(), members-1)
							return
						}
						lookups.Add(1)
					}
				})
			}
			guest := snapshotOf(t, p, nil)
			for i := 0; i < 1000 || lookups.Load() < 1000 && !t.Failed(); i++ {
				mustLoad(t, r, "half", b)
				if i%8 == 0 && hasGuest {
					mustLoad(t, r, "guest", guest)
				}
				mustLoad(t, r, "half", a)
				if i%8 == 4 {
					r.Drop("guest")
					r.Suspend("half")
					r.Resume("half")
				}
			}
			done.Store(true)
			wg.Wait()
		})
	}
}

// TestReplicas_lookupIsOfOneMoment gives one lane to two members in turn, of
// which one has the key, and looks for it. Readers are more than processors, so
// they are preempted in the middle of look-ups; members of other layouts make
// those longer. Without the second load of the state, a look-up that goes on after
// a pause has one member answer for the other.
func TestReplicas_lookupIsOfOneMoment(t *testing.T) {
	for _, c := range []struct {
		layouts uint32
		turns   int
	}{{0, 30_000}, {40, 3000}} {
		t.Run(fmt.Sprintf("layouts=%d", c.layouts), func(t *testing.T) {
			h := randomHash(newRand(t))
			r := newReplicas(t, testParams(1))
			for i := range c.layouts {
				mustLoad(t, r, fmt.Sprint(i), snapshotOf(t, testParams(2+i), nil))
			}
			with, without := snapshotOf(t, testParams(1), []Hash{h}), snapshotOf(t, testParams(1), nil)
			mustLoad(t, r, "keeps the matrix", without)
			var done atomic.Bool
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for !done.Load() {
						if set := r.Lookup(h); set.Contains("has not") || set.Len() > 1 {
							t.Error("a member answered for another")
							return
						}
					}
				})
			}
			for i := 0; i < c.turns && !t.Failed(); i++ {
				mustLoad(t, r, "has", with)
				r.Drop("has")
				mustLoad(t, r, "has not", without)
				r.Drop("has not")
			}
			done.Store(true)
			wg.Wait()
		})
	}
}

// TestReplicas_growWhileReadersLook lets the matrix widen from one lane to 192
// under readers.
func TestReplicas_growWhileReadersLook(t *testing.T) {
	rnd := newRand(t)
	p := testParams(20)
	h := randomHash(rnd)
	with, without := snapshotOf(t, p, []Hash{h}), snapshotOf(t, p, nil)
	r := newReplicas(t, p)
	mustLoad(t, r, "first", with)
	var loaded atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				before := loaded.Load()
				set := r.Lookup(h)
				after := loaded.Load()
				if n := int64(set.KnownLen()) - 1; n < before || n > after+1 {
					t.Errorf("%d members known, with %d to %d loaded", n, before, after+1)
					return
				}
				if n := set.Len(); n != 1+set.KnownLen()/2 || !set.Contains("first") {
					t.Errorf("%d of %d members have the key", n, set.KnownLen())
					return
				}
				if after == 150 {
					return
				}
			}
		})
	}
	for i := range 150 {
		s := with
		if i%2 == 1 {
			s = without
		}
		mustLoad(t, r, fmt.Sprint(i), s)
		loaded.Add(1)
	}
	wg.Wait()
}

// TestReplicas_recordsKeepWhatStays applies records that set and clear around
// keys that stay, while readers look for those.
func TestReplicas_recordsKeepWhatStays(t *testing.T) {
	rnd := newRand(t)
	p := testParams(4)
	c := newCounting(t, p)
	s := NewShadow(c)
	stay := randomHashes(rnd, 6)
	for _, h := range stay {
		c.Add(h)
	}
	var tr Transitions
	s.Diff(&tr)
	r := newReplicas(t, p)
	for i := range 5 {
		mustLoad(t, r, fmt.Sprint(i), s.Snapshot())
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				for _, h := range stay {
					if set := r.Lookup(h); set.Len() != 5 {
						t.Errorf("%d members have a key that all have", set.Len())
						return
					}
				}
			}
		})
	}
	own := randomHashes(rnd, 40)
	for i := range 2000 {
		c.Add(own[i%len(own)])
		if i >= 20 {
			c.Remove(own[(i-20)%len(own)])
		}
		s.Diff(&tr)
		for m := range 5 {
			if hash, err := r.Apply(fmt.Sprint(m), tr); err != nil || hash != s.SetHash() {
				t.Fatalf("set-hash %x, %v; want %x", hash, err, s.SetHash())
			}
		}
	}
	done.Store(true)
	wg.Wait()
}
