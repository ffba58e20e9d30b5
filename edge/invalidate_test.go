package edge

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that come together name each URL once, a first one goes out at once,
// and nobody returns before what it invalidates was sent.
func TestInvalidations_merge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []*invalidation
		v := invalidations{limit: purgeLimit{rate: invalidateRate, burst: invalidateBurst}, send: func(b *invalidation) {
			sent = append(sent, b)
			time.Sleep(5 * time.Millisecond) // until the members have it
		}}
		began := time.Now()
		v.invalidate("c0", []string{"http://h/a"}, false, nil)
		if took := time.Since(began); took != 5*time.Millisecond {
			t.Errorf("a lonely request waits %v", took)
		}
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				key := fmt.Sprintf("http://h/%d", i%3)
				v.invalidate("c1", []string{key, "http://h/list"}, i%3 == 0, nil)
				if b := sent[len(sent)-1]; !slices.Contains(b.urls, key) {
					t.Errorf("%s is not among %v", key, b.urls)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > invalidateWindow+10*time.Millisecond || len(sent) != 2 {
			t.Errorf("%d batches in %v", len(sent), took)
		}
		b := sent[1]
		slices.Sort(b.urls)
		if want := []string{"http://h/0", "http://h/1", "http://h/2", "http://h/list"}; !slices.Equal(b.urls, want) || b.requests != 1000 || b.merged != 1996 {
			t.Errorf("%v of %d requests, %d merged", b.urls, b.requests, b.merged)
		}
		slices.Sort(b.created)
		if want := []string{"http://h/0", "http://h/list"}; !slices.Equal(b.created, want) {
			t.Errorf("created: %v", b.created)
		}
	})
}

// Above the limit hosts stand for URLs; below it again, URLs are named.
func TestInvalidations_fold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // two batches may be sent at once
		var sent []*invalidation
		v := invalidations{limit: purgeLimit{rate: 100, burst: 50}, send: func(b *invalidation) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, b)
		}}
		flood := func(urls int) {
			var wg sync.WaitGroup
			for i := range urls {
				wg.Go(func() { v.invalidate("c", []string{fmt.Sprintf("http://h%d/%d", i%2, i)}, i%2 == 1, nil) })
			}
			wg.Wait()
		}
		flood(40)
		for _, b := range sent {
			if b.folded > 0 {
				t.Errorf("folded below the limit: %+v", b)
			}
		}
		time.Sleep(time.Second)
		sent = nil
		flood(500)
		last := sent[len(sent)-1]
		if !slices.Equal(last.hosts, []string{"h0", "h1"}) || len(last.urls) != 0 || last.folded < 400 ||
			!slices.Equal(last.createdHosts, []string{"h1"}) || len(last.created) != 0 {
			t.Errorf("%+v", last)
		}
		began := time.Now()
		flood(300)
		if took := time.Since(began); took < foldWindow || took > foldWindow+invalidateWindow {
			t.Errorf("the batch after it waits %v", took)
		}
		time.Sleep(2 * time.Second)
		sent = nil
		flood(20)
		flood(20)
		for _, b := range sent[1:] {
			if b.folded > 0 || len(b.hosts) > 0 {
				t.Errorf("folded when all is over: %+v", b)
			}
		}
	})
}

// A client that has written reads what it wrote, on each member, above the limit
// as below it; also where something was remembered as absent. It is in the log
// and the counters.
func TestInvalidations_readYourWrites(t *testing.T) {
	for _, tc := range []struct {
		name  string
		burst float64
		audit string
	}{{"named", invalidateBurst, "kind=method"}, {"folded", 0, "more than the limit"}} {
		t.Run(tc.name, func(t *testing.T) {
			var mu sync.Mutex
			var log bytes.Buffer
			var version atomic.Int64
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					version.Add(1)
					return
				}
				w.Header().Set("Cache-Control", "max-age=60")
				if r.URL.Path == "/new" && version.Load() == 0 {
					http.NotFound(w, r)
					return
				}
				fmt.Fprint(w, version.Load())
			})
			nodes := startCluster(t, 2, o.URL, func(c *Config) {
				c.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
			})
			a, b := nodes[0], nodes[1]
			a.invalidations.limit = purgeLimit{rate: 1, burst: tc.burst}
			for _, n := range nodes {
				n.get(t, "/new").want(t, 404, "404 page not found\n")
			}
			untold, told := a.metrics.purges.WithLabelValues("method", "incomplete"), 0
			for range 5 {
				for _, path := range []string{"/a", "/new"} {
					for _, n := range nodes {
						n.get(t, path)
					}
					before := counted(untold)
					req, err := http.NewRequest(http.MethodPost, "http://"+a.Addrs().Client+path, strings.NewReader("x"))
					if err != nil {
						t.Fatal(err)
					}
					req.Host = "www.example.com"
					resp, err := testClient.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					a.get(t, path).want(t, 200, fmt.Sprint(version.Load()))
					if counted(untold) > before {
						continue // b has not heard in time, and a has said so
					}
					told++
					b.get(t, path).want(t, 200, fmt.Sprint(version.Load()))
				}
			}
			if told == 0 {
				t.Error("b has never heard in time")
			}
			mu.Lock()
			text := log.String()
			mu.Unlock()
			if !strings.Contains(text, tc.audit) || !strings.Contains(text, "audit=true") {
				t.Errorf("the log does not say %q:\n%s", tc.audit, text)
			}
			_, metrics := a.adminCall(t, "GET", "/metrics", "")
			result := map[string]string{"named": "sent", "folded": "folded"}[tc.name]
			if want := `edged_invalidations_total{result="` + result + `"} 10`; !strings.Contains(metrics, want) {
				t.Errorf("there is no %s", want)
			}
		})
	}
}
