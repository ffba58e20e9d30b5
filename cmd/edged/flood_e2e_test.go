//go:build e2e

package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	floodStored  = flag.Int("flood.stored", 1000, "stored responses of TestFlood")
	floodAbsent  = flag.Int("flood.absent", 2000, "distinct absent URLs of TestFlood")
	floodRate    = flag.Float64("flood.rate", 400, "legitimate requests a second of TestFlood; absent ones come twice as often")
	floodSeed    = flag.Uint64("flood.seed", 1, "seed of TestFlood")
	repeatURLs   = flag.Int("repeat.urls", 100, "URLs of TestFlood_repeatedAbsence")
	repeatRounds = flag.Int("repeat.rounds", 30, "times that each of them is asked for")
)

// A floodOrigin has /k/N, and counts requests for those and for others apart.
type floodOrigin struct {
	*httptest.Server
	known, absent atomic.Int64
	perURL        sync.Map // of absent URLs, when counting is on: *atomic.Int64
	counting      bool
}

func startFloodOrigin(t *testing.T, counting bool) *floodOrigin {
	t.Helper()
	o := &floodOrigin{counting: counting}
	body := strings.Repeat("x", 200)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/k/") {
			o.known.Add(1)
			w.Header().Set("Cache-Control", "max-age=3600")
			io.WriteString(w, body)
			return
		}
		o.absent.Add(1)
		if o.counting {
			n, _ := o.perURL.LoadOrStore(r.URL.Path, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			w.Header().Set("Cache-Control", "max-age=3600")
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(o.Close)
	return o
}

// traffic is what one open-loop stream of requests came to.
type traffic struct {
	mu      sync.Mutex
	took    []time.Duration // from the time at which it should have been sent
	hits    int
	unasked int // requests that failed
}

func (tr *traffic) p99() time.Duration {
	slices.Sort(tr.took)
	return tr.took[len(tr.took)*99/100]
}

func (tr *traffic) hitRatio() float64 { return float64(tr.hits) / float64(len(tr.took)) }

// run sends n requests at the rate, each at its time, from enough goroutines
// that one which is slow holds up no other. next is called in order.
func (tr *traffic) run(nodes []*child, client *http.Client, n int, rate float64, next func() string) {
	const workers = 64
	began := time.Now()
	var at atomic.Int64
	var mu sync.Mutex // over next
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := int(at.Add(1)) - 1
				if i >= n {
					return
				}
				mu.Lock()
				path := next()
				mu.Unlock()
				due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				if wait := time.Until(due); wait > 0 {
					<-time.After(wait)
				}
				r, err := nodes[i%len(nodes)].ask(client, path)
				took := time.Since(due)
				tr.mu.Lock()
				switch {
				case err != nil || r.status >= 500:
					tr.unasked++
				case strings.Contains(r.header.Get("Cache-Status"), "; hit") || strings.Contains(r.header.Get("Cache-Status"), "detail=peer"):
					tr.hits++
				}
				tr.took = append(tr.took, took)
				tr.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// zipf returns paths of the stored responses, some far more often than others.
func zipf(n int, seed uint64) func() string {
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, 1)), 1.1, 10, uint64(n-1))
	return func() string { return fmt.Sprintf("/k/%d", z.Uint64()) }
}

func sumAll(nodes []*child, parts ...string) (total float64) {
	for _, n := range nodes {
		total += n.sum(parts...)
	}
	return total
}

func rss(nodes []*child) (total int64) {
	for _, n := range nodes {
		total += n.memory("VmRSS")
	}
	return total
}

