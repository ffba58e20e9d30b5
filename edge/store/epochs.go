package store

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Purge is what one purge covers: whatever one of its parts matches.
type Purge struct {
	URLs     []string
	Tags     []string
	Prefixes []string // of URLs
	Hosts    []string // the authority of URLs, as it stands in them
	All      bool
	Soft     bool // what is covered goes stale, rather than away

	// Absences says that nothing stored is concerned: the URLs exist now.
	Absences bool
}

// Verdict is what the purges since some moment mean for a response.
type Verdict uint8

// The verdicts.
const (
	Valid Verdict = iota // none of them covers it
	Stale                // a soft one does: it must be validated before its next use
	Gone                 // a hard one does, or it can't be told any more
)

// AnyTag is carried by a response in place of tags that it has and that are not
// kept: a purge of any tag covers it. No field of HTTP can contain it.
const AnyTag = "\x00"

// Epochs orders responses against purges. Purges are numbered; what is purged
// is marked with the number, by URL, tag, prefix and host, and a response is
// covered by a purge when a mark that fits it is newer than the moment from
// which the response is. So a purge takes as long as its own list, however much
// is stored; and a look-up costs one comparison as long as there was no purge
// since the response was looked at last, else a look at the marks that may fit:
// one for each of its tags, one for each length that a marked prefix has.
//
// What a purge covers stays where it is until it is looked up, or something in
// the background comes to it: by the index of tags (Store.PurgeTag), or in a
// walk (Store.Purge), each with Judge. Marks older than a walk that has ended
// are kept for fills that began before, up to maxMarks, maxMarkBytes and markFor;
// a fill that began before the oldest mark that was forgotten counts as covered,
// and so does a response that was looked at last before that.
//
// The other design, to take out at once what the index of tags names, makes a
// purge as slow as the tag is popular, and finds no fill that is under way. So
// marks decide, and the index only follows them.
//
// A look-up takes no lock unless a mark that fits may be newer: before a purge
// is entered in the maps its number is left in a slot for each of its marks, by
// hash, and a response whose slots are all older is valid. Without that, a
// look-up waited for a purge, and that for the puts under way.
//
// Safe for concurrent use. A zero Epochs is ready.
type Epochs struct {
	newest atomic.Uint64 // number of the newest purge; written under mu
	recent atomic.Pointer[recent]

	mu        sync.RWMutex
	all       mark
	urls      map[string]mark
	tags      map[string]mark
	hosts     map[string]mark
	prefixes  map[string]mark
	lengths   []prefixLen // of the prefixes, the shortest first
	created   map[string]uint64
	anyTag    mark // the newest purges by tag, whichever
	queue     []queued
	markBytes int    // of the names in queue
	horizon   uint64 // purges up to it may be forgotten
	walked    uint64 // purges up to it have been carried out on all that was stored
}

// mark is the number of the newest purge of each sort.
type mark struct{ hard, soft uint64 }

// recent is what look-ups see without a lock: the number of the newest purge of
// each sort, and of those whose mark has a hash. Numbers in it only grow. It is
// written under mu, before newest: who reads newest first misses no purge up
// to that number.
type recent struct {
	seed                          maphash.Seed
	horizon, all, prefixes        atomic.Uint64
	urls, tags, hosts             atomic.Uint64
	urlSlots, tagSlots, hostSlots [recentSlots]atomic.Uint64

	// The newest of the tags that have a bit. A response carries its own as one
	// word: at its first look after a purge its tags, cold by then, are mostly
	// not read. They had made p99 of look-ups in the store 43 % longer.
	tagBits [32]atomic.Uint64
}

// tagBit is one of 32 bits that stands for a tag.
func tagBit(tag string) uint { return uint(xxhash.Sum64String(tag) >> 59) }

// recentSlots of 8 bytes, for each of three sorts: 384 KiB in all. After
// a thousand other marks since, a mark takes 6 % of look-ups to the lock.
const recentSlots = 1 << 14

type prefixLen struct{ n, count int }

// queued is a mark as it is to be forgotten.
type queued struct {
	in  *map[string]mark // nil: created
	key string
	gen uint64
	at  time.Time
}

// Bounds of what is remembered.
const (
	maxMarks     = 1 << 18
	maxMarkBytes = 64 << 20 // of their names
	markFor      = 10 * time.Minute
)

// Generation returns the number of the newest purge: a fill takes it when it
// begins.
func (e *Epochs) Generation() uint64 { return e.newest.Load() }

