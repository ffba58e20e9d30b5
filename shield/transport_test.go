package shield

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTransport_brokenOrigins: one answer to one request on a new connection,
// and what the caller is told. None of them is sent twice.
func TestTransport_brokenOrigins(t *testing.T) {
	chunked := ok + "Transfer-Encoding: chunked\r\n\r\n"
	end := func(s string) func(*peer) {
		return func(p *peer) { p.request(); p.say(s) }
	}
	hang := func(s string) func(*peer) {
		return func(p *peer) { p.request(); p.say(s); p.untilClosed() }
	}
	reset := func(s string) func(*peer) {
		return func(p *peer) { p.request(); p.say(s); p.reset() }
	}
	for _, tc := range []struct {
		name  string
		serve func(*peer)
		kind  Kind
		phase Phase
		body  string // that came before
	}{
		{"closes without an answer", end(""), Reset, PhaseFirstByte, ""},
		{"closes within the status line", end("HTTP/1.1 2"), Reset, PhaseFirstByte, ""},
		{"closes within the head", end(ok + "Content-Le"), Reset, PhaseFirstByte, ""},
		{"closes after an interim response", end("HTTP/1.1 103 Early Hints\r\n\r\n"), Reset, PhaseFirstByte, ""},
		{"resets without an answer", reset(""), Reset, PhaseFirstByte, ""},
		{"hangs before the head", hang(""), Timeout, PhaseFirstByte, ""},
		{"hangs within the head", hang(ok + "A: b\r\n"), Timeout, PhaseFirstByte, ""},
		{"hangs after an interim response", hang("HTTP/1.1 102 Processing\r\n\r\n"), Timeout, PhaseFirstByte, ""},
		{"hangs within the body", hang(ok + "Content-Length: 5\r\n\r\nhel"), Timeout, PhaseBody, "hel"},
		{"hangs within a chunk", hang(chunked + "5\r\nhel"), Timeout, PhaseBody, "hel"},
		{"hangs between chunks", hang(chunked + "3\r\nhel\r\n"), Timeout, PhaseBody, "hel"},
		{"hangs where only the close ends it", hang(ok + "\r\nhel"), Timeout, PhaseBody, "hel"},
		{"body short of Content-Length", end(ok + "Content-Length: 9\r\n\r\nhello"), Truncated, PhaseBody, "hello"},
		{"chunked without its end", end(chunked + "5\r\nhello\r\n"), Truncated, PhaseBody, "hello"},
		{"chunked, cut within a chunk", end(chunked + "9\r\nhello"), Truncated, PhaseBody, "hello"},
		{"chunked, cut within a size", end(chunked + "5\r\nhello\r\n1"), Truncated, PhaseBody, "hello"},
		{"chunked, cut within its trailers", end(chunked + "5\r\nhello\r\n0\r\nX: y\r\n"), Truncated, PhaseBody, "hello"},
		{"resets within the body", reset(ok + "Content-Length: 1000000\r\n\r\n"), Reset, PhaseBody, ""},
		{"resets where only the close ends it", reset(ok + "\r\n"), Reset, PhaseBody, ""},
		{"malformed chunk", end(chunked + "5\r\nhelloworld"), Protocol, PhaseBody, "hello"},
		{"malformed trailer", end(chunked + "0\r\nnothing\r\n\r\n"), Protocol, PhaseBody, ""},
		{"garbage", hang("SSH-2.0-OpenSSH_9.7\r\n"), Protocol, PhaseFirstByte, ""},
		{"HTTP/0.9", end("<html>hello"), Protocol, PhaseFirstByte, ""},
		{"two lengths", end(ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), Protocol, PhaseFirstByte, ""},
		{"too many fields", hang(ok + strings.Repeat("A: b\r\n", 2000) + "\r\n"), HeaderTooLarge, PhaseFirstByte, ""},
		{"unasked 304", end("HTTP/1.1 304 Not Modified\r\n\r\n"), Protocol, PhaseFirstByte, ""},
		{"unasked 206", end("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\nhello"), Protocol, PhaseFirstByte, ""},
		{"unasked 101", hang("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), Protocol, PhaseFirstByte, ""},
		{"a flood of interim responses", hang(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 200)), Protocol, PhaseFirstByte, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := startOrigin(t, tc.serve)
			tr := client(t, TransportConfig{FirstByte: 200 * time.Millisecond, Idle: 200 * time.Millisecond})
			_, body, err := get(t, tr, o.url)
			wantError(t, err, tc.kind, tc.phase)
			if body != tc.body {
				t.Errorf("body %q, want %q", body, tc.body)
			}
			if n := len(o.seen()); n != 1 {
				t.Errorf("sent %d times", n)
			}
		})
	}
}

