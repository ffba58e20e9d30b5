package edge

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// A member's signature holds for a minute, under any key of the ring; nothing
// else does.
func TestSummaries_signature(t *testing.T) {
	k1, k2 := make([]byte, 32), make([]byte, 32)
	k2[0] = 1
	now := time.Unix(1_800_000_000, 0)
	asks, old, stranger := newSummaries([][]byte{k2, k1}), newSummaries([][]byte{k1}), newSummaries([][]byte{append([]byte{9}, k1[1:]...)})
	for _, tt := range []struct {
		name  string
		value string
		at    time.Time
		want  bool
	}{
		{"now", asks.sign(now), now, true},
		{"of an older key of the ring", old.sign(now), now, true},
		{"a clock that is slow", asks.sign(now), now.Add(59 * time.Second), true},
		{"a clock that is fast", asks.sign(now), now.Add(-59 * time.Second), true},
		{"said again later", asks.sign(now), now.Add(2 * time.Minute), false},
		{"from the future", asks.sign(now), now.Add(-2 * time.Minute), false},
		{"another cluster's", stranger.sign(now), now, false},
		{"another time", "1800000001" + asks.sign(now)[10:], now, false},
		{"no MAC", "1800000000", now, false},
		{"no time", " x", now, false},
		{"nothing", "", now, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := asks.verify(tt.value, tt.at); got != tt.want {
				t.Errorf("%q is taken: %v, want %v", tt.value, got, tt.want)
			}
		})
	}
	if open := newSummaries(nil); !open.verify(open.sign(now), now) {
		t.Error("without a key the members don't understand each other")
	}
}

// While somebody watches, each member speaks for itself: the matrix is whole.
// A stranger is told nothing.
func TestCluster_membersSumUp(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") })
	nodes := startCluster(t, 3, origin.URL, func(c *Config) {
		c.Cluster.Keys = [][]byte{make([]byte, 32)}
		c.Cluster.Gossip, c.Cluster.Peer = "127.0.0.1:0", "127.0.0.1:0"
	})
	eventually(t, "every member's summary", func() bool {
		holds := 0
		for _, m := range nodes[0].watchedStatus().Members {
			if m.Summary == nil || m.Summary.Name != m.Name || m.Summary.Limit == 0 {
				return false
			}
			for _, h := range m.Summary.Holds {
				if h.State == "live" {
					holds++
				}
			}
		}
		return holds == 6
	})
	if s := nodes[0].summaries.latest("edge-b", time.Now().Add(time.Minute)); s != nil {
		t.Errorf("after a minute of silence the page still shows %+v", s)
	}
	resp, err := http.Get("http://" + nodes[1].Addrs().Peer + summaryPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a stranger is told %s: %s", resp.Status, b)
	}
}
