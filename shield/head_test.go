package shield

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// scripted is a connection whose other side has said everything already.
type scripted struct {
	io.Reader
	net.Conn
}

func (s scripted) Read(p []byte) (int, error)     { return s.Reader.Read(p) }
func (scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (scripted) Close() error                     { return nil }
func (scripted) SetDeadline(time.Time) error      { return nil }
func (scripted) SetReadDeadline(time.Time) error  { return nil }
func (scripted) SetWriteDeadline(time.Time) error { return nil }

// answering returns a connection on which the request of x was sent and r is
// the answer.
func answering(r io.Reader, x *exchange, headBytes int) *conn {
	x.cancel = func(error) {}
	c := newConn(scripted{Reader: r}, nil, limits{time.Minute, headBytes}, func(*conn) {})
	c.begin(x, false)
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		panic(err)
	}
	return c
}

const ok = "HTTP/1.1 200 OK\r\n"

// TestParseHead_rewrites: what an origin says, and what net/http is told.
func TestParseHead_rewrites(t *testing.T) {
	get, head, up := asked{}, asked{head: true}, asked{upgrade: true}
	for _, tc := range []struct {
		name string
		req  asked
		in   string
		want string
		body framing
	}{
		{"Content-Length", get, ok + "Content-Length: 5\r\n", ok + "Content-Length: 5\r\n", toLength},
		{"no length: to the close (RFC 9112 section 6.3)", get, ok, ok + "Connection: close\r\n", toClose},
		{"chunked", get, ok + "Transfer-Encoding: chunked\r\n", ok + "Transfer-Encoding: chunked\r\n", toLast},
		{"Chunked in another case", get, ok + "transfer-ENCODING: Chunked\r\n", ok + "Transfer-Encoding: chunked\r\n", toLast},
		{"chunked over Content-Length, and the end (section 6.3)", get, ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", ok + "Transfer-Encoding: chunked\r\nConnection: close\r\n", toLast},
		{"unknown coding: to the close", get, ok + "Transfer-Encoding: foo\r\nX: 1\r\n", ok + "X: 1\r\nConnection: close\r\n", toClose},
		{"unknown coding beside a length", get, ok + "Transfer-Encoding: foo\r\nContent-Length: 5\r\n", ok + "Connection: close\r\n", toClose},
		{"unknown coding under chunked", get, ok + "Transfer-Encoding: foo\r\nTransfer-Encoding: chunked\r\n", ok + "Transfer-Encoding: chunked\r\n", toLast},
		{"chunked not last (section 6.3)", get, ok + "Transfer-Encoding: chunked, foo\r\n", ok + "Connection: close\r\n", toClose},
		{"empty Transfer-Encoding", get, ok + "Transfer-Encoding:\r\nContent-Length: 5\r\n", ok + "Connection: close\r\n", toClose},
		{"one length several times (section 6.3)", get, ok + "Content-Length: 5\r\nContent-Length: 5, 05\r\n", ok + "Content-Length: 5\r\n", toLength},
		{"nothing is a body as well", get, ok + "Content-Length: 0\r\n", ok + "Content-Length: 0\r\n", noBody},

		{"HEAD keeps its length", head, ok + "Content-Length: 5\r\n", ok + "Content-Length: 5\r\n", noBody},
		{"HEAD loses its coding", head, ok + "Transfer-Encoding: chunked\r\n", ok, noBody},
		{"304 keeps its length", get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", noBody},
		{"204 has no length (RFC 9110 section 8.6)", get, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", "HTTP/1.1 204 No Content\r\n", noBody},
		{"103", get, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n", noBody},
		{"101 keeps Connection and Upgrade", up, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", forTunnel},

		{"Connection: close", get, ok + "Connection: close\r\nContent-Length: 5\r\n", ok + "Content-Length: 5\r\nConnection: close\r\n", toLength},
		{"fields that Connection lists beside close (RFC 9110 section 7.6.1)", get, ok + "A: 1\r\nConnection: close, a\r\nConnection: B\r\nb: 2\r\nC: 3\r\nContent-Length: 5\r\n", ok + "C: 3\r\nContent-Length: 5\r\nConnection: close\r\n", toLength},
		{"fields that Connection lists, without close", get, ok + "Connection: a\r\nA: 1\r\nContent-Length: 5\r\n", ok + "Content-Length: 5\r\n", toLength},
		{"Connection can't take away what guards us", get, ok + "Connection: Cache-Control\r\nCache-Control: private\r\nContent-Length: 5\r\n", ok + "Cache-Control: private\r\nContent-Length: 5\r\n", toLength},
		{"Connection can't take away the framing", get, ok + "Connection: Content-Length\r\nContent-Length: 5\r\n", ok + "Content-Length: 5\r\n", toLength},
		{"Keep-Alive goes", get, ok + "Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nContent-Length: 5\r\n", ok + "Content-Length: 5\r\n", toLength},
		{"HTTP/1.0 closes", get, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n", toLength},
		{"HTTP/1.0 keep-alive", get, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n", toLength},
		{"HTTP/1.7 is 1.1 to us (section 2.5)", get, "HTTP/1.7 200 OK\r\nContent-Length: 5\r\n", ok + "Content-Length: 5\r\n", toLength},

		{"no reason", get, "HTTP/1.1 200\r\nContent-Length: 5\r\n", "HTTP/1.1 200 \r\nContent-Length: 5\r\n", toLength},
		{"unknown status, odd reason", get, "HTTP/1.1 599 \xe9a  b\r\nContent-Length: 5\r\n", "HTTP/1.1 599 \xe9a  b\r\nContent-Length: 5\r\n", toLength},
		{"LF alone (section 2.2)", get, "HTTP/1.1 200 OK\nA: 1\nContent-Length: 5\n", ok + "A: 1\r\nContent-Length: 5\r\n", toLength},
		{"obs-fold is spaces (section 5.2)", get, ok + "A: 1\r\n  2\n\t3\r\nContent-Length:\r\n 5\r\n", ok + "A: 1    2 \t3\r\nContent-Length: 5\r\n", toLength},
		{"space before the colon (section 5.1)", get, ok + "A : 1\r\nContent-Length\t: 5\r\n", ok + "A: 1\r\nContent-Length: 5\r\n", toLength},
		{"empty value", get, ok + "A:\r\nContent-Length: 5\r\n", ok + "A: \r\nContent-Length: 5\r\n", toLength},
		{"Trailer is announced", get, ok + "Trailer: X-T\r\nTransfer-Encoding: chunked\r\n", ok + "Trailer: X-T\r\nTransfer-Encoding: chunked\r\n", toLast},
		{"Trailer announces what it can't", get, ok + "Trailer: X-T, Content-Length\r\nTransfer-Encoding: chunked\r\n", ok + "Transfer-Encoding: chunked\r\n", toLast},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, f := parseHead([]byte(tc.in+"\r\n"), tc.req)
			if f != nil {
				t.Fatal(f)
			}
			if got := string(h.out); got != tc.want+"\r\n" {
				t.Errorf("%q, want %q", got, tc.want+"\r\n")
			}
			if h.body != tc.body {
				t.Errorf("framing %d, want %d", h.body, tc.body)
			}
		})
	}
}

func TestParseHead_refuses(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		kind     Kind
	}{
		{"HTTP/2", "HTTP/2.0 200 OK\r\n", Protocol},
		{"no version", "200 OK\r\n", Protocol},
		{"two-digit status", "HTTP/1.1 20 OK\r\n", Protocol},
		{"four-digit status", "HTTP/1.1 2000 OK\r\n", Protocol},
		{"status below 100", "HTTP/1.1 099 OK\r\n", Protocol},
		{"two spaces before the status", "HTTP/1.1  200 OK\r\n", Protocol},
		{"CR in the reason", "HTTP/1.1 200 O\rK\r\n", Protocol},
		{"NUL in the reason", "HTTP/1.1 200 O\x00K\r\n", Protocol},
		{"different lengths (RFC 9112 section 6.3)", ok + "Content-Length: 5\r\nContent-Length: 6\r\n", Protocol},
		{"different lengths in one line", ok + "Content-Length: 5, 6\r\n", Protocol},
		{"negative length", ok + "Content-Length: -5\r\n", Protocol},
		{"signed length", ok + "Content-Length: +5\r\n", Protocol},
		{"hexadecimal length", ok + "Content-Length: 0x5\r\n", Protocol},
		{"empty length", ok + "Content-Length:\r\n", Protocol},
		{"length past 63 bits", ok + "Content-Length: 9223372036854775808\r\n", Protocol},
		{"chunked twice (section 6.1)", ok + "Transfer-Encoding: chunked, chunked\r\n", Protocol},
		{"Transfer-Encoding in HTTP/1.0 (section 6.1)", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", Protocol},
		{"unasked 101", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n", Protocol},
		{"no colon", ok + "Hello\r\n", Protocol},
		{"no name", ok + ": x\r\n", Protocol},
		{"space in a name", ok + "A b: x\r\n", Protocol},
		{"CR in a value (RFC 9110 section 5.5)", ok + "A: x\ry\r\n", Protocol},
		{"NUL in a value", ok + "A: x\x00y\r\n", Protocol},
		{"space before the first field (section 2.2)", ok + " A: x\r\n", Protocol},
		{"too many fields", ok + strings.Repeat("a:\r\n", maxFields+1), HeaderTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, f := parseHead([]byte(tc.in+"\r\n"), asked{})
			if f == nil || f.kind != tc.kind || f.phase != PhaseFirstByte {
				t.Errorf("%+v, want kind %s", f, tc.kind)
			}
		})
	}
}

func TestHeadEnd(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int
	}{
		{"", -1}, {"a", -1}, {"a\r\n", -1}, {"a\r\n\r", -1}, {"a\r\n\r\n", 5}, {"a\r\n\r\nbody", 5},
		{"a\n\n", 3}, {"a\n\r\n", 4}, {"a\r\n\nx", 4}, {"a\r\nb\r\n\r\n", 8}, {"a\r\r\n\n", 5}, {"a\n\r\r\n", -1},
	} {
		if got := headEnd([]byte(tc.in), 0); got != tc.want {
			t.Errorf("headEnd(%q) = %d, want %d", tc.in, got, tc.want)
		}
		// Byte by byte, looking on from two bytes before what is new.
		got := -1
		for i := 0; i <= len(tc.in) && got < 0; i++ {
			got = headEnd([]byte(tc.in[:i]), i-3)
		}
		if got != tc.want {
			t.Errorf("headEnd(%q) byte by byte = %d, want %d", tc.in, got, tc.want)
		}
	}
}

func TestChunks(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   string
		end  int // length of the body; -1: goes on
		bad  string
	}{
		{"empty body (RFC 9112 section 7.1)", "0\r\n\r\nrest", 5, ""},
		{"two chunks", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nHTTP/1.1", 26, ""},
		{"hexadecimal in both cases", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", 35, ""},
		{"leading and several zeros", "0005\r\nhello\r\n000\r\n\r\n", 20, ""},
		{"extensions (section 7.1.1)", "5;a=b;c=\"d;\"\r\nhello\r\n0;x\r\n\r\n", 28, ""},
		{"space before an extension", "5 ;a\r\nhello\r\n0 \r\n\r\n", 19, ""},
		{"trailers (section 7.1.2)", "0\r\nX-T: 1\r\nY: 2\r\n\r\nrest", 19, ""},
		{"cut short", "5\r\nhel", -1, ""},
		{"cut within the end", "5\r\nhello\r\n0\r\n\r", -1, ""},
		{"no size", "\r\n", 0, "no size"},
		{"minus", "-5\r\n", 0, "no size"},
		{"not hexadecimal", "5g\r\n", 0, "in a size"},
		{"0x", "0x5\r\n", 0, "in a size"},
		{"LF alone behind a size", "5\nhello", 0, "in a size"},
		{"CR alone behind a size", "5\rhello", 0, "CR without LF"},
		{"LF alone behind an extension", "5;a\nhello", 0, "control byte"},
		{"data longer than its size", "5\r\nhello!\r\n", 0, "longer"},
		{"LF alone behind data", "5\r\nhello\n0\r\n\r\n", 0, "longer"},
		{"CR alone behind data", "5\r\nhello\r0\r\n\r\n", 0, "CR without LF"},
		{"past 63 bits", "8000000000000000\r\n", 0, "63 bits"},
		{"past 64 bits", "10000000000000000\r\n", 0, "63 bits"},
		{"many zeros", strings.Repeat("0", 17), 0, "63 bits"},
		{"long extension", "5;" + strings.Repeat("a", maxChunkLine+1), 0, "extensions"},
		{"long trailers", "0\r\n" + strings.Repeat("a: b\r\n", 40), 0, "trailers"},
		{"LF alone in trailers", "0\r\nX: 1\n\r\n", 0, "trailer"},
		{"CR alone in trailers", "0\r\nX: 1\rY\r\n\r\n", 0, "CR without LF"},
		{"CR alone at the end", "0\r\n\rX", 0, "CR without LF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for step := 1; step <= len(tc.in); step++ {
				var s chunks
				var f *failure
				total, done := 0, false
				for b := []byte(tc.in); len(b) > 0 && !done && f == nil; {
					part := b[:min(step, len(b))]
					var n int
					n, done, f = s.scan(part, 200)
					total += n
					b = b[n:]
				}
				switch {
				case tc.bad != "":
					if f == nil || !strings.Contains(f.Error(), tc.bad) {
						t.Fatalf("in steps of %d: %v, want an error with %q", step, f, tc.bad)
					}
				case f != nil:
					t.Fatalf("in steps of %d: %v", step, f)
				case done != (tc.end >= 0), done && total != tc.end:
					t.Fatalf("in steps of %d: ended %v after %d, want %d", step, done, total, tc.end)
				}
			}
		})
	}
}

// FuzzConn feeds whatever an origin may say, in pieces of any size, to a
// connection with net/http behind it. Nothing panics, heads keep their bound,
// and the two agree: net/http takes an answer for whole only where the
// connection does, so a byte of a body can't become the next answer's head.
// (The other way round it may still refuse trailers, and closes.)
func FuzzConn(f *testing.F) {
	for _, s := range []string{
		ok + "Content-Length: 5\r\n\r\nhello",
		ok + "Content-Length: 5\r\n\r\nhello" + ok + "Content-Length: 0\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
		ok + "Transfer-Encoding: foo\r\nConnection: close, A\r\nA: b\r\n\r\nhello",
		"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + ok + "\r\nhello",
		"HTTP/1.0 200\nA: b\n c\n\nhello",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\nHTTP/1.1",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n\x00\x01",
	} {
		f.Add([]byte(s), uint8(0), uint8(3))
		f.Add([]byte(s), uint8(1), uint8(255))
		f.Add([]byte(s), uint8(2), uint8(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, kind, step uint8) {
		x := &exchange{asked: asked{head: kind%3 == 1, upgrade: kind%3 == 2}}
		req := &http.Request{Method: "GET"}
		if x.head {
			req.Method = "HEAD"
		}
		const headBytes = 4096
		c := answering(&stepped{in, max(int(step), 1)}, x, headBytes)
		br := bufio.NewReader(c)
		for range maxInterim + 1 {
			resp, err := http.ReadResponse(br, req)
			if len(c.head) > headBytes {
				t.Fatalf("%d bytes of head are held", len(c.head))
			}
			if err != nil {
				return
			}
			if resp.StatusCode < 200 && resp.StatusCode != 101 {
				continue
			}
			if resp.StatusCode == 101 && x.upgrade {
				return
			}
			n, err := io.Copy(io.Discard, resp.Body)
			if n > int64(len(in)) {
				t.Fatalf("%d bytes of body from %d", n, len(in))
			}
			if err == nil && c.awaited() != nil {
				t.Fatal("net/http takes the answer for whole, the connection does not")
			}
			if err == nil && !resp.Close {
				if p, err := br.Peek(1); err == nil {
					t.Fatalf("%q behind the end of the answer", p)
				}
			}
			return
		}
		t.Fatalf("more than %d interim responses", maxInterim)
	})
}

// stepped gives at most n bytes a read.
type stepped struct {
	b []byte
	n int
}

func (s *stepped) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.b)
	s.b = s.b[n:]
	return n, nil
}

// endless repeats a line for ever, and counts.
type endless struct {
	line []byte
	sent int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.line[(e.sent+n)%len(e.line):])
	}
	e.sent += n
	return n, nil
}

