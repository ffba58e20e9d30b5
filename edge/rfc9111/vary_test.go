package rfc9111

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Rule 15: the fields that Vary names, and the star (§4.1).
func TestNominatedFields(t *testing.T) {
	long := "Vary: " + strings.Repeat("a,", 40)
	var distinct []string
	for i := range maxNominated + 1 {
		distinct = append(distinct, "Vary: X-"+strings.Repeat("a", i+1))
	}
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
		star  bool
	}{
		{"none", nil, nil, false},
		{"empty", []string{"Vary:"}, nil, false},
		{"one", []string{"Vary: accept-ENCODING"}, []string{"Accept-Encoding"}, false},
		{"sorted, each once", []string{"Vary: foo, Bar", "Vary: FOO, baz"}, []string{"Bar", "Baz", "Foo"}, false},
		{"empty members", []string{"Vary: , foo ,,"}, []string{"Foo"}, false},
		{"star", []string{"Vary: *"}, nil, true},
		{"star first", []string{"Vary: *, foo"}, nil, true},
		{"star last", []string{"Vary: foo, *"}, nil, true},
		{"star among empty members", []string{"Vary: , *"}, nil, true},
		{"star on another line", []string{"Vary: foo", "Vary: ", "Vary: *"}, nil, true},
		{"star without space", []string{"Vary: foo,*"}, nil, true},
		{"no field name", []string{"Vary: foo bar"}, nil, true},
		{"quoted", []string{`Vary: "foo"`}, nil, true},
		{"repetition is no number", []string{long}, []string{"A"}, false},
		{"too many", distinct, nil, true},
		{"just enough", distinct[1:], nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, star := NominatedFields(head(c.lines...))
			if star != c.star || c.want != nil && !slices.Equal(names, c.want) {
				t.Errorf("NominatedFields = %q, %v; want %q, %v", names, star, c.want, c.star)
			}
		})
	}
}

