package gossip

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"edged/peerfilter"
)

// pair is one core, a, that listens to what another, b, says; nothing travels
// unless the test carries it.
type pair struct {
	t      testing.TB
	now    time.Duration
	a, b   *core
	filter *peerfilter.Counting
	stored int
}

func newPair(t testing.TB) *pair { return newPairOf(t, 64) }

// newPairOf is newPair with filters of so many blocks.
func newPairOf(t testing.TB, blocks uint32) *pair {
	p := &pair{t: t, now: time.Second}
	part := []Partition{{Name: "hot", Params: peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: blocks}}}
	for i, c := range []**core{&p.a, &p.b} {
		var err error
		*c, err = newCore(coreConfig{
			name: string(rune('a' + i)), newest: frameVersion, boot: uint64(100 + i), peerAddr: "127.0.0.1:1", partitions: part,
			flush: defaultFlush, rateLimit: defaultRateLimit,
		}, rand.New(rand.NewPCG(uint64(i), 4)))
		if err != nil {
			t.Fatal(err)
		}
	}
	p.republish()
	p.meet()
	return p
}

func (p *pair) republish() {
	var err error
	if p.filter, err = peerfilter.NewCounting(p.b.streams[0].params); err != nil {
		p.t.Fatal(err)
	}
	p.b.publish(p.now, 0, peerfilter.NewShadow(p.filter))
}

// meet makes each a member to the other.
func (p *pair) meet() {
	p.a.memberUp(p.now, "b", "127.0.0.1:2", p.b.nodeMeta())
	p.b.memberUp(p.now, "a", "127.0.0.1:1", p.a.nodeMeta())
}

// store adds keys to b's filter.
func (p *pair) store(n int) {
	for range n {
		p.filter.Add(key(p.stored))
		p.stored++
	}
}

// flush lets b publish, and returns what it sends to a.
func (p *pair) flush() []sendEffect {
	p.now = max(p.now, p.b.nextFlush)
	p.b.tick(p.now)
	var out []sendEffect
	for _, e := range p.b.take() {
		if s, ok := e.(sendEffect); ok {
			p.b.sent(p.now, s.to, nil)
			out = append(out, s)
		}
	}
	return out
}

// deliver brings messages to a.
func (p *pair) deliver(msgs ...sendEffect) {
	p.t.Helper()
	for _, m := range msgs {
		f, err := decodeFrame(m.payload, maxFrameLen)
		if err != nil {
			p.t.Fatal(err)
		}
		p.a.receive(p.now, f)
	}
}

// wait lets time pass for a until it pulls, and returns the pull.
func (p *pair) wait() fetchEffect {
	p.t.Helper()
	for range 5000 {
		p.a.tick(p.now)
		for _, e := range p.a.take() {
			if f, ok := e.(fetchEffect); ok {
				return f
			}
		}
		p.now = max(p.a.deadline(), p.now+1)
	}
	p.t.Fatal("a does not pull")
	return fetchEffect{}
}

// serve answers a pull as b would.
func (p *pair) serve(e fetchEffect) {
	p.t.Helper()
	if e.snapshot {
		s, err := decodeSnapshot(p.b.snapshot(p.now, 0).append(nil), minSnapshotLen)
		p.a.fetched(p.now, e, fetchResult{state: s, err: err})
		return
	}
	b, ok := p.b.deltas(0, e.boot, e.epoch, e.after)
	if !ok {
		p.a.fetched(p.now, e, fetchResult{gone: true})
		return
	}
	f, err := decodeFrame(b, maxDeltasLen)
	p.a.fetched(p.now, e, fetchResult{records: f, err: err})
}

// sync serves a's pulls until it is live.
func (p *pair) sync() {
	p.t.Helper()
	for range 5 {
		p.serve(p.wait())
		if p.replica().state == ReplicaLive {
			break
		}
	}
	p.want(ReplicaLive, true)
	p.equal()
}

func (p *pair) replica() *replica { return p.a.peers[0].replicas[0] }

