package loadtest

import (
	"cmp"
	"container/heap"
	"container/list"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Cache is a cache of a node without its network, as a trace is fed to it. The
// package does not know the store; who starts the simulation hands it in.
type Cache interface {
	// Ask reports whether the key is stored, and counts as a use of it. What is
	// not stored is looked up in the filter first, and stored then.
	Ask(key uint64, bodyBytes int64) bool
	// Filter is the accounting of the cache's own filter so far.
	Filter() FilterAccount
}

// FilterAccount is what a filter of the stored keys costs and is worth.
type FilterAccount struct {
	Keys           int     // stored now
	BitBytes       int64   // of what peers replicate
	CounterBytes   int64   // of what the node keeps beside it
	Fill           float64 // of the bits, now
	ExpectedRate   float64 // at that fill
	Misses         int64   // look-ups of keys that were not stored
	FalsePositives int64   // of these, those that the filter called stored
	Changes        int64   // keys that came and went: what gossip carries
}

// TraceConfig says what to simulate.
type TraceConfig struct {
	File   string
	Format LogFormat // empty: by the first line
	Sizes  []Bytes   // of the caches, heads and index included; none: shares of what the trace asks for
	Body   SizeRange // of keys whose size the trace does not say
	// Overhead is what a response takes beside its body, so that LRU and the
	// optimum are given the same room as the store.
	Overhead int64
	// New makes an empty cache of a size, for so many keys at most.
	New func(bytes int64, keys int) (Cache, error)
	Out io.Writer
}

// TraceResult is a line of the table: one cache size.
type TraceResult struct {
	CacheBytes int64
	Store      float64 // hit ratios, of all requests
	LRU        float64
	// Optimal evicts what is asked for latest (Belady 1966). With bodies of one
	// size nothing is better; with several sizes it is a good yardstick.
	Optimal float64
	Filter  FilterAccount
}

// TraceReport is the result of a simulation.
type TraceReport struct {
	Requests  int
	Skipped   int
	Keys      int
	Footprint int64 // bytes that hold everything the trace asks for
	Results   []TraceResult
}

// Trace feeds a key trace or an access log to a cache's policy, for several
// sizes, beside LRU and the optimum. Absent answers are left out: they are not
// in the store. The error wraps [ErrUsage] when the file or a size is wrong.
func Trace(c TraceConfig) (TraceReport, error) {
	log, err := (ReplaySpec{File: c.File, Format: c.Format}).read()
	if err != nil {
		return TraceReport{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	asks := make([]logEntry, 0, len(log.entries))
	cost := map[uint64]int64{}
	rep := TraceReport{Skipped: log.skipped}
	for _, e := range log.entries {
		if e.absent {
			rep.Skipped++
			continue
		}
		if _, known := cost[e.key]; !known {
			if e.size < 0 {
				e.size = c.Body.of(e.key)
			}
			cost[e.key] = e.size
			rep.Footprint += e.size + c.Overhead
		}
		e.size = cost[e.key]
		asks = append(asks, e)
	}
	rep.Requests, rep.Keys = len(asks), len(cost)
	if len(asks) == 0 {
		return rep, fmt.Errorf("%w: %s: nothing in it could be stored", ErrUsage, c.File)
	}
	sizes := c.Sizes
	if len(sizes) == 0 {
		for _, share := range []float64{0.01, 0.03, 0.1, 0.3} {
			sizes = append(sizes, Bytes(max(share*float64(rep.Footprint), minTraceCache)))
		}
		sizes = slices.Compact(sizes)
	}
	next := nextUses(asks)
	for _, size := range sizes {
		if size < minTraceCache {
			return rep, fmt.Errorf("%w: a cache of %v: want at least %v", ErrUsage, size, Bytes(minTraceCache))
		}
		cache, err := c.New(int64(size), rep.Keys)
		if err != nil {
			return rep, err
		}
		r := TraceResult{CacheBytes: int64(size)}
		hits := 0
		for _, e := range asks {
			if cache.Ask(e.key, e.size) {
				hits++
			}
		}
		n := float64(len(asks))
		r.Store, r.Filter = float64(hits)/n, cache.Filter()
		r.LRU = float64(lruHits(asks, int64(size), c.Overhead)) / n
		r.Optimal = float64(optimalHits(asks, next, int64(size), c.Overhead)) / n
		rep.Results = append(rep.Results, r)
	}
	if c.Out != nil {
		rep.write(c.Out)
	}
	return rep, nil
}

// minTraceCache is below any cache that a node can have.
const minTraceCache = 64 << 10

func (r TraceReport) write(w io.Writer) {
	fmt.Fprintf(w, "%d requests for %d keys, %s in all; %d lines skipped.\n\nHit ratio:\n", r.Requests, r.Keys, about(r.Footprint), r.Skipped)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "cache\tedged\tLRU\toptimal\tedged beside LRU\t")
	for _, x := range r.Results {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%+.1f points\t\n", about(x.CacheBytes), percent(x.Store), percent(x.LRU), percent(x.Optimal), 100*(x.Store-x.LRU))
	}
	tw.Flush()
	fmt.Fprintln(w, "\nThe filter of the stored keys:")
	tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "cache\tkeys\ta replica\tcounters\tfill\tmisses\tcalled stored\tobserved\texpected\tchanges a request\t")
	for _, x := range r.Results {
		f := x.Filter
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%.3f\t\n", about(x.CacheBytes), f.Keys, about(f.BitBytes), about(f.CounterBytes), percent(f.Fill),
			f.Misses, f.FalsePositives, smallRate(ratio(f.FalsePositives, f.Misses)), smallRate(f.ExpectedRate), ratio(f.Changes, int64(r.Requests)))
	}
	tw.Flush()
}

