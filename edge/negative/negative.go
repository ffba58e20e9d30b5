package negative

import (
	"context"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	minCapacity  = 64 << 10
	maxHeadBytes = 8 << 10
	maxKeyBytes  = 8 << 10
	maxShards    = 256
	shardBytes   = 256 << 10 // a shard for each so many bytes of capacity
)

// Config bounds a [Cache].
type Config struct {
	// CapacityBytes is a hard limit on everything that the cache holds: index,
	// keys, heads, bodies and its own tables. Below 64 KiB it remembers nothing.
	CapacityBytes int64
	// MaxCreateRate is the number of new entries of a site a second; 0: no limit. Keys
	// that come a second time while the limit is reached have as much again.
	MaxCreateRate int
	// MaxBodyBytes is the largest body that is kept; 0: 32 KiB.
	MaxBodyBytes int
}

// Entry is one remembered absence. Head and Body are shared by all entries of
// equal content and must not be written to.
//
// Date and Age do not belong into the head: they differ in every response, so
// that nothing could be shared. The caller makes them from Stored and InitialAge.
//
// Times are kept to the millisecond, rounded down, and are measured against a
// monotonic clock when now comes from [time.Now]: setting the machine's clock
// neither ends nor prolongs an entry.
type Entry struct {
	Status int    // 100 to 999
	Head   string // field lines as the caller serialised them, at most 8 KiB
	Body   []byte
	From   From // who said so

	Stored     time.Time     // when the response arrived here; zero: now
	InitialAge time.Duration // its corrected initial age then (RFC 9111 §4.2.3), kept in whole seconds, rounded up
	Expires    time.Time     // end of its freshness, at most 49 days after Stored
	Keep       time.Duration // how long after Expires it is kept, stale, in whole seconds; 0: not at all; at most 18 h

	// Asked is when the forward that brought this response began. An entry is
	// refused when its key was deleted since: what was created in the meantime
	// wins over the older absence. Zero: not checked. Get leaves it empty.
	Asked time.Time

	// Generation is for the caller: it comes back as it was put, or as Review
	// made it. At most 2^40 - 1.
	Generation uint64

	// Site is whose creation limit a new entry counts against. Get leaves it
	// empty.
	Site string
}

// From is who told of an absence.
type From uint8

// Who may.
const (
	FromOrigin From = iota
	FromShield
	FromPurge // an operator, who knows that it is gone
)

func (f From) String() string {
	switch f {
	case FromShield:
		return "shield"
	case FromPurge:
		return "purge"
	}
	return "origin"
}

// Reason is why an entry was not stored.
type Reason string

// The reasons.
const (
	ReasonRate       Reason = "rate"       // more new entries of this site a second than MaxCreateRate
	ReasonClient     Reason = "client"     // this client's network creates more than its share
	ReasonCapacity   Reason = "capacity"   // no room, even after forgetting
	ReasonTooLarge   Reason = "too_large"  // key, head or body is too long
	ReasonSuperseded Reason = "superseded" // deleted since Entry.Asked
	ReasonExpired    Reason = "expired"    // its lifetime is over
)

var reasons = [...]Reason{ReasonRate, ReasonClient, ReasonCapacity, ReasonTooLarge, ReasonSuperseded, ReasonExpired}

// Cache holds negative entries. Its methods are safe for concurrent use; each
// holds one shard's lock for some hundred nanoseconds, and longer, up to tens
// of microseconds, when a Put empties a segment or a table grows.
type Cache struct {
	maxKey, maxBody int
	segmentShift    uint      // a segment has 1 << segmentShift bytes
	base            time.Time // times are kept relative to it
	seed            maphash.Seed
	shift           uint // of a hash, to its shard

	budget  budget
	pages   *blobs[page]
	bodies  *blobs[[]byte]
	origins *blobs[string]
	limiter *limiter
	shards  []shard // none: nothing is remembered
	cursor  atomic.Uint32
	refused [len(reasons)]atomic.Uint64
}