func (p *pair) want(state ReplicaState, known bool) {
	p.t.Helper()
	if r := p.replica(); r.state != state || r.known != known {
		p.t.Errorf("%s, known %v: want %s, %v", r.state, r.known, state, known)
	}
}

// equal fails unless a holds all that b has published.
func (p *pair) equal() {
	p.t.Helper()
	got, err := p.a.replicas[0].Bits("b")
	if err != nil {
		p.t.Fatal(err)
	}
	if p.replica().hash != p.b.streams[0].hash || p.replica().seq != p.b.streams[0].seq {
		p.t.Errorf("at %d, b at %d", p.replica().seq, p.b.streams[0].seq)
	}
	var tr peerfilter.Transitions
	peerfilter.NewShadow(p.filter).Diff(&tr)
	if !slices.Equal(got, bitmap(tr.Set, len(got))) {
		p.t.Error("the bits differ")
	}
}

// live takes the pair to a live replica of some keys.
func live(t testing.TB) *pair { return livePair(t, 64) }

// livePair is live with filters of so many blocks.
func livePair(t testing.TB, blocks uint32) *pair {
	p := newPairOf(t, blocks)
	p.serve(p.wait())
	p.store(50)
	p.deliver(p.flush()...)
	p.want(ReplicaLive, true)
	p.equal()
	return p
}

func TestReplica_joins(t *testing.T) {
	p := newPair(t)
	p.want(ReplicaAbsent, false)
	p.store(10)
	p.flush() // a misses it
	e := p.wait()
	p.want(ReplicaFetching, false)
	if !e.snapshot || e.from != "b" || e.addr != "127.0.0.1:1" {
		t.Errorf("pulls %+v", e)
	}
	p.store(10)
	early := p.flush() // arrives before the snapshot
	p.deliver(early...)
	p.want(ReplicaFetching, false)
	if len(p.replica().stash) == 0 {
		t.Error("the record is not kept")
	}
	p.b.streams[0].snap = nil
	p.serve(e)
	p.want(ReplicaLive, true)
	p.equal()
}

func TestReplica_reorderedRecordsAreKept(t *testing.T) {
	p := live(t)
	p.store(5)
	first := p.flush()
	p.store(5)
	second := p.flush()
	p.deliver(second...)
	p.want(ReplicaGap, true)
	p.deliver(first...)
	p.want(ReplicaLive, true)
	p.equal()
	p.deliver(second...)
	p.deliver(first...)
	p.want(ReplicaLive, true)
	p.equal()
	if n := p.a.counts.drop[dropDuplicate]; n != 2 {
		t.Errorf("%d duplicates", n)
	}
}

func TestReplica_lostRecordIsPulled(t *testing.T) {
	p := live(t)
	p.store(5)
	p.flush()
	p.store(5)
	p.deliver(p.flush()...)
	p.want(ReplicaGap, true)
	before := p.now
	e := p.wait()
	if e.snapshot || e.after != 1 || p.now-before > reorderWait+time.Millisecond {
		t.Errorf("pulls %+v after %v", e, p.now-before)
	}
	st := p.a.statistics(p.now)
	if r := st.Replicas[0]; r.Lag != 2 || r.Gaps != 1 || st.ApplyLag.Sum != 0 {
		t.Errorf("%+v, %+v", r, st.ApplyLag)
	}
	p.now += 20 * time.Millisecond
	p.serve(e)
	if l := p.a.statistics(p.now).ApplyLag; l.Count != st.ApplyLag.Count+2 || l.Sum != 2*(p.now-before) || l.Buckets[4] != l.Count || l.Buckets[3] != l.Count-2 {
		t.Errorf("the records waited %+v", l)
	}
	p.want(ReplicaLive, true)
	p.equal()
}

func TestReplica_lostLastRecordIsSeenByTheHead(t *testing.T) {
	p := live(t)
	p.store(5)
	p.flush()
	p.now += headInterval
	p.deliver(p.flush()...)
	p.want(ReplicaGap, true)
	p.serve(p.wait())
	p.want(ReplicaLive, true)
	p.equal()
}

