package edge

import (
	"strings"
	"testing"
)

func TestReload(t *testing.T) {
	o := newOrigin(t, content)
	cfg := testConfig("edge-a", o.URL)
	cfg.Cluster.Keys = [][]byte{[]byte(strings.Repeat("k", 32))}
	n := startNode(t, cfg)
	n.get(t, "/x").want(t, 200, "/x", "stored")

	change := func(f func(*Config)) error {
		next := cfg
		next.Sites = append([]Site(nil), cfg.Sites...)
		f(&next)
		return n.Reload(next)
	}
	if err := change(func(c *Config) { c.Sites[0].Bypass = []string{"/b/*"} }); err != nil {
		t.Fatal(err)
	}
	n.get(t, "/b/x").want(t, 200, "/b/x", "fwd=bypass")
	kept := n.sites.Load().all[0]
	if err := change(func(c *Config) {
		c.Sites[0].Bypass = []string{"/b/*"}
		c.Sites = append(c.Sites, Site{Name: "more", Hosts: []string{"more.example"}, Origin: c.Sites[0].Origin})
	}); err != nil {
		t.Fatal(err)
	}
	if s := n.sites.Load(); len(s.all) != 2 || s.all[0] != kept {
		t.Error("a site that is as it was has lost its connections and its catalog")
	}
	n.get(t, "/b/x").want(t, 200, "/b/x", "fwd=bypass")
	n.get(t, "/x").want(t, 200, "/x", "hit") // what is stored stays
	if err := change(func(c *Config) { c.Cluster.Keys = [][]byte{[]byte(strings.Repeat("n", 32)), c.Cluster.Keys[0]} }); err != nil {
		t.Errorf("keys can't be exchanged: %v", err)
	}
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"cache.memory: a restart is needed", func(c *Config) { c.Cache.Memory, c.Filter.Keys = 64<<20, 5 }},
		{"filter.keys: a restart is needed", func(c *Config) { c.Cache.Memory, c.Filter.Keys = 64<<20, 5 }},
		{"cluster.key_file: a restart", func(c *Config) { c.Cluster.Keys = nil }},
		{"sites[0].shield", func(c *Config) { c.Sites[0].Shield = "maybe" }},
	} {
		if err := change(c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error that names %s", err, c.want)
		}
	}
	n.get(t, "/x").want(t, 200, "/x", "hit")
}
