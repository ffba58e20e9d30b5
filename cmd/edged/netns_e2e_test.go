//go:build netns && linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edged/edge/admin"
)

// The limits within which a cluster is whole again, of the design's targets.
const (
	membersHeal  = 25 * time.Second
	replicasHeal = 40 * time.Second
)

const netnsNodes = 9

// netnsPrefix begins the names of all network namespaces of these tests; the
// test's process number follows.
const netnsPrefix = "edged-test-"

// A namespace is one network namespace that the test has made.
type namespace struct {
	t    *testing.T
	name string
}

// ip runs iproute2's command.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// newNamespace makes a namespace, in which nothing but loopback is up. The
// test's end removes it, with all that is in it.
func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	n := &namespace{t, fmt.Sprintf("%s%d-%s", netnsPrefix, os.Getpid(), name)}
	ip(t, "netns", "add", n.name)
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", n.name).CombinedOutput(); err != nil {
			t.Errorf("ip netns del %s: %v\n%s", n.name, err, out)
		}
	})
	n.ip("link", "set", "lo", "up")
	return n
}

func (n *namespace) ip(args ...string) {
	n.t.Helper()
	ip(n.t, append([]string{"-n", n.name}, args...)...)
}

// nft gives rules to the namespace's packet filter.
func (n *namespace) nft(rules string) {
	n.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", n.name, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("nft in %s: %v\n%s\n%s", n.name, err, out, rules)
	}
}

// do runs f on a thread that is in the namespace; sockets that f opens belong to it.
func (n *namespace) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer back.Close()
		ns, err := os.Open("/run/netns/" + n.name)
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter %s: %w", n.name, err)
			return
		}
		err = f()
		if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // else the thread ends with this goroutine
		}
		done <- err
	}()
	return <-done
}

// client is an HTTP client whose connections begin in the namespace.
func (n *namespace) client() *http.Client {
	tr := &http.Transport{
		MaxIdleConnsPerHost: 8,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = n.do(func() error {
				c, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}
	n.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Timeout: 15 * time.Second, Transport: tr}
}

// removeStale removes what earlier runs have left that were killed: the
// namespaces of test processes that are no more, and what runs inside.
func removeStale(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return // none was ever made
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), netnsPrefix)
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if !ours || err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		out, _ := exec.Command("ip", "netns", "pids", e.Name()).Output()
		for _, f := range strings.Fields(string(out)) {
			if pid, err := strconv.Atoi(f); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		ip(t, "netns", "del", e.Name())
	}
}

// netCluster is a cluster of which each node has a network namespace, a
// network stack and an address of its own. A bridge in another namespace
// connects them, and the origin is there too.
type netCluster struct {
	t      *testing.T
	dir    string
	key    string
	origin string
	nodes  []*netNode
	load   *netLoad
}

// netNode is one node of it; child is its present process.
type netNode struct {
	*namespace
	*child
	index  int
	addr   string
	file   string
	client *http.Client
	down   atomic.Bool
}

func newNetCluster(t *testing.T) *netCluster {
	return newNetClusterOf(t, netnsNodes, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		io.WriteString(w, "this is "+r.URL.Path)
	}))
}

