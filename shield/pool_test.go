package shield

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// poolRT lets a Pool stand where a RoundTripper is wanted.
type poolRT struct{ *Pool }

func (p poolRT) RoundTrip(req *http.Request) (*http.Response, error) { return p.Do(req) }

func newPool(t *testing.T, cfg PoolConfig) poolRT {
	t.Helper()
	p, err := NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return poolRT{p}
}

// deadURL is a URL where nobody listens.
func deadURL(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

func TestNewPool_saysAllThatIsWrong(t *testing.T) {
	_, err := NewPool(PoolConfig{URLs: []string{"ftp://x", "http://", "http://x/path", "http://x?q", "http://u@x", "::", "x:80", "http://good"}, Failures: -1})
	if err == nil {
		t.Fatal("no error")
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 8 {
		t.Errorf("%d complaints, want 8:\n%v", n, err)
	}
	if _, err := NewPool(PoolConfig{}); err == nil {
		t.Error("a pool without servers")
	}
	p, err := NewPool(PoolConfig{URLs: []string{"http://x/", "http://X"}})
	if err != nil || len(p.Stats()) != 1 {
		t.Errorf("a server that stands twice: %v", err)
	}
}

func TestPool_hostAndPath(t *testing.T) {
	o := startOrigin(t, answers(hello))
	for _, tc := range []struct{ configured, want string }{{"", "www.example.com"}, {"origin.example", "origin.example"}} {
		req := newRequest(t, "GET", "http://ignored.example:99/", nil)
		req.URL.Opaque = "/a%2Fb?q"
		req.Host = "www.example.com"
		resp, err := newPool(t, PoolConfig{URLs: []string{o.url + "/"}, Host: tc.configured}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		seen := o.seen()
		if got, want := seen[len(seen)-1], "GET /a%2Fb?q HTTP/1.1\r\nHost: "+tc.want+"\r\n\r\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if req.URL.Host != "ignored.example:99" || resp.Request != req {
			t.Errorf("the request was changed: %v", req.URL)
		}
	}
}

// TestPool_deadServer: where no connection can be made, nothing was sent, so
// any request goes on to the next server, its body untouched; the dead one is
// skipped from then on.
func TestPool_deadServer(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			bodies := make(chan string, 10)
			o := startOrigin(t, func(p *peer) {
				for {
					_, body, ok := p.request()
					if !ok {
						return
					}
					bodies <- body
					p.say(hello)
				}
			})
			var log bytes.Buffer
			p := newPool(t, PoolConfig{
				URLs: []string{deadURL(t), o.url}, BackoffMin: time.Hour, BackoffMax: time.Hour,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			for range 4 {
				body := &closing{Reader: strings.NewReader("form")}
				req := newRequest(t, method, "http://x/", body)
				req.ContentLength = 4
				if _, got, err := do(p, req); got != "hello" || err != nil {
					t.Fatalf("%q, %v", got, err)
				}
				if got := <-bodies; got != "form" {
					t.Errorf("the origin got %q", got)
				}
				if body.closed != 1 {
					t.Errorf("the body was closed %d times", body.closed)
				}
			}
			s := p.Stats()
			if s[0].Healthy || s[0].Attempts != 1 || s[0].Failures != 1 || s[0].InFlight != 0 {
				t.Errorf("the dead one: %+v", s[0])
			}
			if !s[1].Healthy || s[1].Attempts != 4 || s[1].Failures != 0 || s[1].InFlight != 0 {
				t.Errorf("the other: %+v", s[1])
			}
			if n := strings.Count(log.String(), "skipped"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
		})
	}
}

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// TestPool_allDead: the least bad is tried anyway, one a request; the body is
// closed and the error is that of the last.
func TestPool_allDead(t *testing.T) {
	p := newPool(t, PoolConfig{URLs: []string{deadURL(t), deadURL(t), deadURL(t)}, BackoffMin: time.Hour, BackoffMax: time.Hour})
	for i, want := range []uint64{3, 4, 5} {
		body := &closing{Reader: strings.NewReader("form")}
		_, _, err := do(p, newRequest(t, "POST", "http://x/", body))
		wantError(t, err, Refused, PhaseConnect)
		if body.closed != 1 {
			t.Errorf("the body was closed %d times", body.closed)
		}
		got := uint64(0)
		for _, s := range p.Stats() {
			got += s.Attempts
		}
		if got != want {
			t.Errorf("request %d: %d attempts so far, want %d", i, got, want)
		}
	}
}

// TestPool_sentRequestStaysWhereItIs: once a request was sent, it goes to no
// other server, whatever becomes of it.
func TestPool_sentRequestStaysWhereItIs(t *testing.T) {
	serve := func(p *peer) { p.request() }
	a, b := startOrigin(t, serve), startOrigin(t, serve)
	p := newPool(t, PoolConfig{URLs: []string{a.url, b.url}})
	_, _, err := get(t, p, "http://x/")
	wantError(t, err, Reset, PhaseFirstByte)
	if n := len(a.seen()) + len(b.seen()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// TestPool_sharesOut: requests go where the fewest are in flight, in turn.
func TestPool_sharesOut(t *testing.T) {
	a, b := startOrigin(t, answers(hello)), startOrigin(t, answers(hello))
	p := newPool(t, PoolConfig{URLs: []string{a.url, b.url}})
	for range 10 {
		mustGet(t, p, "http://x/", "hello")
	}
	if len(a.seen()) != 5 || len(b.seen()) != 5 {
		t.Errorf("%d and %d of 10 in turn", len(a.seen()), len(b.seen()))
	}
	resp, err := p.Do(newRequest(t, "GET", "http://x/", nil)) // and not read
	if err != nil {
		t.Fatal(err)
	}
	busy := p.Stats()[1].InFlight
	for range 4 {
		mustGet(t, p, "http://x/", "hello")
	}
	if got := p.Stats(); got[1-busy].Attempts != 9 || got[busy].Attempts != 6 {
		t.Errorf("with one in flight at server %d: %+v", busy, got)
	}
	resp.Body.Close()
	if s := p.Stats(); s[0].InFlight+s[1].InFlight != 0 {
		t.Errorf("in flight after all: %+v", s)
	}
}

// TestPool_bodiesCount: failures in bodies put a server aside as well, after
// Failures of them without a whole answer in between.
func TestPool_bodiesCount(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		if head, _, _ := p.request(); strings.HasPrefix(head, "GET /whole") {
			p.say(ok + "Connection: close\r\nContent-Length: 5\r\n\r\nhello")
			return
		}
		p.say(ok + "Content-Length: 9\r\n\r\nhel")
	})
	p := newPool(t, PoolConfig{URLs: []string{o.url}, BackoffMin: time.Hour, BackoffMax: time.Hour})
	for i, path := range []string{"/", "/", "/whole", "/", "/", "/"} {
		if !p.Stats()[0].Healthy {
			t.Errorf("skipped before request %d", i)
		}
		get(t, p, "http://x"+path)
	}
	if s := p.Stats()[0]; s.Healthy || s.Failures != 5 || s.Attempts != 6 {
		t.Errorf("%+v", s)
	}
}

// TestPool_callersFaultsDontCount: what the caller cancelled, or could not
// upload, says nothing about the server.
func TestPool_callersFaultsDontCount(t *testing.T) {
	arrived := make(chan bool, 99)
	o := startOrigin(t, func(p *peer) {
		if head, _ := p.head(); strings.HasPrefix(head, "GET") {
			arrived <- true
		}
		p.untilClosed()
	})
	p := newPool(t, PoolConfig{URLs: []string{o.url}})
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		_, _, err := do(p, newRequest(t, "GET", "http://x/", nil).WithContext(ctx))
		wantError(t, err, Canceled, PhaseFirstByte)
		req := newRequest(t, "POST", "http://x/", errReader{errors.New("gone")})
		req.ContentLength = 4
		_, _, err = do(p, req)
		wantError(t, err, Canceled, PhaseRequest)
	}
	if s := p.Stats()[0]; !s.Healthy || s.Failures != 0 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

// fakeNet is a network of pipes in a bubble. A host that is not up refuses, or
// hangs where hang says so.
type fakeNet struct {
	up   map[string]func(net.Conn)
	hang map[string]bool
}

func (n *fakeNet) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	if n.hang[host] {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	serve := n.up[host]
	if serve == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		serve(far)
	}()
	return near, nil
}

// sleepersEnd lets the servers of a bubble wake up and find it over.
func sleepersEnd() { time.Sleep(2 * time.Hour) }

// pipeAnswers answers each request on a pipe after a while.
func pipeAnswers(after time.Duration, answer string) func(net.Conn) {
	return func(c net.Conn) {
		p := &peer{c, newReader(c), &rawOrigin{}, 1}
		for {
			if _, _, ok := p.request(); !ok {
				return
			}
			time.Sleep(after)
			p.say(answer)
		}
	}
}

// TestPool_backOff follows a server that is down, in virtual time: when it is
// asked again, and that only one request finds out.
func TestPool_backOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNet{up: map[string]func(net.Conn){"good": pipeAnswers(time.Millisecond, hello)}}
		p := newPool(t, PoolConfig{URLs: []string{"http://bad", "http://good"}, DialContext: n.dial, BackoffMin: time.Second, BackoffMax: 8 * time.Second})
		defer sleepersEnd()
		defer p.Close()
		var tried []time.Duration
		start := time.Now()
		for time.Since(start) < time.Minute {
			before := p.Stats()[0].Attempts
			mustGet(t, p, "http://x/", "hello")
			if p.Stats()[0].Attempts > before {
				tried = append(tried, time.Since(start))
			}
			time.Sleep(10 * time.Millisecond)
		}
		// 1, 2, 4, 8, 8, ... give or take a quarter and two steps: 10 ms of sleep
		// and 1 ms of the good server's answer.
		for i := 1; i < len(tried); i++ {
			gap, want := tried[i]-tried[i-1], min(time.Second<<(i-1), 8*time.Second)
			if gap < want*3/4 || gap > want*5/4+22*time.Millisecond {
				t.Errorf("asked again after %v for the %d. time, want %v give or take a quarter", gap, i, want)
			}
		}
		if len(tried) < 8 || len(tried) > 13 {
			t.Errorf("asked at %v", tried)
		}

		// It comes up: one request finds out, then it has its share.
		n.up["bad"] = pipeAnswers(time.Second, hello)
		time.Sleep(10 * time.Second)
		before := p.Stats()[0].Attempts
		done := make(chan bool)
		for range 10 {
			go func() { mustGet(t, p, "http://x/", "hello"); done <- true }()
			synctest.Wait()
		}
		if got := p.Stats()[0].Attempts - before; got != 1 {
			t.Errorf("%d requests find out whether the server is back, want 1", got)
		}
		for range 10 {
			<-done
		}
		for range 4 {
			mustGet(t, p, "http://x/", "hello")
		}
		if s := p.Stats()[0]; s.Attempts-before != 3 || !s.Healthy || s.InFlight != 0 {
			t.Errorf("after it came back: %+v", s)
		}
	})
}

