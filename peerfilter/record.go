package peerfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	// ErrForm means a wire form, layout or code number that this version does not know.
	ErrForm = errors.New("unknown form")
	// ErrParams means that the other side's filter has other Params than expected.
	ErrParams = errors.New("other filter parameters")
	// ErrCorrupt means bytes that no encoder makes.
	ErrCorrupt = errors.New("corrupt")
)

// Record is one step of a filter's published state.
type Record struct {
	Seq     uint64 // 1, 2, 3, ... within a filter epoch
	SetHash uint64 // of the whole published state after this record
	Transitions
}

// The wire form of a record, integers little-endian:
//
//	offset size
//	     0    1  form, 1
//	     1    1  layout of the filter
//	     2    1  code of the payload: 0 sector, 1 Rice
//	     3    1  Rice parameter of the set list, at most 32
//	     4    1  Rice parameter of the clear list, at most 32
//	     5    3  number of set positions
//	     8    3  number of clear positions; both together at most MaxTransitions
//	    11    3  payload length n in bytes
//	    14    8  seq
//	    22    8  set-hash after the record
//	    30    n  payload: the set list, then the clear list, then zero bits to a whole byte
//
// The payload is a string of bits, lowest bit of each byte first. A Rice code
// of v with parameter r is v>>r ones, a zero, and the low r bits of v.
//
// Code 1, Rice: for each position the Rice code of its distance from the one
// before, less 1 (the first one's distance from -1).
//
// Code 0, sector: entries of one block each. An entry is the Rice code of the
// block's distance from the block before (the first one's from 0), a mask of 8
// bits that says which sectors follow, never 0, and for each of these, lowest
// first, 6 bits of position in the sector. A block with several positions in
// one sector takes several entries, the later ones at distance 0.
//
// Any Rice parameters decode. The encoder takes the shortest code of four
// parameters around the logarithm of the mean, see riceCost, the lowest of equals.
//
// The sector code wins when few keys changed: the positions of a key share one
// block number. Rice wins when most blocks have changes anyway. The encoder takes the
// shorter one. Measured for a filter of 1 M keys at 1 %: see README.md.
//
// A change of this form takes a new form number, one of the codes a new code
// number; a decoder refuses numbers that it does not know. There is no
// checksum: the set-hash proves the result, and the message around it has one.
const (
	recordForm   = 1
	recordHeader = 30

	codeSector = 0
	codeRice   = 1

	maxRiceParam = 32
)

// AppendRecord appends the wire form of r, a record of a filter of layout p,
// to dst. It fails, and returns dst as it was, when the transitions are not
// what [Transitions] promises or more than [MaxTransitions].
func AppendRecord(dst []byte, p Params, r Record) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return dst, err
	}
	if err := r.Transitions.validate(p); err != nil {
		return dst, fmt.Errorf("encode record: %w", err)
	}
	var code byte
	setParam, setCost := sectorCost(r.Set)
	clearParam, clearCost := sectorCost(r.Clear)
	riceSetParam, riceSetCost := positionsCost(r.Set)
	riceClearParam, riceClearCost := positionsCost(r.Clear)
	if riceSetCost+riceClearCost < setCost+clearCost {
		code = codeRice
		setParam, clearParam = riceSetParam, riceClearParam
	}

	start := len(dst)
	dst = append(dst, recordForm, byte(p.Layout), code, byte(setParam), byte(clearParam))
	dst = appendUint24(dst, len(r.Set))
	dst = appendUint24(dst, len(r.Clear))
	dst = appendUint24(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, r.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, r.SetHash)
	w := bitWriter{buf: dst}
	switch code {
	case codeSector:
		writeSectors(&w, r.Set, setParam)
		writeSectors(&w, r.Clear, clearParam)
	case codeRice:
		writePositions(&w, r.Set, setParam)
		writePositions(&w, r.Clear, clearParam)
	}
	dst = w.finish()
	appendUint24(dst[:start+11], len(dst)-start-recordHeader)
	return dst, nil
}

// DecodeRecord reads one record of a filter of layout p from the front of b
// into r, whose memory it reuses, and returns what follows. It allocates at
// most 4 bytes a position, after the number of positions was found possible.
// Errors wrap [ErrForm], [ErrParams] or [ErrCorrupt]; r is then worth nothing.
func DecodeRecord(r *Record, b []byte, p Params) (rest []byte, err error) {
	r.Reset()
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if len(b) < recordHeader {
		return nil, fmt.Errorf("decode record: %d bytes, want %d at least: %w", len(b), recordHeader, ErrCorrupt)
	}
	code, setParam, clearParam := b[2], uint(b[3]), uint(b[4])
	nSet, nClear, n := uint24(b[5:]), uint24(b[8:]), uint24(b[11:])
	switch {
	case b[0] != recordForm:
		return nil, fmt.Errorf("decode record: form %d: %w", b[0], ErrForm)
	case Layout(b[1]) != p.Layout:
		return nil, fmt.Errorf("decode record: layout %d: %w", b[1], ErrParams)
	case code != codeSector && code != codeRice:
		return nil, fmt.Errorf("decode record: code %d: %w", code, ErrForm)
	case setParam > maxRiceParam || clearParam > maxRiceParam:
		return nil, fmt.Errorf("decode record: Rice parameters %d and %d: %w", setParam, clearParam, ErrCorrupt)
	case n > len(b)-recordHeader:
		return nil, fmt.Errorf("decode record: payload of %d bytes, %d left: %w", n, len(b)-recordHeader, ErrCorrupt)
	case nSet+nClear > MaxTransitions || nSet+nClear > 8*n:
		return nil, fmt.Errorf("decode record: %d transitions in %d bytes: %w", nSet+nClear, n, ErrCorrupt)
	}
	r.Seq = binary.LittleEndian.Uint64(b[14:])
	r.SetHash = binary.LittleEndian.Uint64(b[22:])
	in := bitReader{b: b[recordHeader : recordHeader+n]}
	switch code {
	case codeSector:
		r.Set = readSectors(r.Set, &in, nSet, setParam, p)
		r.Clear = readSectors(r.Clear, &in, nClear, clearParam, p)
	case codeRice:
		r.Set = readPositions(r.Set, &in, nSet, setParam, p)
		r.Clear = readPositions(r.Clear, &in, nClear, clearParam, p)
	}
	if !in.done() {
		return nil, fmt.Errorf("decode record: payload of %d bytes: %w", n, ErrCorrupt)
	}
	if err := r.Transitions.validate(p); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return b[recordHeader+n:], nil
}

func appendUint24(dst []byte, v int) []byte {
	return append(dst, byte(v), byte(v>>8), byte(v>>16))
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
