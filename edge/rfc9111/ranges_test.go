package rfc9111

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Rule 26: ranges of a complete response (RFC 9110 §14.1.2, §14.2).
func TestParseRanges(t *testing.T) {
	type r = []Range
	for _, c := range []struct {
		name        string
		in          string
		size        int64
		want        []Range
		satisfiable bool
		ok          bool
	}{
		{"first-last", "bytes=2-4", 10, r{{2, 3}}, true, true},
		{"one byte", "bytes=0-0", 10, r{{0, 1}}, true, true},
		{"first-", "bytes=5-", 10, r{{5, 5}}, true, true},
		{"suffix", "bytes=-3", 10, r{{7, 3}}, true, true},
		{"suffix longer than all", "bytes=-30", 10, r{{0, 10}}, true, true},
		{"last beyond the end", "bytes=8-99", 10, r{{8, 2}}, true, true},
		{"all", "bytes=0-", 10, r{{0, 10}}, true, true},
		{"beyond the end", "bytes=10-", 10, nil, false, true},
		{"beyond the end, closed", "bytes=10-20", 10, nil, false, true},
		{"suffix of nothing", "bytes=-0", 10, nil, false, true},
		{"of nothing", "bytes=0-", 0, nil, false, true},
		{"suffix where there is nothing", "bytes=-5", 0, nil, false, true},
		{"huge numbers", "bytes=5-99999999999999999999999999", 10, r{{5, 5}}, true, true},
		{"huge first", "bytes=99999999999999999999999999-", 10, nil, false, true},
		{"huge suffix", "bytes=-99999999999999999999999999", 10, r{{0, 10}}, true, true},
		{"largest size", "bytes=-1", math.MaxInt64, r{{math.MaxInt64 - 1, 1}}, true, true},
		{"unit in any case", "BYTES=0-0", 10, r{{0, 1}}, true, true},

		{"several", "bytes=0-1,4-5,8-", 10, r{{0, 2}, {4, 2}, {8, 2}}, true, true},
		{"several with space and empty members", "bytes= 0-1 ,, 4-5 ,", 10, r{{0, 2}, {4, 2}}, true, true},
		{"order of the request", "bytes=-1,0-0", 10, r{{9, 1}, {0, 1}}, true, true},
		{"some beyond the end", "bytes=0-1,10-20", 10, r{{0, 2}}, true, true},
		{"all beyond the end", "bytes=10-11,12-", 10, nil, false, true},
		{"overlapping are one", "bytes=0-5,3-8", 10, r{{0, 9}}, true, true},
		{"the same twice", "bytes=0-5,0-5", 10, r{{0, 6}}, true, true},
		{"one within another", "bytes=2-3,0-", 10, r{{0, 10}}, true, true},
		{"a bridge makes one of two", "bytes=0-1,4-5,1-4", 10, r{{0, 6}}, true, true},
		{"one over all", "bytes=8-9,0-0,4-4,0-", 10, r{{0, 10}}, true, true},
		{"neighbours stay", "bytes=0-1,2-3", 10, r{{0, 2}, {2, 2}}, true, true},
		{"neighbours stay, reversed", "bytes=2-3,0-1", 10, r{{2, 2}, {0, 2}}, true, true},

		{"another unit", "lines=0-1", 10, nil, false, false},
		{"no unit", "0-1", 10, nil, false, false},
		{"nothing", "", 10, nil, false, false},
		{"no ranges", "bytes=", 10, nil, false, false},
		{"only commas", "bytes=,,", 10, nil, false, false},
		{"last before first", "bytes=4-2", 10, nil, false, false},
		{"one bad spoils all", "bytes=0-1,4-2", 10, nil, false, false},
		{"no dash", "bytes=4", 10, nil, false, false},
		{"only a dash", "bytes=-", 10, nil, false, false},
		{"two dashes", "bytes=--5", 10, nil, false, false},
		{"dash behind", "bytes=5--", 10, nil, false, false},
		{"letters", "bytes=a-b", 10, nil, false, false},
		{"space within", "bytes=1 - 2", 10, nil, false, false},
		{"space before the equals sign", "bytes =1-2", 10, nil, false, false},
		{"sign", "bytes=+1-2", 10, nil, false, false},
		{"unknown size", "bytes=0-1", -1, nil, false, false},
		{"many", "bytes=" + strings.Repeat("0-0,", maxRanges), 10, r{{0, 1}}, true, true},
		{"too many", "bytes=" + strings.Repeat("0-0,", maxRanges+1), 10, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, satisfiable, ok := ParseRanges(c.in, c.size)
			if !slices.Equal(got, c.want) || satisfiable != c.satisfiable || ok != c.ok {
				t.Errorf("ParseRanges(%q, %d) = %v, %v, %v; want %v, %v, %v", c.in, c.size, got, satisfiable, ok, c.want, c.satisfiable, c.ok)
			}
		})
	}
}

