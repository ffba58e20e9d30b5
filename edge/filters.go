package edge

import (
	"context"
	"sync"
	"time"

	"edged/peerfilter"
)

// rebuildReasons are the label values of edged_filter_rebuilds_total.
var rebuildReasons = []string{peerfilter.ReasonLoad, peerfilter.ReasonPinned}

// watchEvery is how often the fill of the filters is looked at.
const watchEvery = time.Second

// filterState is the own filter of one partition.
type filterState struct {
	build sync.Mutex // held from before the store gets another filter until it is published

	mu       sync.Mutex
	counting *peerfilter.Counting
	keys     int    // planned for the present filter
	epoch    uint64 // rebuilds so far
	said     string // the reason of the last warning
}

// current returns the present filter, how many keys it is planned for, and
// its epoch.
func (s *filterState) current() (c *peerfilter.Counting, keys int, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counting, s.keys, s.epoch
}

// watchFilters looks after the own filters: it warns of one that is not as
// planned, and rebuilds one that more keys come to than it was planned for.
func (n *Node) watchFilters(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for part := range n.filters {
				n.watchFilter(part)
				n.watchTruth(part)
			}
		}
	}
}

func (n *Node) watchFilter(part int) {
	s := &n.filters[part]
	c, keys, _ := s.current()
	st := c.Stats()
	advice := peerfilter.Watch{Keys: keys}.Advise(st)
	switch {
	case advice.Level == peerfilter.Rebuild:
		n.rebuild(part, advice)
	case advice.Reason != s.said:
		s.said = advice.Reason
		if advice.Level == peerfilter.Warn {
			n.log.Warn("filter is not as planned", "partition", n.cfg.Cache.Partitions[part].Name, "reason", advice.Reason,
				"keys", st.Keys, "planned", keys, "fill", st.Fill, "pinned", st.Pinned, "underflows", st.Underflows)
		}
	}
}

// rebuild makes another filter from the hashes that the store keeps, beside
// the present one, and publishes it as a new epoch. Its size is a whole
// multiple of the planned one.
func (n *Node) rebuild(part int, advice peerfilter.Advice) {
	s := &n.filters[part]
	s.build.Lock()
	defer s.build.Unlock()
	old, keys, _ := s.current()
	name := n.cfg.Cache.Partitions[part].Name
	params := old.Params()
	params.Blocks *= uint32(max(1, advice.Keys/keys))
	next, err := peerfilter.NewCounting(params)
	if err != nil {
		if s.said != "size" {
			s.said = "size"
			n.log.Error("filter can't grow any more", "partition", name, "err", err)
		}
		return
	}
	began := time.Now()
	n.store.Rebuild(part, next)
	s.mu.Lock()
	s.counting, s.keys = next, advice.Keys
	s.epoch++
	s.mu.Unlock()
	n.gossip.Publish(part, next)
	n.metrics.rebuilds.WithLabelValues(name, advice.Reason).Inc()
	n.log.Info("filter rebuilt: raise filter.keys on all members to plan for it", "partition", name, "reason", advice.Reason,
		"keys", next.Stats().Keys, "planned", advice.Keys, "took", time.Since(began).Round(time.Millisecond))
}

// sweep forgets what has expired, now and then.
func (n *Node) sweep(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			n.negative.Sweep(now)
		}
	}
}
