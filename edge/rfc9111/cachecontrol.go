package rfc9111

import (
	"net/http"
	"time"
)

// maxDelta is the largest delta-seconds that we tell apart, RFC 9111 §1.2.2:
// 2^31 s, some 68 years. Larger values are this one. Two of them and a bit fit
// a time.Duration, so sums of ages and lifetimes never overflow.
const maxDelta = (1 << 31) * time.Second

// Delta is the argument of a directive in delta-seconds.
type Delta struct {
	Duration time.Duration
	OK       bool // the directive is present
}

// atMost keeps the smaller of two values of a directive that stands twice.
func (d *Delta) atMost(v time.Duration) {
	if !d.OK || v < d.Duration {
		*d = Delta{v, true}
	}
}

// atLeast keeps the larger one.
func (d *Delta) atLeast(v time.Duration) {
	if !d.OK || v > d.Duration {
		*d = Delta{v, true}
	}
}

// CacheControl is a Cache-Control field of a request or a response, RFC 9111
// §5.2, or a targeted one, RFC 9213. The zero value is an absent field.
//
// When a directive stands twice, the more restrictive one is kept. A max-age
// or s-maxage that can't be read counts as 0 ("stale", §4.2.1), as does a
// max-age in a request; other arguments that can't be read leave their
// directive out.
type CacheControl struct {
	NoStore         bool
	NoCache         bool // unqualified: validate before every use
	Private         bool // unqualified
	Public          bool
	MustRevalidate  bool
	ProxyRevalidate bool
	MustUnderstand  bool
	NoTransform     bool
	OnlyIfCached    bool
	AnyStale        bool // max-stale without an argument; MaxStale.OK is false

	MaxAge               Delta
	SMaxAge              Delta
	StaleWhileRevalidate Delta // RFC 5861 §3
	StaleIfError         Delta // RFC 5861 §4
	MaxStale             Delta
	MinFresh             Delta

	// The fields, as canonical names, that a qualified no-cache="..." or
	// private="..." names. Empty when the unqualified directive is there too.
	NoCacheFields []string
	PrivateFields []string
}

// ParseCacheControl reads the lines of a Cache-Control field. It never fails:
// what can't be read is skipped, on the side of less reuse. After a quoted
// string that does not end, only directives that restrict are believed.
//
// It does not allocate unless no-cache or private name fields, or a quoted
// string has a backslash.
func ParseCacheControl(lines []string) CacheControl {
	var cc CacheControl
	for m, closed := range members(lines) {
		name := m[:tokenLen(m)]
		cc.add(name, argumentOf(m[len(name):]), closed)
	}
	cc.settle()
	return cc
}

// argument is what follows a directive's name.
type argument struct {
	value string
	kind  argumentKind
}

type argumentKind int

const (
	argNone argumentKind = iota
	argValue
	argBad // there is something, but it is neither =token nor ="quoted string"
)

// argumentOf reads what stands after the name. Both forms of an argument are
// accepted for every directive, as §5.2 asks of recipients.
func argumentOf(s string) argument {
	if s == "" {
		return argument{}
	}
	if s[0] != '=' {
		return argument{kind: argBad}
	}
	s = s[1:]
	if v, ok := unquote(s); ok {
		return argument{v, argValue}
	}
	if isToken(s) {
		return argument{s, argValue}
	}
	return argument{kind: argBad}
}

// deltaSeconds reads the argument as 1*DIGIT, §1.2.2, and clamps it.
func (a argument) deltaSeconds() (time.Duration, bool) {
	if a.kind != argValue {
		return 0, false
	}
	return parseDelta(a.value)
}

func parseDelta(s string) (time.Duration, bool) {
	n := time.Duration(0)
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = min(n*10+time.Duration(s[i]-'0'), maxDelta/time.Second)
	}
	return n * time.Second, s != ""
}

