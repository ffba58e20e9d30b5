package gossip

import (
	"math"
	"testing"
	"time"

	"edged/peerfilter"
)

// TestSim_staleness: what the time that news take costs. Members that hold
// 4 096 responses each store and evict 40 a second, one message in a hundred is
// lost, and all the while look-ups are sampled: of a response that a peer has,
// drawn from all of them, and of what nobody has.
//
// A response that a peer's replica does not show is a peer hit missed. With
// lambda stored a second and a flush each T, lambda T / 2n of n are unseen on
// average; twice that and 0.05 % for losses is the bound. Every one must
// be younger than the state that the replica holds, or the replica is wrong.
//
// A look-up of what nobody has that names a candidate is a peer request wasted.
func TestSim_staleness(t *testing.T) {
	const (
		seed   = 21
		n      = 4096
		lambda = 40.0
	)
	s := newSim(seed, *simNodes, 0.01)
	size, err := peerfilter.Size(n, 0.01, len(s.nodes)-1)
	if err != nil {
		t.Fatal(err)
	}
	s.parts = []Partition{{Name: "all", Params: size.Params}}
	s.load = simLoad{n, n, 2 * time.Duration(float64(time.Second)/lambda)}
	s.run(8 * time.Second)

	var sampled, missed, newest, newestMissed, absent, wasted, diverged int
	for range 200 {
		s.run(s.now + 50*time.Millisecond)
		for range 200 {
			a, b := s.nodes[s.rng.IntN(len(s.nodes))], s.nodes[s.rng.IntN(len(s.nodes))]
			if a == b {
				continue
			}
			has := func(h peerfilter.Hash) bool { return a.core.replicas[0].Lookup(h).Contains(b.name) }
			h := b.keys[0][s.rng.IntN(n)]
			sampled++
			if !has(h) {
				missed++
				_, p := a.core.find(b.name)
				r := p.replicas[0]
				if r.state == ReplicaLive && b.born[h] <= s.past[p.meta.boot].parts[0][r.epoch-1][r.seq].at {
					diverged++
				}
			}
			newest++
			if !has(b.keys[0][n-1-s.rng.IntN(64)]) {
				newestMissed++
			}
			absent++
			if a.core.replicas[0].Lookup(s.hash()).Len() > 0 {
				wasted++
			}
		}
	}
	flush := s.nodes[0].core.flushInterval()
	share := func(k, of int) float64 { return float64(k) / float64(of) }
	expected := lambda * flush.Seconds() / 2 / n
	bound := lambda*flush.Seconds()/n + 0.0005
	t.Logf("%d members, a flush each %v: of %d look-ups of what a peer has %.3f%% are missed, %.3f%% expected, bound %.3f%%; of its newest 64 %.1f%%; %d against the replica's state",
		len(s.nodes), flush, sampled, 100*share(missed, sampled), 100*expected, 100*bound, 100*share(newestMissed, newest), diverged)
	t.Logf("of %d look-ups of what nobody has %.2f%% name a candidate", absent, 100*share(wasted, absent))
	if len(s.errs) > 0 || diverged > 0 {
		t.Errorf("%d misses are not of the time that news take; %v", diverged, s.errs)
	}
	if m := share(missed, sampled); m > bound {
		t.Errorf("%.3f%% of what peers have is missed: more than %.3f%%", 100*m, 100*bound)
	}
	if m := share(missed, sampled); m < expected/3 {
		t.Errorf("%.3f%% of what peers have is missed: fewer than can be, so this measures nothing", 100*m)
	}
	// Five standard deviations above the target that the filters are sized for.
	if w := share(wasted, absent); w > 0.01+5*math.Sqrt(0.01*0.99/float64(absent)) {
		t.Errorf("%.2f%% of the look-ups of what nobody has name a candidate: the filters are made for 1%%", 100*w)
	}
}
