package gossip

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edged/peerfilter"
)

// TestSnapshot_goesOn: the connection breaks in the midst of each part of a
// snapshot, and what has arrived is not fetched again.
func TestSnapshot_goesOn(t *testing.T) {
	checkLeaks(t)
	big := func(c *Config) {
		c.Partitions = []Partition{{Name: "hot", Params: peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: 48 << 10}}}
	}
	var requests, broken atomic.Int32
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := mustStart(t, "a", nil, func(c *Config) { big(c); c.PeerAddr = l.Addr().String() })
	var mu sync.Mutex
	last := ""
	// again reports whether the request before was for the same part.
	again := func(at string) bool {
		mu.Lock()
		defer mu.Unlock()
		same := at == last
		last = at
		return same
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pathSnapshot && r.URL.Query().Has("offset") {
			requests.Add(1)
			if !again(r.URL.Query().Get("offset")) {
				broken.Add(1)
				w.Header().Set("Content-Length", "1000")
				w.Write(make([]byte, 500))
				panic(http.ErrAbortHandler)
			}
		}
		a.Handler().ServeHTTP(w, r)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	for i := range 600_000 {
		a.filters[0].Add(peerfilter.Hash{uint64(i) * 0x9e3779b97f4a7c15, uint64(i+1) * 0xc2b2ae3d27d4eb4f})
	}
	want, tr := peerfilter.NewShadow(a.filters[0]), peerfilter.Transitions{}
	for want.Diff(&tr) {
	}
	eventually(t, 5*time.Second, "the keys are published", func() bool { return a.Stats().Streams[0].SetHash == want.SetHash() })
	b := mustStart(t, "b", []string{a.Addr()}, big)
	// Looking counts all bits of the filter, under the lock that its arrival needs:
	// with the race detector, on a busy machine, looking all the time has been seen
	// to hold it up for 19 s.
	looked := time.Now()
	took := eventually(t, 30*time.Second, "the filter has arrived", func() bool {
		if time.Since(looked) < 100*time.Millisecond {
			return false
		}
		looked = time.Now()
		return equalHashes([]*testNode{a, b})
	})
	st := b.Stats()
	t.Logf("%d bytes after %v: %d requests for later parts, of which %d broke", st.Received[kindSnapshot].Bytes, took, requests.Load(), broken.Load())
	if n := requests.Load(); broken.Load() < 2 || n != 2*broken.Load() || st.FetchErrors != 0 || st.Loaded != 1 {
		t.Errorf("%d requests, %d broken, %d errors, %d loaded\n%s", n, broken.Load(), st.FetchErrors, st.Loaded, b.logs)
	}
	if strings.Contains(b.logs.String(), "level=ERROR") {
		t.Error(b.logs)
	}
}

// TestSnapshot_lastTwoAreKept: a transfer can go on while a newer snapshot is
// made for another.
func TestSnapshot_lastTwoAreKept(t *testing.T) {
	p := live(t)
	first := p.b.snapshot(p.now, 0)
	next := func() *snapshot {
		p.now += snapshotAge + time.Second
		p.store(1)
		p.flush()
		return p.b.snapshot(p.now, 0)
	}
	second := next()
	if second == first || p.b.snapshotAt(0, first.boot, first.epoch, first.seq) != first {
		t.Error("the first is not kept beside the second")
	}
	next()
	if p.b.snapshotAt(0, first.boot, first.epoch, first.seq) != nil || p.b.snapshotAt(0, first.boot+1, second.epoch, second.seq) != nil {
		t.Error("a third or another boot's is kept")
	}
	p.now += snapshotKept + time.Second
	p.flush()
	if p.b.streams[0].snap != nil || p.b.streams[0].lastSnap != nil {
		t.Error("they are kept for ever")
	}
}

func FuzzChunk(f *testing.F) {
	c, err := peerfilter.NewCounting(peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: 4})
	if err != nil {
		f.Fatal(err)
	}
	s := &snapshot{sender: 1, boot: 2, part: 3, epoch: 4, seq: 5, state: peerfilter.NewShadow(c).Snapshot()}
	f.Add(appendChunk(nil, s, 0), 0)
	f.Add(appendChunk(nil, s, 3), 3)
	f.Fuzz(func(t *testing.T, b []byte, offset int) {
		offset = min(max(offset, 0), 4096)
		c, err := decodeChunk(b, offset, 4096)
		if err == nil && (len(c.data) == 0 || offset+len(c.data) > c.total || c.total > 4096) {
			t.Errorf("at %d of %d: %d bytes", offset, c.total, len(c.data))
		}
	})
}