func TestReplica_lostLastRecordIsSeenByAThird(t *testing.T) {
	p := live(t)
	p.store(5)
	p.flush()
	p.a.mergeHeads(p.now, p.b.heads())
	p.want(ReplicaGap, true)
	p.serve(p.wait())
	p.want(ReplicaLive, true)
	p.equal()
}

func TestReplica_aThirdCannotMakeItDiverge(t *testing.T) {
	p := live(t)
	hs := p.b.heads()
	hs[0].hash++
	p.a.mergeHeads(p.now, hs)
	p.want(ReplicaLive, true)
	hs[0].seq += 1000
	p.a.mergeHeads(p.now, hs)
	p.want(ReplicaGap, true)
	p.now += headInterval
	p.deliver(p.flush()...)
	p.want(ReplicaLive, true)
}

func TestReplica_truncatedLogNeedsASnapshot(t *testing.T) {
	p := live(t)
	p.store(5)
	p.flush()
	p.now += logTime + time.Second
	p.store(5)
	p.deliver(p.flush()...)
	p.want(ReplicaGap, true)
	e := p.wait()
	p.serve(e)
	e = p.wait()
	if !e.snapshot || p.replica().resyncs[resyncTruncated] != 1 {
		t.Errorf("pulls %+v, %v", e, p.replica().resyncs)
	}
	p.serve(e)
	p.want(ReplicaLive, true)
	p.equal()
}

func TestReplica_divergence(t *testing.T) {
	p := live(t)
	for i := range divergedLimit {
		// One bit changes behind the core's back.
		flipBit(p.a, 0, "b", uint32(i))
		p.store(1)
		p.deliver(p.flush()...)
		if i == divergedLimit-1 {
			break
		}
		p.want(ReplicaDiverged, false)
		p.sync()
	}
	p.want(ReplicaQuarantine, false)
	p.store(1)
	p.deliver(p.flush()...)
	p.want(ReplicaQuarantine, false)
	before := p.now
	e := p.wait()
	if waited := p.now - before; waited < quarantineTime-time.Second {
		t.Errorf("the quarantine lasts %v", waited)
	}
	p.serve(e)
	if p.replica().state != ReplicaLive {
		p.sync()
	}
	p.equal()
}

// flipBit changes one bit of a replica behind the core's back.
func flipBit(c *core, part int, member string, pos uint32) {
	words, err := c.replicas[part].Bits(member)
	if err != nil {
		panic(err)
	}
	tr := peerfilter.Transitions{Set: []uint32{pos}}
	if words[pos/64]>>(pos%64)&1 == 1 {
		tr = peerfilter.Transitions{Clear: []uint32{pos}}
	}
	if _, err := c.replicas[part].Apply(member, tr); err != nil {
		panic(err)
	}
}

func TestReplica_auditFindsAFlippedBit(t *testing.T) {
	p := live(t)
	flipBit(p.a, 0, "b", 3)
	p.now = p.a.nextAudit
	p.a.tick(p.now)
	if p.a.counts.diverged != 1 {
		t.Fatal("not found")
	}
	p.want(ReplicaDiverged, false)
}

func TestReplica_newEpochKeepsTheOldBitsForAWhile(t *testing.T) {
	p := live(t)
	p.republish()
	p.deliver(p.flush()...)
	p.want(ReplicaAbsent, true)
	old := p.replica().oldUntil
	e := p.wait()
	p.a.fetched(p.now, e, fetchResult{err: errSim})
	p.a.tick(old)
	if p.replica().known {
		t.Error("the old epoch's bits are used for ever")
	}
	p.now = old
	p.serve(p.wait())
	p.want(ReplicaLive, true)
	p.equal()
	if s := p.deliverOld(1); s != 1 {
		t.Errorf("%d messages of the old epoch dropped", s)
	}
}

