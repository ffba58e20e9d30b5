package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edged/edge/admin"
	"edged/shield"
)

// content answers every path with itself, and 404 below /absent.
func content(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/absent") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "max-age=3600")
	io.WriteString(w, r.URL.Path)
}

// sumBloom adds the four counters up over all nodes and partitions.
func sumBloom(nodes []*Node) (negative, hit, miss, unknown uint64) {
	for _, n := range nodes {
		for i := range n.metrics.bloom {
			b := n.metrics.bloom[i].status()
			negative, hit, miss, unknown = negative+b.Negative, hit+b.PositiveHit, miss+b.PositiveMiss, unknown+b.Unknown
		}
	}
	return
}

func TestCluster_peerHasIt(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 3, o.URL, nil)
	nodes[0].get(t, "/a").want(t, 200, "/a", "edge-a; fwd=uri-miss; fwd-status=200; stored; detail=origin")
	k := nodes[1].keyOf("http://www.example.com/a")
	eventually(t, "b has heard of it", func() bool { return nodes[1].gossip.Lookup(0, k.Filter).Contains("edge-a") })
	nodes[1].get(t, "/a").want(t, 200, "/a", "edge-a; hit; ttl=", ", edge-b; fwd=uri-miss; fwd-status=200; stored; detail=peer")
	nodes[1].get(t, "/a").want(t, 200, "/a", "edge-b; hit; ttl=")
	if got := o.requests.Load(); got != 1 {
		t.Errorf("%d requests reached the origin, want 1", got)
	}
}

// What no peer has is not asked for: 20 000 absent keys over three nodes that
// hold 50 000 responses cost next to no peer request, and every answer is right.
func TestCluster_absentKeysAskNobody(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 3, o.URL, func(c *Config) {
		c.Cache.Memory = 128 << 20
		c.Filter.Keys = 0 // the default
		c.Negative.TTL = -1
	})
	stored, absent := 50000, 20000
	if raceEnabled {
		stored, absent = 5000, 2000
	}
	each(t, stored, func(i int) {
		path := fmt.Sprintf("/stored/%d", i)
		nodes[i%3].get(t, path).want(t, 200, path)
	})
	for i, n := range nodes {
		eventually(t, "replicas have caught up", func() bool {
			for j, other := range nodes {
				if i != j && n.replicaBits(other.cfg.Name) != other.publishedBits() {
					return false
				}
			}
			return true
		})
	}
	neg0, hit0, miss0, unk0 := sumBloom(nodes)
	each(t, absent, func(i int) {
		path := fmt.Sprintf("/absent/%d", i)
		nodes[i%3].get(t, path).want(t, 404, "404 page not found\n")
	})
	neg, hit, miss, unk := sumBloom(nodes)
	neg, hit, miss, unk = neg-neg0, hit-hit0, miss-miss0, unk-unk0
	if sum := neg + hit + miss + unk; sum != uint64(absent) {
		t.Errorf("negative %d + positive_hit %d + positive_miss %d + unknown %d = %d, want %d look-ups", neg, hit, miss, unk, sum, absent)
	}
	if skipped := float64(neg) / float64(absent); skipped < 0.98 {
		t.Errorf("%.2f %% of the look-ups skipped the peers, want 98 %% at least (hit %d, miss %d, unknown %d)", 100*skipped, hit, miss, unk)
	}
	t.Logf("of %d absent keys %d asked no peer, %d did in vain", absent, neg, miss)
}

// replicaBits and publishedBits are how many bits are set in a replica here,
// and in what a node publishes.
func (n *Node) replicaBits(member string) int {
	for _, r := range n.gossip.Stats().Replicas {
		if r.Member == member && r.State == "live" && r.Lag == 0 {
			return int(r.BitsSet)
		}
	}
	return -1
}

func (n *Node) publishedBits() int {
	c, _, _ := n.filters[0].current()
	return c.Stats().BitsSet
}

// each runs f for 0..n-1 from 16 goroutines, until the test has failed.
func each(t *testing.T, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// A peer that is gone costs no client anything.
func TestCluster_aPeerDies(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 3, o.URL, nil)
	each(t, 300, func(i int) { nodes[0].get(t, fmt.Sprintf("/%d", i)) })
	k := nodes[1].keyOf("http://www.example.com/299")
	eventually(t, "b has heard of it", func() bool { return nodes[1].gossip.Lookup(0, k.Filter).Contains("edge-a") })
	nodes[0].Close() // without a goodbye
	each(t, 300, func(i int) {
		path := fmt.Sprintf("/%d", i)
		nodes[1+i%2].get(t, path).want(t, 200, path)
	})
	for _, n := range nodes[1:] {
		eventually(t, "a is not asked any more", func() bool { return n.topo.Load().peers["edge-a"] == nil })
	}
}

