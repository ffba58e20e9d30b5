package gossip

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// applied notes what a member of a bubble has applied.
type applied struct {
	mu  sync.Mutex
	ids []string
}

func (a *applied) take(c *Config) {
	c.OnChange = func(ch Change) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ids = append(a.ids, ch.ID)
	}
}

func (a *applied) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.ids, id)
}

// A change is waited for until a member is found to have failed; it is told in
// the order in which that is known, and that the member has applied it when
// it is back, as the same process or as another one.
func TestSpreading_followsAMemberThatIsBack(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &bubble{t: t, net: newMemNet(5)}
				defer b.stop()
				var got applied
				for i := range 3 {
					b.start(i, func(c *Config) {
						if i == 2 {
							got.take(c)
						}
					})
				}
				b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, 3) })
				a, away := b.nodes[0], b.nodes[2]
				cut := func(from, to string) bool { return (from == b.ip(2)) != (to == b.ip(2)) }
				b.net.part(cut)
				if restarted {
					away.stop()
					b.nodes = b.nodes[:2]
				}

				// It is not known to be away yet.
				first, err := a.Spread(Change{Kind: KindPurge, Tags: []string{"x"}})
				if err != nil {
					t.Fatal(err)
				}
				var order []string
				first.Follow(t.Context(), func(m MemberProgress) {
					order = append(order, fmt.Sprintf("%s applied=%v gone=%v", m.Name, m.Applied, m.Gone))
				})
				if want := []string{"n001 applied=true gone=false", "n002 applied=false gone=true"}; !slices.Equal(order, want) {
					t.Errorf("told %q, want %q", order, want)
				}

				// And now it is.
				second, err := a.Spread(Change{Kind: KindPurge, Tags: []string{"y"}})
				if err != nil {
					t.Fatal(err)
				}
				second.Wait(t.Context())
				if m := second.Members(); !m[0].Applied || m[1].Applied || !m[1].Gone {
					t.Errorf("after the wait: %+v", m)
				}
				if got.has(first.ID()) || got.has(second.ID()) {
					t.Error("a member that is away has applied what it can't know")
				}

				b.net.part(func(string, string) bool { return false })
				if restarted {
					b.start(2, got.take)
				}
				b.until(2*time.Minute, "it has applied both", func() bool { return got.has(first.ID()) && got.has(second.ID()) })
				b.until(5*time.Second, "and that is known", func() bool {
					return first.Members()[1].Applied && second.Members()[1].Applied
				})
				if f, s := first.Members()[1], second.Members()[1]; f.Gone || s.Gone || f.After < time.Second || s.After <= 0 {
					t.Errorf("back: %+v, %+v", f, s)
				}
				order = nil
				first.Follow(t.Context(), func(m MemberProgress) { order = append(order, m.Name) })
				if len(order) != 3 {
					t.Errorf("who asks later is told of %q", order)
				}
				a.changes.mu.Lock()
				if n := len(a.changes.waiting); n != 0 {
					t.Errorf("acknowledgements of %d members are still waited for", n)
				}
				a.changes.mu.Unlock()
			})
		})
	}
}

// What is waited for is bounded: of a member that stays away, the last 4096
// changes; of one that left, nothing.
func TestSpreading_isBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(6)}
		defer b.stop()
		for i := range 3 {
			b.start(i, nil)
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, 3) })
		a, failed, left := b.nodes[0], b.nodes[1], b.nodes[2]
		failed.stop()
		b.nodes = []*testNode{a, left}
		b.until(time.Minute, "one is found dead", func() bool { return a.stateOf("n001") == StateFailed })
		spread := func() *Spreading {
			s, err := a.Spread(Change{Kind: KindPurge, Tags: []string{"x"}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first := spread()
		for range maxProgress {
			spread()
		}
		last := spread()
		last.Wait(t.Context())
		waits := func(name string) int {
			a.changes.mu.Lock()
			defer a.changes.mu.Unlock()
			return len(a.changes.waiting[name])
		}
		if n := waits("n001"); n != maxProgress {
			t.Errorf("%d changes are kept for a member that is away, want %d", n, maxProgress)
		}
		if a.Find(first.ID()) != nil || a.Find(last.ID()) != last {
			t.Error("not the last are found")
		}
		if err := left.Leave(2 * time.Second); err != nil {
			t.Fatal(err)
		}
		b.until(10*time.Second, "the other has left", func() bool { return a.stateOf("n002") == StateLeft })
		synctest.Wait()
		if n := waits("n002"); n != 0 {
			t.Errorf("%d changes are kept for a member that has left", n)
		}
	})
}
