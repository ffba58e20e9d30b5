package gossip

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// changeLog carries out what a logCore wants done.
//
// turn makes of an event and the application of what it brings one step: when a
// member says that it has applied a change, or finds that it is in step with
// another, OnChange has returned. It is taken before mu.
type changeLog struct {
	g    *Gossip
	wake chan struct{}
	in   *inbox
	file *logFile // nil: nothing is kept

	turn   sync.Mutex
	newest atomic.Int64 // when a change was applied last, as g.now
	ticked atomic.Int64 // when time passed last for the core, as g.now

	mu      sync.Mutex
	core    *logCore
	waiting map[string][]*Spreading // by member that has not acknowledged, in order of seq
	recent  []*Spreading            // the last maxProgress, oldest first
	byID    map[string]*Spreading
	streams map[string]bool // members to which a stream is under way
}

// newChangeLog makes the log of g, from what an earlier process left in
// cfg.StateDir.
func newChangeLog(g *Gossip) (*changeLog, error) {
	l := &changeLog{
		g: g, wake: make(chan struct{}, 1), in: newInbox(),
		waiting: map[string][]*Spreading{}, byID: map[string]*Spreading{}, streams: map[string]bool{},
	}
	l.core = newLogCore(logConfig{name: g.cfg.Name, boot: g.cfg.Boot, expect: g.expectsOthers(), base: g.start}, &g.clock, rand.New(rand.NewPCG(g.cfg.Boot, rand.Uint64())))
	if g.cfg.StateDir == "" {
		return l, nil
	}
	file, records, torn, err := openLogFile(g.cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("purge.state_dir: %w", err)
	}
	if torn > 0 {
		g.log.Warn("the end of the log of purges was torn by a crash and is left out", "bytes", torn)
	}
	for _, r := range records {
		g.clock.merge(r.stamp, g.start)
		l.core.restore(r.record, r.stamp)
	}
	if len(records) > 0 {
		l.newest.Store(1) // Carry looks at them
	}
	l.core.expire(0)
	l.file = file
	return l, nil
}

// expectsOthers reports whether there is another member in the configuration.
func (g *Gossip) expectsOthers() bool {
	return slices.ContainsFunc(g.cfg.Join, func(a string) bool { return a != g.cfg.Bind })
}

func (l *changeLog) now() time.Duration { return l.g.now() }

// quiet reports whether no change was applied for so long that every member in
// reach has applied all of them.
func (l *changeLog) quiet() bool {
	at := l.newest.Load()
	return at == 0 || l.now() > time.Duration(at)+decodedFor
}

// do has the core handle an event and carries out what comes of it.
func (l *changeLog) do(f func(now time.Duration)) {
	l.turn.Lock()
	l.mu.Lock()
	f(l.now())
	ticked := l.core.tickedAt
	effects := l.core.take()
	l.mu.Unlock()
	for _, e := range effects {
		l.carryOut(e)
	}
	l.ticked.Store(int64(ticked)) // OnSync has been told what came of it
	l.turn.Unlock()
	for _, e := range effects {
		l.send(e)
	}
	poke(l.wake)
}

// loop is where time passes for the core.
func (l *changeLog) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.g.done:
			return
		case <-l.in.wake:
			l.do(l.takeIn)
		case <-timer.C:
			l.do(func(now time.Duration) { l.core.tick(now) })
		case <-l.wake:
		}
		l.mu.Lock()
		next := l.core.deadline()
		l.mu.Unlock()
		timer.Reset(max(next-l.now(), time.Millisecond))
	}
}

// takeIn hands the core what has arrived.
func (l *changeLog) takeIn(now time.Duration) {
	for _, e := range l.in.take(l.core.counts.drop) {
		m, err := decodeLogMessage(e.message, maxFrameLen+1024)
		if err != nil {
			l.core.counts.drop[err.Error()]++
			continue
		}
		l.core.counts.count(l.core.counts.received, logKinds[m.kind], len(e.message))
		l.core.receive(now, m)
	}
}

