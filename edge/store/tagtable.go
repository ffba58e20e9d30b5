package store

import (
	"math/bits"
	"unsafe"
)

// tag is a tag that stored responses carry, once however many there are. It
// lives as long as one of them does.
type tag struct {
	hash uint64
	name string   // an allocation of its own
	n    int      // responses that carry it
	head *tagLink // of these, the one linked last
	next *tag     // in its bucket
}

// tagTable is a hash table that grows and shrinks by one bucket at a time
// (Litwin, "Linear hashing: a new tool for file and table addressing", VLDB
// 1980): one tag more than there are buckets splits one, and when they are more
// than twice as many some are joined. So no tag waits for a table of a million
// to be doubled, under the partition's lock. Guarded by that.
type tagTable struct {
	n       int           // tags
	buckets int           // n to 2n
	dir     []*tagSegment // of the buckets; its capacity is a power of two
}

// tagSegment is small enough to need no header of the allocator's.
type tagSegment [segmentBuckets]*tag

const segmentBuckets = 64

var segmentBytes = allocPointerBytes(int64(unsafe.Sizeof(tagSegment{})))

func dirBytes(slots int) int64 {
	return allocPointerBytes(int64(slots) * int64(unsafe.Sizeof((*tagSegment)(nil))))
}

// segments is how many of them n buckets take.
func segments(n int) int { return (n + segmentBuckets - 1) / segmentBuckets }

// slots is how long a directory of that many segments is at least.
func slots(segments int) int {
	if segments == 0 {
		return 0
	}
	return 1 << bits.Len(uint(segments-1))
}

func (t *tagTable) bytes() int64 { return int64(len(t.dir))*segmentBytes + dirBytes(cap(t.dir)) }

// growth is what k more tags add to bytes.
func (t *tagTable) growth(k int) int64 {
	segs := segments(max(t.n+k, t.buckets))
	return int64(segs)*segmentBytes + dirBytes(max(slots(segs), cap(t.dir))) - t.bytes()
}

func (t *tagTable) at(i int) **tag { return &t.dir[i/segmentBuckets][i%segmentBuckets] }

// bucket is where a hash belongs; there must be one bucket at least.
func (t *tagTable) bucket(hash uint64) **tag {
	mask := 1<<bits.Len(uint(t.buckets-1)) - 1
	i := int(hash) & mask
	if i >= t.buckets {
		i &= mask >> 1
	}
	return t.at(i)
}

// find returns the tag of that name, nil when nothing carries it.
func (t *tagTable) find(hash uint64, name string) *tag {
	if t.n == 0 {
		return nil
	}
	for g := *t.bucket(hash); g != nil; g = g.next {
		if g.hash == hash && g.name == name {
			return g
		}
	}
	return nil
}

// add enters a tag that is not there.
func (t *tagTable) add(g *tag) {
	if t.n++; t.n > t.buckets {
		t.split()
	}
	b := t.bucket(g.hash)
	g.next = *b
	*b = g
}

// parent is the bucket that bucket i > 0 was split from.
func parent(i int) int { return i &^ (1 << (bits.Len(uint(i)) - 1)) }

// split makes one bucket more, and moves there what belongs there out of its
// parent.
func (t *tagTable) split() {
	last := t.buckets
	if last%segmentBuckets == 0 {
		if segs := len(t.dir); segs == cap(t.dir) {
			t.redir(max(2*segs, 1))
		}
		t.dir = append(t.dir, new(tagSegment))
	}
	if t.buckets++; last == 0 {
		return
	}
	to := t.at(last)
	top := uint64(1) << (bits.Len(uint(last)) - 1)
	for from := t.at(parent(last)); *from != nil; {
		g := *from
		if g.hash&top == 0 {
			from = &g.next
			continue
		}
		*from = g.next
		g.next = *to
		*to = g
	}
}

// remove takes out a tag that is there.
func (t *tagTable) remove(g *tag) {
	at := t.bucket(g.hash)
	for *at != g {
		at = &(*at).next
	}
	*at = g.next
	g.next = nil
	t.n--
	for range 2 {
		if t.buckets > 2*t.n {
			t.join()
		}
	}
}

// join takes the last bucket away, and moves what is there to its parent.
func (t *tagTable) join() {
	t.buckets--
	last := t.buckets
	if last > 0 {
		from, to := t.at(last), t.at(parent(last))
		for *to != nil {
			to = &(*to).next
		}
		*to = *from
		*from = nil
	}
	if last%segmentBuckets == 0 {
		segs := len(t.dir) - 1
		t.dir[segs] = nil
		t.dir = t.dir[:segs]
		if segs == 0 {
			t.dir = nil
		} else if segs <= cap(t.dir)/4 {
			t.redir(cap(t.dir) / 2)
		}
	}
}

func (t *tagTable) redir(slots int) {
	t.dir = append(make([]*tagSegment, 0, slots), t.dir...)
}
