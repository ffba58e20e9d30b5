package shield

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// requestBody is the body of a request over all its attempts: each gets a view
// of it, which net/http may close when the attempt fails, while the body is
// closed once, when no further attempt is made.
type requestBody struct {
	rc io.ReadCloser // nil for none

	mu      sync.Mutex
	touched bool // somebody began to read it
	closed  bool
	err     error // what reading it came to, other than its end
}

func newRequestBody(req *http.Request) *requestBody {
	if req.Body == http.NoBody {
		return &requestBody{}
	}
	return &requestBody{rc: req.Body}
}

var errRevoked = errors.New("the attempt is over")

// view returns the body for the attempt x, nil when there is none, and what to
// call when the attempt is over: with true if it succeeded and keeps the body,
// with false if another one may follow, which no reader of this view disturbs
// from then on.
func (b *requestBody) view(x *exchange) (body io.ReadCloser, over func(keep bool)) {
	if b.rc == nil {
		return nil, func(bool) {}
	}
	v := &bodyView{b: b, x: x}
	return v, v.over
}

// untouched reports whether nobody has begun to read it.
func (b *requestBody) untouched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.touched
}

// broken returns the error that reading it came to. It is the sender's, not the
// server's.
func (b *requestBody) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// close closes the body, once.
func (b *requestBody) close() error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	b.mu.Unlock()
	if again || b.rc == nil {
		return nil
	}
	return b.rc.Close()
}

type bodyView struct {
	b *requestBody
	x *exchange

	// Both are guarded by b.mu.
	closed bool // net/http has closed the view
	fate   fate
}

type fate uint8

const (
	undecided fate = iota
	kept
	revoked
)

// Read reads the body, but leaves it alone for another attempt if this one was
// given a connection that is no good.
func (v *bodyView) Read(p []byte) (int, error) {
	if v.x.refused() {
		return 0, errRevoked
	}
	v.b.mu.Lock()
	switch {
	case v.fate == revoked:
		v.b.mu.Unlock()
		return 0, errRevoked
	case v.closed || v.b.closed:
		v.b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	v.b.touched = true
	v.b.mu.Unlock()
	n, err := v.b.rc.Read(p)
	if err != nil && err != io.EOF {
		v.b.mu.Lock()
		v.b.err = err
		v.b.mu.Unlock()
	}
	return n, err
}

func (v *bodyView) Close() error {
	v.b.mu.Lock()
	v.closed = true
	end := v.fate == kept
	v.b.mu.Unlock()
	if end {
		return v.b.close()
	}
	return nil
}

func (v *bodyView) over(keep bool) {
	v.b.mu.Lock()
	v.fate = revoked
	if keep {
		v.fate = kept
	}
	end := keep && v.closed
	v.b.mu.Unlock()
	if end {
		v.b.close()
	}
}
