package rfc9111

import "net/http"

// RequestDirectives are the cache directives of a request, §5.2.1 and §5.4. The
// zero value asks for nothing.
type RequestDirectives struct {
	// OnlyIfCached is read whatever the policy: peers ask each other with it. A
	// cache that ignores its clients' directives looks at it for peers only.
	OnlyIfCached bool

	NoCache bool // also from Pragma, when there is no Cache-Control
	NoStore bool // the response to this request must not be stored, §5.2.1.5; it may be answered from the store

	MaxAge   Delta
	MinFresh Delta
	MaxStale Delta
	AnyStale bool // max-stale without an argument
}

// ParseRequestDirectives reads Cache-Control and Pragma of a request. When p
// does not honour them, only OnlyIfCached is read. It does not allocate.
func ParseRequestDirectives(h http.Header, p Policy) RequestDirectives {
	lines := h["Cache-Control"]
	if len(lines) == 0 {
		return RequestDirectives{NoCache: p.HonourRequest && pragmaNoCache(h)}
	}
	cc := ParseCacheControl(lines)
	if !p.HonourRequest {
		return RequestDirectives{OnlyIfCached: cc.OnlyIfCached}
	}
	return RequestDirectives{
		OnlyIfCached: cc.OnlyIfCached,
		NoCache:      cc.NoCache,
		NoStore:      cc.NoStore,
		MaxAge:       cc.MaxAge,
		MinFresh:     cc.MinFresh,
		MaxStale:     cc.MaxStale,
		AnyStale:     cc.AnyStale,
	}
}

// pragmaNoCache reports whether Pragma has no-cache, §5.4. Pragma in a response
// means nothing.
func pragmaNoCache(h http.Header) bool {
	for m := range members(h["Pragma"]) {
		if equalFold(m, "no-cache") {
			return true
		}
	}
	return false
}
