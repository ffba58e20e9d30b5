package gossip

// State is what this member believes of another.
type State string

// The states of a member.
const (
	StateAlive   State = "alive"
	StateSuspect State = "suspect" // did not answer lately; may be found alive or failed
	StateFailed  State = "failed"  // found dead
	StateLeft    State = "left"    // said that it leaves
)

// States lists all states of a member, for counters that exist from the start.
func States() []State { return []State{StateAlive, StateSuspect, StateFailed, StateLeft} }

// Member is one node of the cluster as this node sees it. Its identity is its
// name; the addresses are where it is now.
type Member struct {
	Name       string
	Role       string
	State      State
	PeerAddr   string // host:port of its peer HTTP
	GossipAddr string // host:port of its membership
	Boot       uint64 // one per start of its process
	Draining   bool   // it still answers, but is about to leave
}

// ReplicaState is how far this member's replica of another's filter is.
type ReplicaState string

// The states of a replica.
const (
	ReplicaAbsent     ReplicaState = "absent"     // there is none
	ReplicaFetching   ReplicaState = "fetching"   // a snapshot is on its way
	ReplicaLive       ReplicaState = "live"       // equal to what the peer last published, as far as heard
	ReplicaGap        ReplicaState = "gap"        // records are missing; used meanwhile
	ReplicaDiverged   ReplicaState = "diverged"   // in sequence and yet not equal: a fault; not used
	ReplicaStale      ReplicaState = "stale"      // nothing heard for long; used while it can be right
	ReplicaQuarantine ReplicaState = "quarantine" // not believed for a while
	ReplicaDead       ReplicaState = "dead"       // its member failed; kept for a while, not used
	ReplicaLeft       ReplicaState = "left"       // its member left or is about to
)

// ReplicaStates lists all states of a replica.
func ReplicaStates() []ReplicaState {
	return []ReplicaState{ReplicaAbsent, ReplicaFetching, ReplicaLive, ReplicaGap, ReplicaDiverged,
		ReplicaStale, ReplicaQuarantine, ReplicaDead, ReplicaLeft}
}
