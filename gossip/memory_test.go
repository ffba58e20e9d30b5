package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"edged/peerfilter"
)

// smallInput is up to which length an input must not cost more than maxCost
// bytes of memory.
const (
	smallInput = 256 << 10
	maxCost    = 1 << 20
)

// allocated returns the bytes that f allocates, whether they are freed again
// or not: the least of a few runs, because others may allocate meanwhile. Each
// run is after one of prepare, which may be nil.
func allocated(prepare, f func()) uint64 {
	least := ^uint64(0)
	for range 3 {
		if prepare != nil {
			prepare()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// denseRecord is a record of peerfilter's form that names n neighbouring
// positions in as few bytes as can be: one bit for each.
func denseRecord(seq, hash uint64, set, clear int) []byte {
	payload := (set + clear + 7) / 8
	b := []byte{1, byte(peerfilter.LayoutSectors), 1, 0, 0}
	for _, v := range []int{set, clear, payload} {
		b = append(b, byte(v), byte(v>>8), byte(v>>16))
	}
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, hash)
	return append(b, make([]byte, payload)...)
}

// hashesOfFirst returns the set-hash of a's replica once the first n positions
// are set, and once they are cleared.
func (p *pair) hashesOfFirst(n int) (set, clear uint64) {
	r, err := peerfilter.NewReplicas(p.b.streams[0].params)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := r.Load("b", p.b.streams[0].shadow.Snapshot()); err != nil {
		p.t.Fatal(err)
	}
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	if set, err = r.Apply("b", peerfilter.Transitions{Set: all}); err != nil {
		p.t.Fatal(err)
	}
	if clear, err = r.Apply("b", peerfilter.Transitions{Clear: all}); err != nil {
		p.t.Fatal(err)
	}
	return set, clear
}

// TestMemory_ofMessages: no message, state or metadata of 256 KiB makes a
// member allocate more than 1 MiB, from the library's callback to the filter.
func TestMemory_ofMessages(t *testing.T) {
	const many = peerfilter.MaxTransitions
	frame := func(make func(set, clear uint64) [][]byte) func(p *pair) []byte {
		return func(p *pair) []byte {
			s := p.b.streams[0]
			recs := make(p.hashesOfFirst(many))
			b := appendFrameHeader(nil, 0, p.b.sender, p.b.cfg.boot)
			b = appendRecords(b, section{part: s.key, epoch: s.epoch, head: 1 << 40, first: s.seq + 1}, recs...)
			return sealFrame(b)
		}
	}
	later := func(seq uint64, n, size int) func(p *pair) []byte {
		return func(p *pair) []byte {
			s := p.b.streams[0]
			b := appendFrameHeader(nil, 0, p.b.sender, p.b.cfg.boot)
			recs := make([][]byte, n)
			for i := range recs {
				recs[i] = make([]byte, size)
			}
			b = appendRecords(b, section{part: s.key, epoch: s.epoch, head: 1 << 40, first: s.seq + seq}, recs...)
			return sealFrame(b)
		}
	}
	sections := func(p *pair) []byte {
		b := appendFrameHeader(nil, 0, p.b.sender, p.b.cfg.boot)
		for range maxPartitions {
			b = appendRecords(b, section{part: p.b.streams[0].key, epoch: 1, head: 1 << 40}, make([][]byte, 5000)...)
		}
		return sealFrame(b)
	}
	for name, message := range map[string]func(p *pair) []byte{
		"as many positions as can be, set": frame(func(set, clear uint64) [][]byte {
			return [][]byte{denseRecord(2, set, many, 0)}
		}),
		"set, then cleared": frame(func(set, clear uint64) [][]byte {
			return [][]byte{denseRecord(2, set, many, 0), denseRecord(3, clear, 0, many)}
		}),
		"set, then cleared, and as many empty records as fit": frame(func(set, clear uint64) [][]byte {
			return append([][]byte{denseRecord(2, set, many, 0), denseRecord(3, clear, 0, many)}, make([][]byte, 60_000)...)
		}),
		"more positions than can be": frame(func(set, clear uint64) [][]byte { return [][]byte{denseRecord(2, set, many+1, 0)} }),
		"2^24 positions in 200 KiB": frame(func(set, clear uint64) [][]byte {
			return [][]byte{append([]byte{1, 1, 1, 0, 0, 255, 255, 255, 0, 0, 0, 0, 128, 2}, make([]byte, 16+160<<10)...)}
		}),
		"empty records, as many as fit":            later(1, maxRecords, 0),
		"records that are to be kept":              later(2, maxStash, 4000),
		"one record to be kept, as long as can be": later(2, 1, smallInput-100),
		"16 sections of empty records":             sections,
		"garbage":                                  func(*pair) []byte { return make([]byte, smallInput) },
	} {
		t.Run(name, func(t *testing.T) {
			d := &delegate{in: newInbox()}
			var p *pair
			var b []byte
			cost := allocated(func() {
				p = livePair(t, 512)
				p.a.rec = peerfilter.Record{} // as if it were the first message
				if b = message(p); len(b) > smallInput {
					t.Fatalf("%d bytes", len(b))
				}
			}, func() {
				d.NotifyMsg(b)
				for _, e := range d.in.take(map[string]uint64{}) {
					if f, err := decodeFrame(e.message, maxFrameLen); err == nil {
						p.a.receive(p.now, f)
					}
				}
			})
			t.Logf("%d bytes for %d, %d records applied", cost, len(b), p.a.counts.applied)
			if cost > maxCost {
				t.Errorf("a message of %d bytes costs %d", len(b), cost)
			}
		})
	}

	for name, b := range map[string][]byte{
		"heads":        appendHeads(nil, make([]head, maxHeads)),
		"many heads":   append([]byte{frameMagic, frameVersion, 0xff, 0xff}, make([]byte, smallInput-4)...),
		"one head":     appendHeads(nil, make([]head, 1)),
		"not of heads": make([]byte, smallInput),
	} {
		p := livePair(t, 512)
		d := &delegate{in: newInbox()}
		if cost := allocated(nil, func() {
			d.MergeRemoteState(b, true)
			for _, e := range d.in.take(map[string]uint64{}) {
				if hs, err := decodeHeads(e.heads); err == nil {
					p.a.mergeHeads(p.now, hs)
				}
			}
		}); cost > maxCost {
			t.Errorf("%s: a state of %d bytes costs %d", name, len(b), cost)
		}
	}
	for name, b := range map[string][]byte{"metadata": testMeta().append(nil), "too long": make([]byte, smallInput)} {
		if cost := allocated(nil, func() { decodeMeta(b) }); cost > maxCost {
			t.Errorf("%s of %d bytes costs %d", name, len(b), cost)
		}
	}
}

// TestMemory_ofSnapshots: what a snapshot claims costs nothing before it is
// known to be one, and then no more than itself. The replica that is made of
// it is as large as the filter, which is bounded apart.
func TestMemory_ofSnapshots(t *testing.T) {
	snap := func(blocks uint32, keys int) []byte {
		c, err := peerfilter.NewCounting(peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: blocks})
		if err != nil {
			t.Fatal(err)
		}
		for i := range keys {
			c.Add(key(i))
		}
		sh, tr := peerfilter.NewShadow(c), peerfilter.Transitions{}
		for sh.Diff(&tr) {
		}
		return (&snapshot{sender: 1, boot: 2, part: 3, epoch: 4, seq: 5, state: sh.Snapshot()}).append(nil)
	}
	claim := func(blocks uint32) []byte {
		b := snap(16, 3)
		binary.BigEndian.PutUint32(b[frameHeaderLen+21:], blocks)
		return sealFrame(b[:len(b)-4])
	}
	for name, b := range map[string][]byte{
		"full":            snap(4000, 40_000),
		"sparse":          snap(1<<15, 20_000),
		"empty":           snap(1<<15, 0),
		"claims the most": claim(peerfilter.MaxBlocks),
		"claims more":     claim(1<<32 - 1),
		"garbage":         append([]byte{frameMagic, frameVersion, frameSnapshot}, make([]byte, smallInput-3)...),
	} {
		if len(b) > smallInput {
			t.Fatalf("%s has %d bytes", name, len(b))
		}
		if cost := allocated(nil, func() { decodeSnapshot(b, minSnapshotLen) }); cost > maxCost {
			t.Errorf("%s: a snapshot of %d bytes costs %d", name, len(b), cost)
		}
		wire := append(make([]byte, chunkHeaderLen), b...)
		if cost := allocated(nil, func() { decodeChunk(wire, 0, 1<<30) }); cost > maxCost {
			t.Errorf("%s: a chunk of %d bytes costs %d", name, len(wire), cost)
		}
	}
}

// TestMemory_ofRequests: the same of everything that can be sent to the peer
// endpoints, by members and by others.
func TestMemory_ofRequests(t *testing.T) {
	a := mustStart(t, "a", nil, nil)
	signer := mustAuth(t, testKey)
	big := bytes.Repeat([]byte("x"), smallInput-4096)
	for _, tc := range []struct {
		name, method, path string
		body               []byte
		length             int64 // what it says
		signed             bool
	}{
		{name: "a body of no member", method: "POST", path: pathPurges, body: big, length: int64(len(big))},
		{name: "a body of unknown length", method: "POST", path: pathPurges, body: big, length: -1},
		{name: "a body that says it is long", method: "POST", path: pathPurges, body: []byte("{"), length: maxBodyLen},
		{name: "a long query of no member", method: "GET", path: pathSnapshot + "?part=" + strings.Repeat("a&", 30_000)},
		{name: "a long query", method: "GET", path: pathDeltas + "?part=" + strings.Repeat("%41", 30_000), signed: true},
		{name: "a query of many", method: "GET", path: pathDeltas + "?" + strings.Repeat("a&", 5_000), signed: true},
		{name: "records", method: "GET", path: fmt.Sprintf("%s?part=hot&boot=%d&epoch=1&after=0", pathDeltas, a.cfg.Boot), signed: true},
		{name: "a snapshot", method: "GET", path: pathSnapshot + "?part=hot", signed: true},
	} {
		cost := allocated(nil, func() {
			r := httptest.NewRequest(tc.method, tc.path, bytes.NewReader(tc.body))
			r.ContentLength = tc.length
			if tc.signed {
				signer.sign(r, tc.body)
			}
			a.Handler().ServeHTTP(httptest.NewRecorder(), r)
		})
		t.Logf("%s: %d bytes", tc.name, cost)
		if cost > maxCost {
			t.Errorf("%s: it costs %d bytes", tc.name, cost)
		}
	}
}

// TestMemory_ofAnswers: the same of what a peer answers to a pull.
func TestMemory_ofAnswers(t *testing.T) {
	a := mustStart(t, "a", nil, nil)
	signer := mustAuth(t, testKey)
	var answer []byte
	var known bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := signer.verify(r, nil)
		if err != nil {
			t.Error(err)
		}
		signAnswer(w.Header(), key, r.Header.Get(fieldNonce), 200, answer)
		if known {
			w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		}
		w.WriteHeader(200)
		if !known {
			w.(http.Flusher).Flush()
		}
		w.Write(answer)
	}))
	defer s.Close()
	full := sealFrame(append(appendFrameHeader(nil, 0, 1, 1), make([]byte, smallInput-100)...))
	for _, snapshot := range []bool{false, true} {
		for _, known = range []bool{false, true} {
			answer = full
			if snapshot {
				answer = append(binary.BigEndian.AppendUint32(make([]byte, 12), uint32(len(full))), full...)
			}
			cost := allocated(nil, func() {
				e := fetchEffect{from: "b", addr: s.Listener.Addr().String(), snapshot: snapshot, boot: 1, epoch: 1}
				if res := a.pull(context.Background(), e); res.err == nil {
					t.Error("nonsense is accepted")
				}
			})
			// The server of the test is in the same process, and copies too.
			t.Logf("snapshot %v, length known %v: %d bytes", snapshot, known, cost)
			if cost > maxCost {
				t.Errorf("snapshot %v, length known %v: an answer of %d bytes costs %d", snapshot, known, len(answer), cost)
			}
		}
	}
}
