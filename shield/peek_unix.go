//go:build unix && !aix && !solaris && !illumos

package shield

import (
	"errors"
	"syscall"
)

// canPeek says that peek and awaitReadable work on this system.
const canPeek = true

// peek looks whether a socket has something to read, without reading it or
// waiting. ok is false when there is nothing; n is 0 when the other side closed
// the connection or it broke. It may run while another goroutine waits for the
// same socket.
func peek(socket syscall.RawConn) (n int, ok bool) {
	err := socket.Control(func(fd uintptr) { n, ok = peekFD(fd) })
	if err != nil {
		return 0, true // closed by ourselves
	}
	return n, ok
}

// awaitReadable waits until a socket has something to read, without reading
// it. n is 0 when the other side closed the connection or it broke. It returns
// an error when we close it, or at the read deadline.
func awaitReadable(socket syscall.RawConn) (n int, err error) {
	err = socket.Read(func(fd uintptr) (done bool) {
		n, done = peekFD(fd)
		return done
	})
	return n, err
}

func peekFD(fd uintptr) (n int, ok bool) {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == nil:
			return n, true
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, false
		default:
			return 0, true
		}
	}
}
