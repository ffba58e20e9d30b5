package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestConfig_complaintsNameTheirKey(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no name", func(c *Config) { c.Name = "" }, "name:"},
		{"a name with a slash", func(c *Config) { c.Name = "a/b" }, "name:"},
		{"no bind address", func(c *Config) { c.Bind = "7946" }, "cluster.gossip:"},
		{"no key, every interface", func(c *Config) { c.Keys, c.Bind = nil, "0.0.0.0:0" }, "cluster.key_file is required"},
		{"no key, a public peer address", func(c *Config) { c.Keys, c.PeerAddr = nil, "10.0.0.1:80" }, "cluster.peer:"},
		{"no key, a public advertised address", func(c *Config) { c.Keys, c.Advertise = nil, "10.0.0.1" }, "cluster.advertise:"},
		{"a short key", func(c *Config) { c.Keys = [][]byte{{1}} }, "cluster.key_file: key 1"},
		{"a member without port", func(c *Config) { c.Join = []string{"a"} }, "cluster.join[0]:"},
		{"17 partitions", func(c *Config) {
			c.Partitions = make([]Partition, 17)
			for i := range c.Partitions {
				c.Partitions[i] = testConfig("").Partitions[0]
				c.Partitions[i].Name = fmt.Sprint(i)
			}
		}, "cache.partitions:"},
		{"a partition twice", func(c *Config) { c.Partitions[1].Name = "hot" }, "cache.partitions[1].name"},
		{"a partition of no size", func(c *Config) { c.Partitions[1].Params.Blocks = 0 }, "cache.partitions:"},
	} {
		cfg := testConfig("a")
		cfg.PeerAddr = "127.0.0.1:1"
		tc.change(&cfg)
		g, err := New(cfg)
		if err == nil {
			g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestHandler_bounds(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	signer := mustAuth(t, testKey)
	big := make([]byte, maxBodyLen+1)
	digest := encodeDigest(origin{"x", 1}, false, 0, nil, maxPacketLen)
	for _, tc := range []struct {
		name, method, path string
		body               []byte
		unsigned           bool
		want               int
	}{
		{"a snapshot", "GET", pathSnapshot + "?part=hot", nil, false, 200},
		{"of no partition", "GET", pathSnapshot + "?part=none", nil, false, 404},
		{"the rest of a snapshot", "GET", fmt.Sprintf("%s?part=hot&offset=10&boot=%d&epoch=1&seq=0", pathSnapshot, a.cfg.Boot), nil, false, 200},
		{"what is beyond its end", "GET", fmt.Sprintf("%s?part=hot&offset=99999&boot=%d&epoch=1&seq=0", pathSnapshot, a.cfg.Boot), nil, false, 400},
		{"the rest of another boot's", "GET", pathSnapshot + "?part=hot&offset=10&boot=1&epoch=1&seq=0", nil, false, 410},
		{"the rest of one that is not kept", "GET", fmt.Sprintf("%s?part=hot&offset=10&boot=%d&epoch=1&seq=7", pathSnapshot, a.cfg.Boot), nil, false, 410},
		{"the rest of nothing", "GET", pathSnapshot + "?part=hot&offset=10", nil, false, 400},
		{"unsigned", "GET", pathSnapshot + "?part=hot", nil, true, 401},
		{"records", "GET", fmt.Sprintf("%s?part=hot&boot=%d&epoch=1&after=0", pathDeltas, a.cfg.Boot), nil, false, 200},
		{"records of another boot", "GET", pathDeltas + "?part=hot&boot=1&epoch=1&after=0", nil, false, 410},
		{"records after what is not there yet", "GET", fmt.Sprintf("%s?part=hot&boot=%d&epoch=1&after=9", pathDeltas, a.cfg.Boot), nil, false, 410},
		{"records after nonsense", "GET", pathDeltas + "?part=hot&boot=1&epoch=1&after=-1", nil, false, 400},
		{"the log", "POST", pathPurges, digest, false, 200},
		{"the log by GET", "GET", pathPurges, nil, false, 405},
		{"the log, with something else", "POST", pathPurges, encodeAck(origin{"x", 1}, 1, 1, nil), false, 400},
		{"the log, with less than a digest", "POST", pathPurges, []byte(`x`), false, 400},
		{"a request that is too long", "POST", pathPurges, big, false, 413},
		{"elsewhere", "GET", "/_edged/v1/other", nil, false, 404},
	} {
		r := httptest.NewRequest(tc.method, tc.path, bytes.NewReader(tc.body))
		if !tc.unsigned {
			signer.sign(r, tc.body)
		}
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s: %d %q, want %d", tc.name, w.Code, w.Body, tc.want)
		}
		if w.Code == 200 {
			if err := signer.verifyAnswer(r, w.Result(), w.Body.Bytes()); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
	}
	if a.Stats().Refused["not_signed"] != 1 || !strings.Contains(a.logs.String(), "cluster.key_file") {
		t.Error("the refusal is not counted or not logged")
	}
}

// TestCluster_garbage: what anybody can send to the gossip port does no harm
// and does not fill the log.
func TestCluster_garbage(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	b := mustStart(t, "b", []string{a.Addr()}, nil)
	eventually(t, 5*time.Second, "two members", func() bool { return len(a.Members()) == 2 })
	rng := rand.New(rand.NewPCG(1, 5))
	udp, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	junk := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		return p
	}
	label := append([]byte{244, 5}, "edged"...)
	shape := []func(i int, p []byte) []byte{
		func(i int, p []byte) []byte { return p },
		func(i int, p []byte) []byte { return append(bytes.Clone(label), p...) },
		func(i int, p []byte) []byte { return append([]byte{byte(i % 16)}, p...) },
		func(i int, p []byte) []byte { return append(append(bytes.Clone(label), byte(i%16)), p...) },
	}
	for i := range 3000 {
		udp.Write(shape[i%len(shape)](i/4, junk(rng.IntN(1300))))
	}
	for i := range 60 {
		c, err := net.DialTimeout("tcp", a.Addr(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(shape[i%len(shape)](i/4, junk(rng.IntN(4000))))
		c.Close()
	}
	b.filters[0].Add(key(1))
	eventually(t, 5*time.Second, "the cluster works on", func() bool { return a.Lookup(0, key(1)).Contains("b") })
	if n := strings.Count(a.logs.String(), "\n"); n > 30 {
		t.Errorf("%d lines were logged:\n%s", n, a.logs)
	}
	if n := a.Stats().LogDropped[linePacketKey] + a.Stats().LogDropped[lineLabel]; n < 100 {
		t.Errorf("only %d lines are counted", n)
	}
}

func TestLines_rateAndLevel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var out logBuffer
		var suspects []string
		l := newLines(slog.New(slog.NewTextHandler(&out, nil)), func(n string) { suspects = append(suspects, n) })
		for range 100 {
			fmt.Fprintf(l, "[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=10.0.0.9:1234\n")
			fmt.Fprintf(l, "[DEBUG] memberlist: Stream connection from=10.0.0.9:1234\n")
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "remote=10.0.0.9:1234") || !strings.Contains(got, "level=ERROR") ||
			!strings.Contains(got, "cluster.key_file") {
			t.Errorf("logged:\n%s", got)
		}
		time.Sleep(lineInterval)
		fmt.Fprintf(l, "[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=10.0.0.9:1234\n")
		if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "skipped=99") {
			t.Errorf("logged:\n%s", got)
		}
		fmt.Fprintf(l, "[INFO] memberlist: Suspect b has failed, no acks received\n")
		if len(suspects) != 1 || suspects[0] != "b" {
			t.Errorf("suspects %v", suspects)
		}
		if l.counts()[lineStreamKey] != 99 {
			t.Errorf("%v", l.counts())
		}
		l.Write(make([]byte, 1<<20))
		for range 3 {
			fmt.Fprintf(l, "[WARN] memberlist: handler queue full, dropping message (8) from=10.0.0.9:1234\n")
		}
		if n := l.handoffDrops(); n != 3 {
			t.Errorf("%d packets that were dropped are counted", n)
		}
	})
}

