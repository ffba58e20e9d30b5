package negative

import (
	"encoding/binary"
	"hash/maphash"
	"strings"
)

// A record, little endian, without padding:
//
//	 0  page        4  id of the page, or deadRecord
//	 4  stored      5  milliseconds since the cache began, signed: 17 years
//	 9  generation  5
//	14  keyLen      2  of what follows the origin in the key
//	16  origin      2  id of the origin, the key's beginning; 0: it has none
//	18  key
//
// It never leaves the process.
const (
	recordHead    = 18
	deadRecord    = 1<<32 - 1
	maxStored     = 1<<39 - 1
	maxGeneration = 1<<40 - 1
)

type record []byte

func (r record) page() uint32   { return binary.LittleEndian.Uint32(r) }
func (r record) keyLen() int    { return int(binary.LittleEndian.Uint16(r[14:])) }
func (r record) origin() uint32 { return uint32(binary.LittleEndian.Uint16(r[16:])) }
func (r record) rest() []byte   { return r[recordHead : recordHead+r.keyLen()] }
func (r record) len() int       { return recordHead + r.keyLen() }
func (r record) dead() bool     { return r.page() == deadRecord }
func (r record) kill()          { binary.LittleEndian.PutUint32(r, deadRecord) }

// stored is in milliseconds since the cache began.
func (r record) stored() int64      { return int64(binary.LittleEndian.Uint64(r[4:])<<24) >> 24 }
func (r record) generation() uint64 { return binary.LittleEndian.Uint64(r[6:]) >> 24 }

func (r record) setGeneration(gen uint64) {
	binary.LittleEndian.PutUint64(r[6:], gen<<24|binary.LittleEndian.Uint64(r[6:])&(1<<24-1))
}

// page is what the records of one answer to many keys have in common. It holds
// a reference to its body.
type page struct {
	head   string
	body   uint32 // its id
	life   uint32 // milliseconds from stored to the end of freshness
	age    uint32 // initial age in seconds, rounded up
	keep   uint16 // seconds
	status uint16 // in the low 10 bits, who said so above them
}

const (
	maxKeep    = 1<<16 - 1
	statusBits = 10
	statusMask = 1<<statusBits - 1
)

func (p *page) hash(seed maphash.Seed) uint64 {
	var b [24]byte
	le := binary.LittleEndian
	le.PutUint64(b[:], maphash.String(seed, p.head))
	le.PutUint32(b[8:], p.body)
	le.PutUint32(b[12:], p.life)
	le.PutUint32(b[16:], p.age)
	le.PutUint16(b[20:], p.keep)
	le.PutUint16(b[22:], p.status)
	return maphash.Bytes(seed, b[:])
}

// end is when a record that was stored then is over.
func (p page) end(stored int64) int64 { return stored + int64(p.life) + int64(p.keep)*1000 }

// originLen returns the length of a key's scheme and authority, 0 when it has
// none that is followed by something.
func originLen(key string) int {
	i := strings.Index(key, "://")
	if i < 0 {
		return 0
	}
	n := strings.IndexByte(key[i+3:], '/')
	if n < 0 {
		return 0
	}
	return i + 3 + n
}

// draft is a record that is not yet in a segment.
type draft struct {
	key        string
	hash       uint64
	page       uint32
	origin     uint32
	rest       string // of the key
	stored     int64
	generation uint64
}

func (d *draft) len() int { return recordHead + len(d.rest) }

func (d *draft) encode(r record) {
	le := binary.LittleEndian
	le.PutUint32(r, d.page)
	le.PutUint64(r[4:], uint64(d.stored)) // its top is overwritten
	r.setGeneration(d.generation)
	le.PutUint16(r[14:], uint16(len(d.rest)))
	le.PutUint16(r[16:], uint16(d.origin))
	copy(r[recordHead:], d.rest)
}
