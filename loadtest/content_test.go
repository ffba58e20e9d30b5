package loadtest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// Any part of a body is that part of the whole.
func TestContent_partsAreThoseOfTheWhole(t *testing.T) {
	const size = 5000
	c := contentOf("/k/5000/1", size)
	whole := make([]byte, size)
	c.fill(whole, 0)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		off := rng.IntN(size)
		part := make([]byte, rng.IntN(size-off+1))
		c.fill(part, int64(off))
		if !bytes.Equal(part, whole[off:off+len(part)]) {
			t.Fatalf("%d bytes at %d differ", len(part), off)
		}
	}
	if err := iotest.TestReader(c.reader(), whole); err != nil {
		t.Error(err)
	}
	other := make([]byte, size)
	contentOf("/k/5000/2", size).fill(other, 0)
	if bytes.Equal(whole[:64], other[:64]) {
		t.Error("two paths have one body")
	}
}

func TestContent_checkFindsEveryFault(t *testing.T) {
	const size = 3000
	c := contentOf("/k/3000/9", size)
	right, _ := io.ReadAll(c.reader())
	for _, tc := range []struct {
		name string
		body io.Reader
		want string // "": right
	}{
		{"right", bytes.NewReader(right), ""},
		{"right, in single bytes", iotest.OneByteReader(bytes.NewReader(right)), ""},
		{"right, with the end in the last read", iotest.DataErrReader(bytes.NewReader(right)), ""},
		{"short", bytes.NewReader(right[:size-1]), "ends after 2999"},
		{"empty", strings.NewReader(""), "ends after 0"},
		{"long", bytes.NewReader(append(right[:size:size], 0)), "longer"},
		{"one bit", bytes.NewReader(flip(right, 1234)), "byte 1234"},
		{"last bit", bytes.NewReader(flip(right, size-1)), "byte 2999"},
		{"of another path", contentOf("/k/3000/8", size).reader(), "byte"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := c.check(tc.body, make([]byte, 512))
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, errBody) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a wrong body with %q", err, tc.want)
			}
		})
	}
	broken := io.MultiReader(bytes.NewReader(right[:10]), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := c.check(broken, make([]byte, 512)); errors.Is(err, errBody) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a connection that broke: %v, want its error", err)
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x10
	return b
}

func FuzzParseKeyPath(f *testing.F) {
	for _, s := range []string{KeyPath(0, 0), KeyPath(1<<63, MaxBodyBytes), "/k/", "/k/01/1", "/k/-1/1", "/k/1/+1", "/k/99999999999/1", AbsentPath(3)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		n, size, ok := parseKeyPath(path)
		if ok && (KeyPath(n, size) != path || size < 0 || size > MaxBodyBytes) {
			t.Errorf("%q: %d, %d", path, n, size)
		}
	})
}

func BenchmarkContentCheck(b *testing.B) {
	c := contentOf("/k/65536/9", 64<<10)
	body, _ := io.ReadAll(c.reader())
	buf := make([]byte, 32<<10)
	b.SetBytes(c.size)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.check(bytes.NewReader(body), buf); err != nil {
			b.Fatal(err)
		}
	}
}
