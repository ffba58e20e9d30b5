package gossip

import (
	"slices"
	"time"
)

// Why a message or a part of one was dropped; also the label of a counter.
const (
	dropMalformed = "malformed"
	dropChecksum  = "checksum"
	dropVersion   = "version"
	dropType      = "type"
	dropTooLarge  = "too_large"
	dropInbox     = "inbox_full"
	dropSender    = "unknown_sender"
	dropBoot      = "other_boot"
	dropPartition = "unknown_partition"
	dropEpoch     = "old_epoch"
	dropDuplicate = "duplicate"
	dropStash     = "stash_full"
	dropRecord    = "bad_record"
	dropMembers   = "too_many_members"
	dropMeta      = "bad_metadata"
	dropStamp     = "stamp_ahead"
	dropCarried   = "bad_carried"
)

// Drops lists all reasons in Stats.Drops.
func Drops() []string {
	return []string{dropMalformed, dropChecksum, dropVersion, dropType, dropTooLarge, dropInbox, dropSender, dropBoot,
		dropPartition, dropEpoch, dropDuplicate, dropStash, dropRecord, dropMembers, dropMeta, dropStamp, dropCarried}
}

// Kinds of what is sent and received.
const (
	kindDelta    = "delta"    // messages with records
	kindHead     = "head"     // messages without
	kindHeads    = "heads"    // everyone's heads, exchanged by membership
	kindDeltas   = "deltas"   // records that were pulled
	kindSnapshot = "snapshot" // snapshots
	kindPurge    = "purge"    // changes of the log
	kindAck      = "ack"      // acknowledgements of changes
	kindDigest   = "digest"   // how far a member is in the log
	kindCatchUp  = "catch_up" // changes that were asked for
)

// Kinds lists all kinds in Stats.Sent and Stats.Received.
func Kinds() []string {
	return []string{kindDelta, kindHead, kindHeads, kindDeltas, kindSnapshot, kindPurge, kindAck, kindDigest, kindCatchUp}
}

// The paths that messages take.
const (
	pathUDP  = "udp"
	pathTCP  = "tcp"
	pathHTTP = "http"
)

// Paths lists all keys of Stats.SentBy.
func Paths() []string { return []string{pathUDP, pathTCP, pathHTTP} }

// lagBounds are the upper bounds of the buckets of a [Lag].
var lagBounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, time.Minute,
}

// LagBounds returns the upper bounds of the buckets of a [Lag].
func LagBounds() []time.Duration { return slices.Clone(lagBounds[:]) }

// Lag is a histogram of the time that records waited: those that came in order
// not at all, others for the ones that were lost before them.
type Lag struct {
	Buckets []uint64 // of LagBounds, each with those below it
	Count   uint64
	Sum     time.Duration
}

func (l *Lag) add(d time.Duration) {
	for i, b := range lagBounds {
		if d <= b {
			l.Buckets[i]++
		}
	}
	l.Count++
	l.Sum += d
}

// Traffic counts messages and their bytes, without what membership and HTTP
// add around them.
type Traffic struct{ Messages, Bytes uint64 }

// Stats is what this member has counted since its start and how things stand.
// Every key of every map exists from the start.
type Stats struct {
	Members  map[State]int // this member included
	Streams  []StreamStats // as configured
	Replicas []ReplicaStats

	Sent     map[string]Traffic // by kind, see [Kinds]
	Received map[string]Traffic
	Drops    map[string]uint64 // by reason, see [Drops]

	SentBy       map[string]uint64 // messages and answers, by the path that they took, see [Paths]
	SendQueue    int               // messages that wait to be sent
	HandoffDrops uint64            // packets that the membership library dropped because more came than were looked at
	ApplyLag     Lag               // from first hearing of a record to having applied it
	RecordBytes  uint64            // the records in messages of kind delta: the changes alone, without frames
	ReplicaBytes int64             // memory of all replicas together

	SendErrors  uint64            // messages to peers that could not be sent; they are sent again
	FetchErrors uint64            // pulls that failed; they are tried again
	Applied     uint64            // records applied
	Loaded      uint64            // snapshots loaded
	Diverged    uint64            // replicas in sequence and yet not equal: a fault
	Quarantines uint64            //
	Audits      uint64            // replicas counted anew
	Truncations uint64            // own logs cut because too much had changed
	Suspicions  uint64            // members that did not answer for a while
	Rejoins     uint64            // tries to join a seed or failed member
	Exchanges   uint64            // of states, because news of a member had got lost
	Conflicts   uint64            // messages about another member with our name, or two members with one
	Refused     map[string]uint64 // requests of peers that were refused, by reason, see [Refusals]
	Log         LogStats
	LogDropped  map[string]uint64 // lines of the membership library that were not logged, by class
}

