package gossip

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/peerfilter"
)

// Gossip is this member of the cluster. All methods are safe for concurrent
// use.
type Gossip struct {
	cfg      Config
	log      *slog.Logger
	start    time.Time
	in       *inbox
	delegate *delegate
	lines    *lines
	auth     *authenticator
	client   *http.Client
	list     *memberlist.Memberlist
	keyring  *memberlist.Keyring // nil without keys
	addr     string              // of membership, as others see it
	replicas []*peerfilter.Replicas
	members  atomic.Pointer[[]Member]
	clock    clock // of changes
	changes  *changeLog

	sends        chan sendEffect
	snapshotsOut chan struct{} // holds a token for each that is served
	wakeMeta     chan struct{}
	wakeMembers  chan struct{}
	wakeRejoin   chan struct{}
	exchanges    chan string

	// mu is held for short times only, and never while calling the library,
	// the network or the configured functions.
	mu       sync.Mutex
	core     *core
	moved    []memberEvent               // for the log of changes
	nodes    map[string]*memberlist.Node // where to send, by name
	refusals map[string]uint64
	rejoins  uint64

	fatal   *ConflictError
	started bool // New has returned

	// stopping serialises Leave and Close, which the library cannot bear in
	// the wrong order. It is taken before mu.
	stopping sync.Mutex

	// rotating serialises changes of the keys. The other members are asked
	// under it; it is taken first.
	rotating sync.Mutex

	left   atomic.Bool
	closed bool

	joined chan struct{} // closed after the first try to join
	done   chan struct{}
	ctx    context.Context // ends with done
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// errClosed is what an operation of a closed member ends with.
var errClosed = errors.New("gossip is closed")

const (
	senders       = 2                      // packets being sent at once
	headsInterval = 200 * time.Millisecond // between two preparations of our heads
)

// New starts a member. It binds cfg.Bind, tries the members of cfg.Join once, for up to a
// second, and goes on trying from time to time. It fails when cfg is
// wrong or the address is taken, and with a [*ConflictError] when it learns in
// time that another live member has its name.
func New(cfg Config) (*Gossip, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Gossip{
		cfg:          cfg,
		log:          cfg.Logger,
		start:        time.Now(),
		in:           newInbox(),
		sends:        make(chan sendEffect, 1024),
		snapshotsOut: make(chan struct{}, maxSnapshotsOut),
		wakeMeta:     make(chan struct{}, 1),
		wakeMembers:  make(chan struct{}, 1),
		wakeRejoin:   make(chan struct{}, 1),
		exchanges:    make(chan string, 1),
		nodes:        map[string]*memberlist.Node{},
		refusals:     map[string]uint64{},
		joined:       make(chan struct{}),
		done:         make(chan struct{}),
	}
	g.client = newClient(cfg.dial, cfg.TLS, g.memberAt)
	for _, r := range Refusals() {
		g.refusals[r] = 0
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.lines = newLines(cfg.Logger, func(name string) { g.in.put(event{suspect: name}) })
	var err error
	if g.auth, err = newAuthenticator(cfg.Name, cfg.Keys); err != nil {
		return nil, err
	}
	g.core, err = newCore(coreConfig{
		name: cfg.Name, newest: frameVersion, boot: cfg.Boot, role: cfg.Role, peerAddr: cfg.PeerAddr, seedMark: seedMark(cfg.Seed),
		partitions: cfg.Partitions, flush: cfg.FlushInterval, rateLimit: cfg.RateLimit,
	}, rand.New(rand.NewPCG(cfg.Boot, rand.Uint64())))
	if err != nil {
		return nil, fmt.Errorf("cache.partitions: %w", err)
	}
	g.replicas = g.core.replicas
	if g.changes, err = newChangeLog(g); err != nil {
		return nil, err
	}
	g.delegate = &delegate{in: g.in, log: g.changes.in, name: cfg.Name}
	meta, heads := g.core.nodeMeta().append(nil), appendHeads(nil, nil)
	g.delegate.meta.Store(&meta)
	g.delegate.heads.Store(&heads)

	if err := g.listen(); err != nil {
		g.changes.close()
		return nil, err
	}
	g.publishMembers()
	g.wg.Go(g.loop)
	for range senders {
		g.wg.Go(g.sendLoop)
	}
	g.wg.Go(g.metaLoop)
	g.wg.Go(g.memberLoop)
	g.wg.Go(g.rejoinLoop)
	g.wg.Go(g.exchangeLoop)
	g.changes.run()

	select {
	case <-g.joined:
	case <-time.After(joinWait):
	}
	g.mu.Lock()
	g.started = true
	fatal := g.fatal
	g.mu.Unlock()
	if fatal != nil {
		g.Close()
		return nil, fatal
	}
	return g, nil
}

// seedMark is a fingerprint of the filters' secret seed, by which members know
// whether they have the same.
func seedMark(s peerfilter.Seed) uint64 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], s[0])
	binary.BigEndian.PutUint64(b[8:], s[1])
	sum := sha256.Sum256(append([]byte("edged-seed-mark-1"), b[:]...))
	return binary.BigEndian.Uint64(sum[:])
}

