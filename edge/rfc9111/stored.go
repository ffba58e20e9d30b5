package rfc9111

import (
	"net/http"
	"strconv"
	"time"
)

// Stored is what the rules need to know of a stored response each time it
// might be reused, computed once when it is stored or freshened. It is an
// immutable value without maps, fit to stand in an index or on disk; methods
// may be called from any goroutine. A validation makes a new one.
type Stored struct {
	// ResponseTime is when the response was received. In memory it carries the
	// monotonic reading, so that a stepped clock doesn't change ages.
	ResponseTime time.Time

	InitialAge time.Duration // corrected_initial_age, §4.2.3: the age at ResponseTime, 0 to 2^31 s
	Lifetime   time.Duration // freshness_lifetime, §4.2.1; below InitialAge when it arrived stale
	SWR        time.Duration // stale-while-revalidate, RFC 5861 §3; 0: none
	SIE        time.Duration // stale-if-error, RFC 5861 §4; read only with FlagStaleIfError

	Date         int64 // Unix seconds; of ResponseTime when the field is missing or no date
	LastModified int64 // Unix seconds; read only with FlagLastModified

	Status int16
	Flags  Flags
}

// Flags are the yes-or-no parts of a [Stored]. Their values may be kept on
// disk: append, don't renumber.
type Flags uint16

const (
	// FlagNoCache: every use needs a successful validation, §5.2.2.4.
	FlagNoCache Flags = 1 << iota
	// FlagMustRevalidate: never served stale (must-revalidate, proxy-revalidate).
	FlagMustRevalidate
	// FlagSMaxAge: s-maxage, which forbids stale responses like proxy-revalidate.
	FlagSMaxAge
	// FlagStaleIfError: SIE is present, be it 0.
	FlagStaleIfError
	// FlagETag and FlagLastModified: the validators that the response has.
	FlagETag
	FlagLastModified
	// FlagPartial: a 206, of which only the range in Content-Range is there.
	FlagPartial
	// FlagShared: public, must-revalidate or s-maxage is present, §3.5.
	FlagShared
	// FlagExplicit: the lifetime is the response's own, not a heuristic.
	FlagExplicit
	// FlagTargeted: CDN-Cache-Control decided, RFC 9213.
	FlagTargeted
)

// NewStored computes what a stored response's reuse depends on. It does not
// ask whether the response may be stored; see [Storable].
func NewStored(x Exchange, p Policy) Stored {
	cc, targeted := Control(x.Header)
	life, _ := lifetime(x, p, &cc, targeted)
	s := Stored{
		ResponseTime: x.ResponseTime,
		InitialAge:   initialAge(x),
		Lifetime:     life,
		SWR:          cc.StaleWhileRevalidate.Duration,
		SIE:          cc.StaleIfError.Duration,
		Date:         dateOrReceived(x).Unix(),
		Status:       int16(x.Status),
	}
	if x.StaleFor > 0 {
		// The cache that answered knows better: a purge there, say.
		s.Lifetime = min(s.Lifetime, s.InitialAge-clamp(x.StaleFor))
	}
	modified, hasModified := dateField(x.Header, "Last-Modified", x.ResponseTime)
	if hasModified {
		s.LastModified = modified.Unix()
	}
	s.set(FlagLastModified, hasModified)
	s.set(FlagNoCache, cc.NoCache)
	s.set(FlagMustRevalidate, cc.MustRevalidate || cc.ProxyRevalidate)
	s.set(FlagSMaxAge, cc.SMaxAge.OK)
	s.set(FlagStaleIfError, cc.StaleIfError.OK)
	s.set(FlagETag, etagOf(x.Header) != "")
	s.set(FlagPartial, x.Status == http.StatusPartialContent)
	s.set(FlagShared, cc.sharedAllowed())
	s.set(FlagExplicit, hasExplicitFreshness(x.Header, &cc, targeted))
	s.set(FlagTargeted, targeted)
	return s
}

func (s *Stored) set(f Flags, on bool) {
	if on {
		s.Flags |= f
	}
}

func (s *Stored) has(f Flags) bool { return s.Flags&f != 0 }

// Age is current_age of §4.2.3.
func (s *Stored) Age(now time.Time) time.Duration {
	return s.InitialAge + clamp(now.Sub(s.ResponseTime))
}

// TTL is how long the response stays fresh; below zero, for how long it has
// been stale. It is fresh while TTL is above zero.
func (s *Stored) TTL(now time.Time) time.Duration { return s.Lifetime - s.Age(now) }

// AppendAge appends the value of the Age field to send, §5.1.
func (s *Stored) AppendAge(dst []byte, now time.Time) []byte {
	return strconv.AppendInt(dst, Seconds(min(s.Age(now), maxDelta)), 10)
}

// Seconds rounds down to whole seconds, so that -0.3 s is -1: what is stale has
// a negative ttl in Cache-Status.
func Seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second < 0 {
		n--
	}
	return n
}

// HasValidator reports whether the response can be validated with a
// conditional request.
func (s *Stored) HasValidator() bool { return s.has(FlagETag | FlagLastModified) }

// AsStale is the response as of a soft purge, an invalidation that keeps it
// (§4.4), or a HEAD that disagrees with it (§4.3.5): stale for a second
// already, and without stale-while-revalidate, but still there to be validated
// and for stale-if-error.
func (s *Stored) AsStale(now time.Time) Stored {
	c := *s
	c.Lifetime = min(c.Lifetime, c.Age(now)-time.Second)
	c.SWR = 0
	return c
}
