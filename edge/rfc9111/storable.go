package rfc9111

import "net/http"

// Storable decides whether a shared cache may store the response, §3, and
// whether that would be of any use: a response that could never be reused,
// because it is stale, can't be validated and may not be served stale, is not
// stored either.
//
// It judges the header only. A response whose body did not come in whole must
// not be stored as complete: see [Complete].
func Storable(x Exchange, p Policy) Verdict {
	cc, targeted := Control(x.Header)
	if v := storableMethod(x, &cc, targeted); !v.OK {
		return v
	}
	if v := storableStatus(x, p); !v.OK {
		return v
	}
	understood := cc.MustUnderstand && IsUnderstood(x.Status)
	switch {
	case cc.MustUnderstand && !understood:
		return no("Cache-Control must-understand with a status that isn't understood, §5.2.2.3")
	case cc.NoStore && !understood:
		return no("Cache-Control no-store, §5.2.2.5")
	case cc.Private:
		return no("Cache-Control private, §5.2.2.7")
	case p.HonourRequest && requestNoStore(x.ReqHeader):
		return no("request Cache-Control no-store, §5.2.1.5")
	case len(x.ReqHeader["Authorization"]) > 0 && !cc.sharedAllowed():
		return no("request Authorization without public, must-revalidate or s-maxage, §3.5")
	}
	if _, star := NominatedFields(x.Header); star {
		return no("Vary *, §4.1")
	}
	if len(x.Header["Set-Cookie"]) > 0 && !keepsSetCookie(&cc, p) && !cc.hides("Set-Cookie") {
		return no("Set-Cookie without public or s-maxage (set_cookie: pass)")
	}
	return storableLifetime(x, p, &cc, targeted)
}

func no(rule string) Verdict { return Verdict{false, rule} }

func requestNoStore(h http.Header) bool {
	lines := h["Cache-Control"]
	if len(lines) == 0 {
		return false
	}
	cc := ParseCacheControl(lines)
	return cc.NoStore
}

// keepsSetCookie reports whether a Set-Cookie field may be stored.
func keepsSetCookie(cc *CacheControl, p Policy) bool {
	return p.StoreSetCookie || cc.Public || cc.SMaxAge.OK
}

// storableMethod: only responses to GET are stored, and those to POST that RFC
// 9110 §9.3.3 makes reusable for GET.
func storableMethod(x Exchange, cc *CacheControl, targeted bool) Verdict {
	switch x.Method {
	case http.MethodGet:
		if x.HasBody {
			return no("GET with content, RFC 9110 §9.3.1")
		}
		return Verdict{OK: true}
	case http.MethodPost:
		return postStorable(x, cc, targeted)
	case http.MethodHead:
		return no("HEAD has no content to store, §4.3.5")
	default:
		return no("method, §3")
	}
}

// postStorable: a POST's response answers later GETs when it has explicit
// freshness and says that it is what the target URI now holds, RFC 9110 §9.3.3.
func postStorable(x Exchange, cc *CacheControl, targeted bool) Verdict {
	switch {
	case x.Status < 200 || x.Status > 299:
		return no("POST that did not succeed, RFC 9110 §9.3.3")
	case !hasExplicitFreshness(x.Header, cc, targeted):
		return no("POST without explicit freshness, RFC 9110 §9.3.3")
	}
	lines := x.Header["Content-Location"]
	if len(lines) != 1 || x.URL == "" {
		return no("POST without Content-Location, RFC 9110 §9.3.3")
	}
	if at, ok := resolve(x.URL, lines[0]); !ok || at != x.URL {
		return no("POST with Content-Location of another URL, RFC 9110 §9.3.3")
	}
	return Verdict{OK: true}
}

// storableStatus refuses what is no final response, or answers a condition or
// range of this one request rather than its target.
func storableStatus(x Exchange, p Policy) Verdict {
	switch {
	case x.Status < 200 || x.Status > 999:
		return no("not a final status, §3")
	case x.Status == http.StatusNotModified:
		return no("304 is no response of its own, §4.3.3")
	case x.Status == http.StatusPartialContent && !p.StorePartial:
		return no("206 is not kept, §3.3")
	case x.Status == http.StatusPartialContent:
		if _, _, ok := contentRangeOf(x.Header); !ok {
			return no("206 without one readable Content-Range, §3.3")
		}
	case x.Status == http.StatusRequestedRangeNotSatisfiable && len(x.ReqHeader["Range"]) > 0:
		return no("416 to the Range of this request")
	case x.Status == http.StatusPreconditionFailed && hasPrecondition(x.ReqHeader):
		return no("412 to the preconditions of this request")
	}
	return Verdict{OK: true}
}

func hasPrecondition(h http.Header) bool {
	return IsConditional(h) || len(h["If-Match"]) > 0 || len(h["If-Unmodified-Since"]) > 0
}

// storableLifetime is the last part of §3: explicit freshness, public, or a
// status that allows a heuristic; and that the response can be of use.
func storableLifetime(x Exchange, p Policy, cc *CacheControl, targeted bool) Verdict {
	if !hasExplicitFreshness(x.Header, cc, targeted) && !cc.Public && !IsHeuristicallyCacheable(x.Status) &&
		!(p.NegativeTTL > 0 && p.IsAbsence(x.Status)) {
		return no("no freshness information, and the status isn't cacheable by default, §3")
	}
	if cc.NoCache {
		if hasValidator(x.Header) {
			return Verdict{true, "no-cache: stored, validated on every use, §5.2.2.4"}
		}
		return no("no-cache without a validator: of no use, §5.2.2.4")
	}
	life, rule := lifetime(x, p, cc, targeted)
	if x.StaleFor <= 0 && life > initialAge(x) {
		return Verdict{true, rule}
	}
	switch {
	case hasValidator(x.Header):
		return Verdict{true, "stale, but it can be validated, §4.3"}
	case cc.neverStale():
	case cc.StaleWhileRevalidate.Duration > 0:
		return Verdict{true, "stale, but stale-while-revalidate, RFC 5861 §3"}
	case cc.SMaxAge.OK:
	case cc.StaleIfError.Duration > 0:
		return Verdict{true, "stale, but stale-if-error, RFC 5861 §4"}
	case p.HonourRequest && hasExplicitFreshness(x.Header, cc, targeted):
		return Verdict{true, "stale, but requests may accept that, §5.2.1.2"}
	case p.StaleGrace > 0 && !cc.StaleIfError.OK && hasExplicitFreshness(x.Header, cc, targeted):
		return Verdict{true, "stale, but within the configured grace"}
	}
	if hasExplicitFreshness(x.Header, cc, targeted) {
		return no("stale on arrival, without a validator: of no use, §4.2")
	}
	return no(rule)
}

// NoCache reports whether the response must not be used again without a
// successful validation, §5.2.2.4.
func NoCache(h http.Header) bool {
	cc, _ := Control(h)
	return cc.NoCache
}

// Complete reports whether a response is complete, §3.3: its body ended as its
// framing said (ended), and has the length that Content-Length said. method is
// the request's, bodyLen the number of bytes that came after transfer codings.
func Complete(method string, status int, h http.Header, bodyLen int64, ended bool) bool {
	if !ended {
		return false
	}
	if method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
		return bodyLen == 0
	}
	lines := h["Content-Length"]
	if len(lines) == 0 {
		return true
	}
	for m := range members(lines) {
		n, ok := parseLength(m)
		if !ok || n != bodyLen {
			return false
		}
	}
	return true
}
