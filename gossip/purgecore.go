package gossip

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// logCore is the log of changes: a sequence for each process of a member that
// ever took one, of which this member writes its own and applies all. Like core
// it is a machine of functions (now, event) to effects, without goroutine,
// clock or socket.
//
// A change goes to every member that can be reached, at once or, when others
// came just before it, with those of the next 10 ms. The receiver applies it
// whatever came before it, since purges commute, and acknowledges; what is not
// acknowledged is sent again, to that member alone. Behind that, each member
// tells a random other one how far it is in all sequences, and who finds itself
// behind asks, whoever showed it; so a change outlives the death of the member
// that took it (bimodal multicast, Birman et al. 1999). A member that was away
// asks before it trusts its store again: see state.
//
// The alternatives weighed: memberlist's own broadcast reaches all members of a
// large cluster now and then only, and an HTTP request to each member loses a
// retransmission timeout of TCP, 200 ms and more, for every packet lost.
//
// Not safe for concurrent use.
type logCore struct {
	cfg   logConfig
	self  origin
	rng   *rand.Rand
	clock *clock

	own   *sequence
	seqs  []*sequence // sorted by origin, own among them
	peers []*logPeer  // sorted by name
	bytes int         // of all sequences

	lastFlush  time.Duration
	flushAt    time.Duration // 0: nothing waits
	newestAt   time.Duration // when a change was applied last
	nextDigest time.Duration
	nextExpiry time.Duration
	pulls      int // running
	lastPull   uint64

	tickedAt time.Duration // when time passed last; 0: never
	synced   bool          // with one member at least
	aloneAt  time.Duration // when most of the members were reachable last
	lastSync time.Duration // when this member was last known to be in step
	state    SyncState
	since    time.Duration // of state

	out    []effect
	counts logCounts
}

// logConfig is what the log needs of a Config.
type logConfig struct {
	name   string
	boot   uint64
	expect bool      // other members are expected
	base   time.Time // the wall clock at time 0
}

// logCounts are the counters of the log.
type logCounts struct {
	applied, duplicates, retransmitted   uint64
	catchUps, catchUpErrors, truncations uint64
	drop                                 map[string]uint64
	sent, received                       map[string]Traffic
}

// Timers of the log; those of gossip.md's section on timers, as simulated.
const (
	batchWindow    = 10 * time.Millisecond
	minResend      = 20 * time.Millisecond
	maxResend      = 500 * time.Millisecond
	resendPackets  = 32 // at once to one member
	reliableAfter  = 4  // tries
	ackDelay       = 5 * time.Millisecond
	digestBusy     = 100 * time.Millisecond
	digestBusyFor  = 3 * time.Second
	digestIdle     = time.Second
	pullWait       = 50 * time.Millisecond // before one asks for what may be on its way
	pullRetry      = 250 * time.Millisecond
	maxPullRetry   = 5 * time.Second
	maxPulls       = 4
	syncBudget     = 2 * time.Second  // of a start, until one serves without
	isolatedAfter  = 30 * time.Second // without most of the members
	keepCounted    = time.Hour        // a failed member among those that most is taken of
	asleepAfter    = 2 * time.Second  // without a tick, of which there is one a second at least; others find a member failed, and wait no more, after 2.5 s
	decodedFor     = time.Minute      // from their application on, changes are kept decoded, for Carry
	catchUpLen     = 4 << 20
	catchUpRecords = 10_000
)

// logPeer is another member as the log sees it.
type logPeer struct {
	name   string
	boot   uint64
	up     bool
	downAt time.Duration // since when it is not
	gone   bool          // for so long that it does not count

	acked    uint64 // of our sequence: all up to it, or not to be sent
	told     uint64 // the same, as ackedEffect has said
	beyond   []seqRange
	sent     uint64
	sentAt   time.Duration
	resendAt time.Duration // 0: nothing is outstanding
	tries    int
	rtt, dev time.Duration

	ackAt  time.Duration // when an ack is due to it, 0: none
	lastAt time.Duration // of the last ack to it

	shown map[origin]uint64 // how far it is, as far as it is known

	doubt   bool          // it was out of reach: ask it before trusting the store
	slept   bool          // we were: what came from it may be from before, an answer to a pull is not
	askAt   time.Duration // when its digest is asked for again, in doubt
	pullAt  time.Duration // 0: nothing is to be asked
	pulling uint64        // number of the request that runs, 0: none
	retry   time.Duration
	blind   bool          // its vector differs in what its digests do not show
	answer  time.Duration // when it was last sent a digest because it is behind
}

