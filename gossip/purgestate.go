package gossip

import (
	"cmp"
	"log/slog"
	"slices"
	"time"
)

// SyncState says how far this member can be trusted to know every change.
type SyncState string

// The states.
const (
	SyncSynced   SyncState = "synced"   // nothing is known to be missing
	SyncSyncing  SyncState = "syncing"  // asking members that were out of reach, or for the first time
	SyncIsolated SyncState = "isolated" // most members can't be reached: changes may be missed without a sign
)

// SyncStates lists all states.
func SyncStates() []SyncState { return []SyncState{SyncSynced, SyncSyncing, SyncIsolated} }

// peerUp says that a member can be reached.
func (c *logCore) peerUp(now time.Duration, name string, boot uint64) {
	if name == c.self.name {
		return
	}
	p := c.peer(name)
	known := p != nil
	if !known {
		c.makeRoom()
		i, _ := slices.BinarySearchFunc(c.peers, name, func(p *logPeer, name string) int { return cmp.Compare(p.name, name) })
		p = &logPeer{name: name}
		c.peers = slices.Insert(c.peers, i, p)
	}
	if p.up && p.boot == boot {
		return
	}
	was, same := p.up, p.boot == boot
	if was {
		c.emit(peerGoneEffect{name: name}) // the process that was waited for is
	}
	p.up, p.gone = true, false
	if !same {
		*p = logPeer{name: name, boot: boot, up: true, shown: map[origin]uint64{}, retry: pullRetry, pulling: p.pulling}
		// A new process asks for what it missed. What is under way to the others
		// it may miss there, since they may not have it yet.
		p.acked = c.own.head
		for p.acked > c.own.floor {
			if h, _ := c.own.at(p.acked); h.stamp < c.oldest(now, digestBusyFor) {
				break
			}
			p.acked--
		}
	}
	p.sent, p.beyond = p.acked, nil
	p.tries, p.resendAt = 0, 0
	if p.sent < c.own.head {
		p.resendAt = now
	}
	if known && !was || c.cfg.expect && !c.synced {
		// It was out of reach, or we were: it may know what we missed.
		p.doubt = true
		p.pullAt, p.askAt = now, now
	} else {
		c.sendDigest(now, p)
	}
	c.tick(now)
}

// peerDown says that a member can't be reached. One that left is not expected
// to come back.
func (c *logCore) peerDown(now time.Duration, name string, left bool) {
	p := c.peer(name)
	if p == nil {
		return
	}
	if p.up || left {
		c.emit(peerGoneEffect{name, left})
	}
	if c.majority() {
		c.aloneAt = now
	}
	if p.up {
		p.downAt, p.gone = now, false
	}
	p.up, p.doubt, p.slept, p.pullAt, p.ackAt, p.resendAt = false, false, false, 0, 0, 0
	if left {
		c.peers = slices.DeleteFunc(c.peers, func(q *logPeer) bool { return q == p })
	}
	c.review(now)
}

// makeRoom forgets the member that is out of reach for longest when there are
// as many as membership knows.
func (c *logCore) makeRoom() {
	if len(c.peers) < maxMembers {
		return
	}
	var oldest *logPeer
	for _, p := range c.peers {
		if !p.up && (oldest == nil || p.downAt < oldest.downAt) {
			oldest = p
		}
	}
	c.forget(func(p *logPeer) bool { return p == oldest })
}

// forget drops members that are not up.
func (c *logCore) forget(which func(*logPeer) bool) {
	c.peers = slices.DeleteFunc(c.peers, func(p *logPeer) bool {
		if p.up || !which(p) {
			return false
		}
		c.emit(peerGoneEffect{p.name, true})
		return true
	})
}

func (c *logCore) reachable() bool {
	return slices.ContainsFunc(c.peers, func(p *logPeer) bool { return p.up })
}

// majority reports whether more than half of the members, this one included,
// can be reached. Of those that failed, the ones of the last hour count; but who
// does not reach most forgets nobody, so that waiting makes no majority. Exactly
// half is none: neither side of such a split can know what the other one purges.
//
// The stricter rule, that any member out of reach that has not left may be
// purging, would also know of what a minority purges. But then the death
// of one machine makes all others ask the origin for each hit until somebody says
// that it is dead; and a call on the minority's side tells whom it did not reach.
func (c *logCore) majority() bool {
	up, all := 1, 1
	for _, p := range c.peers {
		if p.up {
			up++
		}
		if !p.gone {
			all++
		}
	}
	return 2*up > all
}

// review decides the state anew.
func (c *logCore) review(now time.Duration) {
	state := SyncSynced
	switch {
	case slices.ContainsFunc(c.peers, func(p *logPeer) bool { return p.up && p.doubt }):
		state = SyncSyncing
	case !c.majority() || len(c.peers) == 0 && c.cfg.expect:
		switch {
		case now >= c.aloneAt+isolatedAfter:
			state = SyncIsolated
		case !c.synced && now < syncBudget:
			state = SyncSyncing
		}
	default:
		c.aloneAt = now
	}
	if state == SyncSynced && c.reachable() {
		c.lastSync = now
	}
	if state == c.state {
		return
	}
	c.state, c.since = state, now
	level := slog.LevelInfo
	if state == SyncIsolated {
		level = slog.LevelWarn
	}
	c.emit(logEffect{level, "the log of purges is " + string(state), nil})
	c.emit(stateEffect{state})
}

// woke is told how long this process did not run: it was stopped, or its
// machine was. It is out of step then as if it had been cut off, and does not
// learn it from membership.
func (c *logCore) woke(now, slept time.Duration) {
	c.emit(logEffect{slog.LevelWarn, "this process has not run for a while: it asks the others what was purged", []any{"for", slept}})
	for _, p := range c.peers {
		if p.up {
			p.doubt, p.slept = true, true
			p.pulling, p.pullAt = 0, now // an answer that is on its way may be from before
		}
	}
}