func TestTransport_refusedConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	_, _, err = get(t, client(t, TransportConfig{}), "http://"+ln.Addr().String())
	wantError(t, err, Refused, PhaseConnect)
}

func TestTransport_requestThatCantBeSent(t *testing.T) {
	o := startOrigin(t, answers(hello))
	tr := client(t, TransportConfig{})
	req := newRequest(t, "GET", o.url, nil)
	req.Header["X"] = []string{"a\r\nb"}
	_, _, err := do(tr, req)
	wantError(t, err, Protocol, PhaseRequest)
	_, _, err = do(tr, newRequest(t, "CONNECT", o.url, nil))
	wantError(t, err, Protocol, PhaseRequest)
	if n := len(o.seen()); n != 0 {
		t.Errorf("sent %d times", n)
	}
}

// TestTransport_endlessHead: an origin that sends 200 MB of fields is cut off
// early; how much it gets rid of is what the sockets buffer.
func TestTransport_endlessHead(t *testing.T) {
	sent := make(chan int, 1)
	o := startOrigin(t, func(p *peer) {
		p.request()
		p.say(ok)
		line := []byte(strings.Repeat("X-Some: thing\r\n", 1000))
		n := 0
		for n < 200<<20 {
			m, err := p.Write(line)
			if n += m; err != nil {
				break
			}
		}
		sent <- n
	})
	_, _, err := get(t, client(t, TransportConfig{}), o.url)
	wantError(t, err, HeaderTooLarge, PhaseFirstByte)
	if n := <-sent; n > 32<<20 {
		t.Errorf("the origin got rid of %d bytes", n)
	}
}

func TestTransport_headUpToItsBound(t *testing.T) {
	const bound = 64 << 10
	for _, tc := range []struct {
		name string
		len  int
		ok   bool
	}{{"just fits", bound, true}, {"a byte too long", bound + 1, false}} {
		t.Run(tc.name, func(t *testing.T) {
			head := ok + "Content-Length: 5\r\nX: "
			head += strings.Repeat("x", tc.len-len(head)-4) + "\r\n\r\n"
			o := startOrigin(t, answers(head+"hello"))
			_, body, err := get(t, client(t, TransportConfig{MaxHeaderBytes: bound}), o.url)
			if tc.ok {
				if err != nil || body != "hello" {
					t.Errorf("%q, %v", body, err)
				}
				return
			}
			wantError(t, err, HeaderTooLarge, PhaseFirstByte)
		})
	}
}

// TestTransport_longBodyIsCut: a body longer than Content-Length is cut there,
// and what is left over, here the answer to a request that nobody sent, does
// not become the next answer.
func TestTransport_longBodyIsCut(t *testing.T) {
	poison := strings.ReplaceAll(hello, "hello", "wrong")
	for _, tc := range []struct {
		name, method, answer, body string
	}{
		{"surplus text", "GET", hello + " world", "hello"},
		{"surplus answer", "GET", hello + poison, "hello"},
		{"surplus after chunks", "GET", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + poison, "hello"},
		{"body with 204", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n" + poison, ""},
		{"body to HEAD", "HEAD", ok + "Content-Length: 88\r\n\r\n" + poison, ""},
		{"nothing, and more", "GET", ok + "Content-Length: 0\r\n\r\n" + poison, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := startOrigin(t, answers(tc.answer))
			tr := client(t, TransportConfig{})
			for i := 1; i <= 30; i++ {
				_, body, err := do(tr, newRequest(t, tc.method, o.url, nil))
				if err != nil || body != tc.body {
					t.Fatalf("request %d: %q, %v; want %q", i, body, err, tc.body)
				}
				if len(o.seen()) != i || o.connections() != i {
					t.Fatalf("request %d: %d sent over %d connections", i, len(o.seen()), o.connections())
				}
			}
		})
	}
}

