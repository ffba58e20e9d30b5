package gossip

import (
	"log/slog"
	"net"
	"slices"
	"time"
)

// peer is another member: what it told about itself, how far it has been sent
// our streams and, in replicas, what we hold of its.
type peer struct {
	name    string
	sender  uint64
	addr    string // of membership
	meta    nodeMeta
	state   State
	changed time.Duration // of state
	gone    uint64        // the boot that has said farewell, 0: none

	lastHeard time.Duration
	due       time.Duration // nothing is to be done for it before; see core.touch

	// Outgoing. cursors is per stream of ours; before is what they were when
	// the message that is on its way was made.
	cursors  []cursor
	before   []cursor
	busy     bool
	lastSent time.Duration
	retryAt  time.Duration
	retry    time.Duration
	turn     int

	replicas  []*replica // per stream of ours, whether the peer has it or not
	precision precision
}

// cursor is the last record of a stream that a peer was sent.
type cursor struct {
	epoch uint32
	seq   uint64
}

// reachable reports whether the peer is to be talked to.
func (p *peer) reachable() bool { return p.state == StateAlive || p.state == StateSuspect }

// version is the newest version that both this member and the peer understand.
func (c *core) version(p *peer) byte { return min(c.cfg.newest, p.meta.newest) }

// peerAddr is where the peer's HTTP answers.
func (p *peer) peerAddr() string {
	host, port, err := net.SplitHostPort(p.meta.peerAddr)
	if err != nil {
		return p.meta.peerAddr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host, _, _ = net.SplitHostPort(p.addr)
	}
	return net.JoinHostPort(host, port)
}

// nodeMeta is what this member tells about itself.
func (c *core) nodeMeta() nodeMeta {
	m := nodeMeta{oldest: metaVersion, newest: c.cfg.newest, boot: c.cfg.boot, seedMark: c.cfg.seedMark, role: c.cfg.role, peerAddr: c.cfg.peerAddr}
	if c.draining {
		m.flags |= flagDraining
	}
	for _, s := range c.streams {
		m.parts = append(m.parts, partMeta{key: s.key, layout: uint8(s.params.Layout), blocks: s.params.Blocks, epoch: s.epoch})
	}
	return m
}

// memberUp says that membership holds a member for alive, or has news of its
// address or metadata.
func (c *core) memberUp(now time.Duration, name, addr string, meta nodeMeta) {
	if name == c.cfg.name {
		return
	}
	_, p := c.find(name)
	if p != nil && p.gone == meta.boot && p.gone != 0 {
		return // late news: a process that has left never comes back
	}
	if p == nil {
		if len(c.peers) >= maxMembers && !c.forgetOldest() {
			c.counts.drop[dropMembers]++
			return
		}
		if other := c.bySender[nameKey(name)]; other != nil {
			c.counts.drop[dropMembers]++
			c.log(slog.LevelError, "two members' names cannot be told apart, one is ignored", "name", name, "other", other.name)
			return
		}
		i, _ := c.find(name)
		p = &peer{name: name, sender: nameKey(name), meta: meta, addr: addr}
		c.peers = slices.Insert(c.peers, i, p)
		c.bySender[p.sender] = p
		c.freshPeer(p)
	}
	back := !p.reachable()
	old := p.meta
	p.addr, p.meta = addr, meta
	p.lastHeard = now
	if p.state != StateAlive {
		p.state, p.changed = StateAlive, now
	}
	c.recount()
	switch {
	case old.boot != meta.boot:
		c.log(slog.LevelInfo, "member was restarted", "member", name, "gossip", addr, "peer", p.peerAddr())
		c.dropReplicas(p)
		c.freshPeer(p)
	case back:
		c.log(slog.LevelInfo, "member is alive", "member", name, "gossip", addr, "peer", p.peerAddr())
	}
	if back || old.boot != meta.boot {
		p.lastSent = now - time.Hour // greet it at once, so that it learns our heads
		p.retryAt, p.retry = 0, 0
	}
	c.offered(now, p, back)
	c.touch(p)
	c.emit(membersEffect{})
}

