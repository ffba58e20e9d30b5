package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"edged/peerfilter"
)

// snapshot is a whole published state and where it stands in its stream. It
// never changes.
type snapshot struct {
	sender, boot, part uint64
	epoch              uint32
	seq                uint64
	state              peerfilter.Snapshot

	once sync.Once
	wire []byte // made once, for all who fetch it
}

// Bounds of the transfer of a snapshot.
const (
	chunkLen     = 1 << 20               // bytes in one answer
	chunkTimeout = 10 * time.Second      // for one of them
	chunkTries   = 4                     // of one of them, in a row
	chunkRetry   = 50 * time.Millisecond // after a failed one, four times longer each time

	// snapshotTimeout is for the whole: 8 MiB at a little more than 0.5 Mbit/s.
	snapshotTimeout = 2 * time.Minute
)

// append appends the wire form: the frame's first 20 bytes with type 2, then
//
//	20  partition u64
//	28  epoch     u32
//	32  seq       u64
//	40  layout    u8
//	41  blocks    u32
//	45  peerfilter's snapshot form
//	-4  crc32c    u32 over all before it
func (s *snapshot) append(b []byte) []byte {
	start := len(b)
	b = append(b, frameMagic, frameVersion, frameSnapshot, 0)
	b = binary.BigEndian.AppendUint64(b, s.sender)
	b = binary.BigEndian.AppendUint64(b, s.boot)
	b = binary.BigEndian.AppendUint64(b, s.part)
	b = binary.BigEndian.AppendUint32(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, s.seq)
	b = append(b, byte(s.state.Params().Layout))
	b = binary.BigEndian.AppendUint32(b, s.state.Params().Blocks)
	b = peerfilter.AppendSnapshot(b, s.state)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

const snapshotHeaderLen = frameHeaderLen + 25

// decodeSnapshot reads a snapshot whose bits take up to maxBytes.
func decodeSnapshot(b []byte, maxBytes int) (*snapshot, error) {
	if len(b) < snapshotHeaderLen+4 || b[0] != frameMagic || b[2] != frameSnapshot {
		return nil, errFrameMalformed
	}
	if b[1] != frameVersion {
		return nil, errFrameVersion
	}
	if crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, errFrameChecksum
	}
	s := &snapshot{
		sender: binary.BigEndian.Uint64(b[4:]),
		boot:   binary.BigEndian.Uint64(b[12:]),
		part:   binary.BigEndian.Uint64(b[20:]),
		epoch:  binary.BigEndian.Uint32(b[28:]),
		seq:    binary.BigEndian.Uint64(b[32:]),
	}
	p := peerfilter.Params{Layout: peerfilter.Layout(b[40]), Blocks: binary.BigEndian.Uint32(b[41:])}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Bits()/8 > uint64(maxBytes) {
		return nil, fmt.Errorf("a filter of %d bytes: %d are accepted at most", p.Bits()/8, maxBytes)
	}
	var err error
	s.state, err = peerfilter.DecodeSnapshot(b[snapshotHeaderLen:len(b)-4], p)
	return s, err
}

// maxSnapshotBytes is how large a peer's filter may be: four times our own.
func maxSnapshotBytes(own peerfilter.Params) int {
	return max(minSnapshotLen, int(min(4*(own.Bits()/8), 1<<30)))
}

// bytes is the wire form.
func (s *snapshot) bytes() []byte {
	s.once.Do(func() { s.wire = s.append(nil) })
	return s.wire
}

// A chunk is the answer to a request for a snapshot: its wire form from an
// offset on, as much as fits.
//
//	0   epoch  u32
//	4   seq    u64
//	12  length u32, of the whole wire form
//	16  bytes from the offset on, up to 1 MiB
//
// Whoever fetches names epoch and sequence number with every later offset. The
// publisher keeps the last two snapshots, so a transfer can go on that was
// begun before the last one was made.
const chunkHeaderLen = 16

func appendChunk(b []byte, s *snapshot, offset int) []byte {
	wire := s.bytes()
	b = binary.BigEndian.AppendUint32(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, s.seq)
	b = binary.BigEndian.AppendUint32(b, uint32(len(wire)))
	return append(b, wire[offset:min(offset+chunkLen, len(wire))]...)
}

// chunk is a decoded chunk; data aliases the input.
type chunk struct {
	epoch uint32
	seq   uint64
	total int
	data  []byte
}

// errChunk is a chunk that is no part of what was asked for.
var errChunk = errors.New("the answer is not the part of the snapshot that was asked for")

