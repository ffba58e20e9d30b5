package gossip

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBubble_silentPeersHoldNobodyUp: most members are cut off, so that a
// stream to each of them takes three seconds to fail. What those that are left
// say to each other does not wait for that: with eight senders for all streams
// they took each other for silent.
func TestBubble_silentPeersHoldNobodyUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, left = 24, 3
		b := &bubble{t: t, net: newMemNet(8)}
		defer b.stop()
		for i := range size {
			b.start(i, nil)
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, size) })
		here := map[string]bool{}
		for i := range left {
			here[b.ip(i)] = true
		}
		b.net.part(func(from, to string) bool { return here[from] != here[to] })
		for range 70 {
			(&bubble{nodes: b.nodes[:left]}).store(60) // more than a packet holds
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for _, n := range b.nodes[:left] {
				for _, m := range b.nodes[:left] {
					if s := n.stateOf(m.cfg.Name); s != StateAlive {
						t.Fatalf("%s holds %s for %s", n.cfg.Name, m.cfg.Name, s)
					}
				}
			}
		}
	})
}
