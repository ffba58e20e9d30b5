package shield

import (
	"errors"
	"fmt"
	"io"
	"net"
)

// errNoNotify is the end of a TLS connection without close_notify. Where only
// the close ends a body, anyone on the way can have cut it (RFC 8446 section
// 6.1, RFC 9112 section 9.8). crypto/tls alone takes it for an end.
var errNoNotify = fmt.Errorf("closed without close_notify: %w", io.ErrUnexpectedEOF)

// recordConn lies under a TLS client and never reads past the end of the TLS
// record that the client is reading (RFC 8446 section 5.1), so that what has
// not been asked for stays in the socket, where conn can see it.
type recordConn struct {
	net.Conn
	header [5]byte
	have   int // bytes of the header
	left   int // bytes of the record's fragment
}

func (r *recordConn) Read(p []byte) (int, error) {
	n, err := r.read(p)
	if errors.Is(err, io.EOF) {
		err = errNoNotify
	}
	return n, err
}

func (r *recordConn) read(p []byte) (int, error) {
	if r.left > 0 {
		n, err := r.Conn.Read(p[:min(len(p), r.left)])
		r.left -= n
		return n, err
	}
	n, err := r.Conn.Read(p[:min(len(p), len(r.header)-r.have)])
	copy(r.header[r.have:], p[:n])
	if r.have += n; r.have == len(r.header) {
		r.have, r.left = 0, int(r.header[3])<<8|int(r.header[4])
	}
	return n, err
}
