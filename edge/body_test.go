package edge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/edge/store"
)

// chunkReader reads its bytes in random portions.
type chunkReader struct {
	p   []byte
	rng *rand.Rand
	err error // at the end; nil: io.EOF
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(c.p) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		return 0, io.EOF
	}
	n := min(len(p), len(c.p), 1+c.rng.IntN(9000))
	copy(p, c.p[:n])
	c.p = c.p[n:]
	return n, nil
}

func randomBytes(rng *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func ignoreEnd(int, error) {}

// read reads a body to its end.
func read(ctx context.Context, r *bodyReader) ([]byte, error) {
	var got []byte
	for {
		p, _, err := r.next(ctx)
		got = append(got, p...)
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
	}
}

// Every reader that reads to the end has the writer's bytes, whatever the
// sizes, whoever leaves, and whether the body is kept or not.
func TestBody_everyReaderGetsTheBytes(t *testing.T) {
	const rounds = 300
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		want := randomBytes(rng, rng.IntN(1<<uint(4+rng.IntN(17))))
		limit := int64(rng.IntN(2 * (len(want) + 1)))
		hint := int64(-1)
		if rng.IntN(2) == 0 {
			hint = int64(len(want))
		}
		memory := store.NewBudget(int64(rng.IntN(4 * (len(want) + 1))))
		b := newBody(limit, hint, memory)
		ctx := context.Background()
		var wg sync.WaitGroup
		for i := range 1 + rng.IntN(5) {
			r, ok := b.reader()
			if !ok {
				t.Fatalf("seed %d: no place at the start", seed)
			}
			leave := i > 0 && rng.IntN(3) == 0
			wg.Go(func() {
				defer r.leave()
				if leave {
					r.next(ctx)
					return
				}
				got, err := read(ctx, r)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("seed %d: got %d bytes, %v; want %d", seed, len(got), err, len(want))
				}
			})
		}
		b.copyFrom(ctx, &chunkReader{p: want, rng: rng}, func(pending int, err error) {
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if chunks, ok := b.keep(pending); ok {
				if got := bytes.Join(chunks, nil); !bytes.Equal(got, want) {
					t.Errorf("seed %d: kept %d bytes that are not the body", seed, len(got))
				}
			}
		})
		wg.Wait()
		b.release()
		if used := memory.Used(); used != 0 {
			t.Errorf("seed %d: %d bytes are still reserved", seed, used)
		}
		if t.Failed() {
			return
		}
	}
}

func TestBody_keepsWhatFits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name        string
		size        int
		limit, hint int64
		memory      int64
		kept        bool
	}{
		{"below the limit", 100, 1000, -1, 1 << 20, true},
		{"length declared, exactly the limit", 1000, 1000, 1000, 1 << 20, true},
		{"above the limit", 70000, 1000, -1, 1 << 20, false},
		{"declared above the limit", 2000, 1000, 2000, 1 << 20, false},
		{"no memory", 5000, 10000, -1, 4096, false},
		{"not to be kept", 10, 0, -1, 1 << 20, false},
		{"empty", 0, 10, 0, 1 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBody(c.limit, c.hint, store.NewBudget(c.memory))
			called := false
			b.copyFrom(context.Background(), &chunkReader{p: randomBytes(rng, c.size), rng: rng}, func(pending int, err error) {
				called = true
				chunks, ok := b.keep(pending)
				if n := len(bytes.Join(chunks, nil)); err != nil || ok != c.kept || ok && n != c.size {
					t.Errorf("kept %v, %d bytes, %v; want %v, %d", ok, n, err, c.kept, c.size)
				}
			})
			if !called {
				t.Error("nobody was told of the end")
			}
		})
	}
}

// A body that is not kept holds back its writer rather than grow.
func TestBody_windowIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBody(0, -1, store.NewBudget(0))
		r, _ := b.reader()
		go b.copyFrom(context.Background(), &endless{}, ignoreEnd)
		for range 1000 {
			synctest.Wait()
			b.mu.Lock()
			held := b.end - b.base
			b.mu.Unlock()
			if held > windowBytes+64<<10 {
				t.Fatalf("holds %d bytes, window is %d", held, windowBytes)
			}
			if _, _, err := r.next(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		b.mu.Lock()
		passed := b.end
		b.mu.Unlock()
		if passed < 1000*1024 {
			t.Errorf("only %d bytes went through", passed)
		}
		r.leave()
		b.close(errAbandoned)
		// Nobody reads: the writer is not held back, and ends with its context.
	})
}

