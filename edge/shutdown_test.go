package edge

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/gossip"
)

// A connection that was opened and never used holds nobody up. (Seen as
// "requests were cut" although there was none.)
func TestShutdown_unusedConnection(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	c, err := net.Dial("tcp", n.Addrs().Client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n.get(t, "/x").want(t, 200, "/x")
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second) // net/http itself would wait for five
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// A stop lets a request in flight end, and refuses new ones.
func TestShutdown_finishesRequests(t *testing.T) {
	arrived, gate := make(chan struct{}), make(chan struct{})
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-gate
		io.WriteString(w, "done")
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	got := make(chan answer)
	go func() { got <- n.get(t, "/x") }()
	<-arrived
	stopped := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		stopped <- n.Shutdown(ctx)
	}()
	eventually(t, "new connections are refused", func() bool {
		c, err := net.Dial("tcp", n.Addrs().Client)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(gate)
	(<-got).want(t, 200, "done")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	<-n.Done()
	if n.Err() != nil {
		t.Error(n.Err())
	}
}

// While a node stops, its answers say that the connection ends, so that a
// client on one that it keeps open does not lose its next request.
func TestShutdown_tellsOpenConnections(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	n.get(t, "/x").want(t, 200, "/x")
	c, err := net.Dial("tcp", n.Addrs().Client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(deadline))
	r := bufio.NewReader(c)
	ask := func() (*http.Response, error) {
		io.WriteString(c, "GET /x HTTP/1.1\r\nHost: www.example.com\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
		}
		return resp, err
	}
	if resp, err := ask(); err != nil || resp.Close {
		t.Fatalf("%v, %v", resp, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.Shutdown(context.Background()) }()
	eventually(t, "it drains", n.draining.Load)
	if resp, err := ask(); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("while it drains: %+v, %v", resp, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A client that closes its side after its request gets what there is, or
// nothing; never an answer that nobody gave. (Seen: an empty 200.)
func TestServe_halfClosedClient(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "content")
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	for i, method := range []string{"GET", "GET", "HEAD", "POST", "GET"} {
		c, err := net.Dial("tcp", n.Addrs().Client)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(deadline))
		io.WriteString(c, method+" /"+itoa(int64(i))+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		c.Close()
		if len(all) > 0 && !bytes.Contains(all, []byte("Cache-Status: edge-a")) {
			t.Errorf("%s was answered %q", method, all)
		}
	}
}

// The shield of a key hangs, and the cluster knows that it is gone: whoever
// waits for it gets the origin's answer.
func TestCluster_shieldHangsAndIsGone(t *testing.T) {
	o := newOrigin(t, content)
	cfg := testConfig("edge-a", o.URL)
	cfg.Sites[0].Shield = "ring"
	n := startNode(t, cfg)
	asked := make(chan struct{}, 1)
	hung := rawOrigin(t, func(c net.Conn) {
		asked <- struct{}{}
		io.Copy(io.Discard, c)
	})
	self := n.self()
	other := gossip.Member{Name: "edge-b", Role: "edge", State: gossip.StateAlive, PeerAddr: strings.TrimPrefix(hung, "http://")}
	n.membersChanged([]gossip.Member{self, other})
	got := make(chan answer, 1)
	path := ""
	for i := range 100 { // one that edge-b owns
		path = "/" + itoa(int64(i))
		if n.topo.Load().edges.Owner(n.keyOf("http://www.example.com"+path).Hash) == "edge-b" {
			break
		}
	}
	go func() { got <- n.get(t, path) }()
	for range 2 { // as a peer, whose replica is not known, and as the shield
		select {
		case <-asked:
		case <-time.After(deadline):
			t.Fatal("edge-b is not asked")
		}
	}
	other.State = gossip.StateSuspect
	n.membersChanged([]gossip.Member{self, other})
	(<-got).want(t, 200, path, "detail=origin")
}

// The requests in flight keep most of a short drain. (Seen: members that all
// stopped at once told each other for two of three seconds, and cut requests.)
func TestShutdown_leaveTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ drain, want time.Duration }{
			{time.Minute, 2 * time.Second},
			{3 * time.Second, 750 * time.Millisecond},
			{0, 0},
			{-time.Second, 0},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tc.drain)
			if got := leaveTime(ctx); got != tc.want {
				t.Errorf("of %v: %v, want %v", tc.drain, got, tc.want)
			}
			cancel()
		}
		if got := leaveTime(context.Background()); got != 2*time.Second {
			t.Errorf("without an end: %v", got)
		}
	})
}
