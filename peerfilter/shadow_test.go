package peerfilter

import (
	"slices"
	"sync"
	"testing"
)

// apply is the model of a replica: absolute positions, sets before clears.
func apply(words []uint64, tr *Transitions) {
	for _, pos := range tr.Set {
		words[pos/64] |= 1 << (pos % 64)
	}
	for _, pos := range tr.Clear {
		words[pos/64] &^= 1 << (pos % 64)
	}
}

func TestShadow_transitionsLeadFromStateToState(t *testing.T) {
	r := newRand(t)
	p := testParams(200)
	c := newCounting(t, p)
	s := NewShadow(c)
	mirror := make([]uint64, p.words())
	var keys []Hash
	var tr Transitions
	for range 200 {
		for range r.IntN(50) {
			keys = append(keys, randomHash(r))
			c.Add(keys[len(keys)-1])
		}
		for range min(len(keys), r.IntN(50)) {
			i := r.IntN(len(keys))
			c.Remove(keys[i])
			keys = slices.Delete(keys, i, i+1)
		}
		before := slices.Clone(mirror)
		if s.Diff(&tr) {
			t.Fatal("more transitions than fit")
		}
		if err := tr.validate(p); err != nil {
			t.Fatal(err)
		}
		for _, pos := range tr.Set {
			if mirror[pos/64]>>(pos%64)&1 != 0 {
				t.Fatalf("position %d set again", pos)
			}
		}
		for _, pos := range tr.Clear {
			if mirror[pos/64]>>(pos%64)&1 == 0 {
				t.Fatalf("position %d cleared again", pos)
			}
		}
		apply(mirror, &tr)
		if want := bitmapOf(p, keys); !slices.Equal(mirror, want) {
			t.Fatal("the transitions do not lead to the keys' bitmap")
		}
		if s.SetHash() != bitmapSetHash(mirror) || s.Count() != onesCountAll(mirror) {
			t.Fatalf("set-hash %x, count %d; want %x, %d", s.SetHash(), s.Count(), bitmapSetHash(mirror), onesCountAll(mirror))
		}
		// Twice or from an older state, the record is harmless.
		apply(mirror, &tr)
		apply(before, &tr)
		if !slices.Equal(before, mirror) {
			t.Fatal("applying again changes something")
		}
		if snap := s.Snapshot(); snap.SetHash() != s.SetHash() || snap.Count() != s.Count() || !slices.Equal(snap.bitmap(), mirror) {
			t.Fatal("snapshot is not the published state")
		}
	}
	if s.Diff(&tr); tr.Len() != 0 {
		t.Errorf("%d transitions without a change", tr.Len())
	}
}

func onesCountAll(words []uint64) (n int) {
	for _, w := range words {
		n += onesCount(w)
	}
	return n
}

func TestShadow_splitsLargeDifferences(t *testing.T) {
	r := newRand(t)
	const n = 120_000
	size := mustSize(t, n, 0.01, 1)
	keys := randomHashes(r, n)
	c := filled(t, size.Params, keys)
	s := NewShadow(c)
	mirror := make([]uint64, size.Params.words())
	var tr Transitions
	rounds := 0
	for more := true; more; rounds++ {
		more = s.Diff(&tr)
		if tr.Len() > MaxTransitions || more && tr.Len() < MaxTransitions-BlockBits {
			t.Fatalf("%d transitions, more %v", tr.Len(), more)
		}
		apply(mirror, &tr)
		if s.SetHash() != bitmapSetHash(mirror) {
			t.Fatal("the published state is not what was sent so far")
		}
		if _, err := AppendRecord(nil, size.Params, Record{Transitions: tr}); err != nil {
			t.Fatal(err)
		}
		c.Add(keys[0]) // a change below the place where the next Diff begins
		c.Add(randomHash(r))
	}
	if rounds < 2 {
		t.Fatalf("%d rounds", rounds)
	}
	s.Diff(&tr)
	apply(mirror, &tr)
	if !slices.Equal(mirror, c.bits) {
		t.Error("what was sent is not the filter's bits")
	}
}

// TestShadow_whileWritersGoOn publishes from a small filter under writers. A
// key that stays is in every published state, and the set-hash is always that
// of the bitmap which the transitions lead to.
func TestShadow_whileWritersGoOn(t *testing.T) {
	r := newRand(t)
	p := testParams(8)
	c := newCounting(t, p)
	stay := randomHashes(r, 8)
	for _, h := range stay {
		c.Add(h)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		own := randomHashes(r, 32)
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				c.Add(own[i%len(own)])
				c.Remove(own[i%len(own)])
			}
		})
	}
	s := NewShadow(c)
	mirror := make([]uint64, p.words())
	var tr Transitions
	for range 3000 {
		s.Diff(&tr)
		apply(mirror, &tr)
		if s.SetHash() != bitmapSetHash(mirror) {
			t.Fatal("set-hash is not that of the transitions")
		}
		for _, h := range stay {
			if !bitmapHas(p, mirror, h) {
				t.Fatal("a key that stays is not in the published state")
			}
		}
	}
	close(done)
	wg.Wait()
	s.Diff(&tr)
	apply(mirror, &tr)
	if !slices.Equal(mirror, bitmapOf(p, stay)) {
		t.Error("the last state is not that of the keys that stayed")
	}
}