// Add enters a purge, and returns its number. Then every later look-up sees it,
// and no fill that began before it commits after it.
func (e *Epochs) Add(p *Purge, now time.Time) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	gen := e.newest.Load() + 1
	if e.urls == nil {
		e.urls, e.tags, e.hosts, e.prefixes = map[string]mark{}, map[string]mark{}, map[string]mark{}, map[string]mark{}
		e.created = map[string]uint64{}
		e.recent.Store(&recent{seed: maphash.MakeSeed()})
	}
	e.recent.Load().add(p, gen)
	if p.Absences {
		for _, u := range p.URLs {
			e.created[u] = gen
			e.queueLocked(queued{nil, u, gen, now})
		}
	} else {
		e.markLocked(&e.urls, p.URLs, p.Soft, gen, now)
		e.markLocked(&e.tags, p.Tags, p.Soft, gen, now)
		e.markLocked(&e.hosts, p.Hosts, p.Soft, gen, now)
		for _, pre := range p.Prefixes {
			if _, ok := e.prefixes[pre]; !ok {
				e.prefixes[pre] = mark{} // the list may have it twice
				e.lengthLocked(len(pre), 1)
			}
		}
		e.markLocked(&e.prefixes, p.Prefixes, p.Soft, gen, now)
		if p.All {
			e.all.set(p.Soft, gen)
		}
		if len(p.Tags) > 0 {
			e.anyTag.set(p.Soft, gen)
		}
	}
	// Whoever sees the number finds the marks: under mu, and those in recent.
	e.newest.Store(gen)
	e.forgetLocked(now)
	return gen
}

// add leaves the number of a purge about to be entered. What was created leaves
// it where its URL does, though only absences are concerned: the slots of URLs
// serve for both.
func (r *recent) add(p *Purge, gen uint64) {
	note := func(newest *atomic.Uint64, slots *[recentSlots]atomic.Uint64, keys []string) {
		for _, k := range keys {
			r.slot(slots, k).Store(gen)
			newest.Store(gen)
		}
	}
	note(&r.urls, &r.urlSlots, p.URLs)
	for _, t := range p.Tags {
		r.tagBits[tagBit(t)].Store(gen)
	}
	note(&r.tags, &r.tagSlots, p.Tags)
	note(&r.hosts, &r.hostSlots, p.Hosts)
	if len(p.Prefixes) > 0 {
		r.prefixes.Store(gen)
	}
	if p.All {
		r.all.Store(gen)
	}
}

func (r *recent) slot(slots *[recentSlots]atomic.Uint64, key string) *atomic.Uint64 {
	return &slots[maphash.String(r.seed, key)%recentSlots]
}

// none reports whether for certain no purge after the one numbered since covers
// a response or absence; of one by prefix it is not certain.
// marks are the tags' bits, 0 when they are not known.
func (r *recent) none(since uint64, url string, tags []string, marks uint32) bool {
	if since < r.horizon.Load() || r.all.Load() > since || r.prefixes.Load() > since {
		return false
	}
	if r.tags.Load() > since && (marks == 0 || r.marked(since, marks)) {
		for _, t := range tags {
			if t == AnyTag || r.slot(&r.tagSlots, t).Load() > since {
				return false
			}
		}
	}
	return (r.urls.Load() <= since || r.slot(&r.urlSlots, url).Load() <= since) &&
		(r.hosts.Load() <= since || r.slot(&r.hostSlots, HostOf(url)).Load() <= since)
}

// marked reports whether a tag with one of these bits was purged after since.
func (r *recent) marked(since uint64, marks uint32) bool {
	for ; marks != 0; marks &= marks - 1 {
		if r.tagBits[bits.TrailingZeros32(marks)].Load() > since {
			return true
		}
	}
	return false
}

func (m *mark) set(soft bool, gen uint64) {
	if soft {
		m.soft = gen
	} else {
		m.hard = gen
	}
}

func (e *Epochs) markLocked(in *map[string]mark, keys []string, soft bool, gen uint64, now time.Time) {
	for _, k := range keys {
		m := (*in)[k]
		m.set(soft, gen)
		(*in)[k] = m
		e.queueLocked(queued{in, k, gen, now})
	}
}

func (e *Epochs) queueLocked(q queued) {
	e.queue = append(e.queue, q)
	e.markBytes += len(q.key)
}

func (e *Epochs) lengthLocked(n, d int) {
	i, ok := slices.BinarySearchFunc(e.lengths, n, func(l prefixLen, n int) int { return l.n - n })
	if !ok {
		e.lengths = slices.Insert(e.lengths, i, prefixLen{n: n})
	}
	if e.lengths[i].count += d; e.lengths[i].count == 0 {
		e.lengths = slices.Delete(e.lengths, i, i+1)
	}
}

// forgetLocked drops the marks that nobody needs, and those that are too many.
func (e *Epochs) forgetLocked(now time.Time) {
	n := 0
	for ; n < len(e.queue); n++ {
		q := &e.queue[n]
		if len(e.queue)-n <= maxMarks && e.markBytes <= maxMarkBytes && (q.gen > e.walked || now.Sub(q.at) < markFor) {
			break
		}
		e.horizon = max(e.horizon, q.gen)
		if q.in == nil {
			if e.created[q.key] == q.gen {
				delete(e.created, q.key)
			}
		} else if m, ok := (*q.in)[q.key]; ok && max(m.hard, m.soft) == q.gen {
			delete(*q.in, q.key)
			if q.in == &e.prefixes {
				e.lengthLocked(len(q.key), -1)
			}
		}
		e.markBytes -= len(q.key)
		*q = queued{}
	}
	if n > 0 {
		e.recent.Load().horizon.Store(e.horizon)
	}
	e.queue = e.queue[n:]
}