// Effects of the log. applyEffect must be carried out before those that follow
// it.
type (
	applyEffect struct {
		records []record
		changes []*Change
	}
	logSendEffect struct {
		to       string
		reliable bool
		payload  []byte
		kind     string
	}
	pullEffect struct {
		id      uint64
		from    string
		payload []byte // a digest of the whole vector
	}
	cutEffect struct { // changes are lost: nothing stored can be trusted
		from  string
		heads []seqHead // up to which they are
	}
	ackedEffect struct {
		from string
		seq  uint64
	}
	peerGoneEffect struct {
		name string
		left bool
	}
	stateEffect struct{ state SyncState }
)

func (applyEffect) isEffect()    {}
func (logSendEffect) isEffect()  {}
func (pullEffect) isEffect()     {}
func (cutEffect) isEffect()      {}
func (ackedEffect) isEffect()    {}
func (peerGoneEffect) isEffect() {}
func (stateEffect) isEffect()    {}

func newLogCore(cfg logConfig, clk *clock, rng *rand.Rand) *logCore {
	c := &logCore{cfg: cfg, self: origin{cfg.name, cfg.boot}, rng: rng, clock: clk, state: SyncSynced}
	c.counts = logCounts{drop: map[string]uint64{}, sent: map[string]Traffic{}, received: map[string]Traffic{}}
	c.own = c.sequence(c.self)
	if cfg.expect {
		c.state = SyncSyncing
	}
	return c
}

func (c *logCore) emit(e effect) { c.out = append(c.out, e) }

func (c *logCore) take() []effect {
	out := c.out
	c.out = nil
	return out
}

func (c *logCore) wall(now time.Duration) time.Time { return c.cfg.base.Add(now) }

// oldest is the stamp of what is d old.
func (c *logCore) oldest(now, d time.Duration) uint64 { return wallStamp(c.wall(now).Add(-d)) }

func cmpOrigin(a, b origin) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.boot, b.boot))
}

// sequence returns the sequence of an origin, which it makes if need be.
func (c *logCore) sequence(o origin) *sequence {
	i, ok := slices.BinarySearchFunc(c.seqs, o, func(s *sequence, o origin) int { return cmpOrigin(s.origin, o) })
	if !ok {
		c.seqs = slices.Insert(c.seqs, i, &sequence{origin: o})
	}
	return c.seqs[i]
}

// find returns the sequence of an origin; nil when nothing of it is known.
func (c *logCore) find(o origin) *sequence {
	i, ok := slices.BinarySearchFunc(c.seqs, o, func(s *sequence, o origin) int { return cmpOrigin(s.origin, o) })
	if !ok {
		return nil
	}
	return c.seqs[i]
}

func (c *logCore) peer(name string) *logPeer {
	i, ok := slices.BinarySearchFunc(c.peers, name, func(p *logPeer, name string) int { return cmp.Compare(p.name, name) })
	if !ok {
		return nil
	}
	return c.peers[i]
}

// restore takes a change that was applied by an earlier process, or seq alone:
// all up to it is known to be lost. Called before anything else.
func (c *logCore) restore(r record, stamp uint64) {
	s := c.sequence(r.origin)
	if r.enc == nil {
		s.skip(r.seq, stamp)
		return
	}
	if s.has(r.seq) {
		return
	}
	h := heldChange{enc: r.enc, stamp: stamp}
	if stamp >= c.oldest(0, decodedFor) { // others may not have it yet
		if ch, err := decodeChange(r.enc); err == nil {
			ch.ID = changeID(r.origin, r.seq)
			h.c = &ch
		}
	}
	if s.add(r.seq, h) {
		c.bytes += len(r.enc)
	}
}

