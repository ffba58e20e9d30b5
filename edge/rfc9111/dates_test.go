package rfc9111

import (
	"net/http"
	"testing"
	"time"
)

// Rule 4: exactly the three formats.
func TestParseDate(t *testing.T) {
	want := time.Date(2050, time.August, 18, 2, 1, 18, 0, time.UTC)
	fine := []struct {
		name, in string
		want     time.Time
	}{
		{"IMF-fixdate (RFC 9110 §5.6.7)", "Thu, 18 Aug 2050 02:01:18 GMT", want},
		{"RFC 850", "Thursday, 18-Aug-50 02:01:18 GMT", want},
		{"RFC 850, the longest", "Wednesday, 06-Nov-94 08:49:37 GMT", time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)},
		{"RFC 850, the shortest", "Sunday, 06-Nov-94 08:49:37 GMT", time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)},
		{"asctime", "Thu Aug 18 02:01:18 2050", want},
		{"asctime, one-digit day", "Sun Nov  6 08:49:37 1994", time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)},
		{"asctime, day with zero", "Sun Nov 06 08:49:37 1994", time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)},
		{"weekday in capitals", "THU, 18 Aug 2050 02:01:18 GMT", want},
		{"month in capitals", "Thu, 18 AUG 2050 02:01:18 GMT", want},
		{"GMT in lower case", "Thu, 18 Aug 2050 02:01:18 gMT", want},
		{"past 2038", "Thu, 18 Aug 2150 02:01:18 GMT", time.Date(2150, 8, 18, 2, 1, 18, 0, time.UTC)},
		{"year 9999", "Thu, 18 Aug 9999 02:01:18 GMT", time.Date(9999, 8, 18, 2, 1, 18, 0, time.UTC)},
		{"weekday that isn't that day's", "Mon, 18 Aug 2050 02:01:18 GMT", want},
		{"leap second", "Sat, 31 Dec 2016 23:59:60 GMT", time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"leap day", "Thu, 29 Feb 2024 00:00:00 GMT", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"RFC 850, 50 years ahead to the second", "Tuesday, 03-Mar-76 12:00:00 GMT", time.Date(2076, 3, 3, 12, 0, 0, 0, time.UTC)},
		{"RFC 850, a second more is a century back", "Tuesday, 03-Mar-76 12:00:01 GMT", time.Date(1976, 3, 3, 12, 0, 1, 0, time.UTC)},
		{"RFC 850, year 00", "Tuesday, 29-Feb-00 12:00:01 GMT", time.Date(2000, 2, 29, 12, 0, 1, 0, time.UTC)},
		{"RFC 850, year 99", "Tuesday, 03-Mar-99 12:00:01 GMT", time.Date(1999, 3, 3, 12, 0, 1, 0, time.UTC)},
	}
	for _, c := range fine {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := ParseDate(c.in, epoch); !ok || !got.Equal(c.want) {
				t.Errorf("ParseDate(%q) = %v, %v; want %v", c.in, got, ok, c.want)
			}
		})
	}

	for name, in := range map[string]string{
		"nothing":                    "",
		"zero":                       "0",
		"minus one":                  "-1",
		"zone UTC":                   "Thu, 18 Aug 2050 02:01:18 UTC",
		"zone AEST":                  "Thu, 18 Aug 2050 02:01:18 AEST",
		"offset":                     "Thu, 18 Aug 2050 02:01:18 +0000",
		"no zone":                    "Thu, 18 Aug 2050 02:01:18",
		"zone in RFC 850":            "Thursday, 18-Aug-50 02:01:18 EST",
		"asctime with zone":          "Thu Aug 18 02:01:18 2050 GMT",
		"one-digit hour":             "Thu, 18 Aug 2050 2:01:18 GMT",
		"one-digit hour, padded":     "Thu, 18 Aug 2050  2:01:18 GMT",
		"one-digit day":              "Thu, 8 Aug 2050 02:01:18 GMT",
		"doubled space":              "Thu, 18  Aug 2050 02:01:18 GMT",
		"doubled space and no comma": "Thu 18  Aug 2050 02:01:18 GMT",
		"dashes":                     "Thu, 18-Aug-2050 02:01:18 GMT",
		"dots in the time":           "Thu, 18 Aug 2050 02.01.18 GMT",
		"no comma":                   "Thu 18 Aug 2050 02:01:18 GMT",
		"two-digit year":             "Thu, 18 Aug 50 02:01:18 GMT",
		"short weekday in RFC 850":   "Thu, 18-Aug-50 02:01:18 GMT",
		"four-digit year in RFC 850": "Thursday, 18-Aug-2050 02:01:18 GMT",
		"no weekday":                 "18 Aug 2050 02:01:18 GMT",
		"strange weekday":            "Thx, 18 Aug 2050 02:01:18 GMT",
		"strange month":              "Thu, 18 Agu 2050 02:01:18 GMT",
		"day 0":                      "Thu, 00 Aug 2050 02:01:18 GMT",
		"day 32":                     "Thu, 32 Aug 2050 02:01:18 GMT",
		"30 February":                "Wed, 30 Feb 2050 02:01:18 GMT",
		"29 February, no leap year":  "Wed, 29 Feb 2023 02:01:18 GMT",
		"29 February 1900":           "Wed, 29 Feb 1900 02:01:18 GMT",
		"hour 24":                    "Thu, 18 Aug 2050 24:01:18 GMT",
		"minute 60":                  "Thu, 18 Aug 2050 02:60:18 GMT",
		"second 61":                  "Thu, 18 Aug 2050 02:01:61 GMT",
		"no seconds":                 "Thu, 18 Aug 2050 02:01 GMT",
		"space before":               " Thu, 18 Aug 2050 02:01:18 GMT",
		"space behind":               "Thu, 18 Aug 2050 02:01:18 GMT ",
		"text behind":                "Thu, 18 Aug 2050 02:01:18 GMT; x",
		"ISO 8601":                   "2050-08-18T02:01:18Z",
		"Unix seconds":               "2543191278",
		"Kelvin sign":                "Thu, 18 Auɡ 2050 02:01:18 GMT",
		"RFC 850, no space":          "Thursday,_18-Aug-50 02:01:18 GMT",
		"RFC 850, no comma":          "Thursday; 18-Aug-50 02:01:18 GMT",
		"RFC 850, spaces":            "Thursday, 18 Aug 50 02:01:18 GMT",
		"letters for a day":          "Thu, xx Aug 2050 02:01:18 GMT",
		"letters for a year":         "Thu, 18 Aug 2x50 02:01:18 GMT",
		"letters for a year, 850":    "Thursday, 18-Aug-x0 02:01:18 GMT",
		"asctime, letters for a day": "Thu Aug xx 02:01:18 2050",
		"asctime, no day":            "Thu Aug    02:01:18 2050",
		"asctime, strange month":     "Thu Agu 18 02:01:18 2050",
		"signed day":                 "Thu, +8 Aug 2050 02:01:18 GMT",
		"RFC 850, impossible day":    "Thursday, 31-Feb-50 02:01:18 GMT",
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if got, ok := ParseDate(in, epoch); ok {
				t.Errorf("ParseDate(%q) = %v; want it refused", in, got)
			}
		})
	}
	allocates(t, "ParseDate", func() { ParseDate("Thursday, 18-Aug-50 02:01:18 GMT", epoch) })
}

