package store

import "math/bits"

// ghost remembers the hashes of what left the small queue lately. It is a
// table of lines with eight slots, without pointers; a slot is
//
//	63            32 31             0
//	[ fingerprint   ][ stamp        ]
//
// The fingerprint is the top half of the hash, its top bits choose the line, so
// that a line splits in two when the table doubles. The stamp is the number of
// bytes that had left when the slot was written, in units; a ghost lives until
// as many bytes as the main queue holds have left after it. A full line loses
// its oldest. With n ghosts a stranger is taken for one with n/2^32, and a
// stamp comes around after 4096 turnovers of the partition: both only cost a
// response's trial.
type ghost struct {
	lines [][8]uint64 // a power of two
	left  int64       // bytes that have left the small queue
	unit  int64       // bytes in one step of a stamp
}

const lineBytes = 64

func newGhost(limit int64) ghost {
	return ghost{lines: make([][8]uint64, 1), unit: max(limit>>20, 1)}
}

func (g *ghost) line(fp uint64) *[8]uint64 {
	return &g.lines[fp>>(32-bits.Len(uint(len(g.lines)-1)))]
}

// stamp is never 0, which marks a free slot.
func (g *ghost) stamp() uint32 { return uint32(g.left/g.unit) | 1 }

func (g *ghost) add(hash uint64, bytes int64) {
	g.left += bytes
	g.insert(hash&^0xffffffff | uint64(g.stamp()))
}

func (g *ghost) insert(slot uint64) {
	l := g.line(slot >> 32)
	now := g.stamp()
	oldest, age := 0, uint32(0)
	for i, s := range l {
		if s == 0 || s>>32 == slot>>32 {
			oldest = i
			break
		}
		if a := now - uint32(s); a >= age {
			oldest, age = i, a
		}
	}
	l[oldest] = slot
}

// take reports whether hash left within the last window bytes, and forgets it.
func (g *ghost) take(hash uint64, window int64) bool {
	l := g.line(hash >> 32)
	for i, s := range l {
		if s != 0 && s>>32 == hash>>32 {
			l[i] = 0
			return int64(g.stamp()-uint32(s)) <= window/g.unit
		}
	}
	return false
}

func (g *ghost) bytes() int64 { return allocBytes(int64(len(g.lines)) * lineBytes) }

// growth is what grow will add for n responses: mostly nothing.
func (g *ghost) growth(n int) int64 {
	if n > 8*len(g.lines) {
		return allocBytes(int64(2*len(g.lines))*lineBytes) - g.bytes()
	}
	return 0
}

// grow makes one slot for each of n responses, which come one by one.
func (g *ghost) grow(n int) {
	if n > 8*len(g.lines) {
		g.resize(2 * len(g.lines))
	}
}

// shrink halves the table when n responses need less than an eighth of it, and
// returns the bytes that this freed.
func (g *ghost) shrink(n int) int64 {
	if len(g.lines) == 1 || n >= len(g.lines) {
		return 0
	}
	before := g.bytes()
	g.resize(len(g.lines) / 2)
	return before - g.bytes()
}

func (g *ghost) resize(lines int) {
	old := g.lines
	g.lines = make([][8]uint64, lines)
	for i := range old {
		for _, s := range old[i] {
			if s != 0 {
				g.insert(s)
			}
		}
	}
}