// Rule 16: which requests match (§4.1, RFC 9110 §12.5).
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		name string
		vary string
		a, b []string
		want bool
	}{
		{"no fields", "", []string{"Foo: 1"}, []string{"Foo: 2"}, true},
		{"same", "Foo", []string{"Foo: 1"}, []string{"Foo: 1"}, true},
		{"other", "Foo", []string{"Foo: 1"}, []string{"Foo: 2"}, false},
		{"case counts", "Foo", []string{"Foo: a"}, []string{"Foo: A"}, false},
		{"other field", "Foo", []string{"Foo: 1", "Bar: 1"}, []string{"Foo: 1", "Bar: 2"}, true},
		{"both absent", "Foo", nil, nil, true},
		{"absent and there", "Foo", nil, []string{"Foo: 1"}, false},
		{"there and absent", "Foo", []string{"Foo: 1"}, nil, false},
		{"absent and empty", "Foo", nil, []string{"Foo:"}, false},
		{"two fields", "Foo, Bar", []string{"Foo: 1", "Bar: 2"}, []string{"Bar: 2", "Foo: 1"}, true},
		{"two fields, one differs", "Foo, Bar", []string{"Foo: 1", "Bar: 2"}, []string{"Foo: 1", "Bar: 3"}, false},
		{"values don't move between fields", "Foo, Bar", []string{"Foo: 1\nBar=2"}, []string{"Foo: 1", "Bar: 2"}, false},
		{"lines are joined", "Foo", []string{"Foo: 1", "Foo: 2"}, []string{"Foo: 1, 2"}, true},
		{"white space around commas", "Foo", []string{"Foo: 1,2"}, []string{"Foo: 1 ,\t2"}, true},
		{"white space inside", "Foo", []string{"Foo: 1 2"}, []string{"Foo: 12"}, false},
		{"order counts", "Foo", []string{"Foo: 1, 2"}, []string{"Foo: 2, 1"}, false},
		{"quoted commas", "Foo", []string{`Foo: "1,2"`}, []string{`Foo: "1, 2"`}, false},
		{"User-Agent is no list", "User-Agent", []string{"User-Agent: a (b,c)"}, []string{"User-Agent: a (b, c)"}, false},
		{"Cookie is no list", "Cookie", []string{"Cookie: a=1,2"}, []string{"Cookie: a=1, 2"}, false},

		{"codings: order and case", "Accept-Encoding", []string{"Accept-Encoding: gzip, BR"}, []string{"Accept-Encoding: br,gzip"}, true},
		{"codings: lines", "Accept-Encoding", []string{"Accept-Encoding: gzip", "Accept-Encoding: br"}, []string{"Accept-Encoding: br, gzip"}, true},
		{"codings: repetition", "Accept-Encoding", []string{"Accept-Encoding: gzip, gzip"}, []string{"Accept-Encoding: gzip"}, true},
		{"codings: weights", "Accept-Encoding", []string{"Accept-Encoding: gzip;q=1.0, br;q=0.50"}, []string{"Accept-Encoding: br ; Q=0.5, gzip"}, true},
		{"codings: other weights", "Accept-Encoding", []string{"Accept-Encoding: gzip;q=0.5"}, []string{"Accept-Encoding: gzip;q=0.501"}, false},
		{"codings: not wanted", "Accept-Encoding", []string{"Accept-Encoding: gzip;q=0"}, []string{"Accept-Encoding: gzip"}, false},
		{"codings: not wanted is not absent", "Accept-Encoding", []string{"Accept-Encoding: gzip, br;q=0"}, []string{"Accept-Encoding: gzip"}, false},
		{"codings: x-gzip (RFC 9110 §8.4.1.3)", "Accept-Encoding", []string{"Accept-Encoding: x-gzip"}, []string{"Accept-Encoding: gzip"}, true},
		{"codings: subset", "Accept-Encoding", []string{"Accept-Encoding: gzip"}, []string{"Accept-Encoding: gzip, br"}, false},
		{"codings: absent and empty (RFC 9110 §12.5.3)", "Accept-Encoding", nil, []string{"Accept-Encoding:"}, false},
		{"codings: empty, in two ways", "Accept-Encoding", []string{"Accept-Encoding: ,"}, []string{"Accept-Encoding:"}, true},
		{"codings: unreadable ones are compared as text", "Accept-Encoding", []string{"Accept-Encoding: gzip;q=x"}, []string{"Accept-Encoding: gzip"}, false},
		{"codings: unreadable and the same", "Accept-Encoding", []string{"Accept-Encoding: gzip;q=x"}, []string{"Accept-Encoding: gzip;q=x"}, true},

		{"languages: order", "Accept-Language", []string{"Accept-Language: en, de"}, []string{"Accept-Language: de, en"}, true},
		{"languages: case", "Accept-Language", []string{"Accept-Language: en-GB"}, []string{"Accept-Language: En-gb"}, true},
		{"languages: space", "Accept-Language", []string{"Accept-Language: en,de;q=0.8"}, []string{"Accept-Language: en , de ;q=0.800"}, true},
		{"languages: one begins as another", "Accept-Language", []string{"Accept-Language: en-GB, en;q=0.5, e"}, []string{"Accept-Language: e, en;q=0.5, en-GB"}, true},
		{"languages: one begins as another, weights change places", "Accept-Language", []string{"Accept-Language: en-GB, en;q=0.5"}, []string{"Accept-Language: en-GB;q=0.5, en"}, false},
		{"languages: another", "Accept-Language", []string{"Accept-Language: en"}, []string{"Accept-Language: en-GB"}, false},
		{"languages: many are compared as text", "Accept-Language", []string{"Accept-Language: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, []string{"Accept-Language: b,a,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, false},
		{"languages: sixteen that begin alike are a set", "Accept-Language",
			[]string{"Accept-Language: a,aa,aaa,aaaa,aaaaa,b,bb,bbb,bbbb,bbbbb,c,cc,ccc,cccc,ccccc,d"},
			[]string{"Accept-Language: d,ccccc,cccc,ccc,cc,c,bbbbb,bbbb,bbb,bb,b,aaaaa,aaaa,aaa,aa,a"}, true},
		{"languages: sixteen are a set", "Accept-Language", []string{"Accept-Language: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,p"}, []string{"Accept-Language: b,a,c,d,e,f,g,h,i,j,k,l,m,n,o,p"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, star := NominatedFields(http.Header{"Vary": {c.vary}})
			if star {
				t.Fatal("star")
			}
			a, b := http.Header{}, http.Header{}
			for h, lines := range map[*http.Header][]string{&a: c.a, &b: c.b} {
				for _, l := range lines {
					name, value, _ := strings.Cut(l, ":")
					(*h)[name] = append((*h)[name], strings.TrimPrefix(value, " "))
				}
			}
			key := VariantKey(names, a)
			if got := Matches(names, key, b); got != c.want {
				t.Errorf("Matches = %v, want %v: keys %q and %q", got, c.want, key, VariantKey(names, b))
			}
			if !Matches(names, key, a) {
				t.Errorf("doesn't match itself: %q", key)
			}
		})
	}
}

