package peerfilter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// The bars of many filters, and of what travels between them.

const peerKeys = 1_000_000

// peerFilters returns replicas of n members with peerKeys random keys each,
// and the same keys in classic filters at the same rate, one by one.
func peerFilters(b *testing.B, n int) (*Replicas, []*classic) {
	size := mustSize(b, peerKeys, 0.01, 1)
	r := newReplicas(b, size.Params)
	var one []*classic
	for i := range n {
		hs := randomHashes(rand.New(rand.NewPCG(uint64(i), 79)), peerKeys)
		words := bitmapOf(size.Params, hs)
		snap := Snapshot{params: size.Params, words: words, count: 1, setHash: 1}
		mustLoad(b, r, fmt.Sprintf("edge-%d", i), snap)
		f := newClassic(size.ClassicBits, 7)
		for _, h := range hs {
			f.Add(h)
		}
		one = append(one, f)
	}
	return r, one
}

func lookupAll(r *Replicas) candidate {
	given, i := givenHashes(4*peerKeys), 0
	return candidate{"ours", func(n int) {
		var found uint64
		for range n {
			i = (i + 1) & (len(given) - 1)
			set := r.Lookup(given[i])
			found += uint64(set.Len())
		}
		sink += found
	}}
}

func barPeers(b *testing.B, t *bars) {
	for _, c := range []struct {
		peers int
		bar   float64
	}{{2, 0.6}, {4, 0.4}, {8, 0.35}, {16, 0.25}, {32, 0.15}, {64, 0.08}} {
		r, one := peerFilters(b, c.peers)
		given, i := givenHashes(4*peerKeys), 0
		cs := []candidate{lookupAll(r), {"one by one", func(n int) {
			var found uint64
			for range n {
				i = (i + 1) & (len(given) - 1)
				for _, f := range one {
					found += count(f.MayContain(given[i]))
				}
			}
			sink += found
		}}}
		ts := interleave(100_000, threadTime, cs...)
		t.atMost("10", fmt.Sprintf("all peers at once against one by one, P=%d", c.peers), c.bar, ts[0].over(ts[1]), detail(cs, ts))
	}
}

func barPeersSerial(b *testing.B, t *bars) {
	r, _ := peerFilters(b, 8)
	// Each look-up begins when the lines of the one before have been read, see
	// serialTest: here the rows are read once more, from the cache.
	given, i := givenHashes(4*peerKeys), 0
	m := r.groups[0].m
	cs := []candidate{{"ours", func(n int) {
		var found uint64
		for range n {
			h := given[i&(len(given)-1)]
			set := r.Lookup(h)
			found += uint64(set.Len())
			var lines uint64
			pos := positionsOf(h, m.params.Blocks)
			for _, pos := range pos[:4] { // more are seldom read
				lines |= m.words[pos>>m.rowShift]
			}
			i += 1 + int(lines&nothing)
		}
		sink += found
	}}, chase(16 << 20)}
	ts := interleave(100_000, threadTime, cs...)
	t.atMost("11", "all of 8 peers, one after the other, against a dependent read", 1.5, ts[0].over(ts[1]), detail(cs, ts))
}

func barDeltaBytes(b *testing.B, t *bars) {
	const n = 1_000_000
	r := fixedRand(25)
	size := mustSize(b, n, 0.01, 1)
	keys := randomHashes(r, n)
	c := newCounting(b, size.Params)
	c.AddAll(keys)
	s := NewShadow(c)
	var tr Transitions
	for s.Diff(&tr) {
	}
	for _, d := range []int{10, 100, 1000, 10_000, 30_000} {
		for i := range d {
			c.Remove(keys[i])
			keys[i] = randomHash(r)
			c.Add(keys[i])
		}
		s.Diff(&tr)
		rec, err := AppendRecord(nil, size.Params, Record{Transitions: tr})
		if err != nil {
			b.Fatal(err)
		}
		// Rounds of adds and removes share the keys' positions out evenly.
		perOp := float64(len(rec)-recordHeader) / float64(2*d)
		bar := 1.0
		if d == 1000 {
			bar = 0.65
		}
		t.atMost("14", fmt.Sprintf("bytes of an add or remove against an 8-byte hash, d=%d", d), bar, exactly(perOp/8),
			fmt.Sprintf("%.2f bytes, %.2f bits changed, code %d", perOp, float64(tr.Len())/float64(2*d), rec[2]))
	}
}

