package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

func benchKeys(n int) []Key {
	ks := make([]Key, n)
	for i := range ks {
		url := fmt.Sprintf("https://www.example.com/static/images/%032d.png", i) // 74 bytes
		h := xxhash.Sum64String(url)
		ks[i] = Key{URL: url, Hash: h, Filter: [2]uint64{h, h}}
	}
	return ks
}

func benchStore(b *testing.B, maxBytes int64) *Store {
	s, err := New(Config{Partitions: []PartitionConfig{{MaxBytes: maxBytes}}})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func fill(b *testing.B, s *Store, ks []Key, meta int) {
	for i := range ks {
		if ok, why := s.Put(0, &ks[i], &Response{MetaBytes: meta}); !ok {
			b.Fatal(why)
		}
	}
}

// walk is a cheap way through all indices, out of order.
func walk(i, n int) int { return int(uint64(uint32(i)*2654435761) * uint64(n) >> 32) }

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		ks := benchKeys(2 * n)
		s := benchStore(b, 4<<30)
		fill(b, s, ks[:n], 0)
		b.Run(fmt.Sprintf("hit/n=%.0e", float64(n)), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				s.Hit(s.Get(0, &ks[walk(i, n)])[0])
			}
		})
		// What of it is the benchmark's own: reaching a cold key. A request's is hot.
		b.Run(fmt.Sprintf("key alone/n=%.0e", float64(n)), func(b *testing.B) {
			i, sum := 0, 0
			for b.Loop() {
				i++
				k := &ks[walk(i, n)]
				sum += int(k.Hash) + int(k.URL[len(k.URL)-1])
			}
			runtime.KeepAlive(sum)
		})
		b.Run(fmt.Sprintf("miss/n=%.0e", float64(n)), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				if s.Get(0, &ks[n+walk(i, n)]) != nil {
					b.Fatal("found")
				}
			}
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{10_000, 300_000} {
		b.Run(fmt.Sprintf("evicting/n=%.0e", float64(n)), func(b *testing.B) {
			ks := benchKeys(4 * n)
			s := benchStore(b, int64(n)*1024)
			fill(b, s, ks, 200)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Put(0, &ks[i%len(ks)], &Response{MetaBytes: 200})
				i++
			}
		})
	}
	// The longest that writers of a partition can be kept waiting.
	b.Run("64MiB over 60000 small", func(b *testing.B) {
		ks := benchKeys(60_000)
		s := benchStore(b, 64<<20)
		for b.Loop() {
			b.StopTimer()
			s.Remove(0, &ks[0])
			fill(b, s, ks[1:], 500)
			b.StartTimer()
			s.Put(0, &ks[0], &Response{MetaBytes: 63 << 20})
		}
	})
	b.Run("replacing", func(b *testing.B) {
		ks := benchKeys(10_000)
		s := benchStore(b, 64<<20)
		fill(b, s, ks, 200)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			s.Put(0, &ks[i%len(ks)], &Response{MetaBytes: 200})
			i++
		}
	})
}

// A request's share of the store: look up, and put what is missing, by a Zipf
// popularity on all cores.
func BenchmarkMix(b *testing.B) {
	const n = 200_000
	ks := benchKeys(n)
	s := benchStore(b, n*60)
	var seed atomic.Uint64
	var hits, all atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(seed.Add(1), 0)), 1.01, 10, n-1)
		var h, a int64
		for pb.Next() {
			k := &ks[zipf.Uint64()]
			a++
			if rs := s.Get(0, k); rs != nil {
				h++
				s.Hit(rs[0])
				continue
			}
			s.Put(0, k, &Response{MetaBytes: 200})
		}
		hits.Add(h)
		all.Add(a)
	})
	b.ReportMetric(float64(hits.Load())/float64(all.Load()), "hits/op")
}

type nowhere struct{ n int }

func (f *nowhere) Add([2]uint64)             { f.n++ }
func (f *nowhere) Remove([2]uint64)          { f.n-- }
func (f *nowhere) MayContain([2]uint64) bool { return true }