// accept takes changes into this member's own sequence and returns the number
// of the last one.
func (c *logCore) accept(now time.Duration, changes []*Change) uint64 {
	a := applyEffect{}
	for _, ch := range changes {
		ch.Stamp = c.clock.next(c.wall(now))
		seq := c.own.head + 1
		ch.ID = changeID(c.self, seq)
		enc := appendChange(nil, ch)
		held := *ch
		held.Note = nil
		c.own.add(seq, heldChange{enc, ch.Stamp, now, &held})
		c.bytes += len(enc)
		a.records = append(a.records, record{c.self, seq, enc})
		a.changes = append(a.changes, ch)
	}
	c.emit(a)
	c.applied(now, len(changes))
	if c.flushAt == 0 {
		c.flushAt = max(now, c.lastFlush+batchWindow)
	}
	c.tick(now)
	return c.own.head
}

func (c *logCore) applied(now time.Duration, n int) {
	c.counts.applied += uint64(n)
	c.newestAt = now
	c.nextDigest = min(c.nextDigest, now+c.jitter(digestBusy))
}

func (c *logCore) jitter(d time.Duration) time.Duration {
	return d*9/10 + time.Duration(c.rng.Int64N(int64(d)/5))
}

// receive takes a message of the log.
func (c *logCore) receive(now time.Duration, m logMessage) {
	p := c.peer(m.from)
	if p != nil && p.boot != m.boot {
		p = nil // of an earlier process, or of one that membership has not told of yet
	}
	switch m.kind {
	case frameChanges:
		c.takeRecords(now, m.records)
		if p != nil && m.of == (origin{p.name, p.boot}) && len(m.records) > 0 {
			c.showed(p, m.of, m.records[len(m.records)-1].seq)
			if p.ackAt == 0 {
				p.ackAt = max(now, p.lastAt+ackDelay)
			}
		}
	case frameAck:
		if p != nil && m.of.boot == c.self.boot {
			c.ack(now, p, m)
		}
	case frameDigest:
		if p != nil && p.up {
			c.digest(now, p, m)
		}
	}
	c.tick(now)
}

// takeRecords applies those of the records that are new.
func (c *logCore) takeRecords(now time.Duration, records []record) {
	var a applyEffect
	for _, r := range records {
		s := c.find(r.origin)
		switch {
		case s == nil && len(c.seqs) >= maxVector:
			c.counts.drop[dropMembers]++
			continue
		case s != nil && s.has(r.seq):
			c.counts.duplicates++
			continue
		case s == c.own:
			// Nobody else writes our sequence; a forger would.
			c.counts.drop[dropSender]++
			continue
		}
		ch, err := decodeChange(r.enc)
		if err != nil {
			c.counts.drop[dropMalformed]++
			continue
		}
		if !c.clock.merge(ch.Stamp, c.wall(now)) {
			c.counts.drop[dropStamp]++ // its stamp alone: it is applied
		}
		if s == nil {
			s = c.sequence(r.origin)
		}
		r.enc = append([]byte(nil), r.enc...)
		ch.ID = changeID(r.origin, r.seq)
		if !s.add(r.seq, heldChange{r.enc, ch.Stamp, now, &ch}) {
			c.counts.drop[dropStash]++
			continue
		}
		c.bytes += len(r.enc)
		a.records = append(a.records, r)
		a.changes = append(a.changes, &ch)
	}
	if len(a.records) > 0 {
		c.emit(a)
		c.applied(now, len(a.records))
	}
}

// vector lists how far this member is in all sequences, the newest first.
func (c *logCore) vector(now time.Duration) (heads []seqHead, hash uint64) {
	oldest := c.oldest(now, tellOrigin)
	for _, s := range c.seqs {
		if s.head == 0 && len(s.ahead) == 0 || s.stamp < oldest {
			continue
		}
		h := seqHead{s.origin, s.head, s.stamp}
		heads = append(heads, h)
		hash += h.hash()
		for seq := range s.ahead {
			hash += seqHead{s.origin, seq, 0}.hash() * 3
		}
	}
	slices.SortStableFunc(heads, func(a, b seqHead) int { return cmp.Compare(b.stamp, a.stamp) })
	return heads, hash
}