// Rule 5: Date stays the origin's, and is added where it is missing
// (RFC 9110 §6.6.1).
func TestEnsureDate(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"valid stays", at(-time.Hour), at(-time.Hour)},
		{"future stays", at(time.Hour), at(time.Hour)},
		{"another format stays", "Sun Nov  6 08:49:37 1994", "Sun Nov  6 08:49:37 1994"},
		{"invalid goes", "yesterday", at(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{"Date": {c.in}}
			EnsureDate(h, epoch)
			if got := h.Get("Date"); got != c.want {
				t.Errorf("Date: %s; want %s", got, c.want)
			}
		})
	}
	h := http.Header{}
	EnsureDate(h, epoch)
	if h.Get("Date") != at(0) {
		t.Errorf("missing Date became %q", h.Get("Date"))
	}
	h = http.Header{"Date": {at(0), at(5)}}
	EnsureDate(h, epoch.Add(time.Minute))
	if len(h["Date"]) != 1 {
		t.Errorf("two Dates became %q", h["Date"])
	}
}

func FuzzParseDate(f *testing.F) {
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "0",
		"Sat, 31 Dec 2016 23:59:60 GMT", "Tuesday, 29-Feb-00 12:00:01 GMT",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseDate(s, epoch)
		if !ok {
			return
		}
		again, ok := ParseDate(got.Format(http.TimeFormat), epoch)
		if got.Year() <= 9999 && (!ok || !again.Equal(got)) {
			t.Errorf("%q is %v, but its IMF-fixdate is %v, %v", s, got, again, ok)
		}
	})
}
