package loadtest

import "strings"

// Where an answer came from, by the Cache-Status (RFC 9211) of the node that
// gave it.
const (
	fromHit      = "hit"
	fromStale    = "stale"
	fromPeer     = "peer"
	fromShield   = "shield"     // which had to ask the origin
	fromOwner    = "shield_hit" // its stored response
	fromNegative = "negative"
	fromCatalog  = "catalog"
	fromOrigin   = "origin" // forwarded, and nobody in the cluster had it
	fromUnknown  = "unknown"
)

// sourceOf returns where the answer came from: the last member of the list is
// that of the node nearest to us.
func sourceOf(fields []string) string {
	if len(fields) == 0 {
		return fromUnknown
	}
	members := splitUnquoted(strings.Join(fields, ","), ',')
	from := fromUnknown
	params := splitUnquoted(members[len(members)-1], ';')
	stale := false
	for _, p := range params[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		switch {
		case name == "hit" && value != "?0" && from == fromUnknown:
			from = fromHit
		case name == "fwd" && from == fromUnknown:
			from = fromOrigin
		case name == "ttl":
			stale = strings.HasPrefix(value, "-")
		case name == "detail":
			switch value {
			case "peer":
				from = fromPeer
			case "shield":
				from = fromShield
				if n := len(members); n > 1 && isHit(members[n-2]) {
					from = fromOwner
				}
			case "negative", "coalesced-negative":
				from = fromNegative
			case "catalog":
				from = fromCatalog
			}
		}
	}
	if from == fromHit && stale {
		return fromStale
	}
	return from
}

// isHit reports whether a member of Cache-Status says that it had a response.
func isHit(member string) bool {
	for _, p := range splitUnquoted(member, ';')[1:] {
		if name, value, _ := strings.Cut(strings.TrimSpace(p), "="); name == "hit" {
			return value != "?0"
		}
	}
	return false
}

// splitUnquoted splits at sep outside of quoted strings (RFC 8941 §3.3.3).
// There is always at least one part.
func splitUnquoted(s string, sep byte) []string {
	var parts []string
	quoted, start := false, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}
