package gossip

import (
	"fmt"
	"testing"
	"time"
)

// TestSim_rollingChange: what operators do to a running cluster, each by
// itself, while it stores and evicts and one message in ten is lost. What holds
// at any time is checked all along (simcheck_test.go); here is what each change
// must lead to, and that afterwards all replicas are live and equal bit for bit.
func TestSim_rollingChange(t *testing.T) {
	const at = 6 * time.Second // every replica is live by then
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, s *sim)
	}{
		{"filter parameters, one member after the other", func(t *testing.T, s *sim) {
			for i, n := range s.nodes {
				s.after(time.Duration(i)*time.Second, func() {
					for part, p := range s.parts {
						p.Params.Blocks *= 2
						s.publish(n, part, p.Params)
					}
					s.step(n)
				})
			}
			s.run(at + 12*time.Second)
			for _, n := range s.nodes {
				for _, p := range n.core.peers {
					if got := p.replicas[0].params.Blocks; got != 2*s.parts[0].Params.Blocks {
						t.Errorf("%s holds %d blocks of %s", n.name, got, p.name)
					}
				}
			}
		}},
		{"epochs in quick succession", func(t *testing.T, s *sim) {
			n := s.nodes[2]
			for i := range 20 {
				s.after(time.Duration(i)*70*time.Millisecond, func() {
					s.publish(n, i%2, s.parts[i%2].Params)
					s.step(n)
				})
			}
			s.run(at + 12*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && (p.replicas[0].epoch != 11 || p.replicas[1].epoch != 11) {
					t.Errorf("%s is at epochs %d and %d", m.name, p.replicas[0].epoch, p.replicas[1].epoch)
				}
			}
		}},
		{"a new epoch keeps the old bits in use until it is there", func(t *testing.T, s *sim) {
			n, gone := s.nodes[2], 0
			s.publish(n, 0, s.parts[0].Params)
			s.step(n)
			for range 200 {
				s.run(s.now + 10*time.Millisecond)
				for _, m := range s.nodes {
					if _, p := m.core.find(n.name); p != nil && !p.replicas[0].known {
						gone++
					}
				}
			}
			if gone > 0 {
				t.Errorf("%d times it was not looked up", gone)
			}
		}},
		{"a restart with another size", func(t *testing.T, s *sim) {
			n := s.nodes[2]
			s.crash(n)
			s.after(300*time.Millisecond, func() {
				s.startNode(n)
				for part, p := range s.parts {
					p.Params.Blocks *= 4
					s.publish(n, part, p.Params)
				}
				s.step(n)
			})
			s.run(at + 12*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && p.replicas[1].params.Blocks != 4*s.parts[1].Params.Blocks {
					t.Errorf("%s holds %d blocks", m.name, p.replicas[1].params.Blocks)
				}
			}
		}},
		{"drain and leave", func(t *testing.T, s *sim) {
			n := s.nodes[2]
			s.leave(n)
			s.run(at + 900*time.Millisecond) // it serves still, but nobody asks it any more
			if !n.up {
				t.Fatal("it is gone already")
			}
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && (p.replicas[0].known || p.replicas[0].synced) {
					t.Errorf("%s looks it up", m.name)
				}
			}
			s.run(at + 8*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && p.state != StateLeft {
					t.Errorf("%s takes it for %s", m.name, p.state)
				}
			}
			s.run(at + keepLeft + 10*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil {
					t.Errorf("%s has it in its list still", m.name)
				}
			}
		}},
		{"leave and come back", func(t *testing.T, s *sim) {
			n := s.nodes[2]
			s.leave(n)
			s.after(2500*time.Millisecond, func() { s.startNode(n) })
			s.run(at + 12*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && p.state != StateAlive {
					t.Errorf("%s takes it for %s", m.name, p.state)
				}
			}
		}},
		{"a name used again before its bearer is found dead", func(t *testing.T, s *sim) {
			n := s.nodes[2]
			boots := map[uint64]bool{}
			for i := range 5 {
				s.after(time.Duration(i)*400*time.Millisecond, func() {
					boots[n.core.cfg.boot] = true
					s.crash(n)
					s.after(50*time.Millisecond, func() { s.startNode(n) })
				})
			}
			s.run(at + 15*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && (boots[p.meta.boot] || p.meta.boot != n.core.cfg.boot) {
					t.Errorf("%s holds a predecessor's bits", m.name)
				}
			}
		}},
		{"a restart with the clock set back", func(t *testing.T, s *sim) {
			// Nothing is in order by a clock: of the two processes the later
			// one has the lower boot, lower epochs, and lower numbers.
			n := s.nodes[2]
			for range 5 {
				s.publish(n, 0, s.parts[0].Params)
			}
			s.step(n)
			s.run(at + 4*time.Second)
			old := n.core
			s.crash(n)
			s.boot = 1
			s.startNode(n)
			s.boot = 0
			if n.core.cfg.boot >= old.cfg.boot || n.core.streams[0].epoch >= old.streams[0].epoch {
				t.Fatal("it is no step back")
			}
			s.run(at + 12*time.Second)
			for _, m := range s.nodes {
				if _, p := m.core.find(n.name); p != nil && (p.meta.boot != 1 || p.replicas[0].epoch != 1) {
					t.Errorf("%s holds boot %x epoch %d", m.name, p.meta.boot, p.replicas[0].epoch)
				}
			}
		}},
	} {
		for _, seed := range seeds() {
			t.Run(fmt.Sprintf("%s/seed=%d", tc.name, seed), func(t *testing.T) {
				s := newSim(seed, 6, 0.1)
				s.run(at)
				s.sweep()
				for _, n := range s.nodes {
					for _, p := range n.core.peers {
						if !p.replicas[0].known || !p.replicas[1].known || len(n.core.peers) != len(s.nodes)-1 {
							t.Fatalf("at the start %s does not look up %s", n.name, p.name)
						}
					}
				}
				tc.do(t, s)
				s.calm, s.loss = true, 0.05
				s.run(s.now + 5*time.Second)
				s.report(t, seed)
			})
		}
	}
}
