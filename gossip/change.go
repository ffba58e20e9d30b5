package gossip

// Kind says what a [Change] is about.
type Kind uint8

// The kinds. They are numbers on the wire, and only grow. A member may not know
// what one of a newer version means: see [Kind.Advisory].
const (
	KindPurge     Kind = 1 // what the fields name is purged
	KindCreated   Kind = 2 // URLs exist now: forget that they were absent
	KindCatalog   Kind = 3 // Site's catalog of what exists changes as Payload says
	KindTombstone Kind = 4 // URLs are known to be gone, as Payload says
)

// Advisory reports whether a member that does not know the kind may pass over
// it: from 128 on. One below that may be about anything that is stored.
func (k Kind) Advisory() bool { return k >= 128 }

// Change is one thing that every member is to learn and to apply, and that
// none may miss: an entry of the cluster's log. What the fields mean is up to
// its kind; gossip reads none of them.
type Change struct {
	Kind     Kind     `json:"kind"`
	URLs     []string `json:"urls,omitempty"`     // cache keys
	Tags     []string `json:"tags,omitempty"`     //
	Prefixes []string `json:"prefixes,omitempty"` // of cache keys
	Hosts    []string `json:"hosts,omitempty"`    //
	All      bool     `json:"all,omitempty"`      //
	Soft     bool     `json:"soft,omitempty"`     // make stale, rather than remove
	Site     string   `json:"site,omitempty"`     // a site's name
	Payload  []byte   `json:"payload,omitempty"`  // the kind's own

	// ID is unique. [Gossip.Spread] fills it in.
	ID string `json:"id"`

	// Stamp orders the changes of all members: of two that contradict each
	// other, the one with the larger stamp holds, and among equal stamps that
	// with the larger ID. [Gossip.Spread] fills it in: milliseconds since 1970
	// and a counter in the low 16 bits, larger than that of every change
	// applied here before (a hybrid logical clock, Kulkarni et al. 2014).
	Stamp uint64 `json:"stamp"`

	// Note is for OnChange of the member that spreads the change: it is not sent.
	Note any `json:"-"`
}
