package edge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/store"
)

// chunked cuts b into chunks of up to size bytes, of memory of their own.
func chunked(rng *rand.Rand, b []byte, size int) store.Body {
	var chunks [][]byte
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(size))
		chunks = append(chunks, bytes.Clone(b[:n]))
		b = b[n:]
	}
	return store.NewBody(chunks)
}

// Joined parts beside a set of byte positions.
func TestJoinParts_model(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 200 {
		size := int64(1 + rng.IntN(300))
		chunk := 1 + rng.IntN(40)
		if round%20 == 0 {
			size, chunk = 500<<10, 2*shareChunk // chunks that are shared
		}
		whole := make([]byte, size)
		for i := range whole {
			whole[i] = byte(rng.Uint32())
		}
		have := make([]bool, size)
		var ps parts
		var body store.Body
		for range 12 {
			start := rng.Int64N(size)
			r := rfc9111.Range{Start: start, Length: 1 + rng.Int64N(size-start)}
			if rng.IntN(2) == 0 {
				r.Length = 1 + rng.Int64N(min(r.Length, size/8+1))
			}
			ps, body = joinParts(ps, body, r, chunked(rng, whole[r.Start:r.Start+r.Length], chunk))
			for i := r.Start; i < r.Start+r.Length; i++ {
				have[i] = true
			}

			total, end := int64(0), int64(-1)
			for _, p := range ps {
				if p.Start <= end || p.Length < 1 {
					t.Fatalf("seed %d: parts %v touch, or are in disorder", seed, ps)
				}
				end = p.Start + p.Length
				off, ok := ps.offset(p)
				if !ok || off != total {
					t.Fatalf("seed %d: %v of %v lies at %d, %v", seed, p, ps, off, ok)
				}
				total += p.Length
				got := slices.Concat(slices.Collect(body.Section(off, p.Length))...)
				if !bytes.Equal(got, whole[p.Start:end]) {
					t.Fatalf("seed %d: other bytes in %v of %v", seed, p, ps)
				}
			}
			n := int64(0)
			for i, h := range have {
				if h {
					n++
				}
				if _, ok := ps.offset(rfc9111.Range{Start: int64(i), Length: 1}); ok != h {
					t.Fatalf("seed %d: byte %d is held: %v, want %v", seed, i, ok, h)
				}
			}
			if body.Len() != n || total != n {
				t.Fatalf("seed %d: a body of %d bytes for %d", seed, body.Len(), n)
			}
		}
	}
}

func TestParts_span(t *testing.T) {
	held := parts{{Start: 2, Length: 2}, {Start: 6, Length: 2}}
	for _, c := range []struct{ want, gap rfc9111.Range }{
		{rfc9111.Range{Start: 2, Length: 2}, rfc9111.Range{Start: 2}},
		{rfc9111.Range{Start: 2, Length: 3}, rfc9111.Range{Start: 4, Length: 1}},
		{rfc9111.Range{Start: 1, Length: 2}, rfc9111.Range{Start: 1, Length: 1}},
		{rfc9111.Range{Start: 3, Length: 4}, rfc9111.Range{Start: 4, Length: 2}},
		{rfc9111.Range{Start: 0, Length: 10}, rfc9111.Range{Start: 0, Length: 10}},
		{rfc9111.Range{Start: 8, Length: 2}, rfc9111.Range{Start: 8, Length: 2}},
	} {
		if got := held.span(c.want); got != c.gap {
			t.Errorf("of %v, %v is missing, want %v", c.want, got, c.gap)
		}
	}
}

