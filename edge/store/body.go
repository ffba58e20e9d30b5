package store

import (
	"errors"
	"io"
	"iter"
	"unsafe"
)

// Body is the content of a stored response: immutable bytes in chunks. It is a
// small value; copies share the chunks. The zero Body is empty.
//
// Nothing outside this file knows how the bytes are kept, so that they may
// move off the heap without a change to callers.
type Body struct {
	// The first chunk stands here, so that a body of one chunk, as most are,
	// needs no allocation besides it.
	first  []byte
	rest   [][]byte
	length int64
	alloc  int64 // bytes of memory that are kept alive
}

// NewBody adopts the chunks and the slice that holds them: the caller must not
// write to either afterwards. Empty chunks are left out.
//
// Each chunk counts with its capacity as the allocator rounds it, so a chunk
// should begin where its allocation begins.
func NewBody(chunks [][]byte) Body {
	var b Body
	kept := chunks[:0]
	for _, c := range chunks {
		if len(c) > 0 {
			kept = append(kept, c)
		}
	}
	clear(chunks[len(kept):])
	if len(kept) == 0 {
		return b
	}
	b.first = kept[0]
	if len(kept) > 1 {
		b.rest = kept[1:]
		b.alloc = allocPointerBytes(int64(cap(chunks)) * chunkHeaderBytes)
	}
	for _, c := range kept {
		b.length += int64(len(c))
		b.alloc += allocBytes(int64(cap(c)))
	}
	return b
}

const chunkHeaderBytes = int64(unsafe.Sizeof([]byte(nil)))

// Len returns the number of bytes.
func (b Body) Len() int64 { return b.length }

// Slices appends the chunks to dst, as for [net.Buffers], and returns it. The
// chunks are shared: read only.
func (b Body) Slices(dst [][]byte) [][]byte {
	if b.length == 0 {
		return dst
	}
	return append(append(dst, b.first), b.rest...)
}

// Section yields up to n bytes from off on, without copying. What lies outside
// the body is left out.
func (b Body) Section(off, n int64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		off, n := off, n
		if off < 0 {
			off, n = 0, n+off
		}
		for i := -1; i < len(b.rest) && n > 0; i++ {
			c := b.first
			if i >= 0 {
				c = b.rest[i]
			}
			if off >= int64(len(c)) {
				off -= int64(len(c))
				continue
			}
			c = c[off:]
			off = 0
			if int64(len(c)) > n {
				c = c[:n]
			}
			n -= int64(len(c))
			if !yield(c) {
				return
			}
		}
	}
}

// WriteTo writes the body to w chunk by chunk (io.WriterTo).
func (b Body) WriteTo(w io.Writer) (int64, error) {
	var n int64
	for c := range b.Section(0, b.length) {
		m, err := w.Write(c)
		n += int64(m)
		if err == nil && m < len(c) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

var errNegativeOffset = errors.New("store: negative offset into a body")

// ReadAt copies bytes from off on (io.ReaderAt). It finds the chunk by a walk,
// which at 64 KiB a chunk is 1000 steps for 64 MiB.
func (b Body) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegativeOffset
	}
	n := 0
	for c := range b.Section(off, int64(len(p))) {
		n += copy(p[n:], c)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// trimmed returns b with each chunk copied whose memory is over an eighth slack.
func (b Body) trimmed() Body {
	slack := func(c []byte) bool {
		return allocBytes(int64(cap(c)))-allocBytes(int64(len(c))) > int64(cap(c))/8
	}
	trim := slack(b.first)
	for _, c := range b.rest {
		trim = trim || slack(c)
	}
	if !trim {
		return b
	}
	chunks := b.Slices(make([][]byte, 0, 1+len(b.rest)))
	for i, c := range chunks {
		if slack(c) {
			chunks[i] = append(make([]byte, 0, len(c)), c...)
		}
	}
	return NewBody(chunks)
}
