package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"edged/peerfilter"
)

// replica is what we hold of one partition of one peer: a state machine driven
// by what the peer says, by the answers to our pulls and by time. The bits
// themselves are in peerfilter.Replicas under the peer's name.
//
//	absent ──snapshot──► live ──seq skipped──► gap ──records──► live
//	   ▲                  │ │                   └─log too short─► absent
//	   │                  │ └─hash differs──► diverged ──► absent (3rd time: quarantine)
//	   └──new boot/epoch──┘ silence──► stale ──head──► live or gap
//
// Any state goes to dead or left with its member, and from dead, if the same
// process is back in time, to gap.
type replica struct {
	state ReplicaState
	known bool // look-ups use the bits

	// The bits are those of seq in epoch if synced; else they are of an older
	// epoch, or there are none.
	synced bool
	epoch  uint32
	seq    uint64
	hash   uint64
	params peerfilter.Params

	// head is the newest record that we have heard of. headSure says that the
	// peer itself said so, so that headHash counts.
	head     uint64
	headHash uint64
	headSure bool

	stash      map[uint64][]byte // records that wait for those before them
	stashBytes int

	lastHead time.Duration // when we were last known to be up to date
	count    uint32        // bits set, as the peer says
	rate     uint32        // transitions a minute, as the peer says

	due      time.Duration // of the next action, 0: none
	failures int           // of pulls, in a row

	fetching      bool
	fetchSnapshot bool
	fetchID       uint64

	oldUntil time.Duration // until when bits of an older epoch are used, 0: none are
	dropAt   time.Duration // when the bits of a failed member are freed, 0: never
	diverged []time.Duration

	gaps     uint64
	gapSince time.Duration // when the present gap was noticed
	resyncs  map[string]uint64
}

// Why a snapshot was needed; also the label of a counter.
const (
	resyncJoin      = "join"      // nothing was known of the process
	resyncEpoch     = "epoch"     // the peer rebuilt its filter
	resyncTruncated = "truncated" // missed more than the peer's log holds
	resyncDiverged  = "diverged"  // bits or set-hash differ from what the peer says
	resyncFault     = "fault"     // the bits were lost here
	resyncRelease   = "release"   // the quarantine is over
)

func resyncReasons() []string {
	return []string{resyncJoin, resyncEpoch, resyncTruncated, resyncDiverged, resyncFault, resyncRelease}
}

func newReplica() *replica {
	r := &replica{state: ReplicaAbsent, resyncs: map[string]uint64{}}
	for _, reason := range resyncReasons() {
		r.resyncs[reason] = 0
	}
	return r
}

func (r *replica) deadline() time.Duration {
	d := time.Duration(1<<63 - 1)
	for _, t := range []time.Duration{r.due, r.oldUntil, r.dropAt} {
		if t > 0 {
			d = min(d, t)
		}
	}
	switch {
	case r.state == ReplicaLive:
		d = min(d, r.lastHead+staleAfter)
	case r.state == ReplicaStale && r.known:
		d = min(d, r.staleUntil())
	}
	return d
}

// staleUntil is when so many of the bits may have changed that the replica is
// not worth asking any more.
func (r *replica) staleUntil() time.Duration {
	if r.rate == 0 {
		return time.Duration(1<<63 - 1)
	}
	age := float64(r.count) * staleShare / float64(r.rate) * float64(time.Minute)
	return r.lastHead + max(staleAfter, time.Duration(min(age, float64(24*time.Hour))))
}

// receive takes a message that the wire form has been checked of.
func (c *core) receive(now time.Duration, f frame) {
	p := c.bySender[f.sender]
	switch {
	case f.flags&flagLeft != 0:
		c.farewell(now, p, f.boot)
		return
	case p == nil || !p.reachable():
		c.counts.drop[dropSender]++
		c.strange(now, p, f.boot)
		return
	case f.boot != p.meta.boot:
		// A predecessor's last words, a successor of which membership has not
		// told yet, or another node with the same name.
		c.counts.drop[dropBoot]++
		c.strange(now, p, f.boot)
		return
	}
	c.heard(now, p)
	defer c.touch(p)
	if f.flags&flagDraining != 0 && !p.meta.draining() {
		p.meta.flags |= flagDraining
		c.offered(now, p, false)
		c.emit(membersEffect{})
	}
	for _, s := range f.sections {
		if i, ok := c.index[s.part]; ok {
			c.section(now, p, i, s)
		} else {
			c.counts.drop[dropPartition]++
		}
	}
}