// logKinds names the types of messages.
var logKinds = [...]string{frameChanges: kindPurge, frameAck: kindAck, frameDigest: kindDigest}

// carryOut does what must be done before the next event.
func (l *changeLog) carryOut(e effect) {
	g := l.g
	switch e := e.(type) {
	case applyEffect:
		if l.file != nil {
			records := make([]fileRecord, len(e.records))
			for i, r := range e.records {
				records[i] = fileRecord{r, e.changes[i].Stamp}
			}
			l.file.append(records)
		}
		// First: whoever finds that a change holds here tells others of it.
		l.newest.Store(int64(max(l.now(), 1)))
		if g.cfg.OnChange != nil {
			for _, c := range e.changes {
				g.cfg.OnChange(*c)
			}
		}
	case cutEffect:
		if l.file != nil {
			var records []fileRecord
			for _, h := range e.heads {
				records = append(records, fileRecord{record{origin: h.origin, seq: h.seq}, h.stamp})
			}
			l.file.append(records)
		}
		g.log.Warn("purges were missed and can't be caught up with: everything stored is validated before its next use", "from", e.from)
		if g.cfg.OnLost != nil {
			g.cfg.OnLost()
		}
	case stateEffect:
		if g.cfg.OnSync != nil {
			g.cfg.OnSync(e.state)
		}
	case ackedEffect:
		l.acked(e.from, e.seq)
	case peerGoneEffect:
		l.gone(e.name, e.left)
	case logEffect:
		g.log.Log(g.ctx, e.level, e.msg, e.args...)
	}
}

// send does what may take its time.
func (l *changeLog) send(e effect) {
	g := l.g
	switch e := e.(type) {
	case logSendEffect:
		g.mu.Lock()
		node := g.nodes[e.to]
		g.mu.Unlock()
		if node == nil {
			return
		}
		l.mu.Lock()
		l.core.counts.count(l.core.counts.sent, e.kind, len(e.payload))
		busy := e.reliable && l.streams[e.to]
		if e.reliable {
			l.streams[e.to] = true
		}
		l.mu.Unlock()
		switch {
		case busy: // it is sent again when it is missed
		case e.reliable:
			g.wg.Go(func() {
				// Failed or not, the acknowledgement tells.
				_ = g.list.SendReliable(node, e.payload)
				l.mu.Lock()
				delete(l.streams, e.to)
				l.mu.Unlock()
			})
		default:
			_ = g.list.SendBestEffort(node, e.payload)
		}
	case pullEffect:
		g.wg.Go(func() {
			a, err := g.pullChanges(g.ctx, e)
			l.do(func(now time.Duration) { l.core.pulled(now, e, a, err) })
		})
	}
}

// membership tells the log who can be reached.
func (l *changeLog) membership(events []memberEvent) {
	if len(events) == 0 {
		return
	}
	l.do(func(now time.Duration) {
		for _, e := range events {
			if e.up {
				l.core.peerUp(now, e.name, e.boot)
			} else {
				l.core.peerDown(now, e.name, e.left)
			}
		}
	})
}

// memberEvent is a change of membership as the log wants to know it.
type memberEvent struct {
	name     string
	boot     uint64
	up, left bool
}

// Sync returns how far this member can be trusted to know every change.
func (g *Gossip) Sync() SyncState {
	g.changes.mu.Lock()
	defer g.changes.mu.Unlock()
	return g.changes.core.state
}

// Awake reports whether this member knew a moment before now how far it can be
// trusted. A process that was stopped for some seconds, or whose machine was, is
// not: OnSync is called soon, but not before the first request is looked at.
// It takes no lock.
func (g *Gossip) Awake(now time.Time) bool {
	return now.Sub(g.start) <= time.Duration(g.changes.ticked.Load())+asleepAfter
}

