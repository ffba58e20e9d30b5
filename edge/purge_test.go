package edge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
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
