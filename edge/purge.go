package edge

import (
	"strings"
	"sync"
	"time"
)

// purge is what one call removes: everything that one of its parts matches.
type purge struct {
	urls     map[string]bool // cache keys
	tags     map[string]bool
	prefixes []string // of cache keys
	hosts    map[string]bool
	all      bool
	soft     bool
	absences bool // only negative entries: these keys exist now

	id      string // the same in both rounds
	settled bool   // every member that can be reached has purged; guarded by purgeLog.mu
}

// matches reports whether the purge covers a response with this key and tags.
func (p *purge) matches(key string, tags []string) bool {
	if p.matchesKey(key) {
		return true
	}
	for _, t := range tags {
		if p.tags[t] {
			return true
		}
	}
	return false
}

func (p *purge) matchesKey(key string) bool {
	if p.all || p.urls[key] {
		return true
	}
	if len(p.hosts) > 0 && p.hosts[hostOfKey(key)] {
		return true
	}
	for _, pre := range p.prefixes {
		if strings.HasPrefix(key, pre) {
			return true
		}
	}
	return false
}

// size is about what the purge takes in memory.
func (p *purge) size() int {
	n := 128
	for _, set := range []map[string]bool{p.urls, p.tags, p.hosts} {
		for s := range set {
			n += len(s) + 48
		}
	}
	for _, s := range p.prefixes {
		n += len(s) + 16
	}
	return n
}

// hostOfKey returns the authority part of a cache key.
func hostOfKey(key string) string {
	_, rest, _ := strings.Cut(key, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

const (
	// purgeLogFor and purgeLogMax bound what is remembered of past purges. A
	// fill that began before the log does is not stored.
	purgeLogFor   = 10 * time.Minute
	purgeLogMax   = 4096
	purgeLogBytes = 8 << 20
)

// purgeLog orders fills against purges on this node: a fill takes the
// generation when it begins, and is stored only if no purge since then
// matches it. Safe for concurrent use.
//
// Looking at the log and storing are one step (store), so that there is no
// moment in which a purge has listed itself, finds nothing to remove, and a
// fill that looked before that stores after it.
type purgeLog struct {
	mu      sync.RWMutex
	gen     uint64 // of the newest purge
	entries []purgeEntry
	bytes   int // of all entries
}

type purgeEntry struct {
	gen uint64
	at  time.Time
	p   *purge
}

func (l *purgeLog) generation() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.gen
}

func (l *purgeLog) add(p *purge, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gen++
	if p.settled {
		for i := len(l.entries) - 1; i >= 0 && now.Sub(l.entries[i].at) < purgeSettle; i-- {
			if l.entries[i].p.id == p.id {
				l.entries[i].p.settled = true
			}
		}
	}
	l.entries = append(l.entries, purgeEntry{l.gen, now, p})
	l.bytes += p.size()
	for len(l.entries) > purgeLogMax || l.bytes > purgeLogBytes || now.Sub(l.entries[0].at) > purgeLogFor {
		l.bytes -= l.entries[0].p.size()
		l.entries[0] = purgeEntry{}
		if l.entries = l.entries[1:]; len(l.entries) == 0 {
			break
		}
	}
}

// fill is what the log must know of a response that may be stored.
type fill struct {
	since      uint64 // generation when it began
	key        string
	tags       []string
	absence    bool
	fromMember bool // a peer's or the shield's copy
}

// purgeSettle is for how long after a purge's first round a member's copy of
// what it covers is not stored, at most: that member may not have purged yet.
// The second round ends it, since then everybody has.
const purgeSettle = 2 * time.Second

// store calls put when a fill may be stored, and reports whether it did. soft
// says that a soft purge came meanwhile: what is put must be validated before
// its next use. No purge begins while put runs.
func (l *purgeLog) store(f fill, now time.Time, put func(soft bool)) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	ok, soft := l.allowsLocked(f.since, f.key, f.tags, f.absence)
	if ok && f.fromMember {
		for i := len(l.entries) - 1; i >= 0 && now.Sub(l.entries[i].at) < purgeSettle; i-- {
			if p := l.entries[i].p; !p.settled && !p.absences && p.matches(f.key, f.tags) {
				ok = false
			}
		}
	}
	if ok {
		put(soft)
	}
	return ok
}

func (l *purgeLog) allowsLocked(since uint64, key string, tags []string, absence bool) (ok, soft bool) {
	if l.gen == since {
		return true, false
	}
	if len(l.entries) == 0 || l.entries[0].gen > since+1 {
		return false, false
	}
	for i := len(l.entries) - 1; i >= 0 && l.entries[i].gen > since; i-- {
		p := l.entries[i].p
		if p.absences && !absence || !p.matches(key, tags) {
			continue
		}
		if !p.soft || absence {
			return false, false
		}
		soft = true
	}
	return true, soft
}