// TestTransport_unsolicitedAnswer: an answer that comes while the connection is
// unused does not reach the next request, not even if nobody had time to
// notice it; and that request is sent once only.
func TestTransport_unsolicitedAnswer(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			poison, poisoned := make(chan bool), make(chan bool)
			o := startOrigin(t, func(p *peer) {
				p.request()
				p.say(hello)
				if p.n == 1 {
					<-poison
					p.say(strings.ReplaceAll(hello, "hello", "wrong"))
					poisoned <- true
				}
				p.untilClosed()
			})
			tr := client(t, TransportConfig{})
			mustGet(t, tr, o.url, "hello")
			poison <- true
			<-poisoned
			req := newRequest(t, method, o.url, nil)
			if method == "POST" {
				req = newRequest(t, method, o.url, strings.NewReader("form"))
			}
			if _, body, err := do(tr, req); err != nil || body != "hello" {
				t.Errorf("%q, %v", body, err)
			}
			if n := len(o.seen()); n != 2 {
				t.Errorf("%d requests sent, want 2", n)
			}
		})
	}
}

// TestTransport_earlyAnswer: a server that talks first is not answering.
func TestTransport_earlyAnswer(t *testing.T) {
	spoken := make(chan bool, 9)
	o := startOrigin(t, func(p *peer) {
		p.say(hello)
		spoken <- true
		p.untilClosed()
	})
	tr := client(t, TransportConfig{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		<-spoken
		return c, err
	}})
	_, _, err := get(t, tr, o.url)
	wantError(t, err, Reset, PhaseRequest)
	if !errors.Is(err, errUnsolicited) {
		t.Errorf("%v, want %v", err, errUnsolicited)
	}
	if n := len(o.seen()); n != 0 {
		t.Errorf("%d requests sent", n)
	}
}

// closesSecond answers the first request on a connection and does with the
// second what a test wants.
func closesSecond(second func(*peer)) func(*peer) {
	return func(p *peer) {
		p.request()
		p.say(hello)
		if _, _, ok := p.request(); ok {
			second(p)
		}
	}
}

// TestTransport_resends: how often a request is sent when the connection that
// it was sent on, a reused one, is closed. RFC 9110 section 9.2.2.
func TestTransport_resends(t *testing.T) {
	silent := func(*peer) {}
	reset := (*peer).reset
	some := func(p *peer) { p.say("H") }
	body := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	none := func() io.Reader { return nil }
	key := http.Header{"Idempotency-Key": {"1"}, "X-Idempotency-Key": {"1"}}
	for _, tc := range []struct {
		name   string
		method string
		header http.Header
		body   func() io.Reader
		second func(*peer)
		sent   int // 2: the second time on a new connection, where it is answered
	}{
		{"GET, closed", "GET", nil, none, silent, 2},
		{"GET, reset", "GET", nil, none, reset, 2},
		{"HEAD", "HEAD", nil, none, silent, 2},
		{"OPTIONS", "OPTIONS", nil, none, silent, 2},
		{"TRACE", "TRACE", nil, none, silent, 2},
		{"DELETE", "DELETE", nil, none, silent, 2},
		{"PUT of nothing", "PUT", nil, none, silent, 2},
		{"GET, closed within the answer", "GET", nil, none, some, 1},
		{"POST", "POST", nil, none, silent, 1},
		{"POST with a key that net/http takes as leave to resend", "POST", key, none, silent, 1},
		{"POST with a body that net/http could rewind", "POST", key, body("form"), silent, 1},
		{"PUT with a body that net/http could rewind", "PUT", nil, body("form"), silent, 1},
		{"PATCH", "PATCH", nil, none, silent, 1},
		{"unknown method", "FROB", nil, none, silent, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := startOrigin(t, closesSecond(tc.second))
			tr := client(t, TransportConfig{})
			mustGet(t, tr, o.url, "hello")
			req := newRequest(t, tc.method, o.url, tc.body())
			for k, v := range tc.header {
				req.Header[k] = v
			}
			connections := 0
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
				GotConn: func(httptrace.GotConnInfo) { connections++ },
			}))
			_, _, err := do(tr, req)
			if tc.sent == 1 {
				wantError(t, err, Reset, PhaseFirstByte)
			} else if err != nil {
				t.Error(err)
			}
			if n := len(o.seen()) - 1; n != tc.sent || connections != tc.sent {
				t.Errorf("sent %d times over %d connections, want %d", n, connections, tc.sent)
			}
		})
	}
}