// Stats is a moment's view of a [Cache]; the counters are since New.
type Stats struct {
	Entries    int64 // those expired but not yet swept included
	Bytes      int64 // memory held, never above LimitBytes
	LimitBytes int64
	Stored     uint64
	Forgotten  uint64 // entries that made room for newer ones
	Refused    map[Reason]uint64
}

// New returns an empty cache. It starts no goroutine: call [Cache.Sweep] now
// and then.
func New(cfg Config) *Cache {
	c := &Cache{
		maxBody: cfg.MaxBodyBytes,
		base:    time.Now(),
		seed:    maphash.MakeSeed(),
	}
	if c.maxBody <= 0 {
		c.maxBody = 32 << 10
	}
	c.budget.limit = max(0, cfg.CapacityBytes)
	c.pages = newPages(&c.budget, c.seed)
	c.bodies = newBodies(&c.budget, c.seed)
	c.origins = newOrigins(&c.budget, c.seed)

	// Tallies for 512 networks at the least capacity, for 4096 from 512 KiB on;
	// a doorkeeper of 1/64 of the capacity for each half, 1 MiB at most, which
	// remembers some 800 000 keys.
	capacity := c.budget.limit
	tallies := int(min(4096, max(256, floorPow2(capacity/128))))
	door := int(min(1<<20, max(1<<10, floorPow2(capacity/64))))
	if capacity < minCapacity || cfg.MaxCreateRate <= 0 {
		c.limiter = newLimiter(0, 0, 0, c.seed, &c.budget)
	} else {
		c.limiter = newLimiter(cfg.MaxCreateRate, tallies, door, c.seed, &c.budget)
		c.budget.take(limiterBytes(tallies, door))
	}
	if capacity < minCapacity {
		return c
	}

	n := min(maxShards, max(1, floorPow2(capacity/shardBytes)))
	c.shards = make([]shard, n)
	c.shift = uint(64 - bits.TrailingZeros64(uint64(n)))
	// Sixteen segments or more to a shard, so that emptying one forgets little.
	segmentBytes := min(64<<10, max(4<<10, floorPow2(capacity/n/16)))
	c.segmentShift = uint(bits.TrailingZeros64(uint64(segmentBytes)))
	c.maxKey = min(maxKeyBytes, int(segmentBytes)/2-recordHead)
	c.budget.take(n * shardStructBytes)
	for i := range c.shards {
		c.shards[i].cache = c
		c.shards[i].graves.reset()
	}
	return c
}

// floorPow2 returns the largest power of two that is not above n, 0 for 0.
func floorPow2(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return 1 << (bits.Len64(uint64(n)) - 1)
}

// ms and ns return a time relative to the cache's beginning.
func (c *Cache) ms(t time.Time) int64 {
	d := t.Sub(c.base)
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond < 0 {
		ms-- // round down before the beginning, too
	}
	return ms
}

func (c *Cache) ns(t time.Time) int64 { return int64(t.Sub(c.base)) }

func (c *Cache) shard(hash uint64) *shard { return &c.shards[hash>>c.shift&uint64(len(c.shards)-1)] }

// Get returns the entry of exactly this key. One past its Expires is returned
// only during its Keep.
//
// It takes no hash: the cache hashes the key with a secret of its own, so that
// crafted keys can't collide.
func (c *Cache) Get(key string, now time.Time) (Entry, bool) {
	if len(c.shards) == 0 {
		return Entry{}, false
	}
	hash := maphash.String(c.seed, key)
	s := c.shard(hash)
	at := c.ms(now)
	s.mu.Lock()
	i := s.findLocked(hash, key)
	if i < 0 {
		s.mu.Unlock()
		return Entry{}, false
	}
	r := s.at(s.table[i])
	if c.pages.at(r.page()).end(r.stored()) <= at {
		s.mu.Unlock()
		return Entry{}, false
	}
	e := c.entry(r)
	s.mu.Unlock()
	return e, true
}