// expire forgets what is too old or too much.
func (c *logCore) expire(now time.Duration) {
	oldest, gone := c.oldest(now, keepChanges), c.oldest(now, keepOrigin)
	c.bytes = 0
	for _, s := range c.seqs {
		s.trim(oldest)
		for i := range s.held {
			h := &s.held[len(s.held)-1-i]
			if now < h.at+decodedFor {
				continue
			}
			if h.c == nil {
				break // those before it neither
			}
			h.c = nil
		}
		c.bytes += s.bytes
	}
	for c.bytes > maxChangesTotal {
		// Half of the largest: it is forgotten soonest anyway.
		s := slices.MaxFunc(c.seqs, func(a, b *sequence) int { return cmp.Compare(a.bytes, b.bytes) })
		before := s.bytes
		n := (len(s.held) + 1) / 2
		for _, h := range s.held[:n] {
			s.bytes -= len(h.enc)
		}
		s.drop(n)
		if s.bytes == before {
			break
		}
		c.bytes -= before - s.bytes
	}
	c.seqs = slices.DeleteFunc(c.seqs, func(s *sequence) bool { return s != c.own && s.stamp < gone })
	if c.majority() {
		for _, p := range c.peers {
			p.gone = p.gone || !p.up && now >= p.downAt+keepCounted
		}
		c.forget(func(p *logPeer) bool { return now >= p.downAt+keepFailed })
	}
}

// tick does what is due. Every event ends with it.
func (c *logCore) tick(now time.Duration) {
	if slept := now - c.tickedAt; c.tickedAt > 0 && slept > asleepAfter {
		c.woke(now, slept)
	}
	c.tickedAt = max(now, 1)
	if c.flushAt != 0 && now >= c.flushAt {
		c.flushAt, c.lastFlush = 0, now
		for _, p := range c.peers {
			c.send(now, p)
		}
	}
	for _, p := range c.peers {
		if p.ackAt != 0 && now >= p.ackAt {
			c.sendAck(now, p)
		}
		if p.up && p.resendAt != 0 && now >= p.resendAt {
			c.resend(now, p)
		}
		if p.up && p.doubt && !p.slept && now >= p.askAt {
			// Its digest comes sooner than the answer to a pull when it has just
			// started, and mostly says that nothing is missing.
			p.askAt = now + c.jitter(digestBusy)
			c.sendDigest(now, p)
		}
		if p.up && p.pullAt != 0 && now >= p.pullAt && p.pulling == 0 && c.pulls < maxPulls {
			c.pull(now, p)
		}
	}
	if now >= c.nextDigest {
		every := digestIdle
		if now < c.newestAt+digestBusyFor && c.newestAt > 0 {
			every = digestBusy
		}
		c.nextDigest = now + c.jitter(every)
		if p := c.anyone(); p != nil {
			c.sendDigest(now, p)
		}
	}
	if now >= c.nextExpiry {
		c.nextExpiry = now + time.Second
		c.expire(now)
	}
	c.review(now)
}

// anyone picks a member that can be reached.
func (c *logCore) anyone() *logPeer {
	var up []*logPeer
	for _, p := range c.peers {
		if p.up {
			up = append(up, p)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[c.rng.IntN(len(up))]
}

// deadline returns when tick is due next.
func (c *logCore) deadline() time.Duration {
	d := min(c.nextDigest, c.nextExpiry)
	at := func(t time.Duration) {
		if t != 0 {
			d = min(d, t)
		}
	}
	at(c.flushAt)
	for _, p := range c.peers {
		at(p.ackAt)
		if p.up {
			at(p.resendAt)
			if p.doubt && !p.slept {
				at(p.askAt)
			}
			if p.pulling == 0 && c.pulls < maxPulls {
				at(p.pullAt)
			}
		}
	}
	return d
}
