package edge

import (
	"errors"
	"time"

	"edged/edge/store"
	"edged/gossip"
)

// syncState is how far this node can be trusted to know every purge.
type syncState struct {
	state gossip.SyncState
	since time.Time
}

// isolatedServe is the policy of a node that may have missed purges and serves
// nevertheless.
const isolatedServe = "serve"

// syncBudget is for how long a node that serves in any case asks the others
// first.
const syncBudget = 2 * time.Second

// syncChanged is told whenever the state of the cluster's log changes.
func (n *Node) syncChanged(state gossip.SyncState) {
	n.sync.Store(&syncState{state, time.Now()})
}

// changesLost says that purges were missed which nobody can tell any more:
// everything that is stored must be validated before its next use, and nothing
// is known to be absent, by a catalog neither, of which additions may be missing.
func (n *Node) changesLost() {
	n.apply(&store.Purge{All: true, Soft: true})
	for _, s := range n.sites.Load().all {
		if s.catalog != nil {
			s.catalog.Doubt()
		}
	}
}

// distrusts reports whether what is stored here may have been purged without
// this node knowing: it is out of step with the cluster's log, or alone, or was
// stopped until a moment ago, or has handed its place in the cluster over, and
// purge.isolated says that then it validates.
func (n *Node) distrusts(now time.Time) bool {
	if n.released.Load() || !n.gossip.Awake(now) {
		return n.cfg.Purge.Isolated != isolatedServe
	}
	s := n.sync.Load()
	if s.state == gossip.SyncSynced {
		return false
	}
	return n.cfg.Purge.Isolated != isolatedServe || s.state == gossip.SyncSyncing && time.Since(s.since) < syncBudget
}

// errSyncing is why a node is not ready that has just started, or come back.
var errSyncing = errors.New("syncing: catching up with the purges of the other members")

// synced returns errSyncing while the node is about to catch up.
func (n *Node) synced() error {
	if s := n.sync.Load(); s.state == gossip.SyncSyncing && time.Since(s.since) < syncBudget {
		return errSyncing
	}
	return nil
}
