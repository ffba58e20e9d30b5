package gossip

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/peerfilter"
)

var (
	memberPeers = flag.Int("member.peers", 3, "peers of the measured member")
	memberFills = flag.Int("member.fills", 1000, "responses that it and each peer store and evict a second")
	memberKeys  = flag.Int("member.keys", 10_000, "responses that it and each peer hold; a filter has 22 bits for each")
	memberTime  = flag.Duration("member.time", time.Second, "how long it is measured")
	standIns    = flag.String("standins", "", "be the peers of the member with this gossip address, until killed")
)

// TestMain also is the other process of BenchmarkMember.
func TestMain(m *testing.M) {
	flag.Parse()
	if *standIns != "" {
		if err := beStandIns(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func memberParams() peerfilter.Params {
	return peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: uint32(*memberKeys*22/512 + 1)}
}

// fullFilter holds memberKeys keys.
func fullFilter(rng *rand.Rand) (*peerfilter.Counting, []peerfilter.Hash, error) {
	c, err := peerfilter.NewCounting(memberParams())
	if err != nil {
		return nil, nil, err
	}
	keys := make([]peerfilter.Hash, *memberKeys)
	for i := range keys {
		keys[i] = peerfilter.Hash{rng.Uint64(), rng.Uint64()}
		c.Add(keys[i])
	}
	return c, keys, nil
}

// churn stores and evicts at memberFills a second until done.
func churn(c *peerfilter.Counting, keys []peerfilter.Hash, rng *rand.Rand, done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	stored, start := 0, time.Now()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		for due := int(time.Since(start).Seconds() * float64(*memberFills)); stored < due; stored++ {
			h, i := peerfilter.Hash{rng.Uint64(), rng.Uint64()}, rng.IntN(len(keys))
			c.Add(h)
			c.Remove(keys[i])
			keys[i] = h
		}
	}
}

// BenchmarkMember: the processor time of one member, with real sockets and in
// a process of its own: what it takes to publish its filter to all peers and to
// apply what they publish. The peers live in another process and are stand-ins:
// to the member they are as real ones, but of the records they hear only the
// member's, and keep none, so that one machine can hold many of them. The
// storing and evicting itself is measured too, and taken off.
func BenchmarkMember(b *testing.B) {
	for b.Loop() {
		measureMember(b)
	}
}

func measureMember(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	cfg := testConfig("m")
	cfg.PeerAddr = l.Addr().String()
	cfg.Partitions = []Partition{{Name: "all", Params: memberParams()}}
	g, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: g.Handler()}
	go server.Serve(l)
	defer server.Close()
	defer g.Close()
	rng := rand.New(rand.NewPCG(1, 9))
	filter, keys, err := fullFilter(rng)
	if err != nil {
		b.Fatal(err)
	}
	g.Publish(0, filter)

	// What the cache does anyway.
	done := make(chan struct{})
	time.AfterFunc(*memberTime, func() { close(done) })
	cpu := cpuTime(b)
	churn(filter, keys, rng, done)
	storing := cpuTime(b) - cpu

	child := exec.Command(os.Args[0], "-standins="+g.Addr(), fmt.Sprintf("-member.peers=%d", *memberPeers),
		fmt.Sprintf("-member.fills=%d", *memberFills), fmt.Sprintf("-member.keys=%d", *memberKeys))
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe() // its end ends the child
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		stdin.Close()
		child.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatalf("the peers say %q: %v", line, err)
	}
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for live := 0; live < *memberPeers; {
		if time.Now().After(deadline) {
			b.Fatalf("%d replicas are live", live)
		}
		<-tick.C
		live = 0
		for _, r := range g.Stats().Replicas {
			if r.State == ReplicaLive {
				live++
			}
		}
	}

	runtime.GC()
	before := g.Stats()
	done = make(chan struct{})
	time.AfterFunc(*memberTime, func() { close(done) })
	began := time.Now()
	cpu = cpuTime(b)
	churn(filter, keys, rng, done)
	spent, took := cpuTime(b)-cpu, time.Since(began).Seconds()
	after := g.Stats()
	sent := after.Sent[kindDelta].Messages + after.Sent[kindHead].Messages - before.Sent[kindDelta].Messages - before.Sent[kindHead].Messages
	b.ReportMetric(spent.Seconds()/took*100, "%core")
	b.ReportMetric((spent-storing).Seconds()/took*100, "%core-gossip")
	b.ReportMetric(float64(sent)/took, "messages/s")
	b.ReportMetric(float64(after.Sent[kindDelta].Bytes-before.Sent[kindDelta].Bytes)/took, "bytes/s")
	b.ReportMetric(float64(after.Applied-before.Applied)/took, "records-applied/s")
	if d := after.Diverged + after.Drops[dropInbox] + after.Drops[dropRecord]; d > 0 || after.Members[StateAlive] != *memberPeers+1 {
		b.Errorf("%d diverged or dropped, members %v", d, after.Members)
	}
}

