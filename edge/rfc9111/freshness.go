package rfc9111

import (
	"net/http"
	"time"
)

// Lifetime is the freshness lifetime of a response, §4.2.1, and the rule that
// gave it. It is never negative, and 0 when the response is stale from the
// start or has no freshness information. Where it came from, in this order:
// s-maxage, max-age, Expires, the heuristic, Policy.NegativeTTL; the first that
// is present decides, whatever the later ones say. There is no default.
func Lifetime(x Exchange, p Policy) (time.Duration, string) {
	cc, targeted := Control(x.Header)
	return lifetime(x, p, &cc, targeted)
}

const (
	ruleSMaxAge         = "Cache-Control s-maxage, §5.2.2.10"
	ruleMaxAge          = "Cache-Control max-age, §5.2.2.1"
	ruleTargetedSMaxAge = "CDN-Cache-Control s-maxage, RFC 9213 §2.2"
	ruleTargetedMaxAge  = "CDN-Cache-Control max-age, RFC 9213 §2.2"
	ruleExpires         = "Expires, §5.3"
	ruleExpiresMany     = "Expires more than once: already expired, §5.3"
	ruleExpiresInvalid  = "Expires is not a date: already expired, §5.3"
	ruleHeuristic       = "heuristic from Last-Modified, §4.2.2"
	ruleHeuristicOff    = "heuristic freshness is configured off"
	ruleHeuristicStatus = "no freshness information, and the status allows no heuristic, §4.2.2"
	ruleNegativeTTL     = "negative.ttl for an absence without freshness information"
	ruleNoFreshness     = "no freshness information and no Last-Modified, §4.2.2"
)

func lifetime(x Exchange, p Policy, cc *CacheControl, targeted bool) (time.Duration, string) {
	switch {
	case cc.SMaxAge.OK && targeted:
		return cc.SMaxAge.Duration, ruleTargetedSMaxAge
	case cc.SMaxAge.OK:
		return cc.SMaxAge.Duration, ruleSMaxAge
	case cc.MaxAge.OK && targeted:
		return cc.MaxAge.Duration, ruleTargetedMaxAge
	case cc.MaxAge.OK:
		return cc.MaxAge.Duration, ruleMaxAge
	case hasExpires(x.Header, targeted):
		return expires(x)
	}
	d, rule := heuristic(x, p, cc)
	if d <= 0 && p.NegativeTTL > 0 && p.IsAbsence(x.Status) {
		return min(p.NegativeTTL, maxDelta), ruleNegativeTTL
	}
	return d, rule
}

// hasExplicitFreshness reports whether the response says itself how long it
// stays fresh, even if that is no time at all, §4.2.1.
func hasExplicitFreshness(h http.Header, cc *CacheControl, targeted bool) bool {
	return cc.SMaxAge.OK || cc.MaxAge.OK || hasExpires(h, targeted)
}

func hasExpires(h http.Header, targeted bool) bool { return !targeted && len(h["Expires"]) > 0 }

// expires is Expires minus Date, §4.2.1.
func expires(x Exchange) (time.Duration, string) {
	lines := x.Header["Expires"]
	if len(lines) > 1 {
		return 0, ruleExpiresMany
	}
	at, ok := ParseDate(lines[0], x.ResponseTime)
	if !ok {
		return 0, ruleExpiresInvalid
	}
	return clamp(at.Sub(dateOrReceived(x))), ruleExpires
}

// heuristic is a part of the time since the last modification, §4.2.2.
func heuristic(x Exchange, p Policy, cc *CacheControl) (time.Duration, string) {
	if !IsHeuristicallyCacheable(x.Status) && !cc.Public {
		return 0, ruleHeuristicStatus
	}
	modified, ok := dateField(x.Header, "Last-Modified", x.ResponseTime)
	if !ok {
		return 0, ruleNoFreshness
	}
	f := p.heuristicFraction()
	if f == 0 {
		return 0, ruleHeuristicOff
	}
	d := float64(clamp(dateOrReceived(x).Sub(modified))) * f
	if d > float64(p.heuristicCap()) {
		return p.heuristicCap(), ruleHeuristic
	}
	return time.Duration(d), ruleHeuristic
}

// dateOrReceived is the response's Date; the time of receipt when it has none
// that can be read, RFC 9110 §6.6.1.
func dateOrReceived(x Exchange) time.Time {
	if t, ok := dateField(x.Header, "Date", x.ResponseTime); ok {
		return t
	}
	return x.ResponseTime
}

// clamp brings a duration between 0 and maxDelta.
func clamp(d time.Duration) time.Duration { return min(max(d, 0), maxDelta) }

// initialAge is corrected_initial_age of §4.2.3. The time of receipt is cut to
// whole seconds where it is compared with Date, which has no finer grain:
// else a response that was made and received within one second would already
// have an age of up to a second, and max-age=1 would hardly ever be fresh.
func initialAge(x Exchange) time.Duration {
	apparent := clamp(x.ResponseTime.Truncate(time.Second).Sub(dateOrReceived(x)))
	delay := time.Duration(0)
	if !x.RequestTime.IsZero() {
		delay = clamp(x.ResponseTime.Sub(x.RequestTime))
	}
	return min(max(apparent, ageValue(x.Header)+delay), maxDelta)
}

// ageValue reads Age, §5.1: the first member of the first line. One that isn't
// digits alone is ignored.
func ageValue(h http.Header) time.Duration {
	lines := h["Age"]
	if len(lines) == 0 {
		return 0
	}
	for m := range members(lines[:1]) {
		d, _ := parseDelta(m)
		return d
	}
	return 0
}
