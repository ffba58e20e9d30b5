package rfc9111

import (
	"reflect"
	"testing"
	"time"
)

func seconds(n int64) Delta { return Delta{time.Duration(n) * time.Second, true} }

// Rule 1: Cache-Control is tokenised for real.
func TestParseCacheControl(t *testing.T) {
	stale := seconds(0)
	for _, c := range []struct {
		name  string
		lines []string
		want  CacheControl
	}{
		{"absent", nil, CacheControl{}},
		{"empty", []string{""}, CacheControl{}},
		{"only commas", []string{",, ,", " "}, CacheControl{}},
		{"max-age (§5.2.2.1)", []string{"max-age=3600"}, CacheControl{MaxAge: seconds(3600)}},
		{"any case", []string{"MaX-aGe=3600, PUBLIC"}, CacheControl{MaxAge: seconds(3600), Public: true}},
		{"lines are joined", []string{"public", "max-age=1"}, CacheControl{MaxAge: seconds(1), Public: true}},
		{"unknown directives", []string{"foo, bar=baz, max-age=1, q=\"a, b\", x"}, CacheControl{MaxAge: seconds(1)}},
		{"unknown and long", []string{"a-directive-with-a-name-that-is-far-too-long=1, max-age=1"}, CacheControl{MaxAge: seconds(1)}},
		{"quoted strings are opaque", []string{`ext="max-age=9"`}, CacheControl{}},
		{"quoted before the real one", []string{`ext="max-age=3600", max-age=1`}, CacheControl{MaxAge: seconds(1)}},
		{"quoted behind the real one", []string{`max-age=1, ext="max-age=3600"`}, CacheControl{MaxAge: seconds(1)}},
		{"quoted comma", []string{`ext="a, max-age=3600, no-store", max-age=1`}, CacheControl{MaxAge: seconds(1)}},
		{"quoted quote", []string{`ext="a\", no-store, \"", max-age=1`}, CacheControl{MaxAge: seconds(1)}},
		{"quoted argument (§5.2)", []string{`max-age="60"`}, CacheControl{MaxAge: seconds(60)}},
		{"quoted argument with escape", []string{`max-age="6\0"`}, CacheControl{MaxAge: seconds(60)}},
		{"leading zeros", []string{"max-age=003600"}, CacheControl{MaxAge: seconds(3600)}},
		{"2^31 - 1", []string{"max-age=2147483647"}, CacheControl{MaxAge: seconds(1<<31 - 1)}},
		{"2^31", []string{"max-age=2147483648"}, CacheControl{MaxAge: seconds(1 << 31)}},
		{"above 2^31 clamps", []string{"max-age=99999999999"}, CacheControl{MaxAge: seconds(1 << 31)}},
		{"above 2^64 clamps", []string{"max-age=99999999999999999999999999"}, CacheControl{MaxAge: seconds(1 << 31)}},
		{"negative is stale", []string{"max-age=-3600"}, CacheControl{MaxAge: stale}},
		{"plus sign is stale", []string{"max-age=+3600"}, CacheControl{MaxAge: stale}},
		{"decimal is stale", []string{"max-age=3600.0"}, CacheControl{MaxAge: stale}},
		{"letter before", []string{"max-age=a3600"}, CacheControl{MaxAge: stale}},
		{"letter behind", []string{"max-age=3600a"}, CacheControl{MaxAge: stale}},
		{"single quotes", []string{"max-age='3600'"}, CacheControl{MaxAge: stale}},
		{"no argument", []string{"max-age"}, CacheControl{MaxAge: stale}},
		{"empty argument", []string{"max-age="}, CacheControl{MaxAge: stale}},
		{"empty quoted argument", []string{`max-age=""`}, CacheControl{MaxAge: stale}},
		{"space before the equals sign", []string{"max-age =3600"}, CacheControl{MaxAge: stale}},
		{"space behind the equals sign", []string{"max-age= 3600"}, CacheControl{MaxAge: stale}},
		{"two words", []string{"max-age=3600 60"}, CacheControl{MaxAge: stale}},
		{"semicolon", []string{"max-age=3600; public"}, CacheControl{MaxAge: stale}},
		{"text behind the quotes", []string{`max-age="60"0`}, CacheControl{MaxAge: stale}},
		{"twice: the smaller", []string{"max-age=1800, max-age=1"}, CacheControl{MaxAge: seconds(1)}},
		{"twice: the smaller, reversed", []string{"max-age=1, max-age=1800"}, CacheControl{MaxAge: seconds(1)}},
		{"twice on two lines", []string{"max-age=1800", "max-age=1"}, CacheControl{MaxAge: seconds(1)}},
		{"twice, one unreadable", []string{"max-age=1800, max-age=x"}, CacheControl{MaxAge: stale}},
		{"s-maxage twice (§5.2.2.10)", []string{"s-maxage=5, S-MAXAGE=3"}, CacheControl{SMaxAge: seconds(3)}},
		{"all without arguments", []string{"no-store, no-cache, private, must-revalidate, proxy-revalidate, must-understand, no-transform, only-if-cached"},
			CacheControl{NoStore: true, NoCache: true, Private: true, MustRevalidate: true, ProxyRevalidate: true,
				MustUnderstand: true, NoTransform: true, OnlyIfCached: true}},
		{"what restricts is believed with an argument", []string{"no-store=1, must-revalidate=x, no-transform foo"},
			CacheControl{NoStore: true, MustRevalidate: true, NoTransform: true}},
		{"what permits isn't", []string{"public=1, must-understand=x"}, CacheControl{}},
		{"stale-* (RFC 5861)", []string{"stale-while-revalidate=60, stale-if-error=600"},
			CacheControl{StaleWhileRevalidate: seconds(60), StaleIfError: seconds(600)}},
		{"stale-* twice", []string{"stale-while-revalidate=60, stale-while-revalidate=6"}, CacheControl{StaleWhileRevalidate: seconds(6)}},
		{"stale-* unreadable", []string{"stale-while-revalidate=x, stale-if-error"},
			CacheControl{StaleWhileRevalidate: stale, StaleIfError: stale}},
		{"qualified no-cache (§5.2.2.4)", []string{`no-cache="set-cookie, X-Foo"`}, CacheControl{NoCacheFields: []string{"Set-Cookie", "X-Foo"}}},
		{"qualified by a token", []string{`private=set-cookie`}, CacheControl{PrivateFields: []string{"Set-Cookie"}}},
		{"qualified twice", []string{`private="a"`, `private="b"`}, CacheControl{PrivateFields: []string{"A", "B"}}},
		{"unqualified beats qualified", []string{`private="a", private, no-cache, no-cache="b"`}, CacheControl{Private: true, NoCache: true}},
		{"qualified by nothing", []string{`private="", no-cache=" , "`}, CacheControl{Private: true, NoCache: true}},
		{"qualified by what is no field", []string{`no-cache="a b"`}, CacheControl{NoCache: true}},
		{"qualified, malformed", []string{`no-cache=a b`}, CacheControl{NoCache: true}},
		{"max-stale without argument (§5.2.1.2)", []string{"max-stale"}, CacheControl{AnyStale: true}},
		{"max-stale with and without", []string{"max-stale, max-stale=5"}, CacheControl{MaxStale: seconds(5)}},
		{"min-fresh twice: the larger (§5.2.1.3)", []string{"min-fresh=5, min-fresh=7, min-fresh=x"}, CacheControl{MinFresh: seconds(7)}},
		{"unended quote hides nothing that restricts", []string{`ext="a, no-store, private`}, CacheControl{NoStore: true, Private: true}},
		{"unended quote permits nothing", []string{`ext="a, max-age=60, public, stale-if-error=5, max-stale`},
			CacheControl{MaxAge: stale, StaleIfError: stale}},
		{"unended quote ends with its line", []string{`ext="a`, "max-age=60"}, CacheControl{MaxAge: seconds(60)}},
		{"unended argument", []string{`max-age="60`}, CacheControl{MaxAge: stale}},
		{"no name", []string{"=5, max-age=1"}, CacheControl{MaxAge: seconds(1)}},
		{"tabs", []string{"\tpublic\t,\tmax-age=1\t"}, CacheControl{Public: true, MaxAge: seconds(1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ParseCacheControl(c.lines); !reflect.DeepEqual(got, c.want) {
				t.Errorf("ParseCacheControl(%q) =\n%+v, want\n%+v", c.lines, got, c.want)
			}
		})
	}
	lines := []string{`public, max-age=600, stale-while-revalidate="60"`, "s-maxage=60, ext=\"a, b\""}
	allocates(t, "ParseCacheControl", func() { ParseCacheControl(lines) })
}

// Rule 7: CDN-Cache-Control is a dictionary that replaces the others, whole.
func TestControl_targeted(t *testing.T) {
	const other = "Cache-Control: max-age=1, public"
	replaced := CacheControl{MaxAge: seconds(1), Public: true}
	for _, c := range []struct {
		name     string
		lines    []string
		want     CacheControl
		targeted bool
	}{
		{"absent", []string{other}, replaced, false},
		{"replaces (RFC 9213 §2.2)", []string{"CDN-Cache-Control: max-age=60", other}, CacheControl{MaxAge: seconds(60)}, true},
		{"replaces with an extension alone", []string{"CDN-Cache-Control: foobar", other}, CacheControl{}, true},
		{"several lines", []string{"CDN-Cache-Control: max-age=60", "CDN-Cache-Control: no-store", other}, CacheControl{MaxAge: seconds(60), NoStore: true}, true},
		{"empty does not", []string{"CDN-Cache-Control:", other}, replaced, false},
		{"syntax error voids", []string{"CDN-Cache-Control: max-age=10000, &&&&&", other}, replaced, false},
		{"upper case voids", []string{"CDN-Cache-Control: MaX-aGe=60", other}, replaced, false},
		{"comma at the end voids", []string{"CDN-Cache-Control: max-age=60,", other}, replaced, false},
		{"space before the equals sign voids", []string{"CDN-Cache-Control: max-age =60", other}, replaced, false},
		{"string for an integer is unusable", []string{`CDN-Cache-Control: max-age="60"`, other}, CacheControl{MaxAge: seconds(0)}, true},
		{"decimal is unusable", []string{"CDN-Cache-Control: max-age=60.5", other}, CacheControl{MaxAge: seconds(0)}, true},
		{"true is unusable", []string{"CDN-Cache-Control: max-age", other}, CacheControl{MaxAge: seconds(0)}, true},
		{"token is unusable", []string{"CDN-Cache-Control: max-age=a60", other}, CacheControl{MaxAge: seconds(0)}, true},
		{"inner list is unusable", []string{"CDN-Cache-Control: max-age=(60)", other}, CacheControl{MaxAge: seconds(0)}, true},
		{"negative is stale", []string{"CDN-Cache-Control: max-age=-60", other}, CacheControl{MaxAge: seconds(0)}, true},
		{"unusable permission", []string{`CDN-Cache-Control: max-age=1, stale-if-error="60"`, other}, CacheControl{MaxAge: seconds(1), StaleIfError: seconds(0)}, true},
		{"huge clamps", []string{"CDN-Cache-Control: max-age=99999999999", other}, CacheControl{MaxAge: seconds(1 << 31)}, true},
		{"too many digits void", []string{"CDN-Cache-Control: max-age=9999999999999999", other}, replaced, false},
		{"last of two counts, as in any dictionary", []string{"CDN-Cache-Control: max-age=1, max-age=2", other}, CacheControl{MaxAge: seconds(2)}, true},
		{"parameters are skipped", []string{"CDN-Cache-Control: max-age=60;a=1", other}, CacheControl{MaxAge: seconds(60)}, true},
		{"false is absent", []string{"CDN-Cache-Control: no-store=?0, max-age=60", other}, CacheControl{MaxAge: seconds(60)}, true},
		{"true is present", []string{"CDN-Cache-Control: no-store=?1", other}, CacheControl{NoStore: true}, true},
		{"what restricts is believed", []string{"CDN-Cache-Control: no-store=1", other}, CacheControl{NoStore: true}, true},
		{"what permits isn't", []string{"CDN-Cache-Control: public=1", other}, CacheControl{}, true},
		{"qualified", []string{`CDN-Cache-Control: no-cache="Set-Cookie"`, other}, CacheControl{NoCacheFields: []string{"Set-Cookie"}}, true},
		{"qualified by a token", []string{`CDN-Cache-Control: private=Set-Cookie`, other}, CacheControl{PrivateFields: []string{"Set-Cookie"}}, true},
		{"qualified by digits", []string{`CDN-Cache-Control: private="5"`, other}, CacheControl{Private: true}, true},
		{"s-maxage", []string{"CDN-Cache-Control: s-maxage=60", other}, CacheControl{SMaxAge: seconds(60)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, targeted := Control(head(c.lines...))
			if !reflect.DeepEqual(got, c.want) || targeted != c.targeted {
				t.Errorf("Control(%q) =\n%+v, %v, want\n%+v, %v", c.lines, got, targeted, c.want, c.targeted)
			}
		})
	}
}

func FuzzParseCacheControl(f *testing.F) {
	for _, s := range []string{
		`no-cache="set-cookie, x", max-age=60`, `private, community="UCI"`, "max-age=600, stale-while-revalidate=30",
		`a="\"`, `a="b, c`, "max-age=99999999999999999999", "max-stale, min-fresh=5",
	} {
		f.Add(s, "")
		f.Add("public", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		cc := ParseCacheControl([]string{a, b})
		for _, d := range []Delta{cc.MaxAge, cc.SMaxAge, cc.StaleWhileRevalidate, cc.StaleIfError, cc.MaxStale, cc.MinFresh} {
			if d.Duration < 0 || d.Duration > maxDelta || d.Duration > 0 && !d.OK {
				t.Errorf("%q, %q: delta %+v", a, b, d)
			}
		}
		for _, name := range append(cc.NoCacheFields, cc.PrivateFields...) {
			if !isToken(name) {
				t.Errorf("%q, %q: field %q", a, b, name)
			}
		}
		// A no-store of its own is never lost, whatever stands around it.
		if !ParseCacheControl([]string{a, "no-store", b}).NoStore {
			t.Errorf("no-store lost between %q and %q", a, b)
		}
		Control(map[string][]string{"Cdn-Cache-Control": {a, b}})
	})
}
