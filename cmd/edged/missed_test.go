//go:build e2e || netns

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"edged/edge/admin"
)

// versionedOrigin answers /k0, /k1 and so on with a version that the test
// raises, a validator and a tag.
type versionedOrigin struct {
	versions [16]atomic.Int64
	full     atomic.Int64 // answers with content
}

func (o *versionedOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var key int
	if _, err := fmt.Sscanf(r.URL.Path, "/k%d", &key); err != nil || key < 0 || key >= len(o.versions) {
		http.NotFound(w, r)
		return
	}
	v := fmt.Sprint(o.versions[key].Load())
	w.Header().Set("Cache-Control", "max-age=600")
	w.Header().Set("Surrogate-Key", fmt.Sprintf("key-%d", key))
	w.Header().Set("ETag", `"`+v+`"`)
	if r.Header.Get("If-None-Match") == `"`+v+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	o.full.Add(1)
	io.WriteString(w, v)
}

// overflow purges so many long tags through a node that what it was told to
// purge before is in nobody's log any more: 12 MiB of a member are kept. So many
// members are away.
func overflow(t *testing.T, away int, purge func(body string) admin.PurgeResult) {
	t.Helper()
	for i := range 15 {
		var req admin.PurgeRequest
		for j := range 120 {
			req.Tags = append(req.Tags, fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", 8000)))
		}
		body, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if res := purge(string(body)); res.Acked < res.Members-away {
			t.Fatalf("only %d of %d members have applied a purge", res.Acked, res.Members)
		}
	}
}

// overflowed is nil once a log is as short as it must be.
func overflowed(memory float64) error {
	if memory > 12<<20 {
		return fmt.Errorf("the log has %v bytes", memory)
	}
	return nil
}
