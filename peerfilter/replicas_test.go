package peerfilter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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
	keys  []Hash
	words []uint64
	known bool
}

// checkReplicas compares every bit, statistic and answer with the model.
func checkReplicas(t *testing.T, r *Replicas, model map[string]*modelReplica, rnd *rand.Rand) {
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
		for _, m := range model { // mostly a key that somebody has
			if len(m.keys) > 0 && rnd.IntN(3) > 0 {
				h = m.keys[rnd.IntN(len(m.keys))]
			}
			break
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
// to n members, some of them of other layouts, beside bitmaps of their own.
func TestReplicas_model(t *testing.T) {
	layouts := []Params{testParams(3), testParams(3), testParams(3), testParams(6), testParams(2)}
	for _, n := range []int{1, 2, 4, 7, 15, 30, 60, 100, 256} {
		t.Run(fmt.Sprintf("members=%d", n), func(t *testing.T) {
			rnd := newRand(t)
			r := newReplicas(t, layouts[0])
			model := make(map[string]*modelReplica)
			checkReplicas(t, r, model, rnd)
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
					m.keys = randomHashes(rnd, rnd.IntN(40))
					m.words, m.known = bitmapOf(m.p, m.keys), true
					mustLoad(t, r, name, snapshotOf(t, m.p, m.keys))
				case op < 9:
					tr := randomTransitions(rnd, m.p, 20)
					apply(m.words, &tr)
					m.keys = nil
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
					checkReplicas(t, r, model, rnd)
				}
			}
			checkReplicas(t, r, model, rnd)
			for name := range model {
				r.Drop(name)
			}
			clear(model)
			checkReplicas(t, r, model, rnd)
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
					m.setColumn(i, lane, want[lane][i])
				}
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

// halves returns two snapshots and a key for each block. One snapshot holds the bits of the
// keys' lower sectors, the other those of the upper ones, so neither has a key; a
// bitmap of the upper ones that is half overwritten by the lower ones has.
func halves(t testing.TB, rnd *rand.Rand, p Params) (a, b Snapshot, keys []Hash) {
	t.Helper()
	var tra, trb Transitions
	for block := range p.Blocks {
		h := Hash{0, rnd.Uint64()}
		h[0] = uint64(block)<<32/uint64(p.Blocks)<<32 + 1<<32
		if blockOf(h, p.Blocks) != block {
			t.Fatalf("key is in block %d, want %d", blockOf(h, p.Blocks), block)
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
// which one has the key, and looks for it. Many members of other layouts stand
// before them, so that a reader spends its time between the load of the state and
// the lane in question, and is preempted there; more readers than processors see to that.
// Without the second load of the state in Lookup, one member answers for the other.
func TestReplicas_lookupIsOfOneMoment(t *testing.T) {
	rnd := newRand(t)
	h := randomHash(rnd)
	r := newReplicas(t, testParams(1))
	for i := range uint32(40) {
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
	for i := 0; i < 3000 && !t.Failed(); i++ {
		mustLoad(t, r, "has", with)
		r.Drop("has")
		mustLoad(t, r, "has not", without)
		r.Drop("has not")
	}
	done.Store(true)
	wg.Wait()
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
