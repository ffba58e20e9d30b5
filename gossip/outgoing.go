package gossip

import (
	"slices"
	"time"

	"edged/peerfilter"
)

// Bounds of the log of a stream, from which peers that missed records are
// served. 60 s of 1 000 stored and evicted responses a second are about 1 MB.
//
// It never holds more than a snapshot weighs, for then that is what a peer
// should fetch; but what costs less than a request is not worth one.
const (
	logTime     = 60 * time.Second
	maxLogBytes = 4 << 20
	minLogBytes = 64 << 10

	// maxRecordLen is the longest record that travels as such. A flush that
	// changed more truncates the log, and peers pull a snapshot.
	maxRecordLen = 200 << 10

	// snapshotAge is how old a shared snapshot may be: the log covers the rest.
	snapshotAge = 5 * time.Second

	// snapshotKept is how long a transfer can go on with one.
	snapshotKept = 2 * time.Minute
)

// stream is one partition of ours as it is published: the log of one writer.
// Record seq of an epoch takes the published bits from seq-1 to seq; seq 0 of
// each epoch is the empty filter.
type stream struct {
	key    uint64
	params peerfilter.Params
	shadow *peerfilter.Shadow // nil before the first publish

	epoch uint32
	seq   uint64
	hash  uint64
	count uint32
	rate  float64 // transitions a second, smoothed

	log      []logged // in sequence, the last one has seq
	logBytes int
	floor    uint64 // records after this one are in the log

	snap     *snapshot // the last one that somebody wanted
	lastSnap *snapshot // the one before it
	snapped  time.Duration
}

// logged is one record in its wire form.
type logged struct {
	seq  uint64
	at   time.Duration
	data []byte
}

// publish begins an epoch of one of our streams with an empty published state.
func (c *core) publish(now time.Duration, part int, shadow *peerfilter.Shadow) {
	s := c.streams[part]
	*s = stream{key: s.key, params: shadow.Params(), shadow: shadow, epoch: s.epoch + 1}
	c.nextFlush = now // whatever it holds already goes out at once
	for _, p := range c.peers {
		if p.reachable() {
			p.lastSent = now - time.Hour
		}
	}
	c.touchAll()
	c.emit(metaEffect{})
}

// flush turns what changed since the last one into records. It reports whether
// there is any news for the peers.
func (c *core) flush(now time.Duration) (news bool) {
	dt := max(now-c.lastFlush, time.Millisecond)
	c.lastFlush = now
	out := 0
	for _, s := range c.streams {
		if s.shadow != nil {
			before := s.seq
			out += c.flushStream(now, dt, s)
			news = news || s.seq != before
		}
	}
	// The interval stretches so that the records of this flush, sent to
	// everyone, stay within the limit of bytes a second.
	t := c.flushInterval()
	t = max(t, time.Duration(float64(out*c.live)/float64(c.cfg.rateLimit)*float64(time.Second)))
	c.nextFlush = now + t - t/10 + c.jitter(t/5)
	return news
}

// flushStream appends the records of one stream to its log and returns their bytes.
func (c *core) flushStream(now, dt time.Duration, s *stream) (size int) {
	changes := 0
	for more := true; more; {
		more = s.shadow.Diff(&c.trans)
		if c.trans.Len() == 0 {
			break
		}
		changes += c.trans.Len()
		s.seq++
		s.hash = s.shadow.SetHash()
		data, err := peerfilter.AppendRecord(nil, s.params, peerfilter.Record{Seq: s.seq, SetHash: s.hash, Transitions: c.trans})
		if err != nil || len(data) > maxRecordLen || changes > int(s.params.Bits()/8) && changes > 4096 {
			// About as much as a snapshot costs, or not to be told as a
			// record: peers see the gap and pull a snapshot.
			s.log, s.logBytes, s.floor = nil, 0, s.seq
			c.counts.truncations++
			continue
		}
		s.log = append(s.log, logged{s.seq, now, data})
		s.logBytes += len(data)
		size += len(data)
	}
	s.count = uint32(min(s.shadow.Count(), 1<<32-1))
	s.rate += (float64(changes)/dt.Seconds() - s.rate) * 0.2
	drop := 0
	for drop < len(s.log) && (s.logBytes > s.maxLog() || now-s.log[drop].at > logTime) {
		s.logBytes -= len(s.log[drop].data)
		s.floor = s.log[drop].seq
		drop++
	}
	s.log = slices.Delete(s.log, 0, drop)
	if s.snap != nil && now > s.snapped+snapshotKept {
		s.snap, s.lastSnap = nil, nil
	}
	return size
}

// maxLog bounds the log's bytes.
func (s *stream) maxLog() int {
	return int(min(max(s.params.Bits()/8, minLogBytes), maxLogBytes))
}

// append appends what a message says of the stream, with the records after
// after that fit into limit bytes; none when the log does not reach back so
// far. It returns how many they are.
func (s *stream) append(b []byte, after uint64, limit int) ([]byte, int) {
	var recs []logged
	if after >= s.floor && after < s.seq {
		size := sectionLen
		for n, l := range s.log[after-s.floor:] {
			if size += recordPrefix + len(l.data); size > limit || n == maxRecords {
				break
			}
			recs = s.log[after-s.floor:][:n+1]
		}
	}
	b = appendSection(b, section{
		part: s.key, epoch: s.epoch, head: s.seq, hash: s.hash,
		count: s.count, rate: uint32(min(s.rate*60, 1<<32-1)), first: after + 1, records: records{n: len(recs)},
	})
	for _, l := range recs {
		b = appendRecord(b, l.data)
	}
	return b, len(recs)
}

