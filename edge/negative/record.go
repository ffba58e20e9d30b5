package negative

import (
	"encoding/binary"
	"time"
)

// A record, little endian, padded to a multiple of 8 bytes:
//
//	 0  tag      4  low half of the key's hash
//	 4  head     4  id of the head, or deadRecord
//	 8  body     4  id of the body
//	12  life     4  milliseconds from stored to the end of freshness
//	16  age      4  initial age in seconds, rounded up
//	20  keyLen   2
//	22  status   2  in the low 10 bits, who said so above them
//	24  stored   8  milliseconds since the cache began, times 2^16, plus keep in seconds
//	32  key
//
// It never leaves the process.
const (
	recordHead = 32
	deadRecord = 1<<32 - 1
	maxKeep    = 1<<16 - 1 // seconds
	statusBits = 10
	statusMask = 1<<statusBits - 1
)

type record []byte

func recordLen(keyLen int) int { return (recordHead + keyLen + 7) &^ 7 }

func (r record) tag() uint32  { return binary.LittleEndian.Uint32(r) }
func (r record) head() uint32 { return binary.LittleEndian.Uint32(r[4:]) }
func (r record) body() uint32 { return binary.LittleEndian.Uint32(r[8:]) }
func (r record) keyLen() int  { return int(binary.LittleEndian.Uint16(r[20:])) }
func (r record) status() int  { return int(binary.LittleEndian.Uint16(r[22:]) & statusMask) }
func (r record) from() From   { return From(binary.LittleEndian.Uint16(r[22:]) >> statusBits) }
func (r record) key() []byte  { return r[recordHead : recordHead+r.keyLen()] }
func (r record) len() int     { return recordLen(r.keyLen()) }
func (r record) dead() bool   { return r.head() == deadRecord }
func (r record) kill()        { binary.LittleEndian.PutUint32(r[4:], deadRecord) }

func (r record) age() time.Duration {
	return time.Duration(binary.LittleEndian.Uint32(r[16:])) * time.Second
}

// stored, expires and end are in milliseconds since the cache began.
func (r record) stored() int64  { return int64(binary.LittleEndian.Uint64(r[24:])) >> 16 }
func (r record) expires() int64 { return r.stored() + int64(binary.LittleEndian.Uint32(r[12:])) }
func (r record) end() int64     { return r.expires() + r.keep()*1000 }
func (r record) keep() int64    { return int64(binary.LittleEndian.Uint16(r[24:])) }

// draft is a record that is not yet in a segment.
type draft struct {
	key        string
	hash       uint64
	head, body uint32
	status     uint16 // and from
	keep       uint16
	life, age  uint32
	stored     int64 // milliseconds since the cache began
}

func (d *draft) encode(r record) {
	le := binary.LittleEndian
	le.PutUint32(r, uint32(d.hash))
	le.PutUint32(r[4:], d.head)
	le.PutUint32(r[8:], d.body)
	le.PutUint32(r[12:], d.life)
	le.PutUint32(r[16:], d.age)
	le.PutUint16(r[20:], uint16(len(d.key)))
	le.PutUint16(r[22:], d.status)
	le.PutUint64(r[24:], uint64(d.stored)<<16|uint64(d.keep))
	copy(r[recordHead:], d.key)
}