// TestConn_bounds: whatever never ends is given up after its bound, and a
// buffer, is read.
func TestConn_bounds(t *testing.T) {
	const headBytes = 64 << 10
	for _, tc := range []struct {
		name, first, line string
		kind              Kind
	}{
		{"endless fields", ok, "X-Some: thing\r\n", HeaderTooLarge},
		{"an endless field", ok + "X: ", "x", HeaderTooLarge},
		{"an endless status line", "HTTP/1.1 200 ", "x", HeaderTooLarge},
		{"endless small interim responses", "", "HTTP/1.1 102 Processing\r\n\r\n", Protocol},
		{"endless interim responses", "", "HTTP/1.1 103 x\r\nLink: " + strings.Repeat("x", 4096) + "\r\n\r\n", HeaderTooLarge},
		{"endless trailers", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "X-Some: thing\r\n", HeaderTooLarge},
		{"an endless size", ok + "Transfer-Encoding: chunked\r\n\r\n", "0", Protocol},
		{"an endless extension", ok + "Transfer-Encoding: chunked\r\n\r\n5;", "x", Protocol},
		{"garbage", "", "\x00\x01\x02", Protocol},
		{"empty lines", "", "\r\n", Protocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &endless{line: []byte(tc.line)}
			c := answering(io.MultiReader(strings.NewReader(tc.first), e), &exchange{}, headBytes)
			_, err := io.Copy(io.Discard, c)
			var f *failure
			if !errors.As(err, &f) || f.kind != tc.kind {
				t.Errorf("%v, want kind %s", err, tc.kind)
			}
			if e.sent > headBytes+2*bufLen {
				t.Errorf("read %d bytes, with a bound of %d", e.sent, headBytes)
			}
		})
	}
}