// about writes a size with three digits.
func about(n int64) string {
	for _, u := range []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.n {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(u.n), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// lruHits counts the hits of a cache that evicts what was used longest ago.
func lruHits(asks []logEntry, capacity, overhead int64) (hits int) {
	order := list.New() // of entries, the newest in front
	at := map[uint64]*list.Element{}
	var used int64
	for _, e := range asks {
		if x, ok := at[e.key]; ok {
			hits++
			order.MoveToFront(x)
			continue
		}
		need := e.size + overhead
		if need > capacity {
			continue
		}
		for used+need > capacity {
			old := order.Remove(order.Back()).(logEntry)
			used -= old.size + overhead
			delete(at, old.key)
		}
		at[e.key] = order.PushFront(e)
		used += need
	}
	return hits
}

// never is the next use of what is not asked for again.
const never = int(^uint(0) >> 1)

// nextUses is, for each request, the index of the next one for its key.
func nextUses(asks []logEntry) []int {
	next := make([]int, len(asks))
	last := map[uint64]int{}
	for i := len(asks) - 1; i >= 0; i-- {
		next[i] = never
		if j, ok := last[asks[i].key]; ok {
			next[i] = j
		}
		last[asks[i].key] = i
	}
	return next
}

// stored is a key in the optimal cache.
type stored struct {
	key   uint64
	bytes int64
	next  int // its next use
	at    int // in the heap
}

// farthest is a heap whose top is used latest.
type farthest []*stored

func (h farthest) Len() int           { return len(h) }
func (h farthest) Less(i, j int) bool { return cmp.Compare(h[i].next, h[j].next) > 0 }
func (h farthest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *farthest) Push(x any) {
	s := x.(*stored)
	s.at = len(*h)
	*h = append(*h, s)
}
func (h *farthest) Pop() any {
	old := *h
	s := old[len(old)-1]
	*h = old[:len(old)-1]
	return s
}

// optimalHits counts the hits of a cache that knows the future: it evicts what
// is used latest, and does not store what is used later than all it has.
func optimalHits(asks []logEntry, next []int, capacity, overhead int64) (hits int) {
	var h farthest
	at := map[uint64]*stored{}
	var used int64
	for i, e := range asks {
		s, ok := at[e.key]
		if ok {
			hits++
			s.next = next[i]
			heap.Fix(&h, s.at)
		} else if need := e.size + overhead; need <= capacity {
			s = &stored{key: e.key, bytes: need, next: next[i]}
			at[e.key] = s
			heap.Push(&h, s)
			used += need
		}
		for used > capacity {
			out := heap.Pop(&h).(*stored)
			used -= out.bytes
			delete(at, out.key)
		}
	}
	return hits
}