// TestPool_callersDeadline: when it strikes, no other server is asked.
func TestPool_callersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNet{hang: map[string]bool{"a": true, "b": true}}
		p := newPool(t, PoolConfig{URLs: []string{"http://a", "http://b"}, DialContext: n.dial})
		defer sleepersEnd()
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := do(p, newRequest(t, "GET", "http://x/", nil).WithContext(ctx))
		wantError(t, err, Timeout, PhaseConnect)
		if s := p.Stats(); s[0].Attempts+s[1].Attempts != 1 || !s[0].Healthy || !s[1].Healthy {
			t.Errorf("%+v", s)
		}
	})
}

// TestPool_manyFailuresAtOnceAreOneStep: a hundred requests that fail together
// put a server aside for the first time, not for the hundredth.
func TestPool_manyFailuresAtOnceAreOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNet{hang: map[string]bool{"a": true}}
		p := newPool(t, PoolConfig{URLs: []string{"http://a"}, DialContext: n.dial, BackoffMin: time.Second, BackoffMax: time.Hour})
		defer sleepersEnd()
		defer p.Close()
		done := make(chan bool)
		for range 100 {
			go func() {
				_, _, err := get(t, p, "http://x/")
				wantError(t, err, Timeout, PhaseConnect)
				done <- true
			}()
		}
		for range 100 {
			<-done
		}
		if p.Stats()[0].Healthy {
			t.Error("still healthy")
		}
		time.Sleep(1250 * time.Millisecond)
		if s := p.Stats()[0]; !s.Healthy || s.Failures != 100 {
			t.Errorf("after the first time aside: %+v", s)
		}
	})
}

