package gossip

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
)

// A frame is one message from a member to another. Everything is big-endian.
//
//	0   magic     u8, 0xED
//	1   version   u8, 1
//	2   type      u8, 1: streams (2 is a snapshot's, never sent as a message)
//	3   flags     u8, bit 0: the sender is draining; bit 1: it has left, and this
//	              is the last that its process says; others are ignored
//	4   sender    u64, nameKey of the sender's name
//	12  boot      u64
//	20  body
//	-4  crc32c    u32 over all before it
//
// An unknown version or type is counted and dropped, so both may grow. The sum
// is there because memberlist has been seen to hand over bytes of a wrongly
// split packet.
//
// The body of type 1 is a list of sections up to the end, one for each of the
// sender's partitions. Without records it is a head, sent when silent.
//
//	0   partition u64, nameKey of the partition's name
//	8   epoch     u32
//	12  head      u64, the newest sequence number
//	20  set-hash  u64, of the published bits at head
//	28  count     u32, keys in the filter at head
//	32  rate      u32, bit transitions a minute
//	36  first     u64, sequence number of the first record
//	44  records   u16, in sequence from first
//	46  each record: length u24, then peerfilter's record form
const (
	frameMagic     = 0xED
	frameVersion   = 1
	frameStreams   = 1
	frameSnapshot  = 2
	frameHeaderLen = 20
	frameOverhead  = frameHeaderLen + 4
	sectionLen     = 46
	recordPrefix   = 3
	maxRecords     = 1<<16 - 1

	// maxFrameLen bounds a frame; a larger one is not even copied.
	maxFrameLen = 256 << 10

	// maxPacketLen is the largest frame sent as a packet. memberlist packs up
	// to 1400 bytes; label, encryption and sums need the rest.
	maxPacketLen = 1200
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a decoded frame. The records alias the input.
type frame struct {
	flags    byte
	sender   uint64
	boot     uint64
	sections []section
}

// section is what a frame says of one partition.
type section struct {
	part    uint64
	epoch   uint32
	head    uint64
	hash    uint64
	count   uint32
	rate    uint32
	first   uint64
	records records
}

// records are some records of a section as they stand in the frame: no list of
// them is made, which for the shortest records would be eight times as long as
// the frame.
type records struct {
	n    int
	wire []byte // alias of the frame
}

// all yields the records in sequence.
func (r records) all() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for b := r.wire; len(b) > 0; {
			end := recordPrefix + uint24(b)
			if !yield(b[recordPrefix:end:end]) {
				return
			}
			b = b[end:]
		}
	}
}

