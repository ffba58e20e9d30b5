package rfc9111

import (
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"
)

// Rules 9 and 12: what of a header section is kept (§3.1).
func TestStoredHeader(t *testing.T) {
	in := head(
		"Connection: X-Hop, x-hop-2", "Connection: close", "X-Hop: 1", "X-Hop-2: 1",
		"Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: trailers", "Trailer: X-T", "Transfer-Encoding: chunked", "Upgrade: h2c",
		"Proxy-Authenticate: Basic", "Proxy-Authentication-Info: a", "Proxy-Authorization: b",
		"Age: 5", `Cache-Control: max-age=60, no-cache="x-nc, X-NC2", private=X-Private`, "X-NC: 1", "X-NC2: 1", "X-Private: 1",
		"CDN-Cache-Control: &", "Set-Cookie: a=b", "Set-Cookie: c=d", "Content-Length: 5", "Content-Encoding: gzip", "Content-Type: text/html",
		"ETag: W/\"a\"", "Last-Modified: "+at(0), "Date: "+at(0), "Expires: "+at(0), "Vary: X-Hop", "Proxy-Status: a", "Proxy-Foo: b",
	)
	before := in.Clone()
	kept := StoredHeader(in)
	want := head(
		`Cache-Control: max-age=60, no-cache="x-nc, X-NC2", private=X-Private`, "CDN-Cache-Control: &",
		"Set-Cookie: a=b", "Set-Cookie: c=d", "Content-Length: 5", "Content-Encoding: gzip", "Content-Type: text/html",
		"ETag: W/\"a\"", "Last-Modified: "+at(0), "Date: "+at(0), "Expires: "+at(0), "Vary: X-Hop", "Proxy-Status: a", "Proxy-Foo: b",
	)
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("kept\n%v, want\n%v", kept, want)
	}
	kept["Set-Cookie"][0] = "changed"
	if !reflect.DeepEqual(in, before) {
		t.Error("the argument changed")
	}
}

// Rule 7 beside rule 9: fields that only the replaced Cache-Control names stay.
func TestStoredHeader_targeted(t *testing.T) {
	kept := StoredHeader(head(`Cache-Control: private="X-A"`, `CDN-Cache-Control: max-age=1, private="X-B"`, "X-A: 1", "X-B: 1"))
	if kept.Get("X-A") == "" || kept.Get("X-B") != "" {
		t.Errorf("kept %v", kept)
	}
}

// Rule 19: a 304 updates every stored field but those of the body and of the
// connection (§3.2, §4.3.4).
func TestFreshen(t *testing.T) {
	stored := head("Date: "+at(-time.Hour), "Age: 9", "ETag: \"a\"", "Cache-Control: max-age=1", "X-Kept: 1", "X-Twice: 1", "X-Twice: 2",
		"Content-Length: 5", "Content-Encoding: gzip", "Content-Type: text/html", "Content-Range: bytes 0-4/5", "Set-Cookie: old=1")
	nm := head("Date: "+at(0), "Age: 3", "ETag: \"a\"", "Cache-Control: max-age=60", "X-New: 1", "X-Twice: 3", "X-Twice: 4",
		"Content-Length: 0", "Content-Encoding: br", "Content-Type: text/plain", "Content-Range: bytes 0-1/2",
		"Content-Location: /x", "Content-Security-Policy: a", "Content-Foo: 1", "Expires: 0", "Vary: A",
		"Connection: X-Hop", "X-Hop: 1", "Keep-Alive: 1", "Transfer-Encoding: chunked", "Upgrade: x", "Proxy-Authenticate: x", "TE: x", "Trailer: x",
		"Set-Cookie: new=1")
	storedBefore, nmBefore := stored.Clone(), nm.Clone()

	got := Freshen(stored, nm, Policy{StoreSetCookie: true})
	want := head("Date: "+at(0), "Age: 3", "ETag: \"a\"", "Cache-Control: max-age=60", "X-Kept: 1", "X-New: 1", "X-Twice: 3", "X-Twice: 4",
		"Content-Length: 5", "Content-Encoding: gzip", "Content-Type: text/html", "Content-Range: bytes 0-4/5",
		"Content-Location: /x", "Content-Security-Policy: a", "Content-Foo: 1", "Expires: 0", "Vary: A", "Set-Cookie: new=1")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Freshen =\n%v, want\n%v", got, want)
	}
	if again := Freshen(got, nm, Policy{StoreSetCookie: true}); !reflect.DeepEqual(again, want) {
		t.Errorf("twice =\n%v: fields pile up", again)
	}
	got["X-Twice"][0], got["X-Kept"][0] = "changed", "changed"
	if !reflect.DeepEqual(stored, storedBefore) || !reflect.DeepEqual(nm, nmBefore) {
		t.Error("an argument changed")
	}
}