// TestTransport_neverSendsThreeTimes: with many reused connections that are all
// closed by the next request, net/http would go through them all.
func TestTransport_neverSendsThreeTimes(t *testing.T) {
	const conns = 20
	arrived, release := make(chan bool, conns), make(chan bool)
	o := startOrigin(t, func(p *peer) {
		p.request()
		if p.n <= conns {
			arrived <- true
			<-release
			p.say(hello)
			p.request()
		}
	})
	tr := client(t, TransportConfig{})
	done := make(chan error, conns)
	for range conns {
		go func() {
			_, _, err := get(t, tr, o.url)
			done <- err
		}()
	}
	for range conns {
		<-arrived
	}
	close(release)
	for range conns {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := get(t, tr, o.url)
	wantError(t, err, Reset, PhaseFirstByte)
	if n := len(o.seen()) - conns; n != 2 {
		t.Errorf("sent %d times, want 2", n)
	}
	if n := o.connections(); n != conns+1 {
		t.Errorf("%d connections, want a new one for the second time", n)
	}
}

// TestTransport_connectionClosedWhileUnused: nothing is sent on a connection
// that the server has closed, so a POST with a body is sent, once, on another.
func TestTransport_connectionClosedWhileUnused(t *testing.T) {
	for range 20 {
		closed := make(chan bool, 1)
		bodies := make(chan string, 1)
		o := startOrigin(t, func(p *peer) {
			_, body, _ := p.request()
			p.say(hello)
			if p.n == 1 {
				p.Close()
				closed <- true
				return
			}
			bodies <- body
		})
		tr := client(t, TransportConfig{})
		mustGet(t, tr, o.url, "hello")
		<-closed
		req := newRequest(t, "POST", o.url, struct{ io.Reader }{strings.NewReader("form")})
		req.ContentLength = 4
		if _, body, err := do(tr, req); err != nil || body != "hello" {
			t.Fatalf("%q, %v", body, err)
		}
		if got := <-bodies; got != "form" || len(o.seen()) != 2 {
			t.Fatalf("the origin got %q in %d requests", got, len(o.seen()))
		}
	}
}

// TestTransport_answerBeforeTheRequestIsSent: an origin that refuses an upload
// and turns away is heard.
func TestTransport_answerBeforeTheRequestIsSent(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		p.head()
		p.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
	})
	tr := client(t, TransportConfig{})
	for range 5 {
		req := newRequest(t, "POST", o.url, io.LimitReader(zeros{}, 64<<20))
		req.ContentLength = 64 << 20
		if code, body, err := do(tr, req); code != 413 || body != "big" || err != nil {
			t.Fatalf("%d %q, %v", code, body, err)
		}
	}
}

func TestTransport_serverThatDoesNotRead(t *testing.T) {
	done := make(chan bool)
	defer close(done)
	o := startOrigin(t, func(p *peer) { p.head(); <-done })
	tr := client(t, TransportConfig{Idle: 100 * time.Millisecond})
	req := newRequest(t, "PUT", o.url, io.LimitReader(zeros{}, 64<<20))
	req.ContentLength = 64 << 20
	_, _, err := do(tr, req)
	wantError(t, err, Timeout, PhaseRequest)
}

