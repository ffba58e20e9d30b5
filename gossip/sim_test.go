package gossip

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"edged/peerfilter"
)

// sim drives cores by a heap of events in virtual time: everything that
// happens follows from its seed.
type sim struct {
	rng    *rand.Rand
	now    time.Duration
	queue  simQueue
	order  int
	nodes  []*simNode
	byName map[string]*simNode
	loss   float64
	calm   bool                    // no more faults and changes
	parted func(from, to int) bool // packets and streams do not pass
	digest uint64                  // of all that was sent, and when

	// slack is how long after a message its receiver's timers are looked at:
	// a busy machine is late, and it makes large simulations cheap.
	slack time.Duration
	parts []Partition
	load  simLoad
	boot  uint64 // of the next process, 0: any

	checker
}

// simNode is one member: its core, and the filters that its cache would keep.
type simNode struct {
	id      int
	name    string
	later   bool // of a later version, that understands frames of version 2
	core    *core
	filters []*peerfilter.Counting
	keys    [][]peerfilter.Hash // stored, by partition
	born    map[peerfilter.Hash]time.Duration
	up      bool
	gone    bool // left, for good or until it is started again
	life    int  // counts restarts, so that events of an earlier life find nobody
	wakeAt  time.Duration
	flips   int
	busy    map[string]bool // has a message on its way to

	disturbed time.Duration // when it was last started, stopped or given another filter
}

// simLoad is what a member does with its filters.
type simLoad struct {
	first int           // keys that it has at its start
	keep  int           // from which number on it evicts one for each that it stores
	every time.Duration // stores one after up to this time
}

type simEvent struct {
	at    time.Duration
	order int
	do    func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = simEvent{}
	*q = (*q)[:last]
	return e
}

// newSim returns a cluster whose members start within the first second. Every
// fourth one is of a later version than the others.
func newSim(seed uint64, nodes int, loss float64) *sim {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 1)), loss: loss, parted: func(int, int) bool { return false },
		byName: map[string]*simNode{}, checker: newChecker(), load: simLoad{0, 60, 150 * time.Millisecond},
	}
	blocks := []uint32{16, 32}
	if nodes > 16 {
		s.slack = time.Duration(nodes) * 300 * time.Microsecond
		blocks = []uint32{4, 8}
	}
	for i, name := range []string{"hot", "tail"} {
		s.parts = append(s.parts, Partition{Name: name, Params: peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: blocks[i]}})
	}
	for i := range nodes {
		n := &simNode{id: i, name: fmt.Sprintf("n%03d", i), later: i%4 == 3}
		s.nodes = append(s.nodes, n)
		s.byName[n.name] = n
		s.after(s.upTo(time.Second), func() { s.startNode(n) })
	}
	return s
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(d))) }

func (s *sim) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.queue, simEvent{s.now + d, s.order, do})
}

// run goes on until the virtual time.
func (s *sim) run(until time.Duration) {
	for len(s.queue) > 0 && s.queue[0].at <= until {
		e := heap.Pop(&s.queue).(simEvent)
		s.now = e.at
		e.do()
	}
	s.now = until
}

// startNode begins a life of a node: an empty cache, another boot.
func (s *sim) startNode(n *simNode) {
	n.up, n.gone = true, false
	n.life++
	n.disturbed = s.now
	n.busy = map[string]bool{}
	newest := byte(frameVersion)
	if n.later {
		newest++
	}
	boot := s.rng.Uint64() | 2
	if s.boot != 0 {
		boot = s.boot
	}
	var err error
	n.core, err = newCore(coreConfig{
		name: n.name, newest: newest, boot: boot, peerAddr: "127.0.0.1:1", partitions: s.parts,
		flush: defaultFlush, rateLimit: defaultRateLimit,
	}, rand.New(rand.NewPCG(s.rng.Uint64(), 2)))
	if err != nil {
		panic(err)
	}
	s.begin(n)
	n.filters, n.keys = make([]*peerfilter.Counting, len(s.parts)), make([][]peerfilter.Hash, len(s.parts))
	n.born = map[peerfilter.Hash]time.Duration{}
	for i := range s.parts {
		for range s.load.first {
			n.keys[i] = append(n.keys[i], s.hash())
		}
		s.publish(n, i, s.parts[i].Params)
	}
	for _, m := range s.nodes {
		if m != n && m.up && !s.parted(n.id, m.id) {
			s.tell(n, m)
			s.tell(m, n)
		}
	}
	s.work(n)
	s.step(n)
}

