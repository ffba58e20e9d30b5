package rfc9111

import (
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// CacheStatus is one member of a Cache-Status field: what one cache did with
// one request, RFC 9211 §2.
type CacheStatus struct {
	Name      string // the cache's; a member without a name isn't written
	Hit       bool
	Fwd       string // why it was forwarded: uri-miss, vary-miss, miss, request, stale, partial, method, bypass; "" when it wasn't
	FwdStatus int    // status of the answer to the forwarded request; 0: unknown
	HasTTL    bool
	TTL       time.Duration // remaining freshness lifetime, negative when stale; written in seconds, rounded down
	Stored    bool
	Collapsed bool
	Key       string // the cache key, "" to leave it out
	Detail    string // what the parameters above have no word for
}

// AppendCacheStatus appends the member, such as
//
//	edge-a; hit; ttl=53
//	edge-a; fwd=uri-miss; fwd-status=200; stored
//
// Name and Detail are tokens where their bytes allow that, else strings, as
// RFC 9211 §2 has it; bytes that can't stand in a string (RFC 9651 §3.3.3) are
// replaced by "?".
func AppendCacheStatus(dst []byte, c CacheStatus) []byte {
	if c.Name == "" {
		return dst
	}
	dst = appendTokenOrString(dst, c.Name)
	if c.Hit {
		dst = append(dst, "; hit"...)
	}
	if c.Fwd != "" {
		dst = appendTokenOrString(append(dst, "; fwd="...), c.Fwd)
	}
	if c.FwdStatus > 0 {
		dst = strconv.AppendInt(append(dst, "; fwd-status="...), int64(c.FwdStatus), 10)
	}
	if c.HasTTL {
		dst = strconv.AppendInt(append(dst, "; ttl="...), Seconds(c.TTL), 10)
	}
	if c.Stored {
		dst = append(dst, "; stored"...)
	}
	if c.Collapsed {
		dst = append(dst, "; collapsed"...)
	}
	if c.Key != "" {
		dst = appendString(append(dst, "; key="...), c.Key)
	}
	if c.Detail != "" {
		dst = appendTokenOrString(append(dst, "; detail="...), c.Detail)
	}
	return dst
}

// String is the member as [AppendCacheStatus] writes it.
func (c CacheStatus) String() string {
	return string(AppendCacheStatus(make([]byte, 0, 96), c))
}

func appendTokenOrString(dst []byte, s string) []byte {
	if isStructuredToken(s) {
		return append(dst, s...)
	}
	return appendString(dst, s)
}

// isStructuredToken reports whether s is an sf-token, RFC 9651 §3.3.4.
func isStructuredToken(s string) bool {
	if s == "" || !isAlpha(s[0]) && s[0] != '*' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isTokenByte(c) && c != ':' && c != '/' {
			return false
		}
	}
	return true
}

// appendString appends s as an sf-string, RFC 9651 §4.1.6.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c >= 0x7f:
			dst = append(dst, '?')
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// maxCacheStatusLen bounds what is parsed of a field that others wrote.
const maxCacheStatusLen = 16 << 10

// ParseCacheStatus reads the lines of a Cache-Status field, the member nearest
// to the origin first. It reports false, and no members, when the field is no
// structured list or longer than 16 KiB. Parameters of a type that they do not
// have are left out, members that are neither token nor string too.
func ParseCacheStatus(lines []string) ([]CacheStatus, bool) {
	n := 0
	for _, l := range lines {
		n += len(l) + 2
	}
	if n > maxCacheStatusLen {
		return nil, false
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, false
	}
	status := make([]CacheStatus, 0, len(list))
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			continue
		}
		if c, ok := statusOf(item); ok {
			status = append(status, c)
		}
	}
	return status, true
}

func statusOf(item httpsfv.Item) (CacheStatus, bool) {
	var c CacheStatus
	if c.Name = textOf(item.Value); c.Name == "" {
		return CacheStatus{}, false
	}
	for _, name := range item.Params.Names() {
		v, _ := item.Params.Get(name)
		flag, _ := v.(bool)
		number, isNumber := v.(int64)
		switch name {
		case "hit":
			c.Hit = flag
		case "fwd":
			c.Fwd = textOf(v)
		case "fwd-status":
			if number >= 100 && number <= 999 {
				c.FwdStatus = int(number)
			}
		case "ttl":
			if isNumber {
				c.HasTTL = true
				seconds := min(max(number, -int64(maxDelta/time.Second)), int64(maxDelta/time.Second))
				c.TTL = time.Duration(seconds) * time.Second
			}
		case "stored":
			c.Stored = flag
		case "collapsed":
			c.Collapsed = flag
		case "key":
			c.Key = textOf(v)
		case "detail":
			c.Detail = textOf(v)
		}
	}
	return c, true
}

func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case httpsfv.Token:
		return string(v)
	default:
		return ""
	}
}

// StaleFromPeer reads from the Cache-Status of a response whether a cache on
// its way served it stale, and for how long it had been so: a ttl below zero in
// any member. Age does not show that for a response that was purged softly.
// Such a response isn't fresh here either: see Exchange.StaleFor. Lines that
// are no structured list are left out. It does not allocate when none is stale.
func StaleFromPeer(lines []string) (staleFor time.Duration, stale bool) {
	for i, line := range lines {
		if !strings.Contains(line, "ttl=-") {
			continue
		}
		members, _ := ParseCacheStatus(lines[i : i+1])
		for _, c := range members {
			if c.HasTTL && c.TTL < 0 {
				staleFor = max(staleFor, -c.TTL)
			}
		}
	}
	return staleFor, staleFor > 0
}
