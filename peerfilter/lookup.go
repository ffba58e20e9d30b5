package peerfilter

import "sync/atomic"

// The one look-up that everything else is for. The rows of a key, counted in
// its block, are s*64 + (g>>6s & 63) for s = 0 to 7, with g the second half of
// its hash.
//
// None of it branches. To leave when no lane is left saves loads, but they
// overlap anyway, and which row empties the last lane cannot be predicted: with
// exits after each pair of rows a look-up took 1.7 times as long among 8 lanes
// and 2.4 times among 64 (1 M keys at 1 %, Xeon 2-vCPU, Go 1.26.8). Each width
// has a function of its own because constant shifts are worth another fifth.

// lookup returns the lanes among live that have all K bits of the key set, for
// a matrix of up to 64 lanes. The key's hash is given in halves.
func (m *matrix) lookup(h0, g, live uint64) uint64 {
	block := uint64(blockOf(h0, m.params.Blocks))
	w := m.words[block*blockWords<<m.laneLog:]
	switch m.laneLog {
	case 0:
		if testWords((*[blockWords]uint64)(w), g) {
			return live
		}
		return 0
	case 1:
		return live & lookup2((*[blockWords << 1]uint64)(w), g)
	case 2:
		return live & lookup4((*[blockWords << 2]uint64)(w), g)
	case 3:
		return live & lookup8((*[blockWords << 3]uint64)(w), g)
	case 4:
		return live & lookup16((*[blockWords << 4]uint64)(w), g)
	case 5:
		return live & lookup32((*[blockWords << 5]uint64)(w), g)
	}
	return live & lookup64((*[blockWords << 6]uint64)(w), g)
}

func lookup2(w *[blockWords << 1]uint64, g uint64) uint64 {
	return row2(w, 0, g&63) & row2(w, 1, g>>6&63) & row2(w, 2, g>>12&63) & row2(w, 3, g>>18&63) &
		row2(w, 4, g>>24&63) & row2(w, 5, g>>30&63) & row2(w, 6, g>>36&63) & row2(w, 7, g>>42&63)
}

func lookup4(w *[blockWords << 2]uint64, g uint64) uint64 {
	return row4(w, 0, g&63) & row4(w, 1, g>>6&63) & row4(w, 2, g>>12&63) & row4(w, 3, g>>18&63) &
		row4(w, 4, g>>24&63) & row4(w, 5, g>>30&63) & row4(w, 6, g>>36&63) & row4(w, 7, g>>42&63)
}

func lookup8(w *[blockWords << 3]uint64, g uint64) uint64 {
	return row8(w, 0, g&63) & row8(w, 1, g>>6&63) & row8(w, 2, g>>12&63) & row8(w, 3, g>>18&63) &
		row8(w, 4, g>>24&63) & row8(w, 5, g>>30&63) & row8(w, 6, g>>36&63) & row8(w, 7, g>>42&63)
}

func lookup16(w *[blockWords << 4]uint64, g uint64) uint64 {
	return row16(w, 0, g&63) & row16(w, 1, g>>6&63) & row16(w, 2, g>>12&63) & row16(w, 3, g>>18&63) &
		row16(w, 4, g>>24&63) & row16(w, 5, g>>30&63) & row16(w, 6, g>>36&63) & row16(w, 7, g>>42&63)
}

func lookup32(w *[blockWords << 5]uint64, g uint64) uint64 {
	return row32(w, 0, g&63) & row32(w, 1, g>>6&63) & row32(w, 2, g>>12&63) & row32(w, 3, g>>18&63) &
		row32(w, 4, g>>24&63) & row32(w, 5, g>>30&63) & row32(w, 6, g>>36&63) & row32(w, 7, g>>42&63)
}

func lookup64(w *[blockWords << 6]uint64, g uint64) uint64 {
	return row64(w, 0, g&63) & row64(w, 1, g>>6&63) & row64(w, 2, g>>12&63) & row64(w, 3, g>>18&63) &
		row64(w, 4, g>>24&63) & row64(w, 5, g>>30&63) & row64(w, 6, g>>36&63) & row64(w, 7, g>>42&63)
}

// rowN returns row i of sector s, i below 64, with what stands above it in the word.

func row2(w *[blockWords << 1]uint64, s, i uint64) uint64 {
	return atomic.LoadUint64(&w[s*2+i>>5]) >> (i << 1 & 63)
}

func row4(w *[blockWords << 2]uint64, s, i uint64) uint64 {
	return atomic.LoadUint64(&w[s*4+i>>4]) >> (i << 2 & 63)
}

func row8(w *[blockWords << 3]uint64, s, i uint64) uint64 {
	return atomic.LoadUint64(&w[s*8+i>>3]) >> (i << 3 & 63)
}

func row16(w *[blockWords << 4]uint64, s, i uint64) uint64 {
	return atomic.LoadUint64(&w[s*16+i>>2]) >> (i << 4 & 63)
}

func row32(w *[blockWords << 5]uint64, s, i uint64) uint64 {
	return atomic.LoadUint64(&w[s*32+i>>1]) >> (i << 5 & 63)
}

func row64(w *[blockWords << 6]uint64, s, i uint64) uint64 {
	return atomic.LoadUint64(&w[s*64+i])
}

// lookupWide is lookup for a matrix of more than 64 lanes: word i of the rows
// is lanes 64*i to 64*i+63.
func (m *matrix) lookupWide(h0, g uint64, live *[maskWords]uint64) (out [maskWords]uint64) {
	n := uint64(m.rowWords)
	w := m.words[uint64(blockOf(h0, m.params.Blocks))*BlockBits*n:][:BlockBits*n]
	out = *live
	for s := range uint64(K) {
		row := w[(s*sectorBits+g&63)*n:][:n]
		g >>= 6
		for i := range row {
			out[i%maskWords] &= atomic.LoadUint64(&row[i])
		}
	}
	return out
}
