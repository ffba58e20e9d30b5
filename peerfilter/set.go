package peerfilter

import (
	"iter"
	"math/bits"
)

// Set is the answer of one look-up: the members that may hold the key, and
// which members were asked. It is a small value and does not change when
// replicas do; the names stay those of the moment of the look-up. The zero
// Set knows no member.
type Set struct {
	state *state
	n     int
	mask  [maskWords]uint64 // by member id, n bits set
}

// add adds the members that have lanes, numbered from first, in v.
func (s *Set) add(v *view, first int, lanes uint64) {
	for ; lanes != 0; lanes &= lanes - 1 {
		id := v.ids[first+bits.TrailingZeros64(lanes)]
		s.mask[id/64] |= 1 << (id % 64)
		s.n++
	}
}

// Len is the number of members that may hold the key.
func (s Set) Len() int { return s.n }

// All yields the members that may hold the key, in no particular order.
func (s Set) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, w := range s.mask {
			for ; w != 0; w &= w - 1 {
				if !yield(s.state.names[i*64+bits.TrailingZeros64(w)]) {
					return
				}
			}
		}
	}
}

// Contains reports whether member may hold the key. It is false for a member
// that is not known.
func (s Set) Contains(member string) bool {
	if s.state == nil {
		return false
	}
	id, ok := s.state.ids[member]
	return ok && s.mask[id/64]>>(id%64)&1 != 0
}

// Known reports whether member was asked: there is a replica of it, and it is
// in sequence.
func (s Set) Known(member string) bool {
	if s.state == nil {
		return false
	}
	_, ok := s.state.ids[member]
	return ok
}

// KnownLen is the number of members that were asked.
func (s Set) KnownLen() int {
	if s.state == nil {
		return 0
	}
	return len(s.state.names)
}

// setBits64 yields the numbers of the bits set in w, rising.
func setBits64(w uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; w != 0; w &= w - 1 {
			if !yield(bits.TrailingZeros64(w)) {
				return
			}
		}
	}
}
