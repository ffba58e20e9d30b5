package ring

import "math"

// OwnerBounded returns the first member that h meets whose load is below its
// bound: consistent hashing with bounded load (Mirrokni, Thorup and
// Zadimoghaddam 2016). "" when the ring is empty.
//
// A member's bound is c times its fair part, by weight, of all loads and one
// more, rounded up. The bounds of all members together exceed the sum of the
// loads, so there always is a member below its own. A small c (1.1) spreads
// harder and moves more keys off their owner, a large one (2) keeps them
// there; c below 1 or not a number is taken as 1, an infinite one as no bound.
//
// load is called once for each member, in order of the names, before anything
// is decided; it may read a counter that others are changing. A negative load
// counts as 0.
func (r *Ring) OwnerBounded(h uint64, load func(member string) int, c float64) string {
	if !(c >= 1) {
		c = 1
	}
	var small [64]float64
	loads := small[:0]
	sum := 1.0
	for _, name := range r.membersShared() {
		l := float64(max(load(name), 0))
		loads = append(loads, l)
		sum += l
	}
	owner := r.Owner(h) // should rounding of huge loads leave nobody below
	r.walk(h, func(i int) bool {
		bound := math.Ceil(c * sum * float64(r.weights[i]) / float64(r.total))
		if loads[i] < bound {
			owner = r.names[i]
			return false
		}
		return true
	})
	return owner
}

func (r *Ring) membersShared() []string {
	if r == nil {
		return nil
	}
	return r.names
}
