package gossip

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/peerfilter"
)

var bubbleCycles = flag.Int("bubble.cycles", 60, "members that join and leave, one after the other, while three stay")

var bubbleNodes = flag.Int("bubble.nodes", 16, "members in the bubble in which everything happens")

// allAlive reports whether every one of the nodes holds want members for alive.
func allAlive(nodes []*testNode, want int) bool {
	for _, n := range nodes {
		alive := 0
		for _, m := range *n.members.Load() {
			if m.State == StateAlive {
				alive++
			}
		}
		if alive != want {
			return false
		}
	}
	return true
}

// equalHashes reports whether every one of the nodes holds what every other one
// has published last, by their set-hashes.
func equalHashes(nodes []*testNode) bool {
	published := map[string]map[string]uint64{}
	stats := make([]Stats, len(nodes))
	for i, n := range nodes {
		stats[i] = n.Stats()
		of := map[string]uint64{}
		for _, s := range stats[i].Streams {
			of[s.Partition] = s.SetHash
		}
		published[n.cfg.Name] = of
	}
	for _, s := range stats {
		equal := 0
		for _, r := range s.Replicas {
			if of, up := published[r.Member]; up {
				if r.State != ReplicaLive || !r.Known || r.SetHash != of[r.Partition] {
					return false
				}
				equal++
			}
		}
		if equal != (len(nodes)-1)*len(s.Streams) {
			return false
		}
	}
	return true
}

// store adds keys that no other call adds to everyone's filters.
func (b *bubble) store(n int) {
	for _, node := range b.nodes {
		for part := range node.filters {
			for range n {
				node.filters[part].Add(peerfilter.Hash{rand.Uint64(), rand.Uint64()})
			}
		}
	}
}

// remove takes nodes out of the list; they are stopped or about to be.
func (b *bubble) remove(n int) []*testNode {
	last := b.nodes[len(b.nodes)-n:]
	b.nodes = b.nodes[:len(b.nodes)-n]
	return last
}

// newsTime is how long it may take until every member knows of a change that
// everybody can be told of, though some news of it got lost: the member that
// missed them hears the one that they are about within a second, asks after
// newsWait with its next message, and has the answer at once. That is 2 s, and
// 2 s more if two of these messages are lost. Four of them in a row are lost
// once in 10^8.
const newsTime = 5 * time.Second

// joinTime is how long a member may take until everyone holds it for alive: its
// first try and, if that was lost, a second one a second and a half later at
// the most; then newsTime; and as much again for those that start with it.
const joinTime = 10 * time.Second

