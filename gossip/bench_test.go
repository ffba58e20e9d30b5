package gossip

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"edged/peerfilter"
)

var (
	soakNodes = flag.Int("soak.nodes", 3, "members of the soak")
	soakFills = flag.Int("soak.fills", 1000, "responses that each of them stores and evicts a second")
	soakTime  = flag.Duration("soak.time", time.Second, "how long")
)

// soakKeys is how many responses a member of the soak holds; its filter has 16 bits for each.
const soakKeys = 100_000

// cpuTime is the processor time that this process has taken.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSoak: members with real sockets, that store and evict at a fixed
// rate for a while. It fails when a live member is suspected or found dead, when
// a message is dropped on the way in, or when replicas are not equal soon after.
func BenchmarkSoak(b *testing.B) {
	for b.Loop() {
		soak(b)
	}
}

func soak(b *testing.B) {
	params := peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: soakKeys * 16 / 512}
	var nodes []*testNode
	for i := range *soakNodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		cfg := testConfig(fmt.Sprintf("n%02d", i))
		cfg.PeerAddr = l.Addr().String()
		cfg.Partitions = []Partition{{Name: "all", Params: params}}
		if i > 0 {
			cfg.Join = []string{nodes[0].Addr()}
		}
		n := &testNode{logs: &logBuffer{}}
		cfg.Logger = slog.New(slog.NewTextHandler(n.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if n.Gossip, err = New(cfg); err != nil {
			b.Fatal(err)
		}
		n.server = &http.Server{Handler: n.Handler()}
		go n.server.Serve(l)
		defer n.stop()
		c, err := peerfilter.NewCounting(params)
		if err != nil {
			b.Fatal(err)
		}
		n.filters = []*peerfilter.Counting{c}
		n.Publish(0, c)
		nodes = append(nodes, n)
	}
	wait := func(within time.Duration, what string, cond func() bool) time.Duration {
		start := time.Now()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for !cond() {
			if time.Since(start) > within {
				b.Fatalf("not within %v: %s", within, what)
			}
			<-tick.C
		}
		return time.Since(start)
	}
	wait(20*time.Second, "all joined", func() bool { return allAlive(nodes, len(nodes)) && equalHashes(nodes) })

	before := make([]Stats, len(nodes))
	for i, n := range nodes {
		before[i] = n.Stats()
	}
	waits, lost := schedWaits(), udpLost(b)
	cpu, start := cpuTime(b), time.Now()
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { fill(n.filters[0], uint64(i), start.Add(*soakTime)) })
	}
	wg.Wait()
	took := time.Since(start).Seconds()
	spent := (cpuTime(b) - cpu).Seconds()
	p999, worst := waits.since()
	lost = udpLost(b) - lost
	want := make([]uint64, len(nodes))
	for i, n := range nodes {
		shadow, tr := peerfilter.NewShadow(n.filters[0]), peerfilter.Transitions{}
		for shadow.Diff(&tr) {
		}
		want[i] = shadow.SetHash()
	}
	equal := wait(10*time.Second, "replicas equal", func() bool {
		for i, n := range nodes {
			if n.Stats().Streams[0].SetHash != want[i] {
				return false
			}
		}
		return equalHashes(nodes)
	})

	var suspicions, probes, diverged, dropped, sent, bytes float64
	for i, n := range nodes {
		s := n.Stats()
		suspicions += float64(s.Suspicions - before[i].Suspicions)
		probes += float64(strings.Count(n.logs.String(), "has failed, no acks"))
		diverged += float64(s.Diverged)
		dropped += float64(s.Drops[dropInbox] + s.LogDropped[lineQueue])
		if strings.Contains(n.logs.String(), "queue full") { // the first one is logged
			dropped++
		}
		for _, kind := range Kinds() {
			sent += float64(s.Sent[kind].Messages - before[i].Sent[kind].Messages)
			bytes += float64(s.Sent[kind].Bytes - before[i].Sent[kind].Bytes)
		}
		if s.Members[StateAlive] != len(nodes) {
			b.Errorf("%s holds %v", n.cfg.Name, s.Members)
		}
	}
	per := took * float64(len(nodes))
	b.ReportMetric(spent/per, "cores/member")
	b.ReportMetric(sent/per, "messages/s/member")
	b.ReportMetric(bytes/per, "bytes/s/member")
	b.ReportMetric(suspicions, "suspicions")
	b.ReportMetric(spent/took, "cores")
	b.ReportMetric(p999*1e3, "ms-to-run-p999")
	b.ReportMetric(worst*1e3, "ms-to-run-max")
	b.ReportMetric(dropped, "dropped")
	b.ReportMetric(equal.Seconds(), "s-to-equal")
	if suspicions > 0 || dropped > 0 || diverged > 0 {
		b.Errorf("%v suspicions, %v messages dropped, %v diverged; %v of the suspicions are probes that were not answered, the others silence; %.2f cores busy, a goroutine that could run waited %.0f ms (p99.9), %.0f ms (most); %d packets found the socket's buffer full",
			suspicions, dropped, diverged, probes, spent/took, p999*1e3, worst*1e3, lost)
	}
}

// fill stores and evicts at the soak's rate until the end.
func fill(c *peerfilter.Counting, seed uint64, end time.Time) {
	rng := rand.New(rand.NewPCG(seed, 5))
	keys := make([]peerfilter.Hash, 0, soakKeys)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for done, start := 0, time.Now(); time.Now().Before(end); {
		<-tick.C
		for due := int(time.Since(start).Seconds() * float64(*soakFills)); done < due; done++ {
			h := peerfilter.Hash{rng.Uint64(), rng.Uint64()}
			c.Add(h)
			if len(keys) < soakKeys {
				keys = append(keys, h)
				continue
			}
			i := rng.IntN(len(keys))
			c.Remove(keys[i])
			keys[i] = h
		}
	}
}

// waits are how long goroutines that could run have waited for a processor.
type waits struct{ sample []metrics.Sample }

func schedWaits() waits {
	w := waits{[]metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	metrics.Read(w.sample)
	return w
}

// since returns what one in a thousand has waited since, and the most, both rounded up.
func (w waits) since() (p999, most float64) {
	before := w.sample[0].Value.Float64Histogram()
	after := schedWaits().sample[0].Value.Float64Histogram()
	var all, sum uint64
	for i := range after.Counts {
		all += after.Counts[i] - before.Counts[i]
	}
	for i := range after.Counts {
		n := after.Counts[i] - before.Counts[i]
		if n == 0 {
			continue
		}
		if sum += n; sum*1000 < all*999 {
			continue
		}
		most = after.Buckets[i+1]
		if p999 == 0 {
			p999 = most
		}
	}
	return p999, most
}

// udpLost is how many packets of the machine did not fit into a socket's buffer.
func udpLost(b *testing.B) (n int) {
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Udp:" {
			continue
		}
		if i := slices.Index(names, "RcvbufErrors"); i >= 0 && i < len(fields) {
			n, _ = strconv.Atoi(fields[i])
		}
		names = fields
	}
	return n
}
