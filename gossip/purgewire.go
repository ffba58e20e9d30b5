package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Messages of the log of changes share the frame of the streams (frame.go):
// magic, version, type, flags, sender, boot, body, sum. Their types and bodies,
// where a name is a byte of length and its bytes, and a varint is
// encoding/binary's unsigned one:
//
//	3 changes  name of the sender
//	           name, boot u64   the origin: whose sequence these are of
//	           each up to the end: seq u64, length u24, a change
//	4 ack      name of the sender
//	           boot u64         of the addressee, whose sequence this is about
//	           seq u64          all up to it are applied
//	           each up to the end: from u64, to u64: applied beyond it
//	5 digest   name of the sender; flag bit 0: the sender wants to see the
//	           addressee's digest at once
//	           hash u64         of its whole vector
//	           entries u16      in its vector
//	           each up to the end: name, boot u64, seq u64, stamp u64
//
// A change is
//
//	kind u8 | flags u8, bit 0 all, bit 1 soft | stamp u64
//	site | URLs | tags | prefixes | hosts | payload
//
// with strings as varint length and bytes, and lists as varint count and
// strings. What follows is skipped, so that the form may grow.
//
// The answer to a request for changes (purgehttp.go) is
//
//	magic u8 | version u8 | flags u8, bit 0: there is more
//	n u16, each: name, boot u64, floor u64, stamp u64   sequences that were cut
//	each up to the sum: name, boot u64, seq u64, length u24, a change
//	-4 crc32c u32
const (
	frameChanges = 3
	frameAck     = 4
	frameDigest  = 5

	// maxChangeLen bounds the wire form of a change.
	maxChangeLen = 128 << 10

	// maxStrings bounds the strings of a change, maxMessageChanges the changes of
	// one message and maxMessageLen the length of one that has several: what a
	// short input makes a member hold is a small multiple of it.
	maxStrings        = 8192
	maxMessageChanges = 1024
	maxMessageLen     = 64 << 10

	// maxAckRanges bounds what an ack tells of changes beyond a gap.
	maxAckRanges = 60

	// maxVector bounds the sequences that a member knows of.
	maxVector = 4096

	flagMore = 1
	flagAsks = 1
)

// ErrChangeLen is a change that is too long for the log: the caller splits it.
var ErrChangeLen = errors.New("the change is longer than 128 KiB, or names more than 8192 things: split it")

// origin is one sequence of changes: those that one process of a member took.
type origin struct {
	name string
	boot uint64
}

// head of a sequence, as members tell each other.
type seqHead struct {
	origin
	seq   uint64
	stamp uint64 // of the newest change
}

// seqRange is a run of sequence numbers, both ends included.
type seqRange struct{ from, to uint64 }

// record is one change in its sequence, encoded.
type record struct {
	origin
	seq uint64
	enc []byte
}

// logMessage is a decoded message of the log. Slices alias the input.
type logMessage struct {
	kind byte
	from string
	boot uint64 // of the sender

	of      origin   // changes; ack: of.boot alone
	records []record // changes

	seq    uint64     // ack
	ranges []seqRange // ack

	asks    bool      // digest
	hash    uint64    // digest
	entries int       // digest: in the whole vector
	heads   []seqHead // digest
}

