package rfc9111

import (
	"net/http"
	"strconv"

	"github.com/dunglas/httpsfv"
)

// Control is the response's cache control as this cache reads it: from
// CDN-Cache-Control when it is a valid dictionary with at least one member,
// else from Cache-Control. When targeted is true, Cache-Control and Expires
// don't count for any decision, RFC 9213 §2.2.
func Control(h http.Header) (cc CacheControl, targeted bool) {
	if lines := h["Cdn-Cache-Control"]; len(lines) > 0 {
		if cc, ok := parseTargeted(lines); ok {
			return cc, true
		}
	}
	return ParseCacheControl(h["Cache-Control"]), false
}

// maxTargetedLen bounds what is handed to the dictionary parser, which
// allocates for each member. Real fields have some 100 bytes.
const maxTargetedLen = 8 << 10

// parseTargeted reads a targeted field, RFC 9213 §2.1: a dictionary, whose
// keys are lower case only. One syntax error voids the field.
func parseTargeted(lines []string) (cc CacheControl, ok bool) {
	n := 0
	for _, l := range lines {
		n += len(l) + 2
	}
	if n > maxTargetedLen {
		return CacheControl{}, false
	}
	d, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil || len(d.Names()) == 0 {
		return CacheControl{}, false
	}
	for _, name := range d.Names() {
		m, _ := d.Get(name)
		if arg, use := memberArgument(m); use {
			cc.add(name, arg, true)
		}
	}
	cc.settle()
	return cc, true
}

// memberArgument turns a dictionary member into a directive's argument. A
// false one is an absent directive. A member of a type that its directive does
// not have comes out as argBad, which can only restrict.
func memberArgument(m httpsfv.Member) (arg argument, use bool) {
	item, ok := m.(httpsfv.Item)
	if !ok {
		return argument{kind: argBad}, true
	}
	switch v := item.Value.(type) {
	case bool:
		return argument{}, v
	case int64:
		if v < 0 {
			return argument{kind: argBad}, true
		}
		return argument{strconv.FormatInt(v, 10), argValue}, true
	case httpsfv.Token:
		return argument{string(v), argValue}, true
	case string:
		// Only field lists are strings; "60" where an integer belongs is not
		// a number, and a list of digits is no list of fields we know.
		if _, numeric := parseDelta(v); numeric {
			return argument{kind: argBad}, true
		}
		return argument{v, argValue}, true
	default:
		return argument{kind: argBad}, true
	}
}
