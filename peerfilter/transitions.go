package peerfilter

import (
	"fmt"
	"slices"
)

// MaxTransitions bounds the positions of one record: 320 KiB of them. A state that
// differs by more is sent in several records, or as a snapshot.
//
// Whoever decodes keeps two lists of them, so with a copy of a message of 256
// KiB that makes 896 KiB, and no message costs more than 1 MiB.
const MaxTransitions = 5 << 14

// Transitions is the difference between two published states of one filter:
// positions that became set and positions that became clear. They are
// absolute, so applying them twice is harmless. Both lists rise strictly and
// have no position in common.
type Transitions struct {
	Set, Clear []uint32
}

// Len is the number of positions.
func (t *Transitions) Len() int { return len(t.Set) + len(t.Clear) }

// Reset empties t and keeps its memory.
func (t *Transitions) Reset() { t.Set, t.Clear = t.Set[:0], t.Clear[:0] }

// Clone returns a copy that shares nothing with t.
func (t *Transitions) Clone() Transitions {
	return Transitions{Set: slices.Clone(t.Set), Clear: slices.Clone(t.Clear)}
}

// validate reports how t breaks its promise for a filter of layout p.
func (t *Transitions) validate(p Params) error {
	if t.Len() > MaxTransitions {
		return fmt.Errorf("%d transitions, at most %d: %w", t.Len(), MaxTransitions, ErrCorrupt)
	}
	for _, list := range [2][]uint32{t.Set, t.Clear} {
		next := uint64(0)
		for _, pos := range list {
			if uint64(pos) < next || uint64(pos) >= p.Bits() {
				return fmt.Errorf("position %d after %d of %d: %w", pos, int64(next)-1, p.Bits(), ErrCorrupt)
			}
			next = uint64(pos) + 1
		}
	}
	set, clr := t.Set, t.Clear
	for len(set) > 0 && len(clr) > 0 {
		switch {
		case set[0] < clr[0]:
			set = set[1:]
		case set[0] > clr[0]:
			clr = clr[1:]
		default:
			return fmt.Errorf("position %d both set and clear: %w", set[0], ErrCorrupt)
		}
	}
	return nil
}
