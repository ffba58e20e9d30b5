package peerfilter

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
)

// Snapshot is an immutable published state of one filter: all its set
// positions. [Shadow.Snapshot] and [DecodeSnapshot] make one. Copies share
// their memory. The zero value is no snapshot.
type Snapshot struct {
	params  Params
	count   uint64
	setHash uint64
	words   []uint64 // the bitmap; nil when rice holds it
	rice    []byte   // Rice code of the positions, found correct
	param   uint     // of rice
}

// Params returns the layout.
func (s Snapshot) Params() Params { return s.params }

// SetHash returns the set-hash, see [Shadow].
func (s Snapshot) SetHash() uint64 { return s.setHash }

// Count returns the number of set bits.
func (s Snapshot) Count() int { return int(s.count) }

// Fill returns the share of bits set.
func (s Snapshot) Fill() float64 { return float64(s.count) / float64(s.params.Bits()) }

// The wire form of a snapshot, integers little-endian:
//
//	offset size
//	     0    4  "EDFS"
//	     4    1  form, 1
//	     5    1  layout of the filter
//	     6    1  k, 8
//	     7    1  code of the payload: 0 raw, 1 Rice
//	     8    1  Rice parameter, at most 32; 0 in raw
//	     9    3  0
//	    12    4  blocks
//	    16    8  number of set bits
//	    24    8  set-hash
//	    32    8  payload length n in bytes
//	    40    n  payload
//	  40+n    4  CRC-32C of all before
//
// Raw: the bitmap in words of 64 bits. Rice: as code 1 of a record, one list.
//
// Above 30 % fill a snapshot is raw: nothing compresses it then by more than
// some 10 %. Below, Rice stays within 5 % of the entropy at a fraction of what
// a general compressor costs: half the bytes at 10 % fill, a seventh at 2 %.
//
// A change of this form takes a new form number, another code a new code
// number; a decoder refuses numbers that it does not know.
const (
	snapshotMagic  = "EDFS"
	snapshotForm   = 1
	snapshotHeader = 40
	snapshotCRC    = 4

	snapshotRaw  = 0
	snapshotRice = 1

	rawAbove = 0.30 // fill
)

// AppendSnapshot appends the wire form of s to dst.
func AppendSnapshot(dst []byte, s Snapshot) []byte {
	start := len(dst)
	code, param := byte(snapshotRaw), uint(0)
	if s.words == nil {
		code, param = snapshotRice, s.param
	} else if s.Fill() <= rawAbove {
		var cost uint64
		if param, cost = bitmapCost(s.words, s.count); cost < s.params.Bits() {
			code = snapshotRice
		} else {
			param = 0
		}
	}
	dst = append(dst, snapshotMagic...)
	dst = append(dst, snapshotForm, byte(s.params.Layout), K, code, byte(param), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, s.params.Blocks)
	dst = binary.LittleEndian.AppendUint64(dst, s.count)
	dst = binary.LittleEndian.AppendUint64(dst, s.setHash)
	dst = binary.LittleEndian.AppendUint64(dst, 0)
	switch {
	case s.words == nil:
		dst = append(dst, s.rice...)
	case code == snapshotRice:
		w := bitWriter{buf: dst}
		next := uint64(0)
		for pos := range setBits(s.words) {
			w.rice(pos-next, param)
			next = pos + 1
		}
		dst = w.finish()
	default:
		for _, word := range s.words {
			dst = binary.LittleEndian.AppendUint64(dst, word)
		}
	}
	binary.LittleEndian.PutUint64(dst[start+32:], uint64(len(dst)-start-snapshotHeader))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli()))
}

