package rfc9111

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Rule 25: what an unsafe or unknown method invalidates (§4.4).
func TestInvalidates(t *testing.T) {
	const url = "http://www.example.com/a/b?c=d"
	for _, c := range []struct {
		name   string
		method string
		status int
		url    string
		header http.Header
		want   []string
	}{
		{"GET", "GET", 200, url, head(), nil},
		{"HEAD", "HEAD", 200, url, head(), nil},
		{"OPTIONS", "OPTIONS", 204, url, head(), nil},
		{"TRACE", "TRACE", 200, url, head(), nil},
		{"POST", "POST", 200, url, head(), []string{url}},
		{"PUT", "PUT", 201, url, head(), []string{url}},
		{"DELETE", "DELETE", 204, url, head(), []string{url}},
		{"PATCH", "PATCH", 200, url, head(), []string{url}},
		{"unknown", "M-SEARCH", 200, url, head(), []string{url}},
		{"in lower case it is unknown", "get", 200, url, head(), []string{url}},
		{"a redirect is no error", "POST", 303, url, head(), []string{url}},
		{"client error", "POST", 404, url, head("Location: /x"), nil},
		{"server error", "POST", 500, url, head("Location: /x"), nil},
		{"interim", "POST", 103, url, head(), nil},
		{"Location", "POST", 201, url, head("Location: http://www.example.com/x"), []string{url, "http://www.example.com/x"}},
		{"Content-Location", "POST", 200, url, head("Content-Location: /y?z"), []string{url, "http://www.example.com/y?z"}},
		{"both", "POST", 200, url, head("Location: /x", "Content-Location: /y"), []string{url, "http://www.example.com/x", "http://www.example.com/y"}},
		{"both the same", "POST", 200, url, head("Location: /x", "Content-Location: /x"), []string{url, "http://www.example.com/x"}},
		{"itself", "POST", 200, url, head("Location: " + url), []string{url}},
		{"relative", "POST", 200, url, head("Location: e"), []string{url, "http://www.example.com/a/e"}},
		{"relative upwards", "POST", 200, url, head("Location: ../e"), []string{url, "http://www.example.com/e"}},
		{"query only", "POST", 200, url, head("Location: ?x"), []string{url, "http://www.example.com/a/b?x"}},
		{"fragment only", "POST", 200, url, head("Location: #x"), []string{url}},
		{"without scheme", "POST", 200, url, head("Location: //WWW.example.com:80/e#x"), []string{url, "http://www.example.com/e"}},
		{"other host", "POST", 200, url, head("Location: http://example.com/x"), []string{url}},
		{"other scheme", "POST", 200, url, head("Location: https://www.example.com/x"), []string{url}},
		{"other port", "POST", 200, url, head("Location: http://www.example.com:8080/x"), []string{url}},
		{"no web address", "POST", 200, url, head("Location: mailto:a@example.com"), []string{url}},
		{"user information", "POST", 200, url, head("Location: http://a@www.example.com/x"), []string{url}},
		{"twice is unclear", "POST", 200, url, head("Location: /x", "Location: /y"), []string{url}},
		{"normalised", "POST", 200, "HTTP://WWW.Example.com:80/%7eA/./b", head("Location: /é|%2f"), []string{"http://www.example.com/~A/b", "http://www.example.com/%C3%A9|%2F"}},
		{"far too long", "POST", 200, url, head("Location: /" + strings.Repeat("x", maxReferenceLen)), []string{url}},
		{"a URL that isn't one", "POST", 200, "/x", head("Location: /y"), []string{"/x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Invalidates(c.method, c.status, c.url, c.header); !slices.Equal(got, c.want) {
				t.Errorf("Invalidates = %q, want %q", got, c.want)
			}
		})
	}
}

// The examples of RFC 3986 §5.4, but for those whose result is no http URL,
// without fragments, which are no part of a key.
func TestResolve(t *testing.T) {
	for ref, want := range map[string]string{
		"g": "/b/c/g", "./g": "/b/c/g", "g/": "/b/c/g/", "/g": "/g", "?y": "/b/c/d;p?y", "g?y": "/b/c/g?y", "#s": "/b/c/d;p?q", "g#s": "/b/c/g",
		"g?y#s": "/b/c/g?y", ";x": "/b/c/;x", "g;x": "/b/c/g;x", "g;x?y#s": "/b/c/g;x?y", "": "/b/c/d;p?q", ".": "/b/c/", "./": "/b/c/",
		"..": "/b/", "../": "/b/", "../g": "/b/g", "../..": "/", "../../": "/", "../../g": "/g",
		"../../../g": "/g", "../../../../g": "/g", "/./g": "/g", "/../g": "/g", "g.": "/b/c/g.", ".g": "/b/c/.g", "g..": "/b/c/g..", "..g": "/b/c/..g",
		"./../g": "/b/g", "./g/.": "/b/c/g/", "g/./h": "/b/c/g/h", "g/../h": "/b/c/h", "g;x=1/./y": "/b/c/g;x=1/y", "g;x=1/../y": "/b/c/y",
		"g?y/./x": "/b/c/g?y/./x", "g?y/../x": "/b/c/g?y/../x",
	} {
		if got, ok := resolve("http://a/b/c/d;p?q", ref); !ok || got != "http://a"+want {
			t.Errorf("%q is %q, %v; want %q", ref, got, ok, "http://a"+want)
		}
	}
	if got, ok := resolve("http://a/b/c/d;p?q", "//g"); !ok || got != "http://g/" {
		t.Errorf("//g is %q", got)
	}
	for _, ref := range []string{"g:h", "http:g", "urn:a:b", "ftp://a/b", "g+h.1-x:y", "http://", "http:///x", "https://h:x/", "//a b/"} {
		if got, ok := resolve("http://a/b/c/d;p?q", ref); ok {
			t.Errorf("%q is %q", ref, got)
		}
	}
	for ref, want := range map[string]string{"1a:b": "/b/c/1a:b", "./a:b": "/b/c/a:b", ":b": "/b/c/:b", "g_h:b": "/b/c/g_h:b"} {
		if got, ok := resolve("http://a/b/c/d", ref); !ok || got != "http://a"+want {
			t.Errorf("%q is %q, %v", ref, got, ok)
		}
	}
	if got, ok := resolve("http://a", "*"); !ok || got != "http://a/*" {
		t.Errorf("* is %q, %v", got, ok)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("http://a/b/c/d;p?q", "../g;x=1/./y#s")
	f.Add("https://[::1]:443/", "//h:80/%41")
	f.Fuzz(func(t *testing.T, base, ref string) {
		u, ok := resolve(base, ref)
		if !ok {
			return
		}
		if len(u) > maxReferenceLen {
			return // escaping makes it longer than what is read again
		}
		if again, ok := resolve(u, ""); !ok || again != u {
			t.Errorf("%q at %q is %q, and that is %q, %v", ref, base, u, again, ok)
		}
		if o := originOf(u); !strings.HasPrefix(u, o+"/") {
			t.Errorf("origin of %q is %q", u, o)
		}
	})
}