// TestConn_surplusIsNeverRead: the bytes behind an answer don't reach net/http,
// in whatever pieces they come, and the connection takes no further request.
func TestConn_surplusIsNeverRead(t *testing.T) {
	const surplus = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for _, answer := range []string{
		ok + "Content-Length: 5\r\n\r\nhello",
		ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		ok + "Content-Length: 0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	} {
		for _, step := range []int{1, 7, len(answer) - 1, len(answer), len(answer) + 1, 1 << 20} {
			c := answering(&stepped{[]byte(answer + surplus), step}, &exchange{}, 4096)
			got, err := io.ReadAll(c)
			if !errors.Is(err, errUnsolicited) {
				t.Errorf("%q in steps of %d: %v", answer, step, err)
			}
			if bytes.Contains(got, []byte("poison")) || bytes.Count(got, []byte("HTTP/1.1")) != 1 {
				t.Errorf("%q in steps of %d: net/http read %q", answer, step, got)
			}
			canceled := false
			x := &exchange{cancel: context.CancelCauseFunc(func(error) { canceled = true })}
			c.begin(x, true)
			if n, err := c.Write([]byte("GET")); n != 0 || err == nil || !canceled || !x.mayResend("POST") {
				t.Errorf("%q in steps of %d: a further request was written: %d, %v", answer, step, n, err)
			}
		}
	}
}

