package store

import (
	"errors"
	"fmt"
	"math/bits"
)

// Key names a stored response's resource. The caller computes both hashes
// once per request.
type Key struct {
	URL string // the canonical cache key; compared whole, a hash is never trusted alone

	// Hash places the key. It must be well mixed in all its bits: the top ones
	// choose the shard, the low ones the bucket.
	Hash uint64

	// Filter is what the partition's filter is told. Two URLs with one Filter
	// hash are two keys, and are added twice.
	Filter [2]uint64
}

// Filter is the approximate set of a partition's keys that others are told.
//
// The store alone calls Add and Remove: Add once when a key's first response
// is about to be stored, before a Get can find it; Remove once when its last
// response has left, after no Get can find it. Both are called with the
// partition locked, so they must be short and must not call the store.
// MayContain is there for readers; it may run at any time. A Filter is a
// pointer, since the store compares filters.
type Filter interface {
	Add(h [2]uint64)
	Remove(h [2]uint64)
	MayContain(h [2]uint64) bool
}

// Config describes a [Store].
type Config struct {
	// Partitions, 1 to 256 of them. Their order gives the numbers that the
	// store's methods take.
	Partitions []PartitionConfig

	// MaxVariants is how many responses may stand under one key; one more
	// drops the oldest. 0 means 64. Selecting among variants is a linear walk,
	// so a large number lets a hostile Vary slow down the look-ups of its key.
	MaxVariants int
}

// PartitionConfig describes one partition: a budget, a filter and an eviction
// policy of its own.
type PartitionConfig struct {
	Name string

	// MaxBytes is the hard limit for everything the partition holds: heads,
	// bodies, the caller's data, keys, index, queues and ghosts, each as the
	// allocator rounds it. At least [MinPartitionBytes].
	MaxBytes int64

	// Filter is told about every key; nil tells nobody.
	Filter Filter

	// Shards is the number of index tables, a power of two up to 4096. More
	// shards make a table's growth and each step of Rebuild and Purge shorter.
	// 0 means one per MiB of MaxBytes, 1024 at most.
	Shards int
}

// MinPartitionBytes is the least budget a partition can have.
const MinPartitionBytes = 64 << 10

const (
	defaultMaxVariants = 64
	maxPartitions      = 256
	maxShards          = 4096
	defaultShardBytes  = 1 << 20
	defaultMaxShards   = 1024
)

// Store holds responses in memory. It is safe for concurrent use. It starts
// no goroutines and needs no closing.
//
// Methods that take a partition's number panic when there is no such partition.
type Store struct {
	parts []*partition
}