// newNetClusterOf makes one of a number of nodes before an origin. Each keeps
// its log of purges on disk.
func newNetClusterOf(t *testing.T, nodes int, origin http.Handler) *netCluster {
	t.Helper()
	removeStale(t)
	c := &netCluster{t: t, dir: t.TempDir()}
	c.key = filepath.Join(c.dir, "cluster.key")
	if got := command(t, "", "keygen", "-o", c.key); got.code != exitOK {
		t.Fatal(got.errOut)
	}
	hub := newNamespace(t, "hub")
	hub.ip("link", "add", "br0", "type", "bridge")
	hub.ip("addr", "add", "10.77.0.254/24", "dev", "br0")
	hub.ip("link", "set", "br0", "up")
	c.startOrigin(hub, origin)
	for i := range nodes {
		n := &netNode{namespace: newNamespace(t, fmt.Sprint(i)), index: i, addr: fmt.Sprintf("10.77.0.%d", i+1)}
		port := fmt.Sprintf("veth%d", i)
		hub.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", n.name)
		hub.ip("link", "set", port, "master", "br0", "up")
		n.ip("addr", "add", n.addr+"/24", "dev", "eth0")
		n.ip("link", "set", "eth0", "up")
		n.client = n.namespace.client()
		n.file = filepath.Join(c.dir, fmt.Sprintf("n%d.yaml", i))
		writeFile(t, n.file, fmt.Sprintf(`
name: n%d
listen: { address: "%s:8080" }
admin: { address: "127.0.0.1:9901" }
cluster: { gossip: "%s:7946", peer: "%s:7947", join: ["10.77.0.1:7946", "10.77.0.9:7946"], key_file: %q }
cache:
  memory: 64MiB
  partitions:
    - { name: hot, match: { path: ["/static/*"] }, share: 50%% }
    - { name: tail, share: 50%% }
filter: { keys: 100000 }
purge: { state_dir: %q }
sites:
  - { name: www, origin: { urls: [%q] } }
`, i, n.addr, n.addr, n.addr, c.key, filepath.Join(c.dir, fmt.Sprint("state", i)), c.origin), 0o600)
		c.nodes = append(c.nodes, n)
	}
	return c
}

// startOrigin serves h at the bridge.
func (c *netCluster) startOrigin(hub *namespace, h http.Handler) {
	c.t.Helper()
	var l net.Listener
	err := hub.do(func() (err error) {
		l, err = net.Listen("tcp", "10.77.0.254:80")
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	c.t.Cleanup(func() { s.Close() })
	c.origin = "http://10.77.0.254"
}

// run starts a node's process in its namespace and waits until it is ready.
func (n *netNode) run(t *testing.T) {
	t.Helper()
	// ip turns into the program, so that the process is edged itself.
	cmd := exec.Command("ip", "netns", "exec", n.namespace.name, edgedBinary(t), "run", "-c", n.file)
	p := &child{t: t, cmd: cmd, stdout: newLines(), stderr: newLines(), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("n%d wrote\n%s", n.index, p.stderr)
		}
	})
	select {
	case <-p.stdout.first:
	case <-p.exited:
		t.Fatalf("n%d ended:\n%s", n.index, p.stderr)
	case <-time.After(deadline):
		t.Fatalf("n%d is not ready in time", n.index)
	}
	n.child = p
	n.down.Store(false)
}

