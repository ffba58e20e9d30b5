package edge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// deadline bounds every wait for an event in these tests.
const deadline = 20 * time.Second

// testOrigin is an origin that counts what reaches it.
type testOrigin struct {
	*httptest.Server
	requests atomic.Int64
	mu       sync.Mutex
	heads    []http.Header
}

func newOrigin(t *testing.T, h http.HandlerFunc) *testOrigin {
	t.Helper()
	o := &testOrigin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.requests.Add(1)
		o.mu.Lock()
		o.heads = append(o.heads, r.Header.Clone())
		o.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// rawOrigin answers each connection as it likes.
func rawOrigin(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// testConfig is the configuration of one node on free loopback ports.
func testConfig(name, origin string) Config {
	return Config{
		Name: name, Listen: Listen{Address: "127.0.0.1:0"}, Admin: Admin{Address: "127.0.0.1:0"},
		Cluster: Cluster{Gossip: "127.0.0.1:0", Peer: "127.0.0.1:0"},
		Cache:   Cache{Memory: 32 << 20},
		Filter:  Filter{Keys: 20000},
		Sites:   []Site{{Name: "www", Origin: Origin{URLs: []string{origin}}}},
		Drain:   5 * time.Second,
	}
}

func startNode(t *testing.T, cfg Config) *Node {
	t.Helper()
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	defer func() { recover() }() // a line that comes after the test
	w.t.Logf("%s", p)
	return len(p), nil
}

// startCluster starts n nodes that know each other and each other's filters.
func startCluster(t *testing.T, n int, origin string, change func(*Config)) []*Node {
	t.Helper()
	var nodes []*Node
	for i := range n {
		cfg := testConfig(fmt.Sprintf("edge-%c", 'a'+i), origin)
		if i > 0 {
			cfg.Cluster.Join = []string{nodes[0].Addrs().Gossip}
		}
		if change != nil {
			change(&cfg)
		}
		nodes = append(nodes, startNode(t, cfg))
	}
	for _, node := range nodes {
		eventually(t, "all replicas live", func() bool { return node.liveReplicas() == n-1 })
	}
	return nodes
}

// liveReplicas counts the peers all of whose filters are in step here.
func (n *Node) liveReplicas() int {
	bad, seen := map[string]bool{}, map[string]bool{}
	for _, r := range n.gossip.Stats().Replicas {
		seen[r.Member] = true
		if r.State != "live" {
			bad[r.Member] = true
		}
	}
	return len(seen) - len(bad)
}

// eventually waits for an event, polling.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(deadline); ; {
		if ok() {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not in %v: %s", deadline, what)
		}
	}
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (a answer) cacheStatus() string { return a.header.Get("Cache-Status") }

// get asks a node for a path of www.example.com. Fields are "Name: value".
func (n *Node) get(t *testing.T, path string, fields ...string) answer {
	t.Helper()
	return n.do(t, http.MethodGet, path, nil, fields...)
}

func (n *Node) do(t *testing.T, method, path string, body io.Reader, fields ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addrs().Client+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "www.example.com"
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	resp, err := testClient.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

var testClient = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// want compares what matters of an answer.
func (a answer) want(t *testing.T, status int, body string, cacheStatus ...string) {
	t.Helper()
	if a.err != nil {
		t.Fatalf("no answer: %v", a.err)
	}
	if a.status != status || a.body != body {
		t.Errorf("got %d %q, want %d %q (Cache-Status %s)", a.status, short(a.body), status, short(body), a.cacheStatus())
	}
	for _, part := range cacheStatus {
		if !strings.Contains(a.cacheStatus(), part) {
			t.Errorf("Cache-Status is %q, want it to say %q", a.cacheStatus(), part)
		}
	}
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
