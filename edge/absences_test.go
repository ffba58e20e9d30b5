package edge

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What an operator is told of absences: how many, how many distinct ones, how
// many from the origin; and of one, who said so and until when.
func TestAbsences_shown(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusNotFound)
	})
	nodes := startCluster(t, 2, o.URL, func(c *Config) {
		if c.Name == "edge-b" {
			c.Cluster.Role = RoleShield
		}
	})
	edge, sh := nodes[0], nodes[1]
	for i := range 20 {
		for range 3 {
			edge.get(t, fmt.Sprint("/x/", i)).want(t, 404, "")
		}
	}
	a := edge.sites.Load().all[0].absent
	eventually(t, "all are counted", func() bool { return a.requests.Load() >= 60 })
	if got := a.distinct.Estimate(time.Now()); got < 19 || got > 21 {
		t.Errorf("%.1f distinct keys, want 20", got)
	}
	if b := sh.sites.Load().all[0].absent; a.requests.Load() != 60 || a.origin.Load() != 0 || b.requests.Load() != 0 || b.origin.Load() != 20 {
		t.Errorf("edge: %d requests, %d from the origin; shield: %d and %d", a.requests.Load(), a.origin.Load(), b.requests.Load(), b.origin.Load())
	}
	for _, tt := range []struct {
		n    *Node
		from string
	}{{edge, "shield"}, {sh, "origin"}} {
		e, err := tt.n.explain(t.Context(), "GET", "http://www.example.com/x/7", http.Header{})
		if err != nil || len(e.Stored) != 1 {
			t.Fatalf("%+v, %v", e, err)
		}
		if s := e.Stored[0]; s.From != tt.from || !s.Negative || s.ExpiresAt.Sub(s.StoredAt) > time.Minute || s.TTLSeconds < 30 {
			t.Errorf("%s: %+v", tt.n.cfg.Name, s)
		}
		if last := e.Steps[len(e.Steps)-1]; !strings.Contains(last.Result, "the "+tt.from+" said 404 at ") {
			t.Errorf("%s: %+v", tt.n.cfg.Name, last)
		}
	}
}

// The catalog's word is explained, and why it does not count.
func TestExplain_catalog(t *testing.T) {
	o := newOrigin(t, content)
	cfg := testConfig("edge-a", o.URL)
	withCatalog(t, "enforce", "/a\n")(&cfg)
	n := startNode(t, cfg)
	c := n.sites.Load().all[0].catalog
	eventually(t, "the catalog is loaded", func() bool { return c.Lists("/a") })
	would := func(path, part string) {
		t.Helper()
		e, err := n.explain(t.Context(), "GET", "http://www.example.com"+path, http.Header{})
		if err != nil || !strings.Contains(fmt.Sprintf("%+v", e), part) {
			t.Errorf("%s: %+v, %v; want it to say %q", path, e, err, part)
		}
	}
	would("/b", "be answered 404 from the catalog of site www")
	would("/a", "may exist")
	c.Doubt()
	would("/b", "because it is incomplete")
	would("/b", "This request would go to the origin")
}

// A deletion through one node outlives what was on its way before it: the old
// response, which arrives afterwards at another, is stored nowhere, and a
// creation after it ends the absence that came of it. The log of changes is the
// tombstone.
func TestDelete_outlivesOlderFills(t *testing.T) {
	var gone atomic.Bool
	held, asked := make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { close(held) })
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		switch {
		case r.Method == http.MethodDelete:
			gone.Store(true)
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodPut:
			gone.Store(false)
			w.WriteHeader(http.StatusCreated)
		case gone.Load():
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, "old ")
			http.NewResponseController(w).Flush()
			select {
			case asked <- struct{}{}:
				<-held
			default:
			}
			fmt.Fprint(w, "response")
		}
	})
	defer release()
	nodes := startCluster(t, 2, o.URL, nil)
	var wg sync.WaitGroup
	wg.Go(func() { nodes[1].get(t, "/x").want(t, 200, "old response") })
	eventually(t, "the old response is on its way", func() bool { return o.requests.Load() == 1 && len(asked) == 1 })
	nodes[0].do(t, http.MethodDelete, "/x", nil).want(t, 204, "")
	release()
	wg.Wait()
	for range 2 {
		for _, n := range nodes {
			n.get(t, "/x").want(t, 404, "")
		}
	}
	nodes[1].get(t, "/x").want(t, 404, "", "detail=negative")
	nodes[1].do(t, http.MethodPut, "/x", strings.NewReader("new")).want(t, 201, "")
	for _, n := range nodes {
		n.get(t, "/x").want(t, 200, "old response")
	}
}
