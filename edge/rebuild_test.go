package edge

import (
	"fmt"
	"sync"
	"testing"

	"edged/peerfilter"
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
