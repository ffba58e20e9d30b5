package edge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"edged/edge/store"
)

// purgeBench is a store with n responses, each with a tag of all, a tag of a
// tenth and a tag of its own.
func purgeBench(b testing.TB, n int) (*store.Store, []store.Key) {
	s, err := store.New(store.Config{Partitions: []store.PartitionConfig{{Name: "p", MaxBytes: 4 << 30}}})
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]store.Key, n)
	node := Node{}
	for i := range keys {
		keys[i] = node.keyOf(fmt.Sprintf("http://www.example.com/products/%d.html", i))
		s.Put(0, &keys[i], &store.Response{
			Head: "Content-Type: text/html\r\n", Body: store.NewBody([][]byte{make([]byte, 512)}), Meta: &meta{},
			Tags: []string{"all", fmt.Sprint("tenth-", i%10), fmt.Sprint("product-", i)},
		})
	}
	return s, keys
}

// BenchmarkPurgeTag is what a purge takes of a tag that 100 000 of a million
// responses have, beside the walk behind it.
//
//	n=1000000    0.25 to 0.75 µs a purge (2 vCPU of an Intel Xeon, Go 1.26.8)
func BenchmarkPurgeTag(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			purgeBench(b, n)
			var e store.Epochs
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				e.Add(&store.Purge{Tags: []string{"tenth-1"}}, now)
				e.Walked(e.Generation(), now)
			}
		})
	}
}

// BenchmarkEpochs is what purges add to a hit: nothing since, the same look
// once after one, and what a hit takes in all.
func BenchmarkEpochs(b *testing.B) {
	s, keys := purgeBench(b, 1000)
	for _, c := range []string{"none since", "one since each look"} {
		b.Run(c, func(b *testing.B) {
			var e store.Epochs
			e.Add(&store.Purge{Tags: []string{"other"}, Hosts: []string{"h"}, Prefixes: []string{"http://h/x/"}}, time.Now())
			rs := make([]*store.Response, len(keys))
			for i := range keys {
				rs[i] = s.Get(0, &keys[i])[0]
				e.Judge(keys[i].URL, rs[i])
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if c != "none since" {
					rs[i].SeenAt(0)
				}
				if v, _ := e.Judge(keys[i].URL, rs[i]); v != store.Valid {
					b.Fatal(v)
				}
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
	b.Run("the hit", func(b *testing.B) {
		n := benchNode(b, 1024)
		r := benchRequest()
		w := &discard{h: map[string][]string{}}
		b.ReportAllocs()
		for b.Loop() {
			clear(w.h)
			n.serveClient(w, r)
		}
	})
}

// BenchmarkPurgeBesideLookups measures look-ups with and without purges, by
// turns in one run: a tag of 100 000 of a million responses is purged, and the
// walk behind it runs. The percentiles are of batches of 32 look-ups.
func BenchmarkPurgeBesideLookups(b *testing.B) {
	s, keys := purgeBench(b, 1_000_000)
	n := Node{store: s, purged: make(chan struct{}, 1)}
	n.flights.epochs = &n.epochs
	ctx := b.Context()
	stopped := make(chan struct{})
	go func() { n.reclaim(ctx); close(stopped) }()
	const batch = 32
	var quiet, busy []time.Duration
	var longest time.Duration
	at := 0
	look := func() time.Duration {
		began := time.Now()
		for range batch {
			k := &keys[at]
			at = (at + 7919) % len(keys)
			n.valid(0, k, s.Get(0, k))
		}
		return time.Since(began)
	}
	for b.Loop() {
		for range 20_000 {
			quiet = append(quiet, look())
		}
		began := time.Now()
		n.epochs.Add(&store.Purge{Tags: []string{fmt.Sprint("tenth-", len(busy)%10)}}, began)
		longest = max(longest, time.Since(began))
		n.purged <- struct{}{}
		for range 20_000 {
			busy = append(busy, look())
		}
	}
	p := func(d []time.Duration, q int) float64 {
		slices.Sort(d)
		return float64(d[len(d)*q/1000].Nanoseconds()) / batch
	}
	b.ReportMetric(p(quiet, 500), "ns/quiet-p50")
	b.ReportMetric(p(quiet, 990), "ns/quiet-p99")
	b.ReportMetric(p(busy, 500), "ns/purging-p50")
	b.ReportMetric(p(busy, 990), "ns/purging-p99")
	b.ReportMetric(float64(longest.Microseconds()), "µs/purge-max")
}

// BenchmarkTagMemory is what a million distinct tags take, ten on each response.
func BenchmarkTagMemory(b *testing.B) {
	for b.Loop() {
		bytes := int64(0)
		for _, tags := range []int{0, 10} {
			s, err := store.New(store.Config{Partitions: []store.PartitionConfig{{Name: "p", MaxBytes: 1 << 30}}})
			if err != nil {
				b.Fatal(err)
			}
			node := Node{}
			for i := range 100_000 {
				k := node.keyOf(fmt.Sprint("http://www.example.com/", i))
				r := &store.Response{Meta: &meta{}}
				for j := range tags {
					r.Tags = append(r.Tags, fmt.Sprintf("product-category-%d-%d", i, j))
				}
				r.Tags = slices.Clip(r.Tags)
				s.Put(0, &k, r)
			}
			bytes = s.Stats(0).Bytes - bytes
		}
		b.ReportMetric(float64(bytes)/(1<<20), "MiB")
	}
}
