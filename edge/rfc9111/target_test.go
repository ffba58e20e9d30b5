package rfc9111

import (
	"net/url"
	"strings"
	"testing"
)

// Rule 32: the target's one form (RFC 3986 §6.2.2).
func TestNormaliseTarget(t *testing.T) {
	for _, c := range []struct{ name, path, query, want string }{
		{"nothing to do", "/a/b", "", "/a/b"},
		{"query", "/a", "b=c&a=d", "/a?b=c&a=d"},
		{"empty path", "", "", "/"},
		{"empty path with query", "", "x", "/?x"},
		{"star", "*", "", "*"},
		{"no slash", "a", "", "/a"},
		{"case of percent-encodings (§6.2.2.1)", "/%c3%a9", "%c3%A9", "/%C3%A9?%C3%A9"},
		{"case of letters stays", "/Ab", "Cd", "/Ab?Cd"},
		{"unreserved are decoded (§6.2.2.2)", "/%41%7e%2d%2E%5f%30", "%41%7E", "/A~-._0?A~"},
		{"slash is never decoded", "/a%2fb", "a%2fb", "/a%2Fb?a%2Fb"},
		{"reserved aren't decoded", "/%3f%23%25%20%3B%2B%26", "%26%3D%2b", "/%3F%23%25%20%3B%2B%26?%26%3D%2B"},
		{"NUL isn't decoded", "/%00", "", "/%00"},
		{"no decoding twice", "/%2541", "", "/%2541"},
		{"plus stays", "/a+b", "a+b", "/a+b?a+b"},
		{"order of the query stays", "/", "b=1&a=2&b=0&&", "/?b=1&a=2&b=0&&"},
		{"dots in the query stay", "/", "/../.", "/?/../."},
		{"question mark in the query stays", "/", "a?b", "/?a?b"},
		{"malformed segment stays", "/%zz%41/%41", "", "/%zz%41/A"},
		{"malformed segment that goes", "/%2e%2e/%%34%31/..", "", "/"},
		{"malformed path, query doesn't care", "/%", "%41", "/%?A"},
		{"cut off", "/%4", "%", "/%4?%"},
		{"no encoding is made by decoding", "/%%34%31", "", "/%%34%31"},
		{"dot segments (§5.2.4)", "/a/b/c/./../../g", "", "/a/g"},
		{"dot at the end", "/a/.", "", "/a/"},
		{"dots at the end", "/a/b/..", "", "/a/"},
		{"dots to the root", "/a/..", "", "/"},
		{"above the root", "/../../a", "", "/a"},
		{"only dots", "/..", "", "/"},
		{"only a dot", "/.", "", "/"},
		{"encoded dots", "/a/%2e%2E/b/%2e", "", "/b/"},
		{"three dots are a name", "/.../a", "", "/.../a"},
		{"dots in names", "/.a/b./..c/d..", "", "/.a/b./..c/d.."},
		{"encoded slash makes no segment", "/a/..%2fb", "", "/a/..%2Fb"},
		{"backslash is no slash", `/a\..\b`, "", `/a\..\b`},
		{"empty segments stay", "//a//b/", "", "//a//b/"},
		{"an empty segment is one", "/a//../b", "", "/a/b"},
		{"beyond ASCII", "/é", "é", "/%C3%A9?%C3%A9"},
		{"controls and space", "/a b\x00\x7f", "\r\n", "/a%20b%00%7F?%0D%0A"},
		{"number sign", "/a#b", "c#d", "/a%23b?c%23d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := NormaliseTarget(c.path, c.query)
			if got != c.want {
				t.Errorf("NormaliseTarget(%q, %q) = %q, want %q", c.path, c.query, got, c.want)
			}
			path, query, _ := strings.Cut(got, "?")
			if again := NormaliseTarget(path, query); again != got {
				t.Errorf("%q isn't a fixed point: %q", got, again)
			}
			if appended := string(AppendTarget([]byte("x:"), c.path, c.query)); appended != "x:"+got {
				t.Errorf("AppendTarget: %q", appended)
			}
		})
	}
	allocates(t, "NormaliseTarget", func() { NormaliseTarget("/static/app.3f2a.js", "") })
	buf := make([]byte, 0, 64)
	allocates(t, "AppendTarget", func() { AppendTarget(buf, "/static/app.3f2a.js", "v=1%20") })
}

func FuzzNormaliseTarget(f *testing.F) {
	f.Add("/a/b/c/./../../g", "%7e")
	f.Add("/%2e%2e/%%34%31/..", "a#b")
	f.Add("//..", "?")
	f.Fuzz(func(t *testing.T, path, query string) {
		// A path never holds a raw "?", as that is where it was cut.
		path = strings.ReplaceAll(path, "?", "")
		got := NormaliseTarget(path, query)
		p, q, _ := strings.Cut(got, "?")
		if again := NormaliseTarget(p, q); again != got {
			t.Errorf("%q, %q is %q, and that is %q", path, query, got, again)
		}
		for i := range len(got) {
			if got[i] <= ' ' || got[i] >= 0x7f || got[i] == '#' {
				t.Errorf("byte %x in %q", got[i], got)
			}
		}
		if p != "*" && !strings.HasPrefix(p, "/") {
			t.Errorf("path %q", p)
		}
		for _, segment := range strings.Split(p, "/") {
			if segment == "." || segment == ".." {
				t.Errorf("dot segment in %q", p)
			}
		}
		// The meaning of the path is the same: decoded, but for dot segments.
		if strings.Contains(path, ".") || strings.Contains(path, "%") && !encodingsAreWhole(path) || !strings.HasPrefix(path, "/") {
			return
		}
		before, err1 := url.PathUnescape(path)
		after, err2 := url.PathUnescape(p)
		if err1 == nil && err2 == nil && before != after && !strings.Contains(before, ".") {
			t.Errorf("%q means %q, but %q means %q", path, before, p, after)
		}
	})
}

