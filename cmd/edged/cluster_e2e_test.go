//go:build e2e

package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"edged/edge/admin"
)

// For a longer run of TestCluster_filtersSkipPeers.
var (
	clusterStored = flag.Int("cluster.stored", 3000, "stored responses, over three nodes")
	clusterAbsent = flag.Int("cluster.absent", 6000, "requests for what nobody has")
)

// A cluster is some nodes from configuration files, with a key, on loopback.
type cluster struct {
	t      *testing.T
	dir    string
	key    string
	origin *testOrigin
	nodes  []*child

	memory string // of each node's cache; empty: 64MiB
	keys   int    // filter.keys; 0: 100000
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), origin: startOrigin(t)}
	c.key = c.newKey("cluster.key")
	return c
}

func (c *cluster) newKey(name string) string {
	c.t.Helper()
	file := filepath.Join(c.dir, name)
	if got := command(c.t, "", "keygen", "-o", file); got.code != exitOK {
		c.t.Fatal(got.errOut)
	}
	return file
}

// config writes a node's file and returns its name.
func (c *cluster) config(name, key string, join ...string) string {
	c.t.Helper()
	joins, err := json.Marshal(append([]string{}, join...))
	if err != nil {
		c.t.Fatal(err)
	}
	file := filepath.Join(c.dir, name+".yaml")
	writeFile(c.t, file, fmt.Sprintf(`
name: %s
listen: { address: "127.0.0.1:0" }
admin: { address: "127.0.0.1:0" }
cluster: { gossip: "127.0.0.1:0", peer: "127.0.0.1:0", join: %s, key_file: %q }
cache:
  memory: %s
  partitions:
    - { name: hot, match: { path: ["/static/*"] }, share: 50%% }
    - { name: tail, share: 50%% }
filter: { keys: %d }
sites:
  - { name: www, origin: { urls: [%q] } }
`, name, joins, key, cmp.Or(c.memory, "64MiB"), cmp.Or(c.keys, 100_000), c.origin.URL), 0o600)
	return file
}

// start adds a node that joins the first one.
func (c *cluster) start(name string) *child {
	c.t.Helper()
	var join []string
	if len(c.nodes) > 0 {
		join = []string{c.nodes[0].ready.Gossip}
	}
	n := startNode(c.t, "-c", c.config(name, c.key, join...))
	c.nodes = append(c.nodes, n)
	return n
}

// three starts a, b and c and waits until each holds the others' filters.
func (c *cluster) three() (a, b, n *child) {
	c.t.Helper()
	a, b, n = c.start("a"), c.start("b"), c.start("c")
	for _, x := range c.nodes {
		eventually(c.t, func() error {
			live := 0
			st := x.status()
			for _, m := range st.Members {
				if !m.Self && m.State == "alive" && m.Replica.State == "live" {
					live++
				}
			}
			if live != 2 {
				return fmt.Errorf("%s holds %d live replicas: %+v", x.ready.Name, live, st.Members)
			}
			return nil
		})
	}
	return a, b, n
}

func (c *child) status() admin.Cluster {
	c.t.Helper()
	var st admin.Cluster
	if err := json.Unmarshal([]byte(get(c.t, "http://"+c.ready.Admin+"/v1/cluster").body), &st); err != nil {
		c.t.Fatal(err)
	}
	return st
}

// replicaKeys is how many keys the node estimates a member to hold, from the
// bits that are set.
func (c *child) replicaKeys(member string) uint64 {
	c.t.Helper()
	for _, m := range c.status().Members {
		if m.Name == member {
			return m.Replica.Keys
		}
	}
	return 0
}

// ask sends a request for the path, with the Host that all nodes share.
func (c *child) ask(client *http.Client, path string) (reply, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+c.ready.Client+path, nil)
	if err != nil {
		return reply{}, err
	}
	req.Host = "www.test"
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

func newClient(t *testing.T) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Timeout: deadline, Transport: tr}
}

func (c *child) mustAsk(path string) reply {
	c.t.Helper()
	r, err := c.ask(newClient(c.t), path)
	if err != nil || r.status != 200 || r.body != "this is "+path {
		c.t.Fatalf("%s asked for %s: %+v, %v", c.ready.Name, path, r, err)
	}
	return r
}

