package edge

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	firstChunkBytes = 4 << 10   // when the length is unknown
	maxChunkBytes   = 256 << 10 // one read's target, and the window of a body that is not kept
	windowBytes     = 256 << 10

	// stallTimeout is how long one reader may hold back the others of a body
	// that is not kept whole. Alone it may be as slow as its own connection's
	// deadlines allow.
	stallTimeout = 5 * time.Second
)

const (
	manyReaders  = 16
	wakePause    = 20 * time.Microsecond
	maxWakePause = 20 * time.Millisecond
	enoughNews   = 256 << 10
)

var (
	errTooSlow   = errors.New("reader fell behind the others of a response too large to keep")
	errAbandoned = errors.New("nobody waits for this response any more")
)

// budget is what a body reserves its memory from; store.Budget is one.
type budget interface {
	Reserve(n int64) bool
	Release(n int64)
}

// body is the body of one response on its way: one writer appends, any number
// of readers stream from it, each at its own position, while it grows.
//
// It begins whole: everything is kept, so that a reader may join at the start
// and the bytes can be stored. When it passes its limit, or the budget has no
// memory for it, it turns into a window: what every reader has passed is
// dropped, and the writer waits for the slowest one, so that memory stays
// below windowBytes and what had been kept at the turn.
//
// Chunks are append-only: the bytes handed to a reader never change, and may
// outlive the body.
//
// All methods are safe for concurrent use; Write and Close* belong to one
// writer.
type body struct {
	mu     sync.Mutex
	change chan struct{} // closed and replaced whenever a reader may go on
	room   chan struct{} // one token whenever the writer may go on
	chunks [][]byte
	base   int64 // offset of chunks[0] in the body
	end    int64 // bytes appended so far
	closed bool
	err    error // why it ended early; nil when complete

	whole    bool  // everything since offset 0 is kept
	limit    int64 // largest size that is kept whole
	hint     int64 // declared length, -1 unknown
	budget   budget
	reserved int64
	readers  map[*bodyReader]struct{}
	joined   bool // there has been a reader
	deserted bool // nobody waits for it: worth no more than to be kept whole

	unseen int64     // bytes since the readers were last woken
	woken  time.Time // when that was
	waking bool      // a timer will
}

// newBody makes a body that is kept whole up to limit bytes; limit 0 makes a
// window at once. hint is the declared length, -1 when unknown.
func newBody(limit, hint int64, b budget) *body {
	return &body{
		change: make(chan struct{}), room: make(chan struct{}, 1),
		whole: limit > 0 && hint <= limit, limit: limit, hint: hint, budget: b,
		readers: map[*bodyReader]struct{}{},
	}
}

// wakeLocked lets every reader look again.
func (b *body) wakeLocked() {
	b.unseen, b.woken, b.waking = 0, time.Now(), false
	close(b.change)
	b.change = make(chan struct{})
}

// space returns room to read the next bytes into. It waits while the window
// is full, until ctx ends.
func (b *body) space(ctx context.Context) ([]byte, error) {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		b.mu.Lock()
		if !b.whole {
			if b.deserted {
				b.mu.Unlock()
				return nil, errAbandoned
			}
			b.trimLocked()
			if (len(b.readers) > 0 || !b.joined) && b.end-b.base >= windowBytes {
				held := b.base
				b.mu.Unlock()
				if timer == nil {
					timer = time.NewTimer(stallTimeout)
				}
				select {
				case <-b.room:
				case <-timer.C:
					b.cutSlowest(held)
					timer.Reset(stallTimeout)
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
				continue
			}
		}
		buf, ok := b.spaceLocked()
		b.mu.Unlock()
		if ok {
			return buf, nil
		}
	}
}

