package gossip

import (
	"math/rand/v2"
	"testing"

	"edged/peerfilter"
)

// TestPrecision: one of three peers draws requests in vain.
func TestPrecision(t *testing.T) {
	for _, tc := range []struct {
		name           string
		bad, others    float64 // share of useful requests
		asked          int
		quarantined    bool
		onlyThisIsBusy bool
	}{
		{name: "always in vain, the others are good", bad: 0, others: 0.9, asked: 200, quarantined: true},
		{name: "nearly always", bad: 0.05, others: 0.9, asked: 1000, quarantined: true},
		{name: "too few to tell", bad: 0, others: 0.9, asked: 80},
		{name: "half of them", bad: 0.5, others: 0.95, asked: 1000},
		{name: "all alike: it is the clients", bad: 0, others: 0.02, asked: 1000},
		{name: "no others to compare with", bad: 0, others: 0.9, asked: 1000, onlyThisIsBusy: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := live(t)
			rng := rand.New(rand.NewPCG(1, 1))
			for _, name := range []string{"c", "d"} {
				p.a.memberUp(p.now, name, "127.0.0.1:3", p.b.nodeMeta())
				_, q := p.a.find(name)
				q.replicas[0].known = true
			}
			for range tc.asked {
				p.a.asked(p.now, 0, "b", rng.Float64() < tc.bad)
				if !tc.onlyThisIsBusy {
					p.a.asked(p.now, 0, "c", rng.Float64() < tc.others)
					p.a.asked(p.now, 0, "d", rng.Float64() < tc.others)
				}
				p.a.asked(p.now, 0, "nobody", false)
			}
			if got := p.replica().state == ReplicaQuarantine; got != tc.quarantined || !got && p.a.counts.quarantines > 0 {
				t.Errorf("%s, precision %v", p.replica().state, p.a.peers[0].precision)
			}
			if tc.quarantined && p.a.replicas[0].Lookup(peerfilter.Hash{}).Known("b") {
				t.Error("it is looked up still")
			}
		})
	}
}
