package edge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"edged/edge/admin"
	"edged/edge/store"
)

// A purge comes while a fill is under way: its client gets the answer that it
// asked for, nobody after the purge does, and it is not stored.
func TestPurge_outrunsAFill(t *testing.T) {
	for _, status := range []int{200, 404} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var version atomic.Int64
			arrived, gate := make(chan struct{}, 10), make(chan struct{})
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				v := version.Load()
				arrived <- struct{}{}
				if v == 0 {
					<-gate
				}
				w.Header().Set("Cache-Control", "max-age=60")
				w.WriteHeader(status)
				fmt.Fprint(w, v)
			})
			n := startNode(t, testConfig("edge-a", o.URL))
			old := make(chan answer)
			go func() { old <- n.get(t, "/x") }()
			<-arrived
			version.Store(1)
			resp, err := testClient.Post("http://"+n.Addrs().Admin+"/v1/purge", "application/json", strings.NewReader(`{"urls":["http://www.example.com/x"]}`))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			n.get(t, "/x").want(t, status, "1", "fwd=uri-miss") // does not join the old one
			close(gate)
			(<-old).want(t, status, "0")
			n.get(t, "/x").want(t, status, "1", "hit")
		})
	}
}

// One validation after a soft purge suffices, also when the walk behind it, or
// another request, marks the response at the same moment. (Seen now and then:
// the answer freshened a copy that was not the stored one, and was lost.)
func TestPurge_softIsValidatedOnce(t *testing.T) {
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("ETag", `"a"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, "x")
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	k := n.keyOf("http://www.example.com/x")
	part := n.partitionOf("/x")
	n.get(t, "/x").want(t, 200, "x", "stored")
	for i := range 300 {
		n.apply(&store.Purge{Prefixes: []string{k.URL}, Soft: true})
		var both sync.WaitGroup
		selected := [2][]*store.Response{}
		for j := range selected {
			both.Go(func() { selected[j] = n.valid(part, &k, n.store.Get(part, &k)) })
		}
		both.Wait()
		stored := n.store.Get(part, &k)
		for _, s := range selected {
			if len(s) != 1 || len(stored) != 1 || s[0] != stored[0] {
				t.Fatalf("round %d: a request validates %p, and %p is stored", i, s, stored)
			}
		}
		n.get(t, "/x").want(t, 200, "x", "fwd-status=304")
		n.get(t, "/x").want(t, 200, "x", "hit")
	}
}

// The answer to a POST that was asked for before a purge is not stored after it,
// though the POST itself purges what is stored once it has its answer.
func TestPurge_whilePOSTIsUnderWay(t *testing.T) {
	for _, purge := range []bool{false, true} {
		t.Run(fmt.Sprintf("purge=%v", purge), func(t *testing.T) {
			held, asked := make(chan struct{}), make(chan struct{}, 1)
			var version atomic.Int64
			version.Store(1)
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				v := version.Load()
				w.Header().Set("Cache-Control", "max-age=3600")
				if r.Method == http.MethodPost {
					w.Header().Set("Content-Location", "/x")
					io.Copy(io.Discard, r.Body)
					asked <- struct{}{}
					<-held
				}
				fmt.Fprint(w, "v", v)
			})
			n := startNode(t, testConfig("edge-a", o.URL))
			done := make(chan answer)
			go func() { done <- n.do(t, http.MethodPost, "/x", strings.NewReader("q")) }()
			<-asked
			version.Store(2)
			want, from := "v1", "hit"
			if purge {
				want, from = "v2", "fwd=uri-miss"
				if _, err := n.purgeRequested(t.Context(), admin.PurgeRequest{URLs: []string{"http://www.example.com/x"}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			close(held)
			a := <-done
			a.want(t, 200, "v1")
			n.get(t, "/x").want(t, 200, want, from)
		})
	}
}