// sum adds the samples whose name and labels contain all parts.
func (c *child) sum(parts ...string) float64 {
	c.t.Helper()
	var total float64
samples:
	for sample, value := range c.metrics() {
		for _, p := range parts {
			if !strings.Contains(sample, p) {
				continue samples
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			c.t.Fatal(err)
		}
		total += v
	}
	return total
}

func TestCluster_peersServeEachOther(t *testing.T) {
	c := newCluster(t)
	a, b, _ := c.three()
	a.mustAsk("/static/one")
	eventually(t, func() error {
		if n := b.replicaKeys("a"); n != 1 {
			return fmt.Errorf("b knows a to hold %d keys", n)
		}
		return nil
	})
	if cs := b.mustAsk("/static/one").header.Get("Cache-Status"); !strings.Contains(cs, "b; fwd=uri-miss") || !strings.Contains(cs, "detail=peer") {
		t.Errorf("b answers with Cache-Status %q", cs)
	}
	if n := c.origin.requests.Load(); n != 1 {
		t.Errorf("the origin saw %d requests", n)
	}
	if n := b.sum("edged_bloom_positive_hit_total", `partition="hot"`); n != 1 {
		t.Errorf("edged_bloom_positive_hit_total of b is %v", n)
	}

	got := command(t, "", "purge", "--admin", b.ready.Admin, "http://www.test/static/one")
	if got.code != exitOK || !strings.Contains(got.out, "3 of 3 members") {
		t.Errorf("purge: %+v", got)
	}
	for _, n := range c.nodes {
		n.mustAsk("/static/one")
	}
	if n := c.origin.requests.Load(); n < 2 {
		t.Errorf("the origin saw %d requests after the purge", n)
	}
}

func TestCluster_survivesADeadMember(t *testing.T) {
	c := newCluster(t)
	a, b, n := c.three()
	for i := range 50 {
		a.mustAsk(fmt.Sprintf("/only-on-a/%d", i))
	}
	for _, x := range []*child{b, n} {
		eventually(t, func() error {
			if k := x.replicaKeys("a"); k < 49 {
				return fmt.Errorf("%s knows a to hold %d keys", x.ready.Name, k)
			}
			return nil
		})
	}
	a.signal(syscall.SIGKILL)
	a.wait()
	// Right away, while nobody knows yet.
	for i := range 50 {
		b.mustAsk(fmt.Sprintf("/only-on-a/%d", i))
		n.mustAsk(fmt.Sprintf("/only-on-a/%d", i))
	}
	for _, x := range []*child{b, n} {
		eventually(t, func() error {
			if f := x.sum("edged_members", `state="failed"`); f != 1 {
				return fmt.Errorf("%s knows of %v failed members", x.ready.Name, f)
			}
			return nil
		})
		before := x.sum("edged_peer_rpcs_total", `peer="a"`)
		for i := range 50 {
			x.mustAsk(fmt.Sprintf("/after/%s/%d", x.ready.Name, i))
		}
		if after := x.sum("edged_peer_rpcs_total", `peer="a"`); after != before {
			t.Errorf("%s asked the dead member %v times", x.ready.Name, after-before)
		}
	}
}

// TestCluster_filtersSkipPeers floods three nodes with keys that nobody has:
// the filters must answer for the peers, and account for every look-up.
func TestCluster_filtersSkipPeers(t *testing.T) {
	stored, absent := *clusterStored/3*3, *clusterAbsent/3*3
	c := newCluster(t)
	c.three()
	each := func(count int, path func(i int) string) {
		t.Helper()
		var wg sync.WaitGroup
		client := newClient(t)
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < count; i += 8 {
					p := path(i)
					r, err := c.nodes[i%3].ask(client, p)
					if err != nil || r.status != 200 || r.body != "this is "+p {
						t.Errorf("asked for %s: %+v, %v", p, r, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	each(stored, func(i int) string { return fmt.Sprintf("/stored/%d", i) })
	for _, x := range c.nodes {
		for _, y := range c.nodes {
			if x != y {
				eventually(t, func() error {
					if k := x.replicaKeys(y.ready.Name); k < uint64(stored/3*99/100) {
						return fmt.Errorf("%s knows %s to hold %d keys", x.ready.Name, y.ready.Name, k)
					}
					return nil
				})
			}
		}
	}
	type counts struct{ negative, hit, miss, unknown, rpcs, missed float64 }
	read := func(x *child) counts {
		return counts{
			x.sum("edged_bloom_negative_total"), x.sum("edged_bloom_positive_hit_total"), x.sum("edged_bloom_positive_miss_total"),
			x.sum("edged_bloom_unknown_total"), x.sum("edged_peer_rpcs_total"),
			x.sum("edged_requests_total") - x.sum("edged_requests_total", `result="hit"`),
		}
	}
	// settled waits until the node has counted its requests: it does so when
	// they are over, which their clients may see earlier.
	settled := func(x *child, requests float64) {
		t.Helper()
		eventually(t, func() error {
			if n := x.sum("edged_requests_total"); n != requests {
				return fmt.Errorf("%s counts %v requests of %v", x.ready.Name, n, requests)
			}
			return nil
		})
	}
	var before [3]counts
	for i, x := range c.nodes {
		settled(x, float64(stored/3))
		before[i] = read(x)
	}
	each(absent, func(i int) string { return fmt.Sprintf("/absent/%d", i) })
	for i, x := range c.nodes {
		settled(x, float64((stored+absent)/3))
		after := read(x)
		lookups := after.negative + after.hit + after.miss + after.unknown - before[i].negative - before[i].hit - before[i].miss - before[i].unknown
		if missed := after.missed - before[i].missed; lookups != missed || missed != float64(absent/3) {
			t.Errorf("%s: %v look-ups, %v local misses, %d requests", x.ready.Name, lookups, missed, absent/3)
		}
		skipped := after.negative - before[i].negative
		if skipped < 0.98*lookups {
			t.Errorf("%s skipped the peers for %v of %v", x.ready.Name, skipped, lookups)
		}
		t.Logf("%s: %v look-ups that missed, %.2f %% skipped the peers", x.ready.Name, lookups, 100*skipped/lookups)
		if rpcs := after.rpcs - before[i].rpcs; rpcs > 0.02*lookups*2 {
			t.Errorf("%s sent %v peer requests for %v look-ups", x.ready.Name, rpcs, lookups)
		}
	}
}

func TestCluster_wrongKeyIsRefused(t *testing.T) {
	c := newCluster(t)
	a := c.start("a")
	b := startNode(t, "-c", c.config("b", c.newKey("other.key"), a.ready.Gossip))
	eventually(t, func() error {
		if !strings.Contains(a.stderr.String(), "key") {
			return fmt.Errorf("a does not say why")
		}
		if !strings.Contains(b.stderr.String(), "key") {
			return fmt.Errorf("b does not say why")
		}
		return nil
	})
	for _, x := range []*child{a, b} {
		if n := x.sum("edged_members", `state="alive"`); n != 1 {
			t.Errorf("%s counts %v members", x.ready.Name, n)
		}
		x.mustAsk("/served/by/" + x.ready.Name)
	}
}

func TestCluster_oneNameTwice(t *testing.T) {
	c := newCluster(t)
	a := c.start("a")
	second := start(t, "run", "-c", c.config("a", c.key, a.ready.Gossip))
	if code := second.wait(); code != exitFailure || !strings.Contains(second.stderr.String(), "name") {
		t.Errorf("the second node of one name: exit code %d", code)
	}
	a.mustAsk("/still")
	select {
	case <-a.exited:
		t.Error("the first node of the name has stopped")
	default:
	}
}

func TestCluster_garbageOnTheGossipPort(t *testing.T) {
	c := newCluster(t)
	a, b, _ := c.three()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	udp, err := net.Dial("udp", a.ready.Gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	buf := make([]byte, 1400)
	for range 2000 {
		p := buf[:1+rng.IntN(len(buf))]
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		udp.Write(p)
	}
	for range 50 {
		tcp, err := net.Dial("tcp", a.ready.Gossip)
		if err != nil {
			t.Fatal(err)
		}
		tcp.Write(buf)
		tcp.Close()
	}
	a.mustAsk("/static/after")
	eventually(t, func() error {
		if n := b.replicaKeys("a"); n != 1 {
			return fmt.Errorf("b knows a to hold %d keys", n)
		}
		return nil
	})
	for _, x := range c.nodes {
		if n := x.sum("edged_members", `state="alive"`); n != 3 {
			t.Errorf("%s counts %v members", x.ready.Name, n)
		}
	}
}

func TestCluster_leavesInGoodOrder(t *testing.T) {
	c := newCluster(t)
	a, b, _ := c.three()
	a.signal(syscall.SIGTERM)
	if code := a.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	eventually(t, func() error {
		if n := b.sum("edged_members", `state="left"`); n != 1 {
			return fmt.Errorf("b counts %v members that left", n)
		}
		return nil
	})
}

// TestCluster_stopsAllAtOnce: who stops last has nobody to tell, which is no
// reason to warn.
func TestCluster_stopsAllAtOnce(t *testing.T) {
	c := newCluster(t)
	c.three()
	for _, n := range c.nodes {
		n.signal(syscall.SIGTERM)
	}
	for _, n := range c.nodes {
		if code := n.wait(); code != exitOK {
			t.Errorf("%s ended with code %d", n.ready.Name, code)
		}
		if log := n.stderr.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
			t.Errorf("%s warns:\n%s", n.ready.Name, log)
		}
	}
}
