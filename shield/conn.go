package shield

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bufLen is the size of a connection's read buffer: the longest plaintext of a
// TLS record (RFC 8446 section 5.1), so that a record never leaves a rest behind
// in crypto/tls, where it could not be seen.
const bufLen = 16 << 10

// maxInterim bounds the interim responses before a final one. 103 comes once or
// twice, 102 every twenty seconds.
const maxInterim = 100

// limits are what a connection keeps to; see TransportConfig.
type limits struct {
	idle      time.Duration // 0 or below: none
	headBytes int
}

// conn is a connection to a server, standing between net/http's Transport and
// the socket. It follows the answers that come in, so that it always knows
// whether the next byte is of a head, of a body, or one that nobody asked for:
//
//   - It reads each head whole, within its bound, and hands net/http one that
//     it wrote anew (see answerHead).
//   - The idle timeout of a body's reader is its read deadline.
//   - A byte that comes when no answer is awaited spoils the connection: it is
//     never taken for the answer to the next request. This holds whatever the
//     order in which goroutines run, for TCP as well as for TLS over TCP: while
//     the connection is unused nobody reads from it, the reader only waits
//     until there is something to read, and the first byte of a request is
//     written only after a look, under mu, that there is nothing. What is
//     under way when that byte is written can't be told from a quick answer.
//     (On a connection that is no socket the reader has to read in order to
//     wait, and a byte that it holds but did not report yet goes unseen.)
//   - Interim responses are counted.
//
// The reading side belongs to whoever reads, one at a time: first the
// Transport's read loop, then the reader of the body. The writing side is one
// goroutine of the Transport.
type conn struct {
	net.Conn
	socket syscall.RawConn // of the TCP connection below; nil when there is none
	secure bool            // Conn is TLS
	limits limits
	closed func(*conn)
	once   sync.Once

	closing atomic.Bool // we have closed it: what breaks from then on is no news

	// The reading side.
	buf     []byte // allocated with the first read
	r, w    int    // buf[r:w] was read and is not used yet
	pending error  // what came with the last bytes
	err     error  // what every Read returns from now on
	head    []byte // of the answer, so far
	headers int    // bytes of heads of this exchange, so far
	interim int    // interim responses of this exchange, so far
	out     []byte // a rewritten head on its way up
	inBody  bool   // between a head and the end of its body
	framing framing
	left    int64
	chunks  chunks

	mu      sync.Mutex
	x       *exchange // whose answer is awaited or being read; nil when unused
	sent    bool      // the present or last request's first byte was written
	used    bool      // it has carried a whole answer
	tunnel  bool      // it switched protocols
	spoiled error     // why it carries no further request
}

// newConn wraps a connection. tcp is the one that the bytes come from: c
// itself, or what lies under it when c is TLS.
func newConn(c, tcp net.Conn, l limits, closed func(*conn)) *conn {
	nc := &conn{Conn: c, limits: l, closed: closed}
	_, nc.secure = c.(*tls.Conn)
	if sc, ok := tcp.(syscall.Conn); ok && canPeek {
		if raw, err := sc.SyscallConn(); err == nil {
			nc.socket = raw
		}
	}
	return nc
}

// Close closes the connection, whoever is reading or writing.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		c.closing.Store(true)
		err = c.Conn.Close()
		c.closed(c)
	})
	return err
}

// CloseWrite ends the sending side of a tunnel.
func (c *conn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// begin gives the connection its next request. What it finds wrong with the
// connection, or with sending this request again, it tells the exchange, and
// nothing will be written.
func (c *conn) begin(x *exchange, reused bool) {
	again := !x.meet(reused)
	c.mu.Lock()
	if again && c.spoiled == nil {
		c.spoiled = errSentAlready
	}
	c.lookLocked()
	err := c.spoiled
	c.x, c.sent = x, false
	c.mu.Unlock()
	if err != nil {
		x.refuse(err)
	}
}

// lookLocked spoils the connection if there is anything to read: bytes that no
// request asked for, or the end.
func (c *conn) lookLocked() {
	if c.spoiled != nil || !c.seesLocked() {
		return
	}
	switch n, ok := peek(c.socket); {
	case ok && n > 0:
		c.spoiled = errUnsolicited
	case ok:
		c.spoiled = errClosedIdle
	}
}

// seesLocked reports whether the socket shows if something has come for us. A
// new TLS connection may hold a session ticket, which is nobody's answer; it
// is out of the way with the first answer, which comes behind it.
func (c *conn) seesLocked() bool {
	return c.socket != nil && (!c.secure || c.used)
}

// Write sends a part of a request.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	x := c.x
	if !c.sent {
		if x == nil {
			c.mu.Unlock()
			return 0, errors.New("a request that the connection was not told of")
		}
		c.lookLocked()
		if err := c.spoiled; err != nil {
			c.mu.Unlock()
			x.refuse(err)
			return 0, err
		}
		c.sent = true
		x.markSent()
	}
	tunnel := c.tunnel
	c.mu.Unlock()
	if tunnel {
		return c.Conn.Write(p)
	}
	if c.limits.idle > 0 {
		c.Conn.SetWriteDeadline(time.Now().Add(c.limits.idle))
	}
	n, err := c.Conn.Write(p)
	if err == nil || c.closing.Load() {
		return n, err
	}
	f := classify(err, PhaseRequest)
	if f.kind == Timeout {
		if x != nil {
			x.broke(f)
		}
		return n, err
	}
	// The server does not listen any more. It may have answered before it
	// turned away (413, 401), and net/http would drop that answer if it
	// learned of the error: the reading side finds out how it ended.
	c.mu.Lock()
	if c.spoiled == nil {
		c.spoiled = err
	}
	c.mu.Unlock()
	return len(p), nil
}