// Rule 26: Content-Range (RFC 9110 §14.4, §15.5.17).
func TestContentRange(t *testing.T) {
	for _, c := range []struct {
		r    Range
		size int64
		want string
	}{
		{Range{0, 5}, 10, "bytes 0-4/10"},
		{Range{9, 1}, 10, "bytes 9-9/10"},
		{Range{2, 3}, -1, "bytes 2-4/*"},
	} {
		if got := c.r.ContentRange(c.size); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if r, size, ok := ParseContentRange(c.want); r != c.r || size != c.size || !ok {
			t.Errorf("%q = %v, %d, %v", c.want, r, size, ok)
		}
	}
	if got := UnsatisfiedRange(10); got != "bytes */10" {
		t.Error(got)
	}
	for _, in := range []string{
		"", "bytes", "bytes ", "bytes 5", "bytes 0-5", "bytes */10", "bytes 4-2/10", "bytes 0-10/10", "bytes 0-4", "bytes 0-4/", "bytes -4/10", "bytes 0-/10", "bytes 0-4/x",
		"bytes=0-4/10", "lines 0-4/10", "bytes 0-4/10 ", "bytes  0-4/10", "bytes 0-4/-1", "bytes 0-9223372036854775807/*", "bytes 0-4/**",
		"bytes 0-99999999999999999999/99999999999999999999",
	} {
		if r, size, ok := ParseContentRange(in); ok {
			t.Errorf("%q = %v, %d; want it refused", in, r, size)
		}
	}
}

// Rule 26: If-Range counts only with a strong validator (RFC 9110 §13.1.5).
func TestIfRangeMatches(t *testing.T) {
	lm := "Last-Modified: " + at(-time.Hour)
	date := "Date: " + at(0)
	for _, c := range []struct {
		name   string
		req    []string
		stored []string
		want   bool
	}{
		{"none", nil, nil, true},
		{"strong tag", []string{`If-Range: "a"`}, []string{`ETag: "a"`}, true},
		{"other tag", []string{`If-Range: "b"`}, []string{`ETag: "a"`}, false},
		{"weak tag", []string{`If-Range: W/"a"`}, []string{`ETag: W/"a"`}, false},
		{"weak for a strong one", []string{`If-Range: W/"a"`}, []string{`ETag: "a"`}, false},
		{"strong for a weak one", []string{`If-Range: "a"`}, []string{`ETag: W/"a"`}, false},
		{"tag without quotes", []string{"If-Range: a"}, []string{"ETag: a"}, false},
		{"list", []string{`If-Range: "a", "b"`}, []string{`ETag: "a"`}, false},
		{"twice", []string{`If-Range: "a"`, `If-Range: "a"`}, []string{`ETag: "a"`}, false},
		{"star", []string{"If-Range: *"}, []string{`ETag: "a"`}, false},
		{"empty", []string{"If-Range:"}, nil, false},
		{"date", []string{"If-Range: " + at(-time.Hour)}, []string{lm, date}, true},
		{"later date", []string{"If-Range: " + at(0)}, []string{lm, date}, false},
		{"earlier date", []string{"If-Range: " + at(-2*time.Hour)}, []string{lm, date}, false},
		{"date that isn't strong (RFC 9110 §8.8.2.2)", []string{"If-Range: " + at(0)}, []string{"Last-Modified: " + at(0), date}, false},
		{"date that a second makes strong", []string{"If-Range: " + at(-time.Second)}, []string{"Last-Modified: " + at(-time.Second), date}, true},
		{"date without Date", []string{"If-Range: " + at(-time.Hour)}, []string{lm}, false},
		{"date without Last-Modified", []string{"If-Range: " + at(0)}, []string{date}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := got(200, c.stored...)
			s := NewStored(x, Policy{})
			if got := IfRangeMatches(head(c.req...), x.Header, &s); got != c.want {
				t.Errorf("IfRangeMatches = %v, want %v", got, c.want)
			}
		})
	}
}