// Walked says that all that was stored when the purge numbered gen was the
// newest has been judged since.
func (e *Epochs) Walked(gen uint64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.walked = max(e.walked, gen)
	e.forgetLocked(now)
}

// Marks returns how many marks are remembered.
func (e *Epochs) Marks() int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return len(e.queue)
}

// Check returns what the purges after the one numbered since mean for a
// response.
func (e *Epochs) Check(since uint64, url string, tags []string) Verdict {
	if e.untouched(since, url, tags) {
		return Valid
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.checkLocked(since, url, tags)
}

// untouched reports whether for certain no purge after the one numbered since
// covers a response or absence; it takes no lock.
func (e *Epochs) untouched(since uint64, url string, tags []string) bool {
	if e.newest.Load() == since {
		return true
	}
	r := e.recent.Load()
	return r != nil && r.none(since, url, tags, 0)
}

func (e *Epochs) checkLocked(since uint64, url string, tags []string) Verdict {
	if e.newest.Load() == since {
		return Valid
	}
	if since < e.horizon {
		return Gone
	}
	m := e.all
	see := func(n mark) { m.hard, m.soft = max(m.hard, n.hard), max(m.soft, n.soft) }
	if len(e.urls) > 0 {
		see(e.urls[url])
	}
	if len(e.hosts) > 0 {
		see(e.hosts[HostOf(url)])
	}
	for _, l := range e.lengths {
		if l.n > len(url) {
			break
		}
		see(e.prefixes[url[:l.n]])
	}
	if len(e.tags) > 0 {
		for _, t := range tags {
			if t == AnyTag {
				see(e.anyTag)
			}
			see(e.tags[t])
		}
	}
	switch {
	case m.hard > since:
		return Gone
	case m.soft > since:
		return Stale
	}
	return Valid
}

// CheckAbsence is Check for a remembered absence: a soft purge ends it too, and
// so does news that its URL exists.
func (e *Epochs) CheckAbsence(since uint64, url string, tags []string) Verdict {
	if e.untouched(since, url, tags) {
		return Valid
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.absenceLocked(since, url, tags)
}

func (e *Epochs) absenceLocked(since uint64, url string, tags []string) Verdict {
	if e.checkLocked(since, url, tags) != Valid || e.created[url] > since {
		return Gone
	}
	return Valid
}

// CheckFlight reports whether a fetch that began when since was the newest
// purge may still answer a request that comes now. What tags its response will
// have is not known: any purge by tag may be about it.
func (e *Epochs) CheckFlight(since uint64, url string) bool {
	if e.newest.Load() == since {
		return true
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return max(e.anyTag.hard, e.anyTag.soft) <= since && e.absenceLocked(since, url, nil) == Valid
}

// Commit calls put when a response that was asked for when since was the
// newest purge may be stored, and reports whether it did. No purge begins while
// put runs; what it puts is to be stamped with gen. stale says that a soft purge
// came meanwhile.
//
// Looking and storing are one step, so that there is no moment in which a purge
// has entered its marks, and a fill that looked before that stores after it.
func (e *Epochs) Commit(since uint64, url string, tags []string, absence bool, put func(gen uint64, stale bool)) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	check := e.checkLocked
	if absence {
		check = e.absenceLocked
	}
	v := check(since, url, tags)
	if v == Gone {
		return false
	}
	put(e.newest.Load(), v == Stale)
	return true
}

// Judge is the verdict on a stored response, of all purges since it was looked
// at last up to the one numbered gen; a valid one is remembered to have been
// looked at.
func (e *Epochs) Judge(url string, r *Response) (v Verdict, gen uint64) {
	since := r.seen.Load()
	if gen = e.newest.Load(); since == gen {
		return Valid, gen
	}
	return e.judge(since, url, r)
}

// judge is apart so that Judge is inlined.
func (e *Epochs) judge(since uint64, url string, r *Response) (v Verdict, gen uint64) {
	gen = e.newest.Load() // before recent is looked at
	if n := e.recent.Load(); n != nil && n.none(since, url, r.Tags, r.marks) {
		r.seen.Store(gen)
		return Valid, gen
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	gen = e.newest.Load()
	if v = e.checkLocked(since, url, r.Tags); v == Valid {
		r.seen.Store(gen)
	}
	return v, gen
}

// SeenAt says that r, not yet stored, is known to be covered by no purge up to
// that number.
func (r *Response) SeenAt(gen uint64) { r.seen.Store(gen) }

// HostOf returns the authority of a URL that has a scheme and one.
func HostOf(url string) string {
	for i := 0; i+2 < len(url); i++ {
		if url[i] == ':' && url[i+1] == '/' && url[i+2] == '/' {
			rest := url[i+3:]
			for j := range len(rest) {
				if rest[j] == '/' {
					return rest[:j]
				}
			}
			return rest
		}
	}
	return ""
}
