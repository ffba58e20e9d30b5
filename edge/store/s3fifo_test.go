package store

import (
	"fmt"
	"testing"
)

func TestGhost_livesForAWindow(t *testing.T) {
	g := newGhost(1 << 20) // a unit is a byte
	for _, c := range []struct {
		name string
		left int64 // bytes that leave after it
		want bool
	}{{"at once", 0, true}, {"within", 900, true}, {"after", 1100, false}} {
		t.Run(c.name, func(t *testing.T) {
			g.add(7<<32, 100)
			g.left += c.left
			if got := g.take(7<<32, 1000); got != c.want {
				t.Errorf("take = %v, want %v", got, c.want)
			}
			if g.take(7<<32, 1<<20) {
				t.Error("a ghost is taken twice")
			}
		})
	}
}

func TestGhost_losesTheOldestOfALine(t *testing.T) {
	g := newGhost(1 << 20)
	for i := range uint64(8) {
		g.add((i+1)<<32, 100)
	}
	g.add(1<<32, 100) // now the youngest, in the first slot
	g.add(9<<32, 100)
	if g.take(2<<32, 1<<20) {
		t.Error("the oldest is still there")
	}
	for _, h := range []uint64{1, 3, 4, 5, 6, 7, 8, 9} {
		if !g.take(h<<32, 1<<20) {
			t.Errorf("number %d is gone", h)
		}
	}
}

func TestGhost_outlivesResizing(t *testing.T) {
	g := newGhost(1 << 30)
	hash := func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 }
	for range 5 {
		before := g.bytes()
		add := g.growth(8*len(g.lines) + 1)
		g.grow(8*len(g.lines) + 1)
		if g.bytes() != before+add || add == 0 {
			t.Fatalf("growth says %d, it is %d", add, g.bytes()-before)
		}
	}
	const n = 100 // of 256 slots
	for i := range uint64(n) {
		g.add(hash(i), 1024)
	}
	g.grow(8*len(g.lines) + 1)
	before := g.bytes()
	freed := g.shrink(0)
	if freed == 0 || before-g.bytes() != freed {
		t.Fatalf("shrink says %d, it is %d", freed, before-g.bytes())
	}
	for i := range uint64(n) {
		if !g.take(hash(i), 1<<30) {
			t.Errorf("ghost %d was lost", i)
		}
	}
}

// A variant that comes back says nothing of another of its key.
func TestStore_ghostsAreOfVariants(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 10})
	k := keyOf("http://h/a")
	mustPut(t, s, k, sized("a", 1000))
	for i := 0; s.Get(0, k) != nil; i++ {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), sized("", 1000))
	}
	mustPut(t, s, k, sized("b", 1000))
	if n := s.Stats(0).GhostHits; n != 0 {
		t.Errorf("%d ghost hits by another variant", n)
	}
	mustPut(t, s, k, sized("a", 1000))
	if n := s.Stats(0).GhostHits; n != 1 {
		t.Errorf("%d ghost hits by the same variant", n)
	}
}

func TestReplace_takesTheUsesOfTheOld(t *testing.T) {
	s, f := newStore(t, PartitionConfig{MaxBytes: 64 << 10})
	k := keyOf("http://h/a")
	old, other := sized("a", 1000), sized("b", 1000)
	mustPut(t, s, k, old)
	mustPut(t, s, k, other)
	s.Hit(old)
	s.Hit(old)
	for i := range 40 {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), sized("", 1000))
	}
	p := s.parts[0]
	if p.policy.small.tail != old {
		t.Fatal("the oldest is not the next to leave")
	}
	// Its Vary changed, so that another response's variant is now its own; and
	// it grew, in a full partition, where it would be the next to leave.
	r := old.With(nil, 4000)
	r.Variant = "b"
	f.forbidden = k.Filter
	if !s.Replace(0, k, old, r) {
		t.Fatal("not replaced")
	}
	f.forbidden = [2]uint64{}
	if rs := s.Get(0, k); len(rs) != 1 || rs[0] != r {
		t.Errorf("%d responses", len(rs))
	}
	if r.freq.Load() != 2 || s.Stats(0).Replaced != 2 {
		t.Errorf("%d uses, %+v", r.freq.Load(), s.Stats(0))
	}
	mustAudit(t, s)
}

// What is replaced must not be evicted for its successor: its key would leave
// the filter and come back.
func TestReplace_growsInAFullPartition(t *testing.T) {
	s, f := newStore(t, PartitionConfig{MaxBytes: 64 << 10})
	k, old := keyOf("http://h/a"), sized("", 1000)
	mustPut(t, s, k, old)
	for i := 0; s.Stats(0).LimitBytes-s.Bytes(0) > 4000; i++ {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), sized("", 1000))
	}
	if s.parts[0].policy.small.tail != old || s.Stats(0).Evicted.Small > 0 {
		t.Fatal("the oldest is not the next to leave")
	}
	f.forbidden = k.Filter
	r := old.With(nil, 8000)
	if !s.Replace(0, k, old, r) || s.Get(0, k)[0] != r {
		t.Error("not replaced")
	}
	f.forbidden = [2]uint64{}
	mustAudit(t, s)
}

func TestReplace_refusedLeavesTheNewOneFree(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 10})
	k, gone, r := keyOf("http://h/a"), sized("", 1), sized("", 2)
	if s.Replace(0, k, gone, r) {
		t.Fatal("what is not there was replaced")
	}
	mustPut(t, s, k, r)
}
