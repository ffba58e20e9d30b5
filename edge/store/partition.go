package store

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// partition is a budget with an index, a policy and a filter. Readers take no
// lock; all writers take mu, whose critical sections are some hundred
// nanoseconds (doc.go says why there is one).
type partition struct {
	name        string
	limit       int64
	base        int64 // bytes that it takes when empty
	maxVariants int
	shift       uint // hash >> shift is the shard
	shards      []shard
	filter      atomic.Pointer[Filter] // written under mu; nil: none

	rebuilding sync.Mutex // one Rebuild at a time; taken before mu
	_          [64]byte

	mu      sync.Mutex
	used    atomic.Int64 // bytes; written under mu, lowered after the fact and raised before it
	next    Filter       // during a rebuild: told of the keys in moved shards
	policy  s3fifo
	tags    *tagIndex
	objects int
	keys    int
	urls    int64 // length of all keys' URLs together
	count   counters
}

type counters struct {
	puts, replaced, removed, purged, marked uint64
	evicted                                 Evictions
	refused                                 Refusals
	added, dropped                          KeyChanges
}

func newPartition(pc PartitionConfig, maxVariants int) *partition {
	p := &partition{
		name:        pc.Name,
		limit:       pc.MaxBytes,
		maxVariants: maxVariants,
		shift:       uint(64 - bits.Len(uint(pc.Shards)-1)),
		shards:      make([]shard, pc.Shards),
	}
	if pc.Filter != nil {
		p.filter.Store(&pc.Filter)
	}
	for i := range p.shards {
		p.shards[i].table.Store(newTable(minBuckets))
	}
	p.policy = newS3FIFO(pc.MaxBytes)
	p.tags = newTagIndex(pc.MaxBytes)
	p.base = allocBytes(int64(unsafe.Sizeof(*p))) + allocPointerBytes(int64(unsafe.Sizeof(tagIndex{}))) +
		allocPointerBytes(int64(pc.Shards)*int64(unsafe.Sizeof(shard{}))) +
		int64(pc.Shards)*tableBytes(minBuckets) + p.policy.ghost.bytes()
	p.used.Store(p.base)
	return p
}

func (p *partition) shard(hash uint64) *shard { return &p.shards[hash>>p.shift] }

// get is the fast path: a walk without a lock.
func (p *partition) get(k *Key) []*Response {
	t := p.shard(k.Hash).table.Load()
	e := t.find(k)
	if e == nil {
		if !t.stale.Load() {
			return nil
		}
		// The table was being replaced under the walk: once in a doubling.
		p.mu.Lock()
		e = p.shard(k.Hash).table.Load().find(k)
		p.mu.Unlock()
		if e == nil {
			return nil
		}
	}
	if l := e.list.Load(); l != nil {
		return l.rs
	}
	return nil
}