// offered compares what the peer's metadata offers with what we hold. back
// says that the peer was away.
func (c *core) offered(now time.Duration, p *peer, back bool) {
	if p.meta.draining() || p.meta.seedMark != c.cfg.seedMark {
		if p.meta.seedMark != c.cfg.seedMark && back {
			c.log(slog.LevelWarn, "member's filters have another seed, they are not used: give all members the same key_file", "member", p.name)
		}
		c.dropReplicas(p)
		for _, r := range p.replicas {
			if r.state = ReplicaAbsent; p.meta.draining() {
				r.state = ReplicaLeft
			}
		}
		return
	}
	for i, r := range p.replicas {
		r.dropAt = 0
		if r.state == ReplicaDead || r.state == ReplicaLeft {
			r.state = ReplicaAbsent
		}
		at := slices.IndexFunc(p.meta.parts, func(m partMeta) bool { return m.key == c.streams[i].key })
		if at < 0 || p.meta.parts[at].epoch == 0 {
			continue
		}
		switch epoch := p.meta.parts[at].epoch; {
		case epoch > r.epoch:
			c.newEpoch(now, p, i, epoch)
		case back && r.synced:
			r.state, r.gapSince = ReplicaGap, now
			c.resumeReplica(p, i)
			r.due = soon(now)
		case !r.synced && !r.fetching && r.due == 0 && r.state != ReplicaQuarantine:
			c.want(now, p, i, resyncJoin)
		}
	}
}

// newEpoch forgets where we were.
func (c *core) newEpoch(now time.Duration, p *peer, i int, epoch uint32) {
	r := p.replicas[i]
	reason := resyncEpoch
	if r.epoch == 0 {
		reason = resyncJoin
	}
	c.stopFetch(r)
	r.epoch, r.seq, r.hash, r.head, r.headHash, r.headSure = epoch, 0, 0, 0, 0, false
	r.stash, r.stashBytes = nil, 0
	r.diverged = nil
	r.failures = 0
	c.want(now, p, i, reason)
}

// want schedules a snapshot, a little later the more members there are. What
// we hold is used a little longer, unless it is suspended.
func (c *core) want(now time.Duration, p *peer, i int, reason string) {
	r := p.replicas[i]
	r.synced = false
	if r.known && r.oldUntil == 0 {
		r.oldUntil = now + keepOldEpoch
	}
	r.state = ReplicaAbsent
	r.resyncs[reason]++
	r.due = soon(now + c.jitter(min(time.Duration(len(c.peers))*jitterPerMember, maxJitter)))
}

// soon is now as a due time, for which 0 means none.
func soon(now time.Duration) time.Duration { return max(now, 1) }

// section takes what a peer says of one of its streams.
func (c *core) section(now time.Duration, p *peer, i int, s section) {
	r := p.replicas[i]
	switch {
	case p.meta.seedMark != c.cfg.seedMark || p.meta.draining():
		return
	case s.epoch < r.epoch || s.epoch == 0:
		c.counts.drop[dropEpoch]++
		return
	case s.epoch > r.epoch:
		c.newEpoch(now, p, i, s.epoch)
	}
	r.count, r.rate = s.count, s.rate
	if r.state == ReplicaQuarantine {
		return
	}
	if r.synced && float64(s.count) > maxFill*float64(r.params.Bits()) {
		c.quarantine(now, p, i, "its filter is too full to be of use")
		return
	}
	seq := s.first
	for data := range s.records.all() {
		c.record(now, p, i, seq, data)
		seq++
	}
	// A message that overtook another has an older head.
	if s.head >= r.seq && (s.head >= r.head || !r.headSure || r.synced) {
		r.head, r.headHash, r.headSure = s.head, s.hash, true
	}
	c.settle(now, p, i)
}

