package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"edged/peerfilter"
)

var testSeed = peerfilter.Seed{1, 2}

var testKey = bytes.Repeat([]byte{7}, 32)

// testNode is a member with real sockets on loopback and a filter of its own.
type testNode struct {
	*Gossip
	filters []*peerfilter.Counting
	server  *http.Server
	logs    *logBuffer

	mu     sync.Mutex
	purges []Change
}

// logBuffer holds what a member logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func testConfig(name string) Config {
	return Config{
		Name: name, Role: "edge", Bind: "127.0.0.1:0", Keys: [][]byte{testKey}, Seed: testSeed,
		Partitions: []Partition{
			{Name: "hot", Params: peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: 64}},
			{Name: "tail", Params: peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: 128}},
		},
	}
}

// startNode starts a member; change may alter its configuration.
func startNode(t *testing.T, name string, join []string, change func(*Config)) (*testNode, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{logs: &logBuffer{}}
	cfg := testConfig(name)
	cfg.PeerAddr = l.Addr().String()
	cfg.Join = join
	cfg.Logger = slog.New(slog.NewTextHandler(n.logs, &slog.HandlerOptions{Level: slog.LevelInfo}))
	cfg.OnChange = func(p Change) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.purges = append(n.purges, p)
	}
	if change != nil {
		change(&cfg)
	}
	if n.Gossip, err = New(cfg); err != nil {
		l.Close()
		return n, err
	}
	if cfg.TLS != nil {
		l = cfg.TLS.Listener(l)
	}
	n.server = &http.Server{Handler: n.Handler(), ErrorLog: log.New(io.Discard, "", 0)}
	go n.server.Serve(l)
	t.Cleanup(n.stop)
	for i, p := range cfg.Partitions {
		c, err := peerfilter.NewCounting(p.Params)
		if err != nil {
			t.Fatal(err)
		}
		n.filters = append(n.filters, c)
		n.Publish(i, c)
	}
	return n, nil
}

func mustStart(t *testing.T, name string, join []string, change func(*Config)) *testNode {
	t.Helper()
	n, err := startNode(t, name, join, change)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *testNode) stop() {
	n.Close()
	n.server.Close()
}

func (n *testNode) stateOf(name string) State {
	m, _ := n.member(name)
	return m.State
}

// eventually waits for a condition, with a deadline.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Since(start) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

// checkLeaks fails the test when a goroutine outlives it by more than a probe
// or stream of the library may.
func checkLeaks(t *testing.T) {
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		var err error
		for range 12 {
			if err = goleak.Find(opt); err == nil {
				return
			}
		}
		t.Error(err)
	})
}

func key(i int) peerfilter.Hash {
	return peerfilter.Sum(testSeed, fmt.Sprintf("http://example.com/%d", i))
}

func TestCluster_replicatesToOldAndNewMembers(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	b := mustStart(t, "b", []string{a.Addr()}, nil)

	// Right after the start.
	a.filters[1].Add(key(1))
	took := eventually(t, 5*time.Second, "b has a's key", func() bool { return b.Lookup(1, key(1)).Contains("a") })
	t.Logf("stored on a, known to b after %v", took)

	// In the steady state, and by a newcomer.
	for i := range 500 {
		a.filters[0].Add(key(i))
	}
	took = eventually(t, 5*time.Second, "b has a's keys", func() bool { return b.Lookup(0, key(499)).Contains("a") })
	t.Logf("in the steady state after %v", took)
	start := time.Now()
	c := mustStart(t, "c", []string{b.Addr()}, nil)
	eventually(t, 5*time.Second, "c has a's keys", func() bool { return c.Lookup(0, key(499)).Contains("a") })
	t.Logf("by a newcomer after %v", time.Since(start))

	// Bit for bit, everywhere, and after removal too.
	for i := range 250 {
		a.filters[0].Remove(key(i))
	}
	nodes := []*testNode{a, b, c}
	eventually(t, 5*time.Second, "all replicas equal", func() bool { return converged(nodes) })
	if c.Lookup(0, key(100000)).Contains("a") || c.Lookup(0, key(3)).Known("nobody") {
		t.Error("an absent key is found, or an absent member known")
	}
	for _, n := range nodes {
		if s := n.Stats(); s.Diverged != 0 || s.Members[StateAlive] != 3 {
			t.Errorf("%s: %d diverged, %d alive", n.cfg.Name, s.Diverged, s.Members[StateAlive])
		}
	}
}

