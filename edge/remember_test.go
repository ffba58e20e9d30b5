package edge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edged/edge/admin"
	"edged/edge/negative"
	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/gossip"
)

// Every variant of an absence is remembered, apart from the stored responses,
// and what ends one of them ends all.
func TestAbsence_variants(t *testing.T) {
	var exists atomic.Bool
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Vary", "Accept-Encoding, Accept-Language")
		if !exists.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(w, "%q %q", r.Header.Get("Accept-Encoding"), r.Header.Get("Accept-Language"))
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	variants := [][]string{
		{"Accept-Encoding: gzip", "Accept-Language: de"}, {"Accept-Encoding: br", "Accept-Language: de"}, {"Accept-Language: de"}, {},
	}
	ask := func(status int, detail string) {
		t.Helper()
		for _, fields := range variants {
			value := func(name string) string {
				for _, f := range fields {
					if v, ok := strings.CutPrefix(f, name+": "); ok {
						return v
					}
				}
				return ""
			}
			n.get(t, "/x", fields...).want(t, status, fmt.Sprintf("%q %q", value("Accept-Encoding"), value("Accept-Language")), detail)
		}
	}
	settled := func(want int64) {
		t.Helper()
		eventually(t, "all are remembered", func() bool { return n.negative.Stats().Entries == want })
	}
	ask(404, "fwd=uri-miss")
	settled(4)
	ask(404, "detail=negative")
	if got := n.store.Stats(0).Objects; got != 0 || o.requests.Load() != 4 {
		t.Errorf("%d responses are stored, and the origin saw %d requests", got, o.requests.Load())
	}
	for _, end := range []func(){
		func() { n.apply(&store.Purge{URLs: []string{"http://www.example.com/x"}, Absences: true}) },
		func() { n.apply(&store.Purge{URLs: []string{"http://www.example.com/x"}, Soft: true}) },
		func() { n.apply(&store.Purge{Prefixes: []string{"http://www.example.com/x"}}) },
		func() { n.apply(&store.Purge{Hosts: []string{"www.example.com"}}) },
		func() { n.apply(&store.Purge{All: true}) },
		func() { exists.Store(true) },
	} {
		end()
		if exists.Load() {
			n.get(t, "/x", variants[0]...).want(t, 404, `"gzip" "de"`, "detail=negative")
			n.apply(&store.Purge{URLs: []string{"http://www.example.com/x"}})
			ask(200, "fwd=")
			ask(200, "hit")
			return
		}
		ask(404, "fwd=uri-miss")
		ask(404, "detail=negative")
	}
}

// A flood of absent URLs with Vary stores nothing, and takes one entry each.
func TestAbsence_variantsOfAFlood(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept-Encoding")
		w.WriteHeader(http.StatusNotFound)
	})
	cfg := testConfig("edge-a", o.URL)
	cfg.Negative.TTL = time.Hour
	n := startNode(t, cfg)
	for i := range 100 {
		n.get(t, fmt.Sprint("/", i), "Accept-Encoding: gzip")
	}
	eventually(t, "all are remembered", func() bool { return n.negative.Stats().Entries == 100 })
	if got := n.store.Stats(0).Objects; got != 0 {
		t.Errorf("%d responses are stored", got)
	}
}

// A purge by tag ends the absences that have it, and no others.
func TestAbsence_purgedByTag(t *testing.T) {
	for _, soft := range []bool{false, true} {
		o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=3600")
			w.Header().Set("Surrogate-Key", "all"+r.URL.Path)
			w.WriteHeader(http.StatusNotFound)
		})
		nodes := startCluster(t, 2, o.URL, nil)
		for _, n := range nodes {
			for _, p := range []string{"/a", "/b"} {
				n.get(t, p).want(t, 404, "", "fwd=uri-miss")
				eventually(t, "it is remembered", func() bool { return strings.Contains(n.get(t, p).cacheStatus(), "detail=negative") })
			}
		}
		if _, err := nodes[0].purgeRequested(t.Context(), admin.PurgeRequest{Tags: []string{"all/a"}, Soft: soft}, nil); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			n.get(t, "/a").want(t, 404, "", "fwd=uri-miss")
			n.get(t, "/b").want(t, 404, "", "detail=negative")
		}
	}
}