// TestConn_surplusIsKnownWithTheLastByte: when the last byte of an answer goes
// up, net/http may give the connection to another request before it reads
// again. What came in one piece with the answer has spoiled it by then.
func TestConn_surplusIsKnownWithTheLastByte(t *testing.T) {
	answer := ok + "Content-Length: 5\r\n\r\nhello"
	c := answering(strings.NewReader(answer+"HTTP/1.1 200 OK\r\n\r\n"), &exchange{}, 4096)
	if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
		t.Fatal(err)
	}
	x := &exchange{cancel: func(error) {}}
	c.begin(x, true)
	if !x.refused() {
		t.Error("the next request was taken")
	}
}

// TestConn_refusesToSendTwice: the last line of defence. However net/http comes
// to try, no connection takes a request that was sent before.
func TestConn_refusesToSendTwice(t *testing.T) {
	x := &exchange{}
	answering(strings.NewReader(""), x, 4096)
	c := newConn(scripted{Reader: strings.NewReader("")}, nil, limits{}, func(*conn) {})
	c.begin(x, false)
	if n, err := c.Write([]byte("GET")); n != 0 || !errors.Is(err, errSentAlready) {
		t.Errorf("wrote %d, %v", n, err)
	}
}

func TestRecordConn_readsNoFurtherThanTheRecord(t *testing.T) {
	var stream []byte
	for _, n := range []int{0, 1, 300, 16384} {
		stream = append(stream, 23, 3, 3, byte(n>>8), byte(n))
		stream = append(stream, bytes.Repeat([]byte{'x'}, n)...)
	}
	r := &recordConn{Conn: scripted{Reader: bytes.NewReader(stream)}}
	for _, n := range []int{0, 1, 300, 16384} {
		for _, want := range []int{5, n} {
			for want > 0 {
				got, err := r.Read(make([]byte, 1<<20))
				if err != nil || got > want {
					t.Fatalf("record of %d: read %d of %d, %v", n, got, want, err)
				}
				want -= got
			}
		}
	}
}

func BenchmarkParseHead(b *testing.B) {
	var s strings.Builder
	s.WriteString(ok)
	for i := range 15 {
		fmt.Fprintf(&s, "X-Field-%d: some value of the usual length, about %d bytes\r\n", i, 50)
	}
	s.WriteString("Content-Length: 12345\r\n\r\n")
	b.SetBytes(int64(s.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, f := parseHead([]byte(s.String()), asked{}); f != nil {
			b.Fatal(f)
		}
	}
}
