package rfc9111

import (
	"net/http"
	"time"
)

// ParseDate reads an HTTP-date, RFC 9110 §5.6.7: exactly one of the three
// formats, with weekday, month and GMT in any case.
//
//	Sun, 06 Nov 1994 08:49:37 GMT     IMF-fixdate
//	Sunday, 06-Nov-94 08:49:37 GMT    RFC 850
//	Sun Nov  6 08:49:37 1994          asctime
//
// Everything else is refused: other zones, one-digit hours, doubled spaces,
// other separators, two-digit years outside RFC 850, days that the month does
// not have. The weekday must be a weekday, but isn't compared with the date.
//
// A two-digit year that seems to be more than 50 years after now is the latest
// such year in the past; now matters for nothing else.
//
// http.ParseTime isn't used as it accepts any zone name in the RFC 850 form
// and one-digit hours, and refuses GMT in lower case.
func ParseDate(s string, now time.Time) (time.Time, bool) {
	// The shortest form has 24 bytes, the longest 33 (a Wednesday in RFC 850).
	if len(s) < 24 || len(s) > 33 {
		return time.Time{}, false
	}
	switch {
	case s[3] == ',':
		return parseIMF(s)
	case s[3] == ' ':
		return parseAsctime(s)
	default:
		return parseRFC850(s, now)
	}
}

// parseIMF reads "Sun, 06 Nov 1994 08:49:37 GMT".
func parseIMF(s string) (time.Time, bool) {
	if len(s) != 29 || !isWeekday(s[:3], 3) || s[4] != ' ' || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' ||
		!isGMT(s[25:]) {
		return time.Time{}, false
	}
	day, ok1 := digits(s[5:7])
	month, ok2 := monthOf(s[8:11])
	year, ok3 := digits(s[12:16])
	if !ok1 || !ok2 || !ok3 {
		return time.Time{}, false
	}
	return dateOf(year, month, day, s[17:25])
}

// parseRFC850 reads "Sunday, 06-Nov-94 08:49:37 GMT".
func parseRFC850(s string, now time.Time) (time.Time, bool) {
	const rest = len(", 06-Nov-94 08:49:37 GMT")
	n := len(s) - rest
	if n < 6 || !isWeekday(s[:n], 0) {
		return time.Time{}, false
	}
	s = s[n:]
	if s[0] != ',' || s[1] != ' ' || s[4] != '-' || s[8] != '-' || s[11] != ' ' || !isGMT(s[20:]) {
		return time.Time{}, false
	}
	day, ok1 := digits(s[2:4])
	month, ok2 := monthOf(s[5:8])
	year, ok3 := digits(s[9:11])
	if !ok1 || !ok2 || !ok3 {
		return time.Time{}, false
	}
	limit := now.UTC().AddDate(50, 0, 0)
	year += limit.Year() - limit.Year()%100
	if year > limit.Year() {
		year -= 100
	}
	t, ok := dateOf(year, month, day, s[12:20])
	if ok && t.After(limit) {
		t, ok = dateOf(year-100, month, day, s[12:20])
	}
	return t, ok
}

// parseAsctime reads "Sun Nov  6 08:49:37 1994".
func parseAsctime(s string) (time.Time, bool) {
	if len(s) != 24 || !isWeekday(s[:3], 3) || s[7] != ' ' || s[10] != ' ' || s[19] != ' ' {
		return time.Time{}, false
	}
	month, ok1 := monthOf(s[4:7])
	dayField := s[8:10]
	if dayField[0] == ' ' {
		dayField = dayField[1:]
	}
	day, ok2 := digits(dayField)
	year, ok3 := digits(s[20:24])
	if !ok1 || !ok2 || !ok3 {
		return time.Time{}, false
	}
	return dateOf(year, month, day, s[11:19])
}

// dateOf puts a date and a time of day "08:49:37" together. A leap second is
// the first second of the next minute.
func dateOf(year int, month time.Month, day int, clock string) (time.Time, bool) {
	hour, ok1 := digits(clock[0:2])
	minute, ok2 := digits(clock[3:5])
	second, ok3 := digits(clock[6:8])
	if !ok1 || !ok2 || !ok3 || clock[2] != ':' || clock[5] != ':' || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	t := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	if day == 0 || t.Day() != day || t.Month() != month {
		return time.Time{}, false
	}
	return t.Add(time.Duration(second) * time.Second), true
}

// digits reads a number of which every byte must be a digit.
func digits(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int(c)
	}
	return n, len(s) > 0
}

func isGMT(s string) bool { return equalFold(s, " GMT") }

// isWeekday reports whether s is a day's name: its first n letters, or the
// whole of it when n is 0.
func isWeekday(s string, n int) bool {
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := d.String()
		if n > 0 {
			name = name[:n]
		}
		if equalFold(s, name) {
			return true
		}
	}
	return false
}

func monthOf(s string) (time.Month, bool) {
	for m := time.January; m <= time.December; m++ {
		if equalFold(s, m.String()[:3]) {
			return m, true
		}
	}
	return 0, false
}

// dateField reads a field that must stand once and hold one HTTP-date.
func dateField(h http.Header, name string, now time.Time) (time.Time, bool) {
	lines := h[name]
	if len(lines) != 1 {
		return time.Time{}, false
	}
	return ParseDate(lines[0], now)
}

// EnsureDate gives h a Date field with the time of receipt when it has none,
// or none that can be read, RFC 9110 §6.6.1. A valid Date stays the origin's.
func EnsureDate(h http.Header, received time.Time) {
	if _, ok := dateField(h, "Date", received); !ok {
		h["Date"] = []string{received.UTC().Format(http.TimeFormat)}
	}
}