// A purge ends the absences that it covers for the next request, and their
// memory comes back behind it; the others stay, and are as of after it.
func TestAbsence_purged(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.WriteHeader(http.StatusNotFound)
	})
	const site = "http://www.example.com"
	for _, c := range []struct {
		name  string
		purge store.Purge
		ends  int // of /a/0 to /a/9 and /b/0 to /b/9
	}{
		{"a URL", store.Purge{URLs: []string{site + "/a/0"}}, 1},
		{"a prefix", store.Purge{Prefixes: []string{site + "/a/"}}, 10},
		{"a host", store.Purge{Hosts: []string{"www.example.com"}}, 20},
		{"another host", store.Purge{Hosts: []string{"example.com"}}, 0},
		{"a tag that they don't have", store.Purge{Tags: []string{"t"}}, 0},
		{"everything", store.Purge{All: true}, 20},
		{"what was created", store.Purge{URLs: []string{site + "/a/0"}, Absences: true}, 1},
	} {
		for _, soft := range []bool{false, true} {
			n := startNode(t, testConfig("edge-a", o.URL))
			paths := []string{}
			for _, dir := range []string{"/a/", "/b/"} {
				for i := range 10 {
					paths = append(paths, fmt.Sprint(dir, i))
					n.get(t, paths[len(paths)-1]).want(t, 404, "")
				}
			}
			eventually(t, "all are remembered", func() bool { return n.negative.Stats().Entries == 20 })
			p := c.purge
			p.Soft = soft
			n.apply(&p)
			n.walk(t.Context())
			if left := n.negative.Stats().Entries; left != int64(20-c.ends) {
				t.Errorf("%s, soft %v: %d are left behind the walk, want %d", c.name, soft, left, 20-c.ends)
			}
			n.negative.Review(t.Context(), n.epochs.Generation(), func(key string, e negative.Entry) bool {
				t.Errorf("%s, soft %v: %s is still of generation %d", c.name, soft, key, e.Generation)
				return true
			})
			for i, p := range paths {
				from := "detail=negative"
				if i < c.ends {
					from = "fwd=uri-miss"
				}
				n.get(t, p).want(t, 404, "", from)
			}
		}
	}
}

// It does so before anything has come to take them out.
func TestAbsence_purgedAtOnce(t *testing.T) {
	var n Node
	n.epochs.Add(&store.Purge{URLs: []string{"http://h/before"}}, time.Now())
	e := negative.Entry{Generation: n.epochs.Generation()}
	for _, p := range []store.Purge{
		{URLs: []string{"http://h/a"}}, {Prefixes: []string{"http://h/"}}, {Hosts: []string{"h"}}, {All: true},
	} {
		for _, soft := range []bool{false, true} {
			p.Soft = soft
			if n.purged("http://h/a", &e) {
				t.Errorf("%+v: purged before", p)
			}
			e.Generation = n.epochs.Add(&p, time.Now()) - 1
			if !n.purged("http://h/a", &e) {
				t.Errorf("%+v: not purged", p)
			}
			e.Generation++
		}
	}
}

