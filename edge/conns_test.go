package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener hands out connections without a network, so that a server can
// stand in a bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// gatedServer is a server behind a gate.
type gatedServer struct {
	*gate
	ln                      *pipeListener
	open, evictions, memory atomic.Int64
}

func startGated(t *testing.T, limit int, h http.HandlerFunc) *gatedServer {
	s := &gatedServer{ln: &pipeListener{make(chan net.Conn), make(chan struct{})}}
	s.gate = newGate(s.ln, limit)
	s.gate.opened = func(d float64) { s.open.Add(int64(d)) }
	s.gate.evicted = func() { s.evictions.Add(1) }
	s.gate.refused = func(reason string) {
		if reason == rejectMemory {
			s.memory.Add(1)
		}
	}
	srv := &http.Server{Handler: h, ConnState: s.track, MaxHeaderBytes: maxHeaderBytes}
	go srv.Serve(s.gate)
	t.Cleanup(func() { srv.Close() })
	return s
}

// dial connects; the server's end waits while the gate is full.
func (s *gatedServer) dial(t *testing.T) net.Conn {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close() })
	go func() { s.ln.conns <- there }()
	synctest.Wait()
	return here
}

// ask sends a request and returns the answer's content; "" for a closed
// connection.
func ask(t *testing.T, c net.Conn, target string) string {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target); err != nil {
		return ""
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// At the limit the connection that is idle longest makes room, whether it has
// been used or not; one that sends its head byte by byte is idle.
func TestGate_theIdlestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startGated(t, 3, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
		slow := s.dial(t)
		io.WriteString(slow, "GET / HTTP/1.1\r\n")
		time.Sleep(time.Second)
		used := s.dial(t)
		if got := ask(t, used, "/a"); got != "/a" {
			t.Fatalf("got %q", got)
		}
		time.Sleep(time.Second)
		fresh := s.dial(t)
		time.Sleep(time.Second)

		fourth := s.dial(t)
		if got := ask(t, fourth, "/b"); got != "/b" {
			t.Errorf("the fourth got %q", got)
		}
		if _, err := slow.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the slow head's connection: %v, want EOF", err)
		}
		if got := ask(t, used, "/c"); got != "/c" {
			t.Errorf("the used one got %q", got)
		}
		time.Sleep(time.Second)
		if got := ask(t, s.dial(t), "/d"); got != "/d" {
			t.Errorf("the fifth got %q", got)
		}
		if _, err := fresh.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the fresh connection: %v, want EOF", err)
		}
		synctest.Wait()
		if e, o := s.evictions.Load(), s.open.Load(); e != 2 || o != 3 {
			t.Errorf("%d evictions and %d open, want 2 and 3", e, o)
		}
	})
}

// Where all are at work, a new connection waits until one has gone.
func TestGate_waitsForThoseAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		s := startGated(t, 2, func(w http.ResponseWriter, r *http.Request) {
			<-let
			w.Header().Set("Connection", "close")
			io.WriteString(w, r.URL.Path)
		})
		got := make(chan string, 3)
		for i := range 3 {
			c := s.dial(t)
			go func() { got <- ask(t, c, fmt.Sprint("/", i)) }()
			synctest.Wait()
		}
		if e, o := s.evictions.Load(), s.open.Load(); e != 0 || o != 2 {
			t.Fatalf("%d open, %d evicted: want 2 and none", o, e)
		}
		close(let)
		answers := map[string]bool{<-got: true, <-got: true, <-got: true}
		for i := range 3 {
			if !answers[fmt.Sprint("/", i)] {
				t.Errorf("no answer /%d", i)
			}
		}
	})
}

// A gate that is closed while a connection waits for room lets go of it.
func TestGate_closedWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		defer close(let)
		s := startGated(t, 1, func(w http.ResponseWriter, r *http.Request) { <-let })
		busy := s.dial(t)
		io.WriteString(busy, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		synctest.Wait()
		waiting := s.dial(t)
		s.gate.Close()
		if _, err := waiting.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the waiting connection: %v, want EOF", err)
		}
	})
}

// Unfinished heads hold no more than their budget together: who comes above
// it is refused, small heads are not, and what has been closed counts no more.
func TestGate_unfinishedHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startGated(t, 10_000, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
		head := "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", maxHeaderBytes)
		n := maxHeldBytes/len(head) + 1
		var conns []net.Conn
		for range n {
			c := s.dial(t)
			go io.Copy(io.Discard, c)
			io.WriteString(c, head)
			conns = append(conns, c)
		}
		synctest.Wait()
		if m := s.memory.Load(); m != 1 {
			t.Errorf("%d of %d refused, want the last one", m, n)
		}
		if held := s.held.Load(); held > maxHeldBytes {
			t.Errorf("%d bytes held, want at most %d", held, maxHeldBytes)
		}
		if got := ask(t, s.dial(t), "/small"); got != "/small" {
			t.Errorf("a small head got %q", got)
		}
		for _, c := range conns {
			c.Close()
		}
		synctest.Wait()
		if held := s.held.Load(); held != 0 {
			t.Errorf("%d bytes held after all have gone", held)
		}
	})
}

// A connection that is closed while nobody reads it counts no more either.
func TestGate_closedBetweenReads(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	g := newGate(nil, 1)
	c := &framedConn{Conn: there, gate: g}
	go io.WriteString(here, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1")
	if _, err := io.ReadAtLeast(c, make([]byte, 4<<10), len("POST / HTTP/1.1")); err != nil {
		t.Fatal(err)
	}
	if g.held.Load() == 0 {
		t.Fatal("the half line is not counted: this test tests nothing")
	}
	c.Close()
	c.Close()
	if held := g.held.Load(); held != 0 {
		t.Errorf("%d bytes held after the close", held)
	}
}