// status asks the node's admin API.
func (n *netNode) status() (st admin.Cluster, err error) {
	resp, err := n.client.Get("http://127.0.0.1:9901/v1/cluster")
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// diverged is the node's count of replicas that were wrong.
func (n *netNode) diverged() (count float64, err error) {
	resp, err := n.client.Get("http://127.0.0.1:9901/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "\nedged_replica_diverged_total ")
	if !ok {
		return 0, fmt.Errorf("n%d has no edged_replica_diverged_total", n.index)
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(value, 64)
}

// up are the nodes that are meant to run.
func (c *netCluster) up() (up []*netNode) {
	for _, n := range c.nodes {
		if !n.down.Load() {
			up = append(up, n)
		}
	}
	return up
}

// within waits until the condition returns nil, and returns how long it took.
func (c *netCluster) within(limit time.Duration, what string, condition func() error) time.Duration {
	c.t.Helper()
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		took := time.Since(began)
		switch {
		case err == nil:
			return took
		case took > limit:
			c.t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-tick.C
	}
}

// sees returns an error unless each of the nodes holds exactly want members for alive.
func sees(nodes []*netNode, want int) error {
	for _, n := range nodes {
		st, err := n.status()
		if err != nil {
			return err
		}
		alive := 0
		for _, m := range st.Members {
			if m.State == "alive" {
				alive++
			}
		}
		if alive != want {
			return fmt.Errorf("n%d holds %d members for alive, want %d", n.index, alive, want)
		}
	}
	return nil
}

// identical returns an error unless each of the nodes holds of each other one
// exactly what that one has published.
func identical(nodes []*netNode) error {
	stats := map[string]admin.Cluster{}
	for _, n := range nodes {
		st, err := n.status()
		if err != nil {
			return err
		}
		stats[st.Name] = st
	}
	for name, st := range stats {
		equal := 0
		for _, m := range st.Members {
			other, up := stats[m.Name]
			if m.Self || !up {
				continue
			}
			if m.Replica.State != "live" {
				return fmt.Errorf("%s holds a replica of %s that is %s", name, m.Name, m.Replica.State)
			}
			for _, p := range other.Partitions {
				if got := m.Replica.SetHashes[p.Name]; got != p.Filter.SetHash {
					return fmt.Errorf("%s holds %s of %s/%s, which has %s", name, got, m.Name, p.Name, p.Filter.SetHash)
				}
			}
			equal++
		}
		if equal != len(nodes)-1 {
			return fmt.Errorf("%s holds %d replicas, want %d", name, equal, len(nodes)-1)
		}
	}
	return nil
}

// netLoad asks all nodes that are up, without pause. While it fills, half of
// what it asks for was never asked before; else everything is stored already,
// so that filters do not change.
type netLoad struct {
	fill     atomic.Bool
	answered atomic.Int64
	slowest  atomic.Int64 // nanoseconds
	mu       sync.Mutex
	failed   []string
}

func (c *netCluster) startLoad() {
	l := &netLoad{}
	c.load = l
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n.index), 1))
			pause := time.NewTicker(4 * time.Millisecond)
			defer pause.Stop()
			for {
				select {
				case <-stop:
					return
				case <-pause.C:
				}
				if n.down.Load() {
					continue
				}
				path := fmt.Sprintf("/static/%d", rng.IntN(20))
				if l.fill.Load() && rng.IntN(2) == 0 {
					path = fmt.Sprintf("/%d/%d", n.index, rng.Uint32())
				} else if l.fill.Load() {
					path = fmt.Sprintf("/shared/%d", rng.IntN(5000))
				}
				l.ask(n, path)
			}
		})
	}
	c.t.Cleanup(func() { close(stop); wg.Wait() })
}

func (l *netLoad) ask(n *netNode, path string) {
	began := time.Now()
	err := func() error {
		req, err := http.NewRequest(http.MethodGet, "http://"+n.addr+":8080"+path, nil)
		if err != nil {
			return err
		}
		req.Host = "www.test"
		resp, err := n.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != 200 || string(body) != "this is "+path) {
			err = fmt.Errorf("%d %q, Cache-Status %q", resp.StatusCode, body, resp.Header.Get("Cache-Status"))
		}
		return err
	}()
	if err == nil {
		l.answered.Add(1)
		for d := int64(time.Since(began)); ; {
			if old := l.slowest.Load(); d <= old || l.slowest.CompareAndSwap(old, d) {
				break
			}
		}
		return
	}
	if n.down.Load() {
		return // it was killed under the request
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, fmt.Sprintf("%s n%d%s: %v", time.Now().Format("15:04:05.000"), n.index, path, err))
}

// phase lets the load fill for a while, which ends with nothing unanswered.
func (c *netCluster) phase(name string, d time.Duration) {
	c.t.Helper()
	c.load.fill.Store(true)
	timer := time.NewTimer(d)
	<-timer.C
	c.load.fill.Store(false)
	timer.Reset(time.Second) // until the last changes are published
	<-timer.C
	c.answered(name)
}

