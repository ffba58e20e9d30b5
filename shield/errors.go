package shield

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Kind is what went wrong with a request to an origin.
type Kind string

// The kinds. A caller maps Timeout to 504 and the others to 502; Canceled is
// the caller's own doing.
const (
	Refused        Kind = "refused"          // no connection could be made
	Timeout        Kind = "timeout"          // a phase took longer than it may; Error.Phase says which
	Reset          Kind = "reset"            // the connection broke, or was closed before an answer
	Truncated      Kind = "truncated"        // the body ended before its declared end
	HeaderTooLarge Kind = "header_too_large" // the head, its trailers or its interim responses passed their bound
	Protocol       Kind = "protocol"         // the answer is no HTTP/1.1, or not one to this request
	Canceled       Kind = "canceled"         // the request's context ended
)

// Phase is how far a request had come.
type Phase string

// The phases, in order.
const (
	PhaseConnect   Phase = "connect"    // name look-up, TCP connect and TLS handshake
	PhaseRequest   Phase = "request"    // sending head and body
	PhaseFirstByte Phase = "first_byte" // from there to the end of the answer's head
	PhaseBody      Phase = "body"       // reading the body; a Timeout here is the idle timeout
)

// Error is the failure of a request to an origin or a peer. It is returned by
// RoundTrip and Do and by the Read method of a response's body.
type Error struct {
	Kind  Kind
	Phase Phase
	URL   string // the server asked: scheme://host:port
	Err   error  // the cause, never nil
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%s): %v", e.URL, e.Kind, e.Phase, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether a phase took longer than it may, as net.Error has it.
func (e *Error) Timeout() bool { return e.Kind == Timeout }

// failure is an Error on its way up, where the URL is not known yet.
type failure struct {
	kind  Kind
	phase Phase
	err   error
}

func (f *failure) Error() string { return string(f.kind) + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failf(kind Kind, phase Phase, format string, args ...any) *failure {
	return &failure{kind, phase, fmt.Errorf(format, args...)}
}

// classify makes a failure of an error of the network or of net/http.
func classify(err error, phase Phase) *failure {
	var f *failure
	var ne net.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled):
		return &failure{Canceled, phase, err}
	case errors.As(err, &ne) && ne.Timeout(): // context.DeadlineExceeded and os.ErrDeadlineExceeded too
		return &failure{Timeout, phase, err}
	case phase == PhaseConnect:
		return &failure{Refused, phase, err}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return &failure{Reset, phase, err}
	default:
		return &failure{Protocol, phase, err}
	}
}
