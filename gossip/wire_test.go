package gossip

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"edged/peerfilter"
)

var update = flag.Bool("update", false, "rewrite golden files")

func testMeta() nodeMeta {
	return nodeMeta{
		oldest: 1, newest: 1, flags: flagDraining, boot: 0x0102030405060708, seedMark: 0x1112131415161718, role: "edge", peerAddr: "10.0.0.1:7947",
		parts: []partMeta{{key: nameKey("hot"), layout: 1, blocks: 1000, epoch: 3}, {key: nameKey("tail"), layout: 1, blocks: 2000}},
	}
}

func testFrame() []byte {
	b := appendFrameHeader(nil, flagDraining, nameKey("edge-a"), 0x0102030405060708)
	b = appendRecords(b, section{part: nameKey("hot"), epoch: 1, head: 9, hash: 0xdead, count: 80, rate: 7, first: 8}, []byte{1, 2}, []byte{3})
	b = appendSection(b, section{part: nameKey("tail"), epoch: 2, head: 1, hash: 0xbeef, first: 2})
	return sealFrame(b)
}

// appendRecords appends a section with records.
func appendRecords(b []byte, s section, recs ...[]byte) []byte {
	s.records.n = len(recs)
	b = appendSection(b, s)
	for _, r := range recs {
		b = appendRecord(b, r)
	}
	return b
}

func testHeads() []head {
	return []head{{1, 2, 3, 4, 5, 6}, {11, 12, 13, 14, 15, 16}}
}

// TestWire_isFrozen: two versions of the program must agree on every byte.
func TestWire_isFrozen(t *testing.T) {
	for name, got := range map[string][]byte{
		"meta": testMeta().append(nil), "frame": testFrame(), "heads": appendHeads(nil, testHeads()),
	} {
		file := filepath.Join("testdata", name+".hex")
		text := hex.EncodeToString(got) + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s is\n%swant\n%s", name, text, want)
		}
	}
	if got := nameKey("edge-a"); got != 0xf1d7d8b4352c14a6 {
		t.Errorf("nameKey(edge-a) = %#x", got)
	}
	if got := seedMark(peerfilter.Seed{1, 2}); got != 0x0ae6ebb339bd5ad0 {
		t.Errorf("seedMark = %#x", got)
	}
}

func TestWire_roundTrips(t *testing.T) {
	m, err := decodeMeta(append(testMeta().append(nil), "a later version's"...))
	if err != nil || !reflect.DeepEqual(m, testMeta()) {
		t.Errorf("meta: %+v, %v", m, err)
	}
	f, err := decodeFrame(testFrame(), maxFrameLen)
	if err != nil || len(f.sections) != 2 || f.sender != nameKey("edge-a") || f.flags != flagDraining || f.boot != 0x0102030405060708 {
		t.Fatalf("frame: %+v, %v", f, err)
	}
	if s := f.sections[0]; s.epoch != 1 || s.head != 9 || s.hash != 0xdead || s.count != 80 || s.rate != 7 || s.first != 8 ||
		!reflect.DeepEqual(slices.Collect(s.records.all()), [][]byte{{1, 2}, {3}}) {
		t.Errorf("section: %+v", s)
	}
	hs, err := decodeHeads(appendHeads(nil, testHeads()))
	if err != nil || !reflect.DeepEqual(hs, testHeads()) {
		t.Errorf("heads: %+v, %v", hs, err)
	}
	if hs, err := decodeHeads(appendHeads(nil, make([]head, 5000))); err != nil || len(hs) != maxHeads {
		t.Errorf("5000 heads: %d, %v", len(hs), err)
	}
}

func TestMeta_largestFits(t *testing.T) {
	m := nodeMeta{role: strings.Repeat("r", maxRoleLen), peerAddr: strings.Repeat("p", maxPeerAddrLen), parts: make([]partMeta, maxPartitions)}
	if n := len(m.append(nil)); n > maxMetaLen {
		t.Errorf("%d bytes", n)
	}
}

