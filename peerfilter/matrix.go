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

// column returns 64 rows of one lane, from row 64*i.
func (m *matrix) column(i int, lane int) uint64 {
	var out uint64
	switch {
	case m.lanes == 1:
		return atomic.LoadUint64(&m.words[i])
	case m.lanes <= 64:
		rows := 64 / m.lanes
		for j := range m.lanes {
			w := atomic.LoadUint64(&m.words[i*m.lanes+j]) >> lane
			for r := range rows {
				out |= w >> (uint(r) << m.laneLog) & 1 << (j*rows + r)
			}
		}
	default:
		at := i*m.lanes + lane/64
		for j := range 64 {
			out |= atomic.LoadUint64(&m.words[at]) >> (lane % 64) & 1 << j
			at += int(m.rowWords)
		}
	}
	return out
}

// setColumn makes 64 rows of one lane, from row 64*i, equal to v. It stores
// only what differs: an atomic store costs as much as a dozen loads.
func (m *matrix) setColumn(i int, lane int, v uint64) {
	for d := m.column(i, lane) ^ v; d != 0; d &= d - 1 {
		w, bit := m.cell(uint32(i*64+bits.TrailingZeros64(d)), lane)
		atomic.StoreUint64(w, atomic.LoadUint64(w)^bit)
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

// lookup returns the lanes among live that have all K bits of h set, for a
// matrix of up to 64 lanes.
func (m *matrix) lookup(h Hash, live uint64) uint64 {
	block, _ := bits.Mul64(h[0], uint64(m.params.Blocks))
	n := uint64(blockWords) << m.laneLog // words of a block
	w := m.words[block*n:][:n]
	shift, mask, lane := m.rowShift, uint64(1)<<m.rowShift-1, m.laneLog
	g := h[1]
	// Row s*64+i of the block. After each pair of rows, look whether a lane is
	// left: more often costs mispredictions, never costs loads.
	for s := uint64(0); s < K; s += 2 {
		r0, r1 := s*sectorBits+g&63, (s+1)*sectorBits+g>>6&63
		live &= atomic.LoadUint64(&w[r0>>shift]) >> (r0 & mask << lane)
		live &= atomic.LoadUint64(&w[r1>>shift]) >> (r1 & mask << lane)
		if live == 0 {
			return 0
		}
		g >>= 12
	}
	return live
}

// lookupWide is lookup for a matrix of more than 64 lanes.
func (m *matrix) lookupWide(h Hash, live *[maskWords]uint64) (out [maskWords]uint64) {
	block, _ := bits.Mul64(h[0], uint64(m.params.Blocks))
	n := int(m.rowWords)
	w := m.words[block*BlockBits*uint64(n):][:BlockBits*n]
	out = *live
	g := h[1]
	for s := range K {
		row := w[(s*sectorBits+int(g&63))*n:][:n]
		g >>= 6
		var any uint64
		for i := range row {
			out[i%maskWords] &= atomic.LoadUint64(&row[i])
			any |= out[i%maskWords]
		}
		if any == 0 {
			return out
		}
	}
	return out
}