// TestBubble_lifeOfACluster: real membership joins, is steady, is split,
// heals, grows together again, is left by some and loses others.
func TestBubble_lifeOfACluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		size := *bubbleNodes
		b := &bubble{t: t, net: newMemNet(1)}
		defer b.stop()
		b.net.loss = 0.01
		all := func(within time.Duration, what string) {
			t.Helper()
			defer func() {
				if t.Failed() {
					for _, n := range b.nodes {
						for _, m := range n.Members() {
							if m.State != StateAlive {
								t.Logf("%s holds %s for %s", n.cfg.Name, m.Name, m.State)
							}
						}
					}
				}
			}()
			members := b.until(within, what, func() bool { return allAlive(b.nodes, len(b.nodes)) })
			replicas := b.until(40*time.Second, what+", replicas", func() bool { return equalHashes(b.nodes) })
			t.Logf("%s: members after %v, replicas after %v", what, members, members+replicas)
		}
		for i := range size {
			b.start(i, nil)
		}
		all(joinTime, "join")

		b.store(20)
		time.Sleep(time.Second) // until all have published it
		all(newsTime, "change")
		// A member is suspected after three lost heads in a row: one in a
		// million, and with 64 members each telling 63 others every second this
		// happens once in four minutes somewhere. It is over with the next head.
		before := b.suspicions()
		time.Sleep(30 * time.Second)
		if n := b.suspicions() - before; n > uint64(size/16) {
			t.Errorf("in half a minute of peace %d are suspected", n)
		}
		all(newsTime, "peace")

		began := time.Now()
		newcomer := b.start(size, nil)
		first := b.until(5*time.Second, "one replica of the newcomer's is used", func() bool { return newcomer.known() > 0 })
		b.until(5*time.Second, "all of them are", func() bool { return newcomer.known() == 2*size })
		t.Logf("a member more: its first replica is used %v after it has joined, all %v after its start", first, time.Since(began))
		for _, n := range b.remove(1) {
			n.Leave(time.Second)
			n.stop()
		}
		all(newsTime, "it leaves")

		half := map[string]bool{}
		for i := range size / 2 {
			half[b.ip(i)] = true
		}
		b.net.part(func(from, to string) bool { return half[from] != half[to] })
		took := b.until(40*time.Second, "the halves lose each other", func() bool { return allAlive(b.nodes, size/2) })
		t.Logf("split: noticed after %v", took)
		b.store(20)
		time.Sleep(keepDead + 5*time.Second) // so that snapshots are needed
		b.net.part(func(string, string) bool { return false })
		all(25*time.Second, "heal")

		for _, n := range b.remove(size / 8) {
			if err := n.Leave(2 * time.Second); err != nil {
				t.Error(err)
			}
			n.stop()
		}
		all(newsTime, "leave")
		crashed := b.remove(size / 4)
		for _, n := range crashed {
			n.stop()
		}
		// A dead member is probed by one of the living within a second, the probe
		// takes up to 4 s, and the suspicion lasts 3.6 s when two others confirm
		// it and six times as long, 21.7 s, when nobody does.
		took = b.until(30*time.Second, "the crashed are found dead", func() bool {
			for _, m := range b.nodes {
				if s := m.Stats(); s.Members[StateFailed] != len(crashed) {
					return false
				}
			}
			return true
		})
		t.Logf("crash: found by everyone after %v", took)
		all(newsTime, "crash")
		from := len(b.nodes)
		for i := range size / 4 {
			b.start(from+i, nil) // the crashed ones' names, and those of some that left
		}
		all(joinTime, "restart")

		if !converged(b.nodes) {
			t.Error("set-hashes are equal and bits are not")
		}
		for _, n := range b.nodes {
			if s := n.Stats(); s.Diverged > 0 {
				t.Errorf("%s: %d diverged", n.cfg.Name, s.Diverged)
			}
		}
	})
}

// known is how many replicas look-ups use.
func (n *testNode) known() (count int) {
	for _, r := range n.Stats().Replicas {
		if r.Known {
			count++
		}
	}
	return count
}

func (b *bubble) suspicions() (sum uint64) {
	for _, n := range b.nodes {
		sum += n.Stats().Suspicions
	}
	return sum
}

// TestBubble_withoutRejoinNeverHeals: membership forgets the dead, so only our
// own loop makes a healed partition grow together.
func TestBubble_withoutRejoinNeverHeals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 10
		b := &bubble{t: t, net: newMemNet(1)}
		defer b.stop()
		for i := range size {
			b.start(i, func(c *Config) { c.noRejoin = true })
		}
		b.until(20*time.Second, "all joined", func() bool { return allAlive(b.nodes, size) })
		half := map[string]bool{}
		for i := range size / 2 {
			half[b.ip(i)] = true
		}
		b.net.part(func(from, to string) bool { return half[from] != half[to] })
		b.until(40*time.Second, "the halves lose each other", func() bool { return allAlive(b.nodes, size/2) })
		time.Sleep(90 * time.Second)
		b.net.part(func(string, string) bool { return false })
		time.Sleep(10 * time.Minute)
		if !allAlive(b.nodes, size/2) {
			t.Error("it healed by itself: is the rejoin loop still needed?")
		}
	})
}

// TestBubble_newsThatGotLost: b never hears that c has joined. It is silent to
// c, and so c turns to it.
func TestBubble_newsThatGotLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(4)}
		defer b.stop()
		b.start(0, nil)
		b.start(1, nil)
		b.until(10*time.Second, "two members", func() bool { return allAlive(b.nodes, 2) })
		deaf := b.ip(1)
		b.net.part(func(from, to string) bool { return to == deaf })
		b.start(2, nil)
		time.Sleep(1200 * time.Millisecond)
		b.net.part(func(string, string) bool { return false })
		took := b.until(10*time.Second, "three members", func() bool { return allAlive(b.nodes, 3) })
		t.Logf("after %v", took)
	})
}