func TestWire_rejects(t *testing.T) {
	frame := func(change func(b []byte) []byte) []byte {
		b := testFrame()
		return sealFrame(change(b[:len(b)-4]))
	}
	for _, tc := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, errFrameMalformed},
		{"another magic", frame(func(b []byte) []byte { b[0]++; return b }), errFrameMalformed},
		{"a later version", frame(func(b []byte) []byte { b[1]++; return b }), errFrameVersion},
		{"an unknown type", frame(func(b []byte) []byte { b[2] = 9; return b }), errFrameType},
		{"a section cut short", frame(func(b []byte) []byte { return b[:len(b)-1] }), errFrameMalformed},
		{"a record beyond the end", frame(func(b []byte) []byte { b[frameHeaderLen+sectionLen]++; return b }), errFrameMalformed},
		{"more records than there are", frame(func(b []byte) []byte { b[frameHeaderLen+45] = 255; return b }), errFrameMalformed},
		{"a flipped bit", append(testFrame()[:30], append([]byte{testFrame()[30] ^ 1}, testFrame()[31:]...)...), errFrameChecksum},
		{"too long", make([]byte, maxFrameLen+1), errFrameMalformed},
		{"17 sections", func() []byte {
			b := appendFrameHeader(nil, 0, 1, 1)
			for range 17 {
				b = appendSection(b, section{})
			}
			return sealFrame(b)
		}(), errFrameMalformed},
	} {
		if _, err := decodeFrame(tc.b, maxFrameLen); err != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	meta := testMeta().append(nil)
	for n := range len(meta) {
		if _, err := decodeMeta(meta[:n]); err == nil {
			t.Errorf("metadata of %d bytes is accepted", n)
		}
	}
	later := bytes.Clone(meta)
	later[1], later[2] = 2, 3
	if _, err := decodeMeta(later); err == nil {
		t.Error("metadata that needs a later version is accepted")
	}
	heads := appendHeads(nil, testHeads())
	for i := range heads {
		b := bytes.Clone(heads)
		b[i] ^= 1
		if _, err := decodeHeads(b); err == nil {
			t.Errorf("heads with byte %d changed are accepted", i)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(testFrame())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 {
			b = sealFrame(b[:len(b)-4]) // else the sum would be all that is tested
		}
		fr, err := decodeFrame(b, maxFrameLen)
		if err != nil {
			return
		}
		again := appendFrameHeader(nil, fr.flags, fr.sender, fr.boot)
		for _, s := range fr.sections {
			again = append(appendSection(again, s), s.records.wire...)
			if n := len(slices.Collect(s.records.all())); n != s.records.n {
				t.Errorf("%d records, not %d", n, s.records.n)
			}
		}
		if again = sealFrame(again); !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add(testMeta().append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := decodeMeta(m.append(nil))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzHeads(f *testing.F) {
	f.Add(appendHeads(nil, testHeads()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if hs, err := decodeHeads(b); err == nil && !bytes.Equal(appendHeads(nil, hs), b) {
			t.Errorf("%x became %+v", b, hs)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	p := peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: 2}
	c, err := peerfilter.NewCounting(p)
	if err != nil {
		f.Fatal(err)
	}
	c.Add(key(1))
	sh := peerfilter.NewShadow(c)
	var tr peerfilter.Transitions
	sh.Diff(&tr)
	f.Add((&snapshot{sender: 1, boot: 2, part: 3, epoch: 4, seq: 5, state: sh.Snapshot()}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 {
			b = sealFrame(b[:len(b)-4])
		}
		s, err := decodeSnapshot(b, 1<<20)
		if err == nil && s.state.Params().Bits()/8 > 1<<20 {
			t.Errorf("a filter of %d bits was accepted", s.state.Params().Bits())
		}
	})
}
