package edge

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/edge/store"
)

// waiting returns how many clients wait for the forward of a key.
func (n *Node) waiting(key string) int {
	n.flights.mu.Lock()
	defer n.flights.mu.Unlock()
	if f := n.flights.tab[key]; f != nil {
		return f.waiters
	}
	return 0
}

func TestCollapse_oneForwardForAll(t *testing.T) {
	gate := make(chan struct{})
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		<-gate
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "shared")
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	const clients = 50
	var wg sync.WaitGroup
	answers := make([]answer, clients)
	for i := range clients {
		wg.Go(func() { answers[i] = n.get(t, "/one") })
	}
	eventually(t, "all wait", func() bool { return n.waiting("http://www.example.com/one") == clients })
	close(gate)
	wg.Wait()
	collapsed := 0
	for _, a := range answers {
		a.want(t, 200, "shared", "fwd=uri-miss; fwd-status=200; stored")
		if strings.Contains(a.cacheStatus(), "collapsed") {
			collapsed++
		}
	}
	if collapsed != clients-1 || o.requests.Load() != 1 {
		t.Errorf("%d collapsed, %d reached the origin; want %d and 1", collapsed, o.requests.Load(), clients-1)
	}
}

// The first client leaves; the second one still gets everything.
func TestCollapse_survivesTheFirstClient(t *testing.T) {
	half, gate := make(chan struct{}), make(chan struct{})
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
		close(half)
		<-gate
		io.WriteString(w, "second")
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	ctx, leave := context.WithCancel(context.Background())
	first := make(chan struct{})
	go func() {
		defer close(first)
		r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addrs().Client+"/x", nil)
		r.Host = "www.example.com"
		if resp, err := testClient.Do(r); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	<-half
	second := make(chan answer)
	go func() { second <- n.get(t, "/x") }()
	eventually(t, "two wait", func() bool { return n.waiting("http://www.example.com/x") == 2 })
	leave()
	<-first
	eventually(t, "one has left", func() bool { return n.waiting("http://www.example.com/x") == 1 })
	close(gate)
	(<-second).want(t, 200, "first second", "collapsed")
	n.get(t, "/x").want(t, 200, "first second", "hit")
	if got := o.requests.Load(); got != 1 {
		t.Errorf("%d requests reached the origin, want 1", got)
	}
}

// Nobody waits any more, and much is still to come: the forward ends.
func TestCollapse_endsWhenAllHaveLeft(t *testing.T) {
	gone := make(chan struct{})
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	ctx, leave := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addrs().Client+"/x", nil)
	resp, err := testClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Read(make([]byte, 5))
	leave()
	resp.Body.Close()
	select {
	case <-gone:
	case <-time.After(deadline):
		t.Fatal("the origin still answers, for nobody")
	}
}

// An answer that may not be shared frees all waiters at once: they don't
// queue behind each other.
func TestCollapse_uncacheableFreesAll(t *testing.T) {
	const clients = 20
	gate, all := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	inside := 0
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		inside++
		if inside == clients {
			close(all)
		}
		first := inside == 1
		mu.Unlock()
		if first {
			<-gate
		} else {
			<-all // only when every other one is here too
		}
		w.Header().Set("Cache-Control", "private")
		fmt.Fprint(w, r.Header.Get("X-Client"))
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			who := fmt.Sprint("client ", i)
			n.get(t, "/p", "X-Client: "+who).want(t, 200, who, "fwd=uri-miss; fwd-status=200; detail=origin")
		})
	}
	eventually(t, "all wait", func() bool { return n.waiting("http://www.example.com/p") == clients })
	close(gate)
	wg.Wait()
}