// TestBubble_seedsAreLookedUpAgain: the name in cluster.join is not known at
// first, then leads to a host that is gone, then to a member; and when all
// members known so far have gone, to others.
func TestBubble_seedsAreLookedUpAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(9)}
		defer b.stop()
		var mu sync.Mutex
		var answer []string
		lookups := 0
		says := func(ips ...string) {
			mu.Lock()
			defer mu.Unlock()
			answer = ips
		}
		byName := func(c *Config) {
			c.Join = []string{"members.example:7946"}
			c.lookup = func(_ context.Context, host string) ([]string, error) {
				mu.Lock()
				defer mu.Unlock()
				lookups++
				if host != "members.example" || answer == nil {
					return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
				}
				return answer, nil
			}
		}
		b.start(0, nil)
		b.start(1, byName)
		time.Sleep(10 * time.Second)
		mu.Lock()
		if len(b.nodes[1].Members()) != 1 || lookups < 2 {
			t.Errorf("%d members after %d look-ups of nothing", len(b.nodes[1].Members()), lookups)
		}
		mu.Unlock()
		says(b.ip(99))
		time.Sleep(30 * time.Second)
		says(b.ip(99), b.ip(0))
		took := b.until(30*time.Second, "two members", func() bool { return allAlive(b.nodes, 2) })
		t.Logf("joined %v after the name led to a member", took)

		// The first member is replaced by another at another address.
		b.nodes[0].stop()
		b.nodes = b.nodes[1:]
		b.until(30*time.Second, "the first is found dead", func() bool { return b.nodes[0].stateOf("n000") == StateFailed })
		b.start(2, func(c *Config) { c.Join = nil })
		says(b.ip(2))
		took = b.until(30*time.Second, "two members again", func() bool { return allAlive(b.nodes, 2) })
		t.Logf("joined %v after the name led to another member", took)
	})
}

// TestBubble_joinsAndLeavesLeaveNothing: three members stay, others come and
// go, of twenty names and each a new process. Neither goroutines nor memory
// grow with the number of those that have been there.
func TestBubble_joinsAndLeavesLeaveNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const stay, names = 3, 20
		b := &bubble{t: t, net: newMemNet(10)}
		defer b.stop()
		for i := range stay {
			b.start(i, nil)
		}
		b.until(10*time.Second, "three members", func() bool { return allAlive(b.nodes, stay) })
		// What is left after the last timers and streams of who is gone.
		measure := func() (goroutines int, heap uint64) {
			time.Sleep(2 * keepLeft)
			synctest.Wait()
			for _, n := range b.nodes {
				if s := n.Stats(); len(n.Members()) != stay || len(s.Replicas) != 2*(stay-1) {
					t.Errorf("%s holds %d members and %d replicas", n.cfg.Name, len(n.Members()), len(s.Replicas))
				}
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), m.HeapAlloc
		}
		var goroutines int
		var heap uint64
		for i := range *bubbleCycles {
			n := b.start(stay+i%names, nil)
			b.until(joinTime, "it joins", func() bool { return allAlive(b.nodes, stay+1) })
			b.nodes = b.nodes[:stay:stay]
			if err := n.Leave(2 * time.Second); err != nil {
				t.Error(err)
			}
			n.stop()
			b.until(newsTime, "it leaves", func() bool { return allAlive(b.nodes, stay) })
			for _, m := range b.nodes { // what is logged is not the matter
				m.logs.mu.Lock()
				m.logs.b.Reset()
				m.logs.mu.Unlock()
			}
			if i+1 == max(*bubbleCycles/5, names) {
				goroutines, heap = measure()
				t.Logf("%d goroutines and %d kB of heap after %d cycles", goroutines, heap>>10, i+1)
			}
		}
		g, h := measure()
		t.Logf("%d goroutines and %d kB of heap after %d cycles", g, h>>10, *bubbleCycles)
		if g > goroutines+2*stay || h > heap+heap/10+256<<10 {
			t.Errorf("%d goroutines and %d bytes of heap grew to %d and %d", goroutines, heap, g, h)
		}
	})
}
