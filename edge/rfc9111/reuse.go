package rfc9111

import "time"

// Reuse is what may be done with a stored response that was selected for a
// request, §4.2. The zero value is the safe one.
type Reuse int

const (
	// Validate: stale, or no-cache; use it after a validation only (fwd=stale).
	Validate Reuse = iota
	// Fresh: serve it.
	Fresh
	// StaleWhileRevalidate: serve it stale, and validate it behind, RFC 5861 §3.
	StaleWhileRevalidate
	// MaxStale: serve it stale, as the request accepts that, §5.2.1.2.
	MaxStale
	// RequestForbids: it could be served, but the request asks for a newer one
	// (fwd=request). The stored response can be validated.
	RequestForbids
)

// String is the reuse as logs name it.
func (r Reuse) String() string {
	switch r {
	case Fresh:
		return "fresh"
	case StaleWhileRevalidate:
		return "stale-while-revalidate"
	case MaxStale:
		return "max-stale"
	case RequestForbids:
		return "request"
	default:
		return "validate"
	}
}

// Served reports whether the stored response may be sent at once.
func (r Reuse) Served() bool { return r == Fresh || r == StaleWhileRevalidate || r == MaxStale }

// Decide says what may be done with the stored response for a request with
// these directives, and the rule that decided. It does not allocate; rule is a
// constant. Which of several stored responses is meant, and only-if-cached,
// are the caller's: see [Matches].
func (s *Stored) Decide(req RequestDirectives, now time.Time) (reuse Reuse, rule string) {
	if s.has(FlagNoCache) {
		return Validate, "response no-cache, §5.2.2.4"
	}
	age := s.Age(now)
	ttl := s.Lifetime - age
	switch {
	case req.NoCache:
		return RequestForbids, "request no-cache, §5.2.1.4"
	case req.MaxAge.OK && age > req.MaxAge.Duration:
		return RequestForbids, "request max-age, §5.2.1.1"
	case req.MinFresh.OK && ttl < req.MinFresh.Duration:
		return RequestForbids, "request min-fresh, §5.2.1.3"
	case ttl > 0:
		return Fresh, "fresh, §4.2"
	case s.has(FlagMustRevalidate):
		return Validate, "stale, and must-revalidate or proxy-revalidate, §4.2.4"
	}
	if !s.has(FlagSMaxAge) {
		// s-maxage implies proxy-revalidate, §5.2.2.10.
		if req.AnyStale || req.MaxStale.OK && -ttl <= req.MaxStale.Duration {
			return MaxStale, "request max-stale, §5.2.1.2"
		}
	}
	// An origin that writes s-maxage and stale-while-revalidate side by side
	// says what it wants of shared caches: here the word it spelled out goes
	// before the one that s-maxage implies.
	if s.SWR > 0 && -ttl <= s.SWR && !req.MaxAge.OK {
		// A request max-age without max-stale accepts no stale one, §5.2.1.1.
		return StaleWhileRevalidate, "stale-while-revalidate, RFC 5861 §3"
	}
	return Validate, "stale, §4.2.4"
}

// StaleOnError reports whether the stored response may be served when the
// origin can't be reached or fails (see [IsOriginFailure]): while it is within
// its stale-if-error, RFC 5861 §4, or without that directive within the
// policy's grace, unless the response forbids to serve it stale, §4.2.4.
//
// It may also be asked for a fresh response of which the request wanted a
// newer one; that is allowed unless the response has no-cache.
func (s *Stored) StaleOnError(now time.Time, p Policy) bool {
	if s.has(FlagNoCache) {
		return false
	}
	stale := -s.TTL(now)
	if stale < 0 {
		return true
	}
	if s.has(FlagMustRevalidate | FlagSMaxAge) {
		return false
	}
	if s.has(FlagStaleIfError) {
		return stale <= s.SIE
	}
	return p.StaleGrace > 0 && stale <= p.StaleGrace
}

// StaleUse is for how long past its freshness lifetime the response may be of
// use without an answer of the origin: the longest of what [Stored.Decide] and
// [Stored.StaleOnError] allow, but for a request's max-stale.
func (s *Stored) StaleUse(p Policy) time.Duration {
	if s.has(FlagNoCache | FlagMustRevalidate) {
		return 0
	}
	d := s.SWR
	switch {
	case s.has(FlagSMaxAge):
	case s.has(FlagStaleIfError):
		d = max(d, s.SIE)
	default:
		d = max(d, p.StaleGrace)
	}
	return d
}