// An origin may say by another status that there is nothing, where it is
// configured.
func TestAbsence_statuses(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) })
	cfg := testConfig("edge-a", o.URL)
	n := startNode(t, cfg)
	n.get(t, "/x").want(t, 403, "", "fwd=uri-miss")
	n.get(t, "/x").want(t, 403, "", "fwd=uri-miss")
	cfg.Name, cfg.Negative.Statuses = "edge-b", []int{403}
	n = startNode(t, cfg)
	n.get(t, "/x").want(t, 403, "", "fwd=uri-miss")
	eventually(t, "it is remembered", func() bool { return strings.Contains(n.get(t, "/x").cacheStatus(), "detail=negative") })
	if got := n.store.Stats(0).Objects; got != 0 {
		t.Errorf("%d responses are stored", got)
	}
	for _, status := range []int{200, 401, 429, 503} {
		bad := cfg
		bad.Negative.Statuses = []int{403, status}
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "negative.statuses[1]") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// An absence goes stale like any response.
func TestAbsence_reuse(t *testing.T) {
	const down = -1
	for _, tt := range []struct {
		name    string
		header  string // Cache-Control of the absence
		request string // of the second request
		after   time.Duration
		now     int // what the origin says then
		status  int
		says    string
	}{
		{"fresh, §4.2", "max-age=60", "", 30 * time.Second, 200, 404, "hit; ttl=29; detail=negative"},
		{"stale, §4.2.4", "max-age=60", "", 61 * time.Second, 200, 200, "fwd=uri-miss"},
		{"no-cache, §5.2.2.4", "max-age=60, no-cache", "", 0, 200, 200, "fwd=uri-miss"},
		{"request no-cache, §5.2.1.4", "max-age=60", "no-cache", time.Second, 200, 200, "fwd=uri-miss"},
		{"request max-age, §5.2.1.1", "max-age=60", "max-age=5", 6 * time.Second, 200, 200, "fwd=uri-miss"},
		{"request max-age that is met, §5.2.1.1", "max-age=60", "max-age=5", 4 * time.Second, 200, 404, "detail=negative"},
		{"request min-fresh, §5.2.1.3", "max-age=60", "min-fresh=30", 31 * time.Second, 200, 200, "fwd=uri-miss"},
		{"stale-while-revalidate, RFC 5861 §3", "max-age=60, stale-while-revalidate=30", "", 61 * time.Second, 200, 404, "hit; ttl=-2; detail=negative"},
		{"stale-while-revalidate over, RFC 5861 §3", "max-age=60, stale-while-revalidate=30", "", 91 * time.Second, 200, 200, "fwd=uri-miss"},
		{"stale-if-error, RFC 5861 §4", "max-age=60, stale-if-error=30", "", 61 * time.Second, 503, 404, "fwd=uri-miss; fwd-status=503; ttl=-2"},
		{"stale-if-error, and no answer, RFC 5861 §4", "max-age=60, stale-if-error=30", "", 61 * time.Second, down, 404, "ttl=-2"},
		{"stale-if-error over, RFC 5861 §4", "max-age=60, stale-if-error=30", "", 91 * time.Second, 503, 503, "fwd=uri-miss; fwd-status=503"},
		{"within the configured grace", "max-age=60", "", 100 * time.Second, 503, 404, "fwd-status=503"},
		{"must-revalidate, §5.2.2.2", "max-age=60, must-revalidate", "", 61 * time.Second, 503, 503, "fwd-status=503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.now == down {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(tt.now)
			})
			cfg := testConfig("edge-a", o.URL)
			cfg.Sites[0].RequestDirectives, cfg.Sites[0].StaleGrace = "honour", time.Minute
			n := startNode(t, cfg)
			rq, err := n.explained(http.MethodGet, "http://www.example.com/x", http.Header{})
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(-tt.after)
			fw := &forward{site: rq.site, key: rq.key, part: rq.part, method: http.MethodGet}
			x := rfc9111.Exchange{
				Method: http.MethodGet, Status: 404, Header: http.Header{"Cache-Control": {tt.header}}, RequestTime: at, ResponseTime: at,
			}
			m, kept, _ := n.storable(fw, &upstream{
				resp: &http.Response{StatusCode: 404, Header: x.Header}, detail: "origin", requestTime: at, responseTime: at,
			})
			if m != nil {
				n.rememberAbsence(fw, rq.key.URL, &outcome{status: 404, meta: m, kept: kept}, nil, nil, 0)
			}
			var fields []string
			if tt.request != "" {
				fields = []string{"Cache-Control: " + tt.request}
			}
			a := n.get(t, "/x", fields...)
			if a.err != nil || a.status != tt.status || !strings.Contains(a.cacheStatus(), tt.says) {
				t.Errorf("%d %s, %v; want %d %s", a.status, a.cacheStatus(), a.err, tt.status, tt.says)
			}
			// Times are kept to the millisecond, rounded down.
			dates := []string{at.UTC().Format(http.TimeFormat), at.Add(-time.Millisecond).UTC().Format(http.TimeFormat)}
			if tt.status == 404 && (!slices.Contains(dates, a.header.Get("Date")) || a.header.Get("Age") == "") {
				t.Errorf("Date %s and Age %s, stored at %v", a.header.Get("Date"), a.header.Get("Age"), at)
			}
			if tt.name == "stale-while-revalidate, RFC 5861 §3" {
				eventually(t, "it is validated behind", func() bool { return n.get(t, "/x").status == 200 })
			}
		})
	}
}

