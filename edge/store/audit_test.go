package store

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: from the clock")

// newRand returns a source whose seed is printed when the test fails.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat: -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func keyOf(url string) *Key {
	h := xxhash.Sum64String(url)
	return &Key{URL: url, Hash: h, Filter: [2]uint64{h, ^h}}
}

// tally is a filter that counts each hash and complains about what the store
// must never do. While store is set it checks on each call that the key can't
// be found.
type tally struct {
	t testing.TB

	mu     sync.Mutex
	n      map[[2]uint64]int
	closed bool // replaced by a rebuild: nothing may be told any more

	forbidden [2]uint64 // must not be told of this one
	seen      func()    // called with the partition locked

	part *partition
	keys map[[2]uint64]*Key
}

func newTally(t testing.TB) *tally { return &tally{t: t, n: map[[2]uint64]int{}} }

func (f *tally) Add(h [2]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.check("Add", h)
	if f.n[h]++; f.n[h] != 1 {
		f.t.Errorf("Add(%x) twice", h)
	}
}

func (f *tally) Remove(h [2]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.check("Remove", h)
	if f.n[h]--; f.n[h] != 0 {
		f.t.Errorf("Remove(%x) of what is not there", h)
	}
	delete(f.n, h)
}

func (f *tally) check(op string, h [2]uint64) {
	if f.closed {
		f.t.Errorf("%s on a filter that was replaced", op)
	}
	if h == f.forbidden && h != [2]uint64{} {
		f.t.Errorf("%s(%x)", op, h)
	}
	if f.seen != nil {
		f.seen()
	}
	if f.part != nil && f.part.used.Load() > f.part.limit {
		f.t.Errorf("%s with %d bytes of %d in use", op, f.part.used.Load(), f.part.limit)
	}
	// A rebuild adds keys that are found, so only the present filter is asked.
	if f.part == nil || f.part.filter.Load() == nil || *f.part.filter.Load() != Filter(f) {
		return
	}
	if k := f.keys[h]; k != nil && f.part.get(k) != nil {
		f.t.Errorf("%s(%s) while it can be found", op, k.URL)
	}
}

func (f *tally) MayContain(h [2]uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n[h] > 0
}

func (f *tally) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// audit counts the partition afresh and returns what does not agree.
func (p *partition) audit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.base - int64(len(p.shards))*tableBytes(minBuckets) - allocBytes(lineBytes) + p.policy.ghost.bytes() + p.tags.bytes()
	keys, objects := 0, 0
	stored := map[*Response]bool{}
	filter := map[[2]uint64]bool{}
	for i := range p.shards {
		sh := &p.shards[i]
		t := sh.table.Load()
		used += tableBytes(len(t.buckets))
		es := sh.table.Load().entries(nil, 0, math.MaxInt)
		if t.n != len(es) {
			return fmt.Errorf("shard %d has %d entries, its count is %d", i, len(es), t.n)
		}
		keys += len(es)
		for _, e := range es {
			filter[e.filter] = true
			if p.shard(e.hash) != sh {
				return fmt.Errorf("%s is in the wrong shard", e.url)
			}
			rs := e.list.Load().rs
			if len(rs) == 0 || len(rs) > p.maxVariants {
				return fmt.Errorf("%s has %d responses", e.url, len(rs))
			}
			used += entryBytes(e.url) + listBytes(len(rs))
			variants := map[string]bool{}
			for _, r := range rs {
				objects++
				if stored[r] || variants[r.Variant] {
					return fmt.Errorf("%s: a response or variant stands twice", e.url)
				}
				stored[r], variants[r.Variant] = true, true
				if r.entry != e || r.cost != r.bytes() {
					return fmt.Errorf("%s: entry %p want %p, cost %d want %d", e.url, r.entry, e, r.cost, r.bytes())
				}
				used += r.cost
			}
		}
	}
	if keys != p.keys || objects != p.objects || used != p.used.Load() {
		return fmt.Errorf("keys %d, objects %d, bytes %d; want %d, %d, %d", p.keys, p.objects, p.used.Load(), keys, objects, used)
	}
	if used > p.limit {
		return fmt.Errorf("%d bytes of %d", used, p.limit)
	}
	if err := p.tags.audit(stored); err != nil {
		return err
	}
	queued := 0
	for id, q := range map[queueID]*fifo{smallQueue: &p.policy.small, mainQueue: &p.policy.main} {
		var bytes int64
		n := 0
		var prev *Response
		for r := q.head; r != nil; r = r.next {
			if r.prev != prev || r.where != id || !stored[r] {
				return fmt.Errorf("queue %d: a bad link, or a response that is not stored", id)
			}
			prev = r
			n++
			bytes += r.cost
		}
		if q.tail != prev || n != q.n || bytes != q.bytes {
			return fmt.Errorf("queue %d: %d responses of %d bytes; want %d of %d", id, q.n, q.bytes, n, bytes)
		}
		queued += n
	}
	if queued != objects {
		return fmt.Errorf("%d responses in queues, %d in the index", queued, objects)
	}
	if f, ok := p.presentTally(); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.n) != len(filter) {
			return fmt.Errorf("filter has %d keys, index %d", len(f.n), len(filter))
		}
		for h := range filter {
			if f.n[h] != 1 {
				return fmt.Errorf("filter counts %x %d times", h, f.n[h])
			}
		}
	}
	return nil
}

