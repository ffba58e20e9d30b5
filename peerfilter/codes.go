package peerfilter

import "math/bits"

// positionsCost returns the best Rice parameter for a rising list of positions
// and the bits that it takes.
func positionsCost(list []uint32) (param uint, cost uint64) {
	n := uint64(len(list))
	if n == 0 {
		return 0, 0
	}
	c := newRiceCost(n, uint64(list[n-1])+1-n)
	next := uint32(0)
	for _, pos := range list {
		c.add(uint64(pos - next))
		next = pos + 1
	}
	return c.best(n)
}

func writePositions(w *bitWriter, list []uint32, param uint) {
	next := uint32(0)
	for _, pos := range list {
		w.rice(uint64(pos-next), param)
		next = pos + 1
	}
}

// readPositions reads n positions into the memory of dst. Check in.bad afterwards.
func readPositions(dst []uint32, in *bitReader, n int, param uint, p Params) []uint32 {
	dst = withRoom(dst, n)
	var next uint64
	for range n {
		if next >= p.Bits() {
			in.fail()
		}
		next += in.rice(param, p.Bits()-1-next)
		if in.bad {
			return dst
		}
		dst = append(dst, uint32(next))
		next++
	}
	return dst
}

// withRoom returns dst empty, with room for n positions and no more. slices.Grow
// would allocate twice as much under the race detector.
func withRoom(dst []uint32, n int) []uint32 {
	if cap(dst) < n {
		return make([]uint32, 0, n)
	}
	return dst[:0]
}

// flips is the changed positions of one block, a bit each.
type flips [blockWords]uint64

// nextBlock takes the positions of the first block off a rising list.
func nextBlock(list []uint32) (block uint32, f flips, rest []uint32) {
	block = list[0] / BlockBits
	for len(list) > 0 && list[0]/BlockBits == block {
		f[list[0]/sectorBits%K] |= 1 << (list[0] % sectorBits)
		list = list[1:]
	}
	return block, f, list
}

// entries is the number of entries that the sector code takes for a block.
func (f *flips) entries() int {
	n := 0
	for _, w := range f {
		n = max(n, bits.OnesCount64(w))
	}
	return n
}

// sectorCost returns the best Rice parameter for the blocks of a rising list
// of positions and the bits that the sector code takes for all of it.
func sectorCost(list []uint32) (param uint, cost uint64) {
	if len(list) == 0 {
		return 0, 0
	}
	var entries uint64
	for rest := list; len(rest) > 0; {
		var f flips
		_, f, rest = nextBlock(rest)
		entries += uint64(f.entries())
	}
	c := newRiceCost(entries, uint64(list[len(list)-1]/BlockBits))
	var last uint32
	for rest := list; len(rest) > 0; {
		var f flips
		var block uint32
		block, f, rest = nextBlock(rest)
		c.add(uint64(block - last))
		for range f.entries() - 1 {
			c.add(0)
		}
		last = block
	}
	param, cost = c.best(entries)
	return param, cost + K*entries + 6*uint64(len(list))
}

func writeSectors(w *bitWriter, list []uint32, param uint) {
	var last uint32
	for len(list) > 0 {
		var f flips
		var block uint32
		block, f, list = nextBlock(list)
		for range f.entries() {
			w.rice(uint64(block-last), param)
			last = block
			var mask uint64
			for s, word := range f {
				if word != 0 {
					mask |= 1 << s
				}
			}
			w.write(mask, K)
			for s, word := range f {
				if word != 0 {
					w.write(uint64(bits.TrailingZeros64(word)), 6)
					f[s] = word & (word - 1)
				}
			}
		}
	}
}

// readSectors reads n positions into the memory of dst, rising. Check in.bad afterwards.
func readSectors(dst []uint32, in *bitReader, n int, param uint, p Params) []uint32 {
	dst = withRoom(dst, n)
	var f flips // of block, not yet in dst
	var block uint64
	for n > 0 {
		gap := in.rice(param, uint64(p.Blocks)-1-block)
		if gap > 0 {
			dst = f.appendTo(dst, block)
			block += gap
			f = flips{}
		}
		mask := in.read(K)
		n -= bits.OnesCount64(mask)
		if mask == 0 || n < 0 {
			in.fail()
		}
		if in.bad {
			return dst
		}
		for ; mask != 0; mask &= mask - 1 {
			word, bit := &f[bits.TrailingZeros64(mask)], uint64(1)<<in.read(6)
			if *word&bit != 0 {
				in.fail() // said twice
				return dst
			}
			*word |= bit
		}
	}
	return f.appendTo(dst, block)
}

// appendTo appends the positions of f in block to dst.
func (f *flips) appendTo(dst []uint32, block uint64) []uint32 {
	for s, word := range f {
		for ; word != 0; word &= word - 1 {
			dst = append(dst, uint32(block*BlockBits)+uint32(s*sectorBits+bits.TrailingZeros64(word)))
		}
	}
	return dst
}