// The origin's first byte reaches every client before its second one is sent.
func TestStream_firstByteFirst(t *testing.T) {
	for _, cacheable := range []string{"max-age=60", "no-store"} {
		t.Run(cacheable, func(t *testing.T) {
			seen := make(chan struct{})
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", cacheable)
				io.WriteString(w, "a")
				w.(http.Flusher).Flush()
				<-seen
				io.WriteString(w, "b")
			})
			n := startNode(t, testConfig("edge-a", o.URL))
			resp, err := testClient.Get("http://" + n.Addrs().Client + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			p := make([]byte, 1)
			if _, err := io.ReadFull(resp.Body, p); err != nil || p[0] != 'a' {
				t.Fatalf("got %q, %v", p, err)
			}
			close(seen)
			if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "b" {
				t.Fatalf("then got %q, %v", rest, err)
			}
		})
	}
}

// Who has read a whole response finds it stored, though its head be all of it.
func TestFill_emptyIsStoredBeforeItIsSeen(t *testing.T) {
	for _, status := range []int{200, 204} {
		asked, answer := make(chan struct{}), make(chan struct{})
		o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
			close(asked)
			<-answer
			w.Header().Set("Cache-Control", "max-age=60")
			w.WriteHeader(status)
		})
		n := startNode(t, testConfig("edge-a", o.URL))
		var wg sync.WaitGroup
		wg.Go(func() { n.get(t, "/x").want(t, status, "", "stored") })
		<-asked
		func() {
			n.flights.mu.Lock() // nobody learns of the answer
			defer n.flights.mu.Unlock()
			close(answer)
			eventually(t, "it is stored", func() bool { return n.store.Stats(0).Objects == 1 })
		}()
		wg.Wait()
		n.get(t, "/x").want(t, status, "", "hit")
	}
}

// A body larger than what may be stored passes in bounded memory.
func TestStream_largeBodyInBoundedMemory(t *testing.T) {
	const size = 256 << 20
	block := bytes.Repeat([]byte("edged..."), 8<<10)
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		for sent := 0; sent < size; sent += len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	cfg := testConfig("edge-a", o.URL)
	cfg.Cache.MaxObject = 1 << 20
	n := startNode(t, cfg)
	resp, err := testClient.Get("http://" + n.Addrs().Client + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var peak uint64
	got, buf := 0, make([]byte, 1<<20)
	for {
		k, err := io.ReadFull(resp.Body, buf)
		got += k
		if got%(32<<20) == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got != size {
		t.Errorf("got %d bytes, want %d", got, size)
	}
	if peak > 128<<20 {
		t.Errorf("the heap held %d MiB", peak>>20)
	}
}

// streamRounds is for a longer run: go test -race ./edge -run bytesAre -stream.rounds 10000
var streamRounds = flag.Int("stream.rounds", 200, "rounds of TestStream_bytesAreTheOrigins, each with a seed of its own")

// Every client that gets a complete reply gets the origin's bytes, whatever
// the sizes, chunkings, early leavers and breaks.
func TestStream_bytesAreTheOrigins(t *testing.T) {
	body := func(path string) []byte {
		var seed uint64
		fmt.Sscanf(path, "/%d", &seed)
		rng := rand.New(rand.NewPCG(seed, 7))
		return randomBytes(rng, rng.IntN(1<<uint(3+rng.IntN(16))))
	}
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		var seed uint64
		fmt.Sscanf(r.URL.Path, "/%d", &seed)
		rng := rand.New(rand.NewPCG(seed, 8))
		p := body(r.URL.Path)
		if rng.IntN(2) == 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(p)))
		}
		if rng.IntN(4) != 0 {
			w.Header().Set("Cache-Control", "max-age=60")
		}
		broken := rng.IntN(8) == 0
		for len(p) > 0 {
			k := min(len(p), 1+rng.IntN(20000))
			w.Write(p[:k])
			p = p[k:]
			if rng.IntN(3) == 0 {
				w.(http.Flusher).Flush()
			}
			if broken && rng.IntN(4) == 0 {
				panic(http.ErrAbortHandler)
			}
		}
	})
	cfg := testConfig("edge-a", o.URL)
	cfg.Cache.MaxObject = 40000
	n := startNode(t, cfg)
	for round := range *streamRounds {
		path := fmt.Sprintf("/%d", round)
		want := body(path)
		var wg sync.WaitGroup
		for c := range 4 {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(c)))
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addrs().Client+path, nil)
				resp, err := testClient.Do(r)
				if err != nil {
					return // no reply is no wrong reply
				}
				defer resp.Body.Close()
				if rng.IntN(4) == 0 {
					io.CopyN(io.Discard, resp.Body, int64(rng.IntN(1000)))
					return
				}
				got, err := io.ReadAll(bufio.NewReaderSize(resp.Body, 1+rng.IntN(5000)))
				if err == nil && resp.StatusCode == 200 && !bytes.Equal(got, want) {
					t.Errorf("round %d: got %d bytes that are not the origin's %d", round, len(got), len(want))
				}
			})
		}
		wg.Wait()
	}
	if used := n.budget.Used(); used != 0 {
		eventually(t, "no memory is reserved", func() bool { return n.budget.Used() == 0 })
	}
}