// New makes an empty store. It returns all complaints about cfg at once.
func New(cfg Config) (*Store, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	if cfg.MaxVariants == 0 {
		cfg.MaxVariants = defaultMaxVariants
	}
	if cfg.MaxVariants < 1 {
		bad("MaxVariants is %d: want at least 1", cfg.MaxVariants)
	}
	if n := len(cfg.Partitions); n < 1 || n > maxPartitions {
		bad("%d partitions: want 1 to %d", n, maxPartitions)
	}
	s := &Store{}
	for i, pc := range cfg.Partitions {
		ok := true
		if pc.MaxBytes < MinPartitionBytes {
			bad("partition %d (%q): MaxBytes is %d: want at least %d", i, pc.Name, pc.MaxBytes, int64(MinPartitionBytes))
			ok = false
		}
		if pc.Shards == 0 {
			pc.Shards = defaultShards(pc.MaxBytes)
		}
		if pc.Shards < 1 || pc.Shards > maxShards || bits.OnesCount(uint(pc.Shards)) != 1 {
			bad("partition %d (%q): Shards is %d: want a power of two up to %d", i, pc.Name, pc.Shards, maxShards)
			ok = false
		}
		if !ok {
			continue
		}
		p := newPartition(pc, cfg.MaxVariants)
		if p.base > p.limit/4 {
			bad("partition %d (%q): %d shards take %d of %d bytes: want fewer", i, pc.Name, pc.Shards, p.base, p.limit)
		}
		s.parts = append(s.parts, p)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// defaultShards is the power of two at or below one shard per MiB.
func defaultShards(maxBytes int64) int {
	n := min(max(maxBytes/defaultShardBytes, 1), defaultMaxShards)
	return 1 << (bits.Len64(uint64(n)) - 1)
}

// Partitions returns the number of partitions.
func (s *Store) Partitions() int { return len(s.parts) }

// Get returns the responses stored under k, the one put last first; nil when
// there is none. The slice and the responses are shared: read only. They stay
// whole for as long as the caller holds them, also after an eviction.
//
// It takes no lock and does not allocate. It is not a use of what it returns:
// see [Store.Hit].
func (s *Store) Get(part int, k *Key) []*Response {
	return s.parts[part].get(k)
}

// Hit tells the eviction policy that r was used. It takes no lock; a response
// already known as popular is not written to. It does no harm when r has
// left the store.
func (s *Store) Hit(r *Response) {
	if f := r.freq.Load(); f < maxFreq {
		// Two at once may count as one; a retry would buy nothing.
		r.freq.CompareAndSwap(f, f+1)
	}
}

// Reason says why a response was not stored.
type Reason string

// The reasons.
const (
	Stored   Reason = ""          // it was
	TooLarge Reason = "too_large" // with its key and index it is larger than the whole partition
	Reused   Reason = "reused"    // this *Response is, or was, in a store already
)

// Put stores r under k, in the place of a response with the same Variant, and
// evicts others until it fits. The caller must not write to r or to anything
// it refers to afterwards. A Response can be put once only.
//
// k.URL is copied when the key is new.
func (s *Store) Put(part int, k *Key, r *Response) (stored bool, why Reason) {
	why = s.parts[part].put(k, r)
	return why == Stored, why
}

// Replace puts r in old's place if old is still stored under k, and reports
// whether it did. It is how a stored response is freshened (RFC 9111 section
// 4.3.4) or marked: r shares old's Body, whose bytes count once. r inherits
// what the eviction policy knows of old, and becomes the newest.
//
// If r's Variant differs from old's, another response of that variant goes.
// If r can't fit, old stays.
func (s *Store) Replace(part int, k *Key, old, r *Response) bool {
	return s.parts[part].replace(k, old, r)
}

// Remove drops all responses under k and returns how many there were.
func (s *Store) Remove(part int, k *Key) int {
	return s.parts[part].remove(k)
}

// RemoveResponse drops r if it is still stored under k, and reports whether it did.
func (s *Store) RemoveResponse(part int, k *Key, r *Response) bool {
	return s.parts[part].removeResponse(k, r)
}

// Filter returns the partition's present filter, nil if it has none. Rebuild
// exchanges it, so ask again for each use. It takes no lock.
func (s *Store) Filter(part int) Filter {
	if f := s.parts[part].filter.Load(); f != nil {
		return *f
	}
	return nil
}

// Stats is a moment's state of one partition, and its counters since the start.
type Stats struct {
	Name       string
	Bytes      int64 // all that counts against the limit
	LimitBytes int64
	IndexBytes int64 // the part of Bytes that is not responses: keys, tables, ghosts
	SmallBytes int64 // responses on trial, in the small queue
	MainBytes  int64 // responses that were used again, in the main queue
	Objects    int   // responses
	Keys       int
	URLBytes   int64      // length of the keys' URLs together, without tables
	Added      KeyChanges // keys that came, each of which the filter was told of
	Dropped    KeyChanges // keys whose last response left

	Tags     int   // different ones in the index of tags
	TagRefs  int   // tags of responses in it, each time that one has one
	TagBytes int64 // what it takes; the part of IndexBytes that is for tags
	Untagged int   // responses whose tags found no room in it: a walk finds them

	Puts      uint64 // responses stored by Put
	GhostHits uint64 // of these, those that came back soon after their eviction
	Replaced  uint64 // responses that another took the place of
	Removed   uint64 // by Remove and RemoveResponse
	Purged    uint64 // dropped by Purge
	Marked    uint64 // replaced by Purge
	Evicted   Evictions
	Refused   Refusals
}

// KeyChanges counts keys that came or went, and the length of their URLs.
type KeyChanges struct{ Keys, Bytes uint64 }

func (c *KeyChanges) add(keys, bytes int) {
	c.Keys += uint64(keys)
	c.Bytes += uint64(bytes)
}

// Evictions counts the responses that left to make room, by where they stood.
type Evictions struct {
	Small    uint64 // never used enough to leave the small queue
	Main     uint64 // in the main queue, and not used since their last turn
	Variants uint64 // the oldest of a key with too many variants
}

// Refusals counts what was not stored, by [Reason].
type Refusals struct {
	TooLarge uint64
	Reused   uint64
}

// Stats returns the partition's state; all its numbers belong together.
func (s *Store) Stats(part int) Stats {
	return s.parts[part].stats()
}

// Bytes returns what counts against the partition's limit, without a lock. At
// no instant is it above the limit.
func (s *Store) Bytes(part int) int64 {
	return s.parts[part].used.Load()
}