// LogStats is the state of the log of changes and its counters.
type LogStats struct {
	State       SyncState
	Sequences   int    // origins that are known
	Changes     int    // held, to be caught up with
	Bytes       int    // of these
	Outstanding int    // acknowledgements that are waited for: members times changes
	Behind      uint64 // changes that others have shown, and that are not here

	Applied       uint64
	Duplicates    uint64
	Retransmitted uint64 // times that changes were sent to a member again
	CatchUps      uint64 // pulls that brought something
	CatchUpErrors uint64
	Truncations   uint64 // times that changes were lost, and all that is stored with them
	FileBytes     int64  // of the log on disk, 0 without one
	FileFailed    bool   // it can't be written
}

// LogFailed reports whether the log of changes is to be kept on disk and can't be
// written there.
func (g *Gossip) LogFailed() bool {
	f := g.changes.file
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err != nil
}

func (l *changeLog) stats() LogStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.core
	s := LogStats{
		State: c.state, Sequences: len(c.seqs), Bytes: c.bytes,
		Applied: c.counts.applied, Duplicates: c.counts.duplicates, Retransmitted: c.counts.retransmitted,
		CatchUps: c.counts.catchUps, CatchUpErrors: c.counts.catchUpErrors, Truncations: c.counts.truncations,
	}
	shown := map[origin]uint64{}
	for _, p := range c.peers {
		if p.up {
			s.Outstanding += int(c.own.head - min(p.acked, c.own.head))
		}
		for o, seq := range p.shown {
			shown[o] = max(shown[o], seq)
		}
	}
	for _, q := range c.seqs {
		s.Changes += len(q.held) + len(q.ahead)
		if n := shown[q.origin]; n > q.head {
			s.Behind += n - q.head
		}
	}
	if l.file != nil {
		l.file.mu.Lock()
		s.FileBytes, s.FileFailed = l.file.size, l.file.err != nil
		l.file.mu.Unlock()
	}
	return s
}

// addTo adds the log to the statistics of the whole.
func (l *changeLog) addTo(s *Stats) {
	s.Log = l.stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, v := range l.core.counts.sent {
		s.Sent[k] = v
	}
	for k, v := range l.core.counts.received {
		s.Received[k] = v
	}
	for k, v := range l.core.counts.drop {
		s.Drops[k] += v
	}
}

// run starts what the log does by itself.
func (l *changeLog) run() {
	g := l.g
	g.wg.Go(l.loop)
	if l.file != nil {
		g.wg.Go(l.file.syncLoop)
		g.wg.Go(l.compactLoop)
		g.wg.Go(func() {
			<-g.done
			l.file.stop()
		})
	}
}

// close ends what is kept on disk, after all that uses it.
func (l *changeLog) close() error {
	l.in.close()
	if l.file == nil {
		return nil
	}
	return l.file.close()
}

// compactLoop writes the file anew now and then.
func (l *changeLog) compactLoop() {
	timer := time.NewTicker(10 * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-l.g.done:
			return
		case <-timer.C:
			l.compact()
		}
	}
}

// compact writes the file anew if most of it is out of date. Nothing is
// applied meanwhile: some milliseconds for each MiB that is held.
func (l *changeLog) compact() {
	if !l.file.overgrown() {
		return
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	records := l.core.dump()
	l.mu.Unlock()
	if err := l.file.rewrite(records); err != nil {
		l.g.log.Error("the log of purges can't be written anew", "error", err)
	}
}

// dump lists what is held, as it stands in the file.
func (c *logCore) dump() []fileRecord {
	var records []fileRecord
	for _, s := range c.seqs {
		if s.floor > 0 {
			records = append(records, fileRecord{record{origin: s.origin, seq: s.floor}, s.stamp})
		}
		for i, h := range s.held {
			records = append(records, fileRecord{record{s.origin, s.floor + uint64(i) + 1, h.enc}, h.stamp})
		}
		for _, seq := range slices.Sorted(maps.Keys(s.ahead)) {
			h := s.ahead[seq]
			records = append(records, fileRecord{record{s.origin, seq, h.enc}, h.stamp})
		}
	}
	return records
}

func (c *logCounts) count(m map[string]Traffic, kind string, bytes int) {
	t := m[kind]
	m[kind] = Traffic{t.Messages + 1, t.Bytes + uint64(bytes)}
}