// entry decodes a live record; the caller holds its shard's lock.
func (c *Cache) entry(r record) Entry {
	p := c.pages.at(r.page())
	stored := c.base.Add(time.Duration(r.stored()) * time.Millisecond)
	return Entry{
		Status:     int(p.status & statusMask),
		From:       From(p.status >> statusBits),
		Head:       p.head,
		Body:       c.bodies.at(p.body),
		Stored:     stored,
		InitialAge: time.Duration(p.age) * time.Second,
		Expires:    stored.Add(time.Duration(p.life) * time.Millisecond),
		Keep:       time.Duration(p.keep) * time.Second,
		Generation: r.generation(),
	}
}

// Put remembers the entry, in place of an older one of the same key, and
// reports whether it did; else reason says why not. A new key counts against
// the creation limits; client is who asked, and the zero Addr (a peer, the
// node itself) is not limited by its share. The entry's head and body are
// copied.
func (c *Cache) Put(key string, client netip.Addr, e Entry, now time.Time) (stored bool, reason Reason) {
	reason = c.put(key, client, e, now)
	for i, r := range reasons {
		if r == reason {
			c.refused[i].Add(1)
		}
	}
	return reason == "", reason
}

func (c *Cache) put(key string, client netip.Addr, e Entry, now time.Time) Reason {
	if len(c.shards) == 0 {
		return ReasonCapacity
	}
	if len(key) > c.maxKey || len(e.Head) > maxHeadBytes || len(e.Body) > c.maxBody {
		return ReasonTooLarge
	}
	if e.Stored.IsZero() {
		e.Stored = now
	}
	d := draft{
		key:        key,
		hash:       maphash.String(c.seed, key),
		rest:       key,
		stored:     min(max(c.ms(e.Stored), -maxStored), maxStored),
		generation: e.Generation & maxGeneration,
	}
	p := page{
		head:   e.Head,
		life:   uint32(min(max(c.ms(e.Expires)-d.stored, 0), 1<<32-1)),
		age:    uint32(min((max(e.InitialAge, 0)+time.Second-1)/time.Second, 1<<31)),
		keep:   uint16(min(max(e.Keep/time.Second, 0), maxKeep)),
		status: uint16(e.Status)&statusMask | uint16(e.From)<<statusBits,
	}
	if p.end(d.stored) <= c.ms(now) {
		return ReasonExpired
	}

	s := c.shard(d.hash)
	superseded := func() bool { return !e.Asked.IsZero() && s.graves.supersedes(d.hash, c.ns(e.Asked)) }
	s.mu.Lock()
	late, known := superseded(), s.findLocked(d.hash, key) >= 0
	s.mu.Unlock()
	if late {
		return ReasonSuperseded
	}
	if !known {
		if reason, ok := c.limiter.admit(d.hash, e.Site, client, c.ms(now)); !ok {
			return reason
		}
	}

	var shared, ok bool
	if p.body, _, ok = intern(c, c.bodies, e.Body); !ok {
		return ReasonCapacity
	}
	d.page, shared, ok = intern(c, c.pages, p)
	if shared || !ok {
		c.bodies.release(p.body) // a page that was there has a reference of its own
	}
	if !ok {
		return ReasonCapacity
	}
	n := originLen(key)
	if d.origin, _, _, ok = c.origins.acquire(key[:n]); ok {
		d.rest = key[n:]
	}
	reason := ReasonCapacity
	for range maxReclaims {
		s.mu.Lock()
		if superseded() {
			s.mu.Unlock()
			reason = ReasonSuperseded
			break
		}
		need, ok := s.insertLocked(&d)
		s.mu.Unlock()
		if ok {
			return ""
		}
		if !c.reclaim(need) {
			break
		}
	}
	c.releasePage(d.page)
	c.origins.release(d.origin)
	return reason
}

// releasePage drops one reference to a page, and with the last one that to its
// body.
func (c *Cache) releasePage(id uint32) {
	if p, gone := c.pages.release(id); gone {
		c.bodies.release(p.body)
	}
}

// maxReclaims bounds how often one Put makes room that others then take.
const maxReclaims = 4

