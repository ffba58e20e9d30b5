package gossip

import (
	"time"
)

// showed takes note of how far a peer is in a sequence. Of our own that is an
// acknowledgement, wherever it comes from.
func (c *logCore) showed(p *logPeer, o origin, seq uint64) {
	if seq > p.shown[o] && (len(p.shown) < maxVector || p.shown[o] > 0) {
		p.shown[o] = seq
	}
	if o == c.self && seq > p.told && seq <= c.own.head {
		p.told = seq
		c.emit(ackedEffect{p.name, seq})
	}
}

// window is how many changes may be under way to one member.
const window = 1024

// send sends a peer what of our sequence it was not sent yet.
func (c *logCore) send(now time.Duration, p *logPeer) {
	if !p.up || p.sent >= c.own.head {
		return
	}
	from := max(p.sent, c.own.floor) + 1
	to := min(c.own.head, max(p.acked, c.own.floor)+window)
	if to < from {
		return // more when it has acknowledged some
	}
	c.sendRange(p, seqRange{from, to}, 1<<30, nil)
	p.sent, p.sentAt = to, now
	if p.resendAt == 0 {
		p.tries = 0
		p.resendAt = now + p.timeout()
	}
}

// sendRange sends changes of ours in as many messages as it takes, up to
// packets of them: those that fit into one as packets, longer ones by a stream.
func (c *logCore) sendRange(p *logPeer, rg seqRange, packets int, skip []seqRange) {
	var b []byte
	reliable, count := false, 0
	begin := func() { b, count = beginChanges(nil, c.self, c.self), 0 }
	begin()
	empty := len(b)
	flush := func() {
		if len(b) > empty {
			c.emit(logSendEffect{to: p.name, reliable: reliable, payload: sealFrame(b), kind: kindPurge})
			packets--
			begin()
		}
		reliable = false
	}
	for seq := rg.from; seq <= rg.to && packets > 0; seq++ {
		if len(skip) > 0 && seq > skip[0].to {
			skip = skip[1:]
		}
		h, ok := c.own.at(seq)
		if !ok || len(skip) > 0 && seq >= skip[0].from {
			continue
		}
		n := len(h.enc) + 11 + 4
		if count == maxMessageChanges {
			flush()
		}
		switch {
		case len(b)+n <= maxPacketLen:
		case empty+n <= maxPacketLen:
			flush()
		case !reliable || len(b)+n > maxMessageLen:
			flush()
			reliable = true
		}
		b = appendSequenced(b, seq, h.enc)
		count++
	}
	flush()
}

// timeout is how long an acknowledgement is waited for, with the backoff of
// the present try (RFC 6298's estimator).
func (p *logPeer) timeout() time.Duration {
	d := max(minResend, p.rtt+4*p.dev+ackDelay)
	return max(min(d<<min(p.tries, 10), maxResend), min(d, 2*time.Second))
}

// resend sends a peer once more what it has not acknowledged in time.
func (c *logCore) resend(now time.Duration, p *logPeer) {
	p.resendAt = 0
	if p.acked >= c.own.head {
		return
	}
	p.acked = max(p.acked, min(c.own.floor, p.sent)) // what is not held any more it will ask for, and learn that it is lost
	if p.acked >= p.sent {
		c.send(now, p)
		return
	}
	p.tries++
	c.counts.retransmitted++
	before := len(c.out)
	c.sendRange(p, seqRange{p.acked + 1, p.sent}, resendPackets, p.beyond)
	if p.tries >= reliableAfter && p.tries%2 == 0 {
		// Packets may not get through at all: by a stream, too.
		for _, e := range c.out[before:] {
			if e, ok := e.(logSendEffect); ok && !e.reliable {
				e.reliable = true
				c.emit(e)
				break
			}
		}
	}
	p.resendAt = now + p.timeout()
}

