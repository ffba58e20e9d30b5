package shield

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// tcpPair returns the two ends of a TCP connection.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// arrived waits until the socket has something to read.
func arrived(t *testing.T, c *conn) {
	t.Helper()
	if c.socket == nil {
		t.Fatal("not a socket")
	}
	if _, err := awaitReadable(c.socket); err != nil {
		t.Fatal(err)
	}
}

// TestConn_looksBeforeItSends: bytes, or the end, that are in the socket before
// a request are seen although nobody reads: when the request is given to the
// connection, before its body is touched, and once more before its first byte.
func TestConn_looksBeforeItSends(t *testing.T) {
	for _, tc := range []struct {
		name  string
		event func(far net.Conn)
		want  error
	}{
		{"unsolicited bytes", func(far net.Conn) { io.WriteString(far, "HTTP") }, errUnsolicited},
		{"closed", func(far net.Conn) { far.Close() }, errClosedIdle},
		{"reset", func(far net.Conn) { far.(*net.TCPConn).SetLinger(0); far.Close() }, errClosedIdle},
	} {
		for _, when := range []string{"before it is given", "before the first byte"} {
			t.Run(tc.name+" "+when, func(t *testing.T) {
				near, far := tcpPair(t)
				c := newConn(near, near, limits{}, func(*conn) {})
				var cause error
				x := &exchange{cancel: context.CancelCauseFunc(func(err error) { cause = err })}
				if when == "before it is given" {
					tc.event(far)
					arrived(t, c)
					c.begin(x, true)
				} else {
					c.begin(x, true)
					if x.refused() {
						t.Fatal("refused too early")
					}
					tc.event(far)
					arrived(t, c)
					if n, err := c.Write([]byte("GET")); n != 0 || !errors.Is(err, tc.want) {
						t.Errorf("wrote %d, %v", n, err)
					}
				}
				if !x.refused() || !errors.Is(cause, tc.want) || !x.mayResend("POST") {
					t.Errorf("refused %v, cause %v, want %v", x.refused(), cause, tc.want)
				}
			})
		}
	}
}

// TestConn_readerTellsANewRequest: the reader that finds the end of an
// unused connection tells the request that has just been given to it.
func TestConn_readerTellsANewRequest(t *testing.T) {
	near, far := tcpPair(t)
	c := newConn(near, near, limits{}, func(*conn) {})
	x := &exchange{cancel: func(error) {}}
	c.begin(x, true)
	far.Close()
	if _, err := c.Read(make([]byte, 10)); err == nil {
		t.Error("no error")
	}
	if !x.refused() {
		t.Error("the request was not told")
	}
}

// TestConn_readErrorTellsANewRequest is the same where there is no socket.
func TestConn_readErrorTellsANewRequest(t *testing.T) {
	c := newConn(scripted{Reader: strings.NewReader("")}, nil, limits{}, func(*conn) {})
	x := &exchange{cancel: func(error) {}}
	c.begin(x, true)
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want EOF", err)
	}
	if !x.refused() {
		t.Error("the request was not told")
	}
}

// TestConn_sessionTicketsAreNoAnswer: what TLS 1.3 sends behind the handshake
// is in the socket of a new connection before the first request.
func TestConn_sessionTicketsAreNoAnswer(t *testing.T) {
	cert, roots := certificate(t)
	near, far := tcpPair(t)
	go tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake()
	c := tls.Client(&recordConn{Conn: near}, &tls.Config{RootCAs: roots, ServerName: "origin.example", ClientSessionCache: tls.NewLRUClientSessionCache(1)})
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc := newConn(c, near, limits{}, func(*conn) {})
	arrived(t, nc)
	x := &exchange{cancel: func(error) {}}
	nc.begin(x, false)
	if x.refused() {
		t.Error("refused")
	}
}

// TestRequestBody: an attempt whose connection is no good, or that is over,
// leaves the body to the next one; only the end closes it, once.
func TestRequestBody(t *testing.T) {
	body := &closing{Reader: strings.NewReader("form")}
	b := &requestBody{rc: body}

	x := &exchange{cancel: func(error) {}}
	stale, over := b.view(x)
	x.refuse(errClosedIdle)
	if n, err := stale.Read(make([]byte, 4)); n != 0 || !errors.Is(err, errRevoked) {
		t.Errorf("a refused attempt read %d, %v", n, err)
	}
	stale.Close()
	over(false)

	failed, over := b.view(&exchange{})
	over(false)
	if n, err := failed.Read(make([]byte, 4)); n != 0 || !errors.Is(err, errRevoked) {
		t.Errorf("an attempt that was over read %d, %v", n, err)
	}
	failed.Close()
	if !b.untouched() || body.closed != 0 {
		t.Errorf("untouched %v, closed %d times", b.untouched(), body.closed)
	}

	kept, over := b.view(&exchange{})
	if got, err := io.ReadAll(kept); string(got) != "form" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	kept.Close()
	if b.untouched() || body.closed != 0 {
		t.Errorf("untouched %v, closed %d times before the attempt was over", b.untouched(), body.closed)
	}
	over(true)
	kept.Close()
	if body.closed != 1 {
		t.Errorf("closed %d times", body.closed)
	}
	if _, err := kept.Read(make([]byte, 4)); err == nil {
		t.Error("read after it was closed")
	}
}
