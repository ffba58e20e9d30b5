package gossip

import "time"

// lose makes membership find from dead at to, after its time.
func (s *sim) lose(from, to *simNode) {
	life, toLife := from.life, to.life
	s.after(3*time.Second+s.upTo(2*time.Second), func() {
		if to.up && to.life == toLife && (!from.up || from.life == life && s.parted(from.id, to.id)) {
			to.core.memberDown(s.now, from.name)
			s.checkGone(to, from.name)
			s.step(to)
		}
	})
}

// crash ends a node; nobody is told.
func (s *sim) crash(n *simNode) {
	n.up = false
	n.life++
	n.disturbed = s.now
	for _, m := range s.nodes {
		if m.up {
			s.lose(n, m)
		}
	}
}

// leave ends a node as an operator does: it drains, and goes when the others
// have heard.
func (s *sim) leave(n *simNode) {
	n.core.drain(s.now)
	n.disturbed = s.now
	s.step(n)
	life := n.life
	s.after(time.Second, func() {
		if !n.up || n.life != life {
			return
		}
		n.up, n.gone = false, true
		n.life++
		n.disturbed = s.now
		for _, m := range s.nodes {
			if m.up {
				toLife := m.life
				s.after(50*time.Millisecond+s.upTo(500*time.Millisecond), func() {
					if m.up && m.life == toLife && !n.up && !s.parted(n.id, m.id) {
						m.core.memberDown(s.now, n.name)
						s.checkGone(m, n.name)
						s.step(m)
					}
				})
				s.lose(n, m) // for those that are parted from it
			}
		}
	})
}

// split parts the nodes below k from the others for d.
func (s *sim) split(k int, d time.Duration) {
	s.parted = func(a, b int) bool { return (a < k) != (b < k) }
	s.disturbed = s.now
	for _, a := range s.nodes {
		for _, b := range s.nodes {
			if a.up && b.up && s.parted(a.id, b.id) {
				s.lose(a, b)
			}
		}
	}
	s.after(d, func() {
		s.parted = func(int, int) bool { return false }
		s.disturbed = s.now
		for _, a := range s.nodes {
			for _, b := range s.nodes {
				if a != b && a.up && b.up && (a.id < k) != (b.id < k) {
					s.tell(a, b)
				}
			}
		}
	})
}

// flip changes one bit of a live replica of a live member behind the core's
// back.
func (s *sim) flip() {
	for _, n := range s.nodes {
		if !n.up || n.core.draining {
			continue
		}
		for _, p := range n.core.peers {
			if r := p.replicas[0]; s.byName[p.name].up && p.reachable() && r.synced && r.state == ReplicaLive {
				n.flips++
				flipBit(n.core, 0, p.name, uint32(s.rng.IntN(int(r.params.Bits()))))
				s.watchFlip(n, p.name, r, n.life, 0)
				return
			}
		}
	}
}

// watchFlip measures how long a replica with a flipped bit is out of use once
// it is found.
func (s *sim) watchFlip(n *simNode, peer string, r *replica, life int, found time.Duration) {
	switch {
	case n.life != life || s.troubled(n, peer, s.now):
		return
	case found == 0 && r.resyncs[resyncDiverged] > 0:
		found = s.now
	case found > 0 && r.state == ReplicaLive && r.known:
		s.mended = append(s.mended, s.now-found)
		return
	}
	s.after(10*time.Millisecond, func() { s.watchFlip(n, peer, r, life, found) })
}

// faults schedules what goes wrong within d: a partition, and for each of a
// part of the nodes a crash and restart, a filter of another size, a leave.
func (s *sim) faults(d time.Duration) {
	nodes := len(s.nodes)
	s.after(d/10, func() { s.split(nodes/3, d/4) })
	for i := range nodes / 4 {
		again := i%2 == 0 // it is started again, under the same name
		n := s.nodes[s.rng.IntN(nodes)]
		s.after(s.upTo(d*3/4), func() {
			if n.up && !n.core.draining {
				s.crash(n)
				if again {
					s.after(100*time.Millisecond+s.upTo(d/5), func() { s.startNode(n) })
				}
			}
		})
		m := s.nodes[s.rng.IntN(nodes)]
		s.after(s.upTo(d*3/4), func() {
			if m.up {
				part := s.rng.IntN(len(s.parts))
				p := s.parts[part].Params
				p.Blocks += uint32(s.rng.IntN(16))
				s.publish(m, part, p)
				s.step(m)
			}
		})
		l := s.nodes[1+s.rng.IntN(nodes-1)]
		s.after(s.upTo(d/2), func() {
			if l.up && !l.core.draining {
				s.leave(l)
				if again {
					s.after(2*time.Second+s.upTo(d/5), func() { s.startNode(l) })
				}
			}
		})
	}
	s.after(d*9/10, s.flip)
}