// spaceLocked returns the free tail of the last chunk, or that of a new one;
// not ok when the body has just turned into a window.
func (b *body) spaceLocked() ([]byte, bool) {
	if n := len(b.chunks); n > 0 {
		if c := b.chunks[n-1]; len(c) < cap(c) {
			return c[len(c):cap(c)], true
		}
	}
	if b.hint >= 0 && b.end >= b.hint {
		// Only the end is still to be read: no memory for that.
		b.chunks = append(b.chunks, make([]byte, 0, 512))
		return b.chunks[len(b.chunks)-1][:512], true
	}
	size := b.nextChunkLocked()
	if b.whole {
		if b.end >= b.limit || !b.budget.Reserve(size) {
			b.turnLocked()
			return nil, false
		}
		b.reserved += size
	}
	c := make([]byte, 0, size)
	b.chunks = append(b.chunks, c)
	return c[:size], true
}

func (b *body) nextChunkLocked() int64 {
	most := int64(maxChunkBytes)
	if !b.whole {
		most = windowBytes / 4
	}
	if left := b.hint - b.end; b.hint >= 0 && left > 0 {
		return min(left, most)
	}
	return min(max(b.end, firstChunkBytes), most)
}

// turnLocked makes the body a window: it will not be stored.
func (b *body) turnLocked() {
	if !b.whole {
		return
	}
	b.whole = false
	b.trimLocked()
}

// trimLocked drops the chunks that every reader has passed.
func (b *body) trimLocked() {
	if b.reserved > 0 {
		b.budget.Release(b.reserved)
		b.reserved = 0
	}
	if !b.joined {
		return // whoever this is for is still on his way
	}
	low := b.end
	for r := range b.readers {
		low = min(low, r.pos)
	}
	for len(b.chunks) > 0 && b.base+int64(len(b.chunks[0])) <= low {
		if c := b.chunks[0]; len(b.chunks) == 1 && len(c) < cap(c) {
			break // the writer still fills it
		}
		b.base += int64(len(b.chunks[0]))
		b.chunks[0] = nil
		b.chunks = b.chunks[1:]
	}
}

// cutSlowest ends the readers that have not moved since the writer began to
// wait at offset held, when others are ahead of them.
func (b *body) cutSlowest(held int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := false
	for r := range b.readers {
		ahead = ahead || r.pos >= b.end
	}
	if !ahead || b.base != held {
		return
	}
	for r := range b.readers {
		if r.pos < b.end && r.pos < b.base+windowBytes/2 {
			r.err = errTooSlow
			delete(b.readers, r)
		}
	}
	b.trimLocked()
	b.wakeLocked()
}

// wrote adds n bytes that were read into what space returned.
func (b *body) wrote(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	i := len(b.chunks) - 1
	b.chunks[i] = b.chunks[i][:len(b.chunks[i])+n]
	b.end += int64(n)
	b.newsLocked(int64(n))
	b.mu.Unlock()
}

// newsLocked wakes the readers for n more bytes. Many readers are not woken
// for every few of them: waking costs some microseconds each, so that a
// thousand of them would keep a core busy with small writes. They wait
// wakePause each at most, all together for no longer than maxWakePause.
func (b *body) newsLocked(n int64) {
	b.unseen += n
	pause := min(time.Duration(len(b.readers))*wakePause, maxWakePause)
	if len(b.readers) < manyReaders || b.end == n || b.unseen >= enoughNews || time.Since(b.woken) >= pause {
		b.wakeLocked()
		return
	}
	if !b.waking {
		b.waking = true
		time.AfterFunc(pause, func() {
			b.mu.Lock()
			b.wakeLocked()
			b.mu.Unlock()
		})
	}
}

// close ends the body: complete when err is nil.
func (b *body) close(err error) {
	b.mu.Lock()
	if !b.closed {
		b.closed, b.err = true, err
		b.wakeLocked()
	}
	b.mu.Unlock()
}

// release gives the reserved memory back; the bytes stay with whoever has
// them.
func (b *body) release() {
	b.mu.Lock()
	if b.reserved > 0 {
		b.budget.Release(b.reserved)
		b.reserved = 0
	}
	b.mu.Unlock()
}