func barDiff(b *testing.B, t *bars) {
	for _, n := range t.sizes()[1:] {
		size := mustSize(b, n, 0.01, 1)
		c := hashFilter(b, size.Params, n, 3)
		s := NewShadow(c)
		var tr Transitions
		for s.Diff(&tr) {
		}
		to := make([]uint64, len(c.bits))
		cs := []candidate{{"Diff", func(n int) {
			for range max(n, 1) {
				s.Diff(&tr)
			}
		}}, {"memcpy", func(n int) {
			for range max(n, 1) {
				copy(to, c.bits)
			}
		}}}
		ts := interleave(2_000_000_000/len(c.bits)/100, threadTime, cs...)
		t.atMost("15", "diff without a change against memcpy, "+named(n), 4, ts[0].over(ts[1]), detail(cs, ts))
	}
}

func barColumn(b *testing.B, t *bars) {
	size := mustSize(b, peerKeys, 0.01, 1)
	rows := int(size.Bits)
	for _, c := range []struct {
		lanes int
		bar   float64
	}{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 2}, {32, 5}, {64, 5}, {128, 7}} {
		m := newMatrix(size.Params, c.lanes)
		r := fixedRand(26)
		snaps := [2]Snapshot{}
		for i := range snaps {
			snaps[i] = Snapshot{params: size.Params, words: bitmapOf(size.Params, randomHashes(r, peerKeys))}
		}
		i := 0
		cs := []candidate{{"load", func(n int) {
			i++
			m.setColumn(c.lanes/2, snaps[i%2].words)
		}}}
		ts := interleave(rows, threadTime, cs...)
		t.atMost("17", fmt.Sprintf("ns a row to load a column of %.1fM over another, u%d", float64(rows)/1e6, c.lanes), c.bar,
			ratio{ts[0].median(), slices.Min(ts[0])}, "")
	}
}

// barApply applies records of 10 000 transitions to one of 64 peers while a
// reader looks keys up.
func barApply(b *testing.B, t *bars) {
	size := mustSize(b, peerKeys, 0.01, 1)
	r := newReplicas(b, size.Params)
	rnd := fixedRand(27)
	for i := range 64 {
		mustLoad(b, r, fmt.Sprintf("edge-%d", i), Snapshot{params: size.Params, words: bitmapOf(size.Params, randomHashes(rnd, peerKeys)), count: 1})
	}
	// Two records that undo each other, so that each position changes every time.
	words, err := r.Bits("edge-7")
	if err != nil {
		b.Fatal(err)
	}
	var there, back Transitions
	for there.Len() < 10_000 {
		pos := uint32(rnd.Uint64N(size.Bits))
		if words[pos/64]>>(pos%64)&1 == 0 {
			there.Set = append(there.Set, pos)
		} else {
			there.Clear = append(there.Clear, pos)
		}
		words[pos/64] ^= 1 << (pos % 64) // not twice: sorted and compacted below
	}
	slices.Sort(there.Set)
	slices.Sort(there.Clear)
	there.Set, there.Clear = slices.Compact(there.Set), slices.Compact(there.Clear)
	back.Set, back.Clear = there.Clear, there.Set
	turn := 0
	applyOne := func() {
		tr := there
		if turn++; turn%2 == 0 {
			tr = back
		}
		if _, err := r.Apply("edge-7", tr); err != nil {
			b.Fatal(err)
		}
	}
	cs := []candidate{{"Apply", func(n int) {
		for range max(1, n/there.Len()) {
			applyOne()
		}
	}}}
	ts := interleave(20*there.Len(), threadTime, cs...)
	t.atMost("18", "ns a transition, 10 000 of them to one of 64 peers", 100, ratio{ts[0].median(), slices.Min(ts[0])}, "")

	p99 := func(n int) float64 {
		i := rnd.Uint64()
		took := make([]time.Duration, n)
		for j := range took {
			i++
			h := quickHash(i)
			start := time.Now()
			sink += uint64(r.Lookup(h).Len())
			took[j] = time.Since(start)
		}
		slices.Sort(took)
		return float64(took[n*99/100])
	}
	var alone, beside timing
	for range barRounds {
		alone = append(alone, p99(100_000))
		var done, stopped atomic.Bool
		go func() {
			for !done.Load() {
				applyOne()
			}
			stopped.Store(true)
		}()
		beside = append(beside, p99(100_000))
		done.Store(true)
		for !stopped.Load() {
			time.Sleep(time.Microsecond)
		}
	}
	t.atMost("18", "p99 of a look-up among 64 peers while records are applied, against alone", 2, beside.over(alone),
		fmt.Sprintf("beside %v, alone %v ns", beside, alone))
}
