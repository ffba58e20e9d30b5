package rfc9111

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Rules 17 and 21: conditions answered from the store (§4.3.2, RFC 9110 §13).
func TestEvaluateConditional(t *testing.T) {
	modified := epoch.Add(-24 * time.Hour)
	lm := "Last-Modified: " + modified.Format(http.TimeFormat)
	for _, c := range []struct {
		name   string
		req    []string
		status int
		stored []string
		want   bool
	}{
		{"no condition", nil, 200, []string{`ETag: "a"`, lm}, false},
		{"tag", []string{`If-None-Match: "a"`}, 200, []string{`ETag: "a"`}, true},
		{"other tag", []string{`If-None-Match: "b"`}, 200, []string{`ETag: "a"`}, false},
		{"list", []string{`If-None-Match: "b", "c",  "a"`}, 200, []string{`ETag: "a"`}, true},
		{"list of several lines", []string{`If-None-Match: "b"`, `If-None-Match: "a"`}, 200, []string{`ETag: "a"`}, true},
		{"list with empty members", []string{`If-None-Match: ,, "b" ,, "a",`}, 200, []string{`ETag: "a"`}, true},
		{"comma in a tag", []string{`If-None-Match: "x,y", "a,b"`}, 200, []string{`ETag: "a,b"`}, true},
		{"part of a tag with comma", []string{`If-None-Match: "a,b"`}, 200, []string{`ETag: "a"`}, false},
		{"backslash is a plain byte", []string{`If-None-Match: "a\", "b"`}, 200, []string{`ETag: "b"`}, true},
		{"weak comparison", []string{`If-None-Match: W/"a"`}, 200, []string{`ETag: "a"`}, true},
		{"weak comparison, reversed", []string{`If-None-Match: "a"`}, 200, []string{`ETag: W/"a"`}, true},
		{"weak comparison, both", []string{`If-None-Match: W/"a"`}, 200, []string{`ETag: W/"a"`}, true},
		{"lower-case w is no weak tag", []string{`If-None-Match: w/"a"`}, 200, []string{`ETag: "a"`}, false},
		{"star", []string{"If-None-Match: *"}, 200, []string{`ETag: "a"`}, true},
		{"star without a stored tag", []string{"If-None-Match: *"}, 200, nil, true},
		{"star in quotes is a tag", []string{`If-None-Match: "*"`}, 200, []string{`ETag: "a"`}, false},
		{"tag, but none stored", []string{`If-None-Match: "a"`}, 200, nil, false},
		{"empty", []string{"If-None-Match:"}, 200, []string{`ETag: ""`}, false},
		{"empty tag", []string{`If-None-Match: ""`}, 200, []string{`ETag: ""`}, true},
		{"without quotes", []string{"If-None-Match: a"}, 200, []string{"ETag: a"}, true},
		{"without quotes in the request", []string{"If-None-Match: a"}, 200, []string{`ETag: "a"`}, false},
		{"unended quote goes to the comma", []string{`If-None-Match: "a, "b"`}, 200, []string{`ETag: "b"`}, true},

		{"If-None-Match goes before (RFC 9110 §13.2.2)", []string{`If-None-Match: "b"`, "If-Modified-Since: " + at(0)}, 200, []string{`ETag: "a"`, lm}, false},
		{"If-None-Match goes before, reversed", []string{`If-None-Match: "a"`, "If-Modified-Since: " + at(-48*time.Hour)}, 200, []string{`ETag: "a"`, lm}, true},
		{"date, the same", []string{"If-Modified-Since: " + at(-24*time.Hour)}, 200, []string{lm}, true},
		{"date, later", []string{"If-Modified-Since: " + at(-23*time.Hour)}, 200, []string{lm}, true},
		{"date, earlier", []string{"If-Modified-Since: " + at(-24*time.Hour-time.Second)}, 200, []string{lm}, false},
		{"date in RFC 850", []string{"If-Modified-Since: " + modified.Format("Monday, 02-Jan-06 15:04:05 GMT")}, 200, []string{lm}, true},
		{"date in asctime", []string{"If-Modified-Since: " + modified.Format(time.ANSIC)}, 200, []string{lm}, true},
		{"no date", []string{"If-Modified-Since: now"}, 200, []string{lm}, false},
		{"two dates", []string{"If-Modified-Since: " + at(0), "If-Modified-Since: " + at(0)}, 200, []string{lm}, false},
		{"no Last-Modified: Date", []string{"If-Modified-Since: " + at(0)}, 200, []string{"Date: " + at(-time.Second)}, true},
		{"no Last-Modified: Date, earlier", []string{"If-Modified-Since: " + at(-2*time.Second)}, 200, []string{"Date: " + at(-time.Second)}, false},
		{"no Last-Modified, no Date: received", []string{"If-Modified-Since: " + at(0)}, 200, nil, true},

		{"only 2xx (RFC 9110 §13.2.1)", []string{`If-None-Match: "a"`}, 404, []string{`ETag: "a"`}, false},
		{"299", []string{`If-None-Match: "a"`}, 299, []string{`ETag: "a"`}, true},
		{"300", []string{`If-None-Match: "a"`}, 300, []string{`ETag: "a"`}, false},
		{"cut off", []string{"If-None-Match: W/"}, 200, []string{`ETag: "a"`}, false},
		{"203", []string{`If-None-Match: "a"`}, 203, []string{`ETag: "a"`}, true},
		{"If-Match isn't ours", []string{`If-Match: "b"`}, 200, []string{`ETag: "a"`}, false},
		{"If-Unmodified-Since isn't ours", []string{"If-Unmodified-Since: " + at(-48*time.Hour)}, 200, []string{lm}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := got(c.status, c.stored...)
			s := NewStored(x, Policy{})
			req := head(c.req...)
			if got := EvaluateConditional(req, StoredHeader(x.Header), &s); got != c.want {
				t.Errorf("EvaluateConditional = %v, want %v", got, c.want)
			}
			if c.want && !IsConditional(req) {
				t.Error("not conditional")
			}
		})
	}
	x := got(200, `ETag: "a"`, lm)
	s := NewStored(x, Policy{})
	for _, req := range []http.Header{head(`If-None-Match: "b", "a"`), head("If-Modified-Since: " + at(0))} {
		allocates(t, "EvaluateConditional", func() { EvaluateConditional(req, x.Header, &s) })
	}
}

