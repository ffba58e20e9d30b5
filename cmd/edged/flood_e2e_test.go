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
	p99s    []time.Duration // of each run
	hits    int
	unasked int // requests that failed
}

// p99 is the median of the runs' 99th percentiles: what else the machine does
// meanwhile is in some of them.
func (tr *traffic) p99() time.Duration {
	slices.Sort(tr.p99s)
	return tr.p99s[len(tr.p99s)/2]
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
	if last := slices.Sorted(slices.Values(tr.took[len(tr.took)-n:])); n > 0 {
		tr.p99s = append(tr.p99s, last[n*99/100])
	}
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

// rss returns what each process takes, in MB.
func rss(nodes []*child) (all []int64) {
	for _, n := range nodes {
		all = append(all, n.memory("VmRSS")>>20)
	}
	return all
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

			// Each node stores all of it: what the processes grow by later is not
			// that.
			i := -1
			var warm, quiet, legit, flood traffic
			warm.run(nodes, client, len(nodes)**floodStored, 1e9, func() string { i++; return fmt.Sprintf("/k/%d", i/len(nodes)) })
			evicted := sumAll(nodes, "edged_store_evictions_total", `reason="capacity"`)
			objects := sumAll(nodes, "edged_store_objects")
			seen := o.absent.Load()

			// In parts, each after as long a time without it: both kinds then have
			// their share of whatever else the machine does.
			const parts = 20
			known := zipf(*floodStored, *floodSeed)
			rnd := rand.New(rand.NewPCG(*floodSeed, 2))
			absent := func() string { return fmt.Sprintf("/absent/%016x", rnd.Uint64()) }
			most := make([]float64, len(nodes)) // of the memory of absences
			var at [parts + 1][]int64
			for part := range parts {
				n := *floodAbsent / parts
				quiet.run(nodes, client, min(n/2, int(5**floodRate)), *floodRate, known)
				at[part] = rss(nodes)
				var wg sync.WaitGroup
				wg.Go(func() { legit.run(nodes, client, n/2, *floodRate, known) })
				flood.run(nodes, client, n, 2**floodRate, absent)
				wg.Wait()
				for i, n := range nodes {
					most[i] = max(most[i], n.sum("edged_negative_bytes"))
				}
			}
			at[parts] = rss(nodes)

			toOrigin := o.absent.Load() - seen
			t.Logf("legitimate traffic: hit ratio %.2f %% without, %.2f %% in the flood; p99 %v without, %v in the flood (%.2f times)",
				100*quiet.hitRatio(), 100*legit.hitRatio(), quiet.p99(), legit.p99(), float64(legit.p99())/float64(quiet.p99()))
			t.Logf("flood of %d: %d reached the origin (%.3f %%), p99 %v, %d failed; absences of each node at most %.1f MB of %.1f, refused %.0f",
				*floodAbsent, toOrigin, 100*float64(toOrigin)/float64(*floodAbsent), flood.p99(), flood.unasked,
				slices.Max(most)/1e6, nodes[0].sum("edged_negative_limit_bytes")/1e6, sumAll(nodes, "edged_negative_refused_total"))
			t.Logf("RSS of each, in MB: %d before, %d after a quarter, %d after half, %d at the end", at[0], at[parts/4], at[parts/2], at[parts])
			if quiet.unasked+legit.unasked+flood.unasked > 0 {
				t.Errorf("requests failed: %d without, %d legitimate in it, %d of it", quiet.unasked, legit.unasked, flood.unasked)
			}
			if legit.hitRatio() < quiet.hitRatio()-.01 {
				t.Error("the flood cost more than a point of the hit ratio")
			}
			if n := sumAll(nodes, "edged_store_evictions_total", `reason="capacity"`) - evicted; n != 0 {
				t.Errorf("%.0f stored responses were evicted", n)
			}
			if n := sumAll(nodes, "edged_store_objects"); n < objects {
				t.Errorf("%.0f stored responses, and there were %.0f", n, objects)
			}
			for i, n := range nodes {
				if limit := n.sum("edged_negative_limit_bytes"); most[i] > limit {
					t.Errorf("%s: %.0f bytes of absences, over %.0f", n.ready.Name, most[i], limit)
				}
				// Not more than what absence may take, and garbage as much again.
				if grown := at[parts][i] - at[parts/4][i]; grown > 2*16 {
					t.Errorf("%s has grown by %d MB since a quarter of the flood", n.ready.Name, grown)
				}
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
// in the lifetime of its absence, and once in all where each key has a shield.
func TestFlood_repeatedAbsence(t *testing.T) {
	for _, tt := range []struct {
		name, site string
		most       int64 // requests for one URL
	}{{"no shield", "    shield: off\n", 3}, {"shield ring", "    shield: ring\n", 1}} {
		t.Run(tt.name, func(t *testing.T) {
			o := startFloodOrigin(t, true)
			c := newCluster(t)
			nodes := c.threeFor(o.URL, tt.site, "")
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
			if refused := sumAll(nodes, "edged_negative_refused_total"); failed.Load() > 0 || refused > 0 || most > tt.most || o.absent.Load() > tt.most*int64(*repeatURLs) {
				t.Errorf("%d failed, %.0f absences refused, %d at the origin, %d for one URL", failed.Load(), refused, o.absent.Load(), most)
			}
		})
	}
}