// deliverOld brings a head of that epoch, and returns how many were dropped.
func (p *pair) deliverOld(epoch uint32) uint64 {
	b := appendFrameHeader(nil, 0, p.b.sender, p.b.cfg.boot)
	b = appendSection(b, section{part: p.b.streams[0].key, epoch: epoch, head: 999})
	p.deliver(sendEffect{payload: sealFrame(b)})
	return p.a.counts.drop[dropEpoch]
}

func TestReplica_memberFailsAndReturns(t *testing.T) {
	for _, tc := range []struct {
		away     time.Duration
		snapshot bool
	}{{30 * time.Second, false}, {70 * time.Second, true}} {
		t.Run(fmt.Sprint(tc.away), func(t *testing.T) {
			p := live(t)
			p.a.memberDown(p.now, "b")
			p.want(ReplicaDead, false)
			if p.a.replicas[0].Lookup(key(1)).Known("b") {
				t.Error("a dead member's filter is looked up")
			}
			p.store(5)
			p.flush()
			p.now += tc.away
			p.a.tick(p.now)
			p.a.memberUp(p.now, "b", "127.0.0.1:2", p.b.nodeMeta())
			e := p.wait()
			if e.snapshot != tc.snapshot {
				t.Errorf("pulls %+v", e)
			}
			p.serve(e)
			p.want(ReplicaLive, true)
			p.equal()
		})
	}
}

func TestReplica_restartDropsThePredecessor(t *testing.T) {
	p := live(t)
	old := p.flush()
	p.b.cfg.boot = 777
	p.a.memberUp(p.now, "b", "127.0.0.1:2", p.b.nodeMeta())
	p.want(ReplicaAbsent, false)
	if len(old) == 0 {
		p.now += headInterval
		p.b.cfg.boot = 101
		old = p.flush()
		p.b.cfg.boot = 777
	}
	p.b.streams[0].snap = nil
	p.deliver(old...)
	if p.a.counts.drop[dropBoot] != 1 {
		t.Error("the predecessor's words are taken for its successor's")
	}
	p.sync()
}

func TestReplica_silence(t *testing.T) {
	p := live(t)
	p.replica().rate = 60 * 8 // of some 400 bits
	p.a.tick(p.now)
	p.now += p.a.silence()
	p.a.tick(p.now)
	if s := p.a.peers[0].state; s != StateSuspect {
		t.Errorf("after %v: %s", p.a.silence(), s)
	}
	p.now += staleAfter
	p.a.tick(p.now)
	p.want(ReplicaStale, false) // 80 of 400 bits may have changed
	p.deliver(p.flush()...)
	p.want(ReplicaLive, true)
	if s := p.a.peers[0].state; s != StateAlive {
		t.Errorf("after a word: %s", s)
	}
}

// TestCore_ownPauseIsNobodysSilence: this process stands still for long.
func TestCore_ownPauseIsNobodysSilence(t *testing.T) {
	p := live(t)
	p.a.tick(p.now)
	p.now = p.a.deadline() + time.Minute
	p.a.tick(p.now)
	if s := p.a.peers[0].state; s != StateAlive {
		t.Errorf("after a pause: %s", s)
	}
	for end := p.now + 2*p.a.silence(); p.now < end; p.now = max(p.a.deadline(), p.now+1) {
		p.a.tick(p.now)
	}
	if s := p.a.peers[0].state; s != StateSuspect {
		t.Errorf("after %v more: %s", 2*p.a.silence(), s)
	}
}

func TestReplica_drainingMemberIsNotAsked(t *testing.T) {
	p := live(t)
	p.b.drain(p.now)
	p.deliver(p.flush()...)
	p.want(ReplicaLeft, false)
	if m := p.a.members()[0]; !m.Draining || m.State != StateAlive {
		t.Errorf("%+v", m)
	}
	p.a.memberDown(p.now, "b")
	if m := p.a.members()[0]; m.State != StateLeft {
		t.Errorf("%+v", m)
	}
	p.a.tick(p.now + keepLeft)
	if len(p.a.members()) != 0 || len(p.a.bySender) != 0 {
		t.Error("a member that left is kept for ever")
	}
}

