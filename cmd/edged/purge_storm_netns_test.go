//go:build netns && linux

package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

var (
	stormRate = flag.Int("storm.rate", 100, "purges a second of the test of storms, by all callers together")
	stormTime = flag.Duration("storm.time", 2*time.Second, "how long the storm lasts")
)

// stormCallers call at a time; a call that finds them all busy is late, and its
// time counts from when it was due.
const stormCallers = 64

// measured is a list of durations that several goroutines add to.
type measured struct {
	mu   sync.Mutex
	took []time.Duration
}

func (m *measured) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, d)
}

// String is the number and some percentiles.
func (m *measured) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.took) == 0 {
		return "none"
	}
	slices.Sort(m.took)
	p := func(q int) time.Duration { return m.took[len(m.took)*q/1000].Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d: p50 %v, p99 %v, max %v", len(m.took), p(500), p(990), m.took[len(m.took)-1].Round(10*time.Microsecond))
}

// read asks the node for one of a few stored keys, each ten milliseconds, until
// stop is closed.
func (n *netNode) read(client *http.Client, stop <-chan struct{}, m *measured) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s:8080/hot/%d", n.addr, i%10), nil)
		if err != nil {
			return err
		}
		r.Host = "www.example.com"
		began := time.Now()
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			return fmt.Errorf("n%d answers a reader with %s: %v", n.index, resp.Status, err)
		}
		m.add(time.Since(began))
	}
}

// TestNetns_purgeStorm: purges at a steady rate through all nodes, one tag each,
// while readers ask every node for what is not purged. Every call is acknowledged
// by all, every node applies every purge, and the log
// takes no more memory than its bound. The default is small; the table in
// edge/PURGE.md has a thousand a second.
func TestNetns_purgeStorm(t *testing.T) {
	c := newNetClusterOf(t, *purgeNodes, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Surrogate-Key", "hot")
		io.WriteString(w, "this is "+r.URL.Path)
	}))
	for _, n := range c.nodes {
		n.run(t)
	}
	c.together()
	sum := func(metric string) (total float64) {
		for _, n := range c.nodes {
			v, err := n.metric(metric)
			if err != nil {
				t.Fatal(err)
			}
			total += v
		}
		return total
	}

	// phase has readers read while f runs.
	phase := func(f func()) *measured {
		m, stop := &measured{}, make(chan struct{})
		var wg sync.WaitGroup
		for _, n := range c.nodes {
			client := n.namespace.client()
			wg.Go(func() {
				if err := n.read(client, stop, m); err != nil {
					t.Error(err)
				}
			})
		}
		f()
		close(stop)
		wg.Wait()
		return m
	}
	quiet := phase(func() { <-time.After(*stormTime) })
	memory := sum("process_resident_memory_bytes")

	total := int(float64(*stormRate) * stormTime.Seconds())
	calls := &measured{}
	began := time.Now()
	storm := phase(func() {
		due := make(chan int)
		var wg sync.WaitGroup
		for w := range stormCallers {
			n := c.nodes[w%len(c.nodes)]
			client := n.namespace.client()
			wg.Go(func() {
				for i := range due {
					at := began.Add(time.Duration(i) * time.Second / time.Duration(*stormRate))
					<-time.After(time.Until(at))
					res, _, err := n.purge(client, fmt.Sprintf(`{"tags":["storm-%d"]}`, i))
					calls.add(time.Since(at))
					if err != nil || len(res.Missing) > 0 || res.Members != len(c.nodes) {
						t.Errorf("%v missing of %d: %v", res.Missing, res.Members, err)
					}
				}
			})
		}
		for i := range total {
			due <- i
		}
		close(due)
		wg.Wait()
	})
	took := time.Since(began)
	c.within(10*time.Second, "every node has applied every purge", func() error {
		for _, n := range c.nodes {
			if applied, err := n.metric("edged_purge_applied_total"); err != nil || int(applied) != total {
				return fmt.Errorf("n%d has applied %v of %d: %v", n.index, applied, total, err)
			}
		}
		return nil
	})
	t.Logf("%d nodes, %d purges in %v", len(c.nodes), total, took.Round(10*time.Millisecond))
	t.Logf("from when it was due to all acknowledgements: %v", calls)
	t.Logf("readers before: %v; in the storm: %v", quiet, storm)
	t.Logf("resident memory of a node: %.1f MiB before, %.1f after; its log: %.2f MiB; sent by a node: %.2f MiB of purges, %.2f MiB of acknowledgements; sent again %v times", memory/float64(len(c.nodes))/(1<<20),
		sum("process_resident_memory_bytes")/float64(len(c.nodes))/(1<<20), sum(`edged_purge_log_bytes{place="memory"}`)/float64(len(c.nodes))/(1<<20),
		sum(`edged_gossip_sent_bytes_total{kind="purge"}`)/float64(len(c.nodes))/(1<<20), sum(`edged_gossip_sent_bytes_total{kind="ack"}`)/float64(len(c.nodes))/(1<<20), sum("edged_purge_retransmits_total"))
	for _, n := range c.nodes {
		if held, err := n.metric(`edged_purge_log_bytes{place="memory"}`); err != nil || held > 64<<20 {
			t.Errorf("the log of n%d has %v bytes: %v", n.index, held, err)
		}
	}
}