// Rule 17: what a 304 carries (RFC 9110 §15.4.5).
func TestNotModifiedHeader(t *testing.T) {
	full := head("Cache-Control: max-age=5", "CDN-Cache-Control: max-age=5", "Content-Location: /a", "Date: "+at(0), `ETag: "a"`, "Expires: "+at(0),
		"Vary: A", "Vary: B", "Last-Modified: "+at(0), "Content-Type: a/b", "Content-Length: 5", "Content-Encoding: gzip", "Set-Cookie: a=b", "X-Foo: 1")
	want := head("Cache-Control: max-age=5", "CDN-Cache-Control: max-age=5", "Content-Location: /a", "Date: "+at(0), `ETag: "a"`, "Expires: "+at(0), "Vary: A", "Vary: B")
	if got := NotModifiedHeader(full); !reflect.DeepEqual(got, want) {
		t.Errorf("NotModifiedHeader =\n%v, want\n%v", got, want)
	}
	full.Del("Etag")
	if got := NotModifiedHeader(full); got.Get("Last-Modified") == "" {
		t.Error("without ETag, Last-Modified belongs to it")
	}
	if got := NotModifiedHeader(head("X-Foo: 1")); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// Rule 18: validating what is stored (§4.3.1).
func TestValidators(t *testing.T) {
	lm := "Last-Modified: " + at(-time.Hour)
	ims := "If-Modified-Since: " + at(-time.Hour)
	many := make([]http.Header, 1000)
	for i := range many {
		many[i] = head(`ETag: "` + strings.Repeat("x", 10) + string(rune('a'+i%26)) + `"`)
	}
	for _, c := range []struct {
		name     string
		selected http.Header
		others   []http.Header
		want     []string
	}{
		{"tag and date", head(`ETag: "a"`, lm), nil, []string{`If-None-Match: "a"`, ims}},
		{"tag", head(`ETag: "a"`), nil, []string{`If-None-Match: "a"`}},
		{"weak tag", head(`ETag: W/"a"`), nil, []string{`If-None-Match: W/"a"`}},
		{"tag without quotes goes as it came", head("ETag: a"), nil, []string{"If-None-Match: a"}},
		{"date", head(lm), nil, []string{ims}},
		{"no date", head("Last-Modified: never"), nil, nil},
		{"two tags are none", head(`ETag: "a"`, `ETag: "b"`), nil, nil},
		{"a star is no tag", head("ETag: *"), nil, nil},
		{"a control byte is no tag", http.Header{"Etag": {"\"a\x01\""}}, nil, nil},
		{"DEL is no tag", http.Header{"Etag": {"\"a\x7f\""}}, nil, nil},
		{"a space is one", head(`ETag: "a b"`), nil, []string{`If-None-Match: "a b"`}},
		{"a list is no tag", head(`ETag: "a", "b"`), nil, nil},
		{"nothing", head(), nil, nil},
		{"several variants", head(`ETag: "a"`), []http.Header{head(`ETag: "b"`), head(lm), head(`ETag: W/"c"`), head(`ETag: "a"`)}, []string{`If-None-Match: "a", "b", W/"c"`}},
		{"none selected", nil, []http.Header{head(`ETag: "b"`, lm), head(`ETag: "c"`)}, []string{`If-None-Match: "b", "c"`}},
		{"none selected, no tags", nil, []http.Header{head(lm)}, nil},
		{"selected by date alone", head(lm), []http.Header{head(`ETag: "b"`)}, []string{ims}},
		{"a long list ends", head(`ETag: "` + strings.Repeat("y", maxValidatorsLen) + `"`), many, []string{`If-None-Match: "` + strings.Repeat("y", maxValidatorsLen) + `"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := head("Accept: x", "If-None-Match: \"z\"", "If-Modified-Since: "+at(0), "If-Match: \"z\"", "If-Unmodified-Since: "+at(0), "If-Range: \"z\"")
			want := head(append(c.want, "Accept: x")...)
			if ok := Validators(req, c.selected, c.others...); ok != (len(c.want) > 0) {
				t.Errorf("Validators = %v", ok)
			}
			if !reflect.DeepEqual(req, want) {
				t.Errorf("request\n%v, want\n%v", req, want)
			}
		})
	}
}

func FuzzEtags(f *testing.F) {
	f.Add(`W/"a", "b,c", d, "e\"`, `"b,c"`)
	f.Add(`*`, `"`)
	f.Add(`,`, `,a`)
	f.Fuzz(func(t *testing.T, list, tag string) {
		for m := range etags([]string{list}) {
			if m == "" || trim(m) != m {
				t.Errorf("%q has member %q", list, m)
			}
		}
		if !isSendable(tag) || etagOf(http.Header{"Etag": {tag}}) != tag {
			return
		}
		// What we send is found in what comes back.
		all := slices.Collect(etags([]string{`"x", ` + tag + `, "y"`}))
		if len(all) != 3 || all[1] != tag {
			t.Errorf("%q in a list became %q", tag, all)
		}
	})
}
