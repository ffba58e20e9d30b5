package gossip

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// joinWait is how long New waits for the first try to join.
const joinWait = time.Second

// memberlistConfig is the library's configuration, made anew for each member.
//
// Failure detection. With probes every ProbeInterval p (500 ms) a dead member
// of a cluster of three is probed after 3p at the latest, the probe fails
// after p, and the suspicion lasts SuspicionMult (4) * max(1, log10 N) * p: 4 s
// at the worst, 3 s as a rule, and 4.8 s in a cluster of 64. The library's
// default of p = 1 s would take twice as long. A live member is declared dead
// wrongly only if it answers neither by UDP nor by TCP nor through others for
// p, and then does not refute the suspicion for 2 s more; and if that happens
// it costs a short time in which its filter is not used. On a slow machine
// the library stretches p up to eight times by itself.
func (g *Gossip) memberlistConfig() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = g.cfg.Name
	c.Label = g.cfg.label()
	c.ProbeInterval = g.cfg.ProbeInterval
	c.ProbeTimeout = g.cfg.ProbeTimeout
	c.SuspicionMult = 4
	c.GossipInterval = 100 * time.Millisecond
	c.GossipNodes = 3
	c.RetransmitMult = 6 // see core.strange
	c.PushPullInterval = 15 * time.Second
	c.TCPTimeout = 3 * time.Second
	c.HandoffQueueDepth = 4096
	c.GossipToTheDeadTime = time.Minute
	// A restarted node with another address takes its name back this long
	// after the others found it dead. It can be short: a second node with a
	// live member's name refuses to start.
	c.DeadNodeReclaimTime = 5 * time.Second
	c.RequireNodeNames = false
	// Compression costs twice the processor time and makes filters longer. A
	// packet above 1400 bytes is corrupted by piggybacking in v0.7.0.
	c.EnableCompression = false
	c.UDPBufferSize = 1400
	c.Logger = log.New(g.lines, "", 0)
	c.Delegate = g.delegate
	c.Events = g.delegate
	c.Conflict = g.delegate
	c.Alive = g.delegate
	return c
}

// listen binds the address and starts membership, alone.
func (g *Gossip) listen() error {
	c := g.memberlistConfig()
	if len(g.cfg.Keys) > 0 {
		var err error
		if g.keyring, err = memberlist.NewKeyring(g.cfg.Keys, g.cfg.Keys[0]); err != nil {
			return fmt.Errorf("cluster.key_file: %w", err)
		}
		c.Keyring = g.keyring
	}
	c.Transport = g.cfg.transport
	if c.Transport == nil {
		addr, err := net.ResolveTCPAddr("tcp", g.cfg.Bind)
		if err != nil {
			return fmt.Errorf("cluster.gossip: %q: %w", g.cfg.Bind, err)
		}
		ip := addr.IP
		if ip == nil {
			ip = net.IPv4zero
		}
		t, err := bind(ip, addr.Port, c.Logger)
		if err != nil {
			return fmt.Errorf("cluster.gossip: cannot listen on %s: %w", g.cfg.Bind, err)
		}
		c.Transport = transport{t, g.ctx}
		c.BindAddr, c.BindPort = ip.String(), t.GetAutoBindPort()
		c.AdvertisePort = c.BindPort
		switch {
		case g.cfg.Advertise != "":
			c.AdvertiseAddr = g.cfg.Advertise
		case ip.IsUnspecified():
			c.AdvertiseAddr = localIP().String()
		}
	}
	list, err := memberlist.Create(c)
	if err != nil {
		c.Transport.Shutdown()
		return fmt.Errorf("cluster.gossip: start membership: %w", err)
	}
	g.list = list
	g.addr = list.LocalNode().Address()
	return nil
}

// bind listens on UDP and TCP. A free port for one may be taken for the other,
// so it tries again when it may choose.
func bind(ip net.IP, port int, logger *log.Logger) (*memberlist.NetTransport, error) {
	tries := 1
	if port == 0 {
		tries = 10
	}
	var err error
	for range tries {
		var t *memberlist.NetTransport
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{ip.String()}, BindPort: port, Logger: logger})
		if err == nil {
			return t, nil
		}
	}
	return nil, err
}

// localIP is an address of this machine by which others may reach it: a
// private one if there is one.
func localIP() net.IP {
	best := net.IPv4(127, 0, 0, 1)
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return best
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if n.IP.IsPrivate() && n.IP.To4() != nil {
			return n.IP
		}
		if best.IsLoopback() {
			best = n.IP
		}
	}
	return best
}

// rejoinLoop tries members that should be there and are not: membership
// itself forgets the dead, and a healed partition would never grow together.
func (g *Gossip) rejoinLoop() {
	j := joiner{g: g, logged: map[string]time.Time{}, settled: len(g.cfg.Join) == 0}
	j.join(append(g.seeds(), g.cfg.Known...))
	close(g.joined)
	if g.cfg.noRejoin {
		return
	}
	wait := time.Second
	var next time.Time // of the next try, or zero
	for {
		alone := g.alone() && len(g.cfg.Join) > 0
		d := g.cfg.RejoinInterval/2 + rand.N(g.cfg.RejoinInterval)
		switch {
		case j.unsure:
			d = min(d, unsureInterval)
		case alone:
			d = min(d, wait/2+rand.N(wait))
		case g.suspects():
			d = min(d, suspectInterval/2+rand.N(suspectInterval))
		default:
			wait = time.Second
		}
		if at := time.Now().Add(d); next.IsZero() || at.Before(next) {
			next = at
		}
		select {
		case <-g.done:
			return
		case <-g.wakeRejoin:
			continue // the news may be that we are alone
		case <-time.After(time.Until(next)):
		}
		next = time.Time{}
		if alone {
			wait = min(2*wait, g.cfg.RejoinInterval)
		}
		if g.left.Load() {
			return
		}
		if g.suspects() {
			g.do(func(time.Duration) { g.core.ask(g.core.anyAddr()) })
		}
		targets := g.absent()
		if alone || j.unsure {
			targets = append(targets, g.seeds()...)
		} else if len(targets) > 1 {
			i := rand.IntN(len(targets))
			targets = targets[i : i+1]
		}
		j.join(targets)
	}
}

