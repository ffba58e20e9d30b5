package gossip

import (
	"cmp"
	"slices"
	"time"
)

// The limits of a peer's precision: of the requests that its filters drew, the
// share that it could answer. It is smoothed over some precisionWindow
// requests, so after a run of only useless ones a hundred lead from 1 to 0.2.
const (
	precisionWindow = 64
	minPrecision    = 0.2
	minAsked        = 100 // requests before the precision counts

	// worseThanOthers: how often a key that the cluster does not have is asked
	// for depends on the clients, and with it everyone's precision. A filter is
	// to blame only if it does far worse than the others.
	worseThanOthers = 0.25
)

// precision is what the requests that a peer's filters drew were worth.
type precision struct {
	asked  int
	useful float64 // smoothed share
}

func (p *precision) add(useful bool) {
	if p.asked == 0 {
		p.useful = 1
	}
	p.asked++
	v := 0.0
	if useful {
		v = 1
	}
	p.useful += (v - p.useful) / precisionWindow
}

// Asked says that a member was asked for what its filter of a partition may
// contain, and whether it had it (fresh or stale). A request that brought no
// answer is not told. A member whose filters draw requests in vain, far more
// often than the others' do, is not believed for a while.
func (g *Gossip) Asked(part int, member string, useful bool) {
	g.mu.Lock()
	g.core.asked(g.now(), part, member, useful)
	news := len(g.core.out) > 0
	g.mu.Unlock()
	if news {
		g.in.poke()
	}
}

func (c *core) asked(now time.Duration, part int, member string, useful bool) {
	_, p := c.find(member)
	if p == nil || !p.reachable() || !p.replicas[part].known {
		return
	}
	p.precision.add(useful)
	if p.precision.asked < minAsked || p.precision.useful >= minPrecision {
		return
	}
	others, ok := c.othersPrecision(p)
	if !ok || others < minPrecision || p.precision.useful >= worseThanOthers*others {
		return
	}
	p.precision = precision{}
	for i, r := range p.replicas {
		if r.known || r.fetching {
			c.quarantine(now, p, i, "its filter draws requests in vain")
		}
	}
	c.touch(p)
}

// othersPrecision is the median of the precision of the other peers that were
// asked often enough.
func (c *core) othersPrecision(but *peer) (float64, bool) {
	var all []float64
	for _, p := range c.peers {
		if p != but && p.reachable() && p.precision.asked >= minAsked {
			all = append(all, p.precision.useful)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.SortFunc(all, cmp.Compare[float64])
	return all[len(all)/2], true
}