// Many clients ask for ranges and the whole of a few objects, which change
// meanwhile: whatever arrives whole is bytes of one version, the one whose tag
// came with it.
func TestPartial_bytes(t *testing.T) {
	const versions, objects = 6, 4
	sizes := [objects]int{1, 1000, 40 << 10, 700 << 10}
	content := func(object, version int) string {
		var b strings.Builder
		for i := 0; b.Len() < sizes[object]; i++ {
			fmt.Fprintf(&b, "%d.%d.%d ", object, version, i)
		}
		return b.String()[:sizes[object]]
	}
	var contents [objects][versions]string
	for o := range objects {
		for v := range versions {
			contents[o][v] = content(o, v)
		}
	}
	var version atomic.Int32
	var parted atomic.Int64
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		object, v := int(r.URL.Path[1]-'0'), int(version.Load())
		h := w.Header()
		h["Etag"] = []string{fmt.Sprintf(`"%d"`, v)}
		h["Cache-Control"] = []string{[]string{"max-age=60", "max-age=0", "no-cache"}[rand.IntN(3)]}
		h["Content-Type"] = []string{"text/x"}
		if r.Header["If-Range"] != nil {
			parted.Add(1)
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(contents[object][v]))
	})
	n := startNode(t, testConfig("edge-a", origin.URL))
	seed := rand.Uint64()
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			for range 150 {
				o := rng.IntN(objects)
				size := sizes[o]
				start := rng.IntN(size)
				end := start + rng.IntN(size-start)
				var fields []string
				want := func(s string) string { return s }
				switch rng.IntN(8) {
				case 0:
				case 1:
					fields = []string{fmt.Sprintf("Range: bytes=-%d", size-start)}
					want = func(s string) string { return s[start:] }
				case 2:
					fields = []string{fmt.Sprintf("Range: bytes=%d-", start)}
					want = func(s string) string { return s[start:] }
				default:
					fields = []string{fmt.Sprintf("Range: bytes=%d-%d", start, end)}
					want = func(s string) string { return s[start : end+1] }
				}
				if rng.IntN(40) == 0 {
					version.Store(rng.Int32N(versions))
				}
				a := n.get(t, fmt.Sprintf("/%d", o), fields...)
				if a.err != nil {
					t.Errorf("seed %d: %v of %d: %v", seed, fields, o, a.err)
					continue
				}
				v := 0
				fmt.Sscanf(a.header.Get("Etag"), `"%d"`, &v)
				whole := contents[o][v]
				switch {
				case a.status == 206 && a.body == want(whole) && fields != nil:
				case a.status == 200 && a.body == whole && fields == nil:
				default:
					t.Errorf("seed %d: %v of %d: %d with %d bytes, Content-Range %q, Cache-Status %q", seed, fields, o, a.status, len(a.body), a.header["Content-Range"], a.cacheStatus())
				}
			}
		})
	}
	clients.Wait()
	if parted.Load() == 0 {
		t.Error("nothing was ever completed from parts")
	}
	if used := n.budget.Used(); used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}
}

// The rest of a large object streams: the held bytes arrive while the origin
// has not sent the rest.
func TestPartial_streams(t *testing.T) {
	release := make(chan struct{})
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Etag"], h["Cache-Control"] = []string{`"a"`}, []string{"max-age=60"}
		if r.Header.Get("Range") == "bytes=0-4" {
			h["Content-Range"] = []string{"bytes 0-4/10"}
			w.WriteHeader(206)
			w.Write([]byte("01234"))
			return
		}
		h["Content-Range"], h["Content-Length"] = []string{"bytes 5-9/10"}, []string{"5"}
		w.WriteHeader(206)
		http.NewResponseController(w).Flush()
		<-release
		w.Write([]byte("56789"))
	})
	n := startNode(t, testConfig("edge-a", origin.URL))
	n.get(t, "/", "Range: bytes=0-4").want(t, 206, "01234")
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Addrs().Client+"/", nil)
	r.Host = "www.example.com"
	resp, err := testClient.Do(r)
	if err != nil {
		close(release)
		t.Fatal(err)
	}
	defer resp.Body.Close()
	held := make([]byte, 5)
	_, err = resp.Body.Read(held)
	close(release)
	if err != nil || resp.StatusCode != 200 || string(held) != "01234" {
		t.Fatalf("%d %q, %v", resp.StatusCode, held, err)
	}
	var rest bytes.Buffer
	rest.ReadFrom(resp.Body)
	if rest.String() != "56789" {
		t.Errorf("the rest is %q", rest.String())
	}
	n.get(t, "/").want(t, 200, "0123456789", "hit")
}