// keep returns the whole body, when everything is kept from the first byte:
// what has been written, and pending bytes that stand in the last chunk but
// are not shown to the readers yet.
func (b *body) keep(pending int) (chunks [][]byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return nil, false
	}
	chunks = slices.Clone(b.chunks)
	if i := len(chunks) - 1; i >= 0 {
		c := chunks[i][:len(chunks[i])+pending]
		if cap(c)-len(c) > len(c)/8 {
			c = append(make([]byte, 0, len(c)), c...) // not the slack with it
		}
		chunks[i] = c
	}
	return chunks, true
}

// desert says that nobody waits for the body, and reports whether it is worth
// finishing for the store. Then it ends when it can't be kept whole.
func (b *body) desert() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deserted = b.whole && b.hint >= 0 && b.hint-b.end <= finishBytes
	return b.deserted
}

// expect takes desert back, and reports whether it was in time.
func (b *body) expect() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deserted = false
	return b.whole && b.err == nil
}

// complete reports whether the body has ended, and well.
func (b *body) complete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed && b.err == nil
}

// copyFrom fills the body from r until it ends. Before any reader can know
// that the body is complete, done is called, once, with the number of bytes
// that are still pending: so that who has read a whole response finds it
// stored.
func (b *body) copyFrom(ctx context.Context, r io.Reader, done func(pending int, err error)) {
	for {
		buf, err := b.space(ctx)
		if err != nil {
			done(0, err)
			b.close(err)
			return
		}
		n, err := r.Read(buf)
		switch {
		case err == io.EOF || err == nil && n > 0 && b.endsWith(n):
			done(n, nil)
			b.wrote(n)
			b.close(nil)
			return
		case err != nil:
			b.wrote(n)
			done(0, err)
			b.close(err)
			return
		}
		b.wrote(n)
	}
}

// endsWith reports whether n more bytes are the declared rest.
func (b *body) endsWith(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hint >= 0 && b.end+int64(n) == b.hint
}

// bodyReader is one reader's place in a body. One goroutine uses it.
type bodyReader struct {
	b   *body
	pos int64
	err error
}

// reader joins the body at its start; not ok when that is gone.
func (b *body) reader() (*bodyReader, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.base > 0 {
		return nil, false
	}
	r := &bodyReader{b: b}
	b.joined = true
	b.readers[r] = struct{}{}
	return r, true
}

// next returns the bytes at the reader's place and moves past them. It waits
// for more, until ctx ends; io.EOF says that the body is complete. more is
// false when the writer has nothing further yet: a good moment to flush.
func (r *bodyReader) next(ctx context.Context) (p []byte, more bool, err error) {
	b := r.b
	for {
		b.mu.Lock()
		if r.err != nil {
			b.mu.Unlock()
			return nil, false, r.err
		}
		if r.pos < b.end {
			off := b.base
			for _, c := range b.chunks {
				if r.pos < off+int64(len(c)) {
					p = c[r.pos-off:]
					break
				}
				off += int64(len(c))
			}
			r.pos += int64(len(p))
			more = r.pos < b.end
			if !b.whole && !b.closed {
				b.trimLocked()
				select {
				case b.room <- struct{}{}:
				default:
				}
			}
			b.mu.Unlock()
			return p, more, nil
		}
		if b.closed {
			err := b.err
			b.mu.Unlock()
			if err == nil {
				err = io.EOF
			}
			return nil, false, err
		}
		change := b.change
		b.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// ready reports whether next would return at once.
func (r *bodyReader) ready() bool {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.pos < r.b.end || r.b.closed || r.err != nil
}

// leave takes the reader off the body.
func (r *bodyReader) leave() {
	b := r.b
	b.mu.Lock()
	delete(b.readers, r)
	if !b.whole {
		b.trimLocked()
		select {
		case b.room <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
}
