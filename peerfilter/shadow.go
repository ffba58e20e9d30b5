package peerfilter

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// Shadow is what peers were last told of one [Counting]: its published state,
// a bitmap with its set-hash. It starts empty. [Shadow.Diff] advances it and
// yields the transitions to send, so whoever applies all of them, in order, to
// an empty bitmap, or those after a [Shadow.Snapshot] to that snapshot, holds
// exactly the published state.
//
// The set-hash is the sum modulo 2^64 of mix64(position) over all set
// positions. It costs one addition a transition on both sides, does not depend
// on the order, and two bitmaps with equal set-hashes are equal but for chance.
//
// Writers of the Counting go on meanwhile: Diff loads each word once,
// atomically, and the published state is made of the very words that it
// loaded. It may hold half of a key that is being added; it holds all of a key
// that stays.
//
// Methods are safe for concurrent use; one caller should own the sequence of Diffs.
type Shadow struct {
	source *Counting

	mu      sync.Mutex
	words   []uint64
	setHash uint64
	count   int
}

// NewShadow returns the empty published state of c. It holds as much memory
// as the bits of c.
func NewShadow(c *Counting) *Shadow {
	return &Shadow{source: c, words: makeWords(c.params.words())}
}

// Params returns the layout of the source.
func (s *Shadow) Params() Params { return s.source.params }

// Diff advances the published state to the source's bits and stores in dst,
// whose memory it reuses, what changed. When there are more than
// [MaxTransitions] changes it stops early and reports more; what dst holds is
// then a record like any other, and the next Diff yields what is left.
func (s *Shadow) Diff(dst *Transitions) (more bool) {
	dst.Reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks := int(s.source.params.Blocks)
	for b := range blocks {
		now := (*[blockWords]uint64)(s.source.bits[b*blockWords:])
		old := (*[blockWords]uint64)(s.words[b*blockWords:])
		var cur [blockWords]uint64
		var changed uint64
		for i := range blockWords {
			cur[i] = atomic.LoadUint64(&now[i])
			changed |= cur[i] ^ old[i]
		}
		if changed == 0 {
			continue
		}
		if dst.Len() > MaxTransitions-BlockBits {
			return true
		}
		for i := range blockWords {
			s.advance(dst, uint32(b*BlockBits+i*64), &old[i], cur[i])
		}
	}
	return false
}

// advance moves one word of the published state, whose first position is base.
func (s *Shadow) advance(dst *Transitions, base uint32, old *uint64, cur uint64) {
	for d := cur &^ *old; d != 0; d &= d - 1 {
		pos := base + uint32(bits.TrailingZeros64(d))
		dst.Set = append(dst.Set, pos)
		s.setHash += mix64(uint64(pos))
		s.count++
	}
	for d := *old &^ cur; d != 0; d &= d - 1 {
		pos := base + uint32(bits.TrailingZeros64(d))
		dst.Clear = append(dst.Clear, pos)
		s.setHash -= mix64(uint64(pos))
		s.count--
	}
	*old = cur
}

// SetHash returns the set-hash of the published state.
func (s *Shadow) SetHash() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setHash
}

// Count returns the number of bits set in the published state.
func (s *Shadow) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Snapshot returns an immutable copy of the published state.
func (s *Shadow) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{
		params:  s.source.params,
		count:   uint64(s.count),
		setHash: s.setHash,
		words:   slices.Clone(s.words),
	}
}
