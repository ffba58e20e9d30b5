package edge

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"edged/edge/store"
	"edged/peerfilter"
)

// discard is a ResponseWriter that keeps the head and nothing else.
type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Flush()                      {}
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

// Does the own filter pay in front of the own store? Both are asked for keys
// that are stored and for keys that are not, cold: each time another one.
func BenchmarkLocalFilter(b *testing.B) {
	for _, keys := range []int{100_000, 1_000_000} {
		plan, err := peerfilter.Size(keys, 0.01, 16)
		if err != nil {
			b.Fatal(err)
		}
		f, err := peerfilter.NewCounting(plan.Params)
		if err != nil {
			b.Fatal(err)
		}
		s, err := store.New(store.Config{Partitions: []store.PartitionConfig{{Name: "p", MaxBytes: 2 << 30, Filter: f}}})
		if err != nil {
			b.Fatal(err)
		}
		key := func(prefix string, i int) store.Key {
			url := "http://www.example.com/" + prefix + "/some/longer/path/" + itoa(int64(i))
			return store.Key{URL: url, Hash: xxhash.Sum64String(url), Filter: peerfilter.Sum(peerfilter.Seed{1, 2}, url)}
		}
		stored, absent := make([]store.Key, keys), make([]store.Key, keys)
		for i := range keys {
			stored[i], absent[i] = key("stored", i), key("absent", i)
			if ok, why := s.Put(0, &stored[i], &store.Response{Head: "A: b\r\n"}); !ok {
				b.Fatal(why)
			}
		}
		for _, c := range []struct {
			name string
			keys []store.Key
		}{{"absent", absent}, {"stored", stored}} {
			for _, filter := range []bool{false, true} {
				b.Run(fmt.Sprintf("n=%d/%s/filter=%v", keys, c.name, filter), func(b *testing.B) {
					i, found := 0, 0
					for b.Loop() {
						k := &c.keys[i*7919%keys]
						i++
						if filter && !f.MayContain(k.Filter) {
							continue
						}
						if len(s.Get(0, k)) > 0 {
							found++
						}
					}
					if (c.name == "stored") != (found > 0) {
						b.Fatalf("found %d", found)
					}
				})
			}
		}
	}
}

// What the filter's hash costs a hit that does not need it.
func BenchmarkFilterHash(b *testing.B) {
	url := "http://www.example.com/some/longer/path/of/a/usual/length/12345"
	for b.Loop() {
		peerfilter.Sum(peerfilter.Seed{1, 2}, url)
	}
}
