package edge

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
)

// net/http is lax where two readers of one connection must agree to the byte:
// it takes a request with both Content-Length and Transfer-Encoding, and then
// reads the rest as another request; it ends a head at a bare LF LF. Whoever
// stands in front of this node, or behind it, may read the same bytes in
// another way, and one client's request becomes part of another's (request
// smuggling, RFC 9112 §11.2). So every connection of the client and peer
// listeners is read through a framer, which passes on only what can be read
// in one way.

// poison is what net/http gets in the place of a head that is refused: it
// answers 400 and closes.
const poison = "refused\r\n\r\n"

// maxHeadBytes is how much of a head is held back until it is complete; a
// longer one is handed on for net/http to refuse (431).
const maxHeadBytes = maxHeaderBytes + 8<<10

// framedConn is a client's connection. Its Read belongs to one goroutine at a
// time, as net/http keeps it.
type framedConn struct {
	net.Conn
	framer
	gate      *gate
	idleSince atomic.Int64 // Unix time in ns; 0 while net/http has a request of it
	used      atomic.Bool  // it has brought a request
	raw       atomic.Bool
	broken    atomic.Bool            // the content of what was read last has no valid framing
	phrase    atomic.Pointer[phrase] // of the next head; nil: the usual one
	counted   bool
	buf       []byte
	held      atomic.Int64 // what the gate counts for it
	gone      atomic.Bool  // closed
}

// CloseWrite says that nothing more will be sent.
func (c *framedConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close may be called more than once, and from any goroutine.
func (c *framedConn) Close() error {
	err := c.Conn.Close()
	c.gone.Store(true)
	c.gate.held.Add(-c.held.Swap(0))
	c.gate.leave(c)
	return err
}

// hold tells the gate what the connection's unfinished head holds, and reports
// whether it may.
func (c *framedConn) hold() bool {
	held := int64(len(c.in) - c.ready)
	if held == c.held.Load() {
		return true
	}
	// Close may come between any two of these: whoever swaps a value out is the
	// one that takes it off the sum.
	all := c.gate.held.Add(held - c.held.Swap(held))
	if c.gone.Load() {
		c.gate.held.Add(-c.held.Swap(0))
	}
	return held <= freeHeldBytes || all <= maxHeldBytes
}

// passThrough ends the framing: the protocol has changed.
func (c *framedConn) passThrough() { c.raw.Store(true) }

func (c *framedConn) Read(p []byte) (int, error) {
	for {
		if c.raw.Load() {
			if rest := c.framer.rest(); len(rest) > 0 {
				n := copy(p, rest)
				c.framer.took(n)
				return n, nil
			}
			return c.Conn.Read(p)
		}
		if n := c.framer.read(p); n > 0 {
			if c.bad && !c.counted {
				c.counted = true
				c.gate.refused(rejectFraming)
			}
			return n, nil
		}
		if c.buf == nil {
			c.buf = make([]byte, 4<<10)
		}
		n, err := c.Conn.Read(c.buf)
		c.framer.add(c.buf[:n])
		if c.badContent {
			c.broken.Store(true)
		}
		if err != nil && n == 0 {
			c.in, c.ready = nil, 0
			c.hold()
			return 0, err
		}
		if !c.hold() {
			c.refuse()
			c.hold()
			c.counted = true
			c.gate.refused(rejectMemory)
		}
	}
}

// framer splits a stream of requests into heads and bodies (RFC 9112). It
// holds a head back until it is complete and found unambiguous. It is a pure
// state machine on bytes: how the stream is cut into portions makes no
// difference.
type framer struct {
	in    []byte // not handed on yet
	ready int    // of these, so many may be
	state frameState
	left  uint64 // bytes to come of a body or chunk
	bad   bool   // nothing more is handed on after what is ready

	badContent bool // bad, and a head that was found good has been handed on for it
}

type frameState uint8

const (
	inHead frameState = iota
	inBody            // left bytes
	inChunkLine
	inChunk    // left bytes
	inChunkEnd // CRLF
	inTrailer
	inNothing // refused, or too long
)

const maxChunkLine = 4 << 10 // of a chunk's size line, extensions included, and of a trailer line

// add takes bytes from the connection.
func (f *framer) add(p []byte) {
	f.in = append(f.in, p...)
	f.scan()
}

// read hands on what may be.
func (f *framer) read(p []byte) int {
	n := copy(p, f.in[:f.ready])
	f.took(n)
	f.ready -= n
	return n
}

// rest is everything that was held back.
func (f *framer) rest() []byte { return f.in }

func (f *framer) took(n int) {
	f.in = f.in[n:]
	if len(f.in) == 0 {
		f.in = nil // the memory of a large head is not kept
	}
}

// refuse puts poison in the place of all that is not ready yet.
func (f *framer) refuse() {
	f.in = append(f.in[:f.ready:f.ready], poison...)
	f.ready = len(f.in)
	f.badContent = f.state != inHead
	f.state, f.bad = inNothing, true
}

func (f *framer) scan() {
	for f.ready < len(f.in) {
		rest := f.in[f.ready:]
		switch f.state {
		case inNothing:
			if f.bad {
				f.in = f.in[:f.ready]
			} else {
				f.ready = len(f.in)
			}
			return
		case inBody, inChunk:
			n := min(uint64(len(rest)), f.left)
			f.ready += int(n)
			if f.left -= n; f.left > 0 {
				return
			}
			if f.state == inBody {
				f.state = inHead
			} else {
				f.state = inChunkEnd
			}
		case inChunkEnd:
			if len(rest) < 2 {
				return
			}
			if rest[0] != '\r' || rest[1] != '\n' {
				f.refuse()
				return
			}
			f.ready += 2
			f.state = inChunkLine
		case inChunkLine, inTrailer:
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				if len(rest) > maxChunkLine {
					f.refuse()
				}
				return
			}
			if end == 0 || rest[end-1] != '\r' || end > maxChunkLine || !cleanLine(rest[:end-1]) {
				f.refuse()
				return
			}
			line := rest[:end-1]
			if f.state == inTrailer {
				if len(line) == 0 {
					f.state = inHead
				} else if !fieldLine(line) {
					f.refuse()
					return
				}
			} else {
				size, ok := chunkSize(line)
				switch {
				case !ok:
					f.refuse()
					return
				case size == 0:
					f.state = inTrailer
				default:
					f.state, f.left = inChunk, size
				}
			}
			f.ready += end + 1
		case inHead:
			if !f.head(rest) {
				return
			}
		}
	}
}

