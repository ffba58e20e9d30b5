package rfc9111

import "iter"

// members yields the members of a comma-separated list that may stand on
// several lines, RFC 9110 §5.6.1: trimmed, empty ones left out, commas inside
// a quoted string not counted. A quoted string that its line does not end is
// taken as if its first quote were an ordinary byte; closed is false for the
// member that it stands in and for all after it on that line.
func members(lines []string) iter.Seq2[string, bool] {
	return func(yield func(member string, closed bool) bool) {
		for _, line := range lines {
			closed := true
			for len(line) > 0 {
				var m string
				var ended bool
				m, line, ended = cutMember(line, closed)
				closed = closed && ended
				if m != "" && !yield(m, closed) {
					return
				}
			}
		}
	}
}

// cutMember takes the first member off a list. With quoted false a quote is an
// ordinary byte. It reports whether every quoted string in the member ended.
func cutMember(s string, quoted bool) (member, rest string, closed bool) {
	inside := false
	comma := -1 // the first one inside the present quoted string
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inside && c == '\\':
			i++
		case c == '"' && quoted:
			inside = !inside
			comma = -1
		case c == ',' && inside:
			if comma < 0 {
				comma = i
			}
		case c == ',':
			return trim(s[:i]), s[i+1:], true
		}
	}
	if inside && comma >= 0 {
		return trim(s[:comma]), s[comma+1:], false
	}
	return trim(s), "", !inside
}

// trim removes the optional white space of RFC 9110 §5.6.3 from both ends.
func trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// tokenLen is the length of the token, RFC 9110 §5.6.2, that s begins with.
func tokenLen(s string) int {
	i := 0
	for i < len(s) && isTokenByte(s[i]) {
		i++
	}
	return i
}

func isToken(s string) bool { return s != "" && tokenLen(s) == len(s) }

// The token bytes among the first and the second 64, a bit each: letters,
// digits and !#$%&'*+-.^_`|~
const (
	tokenLow  = 0x3ff6cfa00000000
	tokenHigh = 0x57ffffffc7fffffe
)

func isTokenByte(c byte) bool {
	if c < 64 {
		return tokenLow>>c&1 != 0
	}
	return c < 128 && tokenHigh>>(c-64)&1 != 0
}

func isAlpha(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// lower is c in lower case; bytes outside ASCII stay as they are.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// equalFold compares without regard to the case of ASCII letters only, unlike
// strings.EqualFold, for which the Kelvin sign is a k.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// unquote reads a whole quoted-string, RFC 9110 §5.6.4.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' {
		return "", false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return s[1:i], i == len(s)-1
		case '\\':
			return unescape(s)
		}
	}
	return "", false
}

// unescape is unquote for strings that have a backslash.
func unescape(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return string(b), i == len(s)-1
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
		}
		b = append(b, s[i])
	}
	return "", false
}