// publish begins an epoch with a filter of the same keys.
func (s *sim) publish(n *simNode, part int, p peerfilter.Params) {
	c, err := peerfilter.NewCounting(p)
	if err != nil {
		panic(err)
	}
	for _, h := range n.keys[part] {
		c.Add(h)
	}
	n.disturbed = s.now
	n.filters[part] = c
	n.core.publish(s.now, part, peerfilter.NewShadow(c))
}

func (s *sim) hash() peerfilter.Hash { return peerfilter.Hash{s.rng.Uint64(), s.rng.Uint64()} }

// work stores and evicts, as long as there are changes.
func (s *sim) work(n *simNode) {
	life := n.life
	s.after(s.upTo(s.load.every), func() {
		if !n.up || n.life != life || s.calm {
			return
		}
		part := s.rng.IntN(len(s.parts))
		h := s.hash()
		n.filters[part].Add(h)
		n.keys[part] = append(n.keys[part], h)
		n.born[h] = s.now
		if len(n.keys[part]) > s.load.keep {
			i := s.rng.IntN(len(n.keys[part]))
			n.filters[part].Remove(n.keys[part][i])
			delete(n.born, n.keys[part][i])
			n.keys[part] = slices.Delete(n.keys[part], i, i+1)
		}
		s.work(n)
	})
}

// tell makes membership tell to about from. News come late, but membership
// never goes back, so they are of the moment when they arrive.
func (s *sim) tell(from, to *simNode) {
	life, toLife := from.life, to.life
	s.after(50*time.Millisecond+s.upTo(500*time.Millisecond), func() {
		if to.up && to.life == toLife && from.up && from.life == life && !s.parted(from.id, to.id) {
			b := from.core.nodeMeta().append(nil)
			if from.later {
				b = append(b, "what a later version adds"...)
			}
			meta, err := decodeMeta(b)
			if err != nil {
				panic(err)
			}
			to.core.memberUp(s.now, from.name, "127.0.0.1:1", meta)
			s.step(to)
		}
	})
}

// step lets time pass for a node and carries out what it wants done.
func (s *sim) step(n *simNode) {
	if !n.up {
		return
	}
	n.core.tick(s.now)
	s.checkSelf(n)
	for _, e := range n.core.take() {
		s.carryOut(n, e)
	}
	s.wake(n, max(n.core.deadline(), s.now+time.Millisecond))
}

// soon has a step of n done after the slack.
func (s *sim) soon(n *simNode) {
	switch {
	case s.slack == 0:
		s.step(n)
	case n.wakeAt <= s.now || n.wakeAt > s.now+s.slack:
		s.wake(n, s.now+s.slack)
	}
}

func (s *sim) wake(n *simNode, at time.Duration) {
	n.wakeAt = at
	life := n.life
	s.after(at-s.now, func() {
		if n.life == life && n.wakeAt == at {
			s.step(n)
		}
	})
}

func (s *sim) carryOut(n *simNode, e effect) {
	switch e := e.(type) {
	case sendEffect:
		s.send(n, e)
	case fetchEffect:
		s.fetch(n, e)
	case metaEffect:
		for _, m := range s.nodes {
			if m != n && m.up && !s.parted(n.id, m.id) {
				s.tell(n, m)
			}
		}
	case logEffect:
		if e.level >= slog.LevelError && n.flips == 0 {
			s.fail("%s logs: %s %v", n.name, e.msg, e.args)
		}
	}
}

var errSim = errors.New("simulated")

// mix adds a value to the digest of all that happens.
func (s *sim) mix(v uint64) { s.digest = bits.RotateLeft64((s.digest^v)*0x9e3779b97f4a7c15, 29) }

