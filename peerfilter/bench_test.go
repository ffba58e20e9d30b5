package peerfilter

import (
	"fmt"
	"testing"
)

// Single operations, for profiles and for benchstat. What compares is
// BenchmarkBars.

func BenchmarkSum(b *testing.B) {
	k := newKeyBuffer()
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		h := Sum(benchSeed, k.at(i))
		sink += h[0]
	}
}

func BenchmarkCounting(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		c := hashFilter(b, mustSize(b, n, 0.01, 1).Params, n, 1)
		given := givenHashes(n)
		b.Run(fmt.Sprintf("MayContain/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sink += count(c.MayContain(given[i&(len(given)-1)]))
			}
		})
		b.Run(fmt.Sprintf("AddRemove/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Add(given[i&(len(given)-1)])
				c.Remove(given[i&(len(given)-1)])
			}
		})
		b.Run(fmt.Sprintf("Stats/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += uint64(c.Stats().Keys)
			}
		})
	}
}

func BenchmarkReplicasLookup(b *testing.B) {
	const n = 100_000
	size := mustSize(b, n, 0.01, 1)
	given := givenHashes(n)
	for _, peers := range []int{1, 2, 4, 8, 16, 32, 64, 128, 200} {
		r := newReplicas(b, size.Params)
		for i := range peers {
			mustLoad(b, r, fmt.Sprint(i), snapshotOf(b, size.Params, randomHashes(fixedRand(uint64(i)), n)))
		}
		b.Run(fmt.Sprintf("P=%d", peers), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				set := r.Lookup(given[i&(len(given)-1)])
				sink += uint64(set.Len())
			}
		})
	}
}

func BenchmarkWire(b *testing.B) {
	const n = 100_000
	size := mustSize(b, n, 0.01, 1)
	rnd := fixedRand(30)
	keys := randomHashes(rnd, n)
	c := filled(b, size.Params, keys)
	s := NewShadow(c)
	var tr Transitions
	for s.Diff(&tr) {
	}
	for _, d := range []int{100, 10_000} {
		for i := range d {
			c.Remove(keys[i])
			keys[i] = randomHash(rnd)
			c.Add(keys[i])
		}
		s.Diff(&tr)
		rec := Record{Seq: 1, SetHash: s.SetHash(), Transitions: tr.Clone()}
		wire, err := AppendRecord(nil, size.Params, rec)
		if err != nil {
			b.Fatal(err)
		}
		perTransition := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rec.Len()), "ns/transition")
		}
		b.Run(fmt.Sprintf("AppendRecord/d=%d", d), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				wire, err = AppendRecord(wire[:0], size.Params, rec)
				if err != nil {
					b.Fatal(err)
				}
			}
			perTransition(b)
		})
		b.Run(fmt.Sprintf("DecodeRecord/d=%d", d), func(b *testing.B) {
			b.ReportAllocs()
			var got Record
			for b.Loop() {
				if _, err := DecodeRecord(&got, wire, size.Params); err != nil {
					b.Fatal(err)
				}
			}
			perTransition(b)
		})
	}
	snap := s.Snapshot()
	wire := AppendSnapshot(nil, snap)
	b.Run("AppendSnapshot", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(wire)))
		for b.Loop() {
			wire = AppendSnapshot(wire[:0], snap)
		}
	})
	b.Run("DecodeSnapshot", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(wire)))
		for b.Loop() {
			if _, err := DecodeSnapshot(wire, size.Params); err != nil {
				b.Fatal(err)
			}
		}
	})
}
