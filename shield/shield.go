package shield

import "edged/ring"

// Mode is how the shield of a key is chosen.
type Mode string

// The modes.
const (
	ModeAuto Mode = "auto" // the key's owner among the members of role shield
	ModeOff  Mode = "off"  // none: straight to the origin
	ModeRing Mode = "ring" // the key's owner among the edges
)

// Choose returns the member that shields the key with hash h, and reports
// whether there is one; otherwise the request goes to the origin.
//
// The ring to choose from is shields with [ModeAuto] (and with the empty mode,
// which means auto), edges with [ModeRing]; any other mode has none. The owner of
// h is chosen, or, while usable says no of it, the next successor: the member
// that would own h without it, so that all nodes that see the same members
// agree. When that walk comes to self, self is the shield: there is none, and
// Choose never returns self. A nil usable finds everybody usable, a nil ring is
// empty. h must be well mixed, see [ring.New]. It allocates nothing.
func Choose(mode Mode, self string, h uint64, shields, edges *ring.Ring, usable func(member string) bool) (member string, ok bool) {
	var from *ring.Ring
	switch mode {
	case ModeAuto, "":
		from = shields
	case ModeRing:
		from = edges
	}
	for m := range from.Successors(h) {
		if m == self {
			return "", false
		}
		if usable == nil || usable(m) {
			return m, true
		}
	}
	return "", false
}