// Read hands net/http the answers.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(c.out) > 0 {
			n := copy(p, c.out)
			if c.out = c.out[n:]; len(c.out) == 0 {
				c.out = nil
			}
			return n, nil
		}
		if c.err != nil {
			return 0, c.err
		}
		if c.r == c.w && c.pending == nil {
			if n, done := c.readInto(p); done {
				if n > 0 {
					return n, nil
				}
				continue
			}
			c.fill()
			continue
		}
		if c.r == c.w {
			c.ended(c.pending)
			continue
		}
		if !c.inBody {
			c.takeHead()
			continue
		}
		if n := c.takeBody(p); n > 0 {
			return n, nil
		}
	}
}

// readInto reads a body's bytes straight into p, past the buffer, when they
// can't be anything else. done is false when that is not possible here. With
// TLS it isn't: p may be shorter than a record.
func (c *conn) readInto(p []byte) (n int, done bool) {
	if !c.inBody || c.secure && c.framing != forTunnel {
		return 0, false
	}
	switch c.framing {
	case toLength:
		p = p[:min(int64(len(p)), c.left)]
	case toLast:
		if c.chunks.state != chunkData {
			return 0, false
		}
		p = p[:min(int64(len(p)), c.chunks.left)]
	}
	c.deadline()
	n, err := c.Conn.Read(p)
	if n > 0 {
		switch c.framing {
		case toLength:
			c.left -= int64(n)
		case toLast:
			c.chunks.scan(p[:n], 0)
		}
	}
	c.pending = err
	if c.framing == toLength && c.left == 0 {
		c.finish()
	}
	return n, true
}

// fill reads into the empty buffer.
func (c *conn) fill() {
	if c.buf == nil {
		c.buf = make([]byte, bufLen)
	}
	c.r, c.w = 0, 0
	if !c.inBody && len(c.head) == 0 && !c.await() {
		return
	}
	c.deadline()
	n, err := c.Conn.Read(c.buf)
	c.w, c.pending = n, err
	if c.inBody || n == 0 {
		return
	}
	if x := c.awaited(); x != nil {
		x.markAnswered()
	} else {
		c.spoil(errUnsolicited)
	}
}

// await waits until the socket has something to read, without reading it, and
// reports whether that may be an answer.
func (c *conn) await() bool {
	c.mu.Lock()
	sees := c.seesLocked()
	c.mu.Unlock()
	if !sees {
		return true
	}
	n, err := awaitReadable(c.socket)
	switch {
	case err != nil:
		c.ended(err)
		return false
	case c.awaited() != nil:
		return true
	case n == 0:
		c.spoil(errClosedIdle)
	default:
		c.spoil(errUnsolicited)
	}
	return false
}

// awaited returns the exchange whose answer may come now: its request was
// sent, at least in part. It is nil on an unused connection.
func (c *conn) awaited() *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sent {
		return nil
	}
	return c.x
}

// spoil ends the connection while no answer is awaited. A request that has just
// been given to it learns that it was not sent.
func (c *conn) spoil(why error) {
	c.err = why
	c.mu.Lock()
	if c.spoiled == nil {
		c.spoiled = why
	}
	x := c.x
	c.mu.Unlock()
	if x != nil {
		x.refuse(why)
	}
}

