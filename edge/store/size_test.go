package store

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"
)

func TestAllocBytes_isWhatAppendAllocates(t *testing.T) {
	for n := tinyBlockBytes; n <= 3*maxClassBytes; n++ {
		if n > maxClassBytes+2 && n%1021 != 0 {
			continue
		}
		if got, want := allocBytes(int64(n)), int64(cap(append([]byte(nil), make([]byte, n)...))); got != want {
			t.Fatalf("allocBytes(%d) = %d, append makes %d", n, got, want)
		}
	}
	for n := 2; n < maxClassBytes/8; n++ {
		want := int64(cap(append([]*byte(nil), make([]*byte, n)...))) * 8
		if want > headerFromSize {
			want += 8
		}
		if got := allocPointerBytes(int64(n) * 8); got != want {
			t.Fatalf("allocPointerBytes(%d) = %d, append makes %d", n*8, got, want)
		}
	}
	for _, c := range []struct{ n, want int64 }{{-1, 0}, {0, 0}, {1, 16}, {16, 16}, {17, 24}} {
		if got := allocBytes(c.n); got != c.want {
			t.Errorf("allocBytes(%d) = %d, want %d", c.n, got, c.want)
		}
	}
}

func TestEntry_fitsACacheLine(t *testing.T) {
	if n := unsafe.Sizeof(entry{}); n > 64 {
		t.Errorf("an entry has %d bytes", n)
	}
	if n := unsafe.Sizeof(shard{}); n != 64 {
		t.Errorf("a shard has %d bytes", n)
	}
}

// The limit is worth as much as the count is true: what the heap grows by must
// be what the store says.
func TestStore_countsWhatTheHeapHolds(t *testing.T) {
	for _, c := range []struct {
		name string
		size func(*rand.Rand) int
		tags int
	}{
		{"tiny bodies", func(r *rand.Rand) int { return r.IntN(64) }, 1},
		{"small bodies", func(r *rand.Rand) int { return r.IntN(4000) }, 1},
		{"large bodies", func(r *rand.Rand) int { return r.IntN(600_000) }, 1},
		{"many tags", func(r *rand.Rand) int { return r.IntN(4000) }, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(7, 7))
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s, err := New(Config{Partitions: []PartitionConfig{{MaxBytes: 32 << 20}}})
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; s.Stats(0).Evicted.Small < 300; i++ {
				r := &Response{Variant: randomText(rnd, rnd.IntN(3)), Head: randomText(rnd, 100+rnd.IntN(400))}
				for range 1 + rnd.IntN(c.tags) {
					// Some of one response's own, some of few, some of many.
					r.Tags = append(r.Tags, randomText(rnd, []int{20, 1, 3}[rnd.IntN(3)]))
				}
				r.Body = NewBody([][]byte{make([]byte, c.size(rnd))})
				if i%2 == 0 {
					r.Compact()
				}
				mustPut(t, s, keyOf(randomText(rnd, 10+rnd.IntN(100))), r)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			counted := s.Stats(0).Bytes
			ratio := float64(after.HeapAlloc-before.HeapAlloc) / float64(counted)
			t.Logf("heap/counted = %.3f, %d objects", ratio, s.Stats(0).Objects)
			if ratio > 1.01 || ratio < 0.95 {
				t.Errorf("the heap holds %.3f times what is counted", ratio)
			}
			runtime.KeepAlive(s)
		})
	}
}

func randomText(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}
