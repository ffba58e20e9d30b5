package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/peerfilter"
)

// inBubble runs f in a synctest bubble; not for tests that run in parallel.
// Under the race detector it has one processor: the runtime executes all due
// timers of a bubble in one context of the detector, which two goroutines that
// look at two due tickers at once corrupt (Go 1.26: "ThreadSanitizer: CHECK
// failed", or a SIGSEGV under maybeRunChan; 5 of 5 runs of 200 goroutines that
// sleep past a timer and poll it). What it finds are missing orders, not
// collisions, so it finds as much on one.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}

// memNet is a network inside one process: packets that are delayed, lost and
// parted, and streams that are cut. For synctest bubbles.
type memNet struct {
	mu     sync.Mutex
	rng    *rand.Rand
	loss   float64
	parted func(from, to string) bool // hosts
	deaf   map[string]bool            // hosts that get no packets, but streams
	hosts  map[string]*memHost
	conns  map[*memConn]struct{}
}

// memHost is one host: its membership and its HTTP listener.
type memHost struct {
	net     *memNet
	ip      string
	packets chan *memberlist.Packet
	streams chan net.Conn
	http    chan net.Conn
	done    chan struct{}
	once    sync.Once
}

type memConn struct {
	net.Conn
	net      *memNet
	from, to string
}

func newMemNet(seed uint64) *memNet {
	return &memNet{
		rng: rand.New(rand.NewPCG(seed, 3)), parted: func(string, string) bool { return false },
		deaf: map[string]bool{}, hosts: map[string]*memHost{}, conns: map[*memConn]struct{}{},
	}
}

func (n *memNet) host(ip string) *memHost {
	h := &memHost{
		net: n, ip: ip, packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn),
		http: make(chan net.Conn), done: make(chan struct{}),
	}
	n.mu.Lock()
	n.hosts[ip] = h
	n.mu.Unlock()
	return h
}

// part changes who can reach whom; streams between parted hosts are cut.
func (n *memNet) part(parted func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parted = parted
	for c := range n.conns {
		if parted(c.from, c.to) || parted(c.to, c.from) {
			c.Conn.Close()
			delete(n.conns, c)
		}
	}
}

// deafen makes a host lose all packets to it, or end that.
func (n *memNet) deafen(ip string, deaf bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf[ip] = deaf
}

// to finds a host that can be reached.
func (n *memNet) to(from, addr string) *memHost {
	ip, _, _ := net.SplitHostPort(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.parted(from, ip) {
		return nil
	}
	return n.hosts[ip]
}

func (h *memHost) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(h.ip).To4(), 7946, nil
}

func (h *memHost) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	to := h.net.to(h.ip, addr)
	h.net.mu.Lock()
	lost := h.net.rng.Float64() < h.net.loss || to != nil && h.net.deaf[to.ip]
	delay := 200*time.Microsecond + time.Duration(h.net.rng.Int64N(int64(time.Millisecond)))
	h.net.mu.Unlock()
	if to == nil || lost {
		return now, nil
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: &net.UDPAddr{IP: net.ParseIP(h.ip), Port: 7946}}
	time.AfterFunc(delay, func() {
		p.Timestamp = time.Now()
		select {
		case to.packets <- p:
		case <-to.done:
		default:
		}
	})
	return now, nil
}

var errUnreachable = errors.New("unreachable")

func (h *memHost) dial(ctx context.Context, addr string, listener func(*memHost) chan net.Conn) (net.Conn, error) {
	to := h.net.to(h.ip, addr)
	if to == nil {
		<-ctx.Done()
		return nil, errUnreachable
	}
	a, b := net.Pipe()
	c := &memConn{a, h.net, h.ip, to.ip}
	select {
	case listener(to) <- b:
	case <-to.done:
		return nil, errUnreachable
	case <-ctx.Done():
		return nil, errUnreachable
	}
	h.net.mu.Lock()
	h.net.conns[c] = struct{}{}
	h.net.mu.Unlock()
	return c, nil
}

func (c *memConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

func (h *memHost) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return h.dial(ctx, addr, func(h *memHost) chan net.Conn { return h.streams })
}

func (h *memHost) dialHTTP(ctx context.Context, _, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return h.dial(ctx, addr, func(h *memHost) chan net.Conn { return h.http })
}

