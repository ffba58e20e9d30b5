package peerfilter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func newReplicas(t testing.TB, p Params) *Replicas {
	t.Helper()
	r, err := NewReplicas(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustLoad(t testing.TB, r *Replicas, member string, s Snapshot) {
	t.Helper()
	if err := r.Load(member, s); err != nil {
		t.Fatal(err)
	}
}

// modelReplica is what one member's replica should be.
type modelReplica struct {
	p     Params
	words []uint64
	known bool
}

// checkReplicas compares every bit, statistic and answer with the model.
func checkReplicas(t *testing.T, r *Replicas, model map[string]*modelReplica, rnd *rand.Rand, pool []Hash) {
	t.Helper()
	known := 0
	for name, m := range model {
		if m.known {
			known++
		}
		words, err := r.Bits(name)
		if err != nil || !slices.Equal(words, m.words) {
			t.Fatalf("bits of %s differ (%v)", name, err)
		}
		recounted, kept, err := r.Audit(name)
		if want := bitmapSetHash(m.words); err != nil || recounted != want || kept != want {
			t.Fatalf("audit of %s: %x, %x, %v; want %x", name, recounted, kept, err, want)
		}
	}
	stats := r.Stats()
	if len(stats) != len(model) {
		t.Fatalf("%d members, want %d", len(stats), len(model))
	}
	for _, s := range stats {
		m := model[s.Member]
		if s.Params != m.p || s.Known != m.known || s.BitsSet != onesCountAll(m.words) || s.SetHash != bitmapSetHash(m.words) {
			t.Fatalf("statistics %+v differ", s)
		}
	}
	for range 60 {
		h := randomHash(rnd)
		if rnd.IntN(4) > 0 { // mostly a key that several have
			h = pool[rnd.IntN(len(pool))]
		}
		set := r.Lookup(h)
		if set.KnownLen() != known {
			t.Fatalf("%d members known, want %d", set.KnownLen(), known)
		}
		var want []string
		for name, m := range model {
			may := m.known && bitmapHas(m.p, m.words, h)
			if may {
				want = append(want, name)
			}
			if set.Contains(name) != may || set.Known(name) != m.known {
				t.Fatalf("%s: contains %v, known %v; want %v, %v", name, set.Contains(name), set.Known(name), may, m.known)
			}
		}
		got := slices.Sorted(set.All())
		slices.Sort(want)
		if !slices.Equal(got, want) || set.Len() != len(want) {
			t.Fatalf("members %v, want %v", got, want)
		}
		if set.Known("nobody") || set.Contains("nobody") {
			t.Fatal("nobody is known")
		}
	}
}

// TestReplicas_model runs random loads, records, suspensions and drops of up
// to n members beside bitmaps of their own. Where n is odd, some are of other layouts.
func TestReplicas_model(t *testing.T) {
	layouts := []Params{testParams(3), testParams(3), testParams(3), testParams(6), testParams(2)}
	for _, n := range []int{1, 2, 4, 7, 8, 15, 16, 31, 32, 63, 64, 101, 128, 256} {
		t.Run(fmt.Sprintf("members=%d", n), func(t *testing.T) {
			rnd := newRand(t)
			pool := randomHashes(rnd, 150)
			layouts := layouts
			if n%2 == 0 {
				layouts = layouts[:1]
			}
			r := newReplicas(t, layouts[0])
			model := make(map[string]*modelReplica)
			checkReplicas(t, r, model, rnd, pool)
			for step := range 40 + 3*n {
				name := fmt.Sprintf("edge-%d", rnd.IntN(n))
				m := model[name]
				switch op := rnd.IntN(12); {
				case m == nil || op < 3:
					if m == nil {
						m = &modelReplica{p: layouts[rnd.IntN(len(layouts))]}
						model[name] = m
					} else if rnd.IntN(3) == 0 {
						m.p = layouts[rnd.IntN(len(layouts))]
					}
					keys := randomHashes(rnd, rnd.IntN(20))
					for range rnd.IntN(20) {
						keys = append(keys, pool[rnd.IntN(len(pool))])
					}
					m.words, m.known = bitmapOf(m.p, keys), true
					mustLoad(t, r, name, snapshotOf(t, m.p, keys))
				case op < 9:
					tr := randomTransitions(rnd, m.p, 20)
					apply(m.words, &tr)
					hash, err := r.Apply(name, tr)
					if want := bitmapSetHash(m.words); err != nil || hash != want {
						t.Fatalf("set-hash %x, %v; want %x", hash, err, want)
					}
				case op == 9:
					m.known = false
					if !r.Suspend(name) {
						t.Fatal("nothing to suspend")
					}
				case op == 10:
					m.known = true
					if !r.Resume(name) {
						t.Fatal("nothing to resume")
					}
				default:
					delete(model, name)
					if !r.Drop(name) {
						t.Fatal("nothing to drop")
					}
				}
				if step%max(20, n/2) == 0 || n < 8 {
					checkReplicas(t, r, model, rnd, pool)
				}
			}
			checkReplicas(t, r, model, rnd, pool)
			for name := range model {
				r.Drop(name)
			}
			clear(model)
			checkReplicas(t, r, model, rnd, pool)
			if len(r.groups) != 0 {
				t.Errorf("%d matrices are kept for nobody", len(r.groups))
			}
		})
	}
}

func TestReplicas_widths(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 16, 17: 32, 33: 64, 64: 64, 65: 128, 128: 128, 129: 192, 193: 256, 256: 256} {
		if got := lanesFor(n); got != want {
			t.Errorf("%d members: %d lanes, want %d", n, got, want)
		}
	}
	p := testParams(3)
	r, err := NewReplicas(p)
	if err != nil {
		t.Fatal(err)
	}
	for n, lanes := range []int{0, 1, 2, 4} { // a group without members takes nothing
		if got, want := r.Bytes(), int64(lanes)*int64(p.Bits()/8); got != want {
			t.Errorf("replicas of %d members take %d bytes, want %d", n, got, want)
		}
		if err := r.Load(fmt.Sprint(n), NewShadow(newCounting(t, p)).Snapshot()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMatrix_columns writes, reads and widens columns at every width.
func TestMatrix_columns(t *testing.T) {
	rnd := newRand(t)
	p := testParams(3)
	for _, lanes := range []int{1, 2, 4, 8, 16, 32, 64, 128, 192, 256} {
		m := newMatrix(p, lanes)
		want := make([][]uint64, lanes)
		for range 2 { // the second time over old bits
			for lane := range lanes {
				want[lane] = make([]uint64, p.words())
				for i := range want[lane] {
					want[lane][i] = rnd.Uint64() & rnd.Uint64()
				}
				m.setColumn(lane, want[lane])
			}
		}
		for _, wider := range []int{lanes, lanesFor(lanes + 1)} {
			w := m.widened(wider)
			for lane := range wider {
				for i := range p.words() {
					expected := uint64(0)
					if lane < lanes {
						expected = want[lane][i]
					}
					if got := w.column(i, lane); got != expected {
						t.Fatalf("%d lanes, widened to %d: lane %d word %d is %x, want %x", lanes, wider, lane, i, got, expected)
					}
				}
			}
			if wider == MaxMembers {
				break
			}
		}
	}
}

func TestReplicas_rejects(t *testing.T) {
	p := testParams(4)
	r := newReplicas(t, p)
	if err := r.Load("a", Snapshot{}); err == nil {
		t.Error("the zero snapshot loads")
	}
	if _, err := r.Apply("a", Transitions{}); !errors.Is(err, ErrMember) {
		t.Errorf("apply without a replica: %v", err)
	}
	if _, err := r.Bits("a"); !errors.Is(err, ErrMember) {
		t.Errorf("bits without a replica: %v", err)
	}
	if _, _, err := r.Audit("a"); !errors.Is(err, ErrMember) {
		t.Errorf("audit without a replica: %v", err)
	}
	if r.Suspend("a") || r.Resume("a") || r.Drop("a") {
		t.Error("suspended, resumed or dropped without a replica")
	}
	empty := snapshotOf(t, p, nil)
	for i := range MaxMembers {
		mustLoad(t, r, fmt.Sprint(i), empty)
	}
	if err := r.Load("one more", empty); !errors.Is(err, ErrFull) {
		t.Errorf("too many members: %v", err)
	}
	mustLoad(t, r, "7", empty) // one of them again
	before, _, _ := r.Audit("7")
	for _, tr := range []Transitions{{Set: []uint32{1, 2048}}, {Set: []uint32{1}, Clear: []uint32{5000, 2}}} {
		if hash, err := r.Apply("7", tr); !errors.Is(err, ErrCorrupt) || hash != before {
			t.Errorf("position beyond the layout: set-hash %x, want %x; %v", hash, before, err)
		}
	}
}

func TestSet_zeroValue(t *testing.T) {
	var s Set
	if s.Len() != 0 || s.KnownLen() != 0 || s.Known("") || s.Contains("") || len(slices.Collect(s.All())) != 0 {
		t.Error("the zero Set knows somebody")
	}
}

func TestReplicas_lookupAllocatesNothing(t *testing.T) {
	rnd := fixedRand(4)
	for _, n := range []int{1, 2, 3, 8, 16, 32, 64, 130} {
		p := testParams(10)
		r := newReplicas(t, p)
		h := randomHash(rnd)
		for i := range n {
			mustLoad(t, r, fmt.Sprintf("edge-%d", i), snapshotOf(t, p, []Hash{h}))
		}
		mustLoad(t, r, "other", snapshotOf(t, testParams(20), []Hash{h}))
		tr := Transitions{Set: []uint32{1, 5}, Clear: []uint32{2, 6}}
		found := 0
		if allocs := testing.AllocsPerRun(100, func() {
			set := r.Lookup(h)
			found = 0
			for name := range set.All() {
				if set.Contains(name) && set.Known(name) {
					found++
				}
			}
			if set.Len() != found || set.KnownLen() != n+1 {
				t.Fatal("answers differ")
			}
			if _, err := r.Apply("edge-0", tr); err != nil {
				t.Fatal(err)
			}
		}); allocs != 0 || found != n+1 {
			t.Errorf("%d members: %v allocations, %d members found", n, allocs, found)
		}
	}
}

// TestReplicas_followPublisher sends every change of a filter as a record over
// the wire, with a snapshot to begin with, and compares bit for bit.
func TestReplicas_followPublisher(t *testing.T) {
	rnd := newRand(t)
	p := testParams(50)
	c := newCounting(t, p)
	s := NewShadow(c)
	r := newReplicas(t, p)
	var keys []Hash
	var tr Transitions
	var rec Record
	for seq := range uint64(200) {
		for range rnd.IntN(40) {
			keys = append(keys, randomHash(rnd))
			c.Add(keys[len(keys)-1])
		}
		for len(keys) > 900 {
			i := rnd.IntN(len(keys))
			c.Remove(keys[i])
			keys = slices.Delete(keys, i, i+1)
		}
		s.Diff(&tr)
		if seq == 20 {
			snap, err := DecodeSnapshot(AppendSnapshot(nil, s.Snapshot()), p)
			if err != nil {
				t.Fatal(err)
			}
			mustLoad(t, r, "peer", snap)
		}
		if seq <= 20 {
			continue
		}
		b, err := AppendRecord(nil, p, Record{Seq: seq, SetHash: s.SetHash(), Transitions: tr})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRecord(&rec, b, p); err != nil {
			t.Fatal(err)
		}
		if hash, err := r.Apply("peer", rec.Transitions); err != nil || hash != rec.SetHash {
			t.Fatalf("set-hash %x, %v; want %x", hash, err, rec.SetHash)
		}
		if words, err := r.Bits("peer"); err != nil || !slices.Equal(words, c.bits) {
			t.Fatalf("the replica is not the filter (%v)", err)
		}
	}
}
