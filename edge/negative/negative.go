// Package negative remembers what does not exist.
package negative

import (
	"net/netip"
	"time"
)

// Config bounds a [Cache].
type Config struct {
	// CapacityBytes is a hard limit on everything that the cache holds: index,
	// keys, heads, bodies and its own tables. Below 64 KiB it remembers nothing.
	CapacityBytes int64
	// MaxCreateRate is the number of new entries a second; 0: no limit.
	MaxCreateRate int
	// MaxBodyBytes is the largest body that is kept; 0: 32 KiB.
	MaxBodyBytes int
}

// Entry is one remembered absence. Head and Body are shared by all entries of
// equal content and must not be written to.
//
// Date and Age do not belong into the head: they differ in every response, so
// that nothing could be shared. The caller makes them from Stored and InitialAge.
type Entry struct {
	Status int
	Head   string // field lines as the caller serialised them, at most 8 KiB
	Body   []byte

	Stored     time.Time     // when the response arrived here
	InitialAge time.Duration // its corrected initial age then (RFC 9111 §4.2.3), kept in whole seconds, rounded up
	Expires    time.Time     // end of its freshness
	Keep       time.Duration // how long after Expires it is kept, stale; 0: not at all; at most 18 h

	// Asked is when the forward that brought this response began. An entry is
	// refused when its key was deleted since: what was created in the meantime
	// wins over the older absence. Zero: not checked. Get leaves it empty.
	Asked time.Time
}

// Reason is why an entry was not stored.
type Reason string

// The reasons.
const (
	ReasonRate       Reason = "rate"       // more new entries a second than MaxCreateRate
	ReasonClient     Reason = "client"     // this client's network creates more than its share
	ReasonCapacity   Reason = "capacity"   // no room, even after forgetting
	ReasonTooLarge   Reason = "too_large"  // key, head or body is too long
	ReasonSuperseded Reason = "superseded" // deleted since Entry.Asked
	ReasonExpired    Reason = "expired"    // its lifetime is over
)

// Cache holds negative entries. Its methods are safe for concurrent use.
type Cache struct{}

// Stats is a moment's view of a [Cache]; the counters are since New.
type Stats struct {
	Entries    int64
	Bytes      int64 // memory held, never above LimitBytes
	LimitBytes int64
	Hits       uint64
	Misses     uint64
	Stored     uint64
	Forgotten  uint64 // entries that made room for newer ones
	Refused    map[Reason]uint64
}

// New returns an empty cache.
func New(cfg Config) *Cache { return &Cache{} }

// Get returns the entry of exactly this key. One past its Expires is returned
// only during its Keep.
//
// It takes no hash: the cache hashes the key with a secret of its own, so that
// crafted keys can't collide.
func (c *Cache) Get(key string, now time.Time) (Entry, bool) { return Entry{}, false }

// Put remembers the entry, in place of an older one of the same key. A new key
// counts against the creation limits; client is who asked, and the zero Addr
// (a peer, the node itself) is not limited by its share.
func (c *Cache) Put(key string, client netip.Addr, e Entry, now time.Time) (stored bool, reason Reason) {
	return false, ReasonCapacity
}

// Delete forgets the key, reports whether it was there, and refuses entries
// of it that were asked for before now.
func (c *Cache) Delete(key string, now time.Time) bool { return false }

// DeleteFunc forgets the entries that match, returns their number, and refuses
// all entries that were asked for before now. No lock is held while match runs.
func (c *Cache) DeleteFunc(match func(key string, e Entry) bool, now time.Time) int { return 0 }

// Sweep forgets what has expired and gives memory back. Call it every few seconds.
func (c *Cache) Sweep(now time.Time) {}

// Stats returns the current numbers.
func (c *Cache) Stats() Stats { return Stats{} }
