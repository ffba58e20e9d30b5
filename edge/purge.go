package edge

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"edged/edge/store"
	"edged/gossip"
	"edged/peerfilter"
)

// changesField carries, from one member to another on the peer address, what
// the one that asks knows of recent changes (gossip.Carry): the other applies
// them before it answers. Without it a member that has purged could be given
// the old response by one that has not yet, and store it after the purge.
const changesField = "Edged-Changes"

// applyChange applies an entry of the cluster's log, from this node or another.
// What one may do is bounded by its size, and it must be done when it returns.
func (n *Node) applyChange(c gossip.Change) {
	switch c.Kind {
	case gossip.KindPurge, gossip.KindCreated:
		p := &store.Purge{
			URLs: c.URLs, Tags: c.Tags, Prefixes: c.Prefixes, Hosts: c.Hosts,
			All: c.All, Soft: c.Soft, Absences: c.Kind == gossip.KindCreated,
		}
		if b, ok := c.Note.(*invalidation); ok {
			b.apply(&n.epochs, c.URLs, func() { n.applyAt(p, stampTime(c.Stamp)) })
		} else {
			n.applyAt(p, stampTime(c.Stamp))
		}
		if c.Kind == gossip.KindCreated {
			n.catalogCreated(c.URLs, stampTime(c.Stamp))
			n.catalogDoubted(c.Hosts)
		}
	case gossip.KindTombstone:
		n.bury(c.URLs, stampTime(c.Stamp))
	case gossip.KindCatalog:
		n.applyCatalog(c)
	default:
		n.unknownChange(c.Kind)
	}
}

// unknownChange applies what a member of a newer version has said, and this
// version can't tell what it means: unless it may be passed over, it is taken to
// be about everything.
func (n *Node) unknownChange(k gossip.Kind) {
	if k.Advisory() {
		n.metrics.unknownChanges.WithLabelValues("advisory").Inc()
		return
	}
	n.metrics.unknownChanges.WithLabelValues("binding").Inc()
	if !n.unknownKinds[k].Swap(true) {
		n.log.Error("a member of a newer version purges in a way that this one does not know, so all that is stored is validated each time: update this node", "kind", k)
	}
	n.changesLost()
}

// apply carries out a purge on this node: when it returns, nothing that it
// covers is served, joined or stored any more that was asked for before. What
// is covered is found out at each look-up (store.Epochs), and taken out behind
// (reclaim.go), so that a purge takes as long as its own list; single URLs, and
// everything, are taken out at once.
func (n *Node) apply(p *store.Purge) { n.applyAt(p, time.Time{}) }

// mostAhead is by how much the clock of the member that made a change is believed
// to be ahead.
const mostAhead = time.Minute

// applyAt is apply for a purge that a member's clock dates. What was deleted
// before it, by such a clock, is not remembered after it, in whatever order the
// two come, and be the clock ahead of this node's.
func (n *Node) applyAt(p *store.Purge, at time.Time) {
	now := time.Now()
	if at.Before(now) {
		at = now
	} else if most := now.Add(mostAhead); at.After(most) {
		at = most
	}
	n.epochs.Add(p, now)
	for _, u := range p.URLs {
		n.negative.Delete(u, at)
		if !p.Absences && !p.Soft {
			k := n.keyOf(u)
			n.store.Remove(n.partitionOf(pathOfKey(u)), &k)
		}
	}
	if p.All && !p.Soft && !p.Absences {
		n.clear()
	}
	n.leftovers.add(p, n.store.Tagged, now)
}

// clear empties the store and begins a new epoch of each filter, an empty one.
func (n *Node) clear() {
	for part := range n.filters {
		n.clearPart(part)
	}
}

// clearPart does so in one partition. Where a rebuild is under way the walk will
// do.
func (n *Node) clearPart(part int) {
	s := &n.filters[part]
	if !s.build.TryLock() {
		return
	}
	defer s.build.Unlock()
	old, _, _ := s.current()
	next, err := peerfilter.NewCounting(old.Params())
	if err != nil || !n.store.Clear(part, next) {
		return
	}
	s.mu.Lock()
	s.counting = next
	s.epoch++
	s.mu.Unlock()
	n.gossip.Publish(part, next)
}

// valid returns those of the stored responses under a key that no purge has
// covered, those that a soft one has as stale.
func (n *Node) valid(part int, key *store.Key, rs []*store.Response) []*store.Response {
	for i, r := range rs {
		if v, _ := n.epochs.Judge(key.URL, r); v == store.Valid {
			continue
		}
		kept := slices.Clone(rs[:i])
		for _, r := range rs[i:] {
			switch v, gen := n.epochs.Judge(key.URL, r); v {
			case store.Valid:
				kept = append(kept, r)
			case store.Gone:
				n.store.RemoveResponse(part, key, r)
			case store.Stale:
				soft := n.soften(r, gen, time.Now())
				if !n.store.Replace(part, key, r, soft) {
					// The walk, or another request, may have been quicker. What an answer
					// is to freshen must be what is stored.
					if now := n.store.Get(part, key); !slices.Contains(now, r) {
						return n.valid(part, key, now)
					}
				}
				kept = append(kept, soft)
			}
		}
		return kept
	}
	return rs
}

// soften returns the response as one that must be validated before its next
// use, because of a purge up to the one numbered gen.
func (n *Node) soften(r *store.Response, gen uint64, now time.Time) *store.Response {
	m := *metaOf(r)
	if !m.soft {
		m.soft = true
		m.Stored = m.AsStale(now)
	}
	s := r.With(&m, m.metaBytes())
	s.SeenAt(gen)
	return s
}

// commitFill calls put when no purge has come since the forward began that covers
// its answer; soft says that a soft one has.
func (n *Node) commitFill(fw *forward, tags []string, absence bool, put func(gen uint64, soft bool)) bool {
	return n.epochs.Commit(fw.gen, fw.key.URL, tags, absence, put)
}

// carry makes a request to another member tell what it must know of purges.
func (n *Node) carry(req *http.Request, fw *forward, member string) {
	v := n.gossip.Carry(member, func(c *gossip.Change) bool {
		return c.All || len(c.Tags) > 0 || c.Kind > gossip.KindTombstone && !c.Kind.Advisory() || c.Site == fw.site.Name && c.Site != "" ||
			slices.Contains(c.URLs, fw.key.URL) || slices.Contains(c.Hosts, fw.host) ||
			slices.ContainsFunc(c.Prefixes, func(pre string) bool { return strings.HasPrefix(fw.key.URL, pre) })
	})
	if v == "" {
		delete(req.Header, changesField)
		return
	}
	req.Header[changesField] = []string{v}
}

func pathOfKey(key string) string {
	_, rest, _ := strings.Cut(key, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return pathOf(rest[i:])
	}
	return "/"
}