// behind is where the peer really stands in the stream: it misses the records
// after that, and they are all in the log. A peer that missed more notices the
// gap and pulls.
func (s *stream) behind(c cursor) uint64 {
	if c.epoch != s.epoch || c.seq < s.floor || c.seq > s.seq {
		return s.seq
	}
	return c.seq
}

// news reports whether there is something the peer was not sent.
func (c *core) news(p *peer) bool {
	for i, s := range c.streams {
		if p.cursors[i].epoch != s.epoch || p.cursors[i].seq != s.seq {
			return true
		}
	}
	return false
}

// send makes one message of everything that the peer was not sent, or a head.
func (c *core) send(now time.Duration, p *peer) {
	var flags byte
	if c.draining {
		flags |= flagDraining
	}
	b := appendFrameHeader(make([]byte, 0, 512), flags, c.sender, c.cfg.boot)
	b[1] = c.version(p)
	p.before = append(p.before[:0], p.cursors...)
	records := 0
	// Every section's head is certain to fit; what is left goes to the
	// streams in turns, so that a busy one does not starve the rest.
	room := maxFrameLen - frameOverhead - len(c.streams)*sectionLen
	p.turn++
	for k := range c.streams {
		i := (k + p.turn) % len(c.streams)
		s := c.streams[i]
		if s.epoch == 0 {
			continue
		}
		after := s.behind(p.cursors[i])
		before, n := len(b), 0
		b, n = s.append(b, after, room+sectionLen)
		size := len(b) - before - sectionLen
		room -= size
		c.counts.records += uint64(size)
		records += n
		p.cursors[i] = cursor{s.epoch, after + uint64(n)}
	}
	b = sealFrame(b)
	p.busy = true
	p.lastSent = now
	kind := kindHead
	if records > 0 {
		kind = kindDelta
	}
	c.counts.sent(kind, len(b))
	if len(b) > maxPacketLen {
		c.counts.tcp++
	} else {
		c.counts.udp++
	}
	c.emit(sendEffect{to: p.name, payload: b, reliable: len(b) > maxPacketLen, records: records})
}

// sent says that the message to a peer has left, or not.
func (c *core) sent(now time.Duration, to string, err error) {
	_, p := c.find(to)
	if p == nil || !p.busy {
		return
	}
	p.busy = false
	defer c.touch(p)
	if err == nil {
		p.retry = 0
		return
	}
	c.counts.sendErrors++
	if len(p.before) == len(p.cursors) {
		copy(p.cursors, p.before)
	}
	p.retry = min(max(2*p.retry, time.Second), maxSendRetry)
	p.retryAt = now + p.retry
}

// heads is what this member knows of everyone's streams, its own first.
func (c *core) heads() []head {
	var hs []head
	for _, s := range c.streams {
		if s.epoch > 0 {
			hs = append(hs, head{c.sender, c.cfg.boot, s.key, s.epoch, s.seq, s.hash})
		}
	}
	for _, p := range c.peers {
		for i, r := range p.replicas {
			if p.reachable() && r.synced {
				hs = append(hs, head{p.sender, p.meta.boot, c.streams[i].key, r.epoch, r.seq, r.hash})
			}
		}
	}
	return hs
}

// deltas answers a peer that pulls the records after after. It reports whether
// they can be had; else the peer needs a snapshot.
func (c *core) deltas(part int, boot uint64, epoch uint32, after uint64) ([]byte, bool) {
	s := c.streams[part]
	if boot != c.cfg.boot || epoch == 0 || epoch != s.epoch || after < s.floor || after > s.seq {
		return nil, false
	}
	b, _ := s.append(appendFrameHeader(nil, 0, c.sender, c.cfg.boot), after, maxDeltasLen-frameOverhead)
	return sealFrame(b), true
}

// snapshot returns a published state of a stream of ours, not older than
// snapshotAge and such that the log goes on from it, or nil before the first
// publish.
func (c *core) snapshot(now time.Duration, part int) *snapshot {
	s := c.streams[part]
	if s.epoch == 0 {
		return nil
	}
	if s.snap == nil || s.snap.seq != s.seq && (now-s.snapped > snapshotAge || s.snap.seq < s.floor) {
		s.lastSnap = s.snap
		s.snap = &snapshot{sender: c.sender, boot: c.cfg.boot, part: s.key, epoch: s.epoch, seq: s.seq, state: s.shadow.Snapshot()}
		s.snapped = now
	}
	return s.snap
}

// snapshotAt returns the snapshot of just that state, if it is kept still.
func (c *core) snapshotAt(part int, boot uint64, epoch uint32, seq uint64) *snapshot {
	s := c.streams[part]
	for _, snap := range []*snapshot{s.snap, s.lastSnap} {
		if snap != nil && boot == c.cfg.boot && snap.epoch == epoch && snap.seq == seq {
			return snap
		}
	}
	return nil
}