// intern is acquire, which forgets entries until there is memory.
func intern[T any](c *Cache, bs *blobs[T], data T) (id uint32, known, ok bool) {
	for range maxReclaims {
		id, known, need, ok := bs.acquire(data)
		if ok {
			return id, known, true
		}
		if !c.reclaim(need) {
			break
		}
	}
	return 0, false, false
}

// reclaim forgets the oldest segment of one shard after the other until need
// bytes are free, and reports whether they are. A shard has its turn once, so
// the work of a call is bounded; nearly always the first one suffices.
func (c *Cache) reclaim(need int64) bool {
	for range c.shards {
		if c.budget.fits(need) {
			return true
		}
		s := &c.shards[c.cursor.Add(1)&uint32(len(c.shards)-1)]
		s.mu.Lock()
		s.forgetSegmentLocked()
		s.mu.Unlock()
	}
	return c.budget.fits(need)
}

// Delete forgets the key, reports whether it was there, and from then on
// refuses entries of it that were asked for before now.
func (c *Cache) Delete(key string, now time.Time) bool {
	if len(c.shards) == 0 {
		return false
	}
	hash := maphash.String(c.seed, key)
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graves.bury(hash, c.ns(now))
	i := s.findLocked(hash, key)
	if i < 0 {
		return false
	}
	s.killLocked(i)
	return true
}

// Review asks keep about each entry whose generation is below gen, forgets those
// that it does not keep, and gives the others that generation; it returns how
// many it forgot. No lock is held while keep runs. An entry that comes meanwhile
// may be passed over, and when ctx ends, the rest.
func (c *Cache) Review(ctx context.Context, gen uint64, keep func(key string, e Entry) bool) int {
	type found struct {
		key string
		e   Entry
		id  uint32 // of the page
	}
	var batch []found
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		order := append([]uint32(nil), s.order...)
		s.mu.Unlock()
		for _, id := range order {
			batch = batch[:0]
			s.mu.Lock()
			// The segment may have been emptied and begun anew since: what it
			// holds then is newer than this call, and looking at it does no harm.
			seg := &s.segs[id]
			for off := seg.tail; off < seg.used; {
				r := record(seg.buf[off:])
				if !r.dead() && r.generation() < gen {
					batch = append(batch, found{s.keyOf(r), c.entry(r), r.page()})
				}
				off += r.len()
			}
			s.mu.Unlock()
			for _, f := range batch {
				if ctx.Err() != nil {
					return n
				}
				kept := keep(f.key, f.e)
				hash := maphash.String(c.seed, f.key)
				s.mu.Lock()
				if i := s.findLocked(hash, f.key); i >= 0 {
					r := s.at(s.table[i])
					switch same := r.page() == f.id && r.generation() == f.e.Generation; {
					case same && kept:
						r.setGeneration(gen)
					case same:
						s.killLocked(i)
						n++
					}
				}
				s.mu.Unlock()
			}
		}
	}
	return n
}

// Sweep forgets what has ended and gives memory back. Call it every few
// seconds: it reads all records, a segment at a time.
func (c *Cache) Sweep(now time.Time) {
	at := c.ms(now)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		order := append([]uint32(nil), s.order...)
		s.mu.Unlock()
		for _, id := range order {
			s.mu.Lock()
			s.sweepLocked(id, at)
			s.mu.Unlock()
		}
		s.mu.Lock()
		s.shrinkLocked()
		s.mu.Unlock()
	}
	c.pages.shrink()
	c.bodies.shrink()
	c.origins.shrink()
}

// Stats returns the current numbers. Every reason stands in Refused.
func (c *Cache) Stats() Stats {
	st := Stats{
		Bytes:      c.budget.used.Load(),
		LimitBytes: c.budget.limit,
		Refused:    make(map[Reason]uint64, len(reasons)),
	}
	for i, r := range reasons {
		st.Refused[r] = c.refused[i].Load()
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Entries += int64(s.n)
		st.Stored += s.stored
		st.Forgotten += s.forgotten
		s.mu.Unlock()
	}
	return st
}