// What was deleted at the origin, and purged with that reason, is absent on
// every member at once, outlives what was on its way, and ends by a creation,
// also by one whose news came first.
func TestDeleted_isAbsent(t *testing.T) {
	held, asked := make(chan struct{}), make(chan struct{}, 1)
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		if r.URL.Path == "/slow" {
			asked <- struct{}{}
			<-held
		}
		fmt.Fprint(w, r.URL.Path)
	})
	nodes := startCluster(t, 3, o.URL, func(c *Config) { c.Negative.TTL = time.Hour })
	for _, n := range nodes {
		n.get(t, "/x").want(t, 200, "/x")
	}
	slow := make(chan answer)
	go func() { slow <- nodes[1].get(t, "/slow") }()
	<-asked
	// What was stored in the millisecond of the deletion may have been so after it.
	stored := time.Now()
	eventually(t, "time goes on", func() bool { return time.Since(stored) > 2*time.Millisecond })
	res, err := nodes[0].purgeRequested(t.Context(), admin.PurgeRequest{
		URLs: []string{"http://www.example.com/x", "http://www.example.com/slow"}, Reason: "deleted",
	}, nil)
	if err != nil || len(res.Missing) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	close(held)
	(<-slow).want(t, 200, "/slow")
	before := o.requests.Load()
	for _, n := range nodes {
		for _, p := range []string{"/x", "/slow"} {
			n.get(t, p).want(t, 404, "404 Not Found: this was deleted\n", "detail=negative")
		}
	}
	if got := o.requests.Load() - before; got != 0 {
		t.Errorf("%d requests reached the origin", got)
	}
	e, err := nodes[2].explain(t.Context(), "GET", "http://www.example.com/x", http.Header{})
	if err != nil || !strings.Contains(fmt.Sprintf("%+v", e), "the purge said 404 at ") {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := nodes[1].created(t.Context(), []string{"http://www.example.com/x"}); err != nil {
		t.Fatal(err)
	}
	nodes[2].bury([]string{"http://www.example.com/x"}, time.Now().Add(-time.Minute))
	for _, n := range nodes {
		n.get(t, "/x").want(t, 200, "/x")
	}
	for _, req := range []admin.PurgeRequest{
		{URLs: []string{"http://www.example.com/x"}, Reason: "because"},
		{Tags: []string{"a"}, Reason: "deleted"}, {All: true, Reason: "deleted"},
		{URLs: []string{"http://www.example.com/x"}, Soft: true, Reason: "deleted"},
	} {
		if _, err := nodes[0].purgeRequested(t.Context(), req, nil); err == nil || err.(*admin.Error).Status != http.StatusBadRequest {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// What was created after it was deleted, by the clock of whoever says so, stays,
// in whatever order the two come, and though that clock is ahead of ours.
func TestTombstone_olderThanACreation(t *testing.T) {
	o := newOrigin(t, content)
	cfg := testConfig("edge-a", o.URL)
	cfg.Negative.TTL = time.Hour
	n := startNode(t, cfg)
	now := time.Now()
	news := func(kind gossip.Kind, url string, after time.Duration) {
		n.applyChange(gossip.Change{Kind: kind, URLs: []string{"http://www.example.com" + url}, Stamp: uint64(now.Add(after).UnixMilli()) << 16})
	}
	news(gossip.KindCreated, "/created", 20*time.Second)
	news(gossip.KindTombstone, "/created", 10*time.Second)
	news(gossip.KindPurge, "/purged", 20*time.Second)
	news(gossip.KindTombstone, "/purged", 10*time.Second)
	news(gossip.KindCreated, "/deleted", 10*time.Second)
	news(gossip.KindTombstone, "/deleted", 20*time.Second)
	for url, want := range map[string]int{"/created": 200, "/purged": 200, "/deleted": 404} {
		if a := n.get(t, url); a.status != want {
			t.Errorf("%s: %d, want %d (%s)", url, a.status, want, a.cacheStatus())
		}
	}
}