func (h *memHost) PacketCh() <-chan *memberlist.Packet { return h.packets }
func (h *memHost) StreamCh() <-chan net.Conn           { return h.streams }

// Shutdown takes the host off the network.
func (h *memHost) Shutdown() error {
	h.once.Do(func() {
		h.net.mu.Lock()
		if h.net.hosts[h.ip] == h {
			delete(h.net.hosts, h.ip)
		}
		h.net.mu.Unlock()
		close(h.done)
	})
	return nil
}

func (h *memHost) Accept() (net.Conn, error) {
	select {
	case c := <-h.http:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *memHost) Close() error   { return nil }
func (h *memHost) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(h.ip), Port: 80} }

// bubble is a cluster in a synctest bubble.
type bubble struct {
	t     *testing.T
	net   *memNet
	nodes []*testNode
}

func (b *bubble) ip(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250+1) }

// start starts member i, which joins the first one.
func (b *bubble) start(i int, change func(*Config)) *testNode {
	b.t.Helper()
	h := b.net.host(b.ip(i))
	n := &testNode{logs: &logBuffer{}}
	cfg := testConfig(fmt.Sprintf("n%03d", i))
	cfg.transport, cfg.dial = h, h.dialHTTP
	cfg.PeerAddr = h.ip + ":80"
	cfg.Join = []string{b.ip(0) + ":7946"}
	cfg.Logger = slog.New(slog.NewTextHandler(n.logs, nil))
	if change != nil {
		change(&cfg)
	}
	var err error
	if n.Gossip, err = New(cfg); err != nil {
		b.t.Fatal(err)
	}
	n.server = &http.Server{Handler: n.Handler()}
	go n.server.Serve(h)
	for k, p := range cfg.Partitions {
		c, err := peerfilter.NewCounting(p.Params)
		if err != nil {
			b.t.Fatal(err)
		}
		n.filters = append(n.filters, c)
		n.Publish(k, c)
	}
	b.nodes = append(b.nodes, n)
	return n
}

// stop ends everything and waits for the last timers of the library.
func (b *bubble) stop() {
	for _, n := range b.nodes {
		n.stop()
	}
	time.Sleep(time.Minute)
}

// until lets virtual time pass until cond holds, and returns how much.
func (b *bubble) until(within time.Duration, what string, cond func() bool) time.Duration {
	b.t.Helper()
	start := time.Now()
	for !cond() {
		if time.Since(start) > within {
			b.t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
	}
	return time.Since(start)
}

func TestBubble_quietClusterSuspectsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(2)}
		defer b.stop()
		b.net.loss = 0.01
		for i := range 5 {
			b.start(i, nil)
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, 5) })
		time.Sleep(5 * time.Minute)
		for _, n := range b.nodes {
			s := n.Stats()
			if s.Members[StateAlive] != 5 || s.Diverged > 0 {
				t.Errorf("%s: %+v", n.cfg.Name, s.Members)
			}
			for _, r := range s.Replicas {
				if r.State != ReplicaLive || r.Age > 5*time.Second {
					t.Errorf("%s of %s: %s, %v old", n.cfg.Name, r.Member, r.State, r.Age)
				}
			}
		}
	})
}

func TestBubble_restart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		moved bool
		limit time.Duration
	}{{"same address", false, 3 * time.Second}, {"another address", true, 20 * time.Second}} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &bubble{t: t, net: newMemNet(3)}
				defer b.stop()
				for i := range 3 {
					b.start(i, nil)
				}
				old := b.nodes[2]
				old.filters[0].Add(key(1))
				a := b.nodes[0]
				b.until(5*time.Second, "the key is known", func() bool { return a.Lookup(0, key(1)).Contains("n002") })
				old.stop()
				b.nodes = b.nodes[:2]
				place := 2
				if tc.moved {
					place = 7
				}
				fresh := b.start(place, func(c *Config) { c.Name = "n002" })
				fresh.filters[0].Add(key(2))
				took := b.until(tc.limit, "the new process's key is known", func() bool { return a.Lookup(0, key(2)).Contains("n002") })
				t.Logf("known after %v", took)
				if a.Lookup(0, key(1)).Contains("n002") {
					t.Error("the old process's key is still known")
				}
				b.until(tc.limit, "all alive", func() bool { return allAlive(b.nodes, 3) })
			})
		})
	}
}
