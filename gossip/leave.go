package gossip

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// leaveWait is the time in which the others learn that this member is
// draining, so that its going is not taken for a failure.
const leaveWait = 300 * time.Millisecond

// farewells is how many members are told at once that this one has left.
const farewells = 32

// Leave tells the others that this member leaves, and waits for up to timeout
// until they have heard. Afterwards only Close is of use.
//
// Membership spreads the news by chance, and with a cluster of 64 one leave in
// fifty is missed by some member, which then takes up to 50 s to find out what
// has become of this one. So each member is told by stream as well, which
// arrives unless that member is cut off or gone itself; it is logged who was
// not told. The last word is final, see [core.farewell].
func (g *Gossip) Leave(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	g.Draining()
	select {
	case <-time.After(min(leaveWait, timeout/2)):
	case <-g.done:
		return errClosed
	}
	g.stopping.Lock()
	defer g.stopping.Unlock()
	if g.closed {
		return errClosed
	}
	if g.left.Swap(true) {
		return nil
	}
	told := g.farewell()
	if err := g.list.Leave(max(time.Until(deadline), time.Millisecond)); err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	select {
	case <-told:
	case <-time.After(max(time.Until(deadline), time.Millisecond)):
		g.log.Warn("not every member has heard in time that this one leaves: those that have not will find it failed")
	}
	return nil
}

// farewell sends our last words to every member, and closes the channel that
// it returns when all have them or cannot be reached.
func (g *Gossip) farewell() (told chan struct{}) {
	var payload []byte
	var to []string
	g.do(func(time.Duration) { payload, to = g.core.leave() })
	told = make(chan struct{})
	names := make(chan string, len(to))
	for _, name := range to {
		names <- name
	}
	close(names)
	var mu sync.Mutex
	var missed []string
	var running sync.WaitGroup
	for range min(farewells, len(to)) {
		running.Go(func() {
			for name := range names {
				g.mu.Lock()
				node := g.nodes[name]
				g.mu.Unlock()
				if err := g.list.SendReliable(node, payload); err != nil {
					mu.Lock()
					missed = append(missed, name)
					mu.Unlock()
				}
			}
		})
	}
	g.wg.Go(func() {
		defer close(told)
		running.Wait()
		if len(missed) > 0 && g.ctx.Err() == nil {
			slices.Sort(missed)
			g.log.Warn("these members could not be told that this one leaves: they will find it failed", "members", missed)
		}
	})
	return told
}
