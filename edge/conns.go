package edge

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxHeldBytes bounds what the unfinished heads of one listener's connections
// hold together. A head within freeHeldBytes is not refused for it.
const (
	maxHeldBytes  = 64 << 20
	freeHeldBytes = 8 << 10
)

// A gate is a listener with a bounded number of connections, each of them read
// through a framer.
//
// When a connection comes and there are as many as may be, the one that has
// been idle longest is closed to make room, as keep-alive allows at any time
// (RFC 9112 §9.5). Idle is everything that net/http has no request of: what was
// never used, what waits for its next request, and what sends its head
// byte by byte, for the framer holds that back. Where all are at work, the
// new one waits, and those behind it in the kernel's queue. (The other design,
// to stop accepting, leaves the node to whoever opens connections and is
// silent.)
type gate struct {
	net.Listener
	limit   int
	refused func(reason string) // called once for a connection that is
	opened  func(delta float64) // the number of connections has changed
	evicted func()

	held atomic.Int64 // bytes of unfinished heads

	mu      sync.Mutex
	conns   map[*framedConn]struct{}
	closing bool          // what is not used yet is closed, also what still comes
	room    chan struct{} // holds one token when a connection has gone
	done    chan struct{}
	stop    sync.Once
}

func newGate(ln net.Listener, limit int) *gate {
	return &gate{
		Listener: ln, limit: limit,
		refused: func(string) {}, opened: func(float64) {}, evicted: func() {},
		conns: map[*framedConn]struct{}{}, room: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Accept waits for a connection and for room for it. For one goroutine.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f := &framedConn{Conn: c, gate: g}
	f.idleSince.Store(time.Now().UnixNano())
	for !g.take(f) {
		if idlest := g.idlest(); idlest != nil {
			g.evicted()
			idlest.Close()
			continue
		}
		select {
		case <-g.room:
		case <-g.done:
			c.Close()
			return nil, net.ErrClosed
		}
	}
	return f, nil
}

// Close ends Accept, also one that waits for room. It may be called twice.
func (g *gate) Close() (err error) {
	g.stop.Do(func() {
		close(g.done)
		err = g.Listener.Close()
	})
	return err
}

func (g *gate) take(c *framedConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.conns) >= g.limit {
		return false
	}
	g.conns[c] = struct{}{}
	g.opened(1)
	return true
}

// leave takes a closed connection out.
func (g *gate) leave(c *framedConn) {
	g.mu.Lock()
	_, in := g.conns[c]
	delete(g.conns, c)
	g.mu.Unlock()
	if !in {
		return
	}
	g.opened(-1)
	select {
	case g.room <- struct{}{}:
	default:
	}
}

// idlest returns the connection that has been idle longest; nil when none is.
// It looks at all of them (some 60 ns each), which only a full gate pays for.
func (g *gate) idlest() (c *framedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var since int64
	for f := range g.conns {
		if at := f.idleSince.Load(); at != 0 && (c == nil || at < since) {
			c, since = f, at
		}
	}
	return c
}

// closeFresh closes the connections that have brought no request yet, and those
// that are still accepted: browsers and peers keep such in store, and a stop
// would wait five seconds for each.
func (g *gate) closeFresh() {
	g.mu.Lock()
	g.closing = true
	var fresh []*framedConn
	for f := range g.conns {
		if !f.used.Load() {
			fresh = append(fresh, f)
		}
	}
	g.mu.Unlock()
	for _, f := range fresh {
		f.Close()
	}
}

// connKey is where a request's connection is in its context.
type connKey struct{}

// withConn is an http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection that a request came over; nil when it came by
// none of a gate.
func connOf(r *http.Request) *framedConn {
	c, _ := r.Context().Value(connKey{}).(*framedConn)
	return c
}

// track is an http.Server's ConnState.
func (g *gate) track(c net.Conn, s http.ConnState) {
	f, ok := c.(*framedConn)
	if !ok {
		return
	}
	switch s {
	case http.StateNew:
		g.mu.Lock()
		closing := g.closing
		g.mu.Unlock()
		if closing {
			f.Close()
		}
	case http.StateIdle:
		f.idleSince.Store(time.Now().UnixNano())
	case http.StateActive, http.StateHijacked:
		f.used.Store(true)
		f.idleSince.Store(0)
	}
}
