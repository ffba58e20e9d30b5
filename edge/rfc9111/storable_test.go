package rfc9111

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asked is a GET with request fields, and its response.
func asked(request []string, status int, lines ...string) Exchange {
	x := got(status, lines...)
	x.ReqHeader = head(request...)
	return x
}

func method(m string, x Exchange) Exchange {
	x.Method = m
	return x
}

// Rules 2 and 8 to 13, and 29: what a shared cache stores (§3).
func TestStorable(t *testing.T) {
	const fresh = "Cache-Control: max-age=60"
	auth := []string{"Authorization: Basic eDp5"}
	post := func(lines ...string) Exchange { return method("POST", got(200, lines...)) }
	body := got(200, fresh)
	body.HasBody = true
	stalePeer := got(200, fresh)
	stalePeer.StaleFor = time.Second
	for _, c := range []struct {
		name string
		x    Exchange
		p    Policy
		want bool
		rule string // part of it
	}{
		{"max-age (§3)", got(200, fresh), Policy{}, true, "max-age"},
		{"s-maxage", got(200, "Cache-Control: s-maxage=60"), Policy{}, true, "s-maxage"},
		{"Expires", got(200, "Expires: "+at(time.Hour)), Policy{}, true, "Expires"},
		{"heuristic", got(200, "Last-Modified: "+at(-time.Hour)), Policy{}, true, "Last-Modified"},
		{"nothing", got(200), Policy{}, false, "no freshness information"},
		{"public alone", got(200, "Cache-Control: public"), Policy{}, false, "no freshness"},
		{"public with a date", got(201, "Cache-Control: public", "Last-Modified: "+at(-time.Hour)), Policy{}, true, "heuristic"},
		{"a validator alone", got(200, `ETag: "a"`), Policy{}, true, "validated"},
		{"a status without default, with a validator alone", got(201, `ETag: "a"`), Policy{}, false, "by default"},
		{"stale on arrival", got(200, fresh, "Age: 60"), Policy{}, false, "no use"},
		{"stale on arrival with a validator", got(200, fresh, "Age: 60", `ETag: "a"`), Policy{}, true, "validated"},
		{"stale on arrival with stale-while-revalidate", got(200, "Cache-Control: max-age=0, stale-while-revalidate=9"), Policy{}, true, "stale-while"},
		{"stale on arrival with stale-if-error", got(200, "Cache-Control: max-age=0, stale-if-error=9"), Policy{}, true, "stale-if-error"},
		{"stale on arrival with stale-if-error and s-maxage", got(200, "Cache-Control: s-maxage=0, stale-if-error=9"), Policy{}, false, "no use"},
		{"stale on arrival with must-revalidate", got(200, "Cache-Control: max-age=0, stale-if-error=9, must-revalidate"), Policy{}, false, "no use"},
		{"stale on arrival with grace", got(200, "Cache-Control: max-age=0"), Policy{StaleGrace: time.Second}, true, "grace"},
		{"stale on arrival, but max-stale is honoured", got(200, "Cache-Control: max-age=0"), Policy{HonourRequest: true}, true, "accept"},
		{"nothing, with grace", got(200), Policy{StaleGrace: time.Second}, false, "no freshness"},
		{"served stale by a peer", stalePeer, Policy{}, false, "no use"},

		{"no-store (§5.2.2.5)", got(200, fresh, "Cache-Control: no-store"), Policy{}, false, "no-store"},
		{"no-store in capitals", got(200, "Cache-Control: No-StOrE, max-age=60"), Policy{}, false, "no-store"},
		{"must-understand lifts no-store (§5.2.2.3)", got(200, "Cache-Control: no-store, must-understand, max-age=60"), Policy{}, true, "max-age"},
		{"must-understand, unknown status", got(299, "Cache-Control: no-store, must-understand, max-age=60"), Policy{}, false, "must-understand"},
		{"must-understand, unknown status, without no-store", got(599, "Cache-Control: must-understand, max-age=60"), Policy{}, false, "must-understand"},
		{"private (§5.2.2.7)", got(200, "Cache-Control: private, max-age=60"), Policy{}, false, "private"},
		{"private and s-maxage", got(200, "Cache-Control: private, s-maxage=60"), Policy{}, false, "private"},
		{"private with fields", got(200, `Cache-Control: private="x", max-age=60`), Policy{}, true, "max-age"},
		{"no-cache (§5.2.2.4)", got(200, "Cache-Control: no-cache", `ETag: "a"`), Policy{}, true, "every use"},
		{"no-cache without a validator", got(200, "Cache-Control: no-cache, max-age=60"), Policy{}, false, "no use"},
		{"no-cache with fields", got(200, `Cache-Control: no-cache="x", max-age=60`), Policy{}, true, "max-age"},
		{"request no-store, honoured (§5.2.1.5)", asked([]string{"Cache-Control: no-store"}, 200, fresh), Policy{HonourRequest: true}, false, "request"},
		{"request no-store, ignored", asked([]string{"Cache-Control: no-store"}, 200, fresh), Policy{}, true, "max-age"},
		{"targeted no-store (RFC 9213)", got(200, fresh, "CDN-Cache-Control: no-store"), Policy{}, false, "no-store"},
		{"targeted freshness beats no-store", got(200, "Cache-Control: no-store", "CDN-Cache-Control: max-age=60"), Policy{}, true, "CDN-Cache-Control"},
		{"targeted syntax error", got(200, "Cache-Control: no-store", "CDN-Cache-Control: max-age=60, &"), Policy{}, false, "no-store"},

		{"Authorization (§3.5)", asked(auth, 200, fresh), Policy{}, false, "§3.5"},
		{"Authorization, public", asked(auth, 200, "Cache-Control: public, max-age=60"), Policy{}, true, "max-age"},
		{"Authorization, must-revalidate", asked(auth, 200, "Cache-Control: must-revalidate, max-age=60"), Policy{}, true, "max-age"},
		{"Authorization, s-maxage", asked(auth, 200, "Cache-Control: s-maxage=60"), Policy{}, true, "s-maxage"},
		{"Authorization, proxy-revalidate isn't enough", asked(auth, 200, "Cache-Control: proxy-revalidate, max-age=60"), Policy{}, false, "§3.5"},
		{"Authorization, public where it doesn't count", asked(auth, 200, "Cache-Control: public", "CDN-Cache-Control: max-age=60"), Policy{}, false, "§3.5"},
		{"Authorization, empty", asked([]string{"Authorization:"}, 200, fresh), Policy{}, false, "§3.5"},
		{"Cookie does not matter", asked([]string{"Cookie: a=b"}, 200, fresh), Policy{}, true, "max-age"},

		{"Set-Cookie, pass", got(200, fresh, "Set-Cookie: a=b"), Policy{}, false, "Set-Cookie"},
		{"Set-Cookie, pass, public", got(200, "Cache-Control: public, max-age=60", "Set-Cookie: a=b"), Policy{}, true, "max-age"},
		{"Set-Cookie, pass, s-maxage", got(200, "Cache-Control: s-maxage=60", "Set-Cookie: a=b"), Policy{}, true, "s-maxage"},
		{"Set-Cookie, pass, not kept anyway", got(200, `Cache-Control: no-cache="Set-Cookie", max-age=60`, "Set-Cookie: a=b"), Policy{}, true, "max-age"},
		{"Set-Cookie, store", got(200, fresh, "Set-Cookie: a=b"), Policy{StoreSetCookie: true}, true, "max-age"},

		{"Vary * (§4.1)", got(200, fresh, "Vary: *"), Policy{}, false, "Vary"},
		{"Vary * in a list", got(200, fresh, "Vary: Accept", "Vary: , foo, *"), Policy{}, false, "Vary"},
		{"Vary", got(200, fresh, "Vary: Accept"), Policy{}, true, "max-age"},

		{"GET with content", body, Policy{}, false, "GET with content"},
		{"HEAD (§4.3.5)", method("HEAD", got(200, fresh)), Policy{}, false, "HEAD"},
		{"PUT", method("PUT", got(200, fresh)), Policy{}, false, "method"},
		{"unknown method", method("M-SEARCH", got(200, fresh)), Policy{}, false, "method"},
		{"method in lower case", method("get", got(200, fresh)), Policy{}, false, "method"},
		{"POST (RFC 9110 §9.3.3)", post(fresh, "Content-Location: /p"), Policy{}, true, "max-age"},
		{"POST, absolute", post(fresh, "Content-Location: http://www.example.com:80/%70"), Policy{}, true, "max-age"},
		{"POST of another URL", post(fresh, "Content-Location: /q"), Policy{}, false, "another URL"},
		{"POST of another host", post(fresh, "Content-Location: http://example.com/p"), Policy{}, false, "another URL"},
		{"POST, two Content-Locations", post(fresh, "Content-Location: /p", "Content-Location: /p"), Policy{}, false, "Content-Location"},
		{"POST without Content-Location", post(fresh), Policy{}, false, "Content-Location"},
		{"POST without explicit freshness", post("Content-Location: /p", "Last-Modified: "+at(-time.Hour)), Policy{}, false, "explicit"},
		{"POST, 299", method("POST", got(299, fresh, "Content-Location: /p")), Policy{}, true, "max-age"},
		{"POST, redirected", method("POST", got(300, fresh, "Content-Location: /p")), Policy{}, false, "succeed"},
		{"POST that failed", method("POST", got(404, fresh, "Content-Location: /p")), Policy{}, false, "succeed"},

		{"103 is never stored", got(103, fresh), Policy{}, false, "final"},
		{"101", got(101, fresh), Policy{}, false, "final"},
		{"no status", got(0, fresh), Policy{}, false, "final"},
		{"304", got(304, fresh), Policy{}, false, "304"},
		{"206 (§3.3)", got(206, fresh, "Content-Range: bytes 0-4/10"), Policy{}, false, "206"},
		{"206, kept", got(206, fresh, "Content-Range: bytes 0-4/10"), Policy{StorePartial: true}, true, "max-age"},
		{"206, kept, of several parts", got(206, fresh), Policy{StorePartial: true}, false, "Content-Range"},
		{"206, kept, unreadable", got(206, fresh, "Content-Range: bytes 5-4/10"), Policy{StorePartial: true}, false, "Content-Range"},
		{"416 to a Range", asked([]string{"Range: bytes=9-"}, 416, fresh), Policy{}, false, "Range"},
		{"412 to If-Match", asked([]string{`If-Match: "a"`}, 412, fresh), Policy{}, false, "preconditions"},
		{"416 and 412 out of the blue", got(412, fresh), Policy{}, true, "max-age"},

		{"an error that a request provokes, without freshness", got(400), Policy{NegativeTTL: time.Minute}, false, "by default"},
		{"the same, cacheable by default", got(414), Policy{NegativeTTL: time.Minute}, false, "no freshness"},
		{"the same, with freshness", got(431, fresh), Policy{}, true, "max-age"},
		{"absence", got(404), Policy{}, false, "no freshness"},
		{"absence, configured", got(404), Policy{NegativeTTL: time.Minute}, true, "negative.ttl"},
		{"absence, by a status that is configured", got(403), Policy{NegativeTTL: time.Minute, Absences: []int{403}}, true, "negative.ttl"},
		{"the same, and not remembered", got(403), Policy{Absences: []int{403}}, false, "by default"},
		{"by one that is not", got(403), Policy{NegativeTTL: time.Minute}, false, "by default"},
		{"by one that is configured, to a client with credentials", asked([]string{"Authorization: Basic eA=="}, 403), Policy{NegativeTTL: time.Minute, Absences: []int{403}}, false, "Authorization"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Storable(c.x, c.p)
			if v.OK != c.want || !strings.Contains(v.Rule, c.rule) || v.Rule == "" {
				t.Errorf("Storable = %+v, want %v because of %q", v, c.want, c.rule)
			}
		})
	}
}

