package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// Limits of what a member tells about itself; together they stay below the 512
// bytes that memberlist allows: 20 + 17 + 129 + 1 + 16*17 = 439.
const (
	maxMetaLen     = 512
	maxRoleLen     = 16
	maxPeerAddrLen = 128
)

const metaVersion = 1

// The flags of a member's metadata and of every frame.
const (
	flagDraining = 1 << 0
	flagLeft     = 1 << 1 // of frames only: the sender's last words
)

// nodeMeta is what a member tells about itself through membership.
//
//	0   version          u8, 1
//	1   oldest version that the sender understands, u8
//	2   newest version that the sender understands, u8
//	3   flags            u8, bit 0: draining; others are ignored
//	4   boot             u64
//	12  seed mark        u64, a fingerprint of the filters' secret seed
//	20  role             u8 length, up to 16 bytes
//	..  peer address     u8 length, up to 128 bytes, host:port
//	..  partitions       u8, up to 16, each:
//	      name key u64 | layout u8 | blocks u32 | epoch u32 (0: nothing published yet)
//
// Numbers are big-endian. Bytes after these are a later version's and ignored;
// a version whose oldest is above ours is refused.
//
// Two members talk in the newest version that both understand, so that members
// of two versions can be mixed while a cluster is upgraded.
type nodeMeta struct {
	oldest   byte // versions that the sender understands
	newest   byte
	flags    byte
	boot     uint64
	seedMark uint64
	role     string
	peerAddr string
	parts    []partMeta
}

// partMeta is one partition in a member's metadata.
type partMeta struct {
	key    uint64
	layout uint8
	blocks uint32
	epoch  uint32
}

func (m nodeMeta) draining() bool { return m.flags&flagDraining != 0 }

// append appends the wire form.
func (m nodeMeta) append(b []byte) []byte {
	b = append(b, metaVersion, m.oldest, m.newest, m.flags)
	b = binary.BigEndian.AppendUint64(b, m.boot)
	b = binary.BigEndian.AppendUint64(b, m.seedMark)
	b = append(b, byte(len(m.role)))
	b = append(b, m.role...)
	b = append(b, byte(len(m.peerAddr)))
	b = append(b, m.peerAddr...)
	b = append(b, byte(len(m.parts)))
	for _, p := range m.parts {
		b = binary.BigEndian.AppendUint64(b, p.key)
		b = append(b, p.layout)
		b = binary.BigEndian.AppendUint32(b, p.blocks)
		b = binary.BigEndian.AppendUint32(b, p.epoch)
	}
	return b
}

// errNotMeta is the metadata of something that is not an edged node.
var errNotMeta = errors.New("metadata is not an edged node's")

func decodeMeta(b []byte) (nodeMeta, error) {
	var m nodeMeta
	if len(b) > maxMetaLen || len(b) < 23 || b[0] == 0 || b[1] == 0 || b[1] > b[2] {
		return m, errNotMeta
	}
	if b[1] > metaVersion {
		return m, fmt.Errorf("metadata needs version %d, this node understands %d", b[1], metaVersion)
	}
	m.oldest, m.newest, m.flags = b[1], b[2], b[3]
	m.boot = binary.BigEndian.Uint64(b[4:])
	m.seedMark = binary.BigEndian.Uint64(b[12:])
	b = b[20:]
	str := func(limit int) (string, bool) {
		if len(b) < 1 || int(b[0]) > limit || len(b) < 1+int(b[0]) {
			return "", false
		}
		s := string(b[1 : 1+int(b[0])])
		b = b[1+len(s):]
		return s, true
	}
	var ok bool
	if m.role, ok = str(maxRoleLen); !ok {
		return nodeMeta{}, errNotMeta
	}
	if m.peerAddr, ok = str(maxPeerAddrLen); !ok {
		return nodeMeta{}, errNotMeta
	}
	if len(b) < 1 || b[0] > maxPartitions || len(b) < 1+17*int(b[0]) {
		return nodeMeta{}, errNotMeta
	}
	n := int(b[0])
	b = b[1:]
	for range n {
		m.parts = append(m.parts, partMeta{
			key:    binary.BigEndian.Uint64(b),
			layout: b[8],
			blocks: binary.BigEndian.Uint32(b[9:]),
			epoch:  binary.BigEndian.Uint32(b[13:]),
		})
		b = b[17:]
	}
	return m, nil
}

// nameKey is a member's or partition's name in records: FNV-1a, 64 bits. Two
// nodes must agree on it, so a golden value freezes it.
func nameKey(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}