// head looks at what may be a complete head; false when more is needed, or
// nothing more will be handed on.
func (f *framer) head(rest []byte) bool {
	if len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' {
		// An empty line before a request line is ignored (RFC 9112 §2.2).
		f.in = append(f.in[:f.ready:f.ready], rest[2:]...)
		return len(f.in) > f.ready
	}
	end := bytes.Index(rest, []byte("\n\r\n"))
	if lf := bytes.Index(rest, []byte("\n\n")); lf >= 0 && (end < 0 || lf < end) {
		f.refuse()
		return false
	}
	length := end + 3
	if length > maxHeadBytes || end < 0 && len(rest) > maxHeadBytes {
		f.state, f.ready = inNothing, len(f.in) // net/http says 431
		return false
	}
	if end < 0 {
		return false
	}
	next, left, ok := checkHead(rest[:length])
	if !ok {
		f.refuse()
		return false
	}
	f.ready += length
	f.state, f.left = next, left
	return true
}

// checkHead reports whether a head, with its empty line, can be read in one
// way only, and what follows it.
func checkHead(head []byte) (next frameState, left uint64, ok bool) {
	line, head, _ := bytes.Cut(head, []byte("\n"))
	if len(line) == 0 || line[len(line)-1] != '\r' || !cleanLine(line[:len(line)-1]) || bytes.IndexByte(line, '\t') >= 0 {
		return 0, 0, false
	}
	line = line[:len(line)-1]
	sp1, sp2 := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if sp1 <= 0 || sp2 <= sp1+1 || bytes.IndexByte(line[sp1+1:sp2], ' ') >= 0 {
		return 0, 0, false
	}
	version := string(line[sp2+1:])
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return 0, 0, false // net/http would take HTTP/1.2, say
	}
	lengths, codings, hosts := 0, 0, 0
	var length uint64
	for {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		head = rest
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return 0, 0, false
		}
		line = line[:len(line)-1]
		if len(line) == 0 {
			break
		}
		if !cleanLine(line) || !fieldLine(line) {
			return 0, 0, false
		}
		colon := bytes.IndexByte(line, ':')
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			n, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil || value[0] == '+' {
				return 0, 0, false
			}
			lengths++
			length = n
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			if !bytes.EqualFold(value, []byte("chunked")) {
				return 0, 0, false
			}
			codings++
		case bytes.EqualFold(name, []byte("host")):
			hosts++
		}
	}
	switch {
	case lengths > 1 || codings > 1 || hosts > 1 || lengths+codings > 1:
		return 0, 0, false
	case codings == 1 && version == "HTTP/1.0":
		return 0, 0, false
	case codings == 1:
		return inChunkLine, 0, true
	case length > 0:
		return inBody, length, true
	}
	return inHead, 0, true
}

// cleanLine reports whether a line has no control byte but tabs.
func cleanLine(line []byte) bool {
	for _, b := range line {
		if b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// fieldLine reports whether a line is a field: a token, at once a colon, and a
// value; no folding.
func fieldLine(line []byte) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	for _, b := range line[:colon] {
		if !tokenByte[b] {
			return false
		}
	}
	return true
}

// tokenByte marks the bytes of a token (RFC 9110 §5.6.2).
var tokenByte = func() (t [256]bool) {
	for _, b := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[b] = true
	}
	return
}()

// chunkSize reads the line before a chunk: hexadecimal digits, and extensions
// that nobody looks at.
func chunkSize(line []byte) (uint64, bool) {
	digits := line
	if i := bytes.IndexByte(line, ';'); i >= 0 {
		digits = bytes.TrimRight(line[:i], " \t")
	}
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	var n uint64
	for _, b := range digits {
		switch {
		case b >= '0' && b <= '9':
			n = n<<4 | uint64(b-'0')
		case b >= 'a' && b <= 'f':
			n = n<<4 | uint64(b-'a'+10)
		case b >= 'A' && b <= 'F':
			n = n<<4 | uint64(b-'A'+10)
		default:
			return 0, false
		}
	}
	return n, true
}
