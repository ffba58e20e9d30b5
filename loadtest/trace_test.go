package loadtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// hundred is a cache that stores the first hundred keys for good.
type hundred struct {
	keys   map[uint64]bool
	misses int64
}

func (h *hundred) Ask(key uint64, _ int64) bool {
	if h.keys[key] {
		return true
	}
	h.misses++
	if len(h.keys) < 100 {
		h.keys[key] = true
	}
	return false
}

func (h *hundred) Filter() FilterAccount {
	return FilterAccount{Keys: len(h.keys), Misses: h.misses, FalsePositives: 1}
}

// Requests for keys 1 to n of a trace.
func asksOf(keys ...uint64) (out []logEntry) {
	for _, k := range keys {
		out = append(out, logEntry{key: k, size: 1})
	}
	return out
}

// The textbook sequence: with room for three, LRU has 2 hits and the optimum 5
// (Tanenbaum's, for page replacement, counted by hand).
func TestPolicies(t *testing.T) {
	seq := asksOf(1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)
	if got := lruHits(seq, 3, 0); got != 2 {
		t.Errorf("LRU: %d hits, want 2", got)
	}
	if got := optimalHits(seq, nextUses(seq), 3, 0); got != 5 {
		t.Errorf("optimal: %d hits, want 5", got)
	}
	for _, tc := range []struct {
		room         int64
		lru, optimal int
	}{
		{0, 0, 0},
		{1, 0, 2}, // the optimum need not store what comes: it keeps the 1
		{100, 7, 7},
	} {
		if l, o := lruHits(seq, tc.room, 0), optimalHits(seq, nextUses(seq), tc.room, 0); l != tc.lru || o != tc.optimal {
			t.Errorf("room for %d: LRU %d, optimal %d hits, want %d and %d", tc.room, l, o, tc.lru, tc.optimal)
		}
	}
}

// Nobody beats the optimum when all have one size.
func TestPolicies_optimalIsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var keys []uint64
		for range 500 {
			keys = append(keys, uint64(rng.IntN(1+rng.IntN(100))))
		}
		seq := asksOf(keys...)
		for room := int64(1); room < 60; room += 7 {
			if l, o := lruHits(seq, room, 0), optimalHits(seq, nextUses(seq), room, 0); l > o {
				t.Fatalf("room for %d: LRU has %d hits, the optimum %d", room, l, o)
			}
		}
	}
}

func TestTrace(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "key-%d\n", i%400)
	}
	var out bytes.Buffer
	c := TraceConfig{
		File: writeLog(t, b.String()), Body: SizeRange{1 << 10, 1 << 10}, Sizes: []Bytes{100 << 10, 1 << 20}, Out: &out,
		New: func(int64, int) (Cache, error) { return &hundred{keys: map[uint64]bool{}}, nil },
	}
	r, err := Trace(c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 4000 || r.Keys != 400 || r.Footprint != 400<<10 || len(r.Results) != 2 {
		t.Fatalf("%+v", r)
	}
	// A loop longer than the cache: LRU has nothing, the optimum what fits but one.
	if x := r.Results[0]; x.LRU != 0 || x.Optimal < 0.22 || x.Optimal > 0.23 || x.Store != 0.225 {
		t.Errorf("%+v", x)
	}
	if x := r.Results[1]; x.LRU != 0.9 || x.Optimal != 0.9 {
		t.Errorf("%+v", x)
	}
	for _, want := range []string{"4000 requests for 400 keys, 400 KiB in all", "100 KiB  22.5%   0.0%    22.5%      +22.5 points", "+22.5 points"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	c.Sizes = []Bytes{1}
	if _, err := Trace(c); !errors.Is(err, ErrUsage) {
		t.Errorf("a cache of a byte: %v", err)
	}
	c.File = writeLog(t, `h - - [10/Oct/2025:13:55:36 +0000] "GET /a HTTP/1.1" 404 1`)
	if _, err := Trace(c); !errors.Is(err, ErrUsage) {
		t.Errorf("nothing to store: %v", err)
	}
}
