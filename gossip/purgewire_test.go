package gossip

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func someChange() Change {
	return Change{
		Kind: KindPurge, Stamp: 77, Site: "www", URLs: []string{"http://h/a", "http://h/b"}, Tags: []string{"red"},
		Prefixes: []string{"http://h/x/"}, Hosts: []string{"h"}, All: true, Soft: true, Payload: []byte{0, 1, 2},
	}
}

func TestLogWire_roundTrips(t *testing.T) {
	c := someChange()
	enc := appendChange(nil, &c)
	if got, err := decodeChange(enc); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %v; want %+v", got, err, c)
	}
	if got, err := decodeChange(append(bytes.Clone(enc), "what a later version adds"...)); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("with more at its end: %+v, %v", got, err)
	}
	self, of := origin{"n1", 7}, origin{"n2", 8}
	b := sealFrame(appendSequenced(appendSequenced(beginChanges(nil, self, of), 3, enc), 9, enc))
	m, err := decodeLogMessage(b, maxFrameLen)
	if err != nil || m.from != "n1" || m.boot != 7 || !reflect.DeepEqual(m.records, []record{{of, 3, enc}, {of, 9, enc}}) {
		t.Errorf("changes: %+v, %v", m, err)
	}
	m, err = decodeLogMessage(encodeAck(self, 8, 5, []seqRange{{7, 7}, {9, 12}}), maxFrameLen)
	if err != nil || m.of.boot != 8 || m.seq != 5 || !reflect.DeepEqual(m.ranges, []seqRange{{7, 7}, {9, 12}}) {
		t.Errorf("ack: %+v, %v", m, err)
	}
	heads := []seqHead{{of, 4, 5}, {self, 6, 7}}
	m, err = decodeLogMessage(encodeDigest(self, true, 99, heads, maxPacketLen), maxFrameLen)
	if err != nil || !m.asks || m.hash != 99 || m.entries != 2 || !reflect.DeepEqual(m.heads, heads) {
		t.Errorf("digest: %+v, %v", m, err)
	}
	var many []seqHead
	for i := range 500 {
		many = append(many, seqHead{origin{"member", uint64(i)}, 1, 1})
	}
	b = encodeDigest(self, false, 1, many, maxPacketLen)
	if m, err = decodeLogMessage(b, maxPacketLen); err != nil || m.entries != 500 || len(m.heads) < 25 {
		t.Errorf("a digest of 500: %d bytes, %d of %d heads, %v", len(b), len(m.heads), m.entries, err)
	}
	a := catchUp{more: true, cut: heads, records: []record{{of, 3, enc}}}
	if got, err := decodeCatchUp(encodeCatchUp(a)); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("catch-up: %+v, %v", got, err)
	}
}

// Every message that is cut short or changed in one bit is refused.
func TestLogWire_refusesDamage(t *testing.T) {
	c := someChange()
	enc := appendChange(nil, &c)
	self := origin{"n1", 7}
	for name, b := range map[string][]byte{
		"changes": sealFrame(appendSequenced(beginChanges(nil, self, self), 3, enc)),
		"ack":     encodeAck(self, 8, 5, []seqRange{{7, 7}}),
		"digest":  encodeDigest(self, false, 99, []seqHead{{self, 4, 5}}, maxPacketLen),
	} {
		for i := range b {
			if _, err := decodeLogMessage(b[:i], maxFrameLen); err == nil {
				t.Errorf("%s: %d of %d bytes are read", name, i, len(b))
			}
			d := bytes.Clone(b)
			d[i] ^= 1
			if m, err := decodeLogMessage(d, maxFrameLen); err == nil && i != 3 {
				t.Errorf("%s: read with byte %d changed: %+v", name, i, m)
			}
		}
	}
	for name, b := range map[string][]byte{
		"ranges that overlap what is acknowledged": encodeAck(self, 8, 5, []seqRange{{5, 7}}),
		"a range that ends before it begins":       encodeAck(self, 8, 5, []seqRange{{9, 7}}),
		"a change numbered 0":                      sealFrame(appendSequenced(beginChanges(nil, self, self), 0, enc)),
		"no name":                                  encodeAck(origin{"", 1}, 8, 5, nil),
		"a name that is too long":                  encodeAck(origin{strings.Repeat("x", 64), 1}, 8, 5, nil),
	} {
		if m, err := decodeLogMessage(b, maxFrameLen); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
	over := Change{Kind: KindPurge, URLs: make([]string, maxStrings+1)}
	if _, err := decodeChange(appendChange(nil, &over)); err == nil {
		t.Error("more strings than a change may have")
	}
}

func FuzzDecodeChange(f *testing.F) {
	c := someChange()
	f.Add(appendChange(nil, &c))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeChange(b)
		if err != nil {
			return
		}
		again, err := decodeChange(appendChange(nil, &c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v, then %+v, %v", c, again, err)
		}
	})
}

func FuzzDecodeLogMessage(f *testing.F) {
	c := someChange()
	self := origin{"n1", 7}
	f.Add(appendSequenced(beginChanges(nil, self, self), 3, appendChange(nil, &c)), true)
	for _, b := range [][]byte{encodeAck(self, 8, 5, []seqRange{{7, 7}}), encodeDigest(self, false, 99, []seqHead{{self, 4, 5}}, maxPacketLen)} {
		f.Add(b[:len(b)-4], true)
	}
	b := encodeCatchUp(catchUp{cut: []seqHead{{self, 4, 5}}, records: []record{{self, 3, appendChange(nil, &c)}}})
	f.Add(b[:len(b)-4], false)
	f.Fuzz(func(t *testing.T, b []byte, message bool) {
		b = sealFrame(b)
		if !message {
			decodeCatchUp(b)
			return
		}
		if m, err := decodeLogMessage(b, maxFrameLen); err == nil {
			n := newLogCore(logConfig{name: "n0", boot: 1}, &clock{}, simRand())
			n.peerUp(0, "n1", 7)
			n.receive(0, m)
		}
	})
}

func FuzzLogFile(f *testing.F) {
	c := someChange()
	r := fileRecord{record{origin{"n1", 7}, 3, appendChange(nil, &c)}, 77}
	whole := append([]byte(logFileMagic), appendFileRecord(appendFileRecord(nil, r), fileRecord{record{origin{"n1", 7}, 9, nil}, 78})...)
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, logFileName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, records, _, err := openLogFile(dir)
		if err != nil {
			return
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		l, again, torn, err := openLogFile(dir)
		if err != nil || torn != 0 || !reflect.DeepEqual(again, records) {
			t.Errorf("%d records, then %d, %d bytes torn, %v", len(records), len(again), torn, err)
		}
		l.close()
	})
}
