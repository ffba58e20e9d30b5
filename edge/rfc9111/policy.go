package rfc9111

import (
	"net/http"
	"slices"
	"time"
)

// Policy is what a site's configuration adds to the standards. The zero value
// is the safe default. It is a plain value: copy it freely.
type Policy struct {
	// StoreSetCookie stores a response that has Set-Cookie whenever RFC 9111
	// allows it. False: only when public or s-maxage says that it is meant for
	// more than one client.
	StoreSetCookie bool

	// HonourRequest obeys the clients' Cache-Control and Pragma. False: clients
	// do not control a cache that isn't theirs.
	HonourRequest bool

	// StorePartial lets a 206 be stored. It needs a store that keeps partial
	// responses apart from complete ones; false refuses every 206.
	StorePartial bool

	// StaleGrace is how long past its freshness lifetime a response without
	// stale-if-error is served when the origin fails. Zero: not at all.
	StaleGrace time.Duration

	// HeuristicFraction is the part of Date - Last-Modified that a response
	// without explicit freshness stays fresh. Zero: 0.10, as RFC 9111 §4.2.2
	// proposes. Below zero: no heuristic freshness.
	HeuristicFraction float64

	// HeuristicCap is the longest heuristic freshness lifetime. Zero: 24 h.
	HeuristicCap time.Duration

	// NegativeTTL is the freshness lifetime of an absence (see IsAbsence) that has
	// no freshness information of its own. Zero: such a response isn't reused.
	NegativeTTL time.Duration

	// Absences are statuses beside 404 and 410 by which the origin says that
	// there is nothing under a URL: 403, as object stores do.
	Absences []int
}

// IsAbsence reports whether the status says that there is nothing under the
// URL.
func (p Policy) IsAbsence(status int) bool {
	return IsAbsence(status) || slices.Contains(p.Absences, status)
}

func (p Policy) heuristicFraction() float64 {
	if p.HeuristicFraction == 0 {
		return 0.10
	}
	return max(p.HeuristicFraction, 0)
}

func (p Policy) heuristicCap() time.Duration {
	if p.HeuristicCap <= 0 {
		return 24 * time.Hour
	}
	return p.HeuristicCap
}

// Exchange is a request that went to an origin, a shield or a peer, and the
// final response as it was received, before any field is removed. The rules
// only read it. ReqHeader holds what the client sent, as the fields that Vary
// and Authorization speak of are the client's.
type Exchange struct {
	Method    string
	URL       string // canonical target URI, as [CanonicalHost] and [NormaliseTarget] make it; read for POST only
	ReqHeader http.Header
	HasBody   bool // the request had content

	Status int
	Header http.Header

	// RequestTime is when the request was sent, ResponseTime when the header
	// section was received. Both should carry the monotonic clock's reading. A
	// zero RequestTime counts as ResponseTime.
	RequestTime, ResponseTime time.Time

	// StaleFor is above zero when the cache that answered said that it served
	// this stale, and for how long already; see [StaleFromPeer].
	StaleFor time.Duration
}

// Verdict is a decision with the field that made it and the section that the
// decision rests on, such as "Cache-Control no-store, §5.2.2.5". Sections
// without a document are those of RFC 9111. Rule is always a constant string.
type Verdict struct {
	OK   bool
	Rule string
}
