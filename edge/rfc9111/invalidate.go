package rfc9111

import (
	"net/http"
	"slices"
	"strings"
)

// Invalidates are the URLs whose stored responses a response to an unsafe or
// unknown method makes invalid, §4.4: that of the request, and those of
// Location and Content-Location that have the same origin. None for a safe
// method, and none unless the status is 2xx or 3xx.
//
// reqURL is the target URI. The result has the form
// scheme://host[:port]/path[?query], host and target as [CanonicalHost] and
// [NormaliseTarget] make them, so as to be used as keys.
func Invalidates(method string, status int, reqURL string, h http.Header) []string {
	if IsSafe(method) || status < 200 || status > 399 {
		return nil
	}
	target, ok := resolve(reqURL, "")
	if !ok {
		return []string{reqURL}
	}
	urls := []string{target}
	for _, name := range [...]string{"Location", "Content-Location"} {
		lines := h[name]
		if len(lines) != 1 {
			continue
		}
		if u, ok := resolve(target, lines[0]); ok && originOf(u) == originOf(target) && !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	return urls
}

// originOf is scheme://host[:port] of a URL that resolve returned.
func originOf(u string) string {
	n := strings.Index(u, "://") + len("://")
	if slash := strings.IndexByte(u[n:], '/'); slash >= 0 {
		return u[:n+slash]
	}
	return u
}

// maxReferenceLen bounds the URLs that are taken from responses.
const maxReferenceLen = 8 << 10

// uri is a URI or reference in its parts, RFC 3986 §3, without fragment.
type uri struct {
	scheme, authority, path, query string
	hasAuthority, hasQuery         bool
}

func splitURI(s string) uri {
	var u uri
	if i := strings.IndexByte(s, '#'); i >= 0 {
		s = s[:i]
	}
	if i := strings.IndexByte(s, '?'); i >= 0 {
		s, u.query, u.hasQuery = s[:i], s[i+1:], true
	}
	if i := strings.IndexAny(s, ":/"); i > 0 && s[i] == ':' && isScheme(s[:i]) {
		u.scheme, s = strings.ToLower(s[:i]), s[i+1:]
	}
	if strings.HasPrefix(s, "//") {
		u.hasAuthority = true
		s = s[len("//"):]
		if i := strings.IndexByte(s, '/'); i >= 0 {
			u.authority, s = s[:i], s[i:]
		} else {
			u.authority, s = s, ""
		}
	}
	u.path = s
	return u
}

func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlpha(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return true
}

// resolve is the reference ref, found at the http or https URL base, in the
// form of a cache key, RFC 3986 §5.2.
func resolve(base, ref string) (string, bool) {
	ref = trim(ref)
	if len(ref) > maxReferenceLen || len(base) > maxReferenceLen {
		return "", false
	}
	b, r := splitURI(base), splitURI(ref)
	switch {
	case r.scheme != "":
	case r.hasAuthority:
		r.scheme = b.scheme
	default:
		r.scheme, r.authority, r.hasAuthority = b.scheme, b.authority, b.hasAuthority
		switch {
		case r.path == "":
			r.path = b.path
			if !r.hasQuery {
				r.query, r.hasQuery = b.query, b.hasQuery
			}
		case r.path[0] != '/':
			r.path = b.path[:strings.LastIndexByte(b.path, '/')+1] + r.path
		}
	}
	if !r.hasAuthority || r.scheme != "http" && r.scheme != "https" {
		return "", false
	}
	if r.path == "" || r.path[0] != '/' {
		r.path = "/" + r.path
	}
	host, ok := CanonicalHost(r.authority, r.scheme)
	if !ok {
		return "", false
	}
	return r.scheme + "://" + host + NormaliseTarget(r.path, r.query), true
}
