package edge

import (
	"fmt"
	"sync"
	"testing"

	"edged/peerfilter"

	"edged/edge/store"
)

// A filter that more keys come to than it was planned for is rebuilt twice as
// large, as a new epoch, while requests go on; the peers follow.
func TestFilter_growsWithItsKeys(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 2, o.URL, func(c *Config) { c.Filter.Keys = 1000 })
	const keys = 3000
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < keys; i += 4 {
				path := fmt.Sprintf("/%d", i)
				nodes[0].get(t, path).want(t, 200, path)
			}
		})
	}
	wg.Wait()
	c, planned, epoch := nodes[0].filters[0].current()
	eventually(t, "it has grown", func() bool {
		c, planned, epoch = nodes[0].filters[0].current()
		return planned*85/100 > keys
	})
	if st := c.Stats(); st.Keys != keys || st.Underflows != 0 || st.Pinned != 0 || epoch == 0 {
		t.Errorf("epoch %d holds %+v, want %d keys", epoch, st, keys)
	}
	fresh, err := peerfilter.NewCounting(c.Params())
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		fresh.Add(nodes[0].keyOf(fmt.Sprintf("http://www.example.com/%d", i)).Filter)
	}
	if got, want := c.Stats(), fresh.Stats(); got != want {
		t.Errorf("rebuilt %+v, built anew %+v", got, want)
	}
	eventually(t, "the peer has the new epoch", func() bool {
		for i := range keys {
			if !nodes[1].gossip.Lookup(0, nodes[1].keyOf(fmt.Sprintf("http://www.example.com/%d", i)).Filter).Contains("edge-a") {
				return false
			}
		}
		return true
	})
}

// A purge of everything leaves a filter alone that is being rebuilt: what is
// published is what the store tells of its keys. The walk takes out what is
// stored.
func TestFilter_clearedWhileItIsRebuilt(t *testing.T) {
	n := startNode(t, testConfig("edge-a", newOrigin(t, content).URL))
	n.get(t, "/x").want(t, 200, "/x")
	eventually(t, "it is stored", func() bool { return n.store.Stats(0).Objects == 1 })
	s := &n.filters[0]
	s.build.Lock()
	before := n.store.Filter(0)
	n.apply(&store.Purge{All: true})
	if n.store.Filter(0) != before {
		t.Error("the store has another filter")
	}
	s.build.Unlock()
	eventually(t, "the walk has been there", func() bool { return n.store.Stats(0).Objects == 0 })
	n.apply(&store.Purge{All: true})
	if c, _, _ := s.current(); n.store.Filter(0) != store.Filter(c) || n.store.Filter(0) == before {
		t.Error("no new filter, or not the store's")
	}
}