// exchangeLoop exchanges states with the members that the core wants to ask.
func (g *Gossip) exchangeLoop() {
	for {
		select {
		case <-g.done:
			return
		case addr := <-g.exchanges:
			if g.left.Load() {
				return
			}
			_, _ = g.list.Join([]string{addr}) // it is tried again
		}
	}
}

// suspectInterval is how often, +-50 %, members that are suspected are among
// those that are tried. One that is dead is found to have failed before.
const suspectInterval = 4 * time.Second

// suspects reports whether a member is suspected.
func (g *Gossip) suspects() bool {
	for _, m := range *g.members.Load() {
		if m.State == StateSuspect {
			return true
		}
	}
	return false
}

// alone reports whether no other member is alive. One that is suspected does
// not count: members that do not hold us for one of them say nothing to us.
func (g *Gossip) alone() bool {
	for _, m := range *g.members.Load() {
		if m.Name != g.cfg.Name && m.State == StateAlive {
			return false
		}
	}
	return true
}

// seeds looks up all addresses of cfg.Join but our own. It does so at every
// try: where members are found by a name of DNS, they move.
func (g *Gossip) seeds() []string {
	var addrs []string
	for _, j := range g.cfg.Join {
		host, port, err := net.SplitHostPort(j)
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(port); err != nil || n <= 0 || n > 65535 {
			continue
		}
		ips := []string{host}
		if net.ParseIP(host) == nil {
			ctx, cancel := context.WithTimeout(g.ctx, 2*time.Second)
			ips, err = g.cfg.lookup(ctx, host)
			cancel()
			if err != nil {
				if skipped, ok := g.lines.allow("lookup " + j); ok && g.ctx.Err() == nil {
					g.log.Warn("a member to join cannot be looked up", "join", j, "error", err, "skipped", skipped)
				}
				continue
			}
		}
		for _, ip := range ips {
			if a := net.JoinHostPort(ip, port); a != g.addr {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// absent returns the addresses of failed members, of seeds that are no live
// member's, and of members that are suspected. Such a one may be well, and never
// have heard of us: membership's news reach everyone only most of the time,
// and its exchange of states takes a minute to find that out.
func (g *Gossip) absent() []string {
	live := map[string]bool{}
	var addrs []string
	for _, m := range *g.members.Load() {
		switch m.State {
		case StateAlive:
			live[m.GossipAddr] = true
		case StateSuspect:
			live[m.GossipAddr] = true
			addrs = append(addrs, m.GossipAddr)
		case StateFailed:
			addrs = append(addrs, m.GossipAddr)
		}
	}
	known := map[string]bool{}
	for _, a := range addrs {
		known[a] = true
	}
	for _, a := range g.seeds() {
		if !live[a] && !known[a] {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// joiner is what the rejoin loop remembers.
type joiner struct {
	g       *Gossip
	logged  map[string]time.Time // when a failure was logged, by address
	settled bool                 // we have been part of the cluster: our name is ours
	unsure  bool                 // the cluster holds somebody else for us
}

// join exchanges states with the members at addrs.
func (j *joiner) join(addrs []string) {
	g := j.g
	for _, a := range addrs {
		if g.ctx.Err() != nil {
			return
		}
		g.mu.Lock()
		g.rejoins++
		g.mu.Unlock()
		g.delegate.taken.Store(nil)
		_, err := g.list.Join([]string{a})
		// By now the library has told of a conflict, if there is one.
		c := g.delegate.taken.Load()
		switch {
		case err != nil:
			j.failed(a, err)
		case c != nil && !j.settled:
			j.unsure = true
			g.checkName(*c)
		case c == nil:
			j.settled, j.unsure = true, false
		}
	}
}

// failed logs that an address could not be joined, twice a minute at most.
func (j *joiner) failed(addr string, err error) {
	t, again := j.logged[addr]
	if again && time.Since(t) < 30*time.Second || j.g.ctx.Err() != nil {
		return
	}
	if len(j.logged) > 4*maxMembers {
		clear(j.logged)
	}
	j.logged[addr] = time.Now()
	if keyMismatch(err.Error()) {
		j.g.log.Error("a member refused this node, or was refused: it has another cluster key; give all members the same cluster.key_file",
			"remote", addr, "error", err)
		return
	}
	// At the start of a cluster everybody misses somebody: not worth a warning
	// before it lasts.
	level := slog.LevelInfo
	if again {
		level = slog.LevelWarn
	}
	j.g.log.Log(context.Background(), level, "a member cannot be joined, it is tried again", "remote", addr, "error", strings.Join(strings.Fields(err.Error()), " "))
}