// now is the core's time.
func (g *Gossip) now() time.Duration { return time.Since(g.start) }

// do runs f with the core, and lets the loop carry out what f leads to.
func (g *Gossip) do(f func(now time.Duration)) {
	g.mu.Lock()
	f(g.now())
	g.mu.Unlock()
	g.in.poke()
}

// loop is the only place where time passes for the core and where its effects
// are carried out.
func (g *Gossip) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var headsAt time.Duration
	for {
		select {
		case <-g.done:
			return
		case <-g.in.wake:
		case <-timer.C:
		}
		g.mu.Lock()
		events := g.in.take(g.core.counts.drop)
		g.mu.Unlock()
		for _, e := range events {
			g.mu.Lock()
			g.eventLocked(g.now(), e)
			g.mu.Unlock()
			if len(e.message) > maxPacketLen {
				// Many records: a millisecond of work for each 1 000 responses
				// that the peer has stored. Whoever waits for a processor is
				// let through in between. Else a goroutine of the library that has
				// a probe to answer stands behind each such loop for the 10 ms
				// after which the runtime interrupts it.
				runtime.Gosched()
			}
		}
		g.mu.Lock()
		now := g.now()
		g.core.tick(now)
		effects := g.core.take()
		moved := g.moved
		g.moved = nil
		next := g.core.deadline()
		if now >= headsAt {
			// Membership exchanges them every 15 s: there is no need to
			// prepare them with each message.
			headsAt = now + headsInterval
			heads := appendHeads(nil, g.core.heads())
			g.delegate.heads.Store(&heads)
		}
		g.mu.Unlock()

		for _, e := range effects {
			g.carryOut(e)
		}
		g.changes.membership(moved)
		timer.Reset(max(next-g.now(), time.Millisecond))
	}
}

// eventLocked hands one event of membership to the core.
func (g *Gossip) eventLocked(now time.Duration, e event) {
	c := g.core
	switch {
	case e.message != nil:
		f, err := decodeFrame(e.message, maxFrameLen)
		if err != nil {
			c.counts.drop[err.Error()]++
			return
		}
		kind := kindHead
		for _, s := range f.sections {
			if s.records.n > 0 {
				kind = kindDelta
			}
		}
		c.counts.received(kind, len(e.message))
		c.receive(now, f)
	case e.heads != nil:
		hs, err := decodeHeads(e.heads)
		if err != nil {
			c.counts.drop[err.Error()]++
			return
		}
		c.counts.received(kindHeads, len(e.heads))
		c.mergeHeads(now, hs)
	case e.up != nil:
		meta, err := decodeMeta(e.up.Meta)
		if err != nil {
			c.counts.drop[dropMeta]++
			return
		}
		e.up.Meta = nil
		g.nodes[e.up.Name] = e.up
		c.memberUp(now, e.up.Name, e.up.Address(), meta)
		g.movedLocked(e.up.Name)
	case e.down != "":
		c.memberDown(now, e.down)
		g.movedLocked(e.down)
	case e.suspect != "":
		c.suspect(now, e.suspect)
	case e.conflict != nil:
		c.counts.conflicts++
		c.emit(conflictEffect(*e.conflict))
	}
}

// movedLocked tells the log of changes how a member is now.
func (g *Gossip) movedLocked(name string) {
	if _, p := g.core.find(name); p != nil {
		g.moved = append(g.moved, memberEvent{name, p.meta.boot, p.reachable(), p.state == StateLeft})
	}
}

// carryOut does what the core wants done. It never waits.
func (g *Gossip) carryOut(e effect) {
	switch e := e.(type) {
	case sendEffect:
		if e.reliable {
			// A stream to a member that is cut off takes seconds to fail, and
			// nobody else's message may wait for it. There is one for each
			// member at most, since the core waits for sent.
			g.wg.Go(func() { g.send(e) })
			return
		}
		select {
		case g.sends <- e:
		default:
			g.do(func(now time.Duration) { g.core.sent(now, e.to, errSendQueue) })
		}
	case fetchEffect:
		g.wg.Go(func() {
			res := g.pull(g.ctx, e)
			g.do(func(now time.Duration) { g.core.fetched(now, e, res) })
		})
	case metaEffect:
		g.mu.Lock()
		b := g.core.nodeMeta().append(nil)
		g.mu.Unlock()
		g.delegate.meta.Store(&b)
		poke(g.wakeMeta)
	case membersEffect:
		g.publishMembers()
		poke(g.wakeMembers)
		poke(g.wakeRejoin)
	case logEffect:
		g.log.Log(g.ctx, e.level, e.msg, e.args...)
	case exchangeEffect:
		select {
		case g.exchanges <- e.addr:
		default: // another one is under way
		}
	case conflictEffect:
		g.tellConflict(conflict(e))
	}
}

// errSendQueue is a message for which there was no room.
var errSendQueue = errors.New("too many messages are waiting to be sent")

// sendLoop sends packets to peers, one at a time.
func (g *Gossip) sendLoop() {
	for {
		select {
		case <-g.done:
			return
		case e := <-g.sends:
			g.send(e)
		}
	}
}