// TestDelegate_allocationIsBounded: what does not fit is not copied.
func TestDelegate_allocationIsBounded(t *testing.T) {
	d := &delegate{in: newInbox()}
	big := make([]byte, maxFrameLen+1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		d.NotifyMsg(big)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	for range 2 * maxInbox {
		d.NotifyMsg(big[:100])
	}
	drops := map[string]uint64{}
	if n := len(d.in.take(drops)); n != maxInbox {
		t.Errorf("%d messages wait", n)
	}
	if drops[dropTooLarge] != 100 || drops[dropInbox] != maxInbox {
		t.Errorf("dropped %v", drops)
	}
}

func FuzzNotifyMsg(f *testing.F) {
	p := live(f)
	p.store(3)
	for _, m := range p.flush() {
		f.Add(m.payload)
	}
	f.Add(testFrame())
	f.Fuzz(func(t *testing.T, b []byte) {
		p := live(t)
		if len(b) >= frameOverhead {
			b = bytes.Clone(b)
			copy(b[4:], appendFrameHeader(nil, 0, p.b.sender, p.b.cfg.boot)[4:])
			b = sealFrame(b[:len(b)-4])
		}
		f, err := decodeFrame(b, maxFrameLen)
		if err != nil {
			return
		}
		p.a.receive(p.now, f)
		p.a.tick(p.now + time.Second)
		p.a.take()
		if r := p.replica(); len(r.stash) > maxStash || r.stashBytes > maxStashBytes {
			t.Errorf("%d records are kept", len(r.stash))
		}
	})
}

func FuzzMergeRemoteState(f *testing.F) {
	f.Add(appendHeads(nil, testHeads()))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := live(t)
		if len(b) >= 4 {
			b = sealFrame(b[:len(b)-4])
		}
		hs, err := decodeHeads(b)
		if err != nil {
			return
		}
		for i := range hs {
			hs[i].sender, hs[i].boot, hs[i].part, hs[i].epoch = p.b.sender, p.b.cfg.boot, p.b.streams[0].key, 1
		}
		p.a.mergeHeads(p.now, hs)
		if p.a.counts.diverged > 0 {
			t.Error("a third member made a replica diverge")
		}
	})
}

func FuzzHandler(f *testing.F) {
	f.Add("GET", "filter/deltas?part=hot&boot=1&epoch=1&after=0", []byte{})
	f.Add("GET", "filter/snapshot?part=tail&offset=1&boot=1&epoch=1&seq=1", []byte{})
	f.Add("POST", "purge", []byte(`{"id":"1","urls":["http://x/"]}`))
	cfg := testConfig("a")
	cfg.PeerAddr, cfg.Keys = "127.0.0.1:1", nil
	g, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { g.Close() })
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		r, err := http.NewRequest(method, "http://x"+pathPrefix+path, bytes.NewReader(body))
		if err != nil {
			return
		}
		g.Handler().ServeHTTP(httptest.NewRecorder(), r)
	})
}