// record takes one record: applies it if it is the next one, keeps it if it is
// a later one.
func (c *core) record(now time.Duration, p *peer, i int, seq uint64, data []byte) {
	r := p.replicas[i]
	switch {
	case r.synced && seq <= r.seq:
		c.counts.drop[dropDuplicate]++
	case r.synced && seq == r.seq+1:
		if c.apply(now, p, i, seq, data) {
			c.drainStash(now, p, i)
		}
	case len(r.stash) >= maxStash || r.stashBytes+len(data) > maxStashBytes:
		c.counts.drop[dropStash]++
	case r.stash[seq] != nil:
		c.counts.drop[dropDuplicate]++
	default:
		if r.stash == nil {
			r.stash = map[uint64][]byte{}
		}
		r.stash[seq] = bytes.Clone(data)
		r.stashBytes += len(data)
	}
}

// drainStash applies what the last record has made possible and forgets what
// is past.
func (c *core) drainStash(now time.Duration, p *peer, i int) {
	r := p.replicas[i]
	for r.synced {
		data, ok := r.stash[r.seq+1]
		if !ok || !c.apply(now, p, i, r.seq+1, data) {
			break
		}
	}
	for seq, data := range r.stash {
		if seq <= r.seq {
			r.stashBytes -= len(data)
			delete(r.stash, seq)
		}
	}
}

// apply takes the replica from seq-1 to seq; it reports whether it did.
func (c *core) apply(now time.Duration, p *peer, i int, seq uint64, data []byte) bool {
	r := p.replicas[i]
	rest, err := peerfilter.DecodeRecord(&c.rec, data, r.params)
	if err != nil || len(rest) > 0 || c.rec.Seq != seq {
		c.counts.drop[dropRecord]++
		return false
	}
	hash, err := c.replicas[i].Apply(p.name, c.rec.Transitions)
	if err != nil {
		c.log(slog.LevelError, "replica is lost", "member", p.name, "error", err)
		r.known = false
		c.want(now, p, i, resyncFault)
		return false
	}
	r.seq, r.hash = seq, hash
	c.counts.applied++
	if r.state == ReplicaGap {
		c.counts.lag.add(now - r.gapSince)
	} else {
		c.counts.lag.add(0)
	}
	if hash != c.rec.SetHash {
		c.diverge(now, p, i, "its record does not lead to the state that it names")
		return false
	}
	return true
}

// settle draws the conclusion from where we are and what the head is.
func (c *core) settle(now time.Duration, p *peer, i int) {
	r := p.replicas[i]
	if !r.synced {
		if r.due == 0 && !r.fetching && r.state != ReplicaQuarantine {
			c.want(now, p, i, resyncJoin)
		}
		return
	}
	if r.seq < r.head {
		if r.state != ReplicaGap {
			r.state = ReplicaGap
			r.gaps++
			r.gapSince = now
			if !r.fetching {
				r.due = soon(now + reorderWait)
			}
		}
		return
	}
	if r.seq == r.head && r.headSure && r.hash != r.headHash {
		c.diverge(now, p, i, "it names another set-hash than the replica has")
		return
	}
	if r.head < r.seq {
		r.head, r.headHash, r.headSure = r.seq, r.hash, false
	}
	r.state = ReplicaLive
	r.lastHead = now
	r.due = 0
	r.failures = 0
	c.resumeReplica(p, i)
}

// diverge deals with a replica that is in sequence and yet not equal: a fault
// of memory or code, here or there. It must never happen, and says so.
func (c *core) diverge(now time.Duration, p *peer, i int, why string) {
	r := p.replicas[i]
	c.counts.diverged++
	c.log(slog.LevelError, "replica diverged, it is fetched anew", "member", p.name, "why", why,
		"boot", p.meta.boot, "epoch", r.epoch, "seq", r.seq, "hash", fmt.Sprintf("%016x", r.hash))
	c.suspendReplica(p, i)
	r.diverged = slices.DeleteFunc(r.diverged, func(t time.Duration) bool { return now-t > quarantineTime })
	r.diverged = append(r.diverged, now)
	r.stash, r.stashBytes = nil, 0
	c.stopFetch(r)
	if len(r.diverged) >= divergedLimit {
		c.quarantine(now, p, i, "it diverged again and again")
		return
	}
	c.want(now, p, i, resyncDiverged)
	r.state = ReplicaDiverged
}

