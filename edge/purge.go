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

// store calls put when a fill that began at generation since may be stored,
// and reports whether it did. soft says that a soft purge came meanwhile: what
// is put must be validated before its next use. No purge begins while put
// runs.
func (l *purgeLog) store(since uint64, key string, tags []string, absence bool, put func(soft bool)) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	ok, soft := l.allowsLocked(since, key, tags, absence)
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
