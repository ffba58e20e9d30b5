package shield

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// answer is the body of a response: it makes an [*Error] of what breaks it,
// and tells when the exchange is over.
type answer struct {
	body io.ReadCloser
	x    *exchange
	req  *http.Request // as the caller made it
	done func(*Error)
	once sync.Once
}

// Read reads the body. Its error is io.EOF when the body is whole, and an
// [*Error] when it is not.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	switch err {
	case nil:
		return n, nil
	case io.EOF:
		a.finish(nil)
		return n, io.EOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = &failure{Truncated, PhaseBody, err}
	}
	e := newError(a.req, a.x.failure(err, a.req.Context()))
	a.finish(e)
	return n, e
}

// Close ends the exchange, and the connection unless the body was read to its end.
func (a *answer) Close() error {
	err := a.body.Close()
	a.finish(nil)
	return err
}

func (a *answer) finish(e *Error) {
	a.once.Do(func() {
		a.x.cancel(nil)
		a.done(e)
	})
}

// tunnel is the body of a 101: what is written to it goes to the server.
type tunnel struct {
	*answer
	rwc io.ReadWriteCloser
}

func (t *tunnel) Write(p []byte) (int, error) { return t.rwc.Write(p) }

// CloseWrite ends the sending side and leaves the other open.
func (t *tunnel) CloseWrite() error {
	if cw, ok := t.rwc.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}
