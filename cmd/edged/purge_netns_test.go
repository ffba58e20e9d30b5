//go:build netns && linux

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"edged/edge/admin"
)

var (
	purgeNodes = flag.Int("purge.nodes", 5, "nodes of the tests of purges")
	purgeCount = flag.Int("purge.count", 200, "purges at each rate of loss")
	purgeCalls = flag.Int("purge.callers", 4, "calls at a time")
	purgeTime  = flag.Duration("purge.time", 6*time.Second, "how long histories are recorded")
)

// purge posts a purge to the node's admin API.
func (n *netNode) purge(client *http.Client, body string) (res admin.PurgeResult, took time.Duration, err error) {
	began := time.Now()
	resp, err := client.Post("http://127.0.0.1:9901/v1/purge", "application/json", strings.NewReader(body))
	if err != nil {
		return res, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%d %s", resp.StatusCode, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &res)
	}
	return res, time.Since(began), err
}

// metric returns one of the node's metrics.
func (n *netNode) metric(name string) (float64, error) {
	resp, err := n.client.Get("http://127.0.0.1:9901/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "\n"+name+" ")
	if !ok {
		return 0, fmt.Errorf("n%d has no %s", n.index, name)
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(value, 64)
}

// together waits until every node has all members, and is in step.
func (c *netCluster) together() {
	c.within(membersHeal, "all members and their purges", func() error {
		for _, n := range c.nodes {
			if alive, err := n.metric(`edged_members{state="alive"}`); err != nil || int(alive) != len(c.nodes) {
				return fmt.Errorf("n%d has %v members: %v", n.index, alive, err)
			}
			if synced, err := n.metric(`edged_purge_log_state{state="synced"}`); err != nil || synced != 1 {
				return fmt.Errorf("n%d is not in step: %v", n.index, err)
			}
		}
		return nil
	})
}

// TestNetns_purgesReachAll: calls to some nodes while each packet that reaches a
// node may be lost. Every call is acknowledged by all, and every node has
// applied every purge.
func TestNetns_purgesReachAll(t *testing.T) {
	c := newNetClusterOf(t, *purgeNodes, http.NotFoundHandler())
	for _, n := range c.nodes {
		n.run(t)
	}
	c.together()
	total := 0
	for _, loss := range []int{1, 20} {
		began := time.Now()
		drop(c.nodes, fmt.Sprintf("numgen random mod 100 < %d", loss))
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		for i := range *purgeCalls {
			n := c.nodes[i%len(c.nodes)]
			client := n.namespace.client()
			wg.Go(func() {
				for j := range *purgeCount / *purgeCalls {
					res, d, err := n.purge(client, fmt.Sprintf(`{"tags":["t-%d-%d-%d"]}`, loss, i, j))
					mu.Lock()
					if took = append(took, d); err != nil || len(res.Missing) > 0 || res.Members != len(c.nodes) {
						t.Errorf("%d %% loss: %v missing of %d: %v", loss, res.Missing, res.Members, err)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		undrop(c.nodes)
		total += len(took)
		slices.Sort(took)
		p := func(q int) time.Duration { return took[len(took)*q/1000].Round(100 * time.Microsecond) }
		t.Logf("%d nodes, %d %% loss: from the call to all acknowledgements p50 %v, p99 %v, max %v of %d in %v", len(c.nodes), loss, p(500), p(990), took[len(took)-1], len(took), time.Since(began).Round(100*time.Millisecond))
	}
	c.within(10*time.Second, "every node has applied every purge", func() error {
		for _, n := range c.nodes {
			if applied, err := n.metric("edged_purge_applied_total"); err != nil || int(applied) != total {
				return fmt.Errorf("n%d has applied %v of %d: %v", n.index, applied, total, err)
			}
		}
		return nil
	})
}

// history is what a reader may see: on each node, of each key, no version older
// than the newest purge that this node has acknowledged.
type history struct {
	versions [historyKeys]atomic.Int64 // at the origin
	purged   [historyKeys]atomic.Int64 // by a call that has returned
	mu       sync.Mutex
	floor    [][historyKeys]int64 // by node

	reads, purges, violations atomic.Int64
}

const historyKeys = 16

// raise notes that a node has applied all purges up to a version of a key.
func (h *history) raise(node, key int, version int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.floor[node][key] = max(h.floor[node][key], version)
}

func (h *history) least(node, key int) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.floor[node][key]
}

// TestNetns_historyOfPurges: writers change the origin and purge, by URL and by
// tag; readers on all nodes note versions; nodes are killed and started again,
// and parted from the others. No reader sees what was purged before it asked,
// on a node that has acknowledged, or that has come back and is in step.
func TestNetns_historyOfPurges(t *testing.T) {
	h := &history{floor: make([][historyKeys]int64, *purgeNodes)}
	c := newNetClusterOf(t, *purgeNodes, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/k"))
		if err != nil || key < 0 || key >= historyKeys {
			http.NotFound(w, r)
			return
		}
		v := h.versions[key].Load()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // the origin's own time
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Surrogate-Key", fmt.Sprintf("key-%d", key))
		fmt.Fprint(w, v)
	}))
	for _, n := range c.nodes {
		n.run(t)
	}
	c.together()
	stop := make(chan struct{})
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		client := n.namespace.client()
		client.Timeout = 2 * time.Second
		wg.Go(func() {
			for !stopped() {
				key := rand.IntN(historyKeys)
				least := h.least(i, key)
				r, _ := http.NewRequest("GET", fmt.Sprintf("http://%s:8080/k%d", n.addr, key), nil)
				r.Host = "www.example.com"
				resp, err := client.Do(r)
				if err != nil {
					time.Sleep(5 * time.Millisecond) // it is down
					continue
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					continue
				}
				h.reads.Add(1)
				if v, err := strconv.ParseInt(string(b), 10, 64); err != nil || v < least {
					h.violations.Add(1)
					t.Errorf("n%d answers %q for key %d, and had purged all below %d (%s)", i, b, key, least, resp.Header.Get("Cache-Status"))
				}
			}
		})
	}
	for w := range 3 { // each has its own keys and its own node
		client := c.nodes[w].namespace.client()
		wg.Go(func() {
			for !stopped() {
				key := w + 3*rand.IntN(historyKeys/3)
				v := h.versions[key].Add(1)
				body := fmt.Sprintf(`{"urls":["http://www.example.com/k%d"]}`, key)
				if rand.IntN(2) == 0 {
					body = fmt.Sprintf(`{"tags":["key-%d"]}`, key)
				}
				res, _, err := c.nodes[w].purge(client, body)
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				h.purges.Add(1)
				h.raise(w, key, v)
				for _, m := range res.Nodes {
					if i, err := strconv.Atoi(strings.TrimPrefix(m.Name, "n")); err == nil && m.State == "applied" {
						h.raise(i, key, v)
					}
				}
				h.purged[key].Store(max(h.purged[key].Load(), v))
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			}
		})
	}
	// The victims are nodes that take no purges, so that calls go on.
	victims := c.nodes[3:]
	for began, i := time.Now(), 0; time.Since(began) < *purgeTime; i++ {
		n := victims[i%len(victims)]
		quiet := h.purges.Load() + 30 // between the faults all is well for a while
		c.within(membersHeal, "purges between two faults", func() error {
			if n := h.purges.Load(); n < quiet {
				return fmt.Errorf("%d of %d", n, quiet)
			}
			return nil
		})
		if i%2 == 0 {
			n.signal(syscall.SIGKILL)
			n.wait()
			h.mu.Lock() // a new process has acknowledged nothing
			h.floor[n.index] = [historyKeys]int64{}
			h.mu.Unlock()
			n.run(t)
		} else {
			var others []*netNode
			for _, o := range c.nodes {
				if o != n {
					others = append(others, o)
				}
			}
			drop([]*netNode{n}, "ip saddr "+addresses(others))
			time.Sleep(time.Duration(2+rand.IntN(8)) * time.Second)
			undrop([]*netNode{n})
		}
		var before [historyKeys]int64
		for key := range before {
			before[key] = h.purged[key].Load()
		}
		c.together()
		for key, v := range before {
			h.raise(n.index, key, v)
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d nodes, %d purges, %d reads, %d violations", len(c.nodes), h.purges.Load(), h.reads.Load(), h.violations.Load())
	if h.reads.Load() < 100 || h.purges.Load() < 20 {
		t.Error("too little was read or purged")
	}
}
