package shield

import (
	"fmt"
	"net/http"
	"strings"
)

// HopField is the request field by which a node tells another what it wants;
// it stands only on requests between nodes, on the peer address. There is one
// hop only between nodes: whoever receives it asks no other node.
const HopField = "Edged-Hop"

// Hop is the value of HopField: the part of the sender's way that the request is.
type Hop string

// The hops.
const (
	HopNone   Hop = ""       // not from a node
	HopPeer   Hop = "peer"   // "have you got it": answered from the store or 504, never forwarded
	HopShield Hop = "shield" // "get it": answered from the store, or from the origin itself
)

// ParseHop reads the hop from a request's fields. Anything but one line with
// exactly one of the known values is an error, to be answered 400: a node of
// ours never sends it, and guessing would send a request round in a circle.
func ParseHop(h http.Header) (Hop, error) {
	lines := h[HopField]
	if len(lines) == 0 {
		return HopNone, nil
	}
	if len(lines) > 1 {
		return HopNone, fmt.Errorf("%s stands %d times, want it once", HopField, len(lines))
	}
	switch hop := Hop(lines[0]); hop {
	case HopPeer, HopShield:
		return hop, nil
	default:
		return HopNone, fmt.Errorf("%s is %q, want %q or %q", HopField, truncate(lines[0], 32), HopPeer, HopShield)
	}
}

// MayAskNodes reports whether a request that came by this hop may be sent to
// another node, as a peer or as a shield.
func (h Hop) MayAskNodes() bool { return h == HopNone }

// MayAskOrigin reports whether a request that came by this hop may be sent to
// the origin.
func (h Hop) MayAskOrigin() bool { return h != HopPeer }

const cdnLoopField = "Cdn-Loop" // net/http's canonical form of CDN-Loop

// CheckLoop reports whether a request has passed this CDN before: whether
// CDN-Loop (RFC 8586) names self. Such a request is answered 508.
func CheckLoop(h http.Header, self string) bool { return CountCDNLoop(h, self) > 0 }

// CountCDNLoop returns how often CDN-Loop names self. Parameters and quoted
// strings in them are skipped, identifiers compared without regard to case.
//
// A line that is not RFC 8586's list is searched for self between any commas
// instead, quoted or not: a client could otherwise open a quoted string that
// swallows the names that are appended on the way, and so hide a loop.
func CountCDNLoop(h http.Header, self string) int {
	n := 0
	for _, line := range h[cdnLoopField] {
		c, ok := countCDNInfo(line, self)
		if !ok {
			c = 0
			for part := range strings.SplitSeq(line, ",") {
				id, _, _ := strings.Cut(part, ";")
				if strings.EqualFold(trimOWS(id), self) {
					c++
				}
			}
		}
		n += c
	}
	return n
}

// countCDNInfo counts the elements of a CDN-Loop line whose cdn-id is self. ok
// is false when the line is not
//
//	#( cdn-id *( OWS ";" OWS token "=" ( token / quoted-string ) ) )
func countCDNInfo(line, self string) (n int, ok bool) {
	s := line
	for {
		s = strings.TrimLeft(s, " \t,") // empty elements are allowed in lists
		if s == "" {
			return n, true
		}
		end := strings.IndexAny(s, " \t,;\"")
		if end < 0 {
			end = len(s)
		}
		if end == 0 {
			return n, false
		}
		if strings.EqualFold(s[:end], self) {
			n++
		}
		s = strings.TrimLeft(s[end:], " \t")
		for strings.HasPrefix(s, ";") {
			if s, ok = skipParameter(strings.TrimLeft(s[1:], " \t")); !ok {
				return n, false
			}
			s = strings.TrimLeft(s, " \t")
		}
		if s != "" && s[0] != ',' {
			return n, false
		}
	}
}

// skipParameter removes token "=" ( token / quoted-string ) from the front.
func skipParameter(s string) (rest string, ok bool) {
	n := tokenLen(s)
	if n == 0 || n == len(s) || s[n] != '=' {
		return s, false
	}
	s = s[n+1:]
	if !strings.HasPrefix(s, `"`) {
		n = tokenLen(s)
		return s[n:], n > 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[i+1:], true
		}
	}
	return s, false
}

// AppendCDNLoop adds self to CDN-Loop, at its end. What came is kept as it was
// (RFC 8586 section 2), joined into one line, which more servers understand.
// self is a token or a host with an optional port.
func AppendCDNLoop(h http.Header, self string) {
	appendList(h, cdnLoopField, self)
}

// appendList adds an element at the end of a list field, in one line.
func appendList(h http.Header, field, element string) {
	lines := h[field]
	if len(lines) == 0 {
		h[field] = []string{element}
		return
	}
	h[field] = []string{strings.Join(lines, ", ") + ", " + element}
}

func trimOWS(s string) string { return strings.Trim(s, " \t") }

func truncate(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// tokenLen returns the length of the token (RFC 9110 section 5.6.2) at the front.
func tokenLen(s string) int {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return i
		}
	}
	return len(s)
}

// isTokenByte reports whether c is a tchar (RFC 9110 section 5.6.2).
func isTokenByte(c byte) bool {
	// One bit for each of the 128 ASCII characters.
	const (
		low  = 1<<'!' | 1<<'#' | 1<<'$' | 1<<'%' | 1<<'&' | 1<<'\'' | 1<<'*' | 1<<'+' | 1<<'-' | 1<<'.' | (1<<10-1)<<'0'
		high = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64) | 1<<('^'-64) | 1<<('_'-64) | 1<<('`'-64) | 1<<('|'-64) | 1<<('~'-64)
	)
	if c < 64 {
		return uint64(low)>>c&1 != 0
	}
	return c < 128 && uint64(high)>>(c-64)&1 != 0
}