func uint24(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

// Reasons for which a frame is not read; they are also the names of counters.
var (
	errFrameMalformed = errors.New("malformed")
	errFrameChecksum  = errors.New("checksum")
	errFrameVersion   = errors.New("version")
	errFrameType      = errors.New("type")
)

// appendFrameHeader begins a frame of streams.
func appendFrameHeader(b []byte, flags byte, sender, boot uint64) []byte {
	b = append(b, frameMagic, frameVersion, frameStreams, flags)
	b = binary.BigEndian.AppendUint64(b, sender)
	return binary.BigEndian.AppendUint64(b, boot)
}

// appendSection appends one partition's section up to its records, of which
// s.records.n are appended next; at most maxRecords.
func appendSection(b []byte, s section) []byte {
	b = binary.BigEndian.AppendUint64(b, s.part)
	b = binary.BigEndian.AppendUint32(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, s.head)
	b = binary.BigEndian.AppendUint64(b, s.hash)
	b = binary.BigEndian.AppendUint32(b, s.count)
	b = binary.BigEndian.AppendUint32(b, s.rate)
	b = binary.BigEndian.AppendUint64(b, s.first)
	return binary.BigEndian.AppendUint16(b, uint16(s.records.n))
}

// appendRecord appends one record of the last section, below 16 MiB.
func appendRecord(b, r []byte) []byte {
	b = append(b, byte(len(r)>>16), byte(len(r)>>8), byte(len(r)))
	return append(b, r...)
}

// sealFrame appends the sum.
func sealFrame(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeFrame reads a frame of up to limit bytes. It allocates nothing but the
// list of sections, of which there are maxPartitions at most.
func decodeFrame(b []byte, limit int) (frame, error) {
	var f frame
	switch {
	case len(b) < frameOverhead || len(b) > limit || b[0] != frameMagic:
		return f, errFrameMalformed
	case b[1] != frameVersion:
		return f, errFrameVersion
	}
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	b = b[:len(b)-4]
	switch {
	case crc32.Checksum(b, castagnoli) != sum:
		return f, errFrameChecksum
	case b[2] != frameStreams:
		return f, errFrameType
	}
	f.flags = b[3]
	f.sender = binary.BigEndian.Uint64(b[4:])
	f.boot = binary.BigEndian.Uint64(b[12:])
	b = b[frameHeaderLen:]
	for len(b) > 0 {
		if len(b) < sectionLen || len(f.sections) == maxPartitions {
			return frame{}, errFrameMalformed
		}
		s := section{
			part:  binary.BigEndian.Uint64(b),
			epoch: binary.BigEndian.Uint32(b[8:]),
			head:  binary.BigEndian.Uint64(b[12:]),
			hash:  binary.BigEndian.Uint64(b[20:]),
			count: binary.BigEndian.Uint32(b[28:]),
			rate:  binary.BigEndian.Uint32(b[32:]),
			first: binary.BigEndian.Uint64(b[36:]),
		}
		n := int(binary.BigEndian.Uint16(b[44:]))
		b = b[sectionLen:]
		size := 0
		for range n {
			if len(b) < size+recordPrefix {
				return frame{}, errFrameMalformed
			}
			if size += recordPrefix + uint24(b[size:]); size > len(b) {
				return frame{}, errFrameMalformed
			}
		}
		s.records = records{n, b[:size:size]}
		b = b[size:]
		f.sections = append(f.sections, s)
	}
	return f, nil
}

// Heads are the state that members exchange when they join and from time to
// time afterwards: what each of them knows of everyone's streams. A member
// that missed the last records of another learns so from a third.
//
//	0   magic   u8, 0xED
//	1   version u8, 1
//	2   heads   u16, each 44 bytes:
//	      sender u64 | boot u64 | partition u64 | epoch u32 | head u64 | set-hash u64
//	-4  crc32c  u32 over all before it
const (
	headLen  = 44
	maxHeads = 1450 // keeps the whole below 64 KiB
)

type head struct {
	sender, boot, part uint64
	epoch              uint32
	seq, hash          uint64
}

// appendHeads appends the wire form of the first maxHeads of hs.
func appendHeads(b []byte, hs []head) []byte {
	hs = hs[:min(len(hs), maxHeads)]
	start := len(b)
	b = append(b, frameMagic, frameVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(hs)))
	for _, h := range hs {
		b = binary.BigEndian.AppendUint64(b, h.sender)
		b = binary.BigEndian.AppendUint64(b, h.boot)
		b = binary.BigEndian.AppendUint64(b, h.part)
		b = binary.BigEndian.AppendUint32(b, h.epoch)
		b = binary.BigEndian.AppendUint64(b, h.seq)
		b = binary.BigEndian.AppendUint64(b, h.hash)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func decodeHeads(b []byte) ([]head, error) {
	switch {
	case len(b) < 8 || b[0] != frameMagic:
		return nil, errFrameMalformed
	case b[1] != frameVersion:
		return nil, errFrameVersion
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > maxHeads || len(b) != 8+n*headLen {
		return nil, errFrameMalformed
	}
	if crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, errFrameChecksum
	}
	hs := make([]head, n)
	for i := range hs {
		r := b[4+i*headLen:]
		hs[i] = head{
			sender: binary.BigEndian.Uint64(r),
			boot:   binary.BigEndian.Uint64(r[8:]),
			part:   binary.BigEndian.Uint64(r[16:]),
			epoch:  binary.BigEndian.Uint32(r[24:]),
			seq:    binary.BigEndian.Uint64(r[28:]),
			hash:   binary.BigEndian.Uint64(r[36:]),
		}
	}
	return hs, nil
}
