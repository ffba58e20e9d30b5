package store

import (
	"strings"
	"sync/atomic"
	"unsafe"
)

// entry is one key of the index. It fits a cache line, and carries the key's
// filter hash in place, so that a rebuild reads no keys.
//
// Readers walk entries without a lock: hash, filter and url are never written
// after it was linked, list and next are atomic.
type entry struct {
	hash   uint64
	filter [2]uint64
	url    string
	list   atomic.Pointer[list] // nil once the last response has left
	next   atomic.Pointer[entry]
}

// newEntry copies the URL: a caller's string may be part of a larger buffer.
func newEntry(k *Key) *entry {
	return &entry{hash: k.Hash, filter: k.Filter, url: strings.Clone(k.URL)}
}

var entryStructBytes = allocBytes(int64(unsafe.Sizeof(entry{})))

// entryBytes is what a key costs beside its responses.
func entryBytes(url string) int64 { return entryStructBytes + allocBytes(int64(len(url))) }

// listBytes is what the list of n responses costs: one stands in the response.
func listBytes(n int) int64 {
	if n <= 1 {
		return 0
	}
	return allocPointerBytes(int64(unsafe.Sizeof(list{}))) + allocPointerBytes(int64(n)*int64(unsafe.Sizeof((*Response)(nil))))
}

// table is a chained hash table. Only its owner, under the partition's lock,
// changes it; readers take no lock.
type table struct {
	// stale is set before the entries begin to move to another table. A walk
	// that finds its key is right in any case; one that does not, and sees
	// stale, may have been led astray and must be repeated under the lock.
	stale   atomic.Bool
	n       int
	buckets []atomic.Pointer[entry] // a power of two
}

const minBuckets = 8

var tableStructBytes = allocPointerBytes(int64(unsafe.Sizeof(table{})))

// tableBytes is what a table of n buckets costs.
func tableBytes(n int) int64 {
	return tableStructBytes + allocPointerBytes(int64(n)*int64(unsafe.Sizeof((*entry)(nil))))
}

func newTable(n int) *table { return &table{buckets: make([]atomic.Pointer[entry], n)} }

func (t *table) bucket(hash uint64) *atomic.Pointer[entry] {
	return &t.buckets[hash&uint64(len(t.buckets)-1)]
}

func (t *table) find(k *Key) *entry {
	for e := t.bucket(k.Hash).Load(); e != nil; e = e.next.Load() {
		if e.hash == k.Hash && e.url == k.URL {
			return e
		}
	}
	return nil
}

func (t *table) link(e *entry) {
	b := t.bucket(e.hash)
	e.next.Store(b.Load())
	b.Store(e)
	t.n++
}

// unlink takes e out. e keeps its next, so that a reader standing on it finds on.
func (t *table) unlink(e *entry) {
	at := t.bucket(e.hash)
	for at.Load() != e {
		at = &at.Load().next
	}
	at.Store(e.next.Load())
	t.n--
}

// shard is a part of a partition's index. The padding keeps neighbours, which
// other cores read, off a line that is written.
type shard struct {
	table atomic.Pointer[table]
	moved bool // during a rebuild: the next filter knows this shard's keys; guarded by the partition's mu
	_     [48]byte
}

// growth is what one more key adds to the table: mostly nothing, else what
// doubling it takes.
func (sh *shard) growth() int64 {
	if t := sh.table.Load(); t.n >= len(t.buckets) {
		return tableBytes(2*len(t.buckets)) - tableBytes(len(t.buckets))
	}
	return 0
}

// resize moves all entries to a table of n buckets.
func (sh *shard) resize(n int) {
	old, t := sh.table.Load(), newTable(n)
	old.stale.Store(true)
	for i := range old.buckets {
		for e := old.buckets[i].Load(); e != nil; {
			next := e.next.Load()
			t.link(e)
			e = next
		}
	}
	sh.table.Store(t)
}

// shrink halves a table that is less than an eighth full and returns the
// bytes that this freed.
func (sh *shard) shrink() int64 {
	t := sh.table.Load()
	n := len(t.buckets)
	if n <= minBuckets || t.n >= n/8 {
		return 0
	}
	sh.resize(n / 2)
	return tableBytes(n) - tableBytes(n/2)
}

// entries appends the entries of the buckets from one up to another to dst.
func (t *table) entries(dst []*entry, from, to int) []*entry {
	for i := from; i < min(to, len(t.buckets)); i++ {
		for e := t.buckets[i].Load(); e != nil; e = e.next.Load() {
			dst = append(dst, e)
		}
	}
	return dst
}
