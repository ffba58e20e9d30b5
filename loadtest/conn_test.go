package loadtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// scripted serves each connection one list of answers, then closes it.
func scripted(ln *pipeListener, conns ...[]string) {
	for _, answers := range conns {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		br := bufio.NewReader(c)
		for _, a := range answers {
			if _, err := http.ReadRequest(br); err != nil {
				break
			}
			if _, err := io.WriteString(c, a); err != nil {
				break
			}
		}
		c.Close()
	}
}

func TestConn_readsWhatNetHTTPReads(t *testing.T) {
	const big = "X-Big: "
	for _, tc := range []struct {
		name, answer string
		status       int
		from, body   string
		open         bool // for the next request
	}{
		{"plain", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nCache-Status: a; hit\r\n\r\nabc", 200, fromHit, "abc", true},
		{"no reason", "HTTP/1.1 404\r\ncontent-length:0\r\n\r\n", 404, fromUnknown, "", true},
		{"two lines of Cache-Status", "HTTP/1.1 200 OK\r\nCache-Status: o; hit\r\ncache-status: a; fwd=miss\r\nContent-Length: 1\r\n\r\nx", 200, fromOrigin, "x", true},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Status: a; hit\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200, fromHit, "ab", true},
		{"interim", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, fromUnknown, "x", true},
		{"ends with the connection", "HTTP/1.1 200 OK\r\n\r\nall of it", 200, fromUnknown, "all of it", false},
		{"to be closed", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 200, fromUnknown, "x", false},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, fromUnknown, "", true},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, fromUnknown, "x", false},
		{"a head above the buffer", "HTTP/1.1 200 OK\r\n" + big + strings.Repeat("y", 2*connBufferBytes) + "\r\nContent-Length: 1\r\n\r\nx", 200, fromUnknown, "x", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipeListener()
				go scripted(ln, []string{tc.answer})
				k := conn{addr: "x:80", host: "h", dial: ln.dial, hold: func(net.Conn) {}}
				defer k.drop()
				a, err := k.get(t.Context(), "/")
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(a.body)
				if a.status != tc.status || a.from != tc.from || string(body) != tc.body || err != nil {
					t.Errorf("%d from %s, %q, %v; want %d from %s, %q", a.status, a.from, body, err, tc.status, tc.from, tc.body)
				}
				k.finish(a, true)
				if open := k.c != nil; open != tc.open {
					t.Errorf("open %v, want %v", open, tc.open)
				}
			})
		})
	}
}

func TestConn_errors(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
	for _, tc := range []struct {
		name   string
		conns  [][]string
		asks   int
		want   error // of the last one
		resent bool  // the last one was
	}{
		{"closed at once", [][]string{{""}}, 1, io.EOF, false},
		{"closed in the head", [][]string{{"HTTP/1.1 200 O"}}, 1, io.ErrUnexpectedEOF, false},
		{"closed in the body", [][]string{{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx"}}, 1, io.ErrUnexpectedEOF, false},
		{"closed while idle", [][]string{{ok}, {ok}}, 2, nil, true},
		{"closed while idle, and again", [][]string{{ok}, {""}}, 2, io.EOF, true},
		{"closed in the second head", [][]string{{ok, "HTTP/1.1 2"}, {ok}}, 2, io.ErrUnexpectedEOF, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipeListener()
				go scripted(ln, tc.conns...)
				k := conn{addr: "x:80", host: "h", dial: ln.dial, hold: func(net.Conn) {}}
				defer ln.Close()
				defer k.drop()
				for i := range tc.asks {
					a, err := k.get(t.Context(), "/")
					if err == nil {
						_, err = io.Copy(io.Discard, a.body)
						k.finish(a, err == nil)
					}
					synctest.Wait() // the other side has closed, if it will
					if i == tc.asks-1 && (!errors.Is(err, tc.want) || a.resent != tc.resent) {
						t.Errorf("%v, resent %v; want %v, %v", err, a.resent, tc.want, tc.resent)
					}
				}
			})
		})
	}
}

// What could be read in two ways is left to net/http.
func TestConn_plainHeadDeclines(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n folded\r\n",
		"HTTP/1.1 200 OK\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 1\r\n",
		"HTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\n",
		"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n",
		"HTTP/1.1 200 \n\r\nContent-Length: 1\r\n",
		"HTTP/1.1 200 OK\r\nA: b\n\nContent-Length: 1\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nA: b\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -0\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding : chunked\r\n",
	} {
		var k conn
		if a, ok := k.plainHead([]byte(head)); ok {
			t.Errorf("%q is read as %+v", head, a)
		}
	}
}

// The head that is read in place means what net/http says it means.
func FuzzConn_plainHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nCache-Status: a; hit\r\n\r\nabc",
		"HTTP/1.1 404\r\ncontent-length:0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\n folded\r\nContent-Length: 1\r\n\r\na",
		"HTTP/1.1 +20 OK\r\nContent-Length: 1\r\n\r\na",
		"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
		"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
		"HTTP/1.1 200 \n\r\nContent-Length:0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > connBufferBytes {
			return
		}
		end := bytes.Index(data, []byte("\r\n\r\n"))
		if end < 0 {
			return
		}
		var k conn
		k.br = bufio.NewReader(bytes.NewReader(data[end+4:]))
		a, ok := k.plainHead(data[:end+2])
		if !ok {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), &http.Request{Method: http.MethodGet})
		if err != nil {
			return // ours is laxer in what does not matter here, such as odd bytes in a value
		}
		defer resp.Body.Close()
		if resp.StatusCode != a.status || resp.ContentLength != k.fixed.left || resp.Close {
			t.Errorf("%d with %d bytes, net/http says %d with %d, close %v: %q", a.status, k.fixed.left, resp.StatusCode, resp.ContentLength, resp.Close, data)
		}
	})
}

func TestWorker_interruptedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		defer ln.Close()
		ctx, cancel := context.WithCancel(t.Context())
		d := newDriver([]string{"x:80"}, "h", 1, newRecorder())
		d.dial = ln.dial
		go func() {
			c, _ := ln.Accept()
			http.ReadRequest(bufio.NewReader(c))
			cancel() // and never answers
		}()
		w := d.newWorker(ctx)
		defer w.close()
		if o := w.send(arrival{path: "/"}); o.kind == "" {
			t.Error("an answer that was never sent")
		}
	})
}