// StreamStats is one partition of ours as it is published. A replica of it at
// the same epoch and sequence number has the same set-hash, or it is wrong.
type StreamStats struct {
	Partition string
	Epoch     uint32 // 0: nothing is published yet
	Seq       uint64
	SetHash   uint64
}

// ReplicaStats is one replica: one partition of one peer.
type ReplicaStats struct {
	Member    string
	Partition string
	State     ReplicaState
	Known     bool          // look-ups use it
	Age       time.Duration // since it was last known to be up to date; 0 if it never was
	Epoch     uint32
	Seq       uint64
	SetHash   uint64 // of the bits that are held
	Lag       uint64 // records that we have heard of and not applied
	Gaps      uint64
	Resyncs   map[string]uint64 // snapshots wanted, by reason
	BitsSet   uint32            // as the peer says
	Rate      uint32            // its transitions a minute, as the peer says
}

// counts are the counters of a core.
type counts struct {
	sentBy, receivedBy map[string]Traffic
	udp, tcp           uint64 // messages
	records            uint64 // bytes
	lag                Lag
	drop               map[string]uint64

	sendErrors, fetchErrors, applied, loaded   uint64
	diverged, quarantines, audits, truncations uint64
	suspicions, exchanges, conflicts           uint64
}

func newCounts() counts {
	c := counts{sentBy: map[string]Traffic{}, receivedBy: map[string]Traffic{}, drop: map[string]uint64{}}
	c.lag.Buckets = make([]uint64, len(lagBounds))
	for _, k := range Kinds() {
		c.sentBy[k], c.receivedBy[k] = Traffic{}, Traffic{}
	}
	for _, d := range Drops() {
		c.drop[d] = 0
	}
	return c
}

func (c *counts) sent(kind string, bytes int) {
	t := c.sentBy[kind]
	c.sentBy[kind] = Traffic{t.Messages + 1, t.Bytes + uint64(bytes)}
}

func (c *counts) received(kind string, bytes int) {
	t := c.receivedBy[kind]
	c.receivedBy[kind] = Traffic{t.Messages + 1, t.Bytes + uint64(bytes)}
}

// statistics describes the core.
func (c *core) statistics(now time.Duration) Stats {
	s := Stats{
		Members: map[State]int{}, Sent: map[string]Traffic{}, Received: map[string]Traffic{}, Drops: map[string]uint64{},
		SendErrors: c.counts.sendErrors, FetchErrors: c.counts.fetchErrors, Applied: c.counts.applied, Loaded: c.counts.loaded,
		Diverged: c.counts.diverged, Quarantines: c.counts.quarantines, Audits: c.counts.audits, Truncations: c.counts.truncations,
		Suspicions: c.counts.suspicions, Exchanges: c.counts.exchanges, Conflicts: c.counts.conflicts,
		RecordBytes: c.counts.records,
	}
	for _, st := range States() {
		s.Members[st] = 0
	}
	s.Members[StateAlive]++
	for k, v := range c.counts.sentBy {
		s.Sent[k] = v
	}
	for k, v := range c.counts.receivedBy {
		s.Received[k] = v
	}
	for k, v := range c.counts.drop {
		s.Drops[k] = v
	}
	s.SentBy = map[string]uint64{pathUDP: c.counts.udp, pathTCP: c.counts.tcp, pathHTTP: 0}
	for kind, t := range s.Sent {
		if kind != kindDelta && kind != kindHead && kind != kindHeads {
			s.SentBy[pathHTTP] += t.Messages
		}
	}
	s.ApplyLag = Lag{slices.Clone(c.counts.lag.Buckets), c.counts.lag.Count, c.counts.lag.Sum}
	for i, st := range c.streams {
		s.Streams = append(s.Streams, StreamStats{c.cfg.partitions[i].Name, st.epoch, st.seq, st.hash})
	}
	for _, p := range c.peers {
		s.Members[p.state]++
		for i, r := range p.replicas {
			rs := ReplicaStats{
				Member: p.name, Partition: c.cfg.partitions[i].Name, State: r.state, Known: r.known, Epoch: r.epoch, Seq: r.seq, SetHash: r.hash,
				Gaps: r.gaps, Resyncs: map[string]uint64{}, BitsSet: r.count, Rate: r.rate,
			}
			if r.lastHead > 0 {
				rs.Age = now - r.lastHead
			}
			if r.synced && r.head > r.seq {
				rs.Lag = r.head - r.seq
			}
			for k, v := range r.resyncs {
				rs.Resyncs[k] = v
			}
			s.Replicas = append(s.Replicas, rs)
		}
	}
	return s
}