// TestTransport_brokenUpload: that the client's upload breaks is not the
// server's fault.
func TestTransport_brokenUpload(t *testing.T) {
	broken := errors.New("client went away")
	o := startOrigin(t, func(p *peer) { p.head(); p.untilClosed() })
	req := newRequest(t, "POST", o.url, io.MultiReader(strings.NewReader("for"), errReader{broken}))
	req.ContentLength = 4
	_, _, err := do(client(t, TransportConfig{}), req)
	wantError(t, err, Canceled, PhaseRequest)
	if !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestTransport_canceled(t *testing.T) {
	arrived := make(chan bool, 2)
	o := startOrigin(t, func(p *peer) {
		if head, _, _ := p.request(); strings.HasPrefix(head, "GET /body") {
			p.say(ok + "Content-Length: 5\r\n\r\nhel")
		}
		arrived <- true
		p.untilClosed()
	})
	tr := client(t, TransportConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, _, err := do(tr, newRequest(t, "GET", o.url, nil).WithContext(ctx))
	wantError(t, err, Canceled, PhaseFirstByte)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	resp, err := tr.RoundTrip(newRequest(t, "GET", o.url+"/body", nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.ReadFull(resp.Body, make([]byte, 3))
	cancel()
	_, err = io.ReadAll(resp.Body)
	wantError(t, err, Canceled, PhaseBody)
	if n := len(o.seen()); n != 2 {
		t.Errorf("%d requests sent, want 2", n)
	}
}

// TestTransport_unknownTransferEncoding: the body is read to the close and
// passed on, the field is not.
func TestTransport_unknownTransferEncoding(t *testing.T) {
	for _, tc := range []struct{ name, field, body, want string }{
		{"alone", "foo", "hello", "hello"},
		{"identity", "identity", "hello", "hello"},
		{"under chunked", "foo, chunked", "5\r\nhello\r\n0\r\n\r\n", "hello"},
		{"beside Content-Length", "foo\r\nContent-Length: 3", "hello", "hello"},
		{"over chunked", "chunked, foo", "5\r\nhello", "5\r\nhello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := startOrigin(t, func(p *peer) {
				p.request()
				p.say(ok + "Transfer-Encoding: " + tc.field + "\r\nX: y\r\n\r\n" + tc.body)
			})
			resp, err := client(t, TransportConfig{}).RoundTrip(newRequest(t, "GET", o.url, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != tc.want {
				t.Errorf("%q, %v; want %q", body, err, tc.want)
			}
			if resp.Header["Transfer-Encoding"] != nil || slices.Contains(resp.TransferEncoding, "foo") || resp.Header.Get("X") != "y" {
				t.Errorf("fields %v, coding %v", resp.Header, resp.TransferEncoding)
			}
		})
	}
}

// TestTransport_fieldsThatConnectionListsBesideClose: net/http alone removes
// the field and with it the list.
func TestTransport_fieldsThatConnectionListsBesideClose(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		p.request()
		p.say(ok + "A: 1\r\nConnection: close, a, B\r\nB: 2\r\nC: 3\r\nContent-Length: 5\r\n\r\nhello")
	})
	resp, err := client(t, TransportConfig{}).RoundTrip(newRequest(t, "GET", o.url, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if h := resp.Header; h["A"] != nil || h["B"] != nil || h.Get("C") != "3" {
		t.Errorf("fields %v, want C alone", h)
	}
}

// TestTransport_whatIsSent looks at the bytes of a request: the path as it is,
// and nothing of net/http's own.
func TestTransport_whatIsSent(t *testing.T) {
	o := startOrigin(t, answers(hello))
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	req := newRequest(t, "GET", o.url, nil)
	req.URL.Opaque = "/a%2Fb//c?x=%7e|"
	req.Host = "www.example.com"
	req.Header = http.Header{"X-A": {"1", "2"}}
	if _, _, err := do(client(t, TransportConfig{}), req); err != nil {
		t.Fatal(err)
	}
	want := "GET /a%2Fb//c?x=%7e| HTTP/1.1\r\nHost: www.example.com\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
	if got := o.seen()[0]; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if len(req.Header) != 1 {
		t.Errorf("the caller's fields were changed: %v", req.Header)
	}
}

func TestTransport_redirectsAreAnswers(t *testing.T) {
	o := startOrigin(t, answers("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"))
	if code, _, err := get(t, client(t, TransportConfig{}), o.url); code != 302 || err != nil || len(o.seen()) != 1 {
		t.Errorf("%d, %v after %d requests", code, err, len(o.seen()))
	}
}

func TestTransport_compressionIsLeftAlone(t *testing.T) {
	o := startOrigin(t, answers(ok+"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"))
	mustGet(t, client(t, TransportConfig{}), o.url, "hello")
}

func TestTransport_asked304And206(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		for {
			head, _, ok := p.request()
			switch {
			case !ok:
				return
			case strings.Contains(head, "Range:"):
				p.say("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\nhello")
			default:
				p.say("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n")
			}
		}
	})
	tr := client(t, TransportConfig{})
	for _, tc := range []struct {
		field, value string
		code         int
		body         string
	}{
		{"If-None-Match", `"x"`, 304, ""},
		{"If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT", 304, ""},
		{"Range", "bytes=0-4", 206, "hello"},
	} {
		req := newRequest(t, "GET", o.url, nil)
		req.Header.Set(tc.field, tc.value)
		if code, body, err := do(tr, req); code != tc.code || body != tc.body || err != nil {
			t.Errorf("%s: %d %q, %v", tc.field, code, body, err)
		}
	}
	if n := o.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestTransport_reusesConnections: each of these answers leaves the connection
// fit for the next request.
func TestTransport_reusesConnections(t *testing.T) {
	for _, tc := range []struct {
		name, method, answer string
		code                 int
		body                 string
	}{
		{"Content-Length", "GET", hello, 200, "hello"},
		{"chunked with extensions and trailers", "GET", ok + "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n", 200, "hello"},
		{"HEAD", "HEAD", ok + "Content-Length: 5\r\n\r\n", 200, ""},
		{"HEAD of chunked", "HEAD", ok + "Transfer-Encoding: chunked\r\n\r\n", 200, ""},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		{"HTTP/1.0 keep-alive", "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
		{"interim responses", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + hello, 200, "hello"},
		{"unknown status", "GET", "HTTP/1.1 499 Whatever\r\nContent-Length: 5\r\n\r\nhello", 499, "hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := startOrigin(t, answers(tc.answer))
			tr := client(t, TransportConfig{})
			for range 5 {
				if code, body, err := do(tr, newRequest(t, tc.method, o.url, nil)); code != tc.code || body != tc.body || err != nil {
					t.Fatalf("%d %q, %v", code, body, err)
				}
			}
			if n := o.connections(); n != 1 {
				t.Errorf("%d connections for 5 requests", n)
			}
		})
	}
}

func TestTransport_interimResponsesReachTheCaller(t *testing.T) {
	o := startOrigin(t, answers("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\nHTTP/1.1 110 Odd\r\nConnection: x\r\nX: 1\r\n\r\n"+hello))
	var got []string
	req := newRequest(t, "GET", o.url, nil)
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, fmt.Sprint(code, " ", h))
			return nil
		},
	}))
	if _, body, err := do(client(t, TransportConfig{}), req); body != "hello" || err != nil {
		t.Fatalf("%q, %v", body, err)
	}
	if want := []string{"103 map[Link:[</a> </b>]]", "110 map[]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTransport_trailers(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		head, _ := p.head()
		if !strings.Contains(head, "Trailer: X-Sent\r\n") {
			t.Errorf("no Trailer in %q", head)
		}
		var body strings.Builder
		for !strings.HasSuffix(body.String(), "\r\n\r\n") {
			line, err := p.br.ReadString('\n')
			if err != nil {
				t.Errorf("%q, %v", body.String(), err)
				return
			}
			body.WriteString(line)
		}
		if want := "4\r\nform\r\n0\r\nX-Sent: later\r\n\r\n"; body.String() != want {
			t.Errorf("the body was %q, want %q", body.String(), want)
		}
		p.say(ok + "Trailer: X-Told\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Told: a\r\nX-Untold: b\r\n\r\n")
		p.untilClosed()
	})
	req := newRequest(t, "POST", o.url, struct{ io.Reader }{strings.NewReader("form")})
	req.ContentLength = -1
	req.Trailer = http.Header{"X-Sent": {"later"}}
	resp, err := client(t, TransportConfig{}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, ok := resp.Trailer["X-Told"]; !ok {
		t.Errorf("X-Told is not announced: %v", resp.Trailer)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if resp.Trailer.Get("X-Told") != "a" || resp.Trailer.Get("X-Untold") != "b" {
		t.Errorf("trailers %v", resp.Trailer)
	}
}

// TestTransport_upgrade: after 101 the bytes belong to the two ends, those that
// came in one piece with the head as well, and no idle timeout holds.
func TestTransport_upgrade(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		p.head()
		p.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
		io.Copy(p, p.br)
		p.say("bye")
	})
	tr := client(t, TransportConfig{Idle: 20 * time.Millisecond})
	req := newRequest(t, "GET", o.url, nil)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	rwc, isRWC := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	if resp.StatusCode != 101 || !isRWC || resp.Header.Get("Upgrade") != "echo" {
		t.Fatalf("%d, %T, %v", resp.StatusCode, resp.Body, resp.Header)
	}
	const first = "HTTP/1.1 200 OK\r\n\r\n"
	buf := make([]byte, len(first))
	if _, err := io.ReadFull(rwc, buf); err != nil || string(buf) != first {
		t.Errorf("%q, %v", buf, err)
	}
	<-time.After(60 * time.Millisecond)
	io.WriteString(rwc, "ping")
	rwc.CloseWrite()
	if b, err := io.ReadAll(rwc); string(b) != "pingbye" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := rwc.Close(); err != nil {
		t.Error(err)
	}
}

