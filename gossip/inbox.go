package gossip

import (
	"bytes"
	"sync"

	"github.com/hashicorp/memberlist"
)

// Bounds of what waits to be looked at. Events of membership are few and never
// dropped.
const (
	maxInbox      = 4096
	maxInboxBytes = 16 << 20
)

// event is one thing that membership has told us; one field is set.
type event struct {
	message  []byte           // a frame
	heads    []byte           // a member's heads
	up       *memberlist.Node // joined, or was updated
	down     string           // failed or left
	suspect  string           // did not answer our probe
	conflict *conflict
}

// inbox is where membership's callbacks put what they are told. They run
// under locks of the library, and must neither wait nor call it.
type inbox struct {
	wake chan struct{} // holds one token when there is something

	mu      sync.Mutex
	closed  bool
	events  []event
	msgs    int
	bytes   int
	dropped map[string]uint64 // by reason, since the last take
}

func newInbox() *inbox {
	return &inbox{wake: make(chan struct{}, 1), dropped: map[string]uint64{}}
}

// put adds an event of membership.
func (in *inbox) put(e event) {
	in.mu.Lock()
	if !in.closed {
		in.events = append(in.events, e)
	}
	in.mu.Unlock()
	in.poke()
}

// putBytes adds a copy of a message of up to limit bytes, or counts it as dropped.
func (in *inbox) putBytes(b []byte, limit int, wrap func([]byte) event) {
	in.mu.Lock()
	defer in.poke()
	defer in.mu.Unlock()
	switch {
	case in.closed:
	case len(b) > limit:
		in.dropped[dropTooLarge]++
	case in.msgs >= maxInbox || in.bytes+len(b) > maxInboxBytes:
		in.dropped[dropInbox]++
	default:
		in.msgs++
		in.bytes += len(b)
		in.events = append(in.events, wrap(bytes.Clone(b)))
	}
}

func (in *inbox) drop(reason string) {
	in.mu.Lock()
	in.dropped[reason]++
	in.mu.Unlock()
}

// take empties the inbox; add gets the counts of what was dropped.
func (in *inbox) take(add map[string]uint64) []event {
	in.mu.Lock()
	defer in.mu.Unlock()
	events := in.events
	in.events, in.msgs, in.bytes = nil, 0, 0
	for reason, n := range in.dropped {
		add[reason] += n
		delete(in.dropped, reason)
	}
	return events
}

// close makes every later put a no-op.
func (in *inbox) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
}

// poke lets the reader look.
func (in *inbox) poke() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}