// standIn is one of the peers of BenchmarkMember: a Gossip without its loops.
type standIn struct {
	*Gossip
	filter *peerfilter.Counting
	keys   []peerfilter.Hash
	node   *memberlist.Node // the measured one
}

// beStandIns is the process of the stand-ins.
func beStandIns() error {
	done := make(chan struct{})
	for i := range *memberPeers {
		rng := rand.New(rand.NewPCG(uint64(i), 9))
		s, err := newStandIn(fmt.Sprintf("p%03d", i), rng)
		if err != nil {
			return err
		}
		go s.run(done)
		go churn(s.filter, s.keys, rng, done)
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
	return nil
}

func newStandIn(name string, rng *rand.Rand) (*standIn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cfg := testConfig(name)
	cfg.PeerAddr = l.Addr().String()
	cfg.Partitions = []Partition{{Name: "all", Params: memberParams()}}
	cfg = cfg.withDefaults()
	g := &Gossip{
		cfg: cfg, log: slog.New(slog.DiscardHandler), start: time.Now(), in: newInbox(),
		snapshotsOut: make(chan struct{}, maxSnapshotsOut), refusals: map[string]uint64{},
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.lines = newLines(g.log, func(string) {})
	if g.auth, err = newAuthenticator(name, cfg.Keys); err != nil {
		return nil, err
	}
	g.core, err = newCore(coreConfig{
		name: name, newest: frameVersion, boot: cfg.Boot, role: cfg.Role, peerAddr: cfg.PeerAddr, seedMark: seedMark(cfg.Seed),
		partitions: cfg.Partitions, flush: cfg.FlushInterval, rateLimit: cfg.RateLimit,
	}, rng)
	if err != nil {
		return nil, err
	}
	s := &standIn{Gossip: g}
	if s.filter, s.keys, err = fullFilter(rng); err != nil {
		return nil, err
	}
	g.core.publish(0, 0, peerfilter.NewShadow(s.filter))
	g.delegate = &delegate{in: g.in, log: newInbox(), name: name}
	meta, heads := g.core.nodeMeta().append(nil), appendHeads(nil, nil)
	g.delegate.meta.Store(&meta)
	g.delegate.heads.Store(&heads)
	if err := g.listen(); err != nil {
		return nil, err
	}
	go (&http.Server{Handler: g.Handler()}).Serve(l)
	_, err = g.list.Join([]string{*standIns})
	return s, err
}

// run drives the core, which knows of no other member than the measured one,
// and of that one no filter. With as many members as there are it would flush
// less often, so it does.
func (s *standIn) run(done <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	s.core.cfg.flush = max(s.core.cfg.flush, time.Duration(*memberPeers+1)*flushPerMember)
	drops := map[string]uint64{}
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.delegate.log.take(drops) // purges are not its concern
		s.mu.Lock()
		for _, e := range s.in.take(drops) {
			if e.up == nil || strings.HasPrefix(e.up.Name, "p") {
				continue
			}
			meta, err := decodeMeta(e.up.Meta)
			if err != nil {
				continue
			}
			meta.parts = nil
			s.core.memberUp(s.now(), e.up.Name, e.up.Address(), meta)
			s.node = e.up
		}
		if _, p := s.core.find("m"); p != nil {
			p.lastHeard = s.now()
		}
		s.core.tick(s.now())
		s.core.deadline()
		effects := s.core.take()
		s.mu.Unlock()
		for _, e := range effects {
			m, ok := e.(sendEffect)
			if !ok {
				continue
			}
			go func() {
				send := s.list.SendBestEffort
				if m.reliable {
					send = s.list.SendReliable
				}
				err := send(s.node, m.payload)
				s.do(func(now time.Duration) { s.core.sent(now, m.to, err) })
			}()
		}
	}
}
