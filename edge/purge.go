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
	purgeLogFor = 10 * time.Minute
	purgeLogMax = 4096
)

// purgeLog orders fills against purges on this node: a fill takes the
// generation when it begins, and is stored only if no purge since then
// matches it. Safe for concurrent use.
type purgeLog struct {
	mu      sync.Mutex
	gen     uint64 // of the newest purge
	entries []purgeEntry
}

type purgeEntry struct {
	gen uint64
	at  time.Time
	p   *purge
}

func (l *purgeLog) generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gen
}

func (l *purgeLog) add(p *purge, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gen++
	l.entries = append(l.entries, purgeEntry{l.gen, now, p})
	drop := max(0, len(l.entries)-purgeLogMax)
	for drop < len(l.entries) && now.Sub(l.entries[drop].at) > purgeLogFor {
		drop++
	}
	l.entries = l.entries[drop:]
}

// allows reports whether a fill that began at generation since may be stored,
// and if so with what state: soft says that a soft purge has made it stale.
func (l *purgeLog) allows(since uint64, key string, tags []string, absence bool) (ok, soft bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