func TestTransport_expectContinue(t *testing.T) {
	read := make(chan bool, 1)
	o := startOrigin(t, func(p *peer) {
		if head, _ := p.head(); strings.HasPrefix(head, "POST /refuse") {
			p.say("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		if p.br.Buffered() > 0 {
			t.Error("the body came before 100")
		}
		p.say("HTTP/1.1 100 Continue\r\n\r\n")
		b := make([]byte, 4)
		io.ReadFull(p.br, b)
		p.say(ok + "Connection: close\r\nContent-Length: 4\r\n\r\n" + string(b))
	})
	tr := client(t, TransportConfig{})
	post := func(path string) (int, string, error) {
		req := newRequest(t, "POST", o.url+path, readFunc(func(p []byte) (int, error) {
			select {
			case read <- true:
				return copy(p, "form"), nil
			default:
				return 0, io.EOF
			}
		}))
		req.ContentLength = 4
		req.Header.Set("Expect", "100-continue")
		return do(tr, req)
	}
	if code, body, err := post("/"); code != 200 || body != "form" || err != nil {
		t.Errorf("%d %q, %v", code, body, err)
	}
	<-read
	if code, _, err := post("/refuse"); code != 417 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if len(read) > 0 {
		t.Error("the body was read though it was refused")
	}
}

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestTransport_closeEndsEverything(t *testing.T) {
	o := startOrigin(t, func(p *peer) {
		p.request()
		p.say(ok + "Content-Length: 9\r\n\r\nhel")
		p.untilClosed()
	})
	tr := NewTransport(TransportConfig{})
	resp, err := tr.RoundTrip(newRequest(t, "GET", o.url, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.ReadFull(resp.Body, make([]byte, 3))
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	tr.Close()
	tr.Close()
	var e *Error
	if err := <-read; !errors.As(err, &e) {
		t.Errorf("%v, want an *Error", err)
	}
	if _, _, err := get(t, tr, o.url); !errors.As(err, &e) {
		t.Errorf("a later request: %v, want an *Error", err)
	}
	eventually(t, "no connection is known", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.conns) == 0
	})
}

func TestTransport_badURL(t *testing.T) {
	req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "ftp", Host: "x"}, Header: http.Header{}}
	_, err := client(t, TransportConfig{}).RoundTrip(req)
	wantError(t, err, Protocol, PhaseRequest)
}