// Rule 32: the host's one form (RFC 9110 §4.2.3).
func TestCanonicalHost(t *testing.T) {
	for _, c := range []struct{ name, in, scheme, want string }{
		{"name", "www.example.com", "http", "www.example.com"},
		{"case", "WWW.Example.COM", "http", "www.example.com"},
		{"port", "example.com:8080", "http", "example.com:8080"},
		{"port and case", "Example.com:8080", "https", "example.com:8080"},
		{"default port of http", "example.com:80", "http", "example.com"},
		{"default port of https", "example.com:443", "https", "example.com"},
		{"the other default port", "example.com:443", "http", "example.com:443"},
		{"the other default port, https", "example.com:80", "https", "example.com:80"},
		{"empty port", "example.com:", "http", "example.com"},
		{"zeros before the port", "example.com:0080", "http", "example.com"},
		{"zeros before another port", "example.com:08080", "http", "example.com:8080"},
		{"port 0", "example.com:0", "http", "example.com:0"},
		{"largest port", "example.com:65535", "http", "example.com:65535"},
		{"IPv4", "127.0.0.1:8080", "http", "127.0.0.1:8080"},
		{"IPv6", "[::1]", "http", "[::1]"},
		{"IPv6 with port", "[::1]:8080", "http", "[::1]:8080"},
		{"IPv6 with default port", "[::1]:443", "https", "[::1]"},
		{"IPv6, long and in capitals", "[2001:0DB8:0:0:0:0:0:1]:81", "http", "[2001:db8::1]:81"},
		{"IPv6, long", "[0:0:0:0:0:0:0:1]", "http", "[::1]"},
		{"IPv6 that grows to the length of the whole", "[1::1.2.3.4]:99", "http", "[1::102:304]:99"},
		{"underscore", "a_b.example", "http", "a_b.example"},
		{"dot at the end stays", "example.com.", "http", "example.com."},
		{"one label", "localhost", "http", "localhost"},
		{"longest", strings.Repeat("a.", 126) + "a", "http", strings.Repeat("a.", 126) + "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := CanonicalHost(c.in, c.scheme)
			if !ok || got != c.want {
				t.Errorf("CanonicalHost(%q, %s) = %q, %v; want %q", c.in, c.scheme, got, ok, c.want)
			}
		})
	}
	for name, in := range map[string]string{
		"empty":               "",
		"only a port":         ":80",
		"port of letters":     "h:abc",
		"open bracket":        "[::1",
		"two ports":           "h:80:80",
		"bare IPv6":           "::1",
		"close bracket":       "::1]",
		"text behind":         "[::1]x",
		"two ports, IPv6":     "[::1]:80:80",
		"IPv4 in brackets":    "[127.0.0.1]",
		"name in brackets":    "[localhost]",
		"empty brackets":      "[]",
		"zone":                "[fe80::1%25eth0]",
		"zone, unencoded":     "[fe80::1%eth0]",
		"user":                "user@example.com",
		"user and password":   "u:p@example.com",
		"path":                "example.com/",
		"query":               "example.com?a",
		"fragment":            "example.com#a",
		"space":               "example.com ",
		"space within":        "exam ple.com",
		"tab":                 "example.com\t",
		"NUL":                 "example.com\x00",
		"line feed":           "example.com\n",
		"backslash":           `example.com\`,
		"comma":               "a.example,b.example",
		"percent":             "ex%61mple.com",
		"beyond ASCII":        "exämple.com",
		"empty label":         "example..com",
		"dot before":          ".example.com",
		"only a dot":          ".",
		"two dots at the end": "example.com..",
		"port too large":      "example.com:65536",
		"port huge":           "example.com:99999999999999999999999999",
		"negative port":       "example.com:-80",
		"signed port":         "example.com:+80",
		"space before port":   "example.com: 80",
		"URL":                 "http://example.com",
		"too long":            strings.Repeat("a.", 127) + "a",
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if got, ok := CanonicalHost(in, "http"); ok {
				t.Errorf("CanonicalHost(%q) = %q; want it refused", in, got)
			}
		})
	}
	for _, in := range []string{"www.example.com", "www.example.com:8080", "www.example.com:80"} {
		allocates(t, "CanonicalHost", func() { CanonicalHost(in, "http") })
	}
}

func FuzzCanonicalHost(f *testing.F) {
	for _, s := range []string{"h:abc", "[::1", "h:80:80", "Example.com:443", "[2001:0DB8::1]:080", "a..b", "u@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, scheme := range []string{"http", "https"} {
			got, ok := CanonicalHost(in, scheme)
			if !ok {
				continue
			}
			if again, ok := CanonicalHost(got, scheme); !ok || again != got {
				t.Errorf("%q is %q, and that is %q, %v", in, got, again, ok)
			}
			if got != strings.ToLower(got) || strings.ContainsAny(got, "/?#@\\ %,") {
				t.Errorf("%q is %q", in, got)
			}
			if u, err := url.Parse(scheme + "://" + got + "/x"); err != nil || u.Host != got || u.Path != "/x" {
				t.Errorf("%q is %q, which in a URL is %v, %v", in, got, u, err)
			}
		}
	})
}
