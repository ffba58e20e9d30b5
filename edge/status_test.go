package edge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An operator reads the steps and the last sentence of an explanation; they
// follow what is stored as it comes, goes stale and is purged softly.
func TestExplain_says(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Vary", "Accept-Language")
		fmt.Fprint(w, "hello")
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	const url = "http://www.example.com/x"
	explain := func(method, url, selected, would string, header http.Header) {
		t.Helper()
		e, err := n.explain(t.Context(), method, url, header)
		if err != nil {
			t.Fatal(err)
		}
		if e.Would != would {
			t.Errorf("%s %s: %q, want %q", method, url, e.Would, would)
		}
		for _, s := range e.Steps {
			if s.Name == "select" && s.Result != selected {
				t.Errorf("%s %s: select: %q, want %q", method, url, s.Result, selected)
			}
		}
	}
	explain("GET", url, "nothing stored here", "This request would go to the origin without asking a peer.", nil)
	explain("POST", url, "", "This request would go to the origin, and invalidate what is stored under this URL if it succeeds.", nil)
	n.get(t, "/x").want(t, 200, "hello")
	n.get(t, "/gone").want(t, 404, "")
	// The answer may be there before it is stored.
	eventually(t, "both are stored", func() bool { return n.negative.Stats().Entries == 1 && n.store.Stats(0).Objects == 1 })
	explain("GET", url, "1 stored here, one matches", "This request would be answered from the store of edge-a.", nil)
	explain("GET", url, "1 stored here, none matches this request's fields", "This request would go to the origin without asking a peer.", http.Header{"Accept-Language": {"fr"}})
	before := n.absenceHits.Load()
	explain("GET", "http://www.example.com/gone", "nothing stored here", "This request would be answered 404 from a remembered absence of edge-a.", nil)
	if after := n.absenceHits.Load(); after != before {
		t.Errorf("explain has counted: %d hits, before %d", after, before)
	}

	resp, err := testClient.Post("http://"+n.Addrs().Admin+"/v1/purge", "application/json", strings.NewReader(`{"all":true,"soft":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	explain("GET", url, "1 stored here, one matches", "This request would be validated with the origin.", nil)
	e, err := n.explain(t.Context(), "GET", url, nil)
	if err != nil || len(e.Stored) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	// A lifetime that ended a second before the response came is nothing that
	// anyone could make sense of.
	if s := e.Stored[0]; s.TTLSeconds != 0 || s.AgeSeconds > time.Minute.Seconds() {
		t.Errorf("softly purged: age %vs, fresh for %vs, want 0", s.AgeSeconds, s.TTLSeconds)
	}
}

// Whoever looks at a node sees which of its origins' servers is skipped.
func TestStatus_showsOrigins(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	dead := newOrigin(t, nil)
	dead.Close()
	cfg := testConfig("edge-a", o.URL)
	cfg.Sites[0].Origin.URLs = append(cfg.Sites[0].Origin.URLs, dead.URL)
	n := startNode(t, cfg)
	asked := 0
	eventually(t, "the dead one is skipped", func() bool {
		asked++ // it is skipped for a second, and then tried again
		n.get(t, fmt.Sprint("/", asked)).want(t, 200, "hello")
		all := n.clusterStatus().Origins
		if len(all) != 2 || all[0].Site != cfg.Sites[0].Name || all[0].URL != o.URL || all[1].URL != dead.URL {
			t.Fatalf("the origins are %+v", all)
		}
		return all[0].Healthy && all[0].Attempts == uint64(asked) && all[0].Failures == 0 &&
			!all[1].Healthy && all[1].Failures > 0 && all[1].Failures == all[1].Attempts
	})
}