// Rule 27: which parts may be put together (§3.4).
func TestCombinesPartial(t *testing.T) {
	lm, date := "Last-Modified: "+at(-time.Hour), "Date: "+at(0)
	part, rest := "Content-Range: bytes 0-4/10", "Content-Range: bytes 5-9/10"
	for _, c := range []struct {
		name string
		a, b http.Header
		want bool
	}{
		{"same strong tag", head(`ETag: "a"`, part), head(`ETag: "a"`, rest), true},
		{"other tag", head(`ETag: "a"`, part), head(`ETag: "b"`, rest), false},
		{"weak tag", head(`ETag: W/"a"`, part), head(`ETag: W/"a"`, rest), false},
		{"weak tag, same date", head(`ETag: W/"a"`, lm, date, part), head(`ETag: W/"a"`, lm, date, rest), false},
		{"tag on one side", head(`ETag: "a"`, lm, date, part), head(lm, date, rest), false},
		{"strong date", head(lm, date, part), head(lm, date, rest), true},
		{"other date", head(lm, date, part), head("Last-Modified: "+at(-time.Minute), date, rest), false},
		{"weak date", head("Last-Modified: "+at(0), date), head("Last-Modified: "+at(0), date), false},
		{"no validator", head(part), head(rest), false},
		{"other size", head(`ETag: "a"`, part), head(`ETag: "a"`, "Content-Range: bytes 5-9/11"), false},
		{"size unknown", head(`ETag: "a"`, part), head(`ETag: "a"`, "Content-Range: bytes 5-9/*"), true},
		{"with what broke off", head(`ETag: "a"`), head(`ETag: "a"`, rest), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := CombinesPartial(c.a, c.b); got != c.want {
				t.Errorf("CombinesPartial = %v, want %v", got, c.want)
			}
		})
	}
}

// Rule 27: If-Range names a strong validator or none (RFC 9110 §13.1.5).
func TestStrongValidator(t *testing.T) {
	lm, date := "Last-Modified: "+at(-time.Hour), "Date: "+at(0)
	for _, c := range []struct {
		name string
		h    http.Header
		want string
	}{
		{"strong tag", head(`ETag: "a"`, lm, date), `"a"`},
		{"weak tag", head(`ETag: W/"a"`), ""},
		{"weak tag and a strong date", head(`ETag: W/"a"`, lm, date), ""},
		{"tag without quotes", head("ETag: a", lm, date), ""},
		{"two tags", head(`ETag: "a"`, `ETag: "b"`), ""},
		{"strong date", head(lm, date), at(-time.Hour)},
		{"weak date", head("Last-Modified: "+at(0), date), ""},
		{"date without Date", head(lm), ""},
		{"nothing", head(date), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := StrongValidator(c.h); got != c.want {
				t.Errorf("StrongValidator = %q, want %q", got, c.want)
			}
		})
	}
}

