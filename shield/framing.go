package shield

// framing is how the end of an answer's body is found (RFC 9112 section 6.3).
type framing uint8

const (
	noBody    framing = iota // a 1xx, 204 or 304, or an answer to HEAD
	toLength                 // after Content-Length bytes
	toLast                   // with the last chunk and its trailers
	toClose                  // when the server closes the connection
	forTunnel                // never: after 101 the bytes are another protocol's
)

// chunks follows a chunked body (RFC 9112 section 7.1) byte by byte, without
// decoding it: it knows where the body ends, and that what net/http will decode
// has one meaning only. It wants CRLF at the end of lines, hexadecimal sizes
// that fit 63 bits, and nothing but extensions behind them.
type chunks struct {
	state   chunkState
	digits  int   // of the size, so far
	left    int64 // bytes of this chunk's data to come
	line    int   // bytes of this line, so far
	trailer int   // bytes of the trailer section, so far
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExt
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart
	trailerLine
	trailerLF
	trailerEndLF
)

// maxChunkLine bounds the line with a chunk's size. Extensions have no use that
// anyone knows; net/http bounds the line at 4096.
const maxChunkLine = 1024

// scan goes over the next bytes of the connection and returns how many of them
// are the body's, and whether it ends with them. maxTrailer bounds the bytes of
// the trailer section.
func (s *chunks) scan(b []byte, maxTrailer int) (n int, done bool, err *failure) {
	for n < len(b) {
		if s.state == chunkData {
			take := int(min(int64(len(b)-n), s.left))
			n += take
			if s.left -= int64(take); s.left == 0 {
				s.state = chunkDataCR
			}
			continue
		}
		c := b[n]
		n++
		switch s.state {
		case chunkSize:
			v, hex := unhex(c)
			switch {
			case hex:
				if s.digits++; s.digits > 16 || s.left > (1<<63-1)>>4 {
					return n, false, badChunk("its size does not fit 63 bits")
				}
				s.left = s.left<<4 | int64(v)
			case s.digits == 0:
				return n, false, badChunk("no size where one belongs, but %q", c)
			case c == '\r':
				s.state = chunkSizeLF
			case c == ';', c == ' ', c == '\t':
				s.state, s.line = chunkExt, 0
			default:
				return n, false, badChunk("%q in a size", c)
			}
		case chunkExt:
			if s.line++; s.line > maxChunkLine {
				return n, false, badChunk("extensions of more than %d bytes", maxChunkLine)
			}
			switch {
			case c == '\r':
				s.state = chunkSizeLF
			case c < ' ' && c != '\t', c == 0x7f:
				return n, false, badChunk("control byte %#02x in an extension", c)
			}
		case chunkSizeLF:
			switch {
			case c != '\n':
				return n, false, badChunk("CR without LF behind a size")
			case s.left > 0:
				s.state = chunkData
			default:
				s.state = trailerStart
			}
			s.digits = 0
		case chunkDataCR:
			if c != '\r' {
				return n, false, badChunk("data longer than its size")
			}
			s.state = chunkDataLF
		case chunkDataLF:
			if c != '\n' {
				return n, false, badChunk("CR without LF behind data")
			}
			s.state = chunkSize
		default:
			if s.trailer++; s.trailer > maxTrailer {
				return n, false, failf(HeaderTooLarge, PhaseBody, "trailers of more than %d bytes", maxTrailer)
			}
			if done, err := s.scanTrailer(c); done || err != nil {
				return n, done, err
			}
		}
	}
	return n, false, nil
}

// scanTrailer takes one byte of the trailer section and reports whether it is
// the last one of the body.
func (s *chunks) scanTrailer(c byte) (done bool, err *failure) {
	switch s.state {
	case trailerStart, trailerLine:
		switch {
		case c == '\r' && s.state == trailerStart:
			s.state = trailerEndLF
		case c == '\r':
			s.state = trailerLF
		case c == '\n', c == 0:
			return false, badChunk("%q in a trailer field", c)
		default:
			s.state = trailerLine
		}
	case trailerLF:
		if c != '\n' {
			return false, badChunk("CR without LF in the trailers")
		}
		s.state = trailerStart
	case trailerEndLF:
		if c != '\n' {
			return false, badChunk("CR without LF behind the trailers")
		}
		return true, nil
	}
	return false, nil
}

func badChunk(format string, args ...any) *failure {
	return failf(Protocol, PhaseBody, "malformed chunk: "+format, args...)
}

func unhex(c byte) (v byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
