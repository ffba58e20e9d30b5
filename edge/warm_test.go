package edge

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"edged/edge/admin"
)

// What a peer holds, or this node, is not fetched, and the rest no faster than
// is asked for.
func TestWarm_fetchesWhatNobodyHolds(t *testing.T) {
	var mu sync.Mutex
	var at []time.Time
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		at = append(at, time.Now())
		mu.Unlock()
		content(w, r)
	})
	nodes := startCluster(t, 2, o.URL, nil)
	nodes[0].get(t, "/peer/has")
	nodes[1].get(t, "/own")
	eventually(t, "the filters have told", func() bool {
		return nodes[1].replicaBits(nodes[0].cfg.Name) == nodes[0].publishedBits() && nodes[0].publishedBits() > 0
	})
	req := admin.WarmRequest{Rate: 20, URLs: []string{"http://www.example.com/peer/has", "http://www.example.com/own"}}
	for i := range 6 {
		req.URLs = append(req.URLs, fmt.Sprint("http://www.example.com/new/", i))
	}
	mu.Lock()
	at = nil
	mu.Unlock()
	res, err := nodes[1].warm(t.Context(), req, func(admin.WarmResult) {})
	if err != nil || res != (admin.WarmResult{Fetched: 6, Skipped: 2}) {
		t.Fatalf("%+v, %v", res, err)
	}
	// Six fetches at 20 a second have five pauses of 50 ms.
	if took := at[5].Sub(at[0]); len(at) != 6 || took < 240*time.Millisecond {
		t.Errorf("%d fetches in %v", len(at), took)
	}
	for i := range 6 {
		if a := nodes[1].get(t, fmt.Sprint("/new/", i)); a.status != 200 || o.requests.Load() != 8 {
			t.Errorf("/new/%d: %d %s, %d origin requests", i, a.status, a.cacheStatus(), o.requests.Load())
		}
	}
}

// Progress is told while the origin still thinks; a caller that leaves ends it.
func TestWarm_progressAndEnd(t *testing.T) {
	told := make(chan struct{})
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-told
		}
		content(w, r)
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	tell := sync.OnceFunc(func() { close(told) })
	defer tell()
	var last admin.WarmResult
	res, err := n.warm(t.Context(), admin.WarmRequest{Rate: 1000, URLs: []string{"http://www.example.com/a", "http://www.example.com/slow"}}, func(r admin.WarmResult) {
		last = r
		tell()
	})
	if err != nil || last != (admin.WarmResult{Fetched: 1}) || res != (admin.WarmResult{Fetched: 2}) {
		t.Errorf("in between %+v, at the end %+v, %v", last, res, err)
	}
	many := admin.WarmRequest{URLs: make([]string, maxWarm+1)}
	if _, err := n.warm(t.Context(), many, nil); err == nil {
		t.Error("too many URLs are taken")
	}
}