// A peer that hangs costs its budget, and not every time.
func TestCluster_aPeerHangs(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	hung := rawOrigin(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	p := &peer{name: "edge-b", addr: strings.TrimPrefix(hung, "http://"), slots: make(chan struct{}, 1)}
	fw := &forward{method: "GET", host: "www.example.com", target: "/x", header: http.Header{}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*peerBudget)
	defer cancel()
	if up := n.askPeers(ctx, fw, &plan{ask: []*peer{p}, counter: &n.metrics.bloom[0], truth: &n.truths[0]}); up != nil {
		t.Fatal("a peer that hangs has answered")
	}
	if p.until.IsZero() {
		t.Error("it would be asked again at once")
	}
}

// Where the origin fails there is nobody else to ask, but no client waits for a
// peer that hangs.
func TestCluster_aPeerHangsAndTheOriginFails(t *testing.T) {
	dead := newOrigin(t, content)
	dead.Close()
	cfg := testConfig("edge-a", dead.URL)
	cfg.Filter.Off = true // ask all
	n := startNode(t, cfg)
	hung := rawOrigin(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	topo := *n.topo.Load()
	topo.peers = map[string]*peer{"edge-b": {name: "edge-b", addr: strings.TrimPrefix(hung, "http://"), slots: make(chan struct{}, 64), gone: make(chan struct{})}}
	n.topo.Store(&topo)
	n.get(t, "/x").want(t, 502, "502 Bad Gateway: the origin can't be reached\n")
}

func TestPeer_oneStallIsOneFailure(t *testing.T) {
	p, start := &peer{}, time.Unix(1000, 0)
	for range 50 { // all under way when it stalled
		p.failed(start, start.Add(40*time.Millisecond))
	}
	if p.usable(start.Add(100*time.Millisecond)) || !p.usable(start.Add(300*time.Millisecond)) {
		t.Errorf("after one stall it is asked again after %v", p.until.Sub(start))
	}
	again := start.Add(time.Second)
	p.failed(again, again.Add(time.Millisecond))
	if p.usable(again.Add(400*time.Millisecond)) || !p.usable(again.Add(600*time.Millisecond)) {
		t.Errorf("after a second failure it is asked again after %v", p.until.Sub(again))
	}
	p.answered(time.Millisecond)
	if !p.usable(again) {
		t.Error("an answer does not end the back-off")
	}
}

// The peer address answers what is stored, and never forwards.
func TestCluster_peerAddress(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	n.get(t, "/x")
	ask := func(path string, fields ...string) answer {
		r, _ := http.NewRequest("GET", "http://"+n.Addrs().Peer+path, nil)
		r.Host = "www.example.com"
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			r.Header.Add(name, value)
		}
		resp, err := testClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.Header, string(b), nil}
	}
	ask("/x", "Cache-Control: only-if-cached").want(t, 200, "/x", "edge-a; hit")
	ask("/y", "Cache-Control: only-if-cached").want(t, 504, "504 Gateway Timeout: not stored here\n", "edge-a; fwd=uri-miss")
	if got := counted(n.metrics.member.WithLabelValues("peer", "miss")); got != 1 {
		t.Errorf("a peer's miss is counted %d times as a miss", got)
	}
	// Why there was nothing: the own filter says absent, or says maybe although
	// nothing is stored, or what is stored is not for this request.
	key := n.keyOf("http://www.example.com/z")
	n.store.Filter(0).Add(key.Filter)
	ask("/z", "Cache-Control: only-if-cached").want(t, 504, "504 Gateway Timeout: not stored here\n", "edge-a; fwd=uri-miss")
	n.store.Filter(0).Remove(key.Filter)
	resp, err := testClient.Post("http://"+n.Addrs().Admin+"/v1/purge", "application/json", strings.NewReader(`{"urls":["http://www.example.com/x"],"soft":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	ask("/x", "Cache-Control: only-if-cached").want(t, 504, "504 Gateway Timeout: not stored here\n", "edge-a; fwd=stale")
	for _, cause := range missCauses {
		if got := counted(n.metrics.misses.WithLabelValues("default", cause)); got != 1 {
			t.Errorf("%v misses of a peer are %s, want 1", got, cause)
		}
	}
	if a := ask("/y"); a.status != 403 {
		t.Errorf("a stranger's request was answered %d", a.status)
	}
	if a := ask("/y", shield.HopField+": other"); a.status != 400 {
		t.Errorf("an unknown hop was answered %d", a.status)
	}
	if got := o.requests.Load(); got != 1 {
		t.Errorf("%d requests reached the origin, want 1", got)
	}
}

// Without filters, and with nobody to ask, the ring alone decides: the key's
// owner is asked by everyone, and asks the origin once.
func TestCluster_ringOnly(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 3, o.URL, func(c *Config) {
		c.Filter.Off, c.Filter.Ask = true, askNone
		c.Sites[0].Shield = string(shield.ModeRing)
	})
	for _, n := range nodes {
		n.get(t, "/r").want(t, 200, "/r", "")
	}
	if got := o.requests.Load(); got != 1 {
		t.Errorf("%d requests reached the origin, want 1", got)
	}
	// The owner is one of them; it counts a request after its answer has left.
	eventually(t, "two requests to the key's owner, and none to peers", func() bool {
		var shielded, asked uint64
		for _, n := range nodes {
			shielded += counted(n.metrics.member.WithLabelValues("shield", "miss")) + counted(n.metrics.member.WithLabelValues("shield", "hit"))
			asked += counted(n.metrics.member.WithLabelValues("peer", "miss")) + counted(n.metrics.member.WithLabelValues("peer", "hit"))
		}
		return shielded == 2 && asked == 0
	})
}

// A miss goes through the shield of its key, once.
func TestCluster_shield(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 3, o.URL, func(c *Config) {
		if c.Name == "edge-a" {
			c.Cluster.Role = RoleShield
		}
	})
	nodes[1].get(t, "/s").want(t, 200, "/s", "edge-a; fwd=uri-miss; fwd-status=200; stored; detail=origin, edge-b; fwd=uri-miss; fwd-status=200; stored; detail=shield")
	// b may have told c already: then b is asked, else the shield, which has it.
	nodes[2].get(t, "/s").want(t, 200, "/s", "; hit; ttl=")
	if got := o.requests.Load(); got != 1 {
		t.Errorf("%d requests reached the origin, want 1", got)
	}
	nodes[0].Close()
	nodes[1].get(t, "/t").want(t, 200, "/t", "detail=origin")
}

func TestCluster_purgeReachesAll(t *testing.T) {
	version := atomic.Int64{}
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Surrogate-Key", "all "+strings.Trim(r.URL.Path, "/"))
		fmt.Fprint(w, version.Load())
	})
	nodes := startCluster(t, 3, o.URL, nil)
	for i, body := range []string{
		`{"urls":["HTTP://www.EXAMPLE.com/y/../%78"]}`, `{"prefixes":["http://WWW.example.com/%78"]}`, `{"tags":["x"]}`, `{"prefixes":["http://www.example.com/"]}`,
		`{"hosts":["www.example.com"]}`, `{"all":true}`, `{"urls":["http://www.example.com/x"],"soft":true}`,
	} {
		version.Store(int64(i))
		for _, n := range nodes {
			n.get(t, "/x").want(t, 200, fmt.Sprint(i))
			n.get(t, "/x").want(t, 200, fmt.Sprint(i), "hit")
		}
		version.Store(int64(i) + 1)
		resp, err := testClient.Post("http://"+nodes[i%3].Addrs().Admin+"/v1/purge", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var got admin.PurgeResult
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || got.Members != 3 || got.Acked != 3 || len(got.Missing) > 0 {
			t.Errorf("%s answered %d %+v, %v", body, resp.StatusCode, got, err)
		}
		for _, n := range nodes {
			a := n.get(t, "/x")
			a.want(t, 200, fmt.Sprint(i+1))
		}
	}
}

func TestNode_wrongKey(t *testing.T) {
	o := newOrigin(t, content)
	key := func(b byte) [][]byte { return [][]byte{[]byte(strings.Repeat(string(rune('a'+b)), 32))} }
	first := testConfig("edge-a", o.URL)
	first.Cluster.Keys = key(0)
	a := startNode(t, first)
	second := testConfig("edge-b", o.URL)
	second.Cluster.Keys, second.Cluster.Join = key(1), []string{a.Addrs().Gossip}
	b := startNode(t, second)
	eventually(t, "it has tried", func() bool { return b.gossip.Stats().Rejoins > 0 || len(b.gossip.Members()) > 0 })
	if len(a.topo.Load().peers)+len(b.topo.Load().peers) != 0 {
		t.Error("nodes with different keys have joined")
	}
}

// The second node of a name is refused, and the first one is not disturbed.
func TestNode_twoOfOneName(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 2, o.URL, nil)
	cfg := testConfig("edge-b", o.URL)
	cfg.Cluster.Join = []string{nodes[0].Addrs().Gossip}
	twin, err := New(cfg)
	if err == nil {
		t.Cleanup(func() { twin.Close() })
		select {
		case <-twin.Done():
			err = twin.Err()
		case <-time.After(deadline):
		}
	}
	if err == nil || !strings.Contains(err.Error(), "edge-b") {
		t.Errorf("the twin's error is %v, want one that names edge-b", err)
	}
	nodes[1].get(t, "/x").want(t, 200, "/x")
	if nodes[0].topo.Load().peers["edge-b"] == nil {
		t.Error("the first edge-b is no member any more")
	}
}

func TestNode_portTaken(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	for _, c := range []struct {
		path  string
		taken string
		set   func(*Config, string)
	}{
		{"listen.address", n.Addrs().Client, func(c *Config, a string) { c.Listen.Address = a }},
		{"admin.address", n.Addrs().Admin, func(c *Config, a string) { c.Admin.Address = a }},
		{"cluster.peer", n.Addrs().Peer, func(c *Config, a string) { c.Cluster.Peer = a }},
		{"cluster.gossip", n.Addrs().Gossip, func(c *Config, a string) { c.Cluster.Gossip = a }},
	} {
		cfg := testConfig("edge-b", o.URL)
		c.set(&cfg, c.taken)
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), c.taken) {
			t.Errorf("with the port of %s taken: %v", c.path, err)
		}
	}
}
