package loadtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// Two designs of the client. http.Transport: complete, but two goroutines and
// four hand-overs between them for each request, which on two cores beside a
// bare server is a quarter of what wrk sends. A connection of its own for each
// worker, chosen: the worker writes and reads itself. A head that has the form
// which nearly all have is read in place; any other, before a byte of it is
// consumed, is left to http.ReadResponse, so nothing that net/http can read is
// an error here.

// connBufferBytes holds a head and a small body, so that these are one read.
const connBufferBytes = 8 << 10

// deadlineStep is how coarse the deadlines are: setting one for each request
// would cost more than it tells. A request has requestTimeout and up to this.
const deadlineStep = time.Second

// dialFunc opens a connection.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// conn is a keep-alive connection to one target, opened when it is needed. It
// is for one goroutine, but for what hold and drop tell their owner.
type conn struct {
	addr string
	host string
	dial dialFunc
	// hold is told of each connection that is open now, or nil; it may close
	// the one that it was told last at any time.
	hold func(net.Conn)

	c        net.Conn
	br       *bufio.Reader
	req      []byte
	deadline time.Time
	fixed    fixedBody
	statuses map[string]string // Cache-Status as sent, and the source it means
}

// answer is the head of an answer, and a body that must be read to its end, or
// finish told that it was not.
type answer struct {
	status  int
	from    string
	body    io.Reader
	closing bool // the connection ends with the body
	resent  bool // it was asked for a second time, on a fresh connection
}

// get sends one request and reads the head of its answer. A connection that was
// idle and turns out to be closed is replaced once (RFC 9112 §9.3.1).
func (k *conn) get(ctx context.Context, path string) (answer, error) {
	k.req = append(k.req[:0], "GET "...)
	k.req = append(k.req, path...)
	k.req = append(k.req, " HTTP/1.1\r\nHost: "...)
	k.req = append(k.req, k.host...)
	k.req = append(k.req, "\r\nUser-Agent: edged-loadtest\r\n\r\n"...)
	idle := k.c != nil
	a, err := k.exchange(ctx)
	if err != nil && idle && closedByPeer(err) && k.br.Buffered() == 0 && ctx.Err() == nil {
		a, err = k.exchange(ctx)
		a.resent = true
	}
	return a, err
}

// closedByPeer reports whether nothing came because the other side had closed.
func closedByPeer(err error) bool {
	return err == io.EOF || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

func (k *conn) exchange(ctx context.Context) (a answer, err error) {
	defer func() {
		if err != nil {
			k.drop()
		}
	}()
	if k.c == nil {
		if k.c, err = k.dial(ctx, "tcp", k.addr); err != nil {
			return a, err
		}
		k.hold(k.c)
		k.deadline = time.Time{}
		if k.br == nil {
			k.br = bufio.NewReaderSize(nil, connBufferBytes)
		}
		k.br.Reset(k.c)
	}
	if end := time.Now().Add(requestTimeout); k.deadline.Before(end) {
		k.deadline = end.Add(deadlineStep)
		if err := k.c.SetDeadline(k.deadline); err != nil {
			return a, err
		}
	}
	if _, err := k.c.Write(k.req); err != nil {
		return a, err
	}
	return k.readHead()
}

// readHead reads the head of an answer, and gives it a body.
func (k *conn) readHead() (answer, error) {
	for {
		head, _ := k.br.Peek(k.br.Buffered())
		end := bytes.Index(head, []byte("\r\n\r\n"))
		if end >= 0 {
			if a, ok := k.plainHead(head[:end+2]); ok {
				k.br.Discard(end + 4)
				return a, nil
			}
			return k.anyHead()
		}
		if len(head) == k.br.Size() {
			return k.anyHead()
		}
		if _, err := k.br.Peek(len(head) + 1); err != nil {
			if err == io.EOF && len(head) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return answer{}, err
		}
	}
}

// plainHead reads a head that ends its body by Content-Length and leaves the
// connection open; ok is false for every other. The head ends with its last
// line's CRLF.
func (k *conn) plainHead(head []byte) (a answer, ok bool) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if bareBreak(line) || len(line) < len("HTTP/1.1 200") || string(line[:9]) != "HTTP/1.1 " || len(line) > 12 && line[12] != ' ' {
		return a, false
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified {
		return a, false
	}
	a = answer{status: status, from: fromUnknown}
	length := int64(-1)
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || bareBreak(line) || bytes.ContainsAny(line[:colon], " \t") {
			return a, false
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			n, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil || length >= 0 {
				return a, false
			}
			length = int64(n)
		case bytes.EqualFold(name, []byte("Transfer-Encoding")), bytes.EqualFold(name, []byte("Connection")):
			return a, false
		case bytes.EqualFold(name, []byte("Cache-Status")):
			a.from = k.source(value)
		}
	}
	if length < 0 {
		return a, false
	}
	k.fixed = fixedBody{k.br, length}
	a.body = &k.fixed
	return a, true
}

// bareBreak reports whether a line, its CRLF taken off, holds a CR or LF: a
// lenient reader takes a bare LF for the end of a line (RFC 9112, section 2.2).
func bareBreak(line []byte) bool {
	return bytes.IndexByte(line, '\n') >= 0 || bytes.IndexByte(line, '\r') >= 0
}

// maxStatuses bounds what a connection remembers of Cache-Status: a few nodes,
// results and seconds of freshness.
const maxStatuses = 1024

// source is sourceOf of a field's value, remembered.
func (k *conn) source(value []byte) string {
	if from, ok := k.statuses[string(value)]; ok {
		return from
	}
	if k.statuses == nil || len(k.statuses) >= maxStatuses {
		k.statuses = map[string]string{}
	}
	from := sourceOf([]string{string(value)})
	k.statuses[string(value)] = from
	return from
}

// anyHead reads whatever net/http reads.
func (k *conn) anyHead() (answer, error) {
	for {
		resp, err := http.ReadResponse(k.br, &http.Request{Method: http.MethodGet})
		if err != nil {
			return answer{}, err
		}
		if resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue // an interim one
		}
		return answer{
			status: resp.StatusCode, from: sourceOf(resp.Header.Values("Cache-Status")),
			body: resp.Body, closing: resp.Close,
		}, nil
	}
}

// finish ends an exchange. The connection stays open when the body was read to
// its end, whole, and neither side wants to close it.
func (k *conn) finish(a answer, whole bool) {
	if !whole || a.closing {
		k.drop()
	}
}

// drop closes the connection.
func (k *conn) drop() {
	if k.c != nil {
		k.hold(nil)
		k.c.Close()
		k.c = nil
	}
}

// fixedBody is a body of a known length.
type fixedBody struct {
	br   *bufio.Reader
	left int64
}

func (b *fixedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