// deadline arms the idle timeout while a body is being read.
func (c *conn) deadline() {
	if c.inBody && c.framing != forTunnel && c.limits.idle > 0 {
		c.Conn.SetReadDeadline(time.Now().Add(c.limits.idle))
	}
}

// takeHead moves bytes from the buffer into the head and, when it is whole,
// takes it to pieces.
func (c *conn) takeHead() {
	x := c.awaited()
	if x == nil { // bytes behind the end of an answer
		c.spoil(errUnsolicited)
		return
	}
	before := len(c.head)
	room := max(c.limits.headBytes-c.headers-before, 0)
	head := c.buf[c.r:min(c.w, c.r+room)]
	if before > 0 { // it came in pieces
		c.head = append(c.head, head...)
		head = c.head
	}
	if !plausible(head) {
		c.broke(x, failf(Protocol, PhaseFirstByte, "malformed status line %q", truncate(string(head), 64)))
		return
	}
	n := headEnd(head, before-2)
	if n < 0 {
		if before == 0 {
			c.head = append([]byte(nil), head...)
		}
		if c.r += len(head) - before; c.r < c.w {
			c.broke(x, failf(HeaderTooLarge, PhaseFirstByte, "the head is longer than %d bytes", c.limits.headBytes))
		}
		return
	}
	c.r += n - before
	h, err := parseHead(head[:n], x.asked)
	if err != nil {
		c.broke(x, err)
		return
	}
	c.head = nil
	c.headers += n
	c.out = h.out
	if h.status < 200 && h.body != forTunnel {
		if c.interim++; c.interim > maxInterim {
			c.out = nil
			c.broke(x, failf(Protocol, PhaseFirstByte, "more than %d interim responses", maxInterim))
		}
		return
	}
	c.inBody, c.framing, c.left, c.chunks = true, h.body, h.length, chunks{}
	switch h.body {
	case noBody:
		c.finish()
	case forTunnel:
		c.mu.Lock()
		c.tunnel = true
		c.mu.Unlock()
		c.Conn.SetDeadline(time.Time{})
	}
}

// takeBody hands up bytes of the body from the buffer.
func (c *conn) takeBody(p []byte) int {
	b := c.buf[c.r:min(c.w, c.r+len(p))]
	n, done := len(b), false
	switch c.framing {
	case toLength:
		n = int(min(int64(n), c.left))
		c.left -= int64(n)
		done = c.left == 0
	case toLast:
		var err *failure
		if n, done, err = c.chunks.scan(b, c.limits.headBytes); err != nil {
			c.broke(c.awaited(), err)
			n-- // the byte that was wrong
		}
	}
	copy(p, b[:n])
	c.r += n
	if done {
		c.finish()
	}
	return n
}

// finish ends an exchange with the last byte of its answer. If there are more
// bytes, the connection is spoiled before net/http learns that the answer is
// over and gives the connection to the next request.
func (c *conn) finish() {
	c.inBody, c.headers, c.interim = false, 0, 0
	if c.limits.idle > 0 {
		c.Conn.SetReadDeadline(time.Time{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.x, c.used = nil, true
	if c.r < c.w && c.spoiled == nil {
		c.spoiled = errUnsolicited
	}
}

// ended deals with an error of the network, or the end.
func (c *conn) ended(err error) {
	c.err = err
	c.mu.Lock()
	x, sent := c.x, c.sent
	c.mu.Unlock()
	switch eof := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); {
	case x == nil, c.closing.Load(), c.inBody && c.framing == forTunnel:
	case !sent:
		x.refuse(err)
	case c.inBody && c.framing == toClose && err == io.EOF:
		c.finish()
	case c.inBody && eof:
		x.broke(failf(Truncated, PhaseBody, "the connection was closed before the end of the body: %w", io.ErrUnexpectedEOF))
	case c.inBody:
		x.broke(classify(err, PhaseBody))
	case eof && len(c.head) > 0:
		x.broke(failf(Reset, PhaseFirstByte, "the connection was closed within the head: %w", io.ErrUnexpectedEOF))
	case eof:
		x.broke(failf(Reset, PhaseFirstByte, "the connection was closed without an answer: %w", io.EOF))
	default:
		x.broke(classify(err, PhaseFirstByte))
	}
}

// broke ends exchange and connection: what comes can't be understood.
func (c *conn) broke(x *exchange, f *failure) {
	c.err = f
	c.head = nil
	c.mu.Lock()
	if c.spoiled == nil {
		c.spoiled = fmt.Errorf("earlier: %w", f)
	}
	c.mu.Unlock()
	if x != nil {
		x.broke(f)
	}
}
