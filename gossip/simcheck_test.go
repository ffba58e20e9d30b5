package gossip

import (
	"fmt"
	"time"

	"edged/peerfilter"
)

// checker holds what must be true of a simulated cluster at any time, and what
// is measured of it.
type checker struct {
	past      map[uint64]*simLife // by boot
	sent      int                 // messages
	sentBytes int
	delays    []time.Duration // flush to applied
	repairs   []time.Duration // gap noticed to gap filled, undisturbed ones
	mended    []time.Duration // flipped bit found to replica equal again
	seen      map[*replica]simSeen
	disturbed time.Duration // when a partition last began or ended
	checks    int
	steps     int
	errs      []string
}

// simLife is what one process of a node has published: the set-hash of every
// state that a peer may hold.
type simLife struct {
	node  string
	parts [][][]simState // by partition, epoch less one, sequence number
}

type simState struct {
	hash  uint64
	at    time.Duration
	known bool
}

// simSeen is where a replica was when it was last looked at.
type simSeen struct {
	epoch uint32
	seq   uint64
	gap   time.Duration // when its gap was noticed, 0: it has none
}

func newChecker() checker {
	return checker{past: map[uint64]*simLife{}, seen: map[*replica]simSeen{}}
}

func (s *sim) fail(format string, args ...any) {
	if len(s.errs) < 5 {
		s.errs = append(s.errs, fmt.Sprintf("%v: ", s.now)+fmt.Sprintf(format, args...))
	}
}

// begin notes that a process of a node has begun.
func (s *sim) begin(n *simNode) {
	s.past[n.core.cfg.boot] = &simLife{n.name, make([][][]simState, len(s.parts))}
}

// checkSelf notes what a node publishes, and fails when anything of its own
// has outgrown its bounds.
func (s *sim) checkSelf(n *simNode) {
	life := s.past[n.core.cfg.boot]
	for i, st := range n.core.streams {
		for len(life.parts[i]) < int(st.epoch) {
			life.parts[i] = append(life.parts[i], nil)
		}
		states := &life.parts[i][st.epoch-1]
		for len(*states) <= int(st.seq) {
			*states = append(*states, simState{})
		}
		if last := &(*states)[st.seq]; !last.known {
			*last = simState{st.hash, s.now, true}
		}
		if len(st.log) > 0 && (st.logBytes > st.maxLog() || s.now-st.log[0].at > logTime+2*n.core.flushInterval()) {
			s.fail("%s keeps %d bytes of log, the oldest record of %v", n.name, st.logBytes, st.log[0].at)
		}
		if len(st.log) != int(st.seq-st.floor) {
			s.fail("%s has %d records in its log of %d to %d", n.name, len(st.log), st.floor, st.seq)
		}
	}
	s.steps++
	for i, p := range n.core.peers {
		if i%16 != s.steps%16 {
			continue
		}
		if at := n.core.peerDeadline(p); at < n.core.nextPeer || at < p.due {
			s.fail("%s has something to do for %s at %v, and looks at it at %v", n.name, p.name, at, min(n.core.nextPeer, p.due))
		}
	}
	if n.core.snapshotsRunning < 0 || n.core.snapshotsRunning > maxSnapshotsIn {
		s.fail("%s runs %d snapshots", n.name, n.core.snapshotsRunning)
	}
}

// checkReplicas fails when a node holds anything of a peer that this process
// of the peer never published: every missing key must be explained by the
// time that news take.
func (s *sim) checkReplicas(n *simNode, peer string) {
	_, p := n.core.find(peer)
	if p == nil {
		return
	}
	for i, r := range p.replicas {
		if len(r.stash) > maxStash || r.stashBytes > maxStashBytes {
			s.fail("%s stashes %d records of %s", n.name, len(r.stash), peer)
		}
		if !r.synced || n.flips > 0 && (r.state == ReplicaDiverged || r.state == ReplicaQuarantine) {
			continue
		}
		was := s.seen[r]
		if was.epoch != r.epoch || was.seq != r.seq {
			s.checkState(n, p, i, r)
			if r.state == ReplicaLive && was.epoch == r.epoch && n.flips == 0 {
				states := s.past[p.meta.boot].parts[i][r.epoch-1]
				for q := was.seq + 1; q <= r.seq && q < uint64(len(states)); q++ {
					if states[q].known && !s.troubled(n, peer, states[q].at) {
						s.delays = append(s.delays, s.now-states[q].at)
					}
				}
			}
		}
		gap := was.gap
		switch {
		case r.state == ReplicaGap && gap == 0:
			gap = s.now
		case r.state != ReplicaGap && gap != 0:
			if !s.troubled(n, peer, gap) {
				s.repairs = append(s.repairs, s.now-gap)
			}
			gap = 0
		}
		if r.state == ReplicaLive || gap != was.gap {
			s.seen[r] = simSeen{r.epoch, r.seq, gap}
		}
	}
}

