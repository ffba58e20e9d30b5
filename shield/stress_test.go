package shield

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// content is the body that belongs to a request: nobody else's looks like it.
func content(id, n int) []byte {
	return bytes.Repeat([]byte(strconv.Itoa(id)+","), n/4+1)[:n]
}

// TestTransport_everyAnswerIsItsOwn sends many requests at once to an origin of
// mixed manners: random framing and pieces, surplus answers, connections closed
// before, within and after answers; readers that leave early among them. A body
// that is whole is the one of its request, byte by byte, whatever happened on
// the connection before, and no POST is seen twice.
func TestTransport_everyAnswerIsItsOwn(t *testing.T) {
	const clients, each = 16, 80
	t.Log("the order of goroutines is not reproducible; origin seed 1")
	var mu sync.Mutex
	posts := make(map[string]int)
	var seed atomic.Uint64
	o := startOrigin(t, func(p *peer) {
		rng := rand.New(rand.NewPCG(1, seed.Add(1)))
		for {
			head, _, ok := p.request()
			if !ok || rng.IntN(40) == 0 {
				return // without an answer
			}
			method, rest, _ := strings.Cut(head, " ")
			target, _, _ := strings.Cut(rest, " ")
			var id, n int
			fmt.Sscanf(target, "/%d/%d", &id, &n)
			if method == "POST" {
				mu.Lock()
				posts[target]++
				mu.Unlock()
			}
			body := content(id, n)
			var b bytes.Buffer
			if rng.IntN(4) == 0 {
				b.WriteString("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
			}
			closes := false
			switch rng.IntN(4) {
			case 0:
				fmt.Fprintf(&b, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
				for len(body) > 0 {
					k := 1 + rng.IntN(len(body))
					fmt.Fprintf(&b, "%x\r\n%s\r\n", k, body[:k])
					body = body[k:]
				}
				b.WriteString("0\r\n\r\n")
			case 1:
				closes = true
				fmt.Fprintf(&b, "HTTP/1.1 200 OK\r\nTransfer-Encoding: foo\r\n\r\n%s", body)
			default:
				fmt.Fprintf(&b, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, body)
			}
			if rng.IntN(20) == 0 && !closes {
				b.Truncate(rng.IntN(b.Len()))
				closes = true
			} else if rng.IntN(4) == 0 && !closes {
				b.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
			}
			for all := b.Bytes(); len(all) > 0; {
				k := len(all)
				if rng.IntN(2) == 0 {
					k = 1 + rng.IntN(len(all))
				}
				p.Write(all[:k])
				all = all[k:]
			}
			if closes {
				return
			}
		}
	})
	tr := client(t, TransportConfig{})
	var whole, failed atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(c)))
			for i := range each {
				id, n := 100+c*each+i, rng.IntN(40_000)
				method := []string{"GET", "POST"}[rng.IntN(2)]
				req := newRequest(t, method, fmt.Sprintf("%s/%d/%d", o.url, id, n), nil)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					var e *Error
					if !errors.As(err, &e) || e.Kind == Timeout || e.Kind == Protocol {
						t.Errorf("%s: %v", req.URL.Path, err)
					}
					failed.Add(1)
					continue
				}
				var r io.Reader = resp.Body
				early := rng.IntN(10) == 0
				if early {
					r = io.LimitReader(r, int64(n/2))
				}
				body, err := io.ReadAll(r)
				resp.Body.Close()
				want := content(id, n)
				switch {
				case early && bytes.HasPrefix(want, body):
				case err == nil && bytes.Equal(body, want):
					whole.Add(1)
				case err != nil && bytes.HasPrefix(want, body):
					failed.Add(1)
				default:
					t.Errorf("%s: %d bytes (%.20q), %v; want %d (%.20q)", req.URL.Path, len(body), body, err, len(want), want)
				}
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	for target, n := range posts {
		if n > 1 {
			t.Errorf("POST %s was seen %d times", target, n)
		}
	}
	if whole.Load() < clients*each/2 {
		t.Errorf("only %d of %d were whole, %d failed", whole.Load(), clients*each, failed.Load())
	}
	t.Logf("%d whole, %d failed, over %d connections", whole.Load(), failed.Load(), o.connections())
}

// BenchmarkTransport is one request over a kept connection on loopback.
func BenchmarkTransport(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("body=%d", n), func(b *testing.B) {
			o := startBenchOrigin(b, n)
			tr := NewTransport(TransportConfig{Idle: 10 * time.Second})
			defer tr.Close()
			buf := make([]byte, 32<<10)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				req := newBenchRequest(b, o)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}

func startBenchOrigin(b *testing.B, n int) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(n))
		w.Write(make([]byte, n))
	})}
	go srv.Serve(ln)
	b.Cleanup(func() { srv.Close() })
	return "http://" + ln.Addr().String()
}

func newBenchRequest(b *testing.B, url string) *http.Request {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		b.Fatal(err)
	}
	return req
}

// BenchmarkPlainTransport is what net/http's own costs.
func BenchmarkPlainTransport(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("body=%d", n), func(b *testing.B) {
			o := startBenchOrigin(b, n)
			tr := &http.Transport{DisableCompression: true}
			defer tr.CloseIdleConnections()
			buf := make([]byte, 32<<10)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				resp, err := tr.RoundTrip(newBenchRequest(b, o))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}