// DecodeSnapshot reads the wire form of a snapshot of layout p. All of b must
// be it; the snapshot keeps a copy of the payload, whatever p, and no more. The
// count, the set-hash and the checksum are verified. Errors wrap [ErrForm],
// [ErrParams] or [ErrCorrupt].
func DecodeSnapshot(b []byte, p Params) (Snapshot, error) {
	if err := p.Validate(); err != nil {
		return Snapshot{}, err
	}
	if len(b) < snapshotHeader+snapshotCRC || string(b[:4]) != snapshotMagic {
		return Snapshot{}, fmt.Errorf("decode snapshot: no snapshot in %d bytes: %w", len(b), ErrCorrupt)
	}
	code := b[7]
	s := Snapshot{
		params:  Params{Layout: Layout(b[5]), Blocks: binary.LittleEndian.Uint32(b[12:])},
		count:   binary.LittleEndian.Uint64(b[16:]),
		setHash: binary.LittleEndian.Uint64(b[24:]),
	}
	n := binary.LittleEndian.Uint64(b[32:])
	payload, crc := b[snapshotHeader:len(b)-snapshotCRC], b[len(b)-snapshotCRC:]
	switch {
	case b[4] != snapshotForm || code != snapshotRaw && code != snapshotRice:
		return Snapshot{}, fmt.Errorf("decode snapshot: form %d, code %d: %w", b[4], code, ErrForm)
	case s.params != p || b[6] != K:
		return Snapshot{}, fmt.Errorf("decode snapshot: layout %d of %d blocks, k %d; want layout %d of %d blocks, k %d: %w",
			s.params.Layout, s.params.Blocks, b[6], p.Layout, p.Blocks, K, ErrParams)
	case n != uint64(len(payload)):
		return Snapshot{}, fmt.Errorf("decode snapshot: payload of %d bytes, want %d: %w", len(payload), n, ErrCorrupt)
	case b[8] > maxRiceParam || b[9]|b[10]|b[11] != 0 || code == snapshotRaw && b[8] != 0:
		return Snapshot{}, fmt.Errorf("decode snapshot: header: %w", ErrCorrupt)
	case crc32.Checksum(b[:len(b)-snapshotCRC], castagnoli()) != binary.LittleEndian.Uint32(crc):
		return Snapshot{}, fmt.Errorf("decode snapshot: checksum: %w", ErrCorrupt)
	}
	switch code {
	case snapshotRaw:
		if n != p.Bits()/8 {
			return Snapshot{}, fmt.Errorf("decode snapshot: %d bytes of raw bitmap, want %d: %w", n, p.Bits()/8, ErrCorrupt)
		}
		s.words = make([]uint64, p.words())
		for i := range s.words {
			s.words[i] = binary.LittleEndian.Uint64(payload[8*i:])
		}
	case snapshotRice:
		s.rice = append([]byte{}, payload...)
		s.param = uint(b[8])
	}
	var count, setHash uint64
	ok := s.positions(func(pos uint64) {
		count++
		setHash += mix64(pos)
	})
	if !ok || count != s.count || setHash != s.setHash {
		return Snapshot{}, fmt.Errorf("decode snapshot: contents do not match count and set-hash: %w", ErrCorrupt)
	}
	return s, nil
}

// positions calls f with each set position, rising. It reports whether the
// code was whole, which after DecodeSnapshot it is.
func (s Snapshot) positions(f func(pos uint64)) bool {
	if s.words != nil {
		for pos := range setBits(s.words) {
			f(pos)
		}
		return true
	}
	in := bitReader{b: s.rice}
	var next uint64
	for range s.count {
		if next >= s.params.Bits() {
			return false
		}
		next += in.rice(s.param, s.params.Bits()-1-next)
		if in.bad {
			return false
		}
		f(next)
		next++
	}
	return in.done()
}

// bitmap returns the set positions as a bitmap, which is not to be written.
func (s Snapshot) bitmap() []uint64 {
	if s.words != nil {
		return s.words
	}
	words := makeWords(s.params.words())
	s.positions(func(pos uint64) { words[pos/64] |= 1 << (pos % 64) })
	return words
}

// setBits yields the set positions of a bitmap, rising.
func setBits(words []uint64) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for i, w := range words {
			for ; w != 0; w &= w - 1 {
				if !yield(uint64(i*64 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// bitmapCost is positionsCost for a bitmap with count bits set.
func bitmapCost(words []uint64, count uint64) (param uint, cost uint64) {
	if count == 0 {
		return 0, 0
	}
	c := newRiceCost(count, uint64(len(words))*64-count)
	next := uint64(0)
	for pos := range setBits(words) {
		c.add(pos - next)
		next = pos + 1
	}
	return c.best(count)
}

// castagnoli returns the table of CRC-32C; the library keeps and recognises it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
