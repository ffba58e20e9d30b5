package peerfilter

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// randomTransitions draws up to n set and n clear positions, clustered in
// blocks as keys are, or not.
func randomTransitions(r *rand.Rand, p Params, n int) Transitions {
	var set, clr []uint32
	for _, list := range []*[]uint32{&set, &clr} {
		for range r.IntN(n + 1) {
			pos := positionsOf(randomHash(r), p.Blocks)
			*list = append(*list, pos[:1+r.IntN(K)]...)
		}
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	clr = slices.DeleteFunc(clr, func(pos uint32) bool {
		_, found := slices.BinarySearch(set, pos)
		return found
	})
	return Transitions{Set: set, Clear: clr}
}

func TestRecord_roundTrip(t *testing.T) {
	r := newRand(t)
	codes := make(map[byte]int)
	var got Record
	for _, blocks := range []uint32{1, 2, 7, 300, 20_000, MaxBlocks} {
		p := testParams(blocks)
		for _, n := range []int{0, 1, 2, 10, 100, 3000} {
			for range 10 {
				want := Record{Seq: r.Uint64(), SetHash: r.Uint64(), Transitions: randomTransitions(r, p, n)}
				b, err := AppendRecord([]byte("before"), p, want)
				if err != nil {
					t.Fatal(err)
				}
				b = append(b, "after"...)
				rest, err := DecodeRecord(&got, b[6:], p)
				if err != nil {
					t.Fatalf("%d blocks, %d transitions: %v", blocks, want.Len(), err)
				}
				if string(rest) != "after" {
					t.Fatalf("rest %q", rest)
				}
				if got.Seq != want.Seq || got.SetHash != want.SetHash || !slices.Equal(got.Set, want.Set) || !slices.Equal(got.Clear, want.Clear) {
					t.Fatalf("%d blocks, %d transitions: decoded record differs", blocks, want.Len())
				}
				codes[b[6+2]]++
			}
		}
	}
	if len(codes) != 2 {
		t.Errorf("codes used: %v, want both", codes)
	}
}

func TestRecord_codesDecodeAlike(t *testing.T) {
	r := newRand(t)
	for _, blocks := range []uint32{1, 5, 4000} {
		p := testParams(blocks)
		for range 50 {
			list := randomTransitions(r, p, 200).Set
			for param := range uint(20) {
				var ws, wp bitWriter
				writeSectors(&ws, list, param)
				writePositions(&wp, list, param)
				rs, rp := bitReader{b: ws.finish()}, bitReader{b: wp.finish()}
				if got := readSectors(nil, &rs, len(list), param, p); !rs.done() || !slices.Equal(got, list) {
					t.Fatalf("sector code with parameter %d differs", param)
				}
				if got := readPositions(nil, &rp, len(list), param, p); !rp.done() || !slices.Equal(got, list) {
					t.Fatalf("Rice code with parameter %d differs", param)
				}
			}
			if param, cost := sectorCost(list); len(list) > 0 {
				var w bitWriter
				writeSectors(&w, list, param)
				if got := uint64(8*len(w.buf)) + uint64(w.n); got != cost {
					t.Fatalf("sector code takes %d bits, computed %d", got, cost)
				}
			}
			if param, cost := positionsCost(list); len(list) > 0 {
				var w bitWriter
				writePositions(&w, list, param)
				if got := uint64(8*len(w.buf)) + uint64(w.n); got != cost {
					t.Fatalf("Rice code takes %d bits, computed %d", got, cost)
				}
			}
		}
	}
}

func TestAppendRecord_rejects(t *testing.T) {
	p := testParams(2)
	for name, tr := range map[string]Transitions{
		"not sorted":    {Set: []uint32{5, 4}},
		"twice":         {Clear: []uint32{5, 5}},
		"beyond":        {Set: []uint32{1024}},
		"set and clear": {Set: []uint32{1, 9}, Clear: []uint32{0, 9}},
		"too many":      {Set: make([]uint32, MaxTransitions+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := AppendRecord([]byte("x"), p, Record{Transitions: tr}); err == nil || string(b) != "x" {
				t.Errorf("got %q, %v", b, err)
			}
		})
	}
}

// goodRecord is a record of the set positions 3 and 70 and the clear position
// 600, in the given code.
func goodRecord(t *testing.T, code byte) []byte {
	t.Helper()
	b, err := AppendRecord(nil, testParams(4), Record{Seq: 1, SetHash: 2, Transitions: Transitions{Set: []uint32{3, 70}, Clear: []uint32{600}}})
	if err != nil {
		t.Fatal(err)
	}
	b = b[:recordHeader]
	w := bitWriter{}
	if b[2] = code; code == codeSector {
		writeSectors(&w, []uint32{3, 70}, 1)
		writeSectors(&w, []uint32{600}, 1)
	} else {
		writePositions(&w, []uint32{3, 70}, 1)
		writePositions(&w, []uint32{600}, 1)
	}
	b[3], b[4] = 1, 1
	payload := w.finish()
	b[11], b[12], b[13] = byte(len(payload)), byte(len(payload)>>8), 0
	return append(b, payload...)
}

func TestDecodeRecord_rejects(t *testing.T) {
	for _, code := range []byte{codeSector, codeRice} {
		var r Record
		if _, err := DecodeRecord(&r, goodRecord(t, code), testParams(4)); err != nil {
			t.Fatalf("code %d: the record to be spoiled is not good: %v", code, err)
		}
	}
	for name, c := range map[string]struct {
		code  byte
		spoil func(b []byte) []byte
		want  error
	}{
		"empty":                    {codeRice, func(b []byte) []byte { return nil }, ErrCorrupt},
		"short header":             {codeRice, func(b []byte) []byte { return b[:29] }, ErrCorrupt},
		"short payload":            {codeRice, func(b []byte) []byte { return b[:len(b)-1] }, ErrCorrupt},
		"form":                     {codeRice, func(b []byte) []byte { b[0] = 2; return b }, ErrForm},
		"layout":                   {codeRice, func(b []byte) []byte { b[1] = 2; return b }, ErrParams},
		"code":                     {codeRice, func(b []byte) []byte { b[2] = 2; return b }, ErrForm},
		"set parameter":            {codeRice, func(b []byte) []byte { b[3] = 33; return b }, ErrCorrupt},
		"clear parameter":          {codeSector, func(b []byte) []byte { b[4] = 255; return b }, ErrCorrupt},
		"more positions, Rice":     {codeRice, func(b []byte) []byte { b[5] = 200; return b }, ErrCorrupt},
		"more positions, sector":   {codeSector, func(b []byte) []byte { b[5] = 30; return b }, ErrCorrupt},
		"impossibly many":          {codeRice, func(b []byte) []byte { b[7] = 255; return b }, ErrCorrupt},
		"fewer positions, Rice":    {codeRice, func(b []byte) []byte { b[5] = 1; return b }, ErrCorrupt},
		"fewer positions, sector":  {codeSector, func(b []byte) []byte { b[5] = 1; return b }, ErrCorrupt},
		"much longer payload":      {codeRice, func(b []byte) []byte { b[11] += 32; return append(b, make([]byte, 32)...) }, ErrCorrupt},
		"long payload":             {codeSector, func(b []byte) []byte { b[11]++; return append(b, 0) }, ErrCorrupt},
		"padding not zero":         {codeRice, func(b []byte) []byte { b[len(b)-1] |= 0x80; return b }, ErrCorrupt},
		"quotient beyond m":        {codeRice, func(b []byte) []byte { fillWith(b[recordHeader:], 0xFF); return b }, ErrCorrupt},
		"block beyond last":        {codeSector, func(b []byte) []byte { fillWith(b[recordHeader:], 0xFF); return b }, ErrCorrupt},
		"empty mask":               {codeSector, func(b []byte) []byte { fillWith(b[recordHeader:], 0); return b }, ErrCorrupt},
		"set and clear, same code": {codeRice, func(b []byte) []byte { fillWith(b[recordHeader:], 0); return b }, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			var r Record
			if _, err := DecodeRecord(&r, c.spoil(goodRecord(t, c.code)), testParams(4)); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
	var r Record
	if _, err := DecodeRecord(&r, goodRecord(t, codeRice), testParams(1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("position beyond the filter: %v", err)
	}
	if _, err := DecodeRecord(&r, goodRecord(t, codeRice), Params{}); err == nil {
		t.Error("no error for no layout")
	}
}

func TestDecodeRecord_rejectsEntryWithoutPosition(t *testing.T) {
	var w bitWriter
	w.rice(0, 0)
	w.write(0, K)
	w.rice(0, 0)
	w.write(1, K)
	w.write(9, 6)
	in := bitReader{b: w.finish()}
	if readSectors(nil, &in, 1, 0, testParams(1)); !in.bad {
		t.Error("an entry without a position is taken")
	}
}

func TestBitReader_bounds(t *testing.T) {
	for _, c := range []struct {
		v, limit uint64
		param    uint
		bad      bool
	}{
		{0, 0, 0, false}, {1, 0, 0, true}, {7, 7, 3, false}, {8, 7, 3, true}, {7, 6, 3, true}, {100, 100, 0, false},
		{101, 100, 0, true}, {1 << 32, 1 << 32, 32, false}, {1<<32 + 1, 1 << 32, 32, true}, {5000, 4999, 1, true}, {300, 70, 0, true},
	} {
		var w bitWriter
		w.rice(c.v, c.param)
		w.write(5, 3)
		r := bitReader{b: w.finish()}
		got, after := r.rice(c.param, c.limit), r.read(3)
		if r.bad != c.bad || !c.bad && (got != c.v || after != 5) {
			t.Errorf("%d with parameter %d, limit %d: %d, then %d, bad %v", c.v, c.param, c.limit, got, after, r.bad)
		}
	}
}

func TestBitReader_doneSeesWholeBytesLeft(t *testing.T) {
	for n := range 20 {
		r := bitReader{b: make([]byte, n)}
		for i := range n {
			if r.done() {
				t.Fatalf("done after %d of %d bytes", i, n)
			}
			r.read(8)
		}
		if !r.done() {
			t.Fatalf("not done after %d bytes", n)
		}
	}
}

func TestDecodeRecord_rejectsPositionTwiceInSector(t *testing.T) {
	var w bitWriter
	for range 2 {
		w.rice(0, 0)
		w.write(1, K)
		w.write(9, 6)
	}
	in := bitReader{b: w.finish()}
	if readSectors(nil, &in, 2, 0, testParams(1)); !in.bad {
		t.Error("a position said twice is taken")
	}
}

func fillWith(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func TestSnapshot_roundTrip(t *testing.T) {
	r := newRand(t)
	codes := make(map[byte]int)
	for _, blocks := range []uint32{1, 2, 300} {
		p := testParams(blocks)
		for _, load := range []float64{0, 0.01, 1, 5, 20, 45, 60, 500} {
			hs := randomHashes(r, int(load*float64(blocks)))
			want := snapshotOf(t, p, hs)
			b := AppendSnapshot([]byte("before"), want)[6:]
			got, err := DecodeSnapshot(b, p)
			if err != nil {
				t.Fatalf("%d blocks, %d keys: %v", blocks, len(hs), err)
			}
			if got.Params() != p || got.Count() != want.Count() || got.SetHash() != want.SetHash() || !slices.Equal(got.bitmap(), bitmapOf(p, hs)) {
				t.Fatalf("%d blocks, %d keys: decoded snapshot differs", blocks, len(hs))
			}
			if again := AppendSnapshot(nil, got); !slices.Equal(again, b) {
				t.Fatalf("%d blocks, %d keys: a decoded snapshot encodes differently", blocks, len(hs))
			}
			codes[b[7]]++
			if raw := b[7] == snapshotRaw; raw != (want.Fill() > rawAbove) && blocks > 1 {
				t.Errorf("fill %.3f: raw %v", want.Fill(), raw)
			}
		}
	}
	if len(codes) != 2 {
		t.Errorf("codes used: %v, want both", codes)
	}
}

// seal gives spoiled snapshots a correct checksum, so that the checks behind
// it are reached.
func seal(b []byte) []byte {
	if len(b) < snapshotCRC {
		return b
	}
	n := len(b) - snapshotCRC
	binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], castagnoli()))
	return b
}

func TestDecodeSnapshot_rejects(t *testing.T) {
	p := testParams(10)
	sparse := AppendSnapshot(nil, snapshotOf(t, p, randomHashes(fixedRand(3), 10)))
	dense := AppendSnapshot(nil, snapshotOf(t, p, randomHashes(fixedRand(3), 400)))
	for name, c := range map[string]struct {
		from  []byte
		spoil func(b []byte) []byte
		want  error
	}{
		"empty":             {sparse, func(b []byte) []byte { return nil }, ErrCorrupt},
		"short":             {sparse, func(b []byte) []byte { return b[:43] }, ErrCorrupt},
		"magic":             {sparse, func(b []byte) []byte { b[0]++; return seal(b) }, ErrCorrupt},
		"form":              {sparse, func(b []byte) []byte { b[4]++; return seal(b) }, ErrForm},
		"layout":            {sparse, func(b []byte) []byte { b[5]++; return seal(b) }, ErrParams},
		"k":                 {sparse, func(b []byte) []byte { b[6]++; return seal(b) }, ErrParams},
		"code":              {sparse, func(b []byte) []byte { b[7] = 2; return seal(b) }, ErrForm},
		"Rice as raw":       {sparse, func(b []byte) []byte { b[7], b[8] = 0, 0; return seal(b) }, ErrCorrupt},
		"raw as Rice":       {dense, func(b []byte) []byte { b[7] = 1; return seal(b) }, ErrCorrupt},
		"parameter":         {sparse, func(b []byte) []byte { b[8] = 33; return seal(b) }, ErrCorrupt},
		"parameter of raw":  {dense, func(b []byte) []byte { b[8] = 1; return seal(b) }, ErrCorrupt},
		"reserved bytes":    {sparse, func(b []byte) []byte { b[10] = 1; return seal(b) }, ErrCorrupt},
		"blocks":            {sparse, func(b []byte) []byte { b[12]++; return seal(b) }, ErrParams},
		"count":             {sparse, func(b []byte) []byte { b[16]++; return seal(b) }, ErrCorrupt},
		"huge count":        {sparse, func(b []byte) []byte { b[23] = 255; return seal(b) }, ErrCorrupt},
		"set-hash":          {dense, func(b []byte) []byte { b[24]++; return seal(b) }, ErrCorrupt},
		"payload length":    {dense, func(b []byte) []byte { b[32]++; return seal(b) }, ErrCorrupt},
		"payload cut":       {dense, func(b []byte) []byte { return seal(b[:len(b)-8]) }, ErrCorrupt},
		"payload longer":    {dense, func(b []byte) []byte { b[33]++; return seal(append(b, make([]byte, 256)...)) }, ErrCorrupt},
		"payload bit, raw":  {dense, func(b []byte) []byte { b[100] ^= 4; return seal(b) }, ErrCorrupt},
		"payload bit, Rice": {sparse, func(b []byte) []byte { b[50] ^= 4; return seal(b) }, ErrCorrupt},
		"payload of ones":   {sparse, func(b []byte) []byte { fillWith(b[40:], 255); return seal(b) }, ErrCorrupt},
		"checksum":          {dense, func(b []byte) []byte { b[len(b)-1]++; return b }, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeSnapshot(c.spoil(slices.Clone(c.from)), p); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
	if _, err := DecodeSnapshot(dense, testParams(11)); !errors.Is(err, ErrParams) {
		t.Errorf("other layout expected: %v", err)
	}
}

// TestDecode_memory gives the decoders 1 MiB of what allocates most.
func TestDecode_memory(t *testing.T) {
	const mib = 1 << 20
	p := testParams(MaxBlocks)
	header := func(code byte, nSet int) []byte {
		b := []byte{recordForm, byte(LayoutSectors), code, 0, 0}
		b = appendUint24(b, nSet)
		b = appendUint24(b, 0)
		b = appendUint24(b, mib-recordHeader)
		return append(b, make([]byte, mib-len(b))...)
	}
	snapshot := func(code byte, count uint64) []byte {
		b := append([]byte(snapshotMagic), snapshotForm, byte(LayoutSectors), K, code, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, p.Blocks)
		b = binary.LittleEndian.AppendUint64(b, count)
		b = append(b, make([]byte, mib-len(b))...)
		binary.LittleEndian.PutUint64(b[32:], mib-snapshotHeader-snapshotCRC)
		return seal(b)
	}
	for name, decode := range map[string]func(b []byte) error{
		"record":   func(b []byte) error { var r Record; _, err := DecodeRecord(&r, b, p); return err },
		"snapshot": func(b []byte) error { _, err := DecodeSnapshot(b, p); return err },
	} {
		for kind, b := range map[string][]byte{
			"Rice record of MaxTransitions":   header(codeRice, MaxTransitions),
			"sector record of MaxTransitions": header(codeSector, MaxTransitions),
			"record of 4 M positions":         header(codeRice, 4<<20),
			"record of 2^24 positions":        header(codeRice, 1<<24-1),
			"Rice snapshot of 8 M positions":  snapshot(snapshotRice, 8*(mib-snapshotHeader-snapshotCRC)),
			"Rice snapshot of 2^60 positions": snapshot(snapshotRice, 1<<60),
			"raw snapshot of 512 MiB":         snapshot(snapshotRaw, 1),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := decode(b)
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > 2*mib {
					t.Errorf("allocated %d bytes (error %v)", n, err)
				}
			})
		}
	}
}

// TestDecodeRecord_believesNoCount gives a few bytes that claim many positions.
func TestDecodeRecord_believesNoCount(t *testing.T) {
	b := []byte{recordForm, byte(LayoutSectors), codeRice, 0, 0}
	b = appendUint24(b, MaxTransitions)
	b = append(b, make([]byte, recordHeader-len(b)+16)...)
	b[11] = 16
	var r Record
	if _, err := DecodeRecord(&r, b, testParams(MaxBlocks)); !errors.Is(err, ErrCorrupt) || cap(r.Set) > 0 {
		t.Errorf("room for %d positions, error %v", cap(r.Set), err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 5, 100} {
		b, err := AppendRecord(nil, testParams(300), Record{Seq: 1, SetHash: 2, Transitions: randomTransitions(r, testParams(300), n)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint32(300))
		f.Add(append(b, b...), uint32(301))
	}
	f.Fuzz(func(t *testing.T, b []byte, blocks uint32) {
		p := testParams(blocks)
		var got Record
		rest, err := DecodeRecord(&got, b, p)
		if err != nil {
			return
		}
		if got.Len() > MaxTransitions || len(rest) > len(b) {
			t.Fatalf("%d transitions, %d bytes left of %d", got.Len(), len(rest), len(b))
		}
		again, err := AppendRecord(nil, p, got)
		if err != nil {
			t.Fatalf("a decoded record does not encode: %v", err)
		}
		var back Record
		if _, err := DecodeRecord(&back, again, p); err != nil {
			t.Fatalf("an encoded record does not decode: %v", err)
		}
		if back.Seq != got.Seq || back.SetHash != got.SetHash || !slices.Equal(back.Set, got.Set) || !slices.Equal(back.Clear, got.Clear) {
			t.Fatal("the record changed")
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 5, 2000} {
		b := AppendSnapshot(nil, snapshotOf(f, testParams(30), randomHashes(r, n)))
		f.Add(b, uint32(30), true)
		f.Add(b, uint32(31), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, blocks uint32, resealed bool) {
		p := testParams(blocks % 1000)
		if resealed {
			b = seal(slices.Clone(b))
		}
		got, err := DecodeSnapshot(b, p)
		if err != nil {
			return
		}
		words := got.bitmap()
		if len(words) != p.words() || onesCountAll(words) != got.Count() || bitmapSetHash(words) != got.SetHash() {
			t.Fatal("an accepted snapshot is not what it says")
		}
		back, err := DecodeSnapshot(AppendSnapshot(nil, got), p)
		if err != nil || !slices.Equal(back.bitmap(), words) {
			t.Fatalf("the snapshot changed: %v", err)
		}
	})
}
