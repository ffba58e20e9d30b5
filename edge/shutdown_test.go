package edge

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
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