func TestReplica_anotherSeedIsNeverUsed(t *testing.T) {
	p := newPair(t)
	p.b.cfg.seedMark = 5
	p.meet()
	p.store(5)
	for range 20 {
		p.deliver(p.flush()...)
		p.a.tick(p.now)
		for _, e := range p.a.take() {
			if _, ok := e.(fetchEffect); ok {
				t.Fatal("it is fetched")
			}
		}
	}
	p.want(ReplicaAbsent, false)
}

func TestReplica_tooFullIsNotBelieved(t *testing.T) {
	p := newPair(t)
	p.store(10000)
	p.flush()
	p.serve(p.wait())
	p.want(ReplicaQuarantine, false)
}

func TestReplica_stashIsBounded(t *testing.T) {
	p := live(t)
	p.store(1)
	p.flush() // lost
	for range maxStash + 20 {
		p.store(1)
		p.deliver(p.flush()...)
	}
	if n := len(p.replica().stash); n != maxStash {
		t.Errorf("%d records are kept", n)
	}
	p.serve(p.wait())
	p.want(ReplicaLive, true)
	p.equal()
}

func TestCore_messagesFromStrangersAreDropped(t *testing.T) {
	p := live(t)
	b := sealFrame(appendFrameHeader(nil, 0, 12345, 1))
	p.deliver(sendEffect{payload: b})
	if p.a.counts.drop[dropSender] != 1 {
		t.Error("not dropped")
	}
}

func TestCore_slowPeerGetsLargerMessages(t *testing.T) {
	p := live(t)
	before := p.b.statistics(p.now).RecordBytes
	p.store(3)
	p.now = p.b.nextFlush
	p.b.tick(p.now)
	msgs := sends(p.b.take())
	if len(msgs) != 1 {
		t.Fatalf("%d messages", len(msgs))
	}
	records := p.b.statistics(p.now).RecordBytes - before
	if want := len(msgs[0].payload) - frameOverhead - sectionLen*len(p.b.streams); records != uint64(want) || want <= 0 {
		t.Errorf("%d bytes of records in a message of %d, want %d", records, len(msgs[0].payload), want)
	}
	for range 3 { // none of them is sent while the first one is on its way
		p.store(3)
		p.now = p.b.nextFlush
		p.b.tick(p.now)
		if s := sends(p.b.take()); len(s) != 0 {
			t.Fatal("a second message is sent beside the first")
		}
	}
	p.b.sent(p.now, "a", errSim)
	p.now += time.Second
	p.b.tick(p.now)
	again := sends(p.b.take())
	if len(again) != 1 || again[0].records < 4 {
		t.Fatalf("after a failure: %+v", again)
	}
	p.deliver(again...)
	p.want(ReplicaLive, true)
	p.equal()
}

func sends(effects []effect) (out []sendEffect) {
	for _, e := range effects {
		if s, ok := e.(sendEffect); ok {
			out = append(out, s)
		}
	}
	return out
}

func TestCore_hugeChangeIsASnapshot(t *testing.T) {
	p := newPair(t)
	p.serve(p.wait())
	for i := range 800 {
		p.filter.Add(key(i))
	}
	msgs := p.flush()
	if p.b.counts.truncations != 1 || len(msgs) != 1 || msgs[0].records != 0 {
		t.Fatalf("%d truncations, %+v", p.b.counts.truncations, msgs)
	}
	p.deliver(msgs...)
	p.serve(p.wait())
	p.serve(p.wait())
	p.want(ReplicaLive, true)
	p.equal()
}

