package rfc9111

import (
	"net/http"
	"slices"
)

// IsConditional reports whether the request has a precondition that a cache
// may answer with 304, §4.3.2. A request without gets no 304.
func IsConditional(req http.Header) bool {
	return len(req["If-None-Match"]) > 0 || len(req["If-Modified-Since"]) > 0
}

// EvaluateConditional reports whether a GET or HEAD with these fields is
// answered with 304 from the stored response that was selected for it, whose
// kept header and rules are given, §4.3.2. If-None-Match goes before
// If-Modified-Since, RFC 9110 §13.2.2, and is compared weakly. Without
// Last-Modified, If-Modified-Since is compared with Date.
//
// If-Match and If-Unmodified-Since aren't for caches. A response other than
// 2xx is sent whatever the preconditions, RFC 9110 §13.2.1. It does not
// allocate.
func EvaluateConditional(req, stored http.Header, s *Stored) (notModified bool) {
	if s.Status < 200 || s.Status > 299 {
		return false
	}
	if lines := req["If-None-Match"]; len(lines) > 0 {
		return noneMatch(lines, etagOf(stored))
	}
	lines := req["If-Modified-Since"]
	if len(lines) != 1 {
		return false
	}
	since, ok := ParseDate(lines[0], s.ResponseTime)
	if !ok {
		return false
	}
	if s.has(FlagLastModified) {
		return s.LastModified <= since.Unix()
	}
	return s.Date <= since.Unix()
}

// noneMatch reports whether If-None-Match makes the condition false, so that a
// 304 is the answer. "*" means any stored representation.
func noneMatch(lines []string, tag string) bool {
	for t := range etags(lines) {
		if weakMatch(tag, t) {
			return true
		}
	}
	return len(lines) == 1 && trim(lines[0]) == "*"
}

// NotModifiedHeader is what of a stored header goes into a 304, RFC 9110
// §15.4.5: Cache-Control, CDN-Cache-Control, Content-Location, Date, ETag,
// Expires and Vary, and Last-Modified where there is no ETag. The lines are
// shared with stored. The caller adds Age and what its connection needs.
func NotModifiedHeader(stored http.Header) http.Header {
	h := make(http.Header, 8)
	for _, name := range [...]string{
		"Cache-Control", "Cdn-Cache-Control", "Content-Location", "Date", "Etag", "Expires", "Vary",
	} {
		if lines := stored[name]; len(lines) > 0 {
			h[name] = slices.Clip(lines)
		}
	}
	if lines := stored["Last-Modified"]; len(lines) > 0 && etagOf(stored) == "" {
		h["Last-Modified"] = slices.Clip(lines)
	}
	return h
}