// ack takes an acknowledgement.
func (c *logCore) ack(now time.Duration, p *logPeer, m logMessage) {
	if m.seq > c.own.head || m.seq < p.acked {
		return // late, or nonsense
	}
	c.showed(p, c.self, m.seq)
	progress := m.seq > p.acked || len(m.ranges) != len(p.beyond)
	if p.tries == 0 && progress {
		p.measured(now - p.sentAt)
	}
	p.acked, p.beyond = m.seq, m.ranges
	p.sent = max(p.sent, p.acked)
	switch {
	case p.acked >= p.sent:
		p.resendAt, p.tries = 0, 0
	case progress:
		p.tries = 0
		p.resendAt = now + p.timeout()
	}
	if p.sent < c.own.head && c.flushAt == 0 {
		c.flushAt = max(now, c.lastFlush+batchWindow)
	}
}

func (p *logPeer) measured(took time.Duration) {
	if p.rtt == 0 {
		p.rtt, p.dev = took, took/2
		return
	}
	diff := took - p.rtt
	p.rtt += diff / 8
	p.dev += (max(diff, -diff) - p.dev) / 4
}

// sendAck tells a peer how far we are in its sequence.
func (c *logCore) sendAck(now time.Duration, p *logPeer) {
	p.ackAt, p.lastAt = 0, now
	s := c.find(origin{p.name, p.boot})
	if s == nil {
		return
	}
	c.emit(logSendEffect{to: p.name, payload: encodeAck(c.self, p.boot, s.head, s.beyond()), kind: kindAck})
}

// sendDigest tells a peer how far we are in all sequences.
func (c *logCore) sendDigest(now time.Duration, p *logPeer) {
	heads, hash := c.vector(now)
	c.emit(logSendEffect{to: p.name, payload: encodeDigest(c.self, p.doubt, hash, heads, maxPacketLen), kind: kindDigest})
}

// digest compares a peer's vector with ours.
func (c *logCore) digest(now time.Duration, p *logPeer, m logMessage) {
	heads, hash := c.vector(now)
	for _, h := range m.heads {
		c.showed(p, h.origin, h.seq)
	}
	if m.asks {
		p.answer = now
		c.sendDigest(now, p)
	}
	if hash == m.hash {
		for _, h := range heads {
			c.showed(p, h.origin, h.seq)
		}
		if p.slept {
			return
		}
		p.blind, p.pullAt, p.retry = false, 0, pullRetry
		c.inStep(p)
		return
	}
	complete := m.entries == len(m.heads)
	switch {
	case c.lacks(now, m.heads):
		c.wantPull(now+pullWait, p)
		return
	case !complete:
		p.blind = true
		c.wantPull(now+p.retry, p)
		p.retry = min(2*p.retry, maxPullRetry)
	}
	if complete {
		c.inStep(p) // we know all that it knows
	}
	// It lacks something: let it see what.
	if now >= p.answer+digestBusy {
		p.answer = now
		c.sendDigest(now, p)
		if complete && len(heads) == len(m.heads) && c.same(heads, m.heads) {
			// What differs lies beyond a gap.
			p.blind = true
			c.wantPull(now+p.retry, p)
			p.retry = min(2*p.retry, maxPullRetry)
		}
	}
}

// same reports whether two vectors of the same length are equal.
func (c *logCore) same(a, b []seqHead) bool {
	seqs := make(map[origin]uint64, len(a))
	for _, h := range a {
		seqs[h.origin] = h.seq
	}
	for _, h := range b {
		if seqs[h.origin] != h.seq {
			return false
		}
	}
	return true
}

// inStep says that we know all that a peer does.
func (c *logCore) inStep(p *logPeer) {
	if p.slept {
		return // that was so before
	}
	p.doubt = false
	c.synced = true
}

// lacks reports whether one of the heads is beyond ours.
func (c *logCore) lacks(now time.Duration, heads []seqHead) bool {
	oldest := c.oldest(now, tellOrigin)
	for _, h := range heads {
		if s := c.find(h.origin); h.stamp >= oldest && h.origin != c.self && (s == nil || s.head < h.seq) {
			return true
		}
	}
	return false
}

// wantPull has a peer asked at a time, or earlier.
func (c *logCore) wantPull(at time.Duration, p *logPeer) {
	if p.pullAt == 0 || at < p.pullAt {
		p.pullAt = at
	}
}

