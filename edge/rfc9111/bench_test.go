package rfc9111

import (
	"net/http"
	"testing"
	"time"
)

// The reuse path of a hit: what is computed for each request. The numbers are
// in doc.go.

func BenchmarkDecide(b *testing.B) {
	now := time.Now()
	x := got(200, "Cache-Control: max-age=60, stale-while-revalidate=60", `ETag: "a"`)
	x.RequestTime, x.ResponseTime = now, now
	s := NewStored(x, Policy{})
	now = now.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		if reuse, _ := s.Decide(RequestDirectives{}, now); reuse != Fresh {
			b.Fatal(reuse)
		}
	}
}

func BenchmarkMatches(b *testing.B) {
	req := head("Accept-Encoding: gzip, deflate, br, zstd", "Accept-Language: en-GB,en;q=0.9,de;q=0.8", "X-Foo: 1")
	for _, c := range []struct {
		name  string
		names []string
	}{
		{"vary=none", nil},
		{"vary=Accept-Encoding", []string{"Accept-Encoding"}},
		{"vary=Accept-Encoding,Accept-Language,X-Foo", []string{"Accept-Encoding", "Accept-Language", "X-Foo"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			key := VariantKey(c.names, req)
			b.ReportAllocs()
			for b.Loop() {
				if !Matches(c.names, key, req) {
					b.Fatal("no match")
				}
			}
		})
	}
}

func BenchmarkParseRequestDirectives(b *testing.B) {
	for _, c := range []struct {
		name string
		h    http.Header
	}{
		{"none", head("Accept: */*", "User-Agent: x")},
		{"no-cache", head("Cache-Control: no-cache", "Pragma: no-cache")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ParseRequestDirectives(c.h, Policy{HonourRequest: true})
			}
		})
	}
}

// hit returns everything that a hit asks of this package, for a response with
// Vary: Accept-Encoding and a conditional request.
func hit() (reuse func() string) {
	now := time.Now()
	x := got(200, "Cache-Control: public, max-age=600, stale-while-revalidate=60", `ETag: "3f2a"`, "Vary: Accept-Encoding",
		"Date: "+now.UTC().Format(http.TimeFormat))
	x.RequestTime, x.ResponseTime = now, now
	x.ReqHeader = head("Accept-Encoding: br, gzip")
	names, _ := NominatedFields(x.Header)
	key := VariantKey(names, x.ReqHeader)
	s := NewStored(x, Policy{})
	req := head("Accept-Encoding: gzip, br", "User-Agent: x", `If-None-Match: "3f2a"`)
	stored := StoredHeader(x.Header)
	now = now.Add(3 * time.Second)
	target := make([]byte, 0, 128)
	age := make([]byte, 0, 16)
	return func() string {
		target = AppendTarget(target[:0], "/static/app.3f2a.js", "v=1")
		if _, ok := CanonicalHost("www.example.com", "http"); !ok {
			return "host"
		}
		directives := ParseRequestDirectives(req, Policy{})
		if !Matches(names, key, req) {
			return "variant"
		}
		if reuse, rule := s.Decide(directives, now); reuse != Fresh {
			return rule
		}
		if !IsConditional(req) || !EvaluateConditional(req, stored, &s) {
			return "condition"
		}
		age = s.AppendAge(age[:0], now)
		return ""
	}
}

func BenchmarkReuse(b *testing.B) {
	reuse := hit()
	b.ReportAllocs()
	for b.Loop() {
		if failed := reuse(); failed != "" {
			b.Fatal(failed)
		}
	}
}

func TestReuse_allocatesNothing(t *testing.T) {
	reuse := hit()
	if failed := reuse(); failed != "" {
		t.Fatal(failed)
	}
	allocates(t, "a hit", func() { reuse() })
}

// Once for each response that is stored, not on the path of a hit.
func BenchmarkStore(b *testing.B) {
	x := got(200, "Cache-Control: public, max-age=600, stale-while-revalidate=60", `ETag: "3f2a"`, "Vary: Accept-Encoding", "Date: "+at(0),
		"Last-Modified: "+at(-time.Hour), "Content-Type: text/html", "Content-Length: 1024", "Server: x")
	b.ReportAllocs()
	for b.Loop() {
		if v := Storable(x, Policy{}); !v.OK {
			b.Fatal(v)
		}
		NewStored(x, Policy{})
		StoredHeader(x.Header)
	}
}
