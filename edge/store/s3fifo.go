package store

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// s3fifo decides what leaves: S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak, "FIFO
// queues are all you need for cache eviction", SOSP 2023), measured in bytes.
//
// A new response enters the small queue, a tenth of the bytes. If it was used
// by the time it reaches the end it moves to the main queue, else it leaves and
// its hash is kept as a ghost; coming back as one, it enters the main queue at
// once. At the main queue's end a response that was used goes round again,
// at the price of one use. A use only raises a saturating counter, so hits
// need no lock and move nothing.
//
// All methods are called under the partition's mu.
type s3fifo struct {
	small, main fifo
	ghost       ghost
	ghostHits   uint64
}

const (
	maxFreq = 3 // as in the paper: two bits

	// promoteFreq is how many uses lead from the small queue to the main one.
	promoteFreq = 1

	// smallShare: the small queue may hold 1/smallShare of the bytes.
	smallShare = 10

	// maxScan bounds the used responses that one eviction passes over, and
	// with it the time under the lock: without it a main queue of a million
	// responses, all popular, would be walked three times for one Put. Then
	// the least used of those seen leaves.
	maxScan = 128
)

func newS3FIFO(limit int64) s3fifo { return s3fifo{ghost: newGhost(limit)} }

// add enters r, as a newcomer or, when its ghost is still about, as a regular.
func (q *s3fifo) add(r *Response) {
	window := (q.small.bytes + q.main.bytes) / smallShare * (smallShare - 1)
	if q.ghost.take(ghostHash(r), window) {
		q.ghostHits++
		q.main.push(r, mainQueue)
		return
	}
	q.small.push(r, smallQueue)
}

// swap puts r in old's place, with old's uses.
func (q *s3fifo) swap(old, r *Response) {
	r.freq.Store(old.freq.Load())
	q.of(old).swap(old, r)
}

func (q *s3fifo) remove(r *Response) { q.of(r).remove(r) }

func (q *s3fifo) of(r *Response) *fifo {
	if r.where == smallQueue {
		return &q.small
	}
	return &q.main
}

// remember keeps r's hash as a ghost.
func (q *s3fifo) remember(r *Response) { q.ghost.add(ghostHash(r), r.cost) }

// victim returns the response to evict, still in its queue; never pinned, and
// nil when there is no other. On its way it moves those that were used.
func (q *s3fifo) victim(pinned *Response) *Response {
	var least *Response
	var leastFreq uint32
	for range maxScan {
		from := &q.main
		if q.small.hasOther(pinned) && (q.small.bytes > (q.small.bytes+q.main.bytes)/smallShare || !q.main.hasOther(pinned)) {
			from = &q.small
		} else if !q.main.hasOther(pinned) {
			return nil
		}
		r := from.tail
		if r == pinned {
			from.toHead(r)
			continue
		}
		f := r.freq.Load()
		switch {
		case from == &q.main && f > 0:
			lower(&r.freq)
			q.main.toHead(r)
		case from == &q.small && f >= promoteFreq:
			r.freq.Store(0)
			q.small.remove(r)
			q.main.push(r, mainQueue)
		default:
			return r
		}
		if least == nil || f < leastFreq {
			least, leastFreq = r, f
		}
	}
	return least
}

// lower takes one use off. A use that comes at the same moment may be lost.
func lower(freq *atomic.Uint32) {
	if f := freq.Load(); f > 0 {
		freq.CompareAndSwap(f, f-1)
	}
}

// ghostHash tells a key's variants apart.
func ghostHash(r *Response) uint64 {
	h := r.entry.hash
	if r.Variant != "" {
		h ^= xxhash.Sum64String(r.Variant)
	}
	return h
}

type queueID uint8

const (
	noQueue queueID = iota
	smallQueue
	mainQueue
)

// fifo is a queue linked through its responses. It enters at the head and
// leaves at the tail.
type fifo struct {
	head, tail *Response
	n          int
	bytes      int64
}

// hasOther reports whether it holds anything but r.
func (f *fifo) hasOther(r *Response) bool { return f.n > 1 || f.n == 1 && f.head != r }

func (f *fifo) push(r *Response, id queueID) {
	r.where = id
	r.prev, r.next = nil, f.head
	if f.head != nil {
		f.head.prev = r
	} else {
		f.tail = r
	}
	f.head = r
	f.n++
	f.bytes += r.cost
}

func (f *fifo) remove(r *Response) {
	*f.behind(r.prev) = r.next
	*f.before(r.next) = r.prev
	r.prev, r.next, r.where = nil, nil, noQueue
	f.n--
	f.bytes -= r.cost
}

func (f *fifo) toHead(r *Response) {
	id := r.where
	f.remove(r)
	f.push(r, id)
}

// swap puts r where old stands.
func (f *fifo) swap(old, r *Response) {
	r.prev, r.next, r.where = old.prev, old.next, old.where
	*f.behind(r.prev) = r
	*f.before(r.next) = r
	old.prev, old.next, old.where = nil, nil, noQueue
	f.bytes += r.cost - old.cost
}

// behind is the link that names what follows r, the head when r is nil.
func (f *fifo) behind(r *Response) **Response {
	if r == nil {
		return &f.head
	}
	return &r.next
}

// before is the link that names what precedes r, the tail when r is nil.
func (f *fifo) before(r *Response) **Response {
	if r == nil {
		return &f.tail
	}
	return &r.prev
}
