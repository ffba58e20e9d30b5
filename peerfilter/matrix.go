package peerfilter

import (
	"math/bits"
	"sync/atomic"
)

// MaxMembers is the number of members that one [Replicas] can hold.
const MaxMembers = 256

const maskWords = MaxMembers / 64

// lanesFor returns the width of a matrix for n members: a power of two up to
// 64, so that a row lies inside one word, then whole words.
func lanesFor(n int) int {
	if n <= 64 {
		return 1 << bits.Len(uint(max(n, 1)-1))
	}
	return (n + 63) / 64 * 64
}

// matrix is several filters of one layout, bit-sliced: row i holds position i
// of all of them, lane j belongs to the j-th. With L lanes up to 64, a word
// holds 64/L rows, lowest row and lane in the lowest bit; beyond 64, a row is
// L/64 words. So the eight rows of a key lie in one run of 64*L bytes, and
// with one lane the matrix is a plain bitmap.
//
// Words are loaded and stored atomically: readers go on while one writer, who
// holds Replicas.mu, changes lanes.
type matrix struct {
	params   Params
	lanes    int
	rowWords uint32 // words of a row; 1 up to 64 lanes
	rowShift uint   // log2 of the rows in a word; 0 from 64 lanes
	laneLog  uint   // log2 of lanes up to 64
	words    []uint64
}

func newMatrix(p Params, lanes int) *matrix {
	m := &matrix{params: p, lanes: lanes, rowWords: 1}
	if lanes <= 64 {
		m.laneLog = uint(bits.TrailingZeros(uint(lanes)))
		m.rowShift = 6 - m.laneLog
	} else {
		m.rowWords = uint32(lanes / 64)
	}
	m.words = makeWords(p.words() * lanes)
	return m
}

// cell returns where the bit of a row and lane is: a word and a mask.
func (m *matrix) cell(row uint32, lane int) (w *uint64, bit uint64) {
	if m.lanes <= 64 {
		inWord := row & (1<<m.rowShift - 1)
		return &m.words[row>>m.rowShift], 1 << (uint(inWord)<<m.laneLog + uint(lane))
	}
	return &m.words[uint64(row)*uint64(m.rowWords)+uint64(lane/64)], 1 << (lane % 64)
}

// set sets or clears one bit and reports whether it was different.
func (m *matrix) set(row uint32, lane int, on bool) (changed bool) {
	w, bit := m.cell(row, lane)
	old := atomic.LoadUint64(w)
	if old&bit != 0 == on {
		return false
	}
	atomic.StoreUint64(w, old^bit)
	return true
}

// warmed is how many cells are loaded ahead of being set: as many as a core has
// misses under way, and some.
const warmed = 32

// warm loads the cells of some rows, so that the misses overlap. Stores to them
// would not: each is a barrier that waits for the one before. A record of
// 1 000 positions leads to 1 000 lines of a matrix that no cache holds.
func (m *matrix) warm(rows []uint32, lane int) (all uint64) {
	for _, row := range rows {
		w, _ := m.cell(row, lane)
		all ^= atomic.LoadUint64(w)
	}
	return all
}

// spread moves bit i of x to bit i*lanes, for the 64/lanes rows of a word.
func (m *matrix) spread(x uint64) uint64 {
	switch m.lanes {
	case 2:
		return spread2(x)
	case 4:
		return spread2(spread2(x))
	case 8:
		x = x * 0x0101010101010101 & 0x8040201008040201 // bit i to byte i, still in place i
		return (x + 0x7F7F7F7F7F7F7F7F) >> 7 & 0x0101010101010101
	case 16:
		return x&1 | x&2<<15 | x&4<<30 | x&8<<45
	case 32:
		return x&1 | x&2<<31
	}
	return x
}

// gather undoes spread; bits elsewhere are ignored.
func (m *matrix) gather(x uint64) uint64 {
	switch m.lanes {
	case 2:
		return gather2(x)
	case 4:
		return gather2(gather2(x))
	case 8:
		return x & 0x0101010101010101 * 0x0102040810204080 >> 56
	case 16:
		return x&1 | x>>15&2 | x>>30&4 | x>>45&8
	case 32:
		return x&1 | x>>31&2
	}
	return x
}