// Rule 8: any final status with explicit freshness, known or not.
func TestStorable_anyFinalStatus(t *testing.T) {
	for status := 200; status <= 999; status++ {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			want := status != 304 && status != 206
			if v := Storable(got(status, "Cache-Control: max-age=60"), Policy{}); v.OK != want {
				t.Errorf("%+v, want %v", v, want)
			}
		})
	}
	for _, status := range []int{200, 204, 404, 503} {
		if v := Storable(got(status, "Cache-Control: no-store, must-understand, max-age=60"), Policy{}); !v.OK {
			t.Errorf("%d with must-understand: %+v", status, v)
		}
	}
}

// Rule 14: complete or not (§3.3).
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		status int
		header http.Header
		length int64
		ended  bool
		want   bool
	}{
		{"as long as said", "GET", 200, head("Content-Length: 5"), 5, true, true},
		{"short of Content-Length", "GET", 200, head("Content-Length: 5"), 4, true, false},
		{"too long", "GET", 200, head("Content-Length: 5"), 6, true, false},
		{"reset at the end", "GET", 200, head("Content-Length: 5"), 5, false, false},
		{"chunked, ended", "GET", 200, head(), 5, true, true},
		{"chunked, not ended", "GET", 200, head(), 5, false, false},
		{"length twice, the same", "GET", 200, head("Content-Length: 5", "Content-Length: 5"), 5, true, true},
		{"lengths differ", "GET", 200, head("Content-Length: 5, 6"), 5, true, false},
		{"unreadable length", "GET", 200, head("Content-Length: +5"), 5, true, false},
		{"HEAD has none", "HEAD", 200, head("Content-Length: 5"), 0, true, true},
		{"204 has none", "GET", 204, head(), 0, true, true},
		{"304 has none", "GET", 304, head("Content-Length: 5"), 0, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Complete(c.method, c.status, c.header, c.length, c.ended); got != c.want {
				t.Errorf("Complete = %v, want %v", got, c.want)
			}
		})
	}
}