// send sends a message to a peer.
func (g *Gossip) send(e sendEffect) {
	g.mu.Lock()
	node := g.nodes[e.to]
	g.mu.Unlock()
	var err error
	switch {
	case node == nil:
		err = fmt.Errorf("%s has no address", e.to)
	case e.reliable:
		err = g.list.SendReliable(node, e.payload)
	default:
		err = g.list.SendBestEffort(node, e.payload)
	}
	g.do(func(now time.Duration) { g.core.sent(now, e.to, err) })
}

// metaLoop tells the others when this member's metadata has changed. It does
// not wait until somebody has heard: what is queued goes out all the same.
func (g *Gossip) metaLoop() {
	for {
		select {
		case <-g.done:
			return
		case <-g.wakeMeta:
			if g.left.Load() {
				return
			}
			_ = g.list.UpdateNode(time.Millisecond)
		}
	}
}

// publishMembers prepares the list that Members returns.
func (g *Gossip) publishMembers() {
	g.mu.Lock()
	ms := g.core.members()
	self := Member{
		Name: g.cfg.Name, Role: g.cfg.Role, State: StateAlive, PeerAddr: g.cfg.PeerAddr,
		GossipAddr: g.addr, Boot: g.cfg.Boot, Draining: g.core.draining,
	}
	i, _ := g.core.find(g.cfg.Name)
	g.mu.Unlock()
	all := make([]Member, 0, len(ms)+1)
	all = append(all, ms[:i]...)
	all = append(all, self)
	all = append(all, ms[i:]...)
	g.members.Store(&all)
}

// memberLoop calls OnMembers.
func (g *Gossip) memberLoop() {
	for {
		select {
		case <-g.done:
			return
		case <-g.wakeMembers:
			if g.cfg.OnMembers != nil {
				g.cfg.OnMembers(g.Members())
			}
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Publish makes c the filter of a partition from now on: a new epoch, which
// peers fetch. It is called again after a rebuild, also with another size, and
// holds as much memory as c's bits. It panics if there is no such partition.
func (g *Gossip) Publish(part int, c *peerfilter.Counting) {
	shadow := peerfilter.NewShadow(c)
	g.do(func(now time.Duration) { g.core.publish(now, part, shadow) })
}

// Lookup returns the members whose filters may contain the key with hash h in
// a partition. It takes no lock and does not allocate. Members that failed,
// left, have another seed or are not in sequence are not known to the set.
func (g *Gossip) Lookup(part int, h peerfilter.Hash) peerfilter.Set {
	return g.replicas[part].Lookup(h)
}

// Members returns all members, this one included, sorted by name. Those that
// failed stay for 24 h, those that left for five minutes. The caller owns the
// list.
func (g *Gossip) Members() []Member {
	return append([]Member(nil), *g.members.Load()...)
}

// member returns one member.
func (g *Gossip) member(name string) (Member, bool) {
	for _, m := range *g.members.Load() {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

// memberAt returns the name of the member whose HTTP answers at an address.
func (g *Gossip) memberAt(peerAddr string) string {
	for _, m := range *g.members.Load() {
		if m.PeerAddr == peerAddr && (m.State == StateAlive || m.State == StateSuspect) {
			return m.Name
		}
	}
	return ""
}

// Addr returns the host:port of membership that others use.
func (g *Gossip) Addr() string { return g.addr }

// Stats returns the counters and the state of all replicas.
func (g *Gossip) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.core.statistics(g.now())
	g.changes.addTo(&s)
	s.Rejoins = g.rejoins
	s.Refused = map[string]uint64{}
	for k, v := range g.refusals {
		s.Refused[k] = v
	}
	if id := g.cfg.TLS; id != nil {
		for k, v := range id.refusals() {
			s.Refused[k] = v
		}
	}
	s.LogDropped = g.lines.counts()
	s.HandoffDrops = g.lines.handoffDrops()
	s.SendQueue = len(g.sends)
	for _, r := range g.replicas {
		s.ReplicaBytes += r.Bytes()
	}
	return s
}

// ReplicaBits returns a copy of what is held of a member's published bits in a
// partition, and whether look-ups use it.
func (g *Gossip) ReplicaBits(part int, member string) (words []uint64, live bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, p := g.core.find(member)
	if p == nil {
		return nil, false
	}
	words, err := g.replicas[part].Bits(member)
	return words, err == nil && p.replicas[part].known
}

// Draining tells the others that this member is about to leave: they stop
// asking it. It may be called twice.
func (g *Gossip) Draining() {
	g.do(func(now time.Duration) { g.core.drain(now) })
}

// Close stops everything and waits for it; only a probe or stream that the
// library has begun may end up to three seconds later, unheard. Without Leave
// the others take this member for failed. It may be called twice, and not from
// a callback.
func (g *Gossip) Close() error {
	g.stopping.Lock()
	defer g.stopping.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.in.close()
	g.cancel()
	close(g.done)
	err := g.list.Shutdown()
	g.wg.Wait()
	g.client.CloseIdleConnections()
	return errors.Join(err, g.changes.close())
}
