package store

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

func randomBody(rnd *rand.Rand) (Body, []byte) {
	var chunks [][]byte
	var whole []byte
	for range rnd.IntN(6) {
		c := []byte(randomText(rnd, rnd.IntN(5)))
		chunks = append(chunks, c)
		whole = append(whole, c...)
	}
	return NewBody(chunks), whole
}

func TestBody_readsLikeItsBytes(t *testing.T) {
	rnd := newRand(t)
	for range 3000 {
		b, whole := randomBody(rnd)
		if b.Len() != int64(len(whole)) {
			t.Fatalf("Len = %d of %q", b.Len(), whole)
		}
		var w bytes.Buffer
		if n, err := b.WriteTo(&w); err != nil || n != b.Len() || !bytes.Equal(w.Bytes(), whole) {
			t.Fatalf("WriteTo = %d, %v, %q; want %q", n, err, w.Bytes(), whole)
		}
		if got := bytes.Join(b.Slices(nil), nil); !bytes.Equal(got, whole) {
			t.Fatalf("Slices = %q, want %q", got, whole)
		}
		for _, c := range b.Slices(nil) {
			if len(c) == 0 {
				t.Fatal("Slices has an empty chunk")
			}
		}
		off, n := rnd.Int64N(14)-2, rnd.Int64N(14)-2
		var got []byte
		for c := range b.Section(off, n) {
			if len(c) == 0 {
				t.Fatal("an empty chunk")
			}
			got = append(got, c...)
		}
		from := min(max(off, 0), b.Len())
		to := min(max(off+n, from), b.Len())
		if !bytes.Equal(got, whole[from:to]) {
			t.Fatalf("Section(%d, %d) of %q = %q", off, n, whole, got)
		}
		if err := iotest.TestReader(io.NewSectionReader(b, 0, b.Len()), whole); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBody_endsEarly(t *testing.T) {
	b := NewBody([][]byte{[]byte("abc"), []byte("def")})
	if _, err := b.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("ReadAt(-1) succeeds")
	}
	if n, err := b.ReadAt(make([]byte, 4), 4); n != 2 || err != io.EOF {
		t.Errorf("ReadAt past the end = %d, %v", n, err)
	}
	for range b.Section(0, 6) {
		break // must not go on to the next chunk
	}
	broken := errors.New("broken")
	if n, err := b.WriteTo(failAfter{n: 1, err: broken}); n != 1 || err != broken {
		t.Errorf("WriteTo = %d, %v", n, err)
	}
	if n, err := b.WriteTo(failAfter{n: 2}); n != 2 || err != io.ErrShortWrite {
		t.Errorf("WriteTo of a short writer = %d, %v", n, err)
	}
}

type failAfter struct {
	n   int
	err error
}

func (f failAfter) Write([]byte) (int, error) { return f.n, f.err }

func TestBody_countsCapacity(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks [][]byte
		want   int64
	}{
		{"empty", [][]byte{make([]byte, 0, 4096)}, 0},
		{"one", [][]byte{make([]byte, 1, 4096)}, 4096},
		{"two and the slice that holds them", [][]byte{make([]byte, 1, 4096), make([]byte, 17)}, 4096 + 24 + 48},
	} {
		t.Run(c.name, func(t *testing.T) {
			if b := NewBody(c.chunks); b.alloc != c.want {
				t.Errorf("counts %d, want %d", b.alloc, c.want)
			}
		})
	}
}

func TestResponse_Compact(t *testing.T) {
	for _, c := range []struct {
		name   string
		head   string
		chunks [][]byte
		want   int64 // allocated bytes of head and body
	}{
		{"nothing", "", nil, 0},
		{"head alone", strings.Repeat("h", 100), nil, 112},
		{"body alone", "", [][]byte{make([]byte, 100, 65536)}, 112},
		{"head and body in one", strings.Repeat("h", 100), [][]byte{make([]byte, 900, 65536), make([]byte, 24)}, 1024},
		{"large stays", strings.Repeat("h", 100), [][]byte{make([]byte, 65536)}, 65536 + 112},
		{"large loses its slack", strings.Repeat("h", 100), [][]byte{make([]byte, 65536), make([]byte, 1000, 65536)}, 65536 + 1024 + 48 + 112},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Response{Head: c.head, Body: NewBody(c.chunks)}
			whole := bytes.Join(r.Body.Slices(nil), nil)
			r.Compact()
			if r.Head != c.head || !bytes.Equal(bytes.Join(r.Body.Slices(nil), nil), whole) || r.Body.Len() != int64(len(whole)) {
				t.Error("the content changed")
			}
			if got := r.bytes() - responseBytes; got != c.want {
				t.Errorf("head and body take %d bytes, want %d", got, c.want)
			}
			// A freshened copy with another head keeps the old head's bytes alive.
			if fresh := (&Response{Head: strings.Repeat("x", 200), Body: r.Body}); fresh.bytes()-responseBytes < 208+r.Body.alloc {
				t.Errorf("a new head beside the shared body counts %d", fresh.bytes()-responseBytes)
			}
			if marked := r.With("purged", 16); marked.bytes() != r.bytes()+16 || marked.Head != c.head {
				t.Errorf("a marked copy counts %d, the response %d", marked.bytes(), r.bytes())
			}
		})
	}
}