func appendName(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendList(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// appendChange appends the wire form of a change.
func appendChange(b []byte, c *Change) []byte {
	flags := byte(0)
	if c.All {
		flags |= 1
	}
	if c.Soft {
		flags |= 2
	}
	b = binary.BigEndian.AppendUint64(append(b, byte(c.Kind), flags), c.Stamp)
	b = appendString(b, c.Site)
	for _, list := range [][]string{c.URLs, c.Tags, c.Prefixes, c.Hosts} {
		b = appendList(b, list)
	}
	return appendString(b, string(c.Payload))
}

// reader takes bytes from the front; after the first one that is missing it
// is bad and returns zeros.
type reader struct {
	b       []byte
	bad     bool
	strings uint64 // taken by list
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u8() byte {
	if p := r.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) u64() uint64 {
	if p := r.bytes(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (r *reader) u24() uint64 {
	if p := r.bytes(3); p != nil {
		return uint64(p[0])<<16 | uint64(p[1])<<8 | uint64(p[2])
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// name reads a member's name, which is never empty and at most 63 bytes.
func (r *reader) name() string {
	n := r.u8()
	if n == 0 || n > 63 {
		r.bad, r.b = true, nil
	}
	return string(r.bytes(uint64(n)))
}

// list reads strings, up to maxStrings by one reader.
func (r *reader) list() []string {
	n := r.uvarint()
	if r.strings += n; n > maxStrings || r.strings > maxStrings || n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
	}
	if r.bad || n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		s := r.bytes(r.uvarint())
		if r.bad {
			return nil
		}
		list = append(list, string(s))
	}
	return list
}

// decodeChange reads a change; it copies what it keeps.
func decodeChange(b []byte) (Change, error) {
	if len(b) > maxChangeLen {
		return Change{}, errFrameMalformed
	}
	r := reader{b: b}
	c := Change{Kind: Kind(r.u8())}
	flags := r.u8()
	c.All, c.Soft = flags&1 != 0, flags&2 != 0
	c.Stamp = r.u64()
	c.Site = string(r.bytes(r.uvarint()))
	c.URLs, c.Tags, c.Prefixes, c.Hosts = r.list(), r.list(), r.list(), r.list()
	if p := r.bytes(r.uvarint()); len(p) > 0 {
		c.Payload = append([]byte(nil), p...)
	}
	if r.bad || c.Kind == 0 {
		return Change{}, errFrameMalformed
	}
	return c, nil
}

// changeID is the ID of a change: where it stands in the log.
func changeID(o origin, seq uint64) string { return fmt.Sprintf("%s.%016x.%d", o.name, o.boot, seq) }

func appendLogHeader(b []byte, kind, flags byte, self origin) []byte {
	b = append(b, frameMagic, frameVersion, kind, flags)
	b = binary.BigEndian.AppendUint64(b, nameKey(self.name))
	b = binary.BigEndian.AppendUint64(b, self.boot)
	return appendName(b, self.name)
}

// beginChanges begins a message of changes of one origin.
func beginChanges(b []byte, self, of origin) []byte {
	return binary.BigEndian.AppendUint64(appendName(appendLogHeader(b, frameChanges, 0, self), of.name), of.boot)
}

// appendSequenced appends one change to such a message.
func appendSequenced(b []byte, seq uint64, enc []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, seq)
	b = append(b, byte(len(enc)>>16), byte(len(enc)>>8), byte(len(enc)))
	return append(b, enc...)
}

func encodeAck(self origin, boot, seq uint64, ranges []seqRange) []byte {
	b := appendLogHeader(nil, frameAck, 0, self)
	b = binary.BigEndian.AppendUint64(b, boot)
	b = binary.BigEndian.AppendUint64(b, seq)
	for _, r := range ranges[:min(len(ranges), maxAckRanges)] {
		b = binary.BigEndian.AppendUint64(b, r.from)
		b = binary.BigEndian.AppendUint64(b, r.to)
	}
	return sealFrame(b)
}

func appendHead(b []byte, h seqHead) []byte {
	b = binary.BigEndian.AppendUint64(appendName(b, h.name), h.boot)
	b = binary.BigEndian.AppendUint64(b, h.seq)
	return binary.BigEndian.AppendUint64(b, h.stamp)
}

// encodeDigest makes a digest of up to limit bytes; heads are in order of
// their worth.
func encodeDigest(self origin, asks bool, hash uint64, heads []seqHead, limit int) []byte {
	flags := byte(0)
	if asks {
		flags = flagAsks
	}
	b := appendLogHeader(nil, frameDigest, flags, self)
	b = binary.BigEndian.AppendUint64(b, hash)
	b = binary.BigEndian.AppendUint16(b, uint16(min(len(heads), 1<<16-1)))
	for _, h := range heads {
		if len(b)+len(h.name)+25+4 > limit {
			break
		}
		b = appendHead(b, h)
	}
	return sealFrame(b)
}

// isLogMessage reports whether a message is one of the log's.
func isLogMessage(b []byte) bool {
	return len(b) >= frameOverhead && b[0] == frameMagic && b[2] >= frameChanges && b[2] <= frameDigest
}

// decodeLogMessage reads a message of the log. Names are copied; encoded
// changes alias b, and are not yet looked into.
func decodeLogMessage(b []byte, limit int) (logMessage, error) {
	var m logMessage
	switch {
	case len(b) < frameOverhead || len(b) > limit || b[0] != frameMagic:
		return m, errFrameMalformed
	case b[1] != frameVersion:
		return m, errFrameVersion
	}
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	b = b[:len(b)-4]
	if crc32.Checksum(b, castagnoli) != sum {
		return m, errFrameChecksum
	}
	m.kind, m.boot = b[2], binary.BigEndian.Uint64(b[12:])
	r := reader{b: b[frameHeaderLen:]}
	m.from = r.name()
	switch m.kind {
	case frameChanges:
		m.of = origin{r.name(), r.u64()}
		for !r.bad && len(r.b) > 0 {
			seq := r.u64()
			m.records = append(m.records, record{m.of, seq, r.bytes(r.u24())})
			if n := len(m.records); seq == 0 || n > maxMessageChanges || n > 1 && len(b) > maxMessageLen {
				return logMessage{}, errFrameMalformed
			}
		}
	case frameAck:
		m.of.boot, m.seq = r.u64(), r.u64()
		for !r.bad && len(r.b) > 0 {
			rg := seqRange{r.u64(), r.u64()}
			if rg.from <= m.seq || rg.to < rg.from || len(m.ranges) == maxAckRanges {
				r.bad = true
			}
			m.ranges = append(m.ranges, rg)
		}
	case frameDigest:
		m.asks = b[3]&flagAsks != 0
		m.hash = r.u64()
		m.entries = int(r.u8())<<8 | int(r.u8())
		for !r.bad && len(r.b) > 0 {
			m.heads = append(m.heads, r.head())
			if len(m.heads) > min(maxVector, m.entries) {
				r.bad = true
			}
		}
	default:
		return logMessage{}, errFrameType
	}
	if r.bad {
		return logMessage{}, errFrameMalformed
	}
	return m, nil
}

func (r *reader) head() seqHead { return seqHead{origin{r.name(), r.u64()}, r.u64(), r.u64()} }

// catchUp is the answer to a request for changes.
type catchUp struct {
	more    bool
	cut     []seqHead // sequences whose beginning is lost; seq is the last one that is
	records []record
}

func encodeCatchUp(a catchUp) []byte {
	flags := byte(0)
	if a.more {
		flags |= flagMore
	}
	b := []byte{frameMagic, frameVersion, flags}
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.cut)))
	for _, h := range a.cut {
		b = appendHead(b, h)
	}
	for _, r := range a.records {
		b = binary.BigEndian.AppendUint64(appendName(b, r.name), r.boot)
		b = appendSequenced(b, r.seq, r.enc)
	}
	return sealFrame(b)
}

// decodeCatchUp reads such an answer. Encoded changes alias b.
func decodeCatchUp(b []byte) (catchUp, error) {
	var a catchUp
	switch {
	case len(b) < 9 || b[0] != frameMagic:
		return a, errFrameMalformed
	case b[1] != frameVersion:
		return a, errFrameVersion
	case crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]):
		return a, errFrameChecksum
	}
	r := reader{b: b[2 : len(b)-4]}
	a.more = r.u8()&flagMore != 0
	n := int(r.u8())<<8 | int(r.u8())
	if n > maxVector {
		return catchUp{}, errFrameMalformed
	}
	for i := 0; i < n && !r.bad; i++ {
		a.cut = append(a.cut, r.head())
	}
	for !r.bad && len(r.b) > 0 {
		rec := record{origin: origin{r.name(), r.u64()}, seq: r.u64()}
		rec.enc = r.bytes(r.u24())
		if rec.seq == 0 {
			r.bad = true
		}
		a.records = append(a.records, rec)
	}
	if r.bad {
		return catchUp{}, errFrameMalformed
	}
	return a, nil
}