// answered fails the test when a request was not, and starts to count anew.
func (c *netCluster) answered(phase string) {
	c.t.Helper()
	l := c.load
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.answered.Swap(0)
	c.t.Logf("%s: %d requests answered, the slowest after %v, %d not", phase, n,
		time.Duration(l.slowest.Swap(0)).Round(time.Millisecond), len(l.failed))
	for i, f := range l.failed {
		if i < 10 {
			c.t.Errorf("%s: %s", phase, f)
		}
	}
	l.failed = nil
	if n == 0 {
		c.t.Errorf("%s: nothing was answered", phase)
	}
}

// whole waits until all nodes that are up see each other and hold each other's
// filters, and reports how long that took.
func (c *netCluster) whole(what string) {
	c.t.Helper()
	up := c.up()
	members := c.within(membersHeal, what+": members", func() error { return sees(up, len(up)) })
	replicas := c.within(replicasHeal-members, what+": replicas", func() error { return identical(up) })
	c.t.Logf("%s: all see each other after %v, replicas are identical after %v", what,
		members.Round(10*time.Millisecond), (members + replicas).Round(10*time.Millisecond))
	c.answered(what)
}

// drop makes the nodes' packet filters drop what the rule says of what arrives.
func drop(nodes []*netNode, rule string) {
	for _, n := range nodes {
		n.nft("table inet test {\nchain input {\ntype filter hook input priority 0; policy accept;\niifname eth0 " + rule + " drop\n}\n}\n")
	}
}

func undrop(nodes []*netNode) {
	for _, n := range nodes {
		n.nft("delete table inet test")
	}
}

// addresses is an nft set of the nodes.
func addresses(nodes []*netNode) string {
	var a []string
	for _, n := range nodes {
		a = append(a, n.addr)
	}
	return "{ " + strings.Join(a, ", ") + " }"
}

// TestNetns_faults: nine processes, each with a network of its own. Packets
// are lost, the network is split and heals, a third is killed and comes back;
// the cluster answers all along, and replicas are what they should be soon
// after. It needs root, iproute2 and nftables.
func TestNetns_faults(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	c := newNetCluster(t)
	for _, n := range c.nodes {
		n.run(t)
	}
	c.startLoad()
	c.whole("start")
	c.phase("fills", 3*time.Second)
	c.whole("after fills")

	drop(c.nodes, "numgen random mod 100 < 10")
	c.phase("10 % loss", 10*time.Second)
	lossy := c.within(replicasHeal, "10 % loss: replicas", func() error { return identical(c.nodes) })
	t.Logf("10 %% loss: replicas are identical after %v", lossy.Round(10*time.Millisecond))
	undrop(c.nodes)
	c.whole("after loss")

	left, right := c.nodes[:4], c.nodes[4:]
	drop(left, "ip saddr "+addresses(right))
	drop(right, "ip saddr "+addresses(left))
	c.load.fill.Store(true)
	split := c.within(40*time.Second, "split", func() error {
		if err := sees(left, len(left)); err != nil {
			return err
		}
		return sees(right, len(right))
	})
	t.Logf("split: noticed by all after %v", split.Round(10*time.Millisecond))
	c.phase("split", 15*time.Second)
	undrop(c.nodes)
	c.whole("heal")

	killed := []*netNode{c.nodes[0], c.nodes[4], c.nodes[7]}
	c.load.fill.Store(true)
	for _, n := range killed {
		n.down.Store(true)
		n.signal(syscall.SIGKILL)
		n.wait()
	}
	dead := c.within(membersHeal, "killed", func() error { return sees(c.up(), len(c.up())) })
	t.Logf("killed: noticed by all after %v", dead.Round(10*time.Millisecond))
	c.phase("without a third", 3*time.Second)
	c.whole("killed")
	for _, n := range killed {
		n.run(t)
	}
	c.whole("restarted")
	c.phase("whole again", 3*time.Second)
	c.whole("end")

	for _, n := range c.nodes {
		if d, err := n.diverged(); err != nil || d != 0 {
			t.Errorf("n%d: %v diverged, %v", n.index, d, err)
		}
	}
}
