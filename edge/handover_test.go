package edge

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestListenerFiles_stayNonBlocking: when they did not, a process that had
// handed over hung in Close for as long as no other connection came.
func TestListenerFiles_stayNonBlocking(t *testing.T) {
	o := newOrigin(t, content)
	n := startNode(t, testConfig("edge-a", o.URL))
	client, peer, admin, err := n.ListenerFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer peer.Close()
	defer admin.Close()
	for i, f := range []interface{ Fd() uintptr }{client, peer, admin} {
		f.Fd() // as starting a process does
		conn, err := n.listeners[i].(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = conn.Control(func(fd uintptr) {
			flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
			if errno != 0 || flags&syscall.O_NONBLOCK == 0 {
				t.Errorf("listener %d: flags %#x, %v; want O_NONBLOCK", i, flags, errno)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.get(t, "/x").want(t, 200, "/x", "stored")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for _, g := range n.gates {
			n.handedOver.Store(true)
			g.Close()
		}
	}()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Fatal("the listeners do not close")
	}
}

// A process whose place in the cluster another one has hears of no purge and
// can tell of none: it validates before it answers from its store, remembers
// no absence, and refuses what is not safe. (Seen: 404s after a 201, and purged
// responses, for the half second until it ends.)
func TestRelease_trustsNothing(t *testing.T) {
	var exists atomic.Bool
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			t.Error("a write reached the origin")
		case r.URL.Path == "/new" && !exists.Load():
			http.NotFound(w, r)
		default:
			w.Header().Set("Cache-Control", "max-age=60")
			io.WriteString(w, fmt.Sprint(exists.Load()))
		}
	})
	for _, tc := range []struct {
		isolated     string
		stored, gone string // Cache-Status afterwards
	}{
		{"revalidate", "fwd=stale", "fwd=uri-miss; fwd-status=200"},
		{"serve", "hit", "detail=negative"},
	} {
		exists.Store(false)
		cfg := testConfig("edge-a", o.URL)
		cfg.Purge.Isolated = tc.isolated
		n := startNode(t, cfg)
		n.get(t, "/x").want(t, 200, "false", "stored")
		n.get(t, "/new").want(t, 404, "404 page not found\n")
		n.get(t, "/new").want(t, 404, "404 page not found\n", "detail=negative")
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		exists.Store(true)
		if s := n.get(t, "/x").cacheStatus(); !strings.Contains(s, tc.stored) {
			t.Errorf("%s: what is stored is answered with %q, want %q", tc.isolated, s, tc.stored)
		}
		if s := n.get(t, "/new").cacheStatus(); !strings.Contains(s, tc.gone) {
			t.Errorf("%s: what was absent is answered with %q, want %q", tc.isolated, s, tc.gone)
		}
		a := n.do(t, http.MethodPut, "/x", strings.NewReader("y"))
		a.want(t, 503, "503 Service Unavailable: this process hands over to another one: try again in a moment\n")
		if a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After %q", tc.isolated, a.header.Get("Retry-After"))
		}
	}
}
