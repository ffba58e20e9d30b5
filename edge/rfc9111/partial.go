package rfc9111

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// CombinesPartial reports whether parts of two responses may be put together,
// §3.4 and RFC 9110 §15.3.7.3: the two have the same strong validator, and do
// not contradict each other in the complete length. Either may be a 206, or a
// response that broke off. Header fields are then those of the newer one, laid
// over the older one's as in [Freshen].
func CombinesPartial(stored, incoming http.Header) bool {
	_, a, ok1 := contentRangeOf(stored)
	_, b, ok2 := contentRangeOf(incoming)
	if ok1 && ok2 && a >= 0 && b >= 0 && a != b {
		return false
	}
	if have, tag := etagOf(stored), etagOf(incoming); have != "" || tag != "" {
		return strongMatch(have, tag)
	}
	return sameDate(stored, incoming, "Last-Modified") && strongDate(stored) && strongDate(incoming)
}

func strongDate(h http.Header) bool {
	date, ok := dateField(h, "Date", time.Time{})
	return ok && lastModifiedIsStrong(h, date.Unix())
}

// StrongValidator is the value of If-Range that names a stored response: its
// strong ETag, or without any ETag its Last-Modified where RFC 9110 §8.8.2.2
// makes that strong; "" when it has no strong validator.
func StrongValidator(stored http.Header) string {
	if tag := etagOf(stored); tag != "" {
		if isWeak(tag) || tag[0] != '"' {
			return ""
		}
		return tag
	}
	if strongDate(stored) {
		return trim(stored["Last-Modified"][0])
	}
	return ""
}

// Missing are the parts of want that none of have covers, in order: what a
// request for the rest asks the origin for.
func Missing(have []Range, want Range) []Range {
	sorted := slices.Clone(have)
	slices.SortFunc(sorted, func(a, b Range) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		default:
			return 0
		}
	})
	var gaps []Range
	at := want.Start
	for _, h := range sorted {
		if h.Start >= want.end() {
			break
		}
		if h.Start > at {
			gaps = append(gaps, Range{at, h.Start - at})
		}
		at = max(at, h.end())
	}
	if at < want.end() {
		gaps = append(gaps, Range{at, want.end() - at})
	}
	return gaps
}

// FormatRanges is the value of a Range field that asks for the ranges.
func FormatRanges(ranges []Range) string {
	b := append(make([]byte, 0, 32), "bytes="...)
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, r.Start, 10)
		b = append(b, '-')
		b = strconv.AppendInt(b, r.end()-1, 10)
	}
	return string(b)
}