// add takes one directive in. With trusted false, only what restricts counts.
func (cc *CacheControl) add(name string, arg argument, trusted bool) {
	// The longest name is stale-while-revalidate.
	var buf [24]byte
	if len(name) > len(buf) {
		return
	}
	for i := range len(name) {
		buf[i] = lower(name[i])
	}
	switch string(buf[:len(name)]) {
	case "no-store":
		cc.NoStore = true
	case "no-cache":
		cc.qualified(&cc.NoCache, &cc.NoCacheFields, arg)
	case "private":
		cc.qualified(&cc.Private, &cc.PrivateFields, arg)
	case "must-revalidate":
		cc.MustRevalidate = true
	case "proxy-revalidate":
		cc.ProxyRevalidate = true
	case "no-transform":
		cc.NoTransform = true
	case "only-if-cached":
		cc.OnlyIfCached = true
	case "public":
		cc.Public = cc.Public || trusted && arg.kind == argNone
	case "must-understand":
		// It also lifts no-store, so a malformed one isn't believed.
		cc.MustUnderstand = cc.MustUnderstand || trusted && arg.kind == argNone
	case "max-age":
		cc.MaxAge.atMost(lifetimeArgument(arg, trusted))
	case "s-maxage":
		cc.SMaxAge.atMost(lifetimeArgument(arg, trusted))
	case "stale-while-revalidate":
		permission(&cc.StaleWhileRevalidate, arg, trusted)
	case "stale-if-error":
		permission(&cc.StaleIfError, arg, trusted)
	case "max-stale":
		if arg.kind == argNone {
			cc.AnyStale = cc.AnyStale || trusted
		} else {
			permission(&cc.MaxStale, arg, trusted)
		}
	case "min-fresh":
		if d, ok := arg.deltaSeconds(); ok {
			cc.MinFresh.atLeast(d)
		}
	}
}

// lifetimeArgument is the value of a max-age or s-maxage, 0 when unreadable.
func lifetimeArgument(arg argument, trusted bool) time.Duration {
	if d, ok := arg.deltaSeconds(); ok && trusted {
		return d
	}
	return 0
}

// permission takes in a directive that allows stale responses: one that can't
// be read allows nothing.
func permission(d *Delta, arg argument, trusted bool) {
	v, ok := arg.deltaSeconds()
	if !ok || !trusted {
		v = 0
	}
	d.atMost(v)
}

// qualified takes in a no-cache or private. One whose argument names no field,
// or something that is no field, counts as unqualified.
func (cc *CacheControl) qualified(whole *bool, fields *[]string, arg argument) {
	if arg.kind != argValue {
		*whole = true
		return
	}
	found := false
	for name := range members([]string{arg.value}) {
		if !isToken(name) {
			*whole = true
			return
		}
		*fields = append(*fields, http.CanonicalHeaderKey(name))
		found = true
	}
	if !found {
		*whole = true
	}
}

// settle applies the precedences that are known when all has been read.
func (cc *CacheControl) settle() {
	if cc.NoCache {
		cc.NoCacheFields = nil
	}
	if cc.Private {
		cc.PrivateFields = nil
	}
	if cc.MaxStale.OK {
		cc.AnyStale = false
	}
}

// hides reports whether a qualified no-cache or private keeps the field with
// this canonical name out of a shared cache.
func (cc *CacheControl) hides(field string) bool {
	for _, f := range cc.NoCacheFields {
		if f == field {
			return true
		}
	}
	for _, f := range cc.PrivateFields {
		if f == field {
			return true
		}
	}
	return false
}

// sharedAllowed reports whether the response says that a shared cache may
// reuse what was sent to an authenticated client, §3.5.
func (cc *CacheControl) sharedAllowed() bool {
	return cc.Public || cc.MustRevalidate || cc.SMaxAge.OK
}

// neverStale reports whether serving the response stale is forbidden, §4.2.4.
func (cc *CacheControl) neverStale() bool {
	return cc.MustRevalidate || cc.ProxyRevalidate || cc.NoCache
}
