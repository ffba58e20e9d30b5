package rfc9111

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Range is a run of bytes of a representation: Length of them from Start.
type Range struct {
	Start, Length int64
}

func (r Range) end() int64 { return r.Start + r.Length }

// maxRanges is how many ranges one request may ask for. More are an attack, or
// a client that is better served with the whole (RFC 9110 §14.2, §17.15).
const maxRanges = 64

// ParseRanges reads a Range field for a representation of size bytes, RFC 9110
// §14.1.2 and §14.2.
//
// ok is false when the field is to be ignored, and the whole representation
// sent: another unit, a range that isn't one, an unknown size (below 0), or
// more than 64 ranges. Otherwise satisfiable tells whether any of the ranges
// lies within the representation; if none does, the answer is 416. ranges are
// those to send, in the order of the request; overlapping ones are one, so
// that together they are never longer than size.
func ParseRanges(header string, size int64) (ranges []Range, satisfiable, ok bool) {
	const unit = "bytes="
	if size < 0 || len(header) < len(unit) || !equalFold(header[:len(unit)], unit) {
		return nil, false, false
	}
	n := 0
	for rest := header[len(unit):]; rest != ""; {
		var m string
		m, rest, _ = cutMember(rest, false)
		if m == "" {
			continue
		}
		if n++; n > maxRanges {
			return nil, false, false
		}
		r, inside, valid := parseRange(m, size)
		if !valid {
			return nil, false, false
		}
		if inside {
			ranges = addRange(ranges, r)
		}
	}
	return ranges, len(ranges) > 0, n > 0
}

// parseRange reads "first-last", "first-" or "-suffix".
func parseRange(s string, size int64) (r Range, inside, valid bool) {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n == len(s) || s[n] != '-' {
		return Range{}, false, false
	}
	first, hasFirst := parseLength(s[:n])
	last, hasLast := parseLength(s[n+1:])
	switch {
	case s[n+1:] != "" && !hasLast:
		return Range{}, false, false
	case !hasFirst && !hasLast:
		return Range{}, false, false
	case !hasFirst:
		length := min(last, size)
		return Range{size - length, length}, length > 0, true
	case !hasLast:
		last = math.MaxInt64
	case last < first:
		return Range{}, false, false
	}
	if first >= size {
		return Range{}, false, true
	}
	return Range{first, min(last, size-1) - first + 1}, true, true
}

// parseLength reads 1*DIGIT; what does not fit is the largest number.
func parseLength(s string) (int64, bool) {
	n := int64(0)
	for i := range len(s) {
		d := int64(s[i] - '0')
		if !isDigit(s[i]) {
			return 0, false
		}
		if n > (math.MaxInt64-d)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + d
	}
	return n, s != ""
}

// addRange adds r to ranges of which no two overlap, and merges what it
// overlaps into the first such one.
func addRange(ranges []Range, r Range) []Range {
	at := -1
	kept := ranges[:0]
	for _, have := range ranges {
		if have.Start >= r.end() || r.Start >= have.end() {
			kept = append(kept, have)
			continue
		}
		start := min(r.Start, have.Start)
		r = Range{start, max(r.end(), have.end()) - start}
		if at < 0 {
			at = len(kept)
			kept = append(kept, r)
		}
	}
	if at < 0 {
		return append(kept, r)
	}
	kept[at] = r
	return kept
}

// ContentRange is the value of Content-Range for this part of a representation
// of size bytes, RFC 9110 §14.4. A size below 0 is unknown.
func (r Range) ContentRange(size int64) string {
	b := make([]byte, 0, 64)
	b = append(b, "bytes "...)
	b = strconv.AppendInt(b, r.Start, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, r.end()-1, 10)
	b = append(b, '/')
	if size < 0 {
		return string(append(b, '*'))
	}
	return string(strconv.AppendInt(b, size, 10))
}

// UnsatisfiedRange is the value of Content-Range in a 416, RFC 9110 §15.5.17.
func UnsatisfiedRange(size int64) string { return "bytes */" + strconv.FormatInt(size, 10) }

// ParseContentRange reads the Content-Range of a 206: a part that lies within
// the size, RFC 9110 §14.4. size is -1 when it is given as unknown. The form of
// a 416 isn't one.
func ParseContentRange(s string) (r Range, size int64, ok bool) {
	const unit = "bytes "
	if len(s) < len(unit) || !equalFold(s[:len(unit)], unit) {
		return Range{}, 0, false
	}
	s = s[len(unit):]
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	first, ok1 := parseLength(s[:n])
	if !ok1 || n == len(s) || s[n] != '-' {
		return Range{}, 0, false
	}
	s = s[n+1:]
	for n = 0; n < len(s) && isDigit(s[n]); n++ {
	}
	last, ok2 := parseLength(s[:n])
	if !ok2 || n == len(s) || s[n] != '/' || last < first || last == math.MaxInt64 {
		return Range{}, 0, false
	}
	r = Range{first, last - first + 1}
	if s[n+1:] == "*" {
		return r, -1, true
	}
	size, ok = parseLength(s[n+1:])
	if !ok || last >= size {
		return Range{}, 0, false
	}
	return r, size, true
}

// contentRangeOf is the one Content-Range of a response.
func contentRangeOf(h http.Header) (Range, int64, bool) {
	lines := h["Content-Range"]
	if len(lines) != 1 {
		return Range{}, 0, false
	}
	return ParseContentRange(trim(lines[0]))
}

// IfRangeMatches reports whether the Range of the request counts, RFC 9110
// §13.1.5: there is no If-Range, or it names a strong validator of the stored
// response, byte by byte. When it doesn't, the whole representation is sent. A
// date is a strong validator only if it is at least a second before Date
// (RFC 9110 §8.8.2.2).
func IfRangeMatches(req, stored http.Header, s *Stored) bool {
	lines := req["If-Range"]
	if len(lines) == 0 {
		return true
	}
	if len(lines) > 1 {
		return false
	}
	v := trim(lines[0])
	if strongMatch(v, etagOf(stored)) && v[0] == '"' {
		return true
	}
	at, ok := ParseDate(v, s.ResponseTime)
	return ok && s.has(FlagLastModified) && at.Unix() == s.LastModified && lastModifiedIsStrong(stored, s.Date)
}

func lastModifiedIsStrong(h http.Header, date int64) bool {
	modified, ok := dateField(h, "Last-Modified", time.Unix(date, 0))
	return ok && len(h["Date"]) == 1 && modified.Unix() < date
}