func TestFreshen_ages(t *testing.T) {
	got := Freshen(head("Date: "+at(-time.Hour), "Age: 9"), head("Cache-Control: max-age=60"), Policy{})
	if got.Get("Date") != "" || got.Get("Age") != "" {
		t.Errorf("Date and Age of an earlier answer stay: %v", got)
	}
	x := Exchange{Method: "GET", Status: 200, Header: got, RequestTime: epoch, ResponseTime: epoch}
	s := NewStored(x, Policy{})
	if ttl := s.TTL(epoch); ttl != time.Minute {
		t.Errorf("ttl %v after a 304 without Date", ttl)
	}
}

// Rule 11: a 304 brings no cookie into a store that keeps none.
func TestFreshen_setCookie(t *testing.T) {
	for _, c := range []struct {
		name   string
		stored http.Header
		nm     http.Header
		p      Policy
		want   []string
	}{
		{"pass", head("Cache-Control: max-age=1"), head("Set-Cookie: a=1"), Policy{}, nil},
		{"pass, public", head("Cache-Control: max-age=1, public"), head("Set-Cookie: a=1"), Policy{}, []string{"a=1"}},
		{"pass, public by the 304", head("Cache-Control: max-age=1"), head("Set-Cookie: a=1", "Cache-Control: public"), Policy{}, []string{"a=1"}},
		{"pass, public no longer", head("Cache-Control: public"), head("Set-Cookie: a=1", "Cache-Control: max-age=1"), Policy{}, nil},
		{"store", head("Cache-Control: max-age=1"), head("Set-Cookie: a=1"), Policy{StoreSetCookie: true}, []string{"a=1"}},
		{"store, none in the 304", head("Set-Cookie: a=1"), head(), Policy{StoreSetCookie: true}, []string{"a=1"}},
		{"store, of the connection", head("Set-Cookie: a=1"), head("Set-Cookie: b=1", "Connection: set-cookie"), Policy{StoreSetCookie: true}, []string{"a=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Freshen(c.stored, c.nm, c.p)["Set-Cookie"]; !slices.Equal(got, c.want) {
				t.Errorf("Set-Cookie %q, want %q", got, c.want)
			}
		})
	}
}

// Rule 19: which stored response a 304 speaks of (§4.3.4).
func TestNotModifiedMatches(t *testing.T) {
	lm, other := "Last-Modified: "+at(-time.Hour), "Last-Modified: "+at(-time.Minute)
	for _, c := range []struct {
		name       string
		stored, nm http.Header
		want       bool
	}{
		{"same strong tag", head(`ETag: "a"`), head(`ETag: "a"`), true},
		{"other strong tag", head(`ETag: "a"`), head(`ETag: "b"`), false},
		{"same weak tag", head(`ETag: W/"a"`), head(`ETag: W/"a"`), true},
		{"weak for a strong one", head(`ETag: "a"`), head(`ETag: W/"a"`), true},
		{"strong for a weak one", head(`ETag: W/"a"`), head(`ETag: "a"`), false},
		{"other tag, same date", head(`ETag: "a"`, lm), head(`ETag: "b"`, lm), false},
		{"same tag, other date", head(`ETag: "a"`, lm), head(`ETag: "a"`, other), true},
		{"same date", head(lm), head(lm), true},
		{"same date in another format", head("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"), head("Last-Modified: Sun Nov  6 08:49:37 1994"), true},
		{"other date", head(lm), head(other), false},
		{"date, where both have a tag on one side", head(`ETag: "a"`, lm), head(lm), true},
		{"new tag, same date", head(lm), head(`ETag: "a"`, lm), true},
		{"new tag alone", head(lm), head(`ETag: "a"`), false},
		{"no validator in the 304", head(`ETag: "a"`), head("Date: " + at(0)), true},
		{"no validator at all", head(), head(), true},
		{"tags without quotes", head("ETag: a"), head("ETag: a"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := NotModifiedMatches(c.stored, c.nm); got != c.want {
				t.Errorf("NotModifiedMatches = %v, want %v", got, c.want)
			}
			var want []int
			if c.want {
				want = []int{0}
			}
			if got := SelectNotModified([]http.Header{c.stored}, c.nm); !slices.Equal(got, want) {
				t.Errorf("SelectNotModified = %v, want %v", got, want)
			}
		})
	}
}