// send delivers a message, or loses, doubles or delays it.
func (s *sim) send(n *simNode, e sendEffect) {
	to, life := s.byName[e.to], n.life
	s.sent++
	s.sentBytes += len(e.payload)
	s.mix(uint64(s.now))
	s.mix(uint64(n.id)<<32 | uint64(to.id))
	s.mix(uint64(crc32.Checksum(e.payload, castagnoli)))
	if n.busy[e.to] {
		s.fail("%s sends two messages at once to %s", n.name, e.to)
	}
	n.busy[e.to] = true

	wait := 300*time.Microsecond + s.upTo(time.Millisecond)
	ok := to.up && !s.parted(n.id, to.id)
	var err error
	if e.reliable && !ok {
		wait, err = 3*time.Second, errSim
	}
	s.after(wait, func() {
		if n.up && n.life == life {
			n.busy[e.to] = false
			n.core.sent(s.now, e.to, err)
			s.soon(n)
		}
	})
	copies := 1
	if s.rng.Float64() < 0.02 {
		copies = 2
	}
	for copy := range copies {
		d := wait
		if !e.reliable {
			if s.rng.Float64() < s.loss {
				continue
			}
			switch x := s.rng.Float64(); {
			case x < 0.05:
				d += s.upTo(20 * time.Millisecond)
			case copy > 0 && x > 0.9: // it strays, perhaps until its sender is another process
				d += s.upTo(5 * time.Second)
			}
		}
		s.after(d, func() {
			if to.up && !s.parted(n.id, to.id) && err == nil {
				s.deliver(n, to, e.payload)
			}
		})
	}
}

// deliver brings a message to its receiver. Members of the later version talk
// to each other in frames of version 2, which those of today must never be sent.
func (s *sim) deliver(from, to *simNode, payload []byte) {
	if payload[1] != frameVersion {
		if !from.later || !to.later {
			s.fail("%s sends version %d to %s", from.name, payload[1], to.name)
			return
		}
		payload = slices.Clone(payload)
		payload[1] = frameVersion
		binary.BigEndian.PutUint32(payload[len(payload)-4:], crc32.Checksum(payload[:len(payload)-4], castagnoli))
	} else if from.later && to.later {
		s.fail("%s and %s talk in the older version", from.name, to.name)
	}
	f, err := decodeFrame(payload, maxFrameLen)
	if err != nil {
		s.fail("message of %s: %v", from.name, err)
		return
	}
	to.core.receive(s.now, f)
	s.checkReplicas(to, from.name)
	s.soon(to)
}

// fetch answers a pull by way of the wire forms.
func (s *sim) fetch(n *simNode, e fetchEffect) {
	to, life := s.byName[e.from], n.life
	answer := func(d time.Duration, res fetchResult) {
		s.after(d, func() {
			if n.up && n.life == life {
				n.core.fetched(s.now, e, res)
				s.checkReplicas(n, e.from)
				s.soon(n)
			}
		})
	}
	s.after(time.Millisecond+s.upTo(time.Millisecond), func() {
		if !to.up || s.parted(n.id, to.id) {
			answer(2*time.Second, fetchResult{err: errSim})
			return
		}
		d := time.Millisecond + s.upTo(30*time.Millisecond)
		if e.snapshot {
			sn, err := decodeSnapshot(to.core.snapshot(s.now, e.part).append(nil), minSnapshotLen)
			answer(d, fetchResult{state: sn, err: err})
			return
		}
		b, ok := to.core.deltas(e.part, e.boot, e.epoch, e.after)
		if !ok {
			answer(d, fetchResult{gone: true})
			return
		}
		f, err := decodeFrame(b, maxDeltasLen)
		answer(d, fetchResult{records: f, err: err})
	})
}

// percentile returns the p-th of 1000 parts of sorted durations.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*p/1000, len(sorted)-1)]
}

func sortedDurations(d []time.Duration) []time.Duration {
	slices.SortFunc(d, cmp.Compare[time.Duration])
	return d
}
