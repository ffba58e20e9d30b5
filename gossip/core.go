package gossip

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"edged/peerfilter"
)

// core is the replicator: what this member publishes, what it holds of each
// peer, and what is to be done next. It is a machine of functions (now, event)
// to effects. It has no goroutine, clock or socket, and its random source is
// given, so a simulation replays bit for bit. The events are its methods that
// take now; each leaves its effects in out, which take returns. now is time
// since any fixed moment and never goes back.
//
// Not safe for concurrent use, except for the replicas: their look-ups need
// no lock.
type core struct {
	cfg      coreConfig
	sender   uint64
	rng      *rand.Rand
	streams  []*stream
	index    map[uint64]int // partition's name key to its place in streams
	replicas []*peerfilter.Replicas
	peers    []*peer // sorted by name
	bySender map[uint64]*peer
	live     int // reachable peers
	draining bool
	left     bool // nothing is said any more

	strangers    map[uint64]stranger // by boot
	nextExchange time.Duration       // not before

	nextFlush time.Duration
	lastFlush time.Duration
	nextAudit time.Duration
	nextPeer  time.Duration // no peer has anything due before; see touch
	wanted    time.Duration // when tick was to be called at the latest, 0: never mind
	audited   int           // which replica the next audit takes

	snapshotsRunning int
	lastFetch        uint64
	out              []effect
	counts           counts

	trans peerfilter.Transitions // scratch
	rec   peerfilter.Record      // scratch
}

// coreConfig is what the core needs of a Config.
type coreConfig struct {
	name       string
	newest     byte // version of frames that this member understands
	boot       uint64
	role       string
	peerAddr   string
	seedMark   uint64
	partitions []Partition
	flush      time.Duration
	rateLimit  int // bytes a second
}

// Timers and bounds of the protocol. Where nothing is said they come from the
// simulations behind it: 64 to 200 members, up to 20 % loss.
const (
	headInterval    = time.Second            // a head is sent when nothing was for so long
	reorderWait     = 50 * time.Millisecond  // before records that are missing are pulled
	staleAfter      = 10 * time.Second       // without a head in sequence
	keepDead        = 60 * time.Second       // a failed member's bits, for a cheap return
	keepOldEpoch    = 30 * time.Second       // the bits of an older epoch while the newer is fetched
	keepFailed      = 24 * time.Hour         // a failed member in the list
	keepLeft        = 5 * time.Minute        // a member that left in the list
	auditInterval   = 10 * time.Second       // between recounts of one replica
	quarantineTime  = 10 * time.Minute       //
	divergedLimit   = 3                      // within quarantineTime: quarantine
	maxFill         = 0.6                    // a fuller filter says yes to all: quarantine
	maxSnapshotsIn  = 2                      // fetched at once
	maxStash        = 64                     // records that wait for those before them
	maxStashBytes   = 1 << 20                // of one replica
	firstRetry      = 200 * time.Millisecond // after a failed fetch, doubled up to
	maxRetry        = time.Minute            //
	maxSendRetry    = 8 * time.Second        // the same after a failed send, from 1 s
	jitterPerMember = 5 * time.Millisecond   // spreads the snapshots of a start over
	maxJitter       = time.Second            //
	tolerated       = 500 * time.Millisecond // by which a tick may be late
	staleShare      = 0.1                    // of a stale replica's bits that may have changed
	maxMembers      = peerfilter.MaxMembers
)

// effect is something that the core wants done.
type effect interface{ isEffect() }

// sendEffect is a message to a peer; the core expects sent to be called
// afterwards, and sends that peer nothing before.
type sendEffect struct {
	to       string
	payload  []byte
	reliable bool // by stream, not by packet
	records  int
}

// fetchEffect is a pull from a peer; the core expects fetched to be called.
type fetchEffect struct {
	from     string
	addr     string
	part     int
	id       uint64
	snapshot bool // else the records after after
	boot     uint64
	epoch    uint32
	after    uint64
}

// metaEffect says that nodeMeta has changed.
type metaEffect struct{}

// membersEffect says that members has changed.
type membersEffect struct{}

// logEffect is something to be said.
type logEffect struct {
	level slog.Level
	msg   string
	args  []any
}

func (sendEffect) isEffect()    {}
func (fetchEffect) isEffect()   {}
func (metaEffect) isEffect()    {}
func (membersEffect) isEffect() {}
func (logEffect) isEffect()     {}

// newCore returns a core that knows of nobody and has published nothing.
func newCore(cfg coreConfig, rng *rand.Rand) (*core, error) {
	c := &core{
		cfg:       cfg,
		sender:    nameKey(cfg.name),
		rng:       rng,
		index:     map[uint64]int{},
		bySender:  map[uint64]*peer{},
		strangers: map[uint64]stranger{},
		nextAudit: auditInterval,
		nextPeer:  never,
		counts:    newCounts(),
	}
	for i, p := range cfg.partitions {
		r, err := peerfilter.NewReplicas(p.Params)
		if err != nil {
			return nil, err
		}
		c.replicas = append(c.replicas, r)
		c.streams = append(c.streams, &stream{key: nameKey(p.Name), params: p.Params})
		c.index[nameKey(p.Name)] = i
	}
	c.nextFlush = c.jitter(cfg.flush)
	return c, nil
}