// The origins one would rather not have; each gets a clear answer, in time.
func TestOrigin_bad(t *testing.T) {
	head := func(c net.Conn) { http.ReadRequest(bufio.NewReader(c)) }
	for _, c := range []struct {
		name   string
		serve  func(net.Conn)
		status int // 0: the client sees a broken reply
	}{
		{"closes without a word", func(c net.Conn) { head(c) }, 502},
		{"hangs", func(c net.Conn) { head(c); io.Copy(io.Discard, c) }, 504},
		{"speaks something else", func(c net.Conn) { head(c); io.WriteString(c, "220 smtp ready\r\n") }, 502},
		{"endless head", func(c net.Conn) {
			head(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			line := []byte("X-Pad: " + strings.Repeat("x", 1000) + "\r\n")
			for range 200 << 10 {
				if _, err := c.Write(line); err != nil {
					return
				}
			}
		}, 502},
		{"closes in the middle", func(c net.Conn) {
			head(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100\r\n\r\nhalf")
		}, 0},
		{"chunks without an end", func(c net.Conn) {
			head(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
		}, 0},
		{"hangs in the middle", func(c net.Conn) {
			head(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100\r\n\r\nhalf")
			io.Copy(io.Discard, c)
		}, 0},
		{"sends more than it says", func(c net.Conn) {
			head(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nfullHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig("edge-a", rawOrigin(t, c.serve))
			cfg.Sites[0].Origin.Timeout = OriginTimeout{FirstByte: 300 * time.Millisecond, Idle: 300 * time.Millisecond}
			n := startNode(t, cfg)
			for range 2 { // the second time nothing may come from the store
				a := n.get(t, "/")
				switch {
				case c.status == 0 && a.err == nil:
					t.Errorf("got a complete reply %d %q of a broken one", a.status, a.body)
				case c.status != 0 && (a.err != nil || a.status != c.status):
					t.Errorf("got %d, %v; want %d", a.status, a.err, c.status)
				case c.status == 200 && a.body != "full":
					t.Errorf("got %q", a.body)
				case c.status > 500 && !strings.Contains(a.cacheStatus(), "edge-a; fwd=uri-miss"):
					t.Errorf("Cache-Status is %q", a.cacheStatus())
				}
			}
		})
	}
	t.Run("is down", func(t *testing.T) {
		ln, _ := net.Listen("tcp", "127.0.0.1:0")
		url := "http://" + ln.Addr().String()
		ln.Close()
		startNode(t, testConfig("edge-a", url)).get(t, "/").
			want(t, 502, "502 Bad Gateway: the origin can't be reached\n", "edge-a; fwd=uri-miss")
	})
}

// Who may have missed a purge joins no forward that asks already, but shares
// the next one, which asks when that one has its answer.
func TestCollapse_unsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fs flights
		ctx := t.Context()
		first, began := fs.join("k", true)
		if !began {
			t.Fatal("joined what is not there")
		}
		if f, _ := fs.join("k", true); f != first {
			t.Error("it does not join one that has not asked yet")
		}
		fs.asking(ctx, first)
		if f, _ := fs.join("k", false); f != first {
			t.Error("who is sure does not join what is under way")
		}
		second, began := fs.join("k", true)
		if second == first || !began {
			t.Fatal("who is unsure joins what is under way")
		}
		var asks atomic.Bool
		go func() {
			fs.asking(ctx, second)
			asks.Store(true)
		}()
		synctest.Wait()
		for _, unsure := range []bool{true, false} {
			if f, began := fs.join("k", unsure); f != second || began {
				t.Errorf("unsure %v: it does not share the next one", unsure)
			}
		}
		if asks.Load() {
			t.Error("the next one asks beside the first")
		}
		fs.settle(first, outcome{err: errPanic, shared: true})
		synctest.Wait()
		if !asks.Load() {
			t.Error("the next one does not ask when the first has its answer")
		}
		fs.detach(first)
		if f, began := fs.join("k", false); f != second || began {
			t.Error("the end of the first took the next one out of the table")
		}

		// One whose clients have all gone does not wait.
		third, _ := fs.join("k", true)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		fs.asking(gone, third)
	})
}

// Who comes while the last client leaves joins a forward that goes on, or begins
// another one.
func TestCollapse_joinsWhileTheLastLeaves(t *testing.T) {
	var fs flights
	f, _ := fs.join("k", false)
	ctx, cancel := context.WithCancelCause(t.Context())
	f.cancel = cancel
	b := newBody(1<<20, -1, store.NewBudget(1<<20))
	fs.settle(f, outcome{shared: true, meta: &meta{}, body: b, length: -1})
	b.mu.Lock() // where the one that leaves has to look
	left := make(chan struct{})
	go func() { fs.leave(f); close(left) }()
	for leaving := false; !leaving; runtime.Gosched() {
		if leaving = !fs.mu.TryLock(); !leaving {
			leaving = f.waiters == 0
			fs.mu.Unlock()
		}
	}
	joined := make(chan *flight)
	go func() { g, _ := fs.join("k", false); joined <- g }()
	for range 1000 {
		runtime.Gosched()
	}
	b.mu.Unlock()
	<-left
	if g := <-joined; g == f && ctx.Err() != nil {
		t.Errorf("it has joined a forward that has ended: %v", context.Cause(ctx))
	}
}

// A forward that nobody waits for is finished for the store while that has room;
// then it ends, and who comes begins another one. Who comes before makes it go
// on.
func TestCollapse_desertedBody(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("one comes=%v", back), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fs flights
				f, _ := fs.join("k", false)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				f.cancel = cancel
				const size = 600 << 10
				b := newBody(1<<20, size, store.NewBudget(300<<10)) // not for all of it
				fs.settle(f, outcome{shared: true, meta: &meta{}, body: b, length: size})
				fs.leave(f)
				if ctx.Err() != nil {
					t.Fatal("what is nearly complete is not finished")
				}
				if back {
					if g, began := fs.join("k", false); began || g != f {
						t.Fatal("who comes does not join")
					}
				}
				var ended error
				go b.copyFrom(ctx, bytes.NewReader(make([]byte, size)), func(_ int, err error) { ended = err })
				synctest.Wait()
				if !back {
					if ended != errAbandoned {
						t.Errorf("the forward has ended with %v", ended)
					}
					if _, began := fs.join("k", false); !began {
						t.Error("who comes joins it")
					}
					return
				}
				r, ok := b.reader()
				if !ok {
					t.Fatal("the start is gone")
				}
				if got, err := read(ctx, r); err != nil || len(got) != size {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		})
	}
}

// A forward that a purge has come after is none that is under way.
func TestCollapse_behindAfterAPurge(t *testing.T) {
	var e store.Epochs
	fs := flights{epochs: &e}
	const key = "http://h/x"
	if f, _ := fs.join(key, false); fs.joinBehind(key) != nil {
		t.Error("two at once")
	} else {
		e.Add(&store.Purge{URLs: []string{key}}, time.Now())
		if g := fs.joinBehind(key); g == nil || g == f {
			t.Errorf("after the purge %p waits for %p", g, f)
		}
	}
}
