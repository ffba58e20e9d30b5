//go:build netns && linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"edged/edge/admin"
)

// key asks the node for one of a versionedOrigin's keys.
func (n *netNode) key(key int) (body, cacheStatus string, err error) {
	req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s:8080/k%d", n.addr, key), nil)
	if err != nil {
		return "", "", err
	}
	req.Host = "www.example.com"
	resp, err := n.client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), resp.Header.Get("Cache-Status"), err
}

// TestNetns_minorityMissesPurges: two of five processes lose the network to the
// other three, but not that to the origin. Once the two call themselves isolated
// they validate before each use, so they serve nothing that the others have purged,
// while the three go on as before. When they meet again, nobody's log has what
// was purged any more, and the two validate all that they had stored, once.
func TestNetns_minorityMissesPurges(t *testing.T) {
	o := &versionedOrigin{}
	c := newNetClusterOf(t, 5, o)
	for _, n := range c.nodes {
		n.run(t)
	}
	c.together()
	most, few := c.nodes[:3], c.nodes[3:]
	// look asks the nodes for each key, which must be of the present version, and
	// come with that Cache-Status.
	look := func(when string, nodes []*netNode, from int, want string) {
		t.Helper()
		for _, n := range nodes {
			for key := from; key < len(o.versions); key++ {
				body, cs, err := n.key(key)
				if err != nil || body != fmt.Sprint(o.versions[key].Load()) || !strings.Contains(cs, want) {
					t.Errorf("%s: n%d has version %q of key %d, want %d: %s, want %s; %v", when, n.index, body, key, o.versions[key].Load(), cs, want, err)
				}
			}
		}
	}
	state := func(n *netNode, s string) error {
		if v, err := n.metric(`edged_purge_log_state{state="` + s + `"}`); err != nil || v != 1 {
			return fmt.Errorf("n%d is not %s: %v", n.index, s, err)
		}
		return nil
	}
	for _, n := range c.nodes {
		for key := range o.versions {
			c.within(10*time.Second, "all is stored", func() error {
				if _, cs, err := n.key(key); err != nil || !strings.Contains(cs, "; hit; ttl=") {
					return fmt.Errorf("key %d at n%d: %s, %v", key, n.index, cs, err)
				}
				return nil
			})
		}
	}

	drop(most, "ip saddr "+addresses(few))
	drop(few, "ip saddr "+addresses(most))
	o.versions[0].Add(1)
	client := most[0].namespace.client()
	if res, _, err := most[0].purge(client, `{"tags":["key-0"]}`); err != nil || len(res.Missing) != 2 {
		t.Errorf("missing %v of %d, %v: want the two", res.Missing, res.Members, err)
	}
	look("once the purge's call has returned", most, 0, "")
	alone := c.within(90*time.Second, "the two are isolated", func() error {
		for _, n := range few {
			if err := state(n, "isolated"); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("the two called themselves isolated %v after the purge", alone.Round(10*time.Millisecond))
	look("isolated", few, 0, "fwd=stale")
	look("isolated, for the second time", few, 0, "fwd-status=304")
	look("the majority", most, 0, "; hit; ttl=")
	for _, n := range most {
		if err := state(n, "synced"); err != nil {
			t.Error(err)
		}
	}

	overflow(t, len(few), func(body string) admin.PurgeResult {
		res, _, err := most[0].purge(client, body)
		if err != nil {
			t.Fatal(err)
		}
		return res
	})
	for _, n := range most {
		c.within(10*time.Second, "the log is as short as it must be", func() error {
			memory, err := n.metric(`edged_purge_log_bytes{place="memory"}`)
			if err != nil {
				return err
			}
			return overflowed(memory)
		})
	}
	o.versions[1].Add(1) // purged by nobody: who validates sees it
	undrop(c.nodes)
	c.together()
	look("healed", few, 0, "fwd=stale")
	look("healed, for the second time", few, 0, "; hit; ttl=")
	look("the majority after all", most, 2, "; hit; ttl=")
	for i, n := range c.nodes {
		want := 0.0
		if i >= len(most) {
			want = 1
		}
		if lost, err := n.metric("edged_purge_lost_total"); err != nil || lost != want {
			t.Errorf("n%d has lost purges %v times, want %v: %v", n.index, lost, want, err)
		}
	}
}