// TestTransport_phases measures each bound in virtual time.
func TestTransport_phases(t *testing.T) {
	cfg := TransportConfig{Connect: 2 * time.Second, FirstByte: 5 * time.Second, Idle: 7 * time.Second}
	slowBody := func(gap time.Duration, then func()) func(net.Conn) {
		return func(c net.Conn) {
			p := &peer{c, newReader(c), &rawOrigin{}, 1}
			p.request()
			p.say(ok + "Content-Length: 5\r\n\r\n")
			for _, b := range "hello" {
				time.Sleep(gap)
				p.say(string(b))
			}
			then()
			p.untilClosed()
		}
	}
	for _, tc := range []struct {
		name  string
		hang  bool
		serve func(net.Conn)
		url   string
		after time.Duration // the request ends
		kind  Kind          // "": no error
		phase Phase
	}{
		{"connect", true, nil, "http://a", 2 * time.Second, Timeout, PhaseConnect},
		{"TLS handshake counts as connect", false, func(c net.Conn) { io.Copy(io.Discard, c) }, "https://a", 2 * time.Second, Timeout, PhaseConnect},
		{"first byte", false, pipeAnswers(time.Hour, hello), "http://a", 5 * time.Second, Timeout, PhaseFirstByte},
		{"first byte just in time", false, pipeAnswers(4999*time.Millisecond, hello), "http://a", 4999 * time.Millisecond, "", ""},
		{"a trickling head", false, func(c net.Conn) {
			p := &peer{c, newReader(c), &rawOrigin{}, 1}
			p.request()
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 102 Processing\r\n\r\n"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, "http://a", 5 * time.Second, Timeout, PhaseFirstByte},
		{"idle", false, slowBody(8*time.Second, func() {}), "http://a", 7 * time.Second, Timeout, PhaseBody},
		{"a slow body that never idles", false, slowBody(6*time.Second, func() {}), "http://a", 30 * time.Second, "", ""},
		{"server that takes nothing", false, func(net.Conn) { time.Sleep(time.Hour) }, "http://a", 7 * time.Second, Timeout, PhaseRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &fakeNet{hang: map[string]bool{"a": tc.hang}, up: map[string]func(net.Conn){"a": tc.serve}}
				cfg := cfg
				cfg.DialContext = n.dial
				tr := client(t, cfg)
				defer sleepersEnd()
				defer tr.Close()
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, "GET", tc.url, nil)
				_, _, err := do(tr, req)
				if took := time.Since(start); took != tc.after {
					t.Errorf("ended after %v, want %v", took, tc.after)
				}
				if tc.kind == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				wantError(t, err, tc.kind, tc.phase)
			})
		})
	}
}