// audit compares the index with the tags of what is stored.
func (x *tagIndex) audit(stored map[*Response]bool) error {
	want := map[string]map[*Response]bool{}
	refs, absent := 0, 0
	for r := range stored {
		if !slices.IsSorted(r.Tags) || len(slices.Compact(slices.Clone(r.Tags))) != len(r.Tags) {
			return fmt.Errorf("tags %q: want them sorted, and each once", r.Tags)
		}
		if r.links == nil {
			absent += min(len(r.Tags), 1)
			continue
		}
		refs += len(r.Tags)
		for _, name := range r.Tags {
			if want[name] == nil {
				want[name] = map[*Response]bool{}
			}
			want[name][r] = true
		}
	}
	if refs != x.refs || absent != x.absent || len(want) != x.table.n {
		return fmt.Errorf("%d tags on %d responses, %d responses without: want %d, %d, %d", x.table.n, x.refs, x.absent, len(want), refs, absent)
	}
	var nodes int64
	for name, rs := range want {
		t := x.find(name)
		if t == nil || t.n != len(rs) {
			return fmt.Errorf("tag %q: %+v, want %d", name, t, len(rs))
		}
		nodes += tagBytes(name)
		var prev *tagLink
		n := 0
		for l := t.head; l != nil; l = l.next {
			if l.prev != prev || l.tag != t {
				return fmt.Errorf("tag %q: a bad link", name)
			}
			prev = l
			if l.r == nil { // a purge's place
				continue
			}
			n++
			i := slices.Index(l.r.Tags, name)
			if !rs[l.r] || l != &linksOf(l.r)[i] || unsafe.StringData(l.r.Tags[i]) != unsafe.StringData(t.name) {
				return fmt.Errorf("tag %q: a link of what does not carry it, or holds another string", name)
			}
		}
		if n != len(rs) {
			return fmt.Errorf("tag %q: %d links, want %d", name, n, len(rs))
		}
	}
	if nodes != x.nodes || x.bytes() > x.limit {
		return fmt.Errorf("tags take %d bytes, want %d; all take %d of %d", x.nodes, nodes, x.bytes(), x.limit)
	}
	return nil
}

func (p *partition) presentTally() (*tally, bool) {
	f := p.filter.Load()
	if f == nil {
		return nil, false
	}
	t, ok := (*f).(*tally)
	return t, ok
}

// newStore makes a store of one partition with a tally for a filter.
func newStore(t testing.TB, pc PartitionConfig) (*Store, *tally) {
	t.Helper()
	f := newTally(t)
	pc.Filter = f
	s, err := New(Config{Partitions: []PartitionConfig{pc}, MaxVariants: 4})
	if err != nil {
		t.Fatal(err)
	}
	f.part = s.parts[0]
	return s, f
}

func mustAudit(t testing.TB, s *Store) {
	t.Helper()
	for _, p := range s.parts {
		if err := p.audit(); err != nil {
			t.Fatal(err)
		}
	}
}

// sized returns a response with a body of n bytes.
func sized(variant string, n int) *Response {
	r := &Response{Variant: variant, Head: "Content-Type: text/plain\r\n"}
	if n > 0 {
		r.Body = NewBody([][]byte{make([]byte, n)})
	}
	return r
}

func mustPut(t testing.TB, s *Store, k *Key, r *Response) {
	t.Helper()
	if ok, why := s.Put(0, k, r); !ok {
		t.Fatalf("Put(%s): %s", k.URL, why)
	}
}