// decodeChunk reads the chunk from offset on of a snapshot of up to limit bytes.
func decodeChunk(b []byte, offset, limit int) (chunk, error) {
	if len(b) <= chunkHeaderLen {
		return chunk{}, errChunk
	}
	c := chunk{
		epoch: binary.BigEndian.Uint32(b),
		seq:   binary.BigEndian.Uint64(b[4:]),
		data:  b[chunkHeaderLen:],
	}
	total := binary.BigEndian.Uint32(b[12:])
	if uint64(total) > uint64(limit) {
		return chunk{}, fmt.Errorf("a snapshot of %d bytes: %d are accepted at most", total, limit)
	}
	c.total = int(total)
	if len(c.data) > c.total-offset {
		return chunk{}, errChunk
	}
	return c, nil
}

// serveSnapshot answers with one chunk. Four are served at once.
func (g *Gossip) serveSnapshot(q url.Values) (int, []byte) {
	part, ok := g.partition(q)
	if !ok {
		return http.StatusNotFound, []byte("no such partition\n")
	}
	offset, boot, epoch, seq := uint64(0), uint64(0), uint64(0), uint64(0)
	if q.Has("offset") {
		var errs [4]error
		offset, errs[0] = strconv.ParseUint(q.Get("offset"), 10, 32)
		boot, errs[1] = strconv.ParseUint(q.Get("boot"), 10, 64)
		epoch, errs[2] = strconv.ParseUint(q.Get("epoch"), 10, 32)
		seq, errs[3] = strconv.ParseUint(q.Get("seq"), 10, 64)
		if errors.Join(errs[:]...) != nil {
			return http.StatusBadRequest, []byte("want part, and to go on offset, boot, epoch and seq\n")
		}
	}
	select {
	case g.snapshotsOut <- struct{}{}:
		defer func() { <-g.snapshotsOut }()
	default:
		return http.StatusServiceUnavailable, []byte("too many snapshots at once\n")
	}
	var s *snapshot
	g.do(func(now time.Duration) {
		if offset == 0 {
			s = g.core.snapshot(now, part)
		} else {
			s = g.core.snapshotAt(part, boot, uint32(epoch), seq)
		}
	})
	switch {
	case s == nil && offset > 0:
		return http.StatusGone, []byte("that snapshot is not kept any more: begin anew\n")
	case s == nil:
		return http.StatusNotFound, []byte("nothing is published yet\n")
	case offset >= uint64(len(s.bytes())):
		return http.StatusBadRequest, []byte("the offset is beyond the end\n")
	}
	b := appendChunk(nil, s, int(offset))
	g.do(func(time.Duration) { g.core.counts.sent(kindSnapshot, len(b)) })
	return http.StatusOK, b
}

// pullSnapshot fetches a peer's snapshot, one chunk after the other. A chunk
// that fails is asked for again, so a transfer outlives a connection.
func (g *Gossip) pullSnapshot(ctx context.Context, e fetchEffect) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	bits := maxSnapshotBytes(g.cfg.Partitions[e.part].Params)
	limit := bits + bits/8 + 4096
	q := url.Values{"part": {g.cfg.Partitions[e.part].Name}}
	var wire []byte
	for {
		b, err := g.pullChunk(ctx, e.addr, q)
		if err != nil {
			return nil, err
		}
		c, err := decodeChunk(b, len(wire), limit)
		if err != nil {
			return nil, err
		}
		g.do(func(time.Duration) { g.core.counts.received(kindSnapshot, len(b)) })
		wire = append(wire, c.data...)
		if len(wire) == c.total {
			return decodeSnapshot(wire, bits)
		}
		q.Set("offset", strconv.Itoa(len(wire)))
		q.Set("boot", strconv.FormatUint(e.boot, 10))
		q.Set("epoch", strconv.FormatUint(uint64(c.epoch), 10))
		q.Set("seq", strconv.FormatUint(c.seq, 10))
	}
}

func (g *Gossip) pullChunk(ctx context.Context, addr string, q url.Values) (b []byte, err error) {
	wait := chunkRetry
	for range chunkTries {
		try, cancel := context.WithTimeout(ctx, chunkTimeout)
		b, err = g.call(try, http.MethodGet, addr, pathSnapshot+"?"+q.Encode(), nil, chunkHeaderLen+chunkLen)
		cancel()
		if err == nil || errors.Is(err, errGone) || !q.Has("offset") {
			return b, err // the first one is tried again by whoever wants the snapshot
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
		wait *= 4
	}
	return nil, err
}