// checkState compares a replica with what was published under its numbers; now
// and then also its bits with its set-hash.
func (s *sim) checkState(n *simNode, p *peer, i int, r *replica) {
	life := s.past[p.meta.boot]
	switch {
	case life == nil || life.node != p.name:
		s.fail("%s believes %s to have boot %x", n.name, p.name, p.meta.boot)
		return
	case n.flips > 0:
		return
	case int(r.epoch) > len(life.parts[i]) || r.epoch == 0 || r.seq >= uint64(len(life.parts[i][r.epoch-1])):
		s.fail("%s holds epoch %d seq %d of %s/%d, which is not published yet", n.name, r.epoch, r.seq, p.name, i)
		return
	}
	if want := life.parts[i][r.epoch-1][r.seq]; !want.known || want.hash != r.hash {
		s.fail("%s holds a state of %s/%d that it never had: epoch %d seq %d", n.name, p.name, i, r.epoch, r.seq)
	}
	if s.checks++; s.checks%64 == 0 {
		if recounted, kept, err := n.core.replicas[i].Audit(p.name); err != nil || recounted != kept || kept != r.hash {
			s.fail("%s: the bits of %s/%d have hash %x, kept is %x, the core has %x (%v)", n.name, p.name, i, recounted, kept, r.hash, err)
		}
	}
}

// troubled reports whether either side of a replica was disturbed after since,
// or up to six seconds before it.
func (s *sim) troubled(n *simNode, peer string, since time.Duration) bool {
	return max(n.disturbed, s.byName[peer].disturbed, s.disturbed)+6*time.Second >= since
}

// checkGone fails when a member that is dead, or has left, is still looked up,
// or if it is held for longer than it may.
func (s *sim) checkGone(n *simNode, peer string) {
	_, p := n.core.find(peer)
	if p == nil || p.reachable() {
		return
	}
	for i := range p.replicas {
		if n.core.replicas[i].Lookup(peerfilter.Hash{}).Known(peer) {
			s.fail("%s looks up %s, which is %s", n.name, peer, p.state)
		}
		_, err := n.core.replicas[i].Bits(peer)
		if err == nil && (p.state == StateLeft || s.now > p.changed+keepDead+2*time.Second) {
			s.fail("%s holds the bits of %s, which is %s since %v", n.name, peer, p.state, p.changed)
		}
	}
}

// sweep checks of all members what time alone may break.
func (s *sim) sweep() {
	for _, n := range s.nodes {
		if !n.up {
			continue
		}
		for _, p := range n.core.peers {
			s.checkGone(n, p.name)
			for _, r := range p.replicas {
				if gap := s.seen[r].gap; r.state == ReplicaGap && gap != 0 && s.now > gap+maxRepair && !s.troubled(n, p.name, gap) {
					s.fail("%s misses records of %s since %v", n.name, p.name, gap)
				}
			}
		}
	}
	s.after(3*time.Second, s.sweep)
}

// maxRepair bounds a gap: the wait for reordered records, pulls of up to 33 ms,
// and a flush of 64 members' clusters.
const maxRepair = 2 * time.Second

// differences counts the bits in which live replicas differ from what their
// members published, and the replicas that are not live.
func (s *sim) differences() (bits, missing int) {
	for _, m := range s.nodes {
		if !m.up {
			continue
		}
		for i := range s.parts {
			var tr peerfilter.Transitions
			shadow := peerfilter.NewShadow(m.filters[i])
			for shadow.Diff(&tr) {
			}
			want := bitmap(tr.Set, int(shadow.Params().Bits()/64))
			for _, n := range s.nodes {
				if n == m || !n.up {
					continue
				}
				_, p := n.core.find(m.name)
				if p == nil || p.replicas[i].state != ReplicaLive || !p.replicas[i].known {
					missing++
					continue
				}
				got, err := n.core.replicas[i].Bits(m.name)
				if err != nil || len(got) != len(want) {
					missing++
					continue
				}
				for w := range got {
					for x := got[w] ^ want[w]; x != 0; x &= x - 1 {
						bits++
					}
				}
			}
		}
	}
	return bits, missing
}
