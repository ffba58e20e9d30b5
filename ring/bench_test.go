package ring

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"
)

func benchHashes() []uint64 {
	rng := rand.New(rand.NewPCG(1, 1))
	hs := make([]uint64, 1<<12)
	for i := range hs {
		hs[i] = rng.Uint64()
	}
	return hs
}

func BenchmarkOwner(b *testing.B) {
	hs := benchHashes()
	for _, n := range []int{3, 16, 64, 256} {
		r := New(members(n))
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Owner(hs[i%len(hs)])
			}
		})
		// What the index replaces.
		b.Run(fmt.Sprintf("members=%d/binary-search", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h := hs[i%len(hs)]
				p := sort.Search(len(r.points), func(j int) bool { return r.points[j] >= h })
				_ = r.names[r.owners[p%len(r.points)]]
			}
		})
	}
}

func BenchmarkOwners(b *testing.B) {
	hs := benchHashes()
	r := New(members(64))
	dst := make([]string, 0, 3)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Owners(dst, hs[i%len(hs)], 3)
	}
}

func BenchmarkOwnerBounded(b *testing.B) {
	hs := benchHashes()
	for _, n := range []int{3, 16, 64} {
		r := New(members(n))
		load := func(string) int { return 10 }
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.OwnerBounded(hs[i%len(hs)], load, 1.25)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 16, 64, 256} {
		ms := members(n)
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				New(ms)
			}
		})
	}
}
