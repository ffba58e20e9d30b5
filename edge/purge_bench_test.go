package edge

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/edge/negative"
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

// BenchmarkApply is what a purge takes a node that remembers many absences.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{0, 500_000} {
		b.Run(fmt.Sprintf("absences=%d", n), func(b *testing.B) {
			node := Node{negative: negative.New(negative.Config{CapacityBytes: 64 << 20})}
			now := time.Now()
			for i := range n {
				node.negative.Put(fmt.Sprint("http://www.example.com/a/", i), netip.Addr{}, negative.Entry{Status: 404, Expires: now.Add(time.Hour)}, now)
			}
			p := &store.Purge{Prefixes: []string{"http://www.example.com/b/"}}
			b.ReportAllocs()
			for b.Loop() {
				node.apply(p)
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
// turns in one run: a tag of 100 000 of 300 000 responses is purged, and
// look-ups go on until it is taken out, by the index of tags or by a walk as it was
// before there was one; then as many with no purge.
// Keys are asked for by the same popularity in both, so both find the same ones
// in the processor's caches. Times are of single look-ups that find a response,
// in the store alone, and as a whole hit; what was purged counts as a miss. Results are in
// PURGE.md.
func BenchmarkPurgeBesideLookups(b *testing.B) {
	const stored = 300_000
	n := benchNode(b, 512)
	part := n.partitionOf("/x")
	s, err := store.New(store.Config{Partitions: []store.PartitionConfig{{Name: "p", MaxBytes: 4 << 30}}})
	if err != nil {
		b.Fatal(err)
	}
	first := n.keyOf("http://www.example.com/x")
	like := n.store.Get(part, &first)[0]
	n.store, n.cfg.Filter.NoLocal = s, true
	keys := make([]store.Key, stored)
	put := func(i int) {
		tags := fmt.Sprintf("all third-%d product-%d", i%3, i)
		r := &store.Response{Head: like.Head, Body: store.NewBody([][]byte{make([]byte, 512)}), Meta: like.Meta, Tags: strings.Fields(tags)}
		r.Compact()
		r.SeenAt(n.epochs.Generation())
		s.Put(0, &keys[i], r)
	}
	paths := make([]string, stored)
	for i := range keys {
		paths[i] = fmt.Sprintf("/products/%d.html", i)
		keys[i] = n.keyOf("http://www.example.com" + paths[i])
		put(i)
	}
	// Zipf's popularity with an exponent of 1.1, drawn beforehand.
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 10, stored-1)
	asked := make([]int32, 1<<20)
	for i := range asked {
		asked[i] = int32(zipf.Uint64() * 7919 % stored)
	}
	w, r := &discard{h: map[string][]string{}}, benchRequest()
	looks := map[string]func(i int32) bool{
		"store": func(i int32) bool {
			return len(n.valid(0, &keys[i], s.Get(0, &keys[i]))) > 0
		},
		"hit": func(i int32) bool {
			// What is missing is not forwarded: that is no look-up any more.
			if len(n.valid(0, &keys[i], s.Get(0, &keys[i]))) == 0 {
				return false
			}
			clear(w.h)
			r.URL.Path, r.RequestURI = paths[i], paths[i]
			n.serveClient(w, r)
			return true
		},
	}
	for _, c := range []struct{ what, by string }{{"store", "tag"}, {"store", "walk"}, {"hit", "tag"}, {"hit", "walk"}} {
		look := looks[c.what]
		b.Run(c.what+"/"+c.by, func(b *testing.B) {
			var quiet, busy []time.Duration
			var longest, walk time.Duration
			at, rounds := 0, 0
			run := func(to []time.Duration, done func() bool) []time.Duration {
				for !done() {
					began := time.Now()
					found := look(asked[at])
					if d := time.Since(began); found {
						to = append(to, d)
					}
					at = (at + 1) % len(asked)
				}
				return to
			}
			for b.Loop() {
				runtime.GC() // so that each phase begins with as much garbage
				began := time.Now()
				tag := fmt.Sprint("third-", rounds%3)
				n.epochs.Add(&store.Purge{Tags: []string{tag}}, began)
				longest = max(longest, time.Since(began))
				walked := make(chan struct{})
				go func() {
					if c.by == "tag" {
						n.reclaimTag(b.Context(), tag)
					} else {
						n.walk(b.Context())
					}
					close(walked)
				}()
				had := len(busy)
				busy = run(busy, func() bool {
					select {
					case <-walked:
						return true
					default:
						return false
					}
				})
				walk += time.Since(began)
				for i := rounds % 3; i < stored; i += 3 {
					put(i)
				}
				runtime.GC()
				left := len(busy) - had
				quiet = run(quiet, func() bool { left--; return left < 0 })
				rounds++
			}
			for name, d := range map[string][]time.Duration{"quiet": quiet, "purging": busy} {
				slices.Sort(d)
				for _, q := range []int{500, 900, 990, 999} {
					b.ReportMetric(float64(d[len(d)*q/1000].Nanoseconds()), fmt.Sprintf("ns/%s-p%d", name, q))
				}
			}
			b.ReportMetric(float64(longest.Microseconds()), "µs/purge-max")
			b.ReportMetric(walk.Seconds()/float64(rounds), "s/reclaim")
		})
	}
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
