package negative

import (
	"bytes"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// blobBytes is charged for each blob beside its content: the blob itself
	// and the allocator's rounding of both.
	blobBytes = 96
	// blobSlotBytes is charged for each id ever given out: its place in the
	// table (which doubles, hence twice 8 bytes) and in the map (16 bytes at
	// the lowest load of a map that has just grown).
	blobSlotBytes = 64
)

// maxOrigins bounds the origins that are held, so that their ids fit into a
// record, and that who asks for as many hosts as he likes makes none dearer
// than its key.
const maxOrigins = 1 << 12

// blobs holds pages, bodies or origins once each, by content, with a count of
// those that refer to it. An id stands for one; 0 is the empty one, and takes
// nothing.
//
// at takes no lock: the caller holds the lock of a shard with a live record
// that refers to the id, be it by its page, so the slot can't change under it.
// (acquire wrote the slot before the record was inserted under that same lock;
// release runs after the record has died under it.)
type blobs[T any] struct {
	budget *budget
	hash   func(T) uint64
	equal  func(a, b T) bool
	clone  func(T) T
	size   func(T) int
	most   int // that are held; 0: no bound but the budget

	slots atomic.Pointer[[]*blob[T]]

	mu   sync.Mutex
	ids  map[uint64]uint32
	free []uint32
	next uint32 // lowest id never given out
	live int
}

type blob[T any] struct {
	data T
	hash uint64
	refs int
}

func newPages(b *budget, seed maphash.Seed) *blobs[page] {
	bs := &blobs[page]{
		budget: b,
		hash:   func(p page) uint64 { return p.hash(seed) },
		equal:  func(a, b page) bool { return a == b },
		clone:  func(p page) page { p.head = strings.Clone(p.head); return p },
		size:   func(p page) int { return int(unsafe.Sizeof(p)) + len(p.head) },
	}
	bs.reset()
	return bs
}

func newOrigins(b *budget, seed maphash.Seed) *blobs[string] {
	bs := &blobs[string]{
		budget: b,
		hash:   func(s string) uint64 { return maphash.String(seed, s) },
		equal:  func(a, b string) bool { return a == b },
		clone:  strings.Clone,
		size:   func(s string) int { return len(s) },
		most:   maxOrigins,
	}
	bs.reset()
	return bs
}

func newBodies(b *budget, seed maphash.Seed) *blobs[[]byte] {
	bs := &blobs[[]byte]{
		budget: b,
		hash:   func(s []byte) uint64 { return maphash.Bytes(seed, s) },
		equal:  bytes.Equal,
		clone:  func(s []byte) []byte { c := bytes.Clone(s); return c[:len(c):len(c)] },
		size:   func(s []byte) int { return len(s) },
	}
	bs.reset()
	return bs
}

func (bs *blobs[T]) reset() {
	bs.ids = make(map[uint64]uint32)
	bs.free = nil
	bs.next = 1
	slots := make([]*blob[T], 8)
	slots[0] = new(blob[T])
	bs.slots.Store(&slots)
}

func (bs *blobs[T]) cost(data T) int64 {
	n := int64(bs.size(data))
	return n + n/8 + blobBytes
}

// acquire returns the id of the content, with one more reference; known says
// that it was held before. When there is no memory for it, ok is false and need
// says how many bytes are missing.
func (bs *blobs[T]) acquire(data T) (id uint32, known bool, need int64, ok bool) {
	if bs.size(data) == 0 {
		return 0, true, 0, true
	}
	h := bs.hash(data)
	bs.mu.Lock()
	defer bs.mu.Unlock()
	slots := *bs.slots.Load()
	id, taken := bs.ids[h]
	if taken && bs.equal(slots[id].data, data) {
		slots[id].refs++
		return id, true, 0, true
	}
	if bs.most > 0 && bs.live >= bs.most {
		return 0, false, 0, false
	}
	need = bs.cost(data)
	fresh := len(bs.free) == 0
	if fresh {
		need += blobSlotBytes
	}
	if !bs.budget.take(need) {
		return 0, false, need, false
	}
	if fresh {
		id = bs.next
		bs.next++
		if int(id) == len(slots) {
			grown := make([]*blob[T], 2*len(slots))
			copy(grown, slots)
			bs.slots.Store(&grown)
			slots = grown
		}
	} else {
		id = bs.free[len(bs.free)-1]
		bs.free = bs.free[:len(bs.free)-1]
	}
	slots[id] = &blob[T]{data: bs.clone(data), hash: h, refs: 1}
	if !taken { // of two contents with one hash, the second is not shared
		bs.ids[h] = id
	}
	bs.live++
	return id, false, 0, true
}

// release drops one reference, and the content with the last one: then it
// returns that.
func (bs *blobs[T]) release(id uint32) (data T, gone bool) {
	if id == 0 {
		return data, false
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	slots := *bs.slots.Load()
	b := slots[id]
	if b.refs--; b.refs > 0 {
		return data, false
	}
	if bs.ids[b.hash] == id {
		delete(bs.ids, b.hash)
	}
	slots[id] = nil
	bs.free = append(bs.free, id)
	bs.live--
	bs.budget.release(bs.cost(b.data))
	return b.data, true
}

// at returns the content of an id that a live record refers to.
func (bs *blobs[T]) at(id uint32) T { return (*bs.slots.Load())[id].data }

// shrink gives the tables back when nothing is held.
func (bs *blobs[T]) shrink() {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.live == 0 && bs.next > 1 {
		bs.budget.release(int64(bs.next-1) * blobSlotBytes)
		bs.reset()
	}
}
