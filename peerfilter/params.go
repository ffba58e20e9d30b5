package peerfilter

import "fmt"

// The geometry of [LayoutSectors].
const (
	// K is the number of bits that a key sets: one in each sector of its block.
	K = 8
	// BlockBits is the size of a block in bits. A block is one cache line.
	BlockBits = 512

	sectorBits      = BlockBits / K
	blockWords      = BlockBits / 64
	counterBits     = 4
	countersPerWord = 64 / counterBits
	counterWords    = BlockBits / countersPerWord // per block: 256 bytes

	// MaxBlocks keeps every position below 2^32.
	MaxBlocks = 1 << 32 / BlockBits
)

// Layout numbers a rule that turns a hash into bit positions. It travels with
// every snapshot and record; the numbers only grow.
type Layout uint8

// LayoutSectors is the only layout so far: blocks of 512 bits, chosen by
// floor(h[0]*blocks / 2^64); in each of a block's eight sectors of 64 bits one
// bit, chosen by the next six bits of h[1], lowest first.
const LayoutSectors Layout = 1

// Params says how a filter is laid out. Two filters can be compared, merged or
// looked up together only if their Params are equal (and their seeds are).
type Params struct {
	Layout Layout // LayoutSectors
	Blocks uint32 // number of 512-bit blocks, 1 to MaxBlocks
}

// Validate reports what is wrong with p: a layout that this version does not
// know, no blocks, or more positions than 32 bits can number.
func (p Params) Validate() error {
	switch {
	case p.Layout != LayoutSectors:
		return fmt.Errorf("filter layout %d: only %d is known", p.Layout, LayoutSectors)
	case p.Blocks == 0 || p.Blocks > MaxBlocks:
		return fmt.Errorf("filter of %d blocks: want 1 to %d", p.Blocks, MaxBlocks)
	}
	return nil
}

// Bits is the number of positions, m.
func (p Params) Bits() uint64 { return uint64(p.Blocks) * BlockBits }

// words is the number of 64-bit words of a bitmap.
func (p Params) words() int { return int(p.Blocks) * blockWords }