// converged reports whether everyone's replica of everyone equals what that
// one's filter holds, which is published by then.
func converged(nodes []*testNode) bool {
	for _, n := range nodes {
		for _, m := range nodes {
			for part := range m.filters {
				if n == m {
					continue
				}
				got, live := n.ReplicaBits(part, m.cfg.Name)
				shadow := peerfilter.NewShadow(m.filters[part])
				var tr peerfilter.Transitions
				for shadow.Diff(&tr) {
				}
				if !live || !slices.Equal(got, bitmap(tr.Set, len(got))) {
					return false
				}
			}
		}
	}
	return true
}

func bitmap(set []uint32, words int) []uint64 {
	b := make([]uint64, words)
	for _, pos := range set {
		if int(pos/64) < words {
			b[pos/64] |= 1 << (pos % 64)
		}
	}
	return b
}

func TestCluster_deathAndLeave(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	b := mustStart(t, "b", []string{a.Addr()}, nil)
	c := mustStart(t, "c", []string{a.Addr()}, nil)
	a.filters[0].Add(key(1))
	eventually(t, 5*time.Second, "a is known", func() bool {
		return b.Lookup(0, key(1)).Contains("a") && c.Lookup(0, key(1)).Contains("a")
	})
	a.stop()
	suspected := eventually(t, 5*time.Second, "b stops believing in a", func() bool { return b.stateOf("a") != StateAlive })
	dead := eventually(t, 6*time.Second, "a is found dead", func() bool {
		return b.stateOf("a") == StateFailed && c.stateOf("a") == StateFailed
	})
	t.Logf("suspected after %v, failed after %v", suspected, suspected+dead)
	if b.Lookup(0, key(1)).Contains("a") {
		t.Error("a dead member's filter is looked up")
	}
	if err := c.Leave(2 * time.Second); err != nil {
		t.Error(err)
	}
	eventually(t, 2*time.Second, "c has left", func() bool { return b.stateOf("c") == StateLeft })
}

// spread enters a change and waits for the members, until ctx ends.
func (n *testNode) spread(ctx context.Context, c Change) (id string, acked, missing []string, err error) {
	s, err := n.Spread(c)
	if err != nil {
		return "", nil, nil, err
	}
	s.Wait(ctx)
	for _, m := range s.Members() {
		if m.Applied {
			acked = append(acked, m.Name)
		} else {
			missing = append(missing, m.Name)
		}
	}
	return s.ID(), acked, missing, nil
}

