package gossip

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A member is isolated when it has not reached most of the members for half a
// minute, however many others are with it; those that left are no members, and
// those that failed long ago are none for who reached most all along.
func TestLog_majority(t *testing.T) {
	names := []string{"b", "c", "d", "e", "f"}
	for _, tc := range []struct {
		name    string
		members int // with this one
		down    int
		left    bool
		up      int // new members, later
		want    SyncState
	}{
		{"1 of 2", 2, 1, false, 0, SyncIsolated},
		{"2 of 3", 3, 1, false, 0, SyncSynced},
		{"1 of 3", 3, 2, false, 0, SyncIsolated},
		{"2 of 4", 4, 2, false, 0, SyncIsolated},
		{"3 of 4", 4, 1, false, 0, SyncSynced},
		{"2 of 5", 5, 3, false, 0, SyncIsolated},
		{"3 of 5", 5, 2, false, 0, SyncSynced},
		{"2 of 5, the others have left", 5, 3, true, 0, SyncSynced},
		{"2 of 5, and one more", 5, 3, false, 1, SyncIsolated},
		{"2 of 5, and two more", 5, 3, false, 2, SyncSynced},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
			now := time.Duration(0)
			pass := func(d time.Duration) {
				for end := now + d; now < end; {
					now += time.Second
					c.tick(now)
				}
			}
			pass(time.Minute)
			for _, n := range names[:tc.members-1] {
				c.peerUp(now, n, 2)
			}
			pass(time.Minute)
			for _, n := range names[:tc.down] {
				c.peerDown(now, n, tc.left)
			}
			pass(isolatedAfter - time.Second)
			if c.state != SyncSynced {
				t.Errorf("after %v it is %s", isolatedAfter-time.Second, c.state)
			}
			pass(time.Second)
			for i := range tc.up {
				c.peerUp(now, fmt.Sprint("new", i), 9)
			}
			if c.tick(now); c.state != tc.want {
				t.Errorf("after %v it is %s, want %s", isolatedAfter, c.state, tc.want)
			}
			pass(2 * keepFailed) // waiting changes nothing
			if c.state != tc.want {
				t.Errorf("after two days it is %s, want %s", c.state, tc.want)
			}
		})
	}
}

// Members that crash one after the other and are replaced under other names
// don't add up to a majority that is out of reach; nor are they kept forever.
func TestLog_majorityAmongNewNames(t *testing.T) {
	c := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	now := time.Second
	c.peerUp(now, "p0", 1)
	c.peerUp(now, "p1", 1)
	for i := 2; i < 100; i++ {
		for range 45 * 60 {
			now += time.Second
			c.tick(now)
		}
		c.peerDown(now, fmt.Sprint("p", i-2), false)
		c.peerUp(now, fmt.Sprint("p", i), 1)
		if c.tick(now); c.state != SyncSynced {
			t.Fatalf("after %d replacements it is %s", i-1, c.state)
		}
	}
	if n := len(c.peers); n > 40 {
		t.Errorf("%d members are known", n)
	}
}

// splitTime is how long two of five may take to find the other three failed. At the
// worst a probe comes to the second of them only after those of all others, which
// each take an interval, and the library stretches that as probes fail (up to
// eight times); and then the suspicion lasts its 12 s, unless the other one of the
// two, the only one that can, confirms it. Half of 100 splits took less than 9 s, and the
// longest 18 s.
const splitTime = 40 * time.Second

// Two of five are cut off together. They reach each other, so they are in step
// with somebody; nevertheless what they store is not trusted after half a minute,
// and, once the others are back, not before they know what was purged.
func TestBubble_minorityIsIsolated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(11)}
		defer b.stop()
		var mu sync.Mutex
		var got [5]applied
		var id string // of the purge that the two miss
		healed := false
		for i := range 5 {
			b.start(i, func(c *Config) {
				got[i].take(c)
				c.OnSync = func(s SyncState) {
					mu.Lock()
					defer mu.Unlock()
					if i < 2 && healed && s == SyncSynced && !got[i].has(id) {
						t.Errorf("n%03d is in step again without what was purged meanwhile", i)
					}
				}
			})
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, 5) })
		b.until(10*time.Second, "all in step", func() bool {
			for _, n := range b.nodes {
				if n.Sync() != SyncSynced {
					return false
				}
			}
			return true
		})
		small, large := b.nodes[:2], b.nodes[2:]
		minority := func(ip string) bool { return ip == b.ip(0) || ip == b.ip(1) }
		b.net.part(func(from, to string) bool { return minority(from) != minority(to) })
		took := b.until(isolatedAfter+splitTime, "both are isolated", func() bool {
			return small[0].Sync() == SyncIsolated && small[1].Sync() == SyncIsolated
		})
		t.Logf("isolated %v after the split", took)
		if small[0].stateOf("n001") != StateAlive || small[1].stateOf("n000") != StateAlive {
			t.Error("they don't reach each other")
		}
		for _, n := range large {
			if n.Sync() != SyncSynced {
				t.Errorf("%s, of the majority, is %s", n.cfg.Name, n.Sync())
			}
		}
		s, err := large[0].Spread(Change{Kind: KindPurge, Tags: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		id, healed = s.ID(), true
		mu.Unlock()
		b.net.part(func(string, string) bool { return false })
		b.until(2*time.Minute, "all are in step again", func() bool {
			for i, n := range b.nodes {
				if n.Sync() != SyncSynced || !got[i].has(id) {
					return false
				}
			}
			return true
		})
	})
}