// A flood of distinct absent URLs beside legitimate traffic: what is stored
// stays, its hit ratio too, and absence keeps to its own memory. With a
// catalog, hardly any of it reaches the origin.
func TestFlood(t *testing.T) {
	for _, mode := range []string{"off", "enforce"} {
		t.Run("catalog "+mode, func(t *testing.T) {
			t.Logf("-flood.seed %d", *floodSeed)
			o := startFloodOrigin(t, false)
			c := newCluster(t)
			site := ""
			if mode == "enforce" {
				file := filepath.Join(c.dir, "catalog")
				var list strings.Builder
				for i := range *floodStored {
					fmt.Fprintf(&list, "/k/%d\n", i)
				}
				if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
					t.Fatal(err)
				}
				site = fmt.Sprintf("    catalog: { file: %q, mode: enforce }\n", file)
			}
			c.memory, c.keys = "320MiB", 2**floodStored
			nodes := c.threeFor(o.URL, site, "negative: { capacity: 16MiB }\n")
			if mode == "enforce" {
				for _, n := range nodes {
					eventually(t, func() error {
						if n.sum("edged_catalog_mode", `mode="enforce"`) != 1 {
							return fmt.Errorf("%s does not enforce", n.ready.Name)
						}
						return nil
					})
				}
			}
			client := newClient(t)
			client.Transport.(*http.Transport).MaxIdleConnsPerHost = 256

			i := -1
			var warm, before, legit, flood traffic
			// Few responses are stored at each node, many at one of them: the
			// others then have them from their peers.
			each := len(nodes)
			if *floodStored > 10_000 {
				each = 1
			}
			warm.run(nodes, client, each**floodStored, 1e9, func() string { i++; return fmt.Sprintf("/k/%d", i/each) })
			seconds := float64(*floodAbsent) / (2 * *floodRate)
			before.run(nodes, client, int(*floodRate*min(20, max(1, seconds/4))), *floodRate, zipf(*floodStored, *floodSeed))
			evicted := sumAll(nodes, "edged_store_evictions_total", `reason="capacity"`)
			objects := sumAll(nodes, "edged_store_objects")
			seen := o.absent.Load()
			var rssQuarter, rssEnd int64
			var wg sync.WaitGroup
			wg.Go(func() {
				legit.run(nodes, client, int(*floodRate*seconds), *floodRate, zipf(*floodStored, *floodSeed+1))
			})
			rnd := rand.New(rand.NewPCG(*floodSeed, 2))
			absent := func() string { return fmt.Sprintf("/absent/%016x", rnd.Uint64()) }
			flood.run(nodes, client, *floodAbsent/4, 2**floodRate, absent)
			rssQuarter = rss(nodes)
			flood.run(nodes, client, *floodAbsent-*floodAbsent/4, 2**floodRate, absent)
			rssEnd = rss(nodes)
			wg.Wait()

			toOrigin := o.absent.Load() - seen
			t.Logf("legitimate traffic: hit ratio %.2f %% before, %.2f %% in the flood; p99 %v before, %v in the flood",
				100*before.hitRatio(), 100*legit.hitRatio(), before.p99(), legit.p99())
			t.Logf("flood of %d: %d reached the origin (%.3f %%), p99 %v, %d failed; negative memory %.1f MB of %.1f, refused %.0f; RSS of three %d MB after a quarter, %d MB at its end",
				*floodAbsent, toOrigin, 100*float64(toOrigin)/float64(*floodAbsent), flood.p99(), flood.unasked,
				sumAll(nodes, "edged_negative_bytes")/1e6, sumAll(nodes, "edged_negative_limit_bytes")/1e6,
				sumAll(nodes, "edged_negative_refused_total"), rssQuarter>>20, rssEnd>>20)
			if before.unasked+legit.unasked+flood.unasked > 0 {
				t.Errorf("requests failed: %d before, %d legitimate, %d of the flood", before.unasked, legit.unasked, flood.unasked)
			}
			if legit.hitRatio() < before.hitRatio()-.01 {
				t.Error("the flood cost more than a point of the hit ratio")
			}
			if n := sumAll(nodes, "edged_store_evictions_total", `reason="capacity"`) - evicted; n != 0 {
				t.Errorf("%.0f stored responses were evicted", n)
			}
			if n := sumAll(nodes, "edged_store_objects"); n < objects {
				t.Errorf("%.0f stored responses, and there were %.0f", n, objects)
			}
			for _, n := range nodes {
				if used, limit := n.sum("edged_negative_bytes"), n.sum("edged_negative_limit_bytes"); used > limit {
					t.Errorf("%s: %.0f bytes of absences, over %.0f", n.ready.Name, used, limit)
				}
			}
			// Not more than what absence may take, and garbage as much again.
			if grown := rssEnd - rssQuarter; grown > 3*2*16<<20 {
				t.Errorf("the processes have grown by %d MB since a quarter of the flood", grown>>20)
			}
			// 1 in 1000 is sampled, the first one of each node too, and up to 1 in
			// 1000 is taken for an existing one.
			if limit := int64(*floodAbsent)/500 + 3; mode == "enforce" && toOrigin > limit {
				t.Errorf("%d of the flood reached the origin, want %d at most", toOrigin, limit)
			}
		})
	}
}

// The same absent URLs over and over: the origin sees each once from each node
// in the lifetime of its absence.
func TestFlood_repeatedAbsence(t *testing.T) {
	o := startFloodOrigin(t, true)
	c := newCluster(t)
	nodes := c.threeFor(o.URL, "", "")
	client := newClient(t)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	var next, failed atomic.Int64
	total := int64(*repeatURLs) * int64(*repeatRounds)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for k := next.Add(1) - 1; k < total; k = next.Add(1) - 1 {
				url, round := k%int64(*repeatURLs), k/int64(*repeatURLs)
				r, err := nodes[(url+round)%3].ask(client, fmt.Sprintf("/absent/%d", url))
				if err != nil || r.status != 404 {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	most := int64(0)
	o.perURL.Range(func(_, v any) bool { most = max(most, v.(*atomic.Int64).Load()); return true })
	t.Logf("%d requests for %d absent URLs: %d reached the origin, %d at most for one", total, *repeatURLs, o.absent.Load(), most)
	if refused := sumAll(nodes, "edged_negative_refused_total"); failed.Load() > 0 || refused > 0 || most > 3 || o.absent.Load() > 3*int64(*repeatURLs) {
		t.Errorf("%d failed, %.0f absences refused, %d at the origin, %d for one URL", failed.Load(), refused, o.absent.Load(), most)
	}
}