// TestTransport_callersDeadline is a Timeout too, and in which phase it struck.
func TestTransport_callersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNet{up: map[string]func(net.Conn){"a": pipeAnswers(time.Hour, hello)}, hang: map[string]bool{"b": true}}
		tr := client(t, TransportConfig{DialContext: n.dial, FirstByte: -1, Connect: -1})
		defer sleepersEnd()
		defer tr.Close()
		for host, phase := range map[string]Phase{"a": PhaseFirstByte, "b": PhaseConnect} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, _, err := do(tr, newRequest(t, "GET", "http://"+host, nil).WithContext(ctx))
			wantError(t, err, Timeout, phase)
			cancel()
		}
	})
}

// TestTransport_slowReader: the idle timeout is the server's, not the reader's.
func TestTransport_slowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := strings.Repeat("x", 100_000)
		n := &fakeNet{up: map[string]func(net.Conn){"a": pipeAnswers(0, ok+"Content-Length: 100000\r\n\r\n"+big)}}
		tr := client(t, TransportConfig{DialContext: n.dial, Idle: time.Second})
		defer sleepersEnd()
		defer tr.Close()
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		total := 0
		for buf := make([]byte, 30_000); ; {
			time.Sleep(time.Hour)
			k, err := resp.Body.Read(buf)
			if total += k; err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if total != len(big) {
			t.Errorf("%d bytes of %d", total, len(big))
		}
	})
}

// TestTransport_unusedConnectionStays: the idle timeout is a body's, and a
// connection outlasts it without one.
func TestTransport_unusedConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := 0
		n := &fakeNet{up: map[string]func(net.Conn){"a": func(c net.Conn) {
			conns++
			p := &peer{c, newReader(c), &rawOrigin{}, 1}
			for {
				if _, _, more := p.request(); !more {
					return
				}
				p.say(ok + "Content-Length: 5\r\n\r\n")
				p.say("hello") // apart, so that the bound is armed
			}
		}}}
		tr := client(t, TransportConfig{DialContext: n.dial, Idle: time.Second, KeepAlive: time.Minute})
		defer sleepersEnd()
		defer tr.Close()
		for range 5 {
			mustGet(t, tr, "http://a", "hello")
			time.Sleep(59 * time.Second)
		}
		if conns != 1 {
			t.Errorf("%d connections, want 1", conns)
		}
		time.Sleep(2 * time.Second)
		mustGet(t, tr, "http://a", "hello")
		if conns != 2 {
			t.Errorf("%d connections, want a new one after KeepAlive", conns)
		}
	})
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 1000: 30 * time.Second} {
		lo, hi := time.Hour, time.Duration(0)
		for range 1000 {
			d := backoff(n, time.Second, 30*time.Second)
			lo, hi = min(lo, d), max(hi, d)
		}
		if lo < want*3/4 || hi > want*5/4 || hi-lo < want/3 {
			t.Errorf("the %d. time: %v to %v, want %v give or take a quarter", n, lo, hi, want)
		}
	}
}