// quarantine stops believing in a replica for a while.
func (c *core) quarantine(now time.Duration, p *peer, i int, why string) {
	r := p.replicas[i]
	c.counts.quarantines++
	c.log(slog.LevelWarn, "replica is not used for a while", "member", p.name, "why", why, "for", quarantineTime)
	c.stopFetch(r)
	c.replicas[i].Drop(p.name)
	r.known, r.synced = false, false
	r.oldUntil = 0
	r.stash, r.stashBytes = nil, 0
	r.state = ReplicaQuarantine
	r.due = now + quarantineTime
}

// mergeHeads takes what a third member knows of the others' streams. It can
// tell us that we miss something, and nothing else.
func (c *core) mergeHeads(now time.Duration, hs []head) {
	for _, h := range hs {
		p := c.bySender[h.sender]
		i, ok := c.index[h.part]
		if p == nil || !ok || !p.reachable() || p.meta.boot != h.boot {
			continue
		}
		r := p.replicas[i]
		if r.synced && r.epoch == h.epoch && h.seq > r.head {
			r.head, r.headHash, r.headSure = h.seq, h.hash, false
			c.settle(now, p, i)
			c.touch(p)
		}
	}
}

// tickReplica does what is due for one replica.
func (c *core) tickReplica(now time.Duration, p *peer, i int) {
	r := p.replicas[i]
	if r.oldUntil > 0 && now >= r.oldUntil {
		c.suspendReplica(p, i)
	}
	if r.dropAt > 0 && now >= r.dropAt {
		c.dropReplica(p, i)
	}
	if r.state == ReplicaLive && now >= r.lastHead+staleAfter {
		r.state = ReplicaStale
	}
	if r.state == ReplicaStale && r.known && now >= r.staleUntil() {
		c.suspendReplica(p, i)
	}
	if r.due == 0 || now < r.due || !p.reachable() {
		return
	}
	r.due = 0
	switch {
	case r.fetching:
	case r.state == ReplicaQuarantine:
		c.want(now, p, i, resyncRelease)
	case r.synced:
		c.fetch(p, i, false)
	case c.snapshotsRunning >= maxSnapshotsIn:
		r.due = now + reorderWait
	default:
		c.fetch(p, i, true)
		if r.state != ReplicaDiverged {
			r.state = ReplicaFetching
		}
	}
}

// audit counts one replica's bits anew and compares.
func (c *core) audit(now time.Duration) {
	n := len(c.peers) * len(c.streams)
	for range n {
		c.audited = (c.audited + 1) % n
		p, i := c.peers[c.audited/len(c.streams)], c.audited%len(c.streams)
		if r := p.replicas[i]; p.reachable() && r.synced {
			c.counts.audits++
			recount, kept, err := c.replicas[i].Audit(p.name)
			if err != nil || recount != kept || kept != r.hash {
				c.diverge(now, p, i, "its bits do not add up to its set-hash")
				c.touch(p)
			}
			return
		}
	}
}

// suspendReplica keeps the bits but not for look-ups.
func (c *core) suspendReplica(p *peer, i int) {
	r := p.replicas[i]
	r.oldUntil = 0
	if r.known {
		c.replicas[i].Suspend(p.name)
		r.known = false
	}
}

// resumeReplica uses the bits for look-ups again.
func (c *core) resumeReplica(p *peer, i int) {
	r := p.replicas[i]
	if !r.known {
		r.known = c.replicas[i].Resume(p.name)
	}
}

func (c *core) dropReplica(p *peer, i int) {
	r := p.replicas[i]
	c.stopFetch(r)
	c.replicas[i].Drop(p.name)
	r.known, r.synced = false, false
	r.epoch, r.seq, r.hash, r.head, r.headSure = 0, 0, 0, 0, false
	r.stash, r.stashBytes = nil, 0
	r.due, r.oldUntil, r.dropAt = 0, 0, 0
}

func (c *core) dropReplicas(p *peer) {
	for i := range p.replicas {
		c.dropReplica(p, i)
	}
}