// spread2 moves bit i of the lower half of x to bit 2i.
func spread2(x uint64) uint64 {
	x &= 1<<32 - 1
	x = (x | x<<16) & 0x0000FFFF0000FFFF
	x = (x | x<<8) & 0x00FF00FF00FF00FF
	x = (x | x<<4) & 0x0F0F0F0F0F0F0F0F
	x = (x | x<<2) & 0x3333333333333333
	return (x | x<<1) & 0x5555555555555555
}

// gather2 moves bit 2i of x to bit i.
func gather2(x uint64) uint64 {
	x &= 0x5555555555555555
	x = (x | x>>1) & 0x3333333333333333
	x = (x | x>>2) & 0x0F0F0F0F0F0F0F0F
	x = (x | x>>4) & 0x00FF00FF00FF00FF
	x = (x | x>>8) & 0x0000FFFF0000FFFF
	return (x | x>>16) & (1<<32 - 1)
}

// column returns 64 rows of one lane, from row 64*i.
func (m *matrix) column(i int, lane int) uint64 {
	var out uint64
	if m.lanes < 64 {
		rows := 64 >> m.laneLog
		for j := range m.lanes {
			out |= m.gather(atomic.LoadUint64(&m.words[i*m.lanes+j])>>lane) << (j * rows)
		}
		return out
	}
	if m.rowWords == 1 {
		rows := (*[64]uint64)(m.words[i*64:]) // no bound to check in the loop
		for j := range rows {
			out = out>>1 | atomic.LoadUint64(&rows[j])>>(lane&63)<<63
		}
		return out
	}
	at := i*64*int(m.rowWords) + lane/64
	for range 64 {
		out = out>>1 | atomic.LoadUint64(&m.words[at])>>(lane%64)<<63
		at += int(m.rowWords)
	}
	return out
}

// setColumn makes one lane equal to a bitmap. It stores only words that
// differ: an atomic store costs as much as a dozen loads.
func (m *matrix) setColumn(lane int, bitmap []uint64) {
	if m.lanes < 64 {
		for i, v := range bitmap {
			m.setRows(m.words[i*m.lanes:][:m.lanes], lane, v)
		}
		return
	}
	if m.rowWords == 1 {
		for i, v := range bitmap {
			rows := (*[64]uint64)(m.words[i*64:])
			for d := m.column(i, lane) ^ v; d != 0; d &= d - 1 {
				w := &rows[bits.TrailingZeros64(d)&63]
				atomic.StoreUint64(w, atomic.LoadUint64(w)^1<<(lane&63))
			}
		}
		return
	}
	for i, v := range bitmap {
		rows := m.words[i*64*int(m.rowWords)+lane/64:]
		for d := m.column(i, lane) ^ v; d != 0; d &= d - 1 {
			w := &rows[bits.TrailingZeros64(d)*int(m.rowWords)]
			atomic.StoreUint64(w, atomic.LoadUint64(w)^1<<(lane%64))
		}
	}
}

// setRows makes 64 rows of one lane equal to v. They are all of words.
func (m *matrix) setRows(words []uint64, lane int, v uint64) {
	rows := 64 >> m.laneLog
	keep := ^(m.spread(1<<rows-1) << lane)
	for j := range words {
		old := atomic.LoadUint64(&words[j])
		if w := old&keep | m.spread(v&(1<<rows-1))<<lane; w != old {
			atomic.StoreUint64(&words[j], w)
		}
		v >>= rows
	}
}

// widened returns a copy of m with more lanes.
func (m *matrix) widened(lanes int) *matrix {
	wide := newMatrix(m.params, lanes)
	// Nobody sees wide yet, so it is written plainly.
	switch {
	case m.lanes >= 64:
		for row := range int(m.params.Bits()) {
			for k := range int(m.rowWords) {
				wide.words[row*int(wide.rowWords)+k] = atomic.LoadUint64(&m.words[row*int(m.rowWords)+k])
			}
		}
	default:
		rows := 64 / m.lanes
		rowMask := uint64(1)<<m.lanes - 1
		for i := range m.words {
			w := atomic.LoadUint64(&m.words[i])
			for r := range rows {
				row := uint32(i*rows + r)
				to, bit := wide.cell(row, 0)
				*to |= (w >> (r * m.lanes) & rowMask) * bit
			}
		}
	}
	return wide
}