func TestSelectNotModified(t *testing.T) {
	lm := "Last-Modified: " + at(-time.Hour)
	stored := []http.Header{head(`ETag: "a"`), head(`ETag: "b"`), head(`ETag: "b"`, lm), head(lm), head(`ETag: W/"c"`), head(`ETag: W/"c"`), head()}
	for _, c := range []struct {
		name string
		nm   http.Header
		want []int
	}{
		{"strong: all that have it", head(`ETag: "b"`), []int{1, 2}},
		{"weak: the most recent", head(`ETag: W/"c"`), []int{4}},
		{"date: the most recent", head(lm), []int{2}},
		{"none", head(`ETag: "x"`), nil},
		{"no validator, and a choice", head(), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := SelectNotModified(stored, c.nm); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	if got := SelectNotModified(nil, head()); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

// Rule 20: HEAD and the stored GET response (§4.3.5).
func TestHeadFreshens(t *testing.T) {
	lm := "Last-Modified: " + at(-time.Hour)
	for _, c := range []struct {
		name       string
		had        int
		stored     http.Header
		status     int
		head       http.Header
		wantEffect HeadEffect
	}{
		{"same tag", 200, head(`ETag: "a"`), 200, head(`ETag: "a"`), HeadUpdates},
		{"other tag", 200, head(`ETag: "a"`), 200, head(`ETag: "b"`), HeadInvalidates},
		{"new tag", 200, head(), 200, head(`ETag: "b"`), HeadInvalidates},
		{"same date", 200, head(lm), 200, head(lm), HeadUpdates},
		{"other date", 200, head(lm), 200, head("Last-Modified: " + at(0)), HeadInvalidates},
		{"same tag, other date", 200, head(`ETag: "a"`, lm), 200, head(`ETag: "a"`, "Last-Modified: "+at(0)), HeadInvalidates},
		{"no validator received", 200, head(`ETag: "a"`, lm), 200, head("Cache-Control: max-age=5"), HeadUpdates},
		{"same length", 200, head("Content-Length: 5"), 200, head("Content-Length: 5"), HeadUpdates},
		{"other length", 200, head("Content-Length: 5"), 200, head("Content-Length: 6"), HeadInvalidates},
		{"other length, same tag", 200, head(`ETag: "a"`, "Content-Length: 5"), 200, head(`ETag: "a"`, "Content-Length: 6"), HeadInvalidates},
		{"length of a part is another thing", 206, head(`ETag: "a"`, "Content-Length: 5"), 200, head(`ETag: "a"`, "Content-Length: 60"), HeadUpdates},
		{"length unknown here", 200, head(), 200, head("Content-Length: 6"), HeadUpdates},
		{"length unknown there", 200, head("Content-Length: 5"), 200, head(), HeadUpdates},
		{"404 where there was a 200", 200, head(), 404, head(), HeadInvalidates},
		{"410 where there was a 200", 200, head(), 410, head(), HeadInvalidates},
		{"404 as before", 404, head(), 404, head(), HeadNothing},
		{"200 where there was a 404", 404, head(), 200, head(), HeadInvalidates},
		{"503 says nothing", 200, head(), 503, head(), HeadNothing},
		{"302 says nothing", 200, head(), 302, head(), HeadNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := HeadFreshens(c.had, c.stored, c.status, c.head); got != c.wantEffect {
				t.Errorf("HeadFreshens = %v, want %v", got, c.wantEffect)
			}
		})
	}
}
