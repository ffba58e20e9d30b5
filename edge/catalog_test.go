package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/edge/admin"
	"edged/edge/store"
	"edged/gossip"
)

// withCatalog gives each node the same list of what exists.
func withCatalog(t *testing.T, mode, list string) func(*Config) {
	file := filepath.Join(t.TempDir(), "catalog")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Sites[0].Catalog = Catalog{File: file, Mode: mode, Refresh: time.Hour} }
}

// cataloged starts a node that enforces a list of what exists, and has spent
// its first sample.
func cataloged(t *testing.T, list string) *Node {
	cfg := testConfig("edge-a", newOrigin(t, content).URL)
	withCatalog(t, "enforce", list)(&cfg)
	n := startNode(t, cfg)
	loaded(t, n)
	return n
}

// loaded waits until a node's catalog is, which has /a, and spends its first
// sample.
func loaded(t *testing.T, n *Node) {
	c := n.sites.Load().all[0].catalog
	eventually(t, "the catalog is loaded", func() bool { return c.Lists("/a") })
	c.Check("/the first one is a sample", time.Now())
}

// A change of the catalog through one member is a change on all, for whoever
// asks after its answer; and members make of a path what clients make of it.
func TestCatalog_changeReachesAll(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 3, o.URL, withCatalog(t, "enforce", "/a\n/b c\n"))
	for _, n := range nodes {
		loaded(t, n)
		n.get(t, "/new").want(t, 404, "404 Not Found: this site has nothing here\n", "detail=catalog")
		if a := n.get(t, "/a"); a.status != 200 {
			t.Errorf("/a: %d %s", a.status, a.cacheStatus())
		}
	}
	res, err := nodes[1].catalogUpdate(t.Context(), "www", []string{"/new", "/%7euser"}, []string{"/gone"})
	if err != nil || res.Acked != 3 || len(res.Missing) > 0 || res.Added != 2 || res.Removed != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, n := range nodes {
		for _, p := range []string{"/new", "/~user"} {
			if a := n.get(t, p); a.status != 200 {
				t.Errorf("%s: %s: %d %s", n.cfg.Name, p, a.status, a.cacheStatus())
			}
		}
	}
	if _, err := nodes[0].catalogUpdate(t.Context(), "www", nil, []string{"/new"}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.apply(&store.Purge{All: true})
		n.get(t, "/new").want(t, 404, "404 Not Found: this site has nothing here\n", "detail=catalog")
	}
	for name, status := range map[string]int{"nobody": http.StatusNotFound} {
		if _, err := nodes[0].catalogUpdate(t.Context(), name, []string{"/x"}, nil); err == nil || err.(*admin.Error).Status != status {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was created, through one node or at the origin and then told, is
// answered 404 from no member's catalog, also after a newer source without it.
func TestCatalog_knowsWhatWasCreated(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		case http.MethodPost:
			w.Header().Set("Location", "/posts/17")
			w.WriteHeader(http.StatusCreated)
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			content(w, r)
		}
	})
	nodes := startCluster(t, 3, o.URL, withCatalog(t, "enforce", "/a\n"))
	for _, n := range nodes {
		loaded(t, n)
		for _, p := range []string{"/put", "/posts/17", "/told?q=1", "/deleted"} {
			n.get(t, p).want(t, 404, "404 Not Found: this site has nothing here\n", "detail=catalog")
		}
	}
	nodes[0].do(t, http.MethodPut, "/put", strings.NewReader("x")).want(t, 201, "")
	nodes[1].do(t, http.MethodPost, "/posts", strings.NewReader("x")).want(t, 201, "")
	nodes[2].do(t, http.MethodDelete, "/deleted", nil).want(t, 204, "")
	if res, err := nodes[2].created(t.Context(), []string{"http://www.example.com/told?q=1"}); err != nil || len(res.Missing) > 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	for range 2 {
		for _, n := range nodes {
			for _, p := range []string{"/put", "/posts/17", "/told"} {
				if a := n.get(t, p); a.status != 200 {
					t.Errorf("%s: %s: %d %s", n.cfg.Name, p, a.status, a.cacheStatus())
				}
			}
			n.get(t, "/deleted").want(t, 404, "404 Not Found: this site has nothing here\n", "detail=catalog")
			if err := n.sites.Load().all[0].catalog.Load(strings.NewReader("/b\n"), time.Now()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A catalog that has no room for what was created refuses nothing any more.
func TestCatalog_noRoomForWhatWasCreated(t *testing.T) {
	n := cataloged(t, "/a\n")
	c := n.sites.Load().all[0].catalog
	many := make([]string, 1<<16)
	for i := range many {
		many[i] = "/" + itoa(int64(i))
	}
	if err := c.Add(many, time.Now()); err != nil {
		t.Fatal(err)
	}
	n.get(t, "/new").want(t, 404, "404 Not Found: this site has nothing here\n", "detail=catalog")
	if _, err := n.created(t.Context(), []string{"http://www.example.com/new"}); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(time.Now()); st.Effective != "observe" || st.Reason != "incomplete" || st.Dropped != 1 {
		t.Errorf("%+v", st)
	}
	n.get(t, "/new").want(t, 200, "/new")
}

// Every stamp is later than the smaller ones.
func TestStampTime(t *testing.T) {
	for _, s := range []uint64{0, 1, 0xfffe, 1 << 16, 0x18bcfe5680000 << 4, ^uint64(0) >> 2} {
		if !stampTime(s + 1).After(stampTime(s)) {
			t.Errorf("%#x is not before %#x", s, s+1)
		}
	}
}

// A catalog that calls absent what the origin has is found by its samples, and
// refuses nothing from then on.
func TestCatalog_lieIsFound(t *testing.T) {
	n := cataloged(t, "/a\n")
	c := n.sites.Load().all[0].catalog
	refused := 0
	for i := range 2000 {
		a := n.get(t, "/real/"+strings.Repeat("x", i%50)+itoa(int64(i)))
		if a.status == 404 {
			refused++
		}
		if st := c.Stats(time.Now()); st.Reason == "contradicted" {
			break
		}
	}
	if st := c.Stats(time.Now()); st.Reason != "contradicted" || st.Wrong != 1 || refused < 1 || refused > 1000 {
		t.Errorf("%d refused: %+v", refused, st)
	}
	if a := n.get(t, "/real/another"); a.status != 200 {
		t.Errorf("it still refuses: %d %s", a.status, a.cacheStatus())
	}
}

// A change that is larger than the log takes in one goes in parts. (Seen: it was
// answered 200 and changed nothing.)
func TestCatalog_largeChange(t *testing.T) {
	long := func(i int) string { return fmt.Sprintf("/%d/%s", i, strings.Repeat("\x01", 7<<10)) }
	var add, remove []string
	for i := range 100 {
		add, remove = append(add, long(i)), append(remove, long(-1-i))
	}
	changes, err := catalogChanges("www", add, remove)
	if err != nil {
		t.Fatal(err)
	}
	var got catalogChange
	for _, c := range changes {
		if len(c.Payload) > 127<<10 {
			t.Errorf("a change of %d bytes", len(c.Payload))
		}
		var part catalogChange
		if err := json.Unmarshal(c.Payload, &part); err != nil {
			t.Fatal(err)
		}
		got.Add, got.Remove = append(got.Add, part.Add...), append(got.Remove, part.Remove...)
	}
	if !slices.Equal(got.Add, add) || !slices.Equal(got.Remove, remove) {
		t.Errorf("%d added and %d removed, want 100 of each", len(got.Add), len(got.Remove))
	}
	if _, err := catalogChanges("www", []string{strings.Repeat("x", 9<<10)}, nil); err == nil {
		t.Error("a path of 9 KiB is taken")
	}
}

// Where more is created at once than can be named, a catalog calls nothing absent
// any more.
func TestCatalog_doubtsItselfWhenCreationsAreFolded(t *testing.T) {
	n := cataloged(t, "/a\n")
	n.get(t, "/new").want(t, 404, "404 Not Found: this site has nothing here\n", "detail=catalog")
	n.applyChange(gossip.Change{Kind: gossip.KindCreated, Hosts: []string{"www.example.com"}})
	if a := n.get(t, "/new"); a.status != 200 {
		t.Errorf("/new: %d %s", a.status, a.cacheStatus())
	}
}