func TestCluster_purge(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	b := mustStart(t, "b", []string{a.Addr()}, nil)
	c := mustStart(t, "c", []string{a.Addr()}, nil)
	eventually(t, 5*time.Second, "three members", func() bool { return a.Stats().Members[StateAlive] == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	p := Change{Kind: KindPurge, URLs: []string{"http://x/"}, Soft: true}
	id, acked, missing, err := a.spread(ctx, p)
	if !slices.Equal(acked, []string{"b", "c"}) || missing != nil || err != nil {
		t.Fatalf("acked %v, missing %v: %v", acked, missing, err)
	}
	for _, n := range []*testNode{a, b, c} {
		n.mu.Lock()
		if len(n.purges) != 1 || n.purges[0].ID != id || !n.purges[0].Soft || n.purges[0].URLs[0] != "http://x/" {
			t.Errorf("%s got %+v", n.cfg.Name, n.purges)
		}
		n.mu.Unlock()
	}
	c.stop()
	ctx, cancel = context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	_, acked, missing, _ = a.spread(ctx, Change{Kind: KindPurge, All: true})
	if !slices.Equal(acked, []string{"b"}) || !slices.Equal(missing, []string{"c"}) {
		t.Fatalf("acked %v, missing %v", acked, missing)
	}
}

// A request that begins once a purge holds here, be it before the purge's call
// is over, tells of it.
func TestCluster_carriesWhileItApplies(t *testing.T) {
	checkLeaks(t)
	var a atomic.Pointer[testNode]
	told := make(chan string, 1)
	a.Store(mustStart(t, "a", nil, func(c *Config) {
		keep := c.OnChange
		c.OnChange = func(ch Change) {
			keep(ch)
			told <- a.Load().Carry("b", func(*Change) bool { return true })
		}
	}))
	mustStart(t, "b", []string{a.Load().Addr()}, nil)
	eventually(t, 5*time.Second, "two members", func() bool { return a.Load().Stats().Members[StateAlive] == 2 })
	if _, err := a.Load().Spread(Change{Kind: KindPurge, URLs: []string{"http://x/"}}); err != nil {
		t.Fatal(err)
	}
	if <-told == "" {
		t.Error("b is not told")
	}
}

func TestCluster_wrongKey(t *testing.T) {
	checkLeaks(t)
	for _, tc := range []struct {
		name string
		keys [][]byte
	}{{"another key", [][]byte{bytes.Repeat([]byte{8}, 32)}}, {"no key", nil}} {
		t.Run(tc.name, func(t *testing.T) {
			a := mustStart(t, "a", nil, nil)
			b := mustStart(t, "b", []string{a.Addr()}, func(c *Config) { c.Keys = tc.keys })
			eventually(t, 3*time.Second, "both say why", func() bool {
				return strings.Contains(a.logs.String(), "cluster.key_file") && strings.Contains(b.logs.String(), "cluster.key_file")
			})
			if !strings.Contains(b.logs.String(), "remote="+a.Addr()) || !strings.Contains(a.logs.String(), "remote=127.0.0.1:") {
				t.Errorf("the remote address is not named:\n%s%s", a.logs, b.logs)
			}
			if len(a.Members()) != 1 || len(b.Members()) != 1 {
				t.Errorf("they joined: %v %v", a.Members(), b.Members())
			}
		})
	}
}

func TestCluster_duplicateName(t *testing.T) {
	checkLeaks(t)
	for _, through := range []string{"the node itself", "a third"} {
		t.Run(through, func(t *testing.T) {
			a := mustStart(t, "a", nil, nil)
			b := mustStart(t, "b", []string{a.Addr()}, nil)
			eventually(t, 5*time.Second, "two members", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
			seed := a
			if through == "a third" {
				seed = b
			}
			second, err := startNode(t, "a", []string{seed.Addr()}, nil)
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Addr != a.Addr() {
				t.Fatalf("got %v, want a conflict with %s", err, a.Addr())
			}
			if !strings.Contains(second.logs.String(), a.Addr()) {
				t.Errorf("the newcomer does not name the other:\n%s", second.logs)
			}
			eventually(t, 2*time.Second, "the first names the newcomer", func() bool {
				return strings.Contains(a.logs.String(), "another node has this node's name") && strings.Contains(a.logs.String(), "remote="+conflict.Local)
			})
			if b.stateOf("a") != StateAlive || a.stateOf("b") != StateAlive {
				t.Error("the members were disturbed")
			}
			if m, _ := b.member("a"); m.GossipAddr != a.Addr() {
				t.Errorf("b believes a to be at %s", m.GossipAddr)
			}
		})
	}
}

func TestCluster_portTaken(t *testing.T) {
	checkLeaks(t)
	a := mustStart(t, "a", nil, nil)
	_, err := startNode(t, "b", nil, func(c *Config) { c.Bind = a.Addr() })
	if err == nil || !strings.Contains(err.Error(), "cluster.gossip") || !strings.Contains(err.Error(), a.Addr()) {
		t.Fatalf("got %v", err)
	}
}

func TestCluster_rotatesKeys(t *testing.T) {
	checkLeaks(t)
	old, fresh := testKey, bytes.Repeat([]byte{9}, 32)
	a := mustStart(t, "a", nil, nil)
	b := mustStart(t, "b", []string{a.Addr()}, nil)
	stored := 0
	works := func(when string) {
		t.Helper()
		stored++
		a.filters[0].Add(key(stored))
		eventually(t, 5*time.Second, "records arrive "+when, func() bool { return b.Lookup(0, key(stored)).Contains("a") })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for _, n := range []*testNode{a, b} {
			if _, _, missing, _ := n.spread(ctx, Change{Kind: KindPurge, All: true}); missing != nil {
				t.Errorf("%s: %v miss %s's purge", when, missing, n.cfg.Name)
			}
		}
	}
	works("before")
	for _, keys := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
		for i, n := range []*testNode{a, b} {
			if err := n.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
			works(fmt.Sprintf("with %d keys on %d", len(keys), i+1))
		}
	}
	if err := a.SetKeys(nil); err == nil {
		t.Error("the keys can be taken away")
	}
	c := mustStart(t, "c", []string{a.Addr()}, nil) // still the old key
	eventually(t, 3*time.Second, "the old key is refused", func() bool { return strings.Contains(c.logs.String(), "cluster.key_file") })
}
