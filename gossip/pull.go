package gossip

import (
	"errors"
	"log/slog"
	"time"
)

// fetch begins a pull for one replica: its peer's snapshot, or the records
// after the last one.
func (c *core) fetch(p *peer, i int, snapshot bool) {
	r := p.replicas[i]
	c.lastFetch++
	r.fetching, r.fetchSnapshot, r.fetchID = true, snapshot, c.lastFetch
	if snapshot {
		c.snapshotsRunning++
	}
	c.emit(fetchEffect{
		from: p.name, addr: p.peerAddr(), part: i, id: r.fetchID, snapshot: snapshot,
		boot: p.meta.boot, epoch: r.epoch, after: r.seq,
	})
}

// stopFetch forgets a pull; its answer will find nobody.
func (c *core) stopFetch(r *replica) {
	if r.fetching && r.fetchSnapshot {
		c.snapshotsRunning--
	}
	r.fetching = false
}

// errWrongAnswer is an answer that does not belong to the question.
var errWrongAnswer = errors.New("the answer is not of the stream that was asked for")

// fetchResult is the answer to a pull: err, or gone, or records, or a snapshot.
type fetchResult struct {
	err     error
	gone    bool // the peer's log does not reach back, or it is in another epoch
	records frame
	state   *snapshot
}

// fetched takes the answer to a pull.
func (c *core) fetched(now time.Duration, e fetchEffect, res fetchResult) {
	_, p := c.find(e.from)
	if p == nil || e.part >= len(p.replicas) {
		return
	}
	i, r := e.part, p.replicas[e.part]
	if !r.fetching || r.fetchID != e.id {
		return
	}
	c.stopFetch(r)
	defer c.touch(p)
	switch {
	case res.gone:
		c.want(now, p, i, resyncTruncated)
	case res.err != nil:
		c.fetchFailed(now, p, i, res.err)
	case e.snapshot:
		c.load(now, p, i, res.state)
	default:
		c.pulled(now, p, i, res.records)
	}
}

// fetchFailed schedules another try.
func (c *core) fetchFailed(now time.Duration, p *peer, i int, err error) {
	r := p.replicas[i]
	c.counts.fetchErrors++
	r.failures++
	r.due = now + min(firstRetry<<min(r.failures-1, 20), maxRetry)
	switch {
	case !r.synced:
		r.state = ReplicaAbsent
	case r.failures >= 3:
		r.state = ReplicaStale
	}
	if r.failures == 3 || r.failures == 20 {
		c.log(slog.LevelWarn, "cannot fetch member's filter", "member", p.name, "peer", p.peerAddr(), "error", err, "failures", r.failures)
	}
}

// pulled takes the records of a pull.
func (c *core) pulled(now time.Duration, p *peer, i int, f frame) {
	r := p.replicas[i]
	if f.sender != p.sender || f.boot != p.meta.boot || len(f.sections) != 1 || f.sections[0].part != c.streams[i].key {
		c.fetchFailed(now, p, i, errWrongAnswer)
		return
	}
	before := r.seq
	c.section(now, p, i, f.sections[0])
	if r.synced && r.state == ReplicaGap && r.due == 0 && !r.fetching {
		if r.seq == before {
			// It had nothing for us, and yet we miss something.
			c.fetchFailed(now, p, i, errWrongAnswer)
			return
		}
		r.due = soon(now)
	}
}

// load takes a snapshot.
func (c *core) load(now time.Duration, p *peer, i int, s *snapshot) {
	r := p.replicas[i]
	if s.sender != p.sender || s.boot != p.meta.boot || s.part != c.streams[i].key || s.epoch < r.epoch || s.epoch == 0 {
		c.fetchFailed(now, p, i, errWrongAnswer)
		return
	}
	if fill := float64(s.state.Count()) / float64(s.state.Params().Bits()); fill > maxFill {
		c.quarantine(now, p, i, "its filter is too full to be of use")
		return
	}
	if err := c.replicas[i].Load(p.name, s.state); err != nil {
		c.fetchFailed(now, p, i, err)
		return
	}
	if s.epoch > r.epoch {
		r.stash, r.stashBytes = nil, 0
		r.head, r.headSure = 0, false
	}
	r.epoch, r.seq, r.hash, r.params = s.epoch, s.seq, s.state.SetHash(), s.state.Params()
	r.synced, r.known, r.oldUntil = true, true, 0
	c.counts.loaded++
	c.drainStash(now, p, i)
	c.settle(now, p, i)
}
