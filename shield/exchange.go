package shield

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// exchange is one attempt: what the connection must know of the request, and
// what the sender must know of its fate. net/http's Transport stands between
// the two and has its own ideas about sending again; so the connection writes
// the truth in here, and cancels the request before net/http sees an error.
type exchange struct {
	asked
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	connected bool     // a connection was found or made
	reused    bool     // it had answered a request before
	sent      bool     // the first byte of the request was handed to it
	answered  bool     // the first byte of an answer came
	delivered bool     // the head of the final answer went up
	stale     bool     // the connection was no good: nothing may be read from the body for it
	fail      *failure // what broke it, the first thing only
}

// asked is what the framing of an answer depends on in its request.
type asked struct {
	head    bool // HEAD: the answer has no body, whatever it declares
	upgrade bool // the request asked for another protocol, so 101 is an answer
}

// Why a connection carries no request.
var (
	errClosedIdle  = errors.New("the server closed the connection while it was unused")
	errUnsolicited = errors.New("the server sent something that no request had asked for")
	errSentAlready = errors.New("the request was sent before and is not sent again")
)

// trace returns the hooks by which the exchange meets its connection.
func (x *exchange) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*conn); ok {
			c.begin(x, info.Reused)
		}
	}}
}

// meet notes that a connection was found. It reports false when the request was
// sent on another one already and must not be sent again.
func (x *exchange) meet(reused bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.connected, x.reused = true, reused
	return !x.sent
}

// refused reports whether the connection was no good.
func (x *exchange) refused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stale
}

func (x *exchange) markSent() {
	x.mu.Lock()
	x.sent = true
	x.mu.Unlock()
}

func (x *exchange) markAnswered() {
	x.mu.Lock()
	x.answered = true
	x.mu.Unlock()
}

func (x *exchange) markDelivered() {
	x.mu.Lock()
	x.delivered = true
	x.mu.Unlock()
}

// refuse notes that the connection was no good before anything was sent.
func (x *exchange) refuse(err error) {
	x.mu.Lock()
	x.stale = true
	x.mu.Unlock()
	x.broke(&failure{Reset, PhaseRequest, err})
}

// broke notes what broke the exchange. Until the answer's head went up it also
// cancels the request, which keeps net/http from sending it again.
func (x *exchange) broke(f *failure) {
	x.mu.Lock()
	if x.fail == nil {
		x.fail = f
	}
	early := !x.delivered
	x.mu.Unlock()
	if early {
		x.cancel(f)
	}
}

// failure says how the exchange failed, given the error that net/http returned
// for it and the context of the caller.
func (x *exchange) failure(err error, caller context.Context) *failure {
	x.mu.Lock()
	defer x.mu.Unlock()
	phase := PhaseConnect
	switch {
	case x.delivered:
		phase = PhaseBody
	case x.sent:
		phase = PhaseFirstByte
	case x.connected:
		phase = PhaseRequest
	}
	switch {
	case errors.Is(caller.Err(), context.DeadlineExceeded):
		return &failure{Timeout, phase, context.Cause(caller)}
	case caller.Err() != nil:
		return &failure{Canceled, phase, context.Cause(caller)}
	case x.fail != nil:
		return x.fail
	case !x.connected && !errors.As(err, new(*failure)):
		return &failure{Protocol, PhaseRequest, err} // net/http did not like the request
	}
	return classify(err, phase)
}

// mayResend reports whether the failed request may be sent once more, on a new
// connection: a connection was found but nothing sent on it, since it was
// stale; or the request is idempotent, and the connection, a reused one, was closed before a byte of an
// answer came (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1).
func (x *exchange) mayResend(method string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.connected && !x.sent {
		return true
	}
	return idempotent(method) && x.reused && x.sent && !x.answered &&
		x.fail != nil && x.fail.kind == Reset
}

// idempotent reports whether a method is by RFC 9110 section 9.2.2. Those that
// we do not know are not.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}