func (p *partition) put(k *Key, r *Response) Reason {
	why := p.take(k, r)
	if why == Stored {
		// Allocate outside the lock, where a collector's assist delays nobody.
		var fresh *entry
		if p.get(k) == nil {
			fresh = newEntry(k)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.installLocked(k, fresh, nil, r)
		p.count.puts++
		return Stored
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if why == TooLarge {
		p.count.refused.TooLarge++
	} else {
		p.count.refused.Reused++
	}
	return why
}

// take prepares r for this partition, or refuses it.
func (p *partition) take(k *Key, r *Response) Reason {
	if !r.taken.CompareAndSwap(false, true) {
		return Reused
	}
	r.ownTags()
	var empty tagTable
	cost := r.bytes()
	if cost+tagsBytes(r.Tags)+empty.growth(len(r.Tags)) > p.limit-p.base-entryBytes(k.URL) {
		r.taken.Store(false)
		return TooLarge
	}
	r.cost = cost
	r.self[0] = r
	r.solo.rs = r.self[:]
	return Stored
}

func (p *partition) replace(k *Key, old, r *Response) bool {
	if p.take(k, r) != Stored {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.holdsLocked(k, old) {
		r.taken.Store(false)
		return false
	}
	p.installLocked(k, nil, old, r)
	return true
}

func (p *partition) remove(k *Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.shard(k.Hash).table.Load().find(k)
	if e == nil {
		return 0
	}
	rs := e.list.Load().rs
	for _, r := range rs {
		p.dropLocked(r)
	}
	p.count.removed += uint64(len(rs))
	return len(rs)
}

func (p *partition) removeResponse(k *Key, r *Response) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.holdsLocked(k, r) {
		return false
	}
	p.dropLocked(r)
	p.count.removed++
	return true
}

// holdsLocked reports whether r is stored under k here. It looks by key, since
// r's own bookkeeping may belong to another partition's lock.
func (p *partition) holdsLocked(k *Key, r *Response) bool {
	if e := p.shard(k.Hash).table.Load().find(k); e != nil {
		for _, v := range e.list.Load().rs {
			if v == r {
				return true
			}
		}
	}
	return false
}

// change is what storing a response does to its key.
type change struct {
	e       *entry    // nil: the key is new
	n       int       // responses afterwards
	heir    *Response // whose place in the queue the new one takes; nil: a new place
	surplus *Response // the variant too many
	tags    int64     // bytes by which the index of tags grows at most
	need    int64     // bytes, tags among them; below 0 when it frees some
}

// displaced reports whether v leaves when r comes in old's place.
func displaced(v, old, r *Response) bool { return v == old || v.Variant == r.Variant }

func (p *partition) planLocked(sh *shard, k *Key, old, r *Response) change {
	c := change{e: sh.table.Load().find(k), n: 1, need: p.policy.ghost.growth(p.objects + 1)}
	if c.e == nil {
		p.tags.admit(r, nil)
		c.tags = p.tags.growth(r, nil)
		c.need += r.cost + c.tags + entryBytes(k.URL) + sh.growth()
		return c
	}
	rs := c.e.list.Load().rs
	var oldest *Response
	for _, v := range rs {
		switch {
		case displaced(v, old, r):
			c.need -= v.cost
			if c.heir == nil || v == old {
				c.heir = v
			}
		default:
			c.n++
			oldest = v
		}
	}
	if c.n > p.maxVariants {
		c.n--
		c.surplus = oldest
		c.need -= oldest.cost
	}
	p.tags.admit(r, c.heir)
	c.tags = p.tags.growth(r, c.heir)
	c.need += r.cost + c.tags + listBytes(c.n) - listBytes(len(rs))
	return c
}

// installLocked stores r, which take has let in, under k and in old's place
// (nil: in that of its variant). It evicts first, then reserves, then stores:
// at no instant is used above the limit or below what is there.
//
// Evicting can change what r needs (a sibling leaves, and with it the key), so
// the plan is made anew after each. It ends: with all others gone, in the end
// the one whose place r takes too (its tags can be what is in the way), the tables
// are at their least, and take has checked that r fits beside that.
func (p *partition) installLocked(k *Key, fresh *entry, old, r *Response) {
	sh := p.shard(k.Hash)
	c := p.planLocked(sh, k, old, r)
	for p.used.Load()+c.need > p.limit {
		if !p.evictLocked(c.heir) {
			if c.heir == nil {
				panic("store: the budget is spent, and nothing is there to evict: bytes were lost")
			}
			p.dropLocked(c.heir)
			p.count.replaced++
		}
		c = p.planLocked(sh, k, old, r)
	}
	if c.need > 0 {
		p.used.Add(c.need)
	}
	p.policy.ghost.grow(p.objects + 1)
	before := p.tags.bytes()
	p.tags.link(r, c.heir)
	if c.e == nil {
		p.linkLocked(sh, k, fresh, r)
	} else {
		p.relistLocked(c, old, r)
	}
	if c.heir != nil {
		p.policy.swap(c.heir, r)
	} else {
		p.policy.add(r)
	}
	p.objects++
	p.used.Add(p.tags.bytes() - before - c.tags + min(c.need, 0))
}

// linkLocked enters a new key with r: first the filter learns of it, then it
// can be found.
func (p *partition) linkLocked(sh *shard, k *Key, fresh *entry, r *Response) {
	e := fresh
	if e == nil {
		e = newEntry(k)
	}
	if sh.growth() > 0 {
		sh.resize(2 * len(sh.table.Load().buckets))
	}
	e.list.Store(&r.solo)
	r.entry = e
	if f := p.filter.Load(); f != nil {
		(*f).Add(e.filter)
	}
	if sh.moved {
		p.next.Add(e.filter)
	}
	sh.table.Load().link(e)
	p.keys++
	p.urls += int64(len(e.url))
	p.count.added.add(1, len(e.url))
}

// relistLocked puts r in front of its key's responses and lets those go that
// c says; their bytes are in c.need. The filter is not concerned.
func (p *partition) relistLocked(c change, old, r *Response) {
	rs := c.e.list.Load().rs
	r.entry = c.e
	l := &r.solo
	if c.n > 1 {
		l = &list{rs: make([]*Response, 1, c.n)}
		l.rs[0] = r
		for _, v := range rs {
			if v != c.surplus && !displaced(v, old, r) {
				l.rs = append(l.rs, v)
			}
		}
	}
	c.e.list.Store(l)
	for _, v := range rs {
		switch {
		case v == c.surplus:
			p.count.evicted.Variants++
		case displaced(v, old, r):
			p.count.replaced++
		default:
			continue
		}
		v.entry = nil
		p.tags.unlink(v)
		p.objects--
		if v != c.heir {
			p.policy.remove(v)
		}
	}
}

// dropLocked takes r out: first it can't be found any more, then, if it was
// its key's last, the filter forgets the key, then its bytes are free.
func (p *partition) dropLocked(r *Response) {
	e := r.entry
	rs := e.list.Load().rs
	freed := r.cost
	switch n := len(rs) - 1; n {
	case 0:
		sh := p.shard(e.hash)
		e.list.Store(nil)
		sh.table.Load().unlink(e)
		if f := p.filter.Load(); f != nil {
			(*f).Remove(e.filter)
		}
		if sh.moved {
			p.next.Remove(e.filter)
		}
		p.keys--
		p.urls -= int64(len(e.url))
		p.count.dropped.add(1, len(e.url))
		freed += entryBytes(e.url) + sh.shrink()
	default:
		rest := make([]*Response, 0, n)
		for _, v := range rs {
			if v != r {
				rest = append(rest, v)
			}
		}
		l := &rest[0].solo
		if n > 1 {
			l = &list{rs: rest}
		}
		e.list.Store(l)
		freed += listBytes(n+1) - listBytes(n)
	}
	r.entry = nil
	tags := p.tags.bytes()
	p.tags.unlink(r)
	freed += tags - p.tags.bytes()
	p.policy.remove(r)
	p.objects--
	freed += p.policy.ghost.shrink(p.objects)
	p.used.Add(-freed)
}

// evictLocked drops the response that the policy values least, pinned apart,
// and reports whether there was one.
func (p *partition) evictLocked(pinned *Response) bool {
	r := p.policy.victim(pinned)
	if r == nil {
		return false
	}
	if r.where == smallQueue {
		p.policy.remember(r)
		p.count.evicted.Small++
	} else {
		p.count.evicted.Main++
	}
	p.dropLocked(r)
	return true
}

func (p *partition) stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Name:       p.name,
		Bytes:      p.used.Load(),
		LimitBytes: p.limit,
		SmallBytes: p.policy.small.bytes,
		MainBytes:  p.policy.main.bytes,
		Objects:    p.objects,
		Keys:       p.keys,
		Tags:       p.tags.table.n,
		TagRefs:    p.tags.refs,
		TagBytes:   p.tags.bytes(),
		Untagged:   p.tags.absent,
		Puts:       p.count.puts,
		GhostHits:  p.policy.ghostHits,
		Replaced:   p.count.replaced,
		Removed:    p.count.removed,
		Purged:     p.count.purged,
		Marked:     p.count.marked,
		Evicted:    p.count.evicted,
		Refused:    p.count.refused,
		URLBytes:   p.urls,
		Added:      p.count.added,
		Dropped:    p.count.dropped,
	}
	s.IndexBytes = s.Bytes - s.SmallBytes - s.MainBytes
	return s
}
