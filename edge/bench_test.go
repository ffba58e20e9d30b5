package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a ResponseWriter that keeps the head and nothing else.
type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// benchNode is a node with one stored response of size bytes under /x.
func benchNode(b testing.TB, size int) *Node {
	body := strings.Repeat("x", size)
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, body)
	}))
	b.Cleanup(o.Close)
	n, err := New(testConfig("edge-a", o.URL))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.Close() })
	w := httptest.NewRecorder()
	n.serveClient(w, benchRequest())
	if w.Code != 200 || w.Body.Len() != size {
		b.Fatalf("got %d with %d bytes", w.Code, w.Body.Len())
	}
	return n
}

func benchRequest() *http.Request {
	r := httptest.NewRequest("GET", "/x", nil)
	r.Host = "www.example.com"
	r.Header.Set("Accept", "*/*")
	r.Header.Set("User-Agent", "bench")
	return r
}

// A hit's memory: one slice for all stored values, and a handful of small ones
// for the fields that this node adds. More than this is a step backwards.
func TestHit_allocations(t *testing.T) {
	const most = 18
	n, r, w := benchNode(t, 1<<10), benchRequest(), &discard{h: http.Header{}}
	got := testing.AllocsPerRun(1000, func() {
		clear(w.h)
		n.serveClient(w, r)
	})
	if got > most {
		t.Errorf("%v allocations for a hit, want %d at most", got, most)
	}
}

// What this node adds to net/http for a hit of 1 KiB.
func BenchmarkHit(b *testing.B) {
	n := benchNode(b, 1<<10)
	r := benchRequest()
	b.ReportAllocs()
	w := &discard{h: http.Header{}}
	for b.Loop() {
		clear(w.h)
		n.serveClient(w, r)
		if w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

// A hit over a real connection, with net/http on both sides.
func BenchmarkHitOverTCP(b *testing.B) {
	n := benchNode(b, 1<<10)
	b.ReportAllocs()
	for b.Loop() {
		r, _ := http.NewRequest("GET", "http://"+n.Addrs().Client+"/x", nil)
		r.Host = "www.example.com"
		resp, err := testClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
