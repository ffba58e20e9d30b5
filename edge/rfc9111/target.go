package rfc9111

import "strings"

// NormaliseTarget brings path and query of a request target, as they were sent,
// to the one form that the cache key, the forwarded request and the log all
// use, RFC 3986 §6.2.2, and joins them with "?" if there is a query. It does
// only what leaves the meaning alone:
//
//   - hex digits of percent-encodings in upper case, encoded unreserved
//     characters (letters, digits, "-._~") decoded. Nothing else is decoded:
//     %2F stays, also %3F, %25 and the rest. A path segment or query with a "%"
//     that begins no percent-encoding is left as it is in this, as decoding
//     next to it could make one;
//   - dot segments of the path removed (§5.2.4), after that decoding. An
//     origin may do this or not; as it gets what we compared, a path pattern
//     and the origin can't see two different paths. Empty segments stay;
//   - bytes that can't stand in a URI in any reading (controls, space, "#",
//     DEL, beyond ASCII) percent-encoded;
//   - an empty path is "/"; "*" stays; a "?" with nothing behind it goes.
//
// The query is never reordered, and "+" never touched. The result is a fixed
// point: normalising it again changes nothing. It does not allocate when there
// is nothing to do and no query.
func NormaliseTarget(rawPath, rawQuery string) string {
	if rawQuery == "" && isNormal(rawPath) {
		return rawPath
	}
	return string(AppendTarget(make([]byte, 0, len(rawPath)+len(rawQuery)+8), rawPath, rawQuery))
}

// AppendTarget appends what [NormaliseTarget] returns.
func AppendTarget(dst []byte, rawPath, rawQuery string) []byte {
	switch {
	case isNormal(rawPath):
		dst = append(dst, rawPath...)
	case rawPath == "" || rawPath[0] != '/':
		dst = appendPath(dst, "/"+rawPath)
	default:
		dst = appendPath(dst, rawPath)
	}
	if rawQuery != "" {
		dst = append(dst, '?')
		dst = appendEncoding(dst, rawQuery)
	}
	return dst
}

// isNormal reports whether the path surely needs nothing done: the fast path.
func isNormal(p string) bool {
	if p == "" || p[0] != '/' {
		return p == "*"
	}
	for i := range len(p) {
		switch c := p[i]; {
		case c == '.' && p[i-1] == '/', c == '%', mustEncode(c):
			return false
		}
	}
	return true
}

func mustEncode(c byte) bool { return c <= ' ' || c == '#' || c >= 0x7f }

// appendPath appends the path, which begins with a slash, in its normal form.
func appendPath(dst []byte, path string) []byte {
	base := len(dst)
	for path != "" {
		// Segment by segment: whether one is well formed mustn't depend on
		// others, which may be gone in the end.
		end := strings.IndexByte(path[1:], '/') + 1
		if end == 0 {
			end = len(path)
		}
		dst = appendEncoding(dst, path[:end])
		path = path[end:]
	}
	// Dot segments go in place: what is written never overtakes what is read.
	read, write := base, base
	for read < len(dst) {
		end := read + 1
		for end < len(dst) && dst[end] != '/' {
			end++
		}
		last := end == len(dst)
		switch segment := string(dst[read+1 : end]); {
		case segment == "." || segment == "..":
			if segment == ".." {
				for write > base {
					write--
					if dst[write] == '/' {
						break
					}
				}
			}
			if last {
				dst[write] = '/'
				write++
			}
		default:
			write += copy(dst[write:], dst[read:end])
		}
		read = end
	}
	return dst[:write]
}

// appendEncoding appends s with its percent-encodings in their normal form.
func appendEncoding(dst []byte, s string) []byte {
	whole := encodingsAreWhole(s)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '%' && whole:
			b := unhex(s[i+1])<<4 | unhex(s[i+2])
			if isUnreserved(b) {
				dst = append(dst, b)
			} else {
				dst = appendPercent(dst, b)
			}
			i += 2
		case mustEncode(c):
			dst = appendPercent(dst, c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func appendPercent(dst []byte, b byte) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '%', hex[b>>4], hex[b&15])
}

// encodingsAreWhole reports whether two hex digits follow each "%".
func encodingsAreWhole(s string) bool {
	for i := strings.IndexByte(s, '%'); i >= 0; {
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return false
		}
		next := strings.IndexByte(s[i+1:], '%')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return true
}

func isUnreserved(c byte) bool {
	return isAlpha(c) || isDigit(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
