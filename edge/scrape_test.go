package edge

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/gossip"
)

// largeNode is a node that counts for 63 peers and 16 sites in four partitions,
// each replica having been fetched again for every reason, and its collector.
func largeNode(t testing.TB, origin string) *Node {
	cfg := testConfig("edge-a", origin)
	cfg.Cache.Partitions = nil
	for i := range 4 {
		p := Partition{Name: fmt.Sprintf("partition-%d", i), Share: 0.25}
		if i < 3 {
			p.Paths = []string{fmt.Sprintf("/%d/*", i)}
		}
		cfg.Cache.Partitions = append(cfg.Cache.Partitions, p)
	}
	for i := range 15 {
		cfg.Sites = append(cfg.Sites, Site{Name: fmt.Sprintf("site-%d", i), Hosts: []string{fmt.Sprintf("%d.example.com", i)}, Origin: Origin{URLs: []string{origin}}})
	}
	cfg.Sites[0].Hosts = []string{"www.example.com"}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })

	stats := n.gossip.Stats()
	for i := range 63 {
		name := fmt.Sprintf("edge-%d.region.example", i)
		n.metrics.addPeer(name)
		for _, p := range cfg.Cache.Partitions {
			stats.Replicas = append(stats.Replicas, gossip.ReplicaStats{
				Member: name, Partition: p.Name, State: gossip.ReplicaLive, Known: true, Age: 1234567 * time.Microsecond, BitsSet: 1000,
				Resyncs: map[string]uint64{"start": 1, "gap": 22, "epoch": 3, "boot": 4, "diverged": 5, "log": 6},
			})
		}
	}
	n.metrics.reg.Unregister(newCollector(n))
	c := newCollector(n)
	c.gossip = func() gossip.Stats { return stats }
	n.metrics.reg.MustRegister(c)
	return n
}

func scrape(t testing.TB, n *Node) string {
	w := httptest.NewRecorder()
	n.metrics.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// series are the names with labels in a scrape.
func series(text string) (all []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(line, " ")
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// A node among 64 members is scraped in less than a megabyte, and whatever its
// clients send makes no label.
func TestScrape_isBounded(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		fmt.Sscanf(r.URL.Query().Get("s"), "%d", &status)
		w.WriteHeader(status)
		io.WriteString(w, "x")
	})
	n := largeNode(t, origin.URL)
	n.get(t, "/x")
	before := scrape(t, n)
	if len(before) >= 1<<20 {
		t.Errorf("a scrape has %d bytes, want less than %d", len(before), 1<<20)
	}
	t.Logf("%d bytes, %d series", len(before), len(series(before)))
	if !strings.Contains(before, `edged_replica_age_seconds{peer="edge-62.region.example"} 1.234567`) {
		t.Error("the peers are not in it")
	}

	statuses := []int{200, 204, 301, 404, 410, 429, 500, 503, 599}
	for i := range 300 {
		method := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PURGE", fmt.Sprintf("M%d", i)}[i%8]
		n.do(t, method, fmt.Sprintf("/%d/%d?s=%d", i%5, i, statuses[i%len(statuses)]), nil,
			fmt.Sprintf("X-Request-Id: %d", i), fmt.Sprintf("User-Agent: agent-%d", i), fmt.Sprintf("Accept-Language: l%d", i), fmt.Sprintf("Range: bytes=%d-", i%3))
		req, _ := http.NewRequest("GET", "http://"+n.Addrs().Client+"/", nil)
		req.Host = fmt.Sprintf("host-%d.example.org", i)
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	was, is := series(before), series(scrape(t, n))
	for _, s := range is {
		// Go's own runtime metrics are not the clients' doing.
		if _, had := slices.BinarySearch(was, s); !had && !strings.HasPrefix(s, "go_") && !strings.HasPrefix(s, "process_") && !strings.HasPrefix(s, "promhttp_") {
			t.Errorf("traffic made the series %s", s)
		}
	}
}

// Collected and written: what a scrape of a node among 64 members takes.
func BenchmarkScrape(b *testing.B) {
	n := largeNode(b, "http://127.0.0.1:9")
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		size = len(scrape(b, n))
	}
	b.ReportMetric(float64(size), "bytes")
}
