package negative

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
)

const (
	minTable = 32
	// segmentBytesExtra is charged for a segment beside its bytes: its place
	// in two slices that grow by appending.
	segmentBytesExtra = 128
	// maxPosition is the largest position of a record in its shard, in bytes:
	// 4 GiB, less the one that is added in a slot.
	maxPosition = 1<<32 - 2
)

// shard is a part of a [Cache]: a queue of segments and a table of the live
// records in them.
//
// Invariants: every live record has exactly one slot in table, and table at
// least one that is empty. A segment without a live record is not in order,
// except the last one, which is empty then.
type shard struct {
	cache *Cache

	mu     sync.Mutex
	table  []uint64 // 0, or the record's position plus one, above its tag
	n      int      // live records
	segs   []segment
	order  []uint32 // segments in use, oldest first
	spare  []uint32 // places in segs without bytes
	graves graves

	stored, forgotten uint64
}

// shardStructBytes is the size of a shard with its graves, rounded up.
const shardStructBytes = 1280

// segment holds records from tail to used; those before tail are dead.
type segment struct {
	buf        []byte
	used, tail int
	live       int
}

// home is where the search for a tag begins. Tables have any length: growing
// by half each time wastes less than doubling.
func home(tag uint32, tableLen int) int {
	hi, _ := bits.Mul64(uint64(tag)<<32, uint64(tableLen))
	return int(hi)
}

// at returns the record of a slot.
func (s *shard) at(slot uint64) record {
	pos := slot>>32 - 1
	return record(s.segs[pos>>s.cache.segmentShift].buf[pos&(1<<s.cache.segmentShift-1):])
}

func (s *shard) slotOf(seg uint32, off int, tag uint32) uint64 {
	return (uint64(seg)<<s.cache.segmentShift+uint64(off)+1)<<32 | uint64(tag)
}

func (s *shard) segOf(slot uint64) uint32 {
	return uint32((slot>>32 - 1) >> s.cache.segmentShift)
}

// has reports whether the record is of this key.
func (s *shard) has(r record, key string) bool {
	rest, ok := strings.CutPrefix(key, s.cache.origins.at(r.origin()))
	return ok && string(r.rest()) == rest
}

// keyOf returns the key of a live record.
func (s *shard) keyOf(r record) string { return s.cache.origins.at(r.origin()) + string(r.rest()) }

// placeAt returns where in table a live record stands.
func (s *shard) placeAt(seg uint32, off int, r record) int {
	var h maphash.Hash
	h.SetSeed(s.cache.seed)
	h.WriteString(s.cache.origins.at(r.origin()))
	h.Write(r.rest())
	return s.placeOfLocked(s.slotOf(seg, off, uint32(h.Sum64())))
}

// findLocked returns the key's place in table, or -1.
func (s *shard) findLocked(hash uint64, key string) int {
	n := len(s.table)
	if n == 0 {
		return -1
	}
	tag := uint32(hash)
	for i := home(tag, n); s.table[i] != 0; {
		if uint32(s.table[i]) == tag && s.has(s.at(s.table[i]), key) {
			return i
		}
		if i++; i == n {
			i = 0
		}
	}
	return -1
}

// insertLocked appends the record in place of an older one of its key. When
// even forgetting the shard's own records does not make room, ok is false and
// need says how many bytes are missing.
func (s *shard) insertLocked(d *draft) (need int64, ok bool) {
	if i := s.findLocked(d.hash, d.key); i >= 0 {
		s.killLocked(i)
	}
	if need, ok := s.growLocked(); !ok {
		return need, false
	}
	size := d.len()
	if need, ok := s.roomLocked(size); !ok {
		return need, false
	}
	id := s.order[len(s.order)-1]
	seg := &s.segs[id]
	d.encode(record(seg.buf[seg.used : seg.used+size]))
	s.placeLocked(s.slotOf(id, seg.used, uint32(d.hash)))
	seg.used += size
	seg.live++
	s.n++
	s.stored++
	return 0, true
}

func (s *shard) placeLocked(slot uint64) {
	n := len(s.table)
	i := home(uint32(slot), n)
	for s.table[i] != 0 {
		if i++; i == n {
			i = 0
		}
	}
	s.table[i] = slot
}

// growLocked makes table ready for one more record: at most four in five
// places are taken.
func (s *shard) growLocked() (need int64, ok bool) {
	for (s.n+1)*5 > len(s.table)*4 {
		to := max(minTable, len(s.table)*3/2)
		if s.resizeLocked(to) {
			return 0, true
		}
		if s.n == 0 {
			return int64(to) * 8, false
		}
		s.forgetLocked(1)
	}
	return 0, true
}

func (s *shard) resizeLocked(to int) bool {
	if !s.cache.budget.take(int64(to) * 8) {
		return false
	}
	old := s.table
	s.table = make([]uint64, to)
	for _, slot := range old {
		if slot != 0 {
			s.placeLocked(slot)
		}
	}
	s.cache.budget.release(int64(len(old)) * 8)
	return true
}