// behind reports whether a peer has shown more than we have.
func (c *logCore) behind(p *logPeer) bool {
	for o, seq := range p.shown {
		if s := c.find(o); o != c.self && (s == nil || s.head < seq) {
			return true
		}
	}
	return false
}

// pull asks a peer for what we lack, unless that has come meanwhile.
func (c *logCore) pull(now time.Duration, p *logPeer) {
	p.pullAt = 0
	if !p.doubt && !p.blind && !c.behind(p) {
		return
	}
	heads, hash := c.vector(now)
	c.lastPull++
	p.pulling = c.lastPull
	c.pulls++
	c.emit(pullEffect{id: p.pulling, from: p.name, payload: encodeDigest(c.self, false, hash, heads, 1<<20)})
}

// pulled takes the answer to a pull, or its failure.
func (c *logCore) pulled(now time.Duration, e pullEffect, a catchUp, err error) {
	c.pulls--
	defer c.tick(now)
	p := c.peer(e.from)
	if p == nil || p.pulling != e.id {
		return
	}
	p.pulling = 0
	if err != nil {
		c.counts.catchUpErrors++
		if p.up {
			c.wantPull(now+c.jitter(p.retry), p)
			p.retry = min(2*p.retry, maxPullRetry)
		}
		return
	}
	retry, applied := p.retry, c.counts.applied
	p.retry, p.blind = pullRetry, false
	if len(a.records) > 0 || len(a.cut) > 0 {
		c.counts.catchUps++
	}
	// What is lost first: the changes that are there come after it.
	var lost []seqHead
	for _, h := range a.cut {
		if s := c.find(h.origin); h.origin != c.self && (s == nil && len(c.seqs) < maxVector || s != nil && s.head < h.seq) {
			c.sequence(h.origin).skip(h.seq, h.stamp)
			lost = append(lost, h)
		}
	}
	if now > c.lastSync+tellOrigin/2 && p.doubt || len(lost) > 0 {
		// Longer ago than anybody's memory is sure to reach.
		c.counts.truncations++
		c.lastSync = now
		c.emit(cutEffect{from: p.name, heads: lost})
	}
	c.takeRecords(now, a.records)
	for _, r := range a.records {
		// Of another's sequence it may be beyond a gap of the peer's.
		if r.origin == (origin{p.name, p.boot}) {
			c.showed(p, r.origin, r.seq)
		}
	}
	switch {
	case a.more && len(lost) == 0 && c.counts.applied == applied:
		// Nothing of it could be taken, nor would it be the next time.
		c.wantPull(now+c.jitter(retry), p)
		p.retry = min(2*retry, maxPullRetry)
		return
	case a.more:
		p.pullAt = now
		return
	}
	p.slept = false
	c.inStep(p)
}

// catchUp answers a peer's pull.
func (c *logCore) catchUp(now time.Duration, m logMessage) catchUp {
	if p := c.peer(m.from); p != nil && p.boot == m.boot {
		for _, h := range m.heads {
			c.showed(p, h.origin, h.seq)
		}
	}
	theirs := make(map[origin]uint64, len(m.heads))
	for _, h := range m.heads {
		theirs[h.origin] = h.seq
	}
	var a catchUp
	heads, _ := c.vector(now)
	bytes := 0
	put := func(o origin, seq uint64, h *heldChange) bool {
		if len(a.records) >= catchUpRecords || bytes+len(h.enc)+100 > catchUpLen {
			a.more = true
			return false
		}
		bytes += len(h.enc) + 100
		a.records = append(a.records, record{o, seq, h.enc})
		return true
	}
	for _, head := range heads {
		s := c.find(head.origin)
		after := theirs[s.origin]
		if after < s.floor {
			a.cut = append(a.cut, seqHead{s.origin, s.floor, s.stamp})
			after = s.floor
		}
		for seq := after + 1; seq <= s.head; seq++ {
			if h, _ := s.at(seq); !put(s.origin, seq, h) {
				break
			}
		}
		for _, rg := range s.beyond() {
			for seq := rg.from; seq <= rg.to; seq++ {
				h := s.ahead[seq]
				put(s.origin, seq, &h)
			}
		}
	}
	return a
}