// freshPeer starts over with a process of which nothing is known.
func (c *core) freshPeer(p *peer) {
	p.cursors = make([]cursor, len(c.streams))
	for i, s := range c.streams {
		p.cursors[i] = cursor{s.epoch, s.seq}
	}
	p.before = nil
	p.precision = precision{}
	old := p.replicas
	p.replicas = make([]*replica, len(c.streams))
	for i := range p.replicas {
		p.replicas[i] = newReplica()
		if old != nil {
			if old[i].fetching && old[i].fetchSnapshot {
				c.snapshotsRunning--
			}
			p.replicas[i].resyncs, p.replicas[i].gaps = old[i].resyncs, old[i].gaps
		}
	}
}

// suspect says that a member did not answer.
func (c *core) suspect(now time.Duration, name string) {
	if _, p := c.find(name); p != nil && p.state == StateAlive {
		p.state, p.changed = StateSuspect, now
		c.counts.suspicions++
		c.touch(p)
		c.emit(membersEffect{})
	}
}

// heard says that something came from the peer itself.
func (c *core) heard(now time.Duration, p *peer) {
	p.lastHeard = now
	if p.state == StateSuspect {
		p.state, p.changed = StateAlive, now
		c.emit(membersEffect{})
	}
}

// memberDown says that membership holds a member for dead. One that was
// draining has left.
func (c *core) memberDown(now time.Duration, name string) {
	_, p := c.find(name)
	if p == nil || !p.reachable() {
		return
	}
	p.state, p.changed = StateFailed, now
	c.recount()
	if p.meta.draining() {
		p.state = StateLeft
		c.dropReplicas(p)
		c.log(slog.LevelInfo, "member left", "member", name)
	} else {
		c.log(slog.LevelWarn, "member failed", "member", name, "gossip", p.addr)
	}
	for i, r := range p.replicas {
		c.stopFetch(r)
		c.suspendReplica(p, i)
		r.due = 0
		r.state, r.dropAt = ReplicaDead, now+keepDead
		if p.state == StateLeft {
			r.state, r.dropAt = ReplicaLeft, 0
		}
	}
	c.touch(p)
	c.emit(membersEffect{})
}

// farewell takes a process's own word that it has left. It is final: whatever
// membership still says of this process is old, be it that the news of its
// leaving have got lost there, or that a third member brings older ones.
func (c *core) farewell(now time.Duration, p *peer, boot uint64) {
	if p == nil || p.meta.boot != boot {
		c.counts.drop[dropSender]++
		return
	}
	p.gone = boot
	p.meta.flags |= flagDraining
	if p.state == StateFailed {
		p.state = StateSuspect // so that it is taken for one that left
	}
	c.memberDown(now, p.name)
}

// leave ends what this member says, and returns its last words and the
// members that are to hear them.
func (c *core) leave() (frame []byte, to []string) {
	c.left = true
	for _, p := range c.peers {
		if p.reachable() {
			to = append(to, p.name)
		}
	}
	return sealFrame(appendFrameHeader(nil, flagDraining|flagLeft, c.sender, c.cfg.boot)), to
}

// drain says that this member is about to leave.
func (c *core) drain(now time.Duration) {
	if c.draining {
		return
	}
	c.draining = true
	for _, p := range c.peers {
		p.lastSent = now - time.Hour // tell everyone with the next tick
	}
	c.touchAll()
	c.emit(metaEffect{})
	c.emit(membersEffect{})
}

// expire forgets members that failed or left long ago.
func (c *core) expire(now time.Duration) {
	c.peers = slices.DeleteFunc(c.peers, func(p *peer) bool {
		old := p.state == StateFailed && now >= p.changed+keepFailed || p.state == StateLeft && now >= p.changed+keepLeft
		if old {
			c.forget(p)
		}
		return old
	})
}

// forgetOldest makes room for a member; it reports whether there is some.
func (c *core) forgetOldest() bool {
	var oldest *peer
	for _, p := range c.peers {
		if !p.reachable() && (oldest == nil || p.changed < oldest.changed) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	c.forget(oldest)
	i, _ := c.find(oldest.name)
	c.peers = slices.Delete(c.peers, i, i+1)
	return true
}

func (c *core) forget(p *peer) {
	c.dropReplicas(p)
	delete(c.bySender, p.sender)
	c.emit(membersEffect{})
}

// members lists all members but this one, sorted by name.
func (c *core) members() []Member {
	ms := make([]Member, len(c.peers))
	for i, p := range c.peers {
		ms[i] = Member{
			Name: p.name, Role: p.meta.role, State: p.state, PeerAddr: p.peerAddr(),
			GossipAddr: p.addr, Boot: p.meta.boot, Draining: p.meta.draining(),
		}
	}
	return ms
}