// Other names are another key: variants of one response stand side by side.
func TestVariantKey_namesItsFields(t *testing.T) {
	req := head("Foo: 1")
	keys := map[string]bool{}
	for _, names := range [][]string{{}, {"Foo"}, {"Bar"}, {"Bar", "Foo"}} {
		keys[VariantKey(names, req)] = true
	}
	if len(keys) != 4 {
		t.Errorf("keys %v", keys)
	}
}

func TestVariantKey_noLinesIsAbsent(t *testing.T) {
	names := []string{"Foo"}
	if !Matches(names, VariantKey(names, http.Header{"Foo": {}}), http.Header{}) {
		t.Error("a field without lines differs from an absent one")
	}
}

func TestMatches_allocatesNothing(t *testing.T) {
	names := []string{"Accept-Encoding", "Accept-Language", "User-Agent", "X-Foo"}
	req := head("Accept-Encoding: gzip, deflate, br;q=0.9, zstd", "Accept-Language: en-GB, en;q=0.9, de;q=0.8", "X-Foo: a, b", "User-Agent: "+strings.Repeat("x", 120))
	key := VariantKey(names, req)
	allocates(t, "Matches", func() {
		if !Matches(names, key, req) {
			t.Error("no match")
		}
	})
}

// Rule 16: what the origin is asked with.
func TestNormaliseAcceptEncoding(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string
	}{
		{[]string{"gzip, deflate, br"}, "br, deflate, gzip"},
		{[]string{"BR;q=1.000", "gzip;q=0.8, *;q=0"}, "*;q=0, br, gzip;q=0.8"},
		{[]string{"identity;q=0.05, gzip;q=0.125, x-compress;q=0.10"}, "compress;q=0.1, gzip;q=0.125, identity;q=0.05"},
		{[]string{""}, ""},
		{[]string{"gzip;q=2 , br", "x y"}, "gzip;q=2, br, x y"},
	} {
		if got := NormaliseAcceptEncoding(c.in); got != c.want {
			t.Errorf("NormaliseAcceptEncoding(%q) = %q, want %q", c.in, got, c.want)
		}
		if again := NormaliseAcceptEncoding([]string{c.want}); again != c.want {
			t.Errorf("%q isn't a fixed point: %q", c.want, again)
		}
	}
}

func TestParseWeight(t *testing.T) {
	for in, want := range map[string]int{"0": 0, "1": 1000, "0.": 0, "1.": 1000, "0.5": 500, "0.05": 50, "0.123": 123, "1.000": 1000} {
		if got, ok := parseWeight(in); !ok || got != want {
			t.Errorf("%q = %d, %v", in, got, ok)
		}
	}
	for _, in := range []string{"", "2", "1.001", "0.1234", ".5", "0,5", "00", "-0", "0.a", "1.0000"} {
		if got, ok := parseWeight(in); ok {
			t.Errorf("%q = %d", in, got)
		}
	}
}

func FuzzVariantKey(f *testing.F) {
	f.Add("gzip, br;q=0.5", "br ;q=0.50,gzip", "a")
	f.Add("x-gzip", "", "\n=")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		names := []string{"Accept-Encoding", "X-Foo"}
		req := http.Header{"Accept-Encoding": {a, b}, "X-Foo": {c}}
		key := VariantKey(names, req)
		if strings.Count(key, "\n") != 2 {
			t.Fatalf("key %q", key)
		}
		if !Matches(names, key, req) {
			t.Error("doesn't match itself")
		}
		// The form that goes to the origin is the same variant.
		req["Accept-Encoding"] = []string{NormaliseAcceptEncoding([]string{a, b})}
		var set preferences
		if set.parse([]string{a, b}, true) && !Matches(names, key, req) {
			t.Errorf("%q became %q", key, VariantKey(names, req))
		}
	})
}