// Rule 27: only what is missing is asked for.
func TestMissing(t *testing.T) {
	type r = []Range
	for _, c := range []struct {
		name string
		have []Range
		want Range
		gaps []Range
		text string
	}{
		{"all", nil, Range{0, 10}, r{{0, 10}}, "bytes=0-9"},
		{"the end", r{{0, 5}}, Range{0, 10}, r{{5, 5}}, "bytes=5-9"},
		{"the beginning", r{{5, 5}}, Range{0, 10}, r{{0, 5}}, "bytes=0-4"},
		{"both", r{{3, 2}}, Range{0, 10}, r{{0, 3}, {5, 5}}, "bytes=0-2,5-9"},
		{"the middle", r{{8, 2}, {0, 2}}, Range{0, 10}, r{{2, 6}}, "bytes=2-7"},
		{"nothing", r{{0, 6}, {5, 5}}, Range{0, 10}, nil, "bytes="},
		{"a part, elsewhere", r{{0, 5}}, Range{7, 2}, r{{7, 2}}, "bytes=7-8"},
		{"a part, overlapping", r{{0, 8}, {20, 5}}, Range{7, 3}, r{{8, 2}}, "bytes=8-9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.have)
			got := Missing(c.have, c.want)
			if !slices.Equal(got, c.gaps) || FormatRanges(got) != c.text {
				t.Errorf("Missing = %v (%s), want %v (%s)", got, FormatRanges(got), c.gaps, c.text)
			}
			if !slices.Equal(before, c.have) {
				t.Error("have changed")
			}
		})
	}
}

// Ranges and gaps beside a set of byte positions.
func TestRanges_model(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	const size = 40
	for i := range 20000 {
		var specs []Range
		var covered [size]bool
		for range rng.IntN(8) {
			start := rng.Int64N(size)
			r := Range{start, 1 + rng.Int64N(size-start)}
			specs = append(specs, r)
			for b := r.Start; b < r.end(); b++ {
				covered[b] = true
			}
		}
		var parsed []Range
		if len(specs) > 0 {
			parsed, _, _ = ParseRanges(FormatRanges(specs), size)
		}
		var found [size]bool
		for _, r := range parsed {
			for b := r.Start; b < r.end(); b++ {
				if found[b] {
					t.Fatalf("seed %d, step %d: byte %d is sent twice for %v: %v", seed, i, b, specs, parsed)
				}
				found[b] = true
			}
		}
		if found != covered {
			t.Fatalf("seed %d, step %d: %v became %v", seed, i, specs, parsed)
		}
		for _, r := range Missing(specs, Range{0, size}) {
			for b := r.Start; b < r.end(); b++ {
				if covered[b] {
					t.Fatalf("seed %d, step %d: byte %d isn't missing from %v", seed, i, b, specs)
				}
				covered[b] = true
			}
		}
		for b := range covered {
			if !covered[b] {
				t.Fatalf("seed %d, step %d: byte %d is missing from %v", seed, i, b, specs)
			}
		}
	}
}

func FuzzParseRanges(f *testing.F) {
	for _, s := range []string{"bytes=0-499", "bytes=-500", "bytes=9500-", "bytes=0-0,-1", "bytes= 0-999, 4500-5499, -1000", "bytes=0-5,3-8,,"} {
		f.Add(s, int64(10000))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		ranges, satisfiable, ok := ParseRanges(s, size)
		if satisfiable != (len(ranges) > 0) || satisfiable && !ok || len(ranges) > maxRanges {
			t.Fatalf("%v, %v, %v", ranges, satisfiable, ok)
		}
		total := int64(0)
		for i, r := range ranges {
			if r.Start < 0 || r.Length <= 0 || r.Length > size-r.Start {
				t.Fatalf("%v of %d bytes", r, size)
			}
			for _, o := range ranges[:i] {
				if r.Start < o.end() && o.Start < r.end() {
					t.Fatalf("%v overlaps %v", r, o)
				}
			}
			total += r.Length
			if got, n, ok := ParseContentRange(r.ContentRange(size)); ok && (got != r || n != size) {
				t.Fatalf("%v of %d is %v of %d", r, size, got, n)
			}
		}
		if total > max(size, 0) {
			t.Fatalf("%d bytes of %d", total, size)
		}
		if got, n, ok := ParseContentRange(s); ok && (got.Start < 0 || got.Length <= 0 || n >= 0 && got.end() > n) {
			t.Fatalf("%q is %v of %d", s, got, n)
		}
	})
}
