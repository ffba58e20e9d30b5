package store

import (
	"sync/atomic"
	"unsafe"
)

// Response is one stored response. Its exported fields are set before it is
// put and never after; readers share it without a lock. It holds the store's
// own bookkeeping too, so it is always used through a pointer, and can be put
// once.
//
// A string or slice that is part of a larger allocation keeps all of that
// alive while the store counts only what it sees: copy such things first.
type Response struct {
	// Variant is the secondary key: the request fields that Vary nominates,
	// normalised by the caller. Empty when there is no Vary.
	Variant string

	// Head is the response's fields as they are sent, "Name: value\r\n" each,
	// without those that are made per request.
	Head string

	Body Body

	// Meta is what the caller decides by, and MetaBytes its allocated size.
	Meta      any
	MetaBytes int

	// Tags are what a purge by tag looks for. Each must be an allocation of its
	// own. Put sorts them, drops doubles and, where another stored response has
	// the same tag, takes its string: in another array, so a caller may share one.
	Tags []string

	packed bool    // Head is part of Body's allocation
	where  queueID // guarded by the partition's mu

	taken atomic.Bool   // put once already
	freq  atomic.Uint32 // uses, up to maxFreq; written without a lock
	marks uint32        // one bit for each of Tags, by hash (tagBit); 0: not known; set by put
	seen  atomic.Uint64 // the newest purge that it was compared with: see Epochs

	// solo is the list of a key that holds this response alone. Standing here
	// it saves an allocation per key, and a cache miss per hit: freq is next to
	// it. It is never written after put.
	solo list
	self [1]*Response

	// The rest belongs to the partition that holds it, and is guarded by its mu.
	cost       int64 // set by put, before the lock
	entry      *entry
	prev, next *Response // neighbours in the queue
	links      *tagLink  // the first of as many as there are Tags; nil: not in the index of tags
}

// list is the responses of one key, the newest first; immutable.
type list struct{ rs []*Response }

// With returns a copy of r, not yet stored, that carries other decision data:
// how a soft purge marks a response. It shares head, body and tags, and was
// compared with the same purges.
func (r *Response) With(meta any, metaBytes int) *Response {
	c := &Response{
		Variant: r.Variant, Head: r.Head, Body: r.Body, Tags: r.Tags,
		Meta: meta, MetaBytes: metaBytes, packed: r.packed,
	}
	c.seen.Store(r.seen.Load())
	return c
}

// compactBytes is up to where Compact moves head and body together. Above, the
// one header it saves is no longer worth the copy.
const compactBytes = 32 << 10

// Compact makes r, not yet stored, take as little memory as it can: a small
// head and body move into one allocation, of which the store then counts the
// real size; of a larger body the chunks that are mostly slack are copied to
// their length. Slices taken from the old Body stay as they were.
func (r *Response) Compact() {
	if n := int64(len(r.Head)) + r.Body.length; n > 0 && n <= compactBytes {
		buf := make([]byte, 0, n)
		buf = append(buf, r.Head...)
		for c := range r.Body.Section(0, r.Body.length) {
			buf = append(buf, c...)
		}
		h := len(r.Head)
		if h > 0 {
			// The bytes are written above and never again: the condition under
			// which unsafe.String is sound.
			r.Head = unsafe.String(&buf[0], h)
		}
		r.Body = Body{length: n - int64(h), alloc: allocBytes(n)}
		if r.Body.length > 0 {
			r.Body.first = buf[h:n:n]
		}
		r.packed = true
		return
	}
	r.Body = r.Body.trimmed()
}

// responseBytes is the allocated size of a Response itself.
var responseBytes = allocBytes(int64(unsafe.Sizeof(Response{})))

// bytes is what r costs, its key and indexes apart.
func (r *Response) bytes() int64 {
	n := responseBytes + r.Body.alloc + allocBytes(int64(len(r.Variant))) + max(int64(r.MetaBytes), 0)
	if !r.packed {
		n += allocBytes(int64(len(r.Head)))
	}
	n += allocPointerBytes(int64(cap(r.Tags)) * int64(unsafe.Sizeof("")))
	if r.links != nil {
		return n + allocPointerBytes(int64(len(r.Tags))*tagLinkBytes)
	}
	for _, t := range r.Tags {
		n += allocBytes(int64(len(t)))
	}
	return n
}