type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n += len(p); e.n > 512<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

// A response takes memory by what it declares, and else by what has come of it,
// whether it is kept or not: most that are not are small.
func TestBody_chunks(t *testing.T) {
	for _, tt := range []struct {
		name        string
		limit, hint int64
		want        []int // sizes of the chunks that are filled one after the other
	}{
		{"kept, short", 1 << 20, 10, []int{10, 512}},
		{"kept, long", 1 << 20, 300 << 10, []int{256 << 10, 44 << 10, 512}},
		{"kept, of unknown length", 1 << 20, -1, []int{4 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 256 << 10}},
		{"not kept, short", 0, 10, []int{10, 512}},
		{"not kept, long", 0, 100 << 10, []int{64 << 10, 36 << 10, 512}},
		{"not kept, of unknown length", 0, -1, []int{4 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 64 << 10}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBody(tt.limit, tt.hint, store.NewBudget(1<<30))
			ended, cancel := context.WithCancel(t.Context())
			cancel() // nobody makes room
			var got []int
			for range tt.want {
				room, err := b.space(ended)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, len(room))
				b.wrote(len(room))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("chunks of %v, want %v", got, tt.want)
			}
		})
	}
}

// The writer may be far ahead when the first reader comes: it still starts at
// the start. (Seen as a 502 of our own: the writer had dropped what nobody
// read yet.)
func TestBody_waitsForItsFirstReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := randomBytes(rand.New(rand.NewPCG(8, 9)), 3<<20)
		b := newBody(1000, -1, store.NewBudget(1<<20))
		go b.copyFrom(context.Background(), bytes.NewReader(want), ignoreEnd)
		synctest.Wait()
		r, ok := b.reader()
		if !ok {
			t.Fatal("the start is gone")
		}
		if got, err := read(context.Background(), r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	})
}

// One reader that stalls must not hold the others for ever.
func TestBody_cutsWhoStallsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBody(0, -1, store.NewBudget(0))
		stalled, _ := b.reader()
		quick, _ := b.reader()
		want := randomBytes(rand.New(rand.NewPCG(3, 4)), 2<<20)
		go b.copyFrom(context.Background(), bytes.NewReader(want), ignoreEnd)
		began := time.Now()
		got, err := read(context.Background(), quick)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the quick reader got %d bytes, %v", len(got), err)
		}
		if took := time.Since(began); took > 3*stallTimeout {
			t.Errorf("the quick reader was held for %v", took)
		}
		if _, _, err := stalled.next(context.Background()); !errors.Is(err, errTooSlow) {
			t.Errorf("the stalled reader got %v, want %v", err, errTooSlow)
		}
	})
}

func TestBody_readersSeeTheBreak(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	b := newBody(1<<20, -1, store.NewBudget(1<<20))
	r, _ := b.reader()
	want := randomBytes(rng, 50000)
	b.copyFrom(context.Background(), &chunkReader{p: want, rng: rng, err: io.ErrUnexpectedEOF}, func(_ int, err error) {
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the end was told as %v", err)
		}
	})
	got, err := read(context.Background(), r)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func BenchmarkBody(b *testing.B) {
	want := make([]byte, 1<<20)
	for _, readers := range []int{1, 16} {
		b.Run("readers="+itoa(int64(readers)), func(b *testing.B) {
			b.SetBytes(int64(len(want) * readers))
			b.ReportAllocs()
			for b.Loop() {
				bd := newBody(1<<20, 1<<20, store.NewBudget(1<<30))
				var wg sync.WaitGroup
				for range readers {
					r, _ := bd.reader()
					wg.Go(func() { defer r.leave(); read(context.Background(), r) })
				}
				bd.copyFrom(context.Background(), bytes.NewReader(want), ignoreEnd)
				wg.Wait()
				bd.release()
			}
		})
	}
}
