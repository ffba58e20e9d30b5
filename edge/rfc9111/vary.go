package rfc9111

import (
	"net/http"
	"slices"
)

// maxNominated is how many fields a Vary may name. One that names more is
// taken as "*": its responses hardly ever match again.
const maxNominated = 32

// NominatedFields are the request fields that the response's Vary names, §4.1,
// as sorted canonical names, each once. star is true when it can't match any
// request: "*" stands anywhere in the list, or something that is no field name
// (so that what it was meant to name is unknown), or too many names.
//
// The names are part of what is stored: matching is by those of the stored
// response, never by those of a later one.
func NominatedFields(h http.Header) (names []string, star bool) {
	for m, closed := range members(h["Vary"]) {
		if m == "*" || !isToken(m) || !closed {
			return nil, true
		}
		name := http.CanonicalHeaderKey(m)
		if slices.Contains(names, name) {
			continue
		}
		if len(names) == maxNominated {
			return nil, true
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, false
}

// VariantKey is the secondary cache key of a request: the names (as from
// [NominatedFields]) with the values that it has for them, brought to one form.
// Two requests have the same key exactly if their fields match, §4.1:
//
//   - several lines of a field are joined, white space around them and around
//     commas removed, except in fields that are no lists;
//   - Accept-Encoding and Accept-Language are sets of members with q values:
//     order, case and repetition don't count;
//   - a field that is absent differs from one that is empty, which matters for
//     Accept-Encoding, RFC 9110 §12.5.3.
//
// Form: for each name the name, then "=" and the value if the field is there,
// then a line feed. It is "" when there are no names.
func VariantKey(names []string, req http.Header) string {
	if len(names) == 0 {
		return ""
	}
	var buf [512]byte
	return string(AppendVariantKey(buf[:0], names, req))
}

// AppendVariantKey appends what [VariantKey] returns, without allocating if
// dst has room.
func AppendVariantKey(dst []byte, names []string, req http.Header) []byte {
	for _, name := range names {
		dst = append(dst, name...)
		if lines, ok := req[name]; ok && len(lines) > 0 {
			dst = append(dst, '=')
			dst = appendNormalised(dst, name, lines)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// Matches reports whether the request has, in the fields that names lists, the
// values that variantKey was made from. It does not allocate unless the values
// are longer than 512 bytes.
func Matches(names []string, variantKey string, req http.Header) bool {
	if len(names) == 0 {
		return variantKey == ""
	}
	var buf [512]byte
	return string(AppendVariantKey(buf[:0], names, req)) == variantKey
}

func appendNormalised(dst []byte, name string, lines []string) []byte {
	switch name {
	case "Accept-Encoding", "Accept-Language":
		var set preferences
		if set.parse(lines, name == "Accept-Encoding") {
			return set.append(dst, ",")
		}
	case "Authorization", "Cookie", "Date", "From", "Host", "If-Modified-Since", "Origin", "Proxy-Authorization",
		"Range", "Referer", "User-Agent":
		// No lists: a comma, and the space behind it, is part of the value.
		for i, line := range lines {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendEscaped(dst, trim(line))
		}
		return dst
	}
	first := true
	for m := range members(lines) {
		if !first {
			dst = append(dst, ',')
		}
		dst = appendEscaped(dst, m)
		first = false
	}
	return dst
}

// appendEscaped keeps line feeds out of the value. A parsed header has none,
// so this costs nothing but keeps the key unambiguous for any input.
func appendEscaped(dst []byte, s string) []byte {
	for i := range len(s) {
		switch s[i] {
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\\':
			dst = append(dst, '\\', '\\')
		default:
			dst = append(dst, s[i])
		}
	}
	return dst
}