func BenchmarkWalk(b *testing.B) {
	const n = 1_000_000
	ks := benchKeys(n)
	s := benchStore(b, 2<<30)
	fill(b, s, ks, 0)
	b.Run("rebuild/n=1e6", func(b *testing.B) {
		for b.Loop() {
			s.Rebuild(0, &nowhere{})
		}
	})
	b.Run("purge/n=1e6", func(b *testing.B) {
		for b.Loop() {
			s.Purge(func(url string, r *Response) *Response { return r })
		}
	})
}

// What the collector pays for a million small responses: time of a cycle and
// the processor time in it.
func BenchmarkCollect(b *testing.B) {
	const n = 1_000_000
	for _, c := range []struct {
		name    string
		compact bool
	}{{"compact", true}, {"chunk apart", false}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, 8<<30)
			head := randomText(rand.New(rand.NewPCG(1, 1)), 200)
			for i := range n {
				url := fmt.Sprintf("https://www.example.com/static/images/%032d.png", i)
				r := &Response{Head: head + url, Meta: &[8]int64{}, MetaBytes: 64, Body: NewBody([][]byte{make([]byte, 600)})}
				if c.compact {
					r.Compact()
				}
				if ok, why := s.Put(0, &Key{URL: url, Hash: xxhash.Sum64String(url)}, r); !ok {
					b.Fatal(why)
				}
			}
			runtime.GC()
			var m runtime.MemStats
			cpu := collectorSeconds()
			var pause time.Duration
			for b.Loop() {
				runtime.ReadMemStats(&m)
				before := m.PauseTotalNs
				runtime.GC()
				runtime.ReadMemStats(&m)
				pause = max(pause, time.Duration(m.PauseTotalNs-before))
			}
			b.ReportMetric(1000*(collectorSeconds()-cpu)/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(m.HeapAlloc)/float64(s.Bytes(0)), "heap/counted")
			b.ReportMetric(float64(s.Bytes(0)-s.parts[0].base)/n, "B/object")
			b.ReportMetric(float64(pause.Microseconds()), "max-pause-us")
			runtime.KeepAlive(s)
		})
	}
}

// collectorSeconds is the processor time that the collector has used.
func collectorSeconds() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/assist:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64() + s[1].Value.Float64() + s[2].Value.Float64()
}

// BenchmarkTags is what ten tags on each response add to a Put that evicts
// another, into a store of 100 000: none, ten of a thousand that many carry, and ten that
// no other carries; and what the index takes for each tag of each response.
func BenchmarkTags(b *testing.B) {
	const n, each = 100_000, 10
	ks := benchKeys(2 * n)
	for _, c := range []struct {
		name string
		tag  func(i, j int) string
	}{
		{"none", nil},
		{"popular", func(i, j int) string { return fmt.Sprintf("section-of-the-site-%04d", (i*7919+j*104729)%1000) }},
		{"distinct", func(i, j int) string { return fmt.Sprintf("product-%08d-part-%02d", i, j) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			lists := make([][]string, 2*n)
			if c.tag != nil {
				for i := range lists {
					for j := range each {
						lists[i] = append(lists[i], c.tag(i, j))
					}
				}
			}
			// A response's own copy of a tag, as it comes out of a header, is not measured.
			s := benchStore(b, 8<<30)
			for i := range n {
				s.Put(0, &ks[i], &Response{MetaBytes: 200, Tags: lists[i]})
			}
			for i := range n {
				s.Remove(0, &ks[i])
				s.Put(0, &ks[i], &Response{MetaBytes: 200, Tags: lists[i]})
			}
			st := s.Stats(0)
			s.parts[0].limit = st.Bytes // full
			b.ReportAllocs()
			i := n
			for b.Loop() {
				s.Put(0, &ks[i%(2*n)], &Response{MetaBytes: 200, Tags: lists[i%(2*n)]})
				i++
			}
			b.ReportMetric(float64(st.Bytes-s.parts[0].base)/n, "B/response")
		})
	}
}