// roomLocked makes the last segment have size free bytes: by a new segment, or
// else by emptying the oldest.
func (s *shard) roomLocked(size int) (need int64, ok bool) {
	segmentBytes := 1 << s.cache.segmentShift
	if n := len(s.order); n > 0 && s.segs[s.order[n-1]].used+size <= segmentBytes {
		return 0, true
	}
	for {
		need = int64(segmentBytes)
		if len(s.spare) == 0 {
			need += segmentBytesExtra
		}
		if (len(s.spare) > 0 || len(s.segs) < maxPosition>>s.cache.segmentShift) && s.cache.budget.take(need) {
			s.openLocked()
			return 0, true
		}
		if len(s.order) == 0 {
			return need, false
		}
		s.forgetSegmentLocked()
	}
}

// forgetSegmentLocked forgets what the oldest segment holds, and closes it.
func (s *shard) forgetSegmentLocked() {
	if len(s.order) == 0 {
		return
	}
	s.forgetLocked(s.segs[s.order[0]].live)
	s.trimLocked()
}

// openLocked adds a segment, whose bytes are paid for, at the young end.
func (s *shard) openLocked() {
	var id uint32
	if n := len(s.spare); n > 0 {
		id = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		id = uint32(len(s.segs))
		s.segs = append(s.segs, segment{})
	}
	s.segs[id] = segment{buf: make([]byte, 1<<s.cache.segmentShift)}
	s.order = append(s.order, id)
}

func (s *shard) closeLocked(id uint32) {
	s.segs[id] = segment{}
	i := slices.Index(s.order, id)
	s.order = slices.Delete(s.order, i, i+1)
	s.spare = append(s.spare, id)
	s.cache.budget.release(1 << s.cache.segmentShift)
}

// trimLocked gives the last segment back when nothing is in it.
func (s *shard) trimLocked() {
	if n := len(s.order); n > 0 && s.segs[s.order[n-1]].live == 0 {
		s.closeLocked(s.order[n-1])
	}
}

// killLocked forgets the record at a place in table, and closes its segment
// when it was the last one there.
func (s *shard) killLocked(i int) {
	slot := s.table[i]
	r := s.at(slot)
	s.cache.releasePage(r.page())
	s.cache.origins.release(r.origin())
	r.kill()
	s.vacateLocked(i)
	s.n--
	id := s.segOf(slot)
	seg := &s.segs[id]
	if seg.live--; seg.live > 0 {
		return
	}
	if id == s.order[len(s.order)-1] {
		seg.used, seg.tail = 0, 0
	} else {
		s.closeLocked(id)
	}
}

// vacateLocked empties a place in table and moves up what was pushed past it
// (Knuth, The Art of Computer Programming 3, §6.4, algorithm R), so that a
// search ends at the first empty place.
func (s *shard) vacateLocked(i int) {
	n := len(s.table)
	for j := i; ; {
		if j++; j == n {
			j = 0
		}
		slot := s.table[j]
		if slot == 0 {
			break
		}
		h := home(uint32(slot), n)
		if between := i <= j && i < h && h <= j || i > j && (i < h || h <= j); between {
			continue
		}
		s.table[i] = slot
		i = j
	}
	s.table[i] = 0
}

// forgetLocked forgets the n oldest records, or fewer when there are fewer,
// and returns their number.
func (s *shard) forgetLocked(n int) int {
	done := 0
	for done < n && s.n > 0 {
		// The oldest segment has a live record: only the last may have none,
		// and it is the oldest only when s.n is 0.
		id := s.order[0]
		seg := &s.segs[id]
		r := record(seg.buf[seg.tail:])
		off := seg.tail
		seg.tail += r.len()
		if r.dead() {
			continue
		}
		s.killLocked(s.placeAt(id, off, r))
		done++
	}
	s.forgotten += uint64(done)
	return done
}

// placeOfLocked returns where in table a slot stands that is there.
func (s *shard) placeOfLocked(slot uint64) int {
	n := len(s.table)
	i := home(uint32(slot), n)
	for s.table[i] != slot {
		if i++; i == n {
			i = 0
		}
	}
	return i
}

// sweepLocked forgets what of one segment has ended by now.
func (s *shard) sweepLocked(id uint32, now int64) {
	seg := &s.segs[id]
	for off := seg.tail; off < seg.used; {
		r := record(seg.buf[off:])
		size := r.len()
		if !r.dead() && s.cache.pages.at(r.page()).end(r.stored()) <= now {
			s.killLocked(s.placeAt(id, off, r))
			if seg.live == 0 {
				return // closed, or begun anew
			}
		}
		off += size
	}
}

// shrinkLocked gives back what a smaller number of records does not need.
func (s *shard) shrinkLocked() {
	s.trimLocked()
	switch {
	case s.n == 0:
		s.cache.budget.release(int64(len(s.table)) * 8)
		s.table = nil
	case len(s.table) > minTable && s.n*8 < len(s.table):
		s.resizeLocked(max(minTable, s.n*2))
	}
}
