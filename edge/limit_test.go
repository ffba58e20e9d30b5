package edge

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/edge/store"
	"edged/shield"
)

// idle reports whether nothing is at the origin of the node's only site.
func (n *Node) idle() bool {
	l := n.sites.Load().all[0].limit
	return l.Stats(shield.New).InFlight+l.Stats(shield.Known).InFlight == 0
}

// A flood of absent keys takes what it may of a slow origin. Content that was
// there before is fetched meanwhile, also after its purge; what does not get a
// place is told so soon, and when to come back.
func TestLimit_floodLeavesKnownContentItsShare(t *testing.T) {
	const limit = 8
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/absent/") {
			<-held
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "known")
	})
	defer release()
	cfg := testConfig("edge-a", o.URL)
	cfg.Sites[0].Origin.MaxConcurrent, cfg.Sites[0].Origin.Queue, cfg.Sites[0].Origin.MaxWait = limit, 4, 50*time.Millisecond
	cfg.Sites[0].Origin.KnownShare = 0.25
	n := startNode(t, cfg)
	for i := range 4 {
		n.get(t, fmt.Sprint("/known/", i)).want(t, 200, "known")
	}
	n.apply(&store.Purge{All: true})

	var wg sync.WaitGroup
	for i := range limit * 3 / 4 {
		wg.Go(func() { n.get(t, fmt.Sprint("/absent/", i)).want(t, 404, "404 page not found\n", "fwd-status=404") })
	}
	l := n.sites.Load().all[0].limit
	eventually(t, "the flood fills its part", func() bool { return l.Stats(shield.New).InFlight == limit*3/4 })
	var refused []answer
	var mu sync.Mutex
	each(t, 40, func(i int) {
		a := n.get(t, fmt.Sprint("/absent/more/", i))
		mu.Lock()
		refused = append(refused, a)
		mu.Unlock()
	})
	for _, a := range refused {
		if a.status != 503 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.cacheStatus(), "fwd=uri-miss; detail=saturated") {
			t.Fatalf("got %d, Retry-After %q, Cache-Status %q", a.status, a.header.Get("Retry-After"), a.cacheStatus())
		}
	}
	for i := range 4 {
		n.get(t, fmt.Sprint("/known/", i)).want(t, 200, "known", "fwd-status=200; stored")
	}
	st := l.Stats(shield.New)
	if got := st.Refused[shield.RefusedQueue] + st.Refused[shield.RefusedWait]; got != 40 || st.Refused[shield.RefusedWait] > 40 {
		t.Errorf("%d refused, want 40: %+v", got, st)
	}
	n.do(t, http.MethodPut, "/absent/put", strings.NewReader("x")).want(t, 503, "503 Service Unavailable: the origin has as many requests as it may have: try again soon\n", "fwd=method; detail=saturated")
	release()
	wg.Wait()
	eventually(t, "every place is given back", n.idle)
}

// What is stored and stale is served when the origin has no place (RFC 5861
// §4: as after a 503).
func TestLimit_staleInsteadOfRefused(t *testing.T) {
	held := make(chan struct{})
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			<-held
		}
		w.Header().Set("Cache-Control", "max-age=0, stale-if-error=60")
		fmt.Fprint(w, "stale")
	})
	defer close(held)
	cfg := testConfig("edge-a", o.URL)
	cfg.Sites[0].Origin.MaxConcurrent, cfg.Sites[0].Origin.MaxWait = 1, time.Millisecond
	n := startNode(t, cfg)
	n.get(t, "/x").want(t, 200, "stale")
	eventually(t, "the place is given back", n.idle)
	go n.get(t, "/hangs")
	eventually(t, "the origin is busy", func() bool { return !n.idle() })
	n.get(t, "/x").want(t, 200, "stale", "fwd=stale", "ttl=-")
}

// Each way out of a forward gives its place back: a client that leaves, an
// origin that breaks off, a tunnel, a validation, a refused body.
func TestLimit_placesComeBack(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/breaks":
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("x"))
			panic(http.ErrAbortHandler)
		case "/closes":
			panic(http.ErrAbortHandler)
		case "/etag":
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Cache-Control", "max-age=0")
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(304)
			}
		}
	})
	cfg := testConfig("edge-a", o.URL)
	cfg.Sites[0].Origin.MaxConcurrent = 2
	n := startNode(t, cfg)
	for range 5 {
		for _, p := range []string{"/breaks", "/closes", "/etag", "/plain"} {
			n.get(t, p)
			n.do(t, http.MethodHead, p, nil)
			n.do(t, http.MethodPost, p, strings.NewReader("body"))
			n.get(t, p, "Range: bytes=0-1")
		}
	}
	eventually(t, "every place is given back", n.idle)
}

// A reload changes the limit of what is in flight already.
func TestLimit_reload(t *testing.T) {
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) { <-held })
	cfg := testConfig("edge-a", o.URL)
	cfg.Sites[0].Origin.MaxConcurrent, cfg.Sites[0].Origin.MaxWait = 1, time.Minute
	n := startNode(t, cfg)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { n.get(t, fmt.Sprint("/", i)).want(t, 200, "") })
	}
	l := n.sites.Load().all[0].limit
	eventually(t, "one waits", func() bool { return l.Stats(shield.New).Waiting == 1 })
	cfg.Sites = []Site{cfg.Sites[0]}
	cfg.Sites[0].Origin.MaxConcurrent = 3 // one of them is for what is known
	if err := n.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if n.sites.Load().all[0].limit != l {
		t.Error("the site has lost count of what is at its origin")
	}
	eventually(t, "both are at the origin", func() bool { return o.requests.Load() == 2 })
	release()
	wg.Wait()
}
