package peerfilter

import (
	"math/bits"
	"sync/atomic"
)

const (
	// splitFrom is the number of hashes from which sorting them by place pays.
	splitFrom = 4096
	// splitChunk is how many hashes are sorted at a time: 32 MiB of them.
	splitChunk = 1 << 21
	// splitBlocks is how many blocks a run is to touch: 160 KiB of bits and
	// counters, which a core keeps in its second cache.
	splitBlocks = 512
)

// AddAll counts all keys whose hashes are hs, as Add does one by one. It is
// the way to rebuild a filter: many hashes are sorted by block first, so each
// part of the filter is visited once, and the words of a block are stored once
// for all its keys. That takes memory for another two million hashes at most.
// hs is not changed.
//
// Look-ups do not wait for it. A lock is held for the keys of one block.
func (c *Counting) AddAll(hs []Hash) {
	if len(hs) < splitFrom {
		for _, h := range hs {
			c.Add(h)
		}
		return
	}
	runBits := min(bits.Len32(c.params.Blocks/splitBlocks), 12) // of h[0], from the top, that choose a run
	shift := 64 - runBits
	sorted := make([]Hash, min(len(hs), splitChunk))
	ends := make([]int, 1<<runBits)
	var runs blockSort
	for len(hs) > 0 {
		chunk := hs[:min(len(hs), splitChunk)]
		hs = hs[len(chunk):]
		clear(ends)
		for i := range chunk {
			ends[chunk[i][0]>>shift]++
		}
		starts(ends)
		for i := range chunk {
			run := chunk[i][0] >> shift
			sorted[ends[run]] = chunk[i]
			ends[run]++
		}
		start := 0
		for _, end := range ends {
			if start < end {
				runs.add(c, sorted[start:end])
				start = end
			}
		}
	}
}

// starts turns counts into the places where each group begins.
func starts(counts []int) {
	at := 0
	for i, n := range counts {
		counts[i] = at
		at += n
	}
}

// blockSort sorts the hashes of a run by block. Its memory is used again.
type blockSort struct {
	ends   []int
	halves []uint64 // second halves of the hashes
}

// add counts the keys of a run of neighbouring blocks in c.
func (b *blockSort) add(c *Counting, run []Hash) {
	blocks := c.params.Blocks
	first, last := blocks, uint32(0)
	for i := range run {
		block := blockOf(run[i][0], blocks)
		first, last = min(first, block), max(last, block)
	}
	n := int(last-first) + 1
	if cap(b.ends) < n {
		b.ends = make([]int, n)
	}
	ends := b.ends[:n]
	clear(ends)
	for i := range run {
		ends[blockOf(run[i][0], blocks)-first]++
	}
	starts(ends)
	if cap(b.halves) < len(run) {
		b.halves = make([]uint64, len(run))
	}
	halves := b.halves[:len(run)]
	for i := range run {
		at := blockOf(run[i][0], blocks) - first
		halves[ends[at]] = run[i][1]
		ends[at]++
	}
	start := 0
	for i, end := range ends {
		if start < end {
			block := first + uint32(i)
			st := c.stripeOf(block)
			st.mu.Lock()
			c.addBlockLocked(st, block, halves[start:end])
			st.mu.Unlock()
			start = end
		}
	}
}

// addBlockLocked is addLocked for all keys of a block.
func (c *Counting) addBlockLocked(st *stripe, block uint32, halves []uint64) {
	words := (*[blockWords]uint64)(c.bits[uint64(block)*blockWords:])
	counters := (*[counterWords]uint64)(c.counters[uint64(block)*counterWords:])
	now := *words
	for _, g := range halves {
		for s := range now {
			i := g & 63
			g >>= 6
			now[s] |= 1 << i
			w := &counters[uint64(s)*(counterWords/K)+i/countersPerWord]
			shift := i % countersPerWord * counterBits
			if was := *w >> shift & pinned; was >= pinned-1 { // next to never
				if was == pinned {
					continue
				}
				st.pinned++
			}
			*w += 1 << shift
		}
	}
	for s, w := range now {
		if old := words[s]; w != old {
			atomic.StoreUint64(&words[s], w)
			st.bitsSet += int64(bits.OnesCount64(w) - bits.OnesCount64(old))
		}
	}
	st.keys += int64(len(halves))
}