// take returns the effects of the events since it was last called.
func (c *core) take() []effect {
	out := c.out
	c.out = nil
	return out
}

func (c *core) emit(e effect) { c.out = append(c.out, e) }

func (c *core) log(level slog.Level, msg string, args ...any) {
	c.emit(logEffect{level, msg, args})
}

// jitter returns a duration below d.
func (c *core) jitter(d time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(max(d, 1))))
}

// flushInterval is the time between two flushes: never more than 125 messages
// a second leave, whatever the number of members.
func (c *core) flushInterval() time.Duration {
	return max(c.cfg.flush, time.Duration(c.live+1)*flushPerMember)
}

func (c *core) headInterval() time.Duration { return max(headInterval, c.flushInterval()) }

// recount follows a change of who is reachable.
func (c *core) recount() {
	live := 0
	for _, p := range c.peers {
		if p.reachable() {
			live++
		}
	}
	if live != c.live { // and with it the intervals
		c.live = live
		c.touchAll()
	}
}

// never is a moment that does not come.
const never = time.Duration(1<<63 - 1)

// touch follows a change of what is due for a peer. Every event does it, so
// that tick, which each message leads to, need not look at all peers but at
// most of the time at none: with 200 members that was two thirds of the
// processor time of a simulation. p.due may be too early, as it is when a
// message has put off a peer's silence, and never too late.
func (c *core) touch(p *peer) {
	p.due = c.peerDeadline(p)
	c.nextPeer = min(c.nextPeer, p.due)
}

func (c *core) touchAll() {
	for _, p := range c.peers {
		c.touch(p)
	}
}

// tick does all that is due.
func (c *core) tick(now time.Duration) {
	if late := now - c.wanted; c.wanted > 0 && late > tolerated {
		// This process stood still: what others said meanwhile is still to be
		// read, and they are not to blame for the silence.
		for _, p := range c.peers {
			p.lastHeard += late
		}
	}
	c.wanted = 0
	if now >= c.nextFlush && c.flush(now) {
		c.touchAll()
	}
	if now >= c.nextPeer {
		c.nextPeer = never
		old := false
		for _, p := range c.peers {
			if now >= p.due {
				c.tickPeer(now, p)
				p.due = c.peerDeadline(p)
				old = old || !p.reachable()
			}
			c.nextPeer = min(c.nextPeer, p.due)
		}
		if old {
			c.expire(now)
		}
	}
	if now >= c.nextAudit {
		c.nextAudit = now + auditInterval
		c.audit(now)
	}
}

// deadline is when tick has something to do, or a little earlier.
func (c *core) deadline() time.Duration {
	c.wanted = min(c.nextFlush, c.nextAudit, c.nextPeer)
	return c.wanted
}

// tickPeer sends to one peer what is due, notices its silence and drives its
// replicas.
func (c *core) tickPeer(now time.Duration, p *peer) {
	if p.state == StateAlive && now >= p.lastHeard+c.silence() {
		c.suspect(now, p.name)
	}
	if c.free(p) && now >= p.retryAt && (c.news(p) || now >= p.lastSent+c.headInterval()) {
		c.send(now, p)
	}
	for i := range p.replicas {
		c.tickReplica(now, p, i)
	}
}

// free reports whether a message can be made for the peer.
func (c *core) free(p *peer) bool { return p.reachable() && !p.busy && !c.left }

// silence is how long a live peer may be silent: it sends a head each
// interval, and three in a row are hardly ever lost. The half interval is there
// because the third one may be a little later than the first.
func (c *core) silence() time.Duration { return 3*c.headInterval() + c.headInterval()/2 }

func (c *core) peerDeadline(p *peer) time.Duration {
	d := never
	switch p.state {
	case StateAlive:
		d = p.lastHeard + c.silence()
	case StateFailed:
		d = p.changed + keepFailed
	case StateLeft:
		d = p.changed + keepLeft
	}
	if c.free(p) {
		at := p.lastSent + c.headInterval()
		if c.news(p) {
			at = 0
		}
		d = min(d, max(at, p.retryAt))
	}
	for _, r := range p.replicas {
		d = min(d, r.deadline())
	}
	return d
}

// find returns the peer of that name.
func (c *core) find(name string) (int, *peer) {
	i, ok := slices.BinarySearchFunc(c.peers, name, func(p *peer, name string) int { return cmp.Compare(p.name, name) })
	if !ok {
		return i, nil
	}
	return i, c.peers[i]
}