func TestCore_flushIntervalFollowsMembersAndBytes(t *testing.T) {
	p := newPair(t)
	meta := p.b.nodeMeta()
	for i := range 64 {
		p.a.memberUp(p.now, fmt.Sprintf("m%02d", i), "127.0.0.1:9", meta)
	}
	if d := p.a.flushInterval(); d != 66*flushPerMember {
		t.Errorf("%v between flushes", d)
	}
	if per := 65 / p.a.flushInterval().Seconds(); per > 125 {
		t.Errorf("%.0f messages a second", per)
	}
	p.b.cfg.rateLimit = 100
	p.store(20)
	p.flush()
	if d := p.b.nextFlush - p.now; d < time.Second {
		t.Errorf("the next flush is %v later at 100 bytes a second", d)
	}
}

func TestCore_membersAreBounded(t *testing.T) {
	p := newPair(t)
	for i := range 2 * maxMembers {
		p.a.memberUp(p.now, fmt.Sprintf("m%03d", i), "127.0.0.1:9", nodeMeta{boot: 1})
	}
	if n := len(p.a.peers); n != maxMembers {
		t.Errorf("%d members", n)
	}
	p.a.memberDown(p.now, "m000")
	p.a.memberUp(p.now, "late", "127.0.0.1:9", nodeMeta{boot: 1})
	if _, m := p.a.find("late"); m == nil {
		t.Error("a live member finds no room beside a dead one")
	}
}

func TestReplica_recordThatLiesIsFound(t *testing.T) {
	p := live(t)
	s := p.b.streams[0]
	var tr peerfilter.Transitions
	p.store(1)
	s.shadow.Diff(&tr)
	data, err := peerfilter.AppendRecord(nil, s.params, peerfilter.Record{Seq: s.seq + 1, SetHash: s.shadow.SetHash() + 1, Transitions: tr})
	if err != nil {
		t.Fatal(err)
	}
	b := appendFrameHeader(nil, 0, p.b.sender, p.b.cfg.boot)
	// The head is right, so only the record itself can give it away.
	b = appendRecords(b, section{part: s.key, epoch: s.epoch, head: s.seq + 1, hash: s.shadow.SetHash(), first: s.seq + 1}, data)
	p.deliver(sendEffect{payload: sealFrame(b)})
	p.want(ReplicaDiverged, false)
}

// TestCore_staysSmall: ten thousand members come and go, under 400 names and
// each time as another process. Nothing of them stays.
func TestCore_staysSmall(t *testing.T) {
	p := live(t)
	meta := p.b.nodeMeta()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	for i := range 10_000 {
		p.now += 100 * time.Millisecond
		name := fmt.Sprintf("m%03d", i%400)
		meta.boot, meta.flags = uint64(1000+i), 0
		p.a.memberUp(p.now, name, "127.0.0.1:9", meta)
		p.now += 100 * time.Millisecond
		p.a.tick(p.now)
		for _, e := range p.a.take() {
			switch e := e.(type) {
			case sendEffect:
				p.a.sent(p.now, e.to, nil)
			case fetchEffect:
				s, err := decodeSnapshot(p.b.snapshot(p.now, 0).append(nil), minSnapshotLen)
				if err != nil {
					t.Fatal(err)
				}
				s.sender, s.boot = nameKey(e.from), e.boot
				p.a.fetched(p.now, e, fetchResult{state: s})
			}
		}
		if i%2 == 0 {
			meta.flags = flagDraining
			p.a.memberUp(p.now, name, "127.0.0.1:9", meta)
		}
		p.a.memberDown(p.now, name)
		p.a.take()
		if i == 2000 {
			early = heap()
		}
	}
	if len(p.a.peers) > maxMembers || len(p.a.bySender) != len(p.a.peers) || p.a.snapshotsRunning > maxSnapshotsIn {
		t.Errorf("%d members, %d senders, %d snapshots", len(p.a.peers), len(p.a.bySender), p.a.snapshotsRunning)
	}
	late := heap()
	t.Logf("%d kB after 2 000, %d kB after 10 000; %d snapshots loaded", early>>10, late>>10, p.a.counts.loaded)
	if late > early+early/4 || p.a.counts.loaded < 1000 {
		t.Errorf("the heap grows from %d to %d bytes, %d snapshots loaded", early, late, p.a.counts.loaded)
	}
}
