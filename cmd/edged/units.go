package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The units of a size, longest name first so that a suffix is found whole.
// Binary units have an i; decimal ones do not.
func sizeUnits() []struct {
	name string
	n    int64
} {
	return []struct {
		name string
		n    int64
	}{
		{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
		{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3},
		{"B", 1},
	}
}

var (
	errSize     = errors.New("want a size, such as 512MiB, 1.5GB or 1048576 (bytes)")
	errDuration = errors.New("want a duration with its unit, such as 500ms, 5s or 1m30s")
	errRate     = errors.New("want a rate, such as 0.5% or 0.005")
)

// parseSize reads a number of bytes: "512MiB", "1.5GB", "4096".
func parseSize(s string) (int64, error) {
	num, unit := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(num, u.name); ok {
			num, unit = strings.TrimRight(rest, " "), u.n
			break
		}
	}
	if !isDecimal(num) {
		return 0, fmt.Errorf("%q is not a size: %w", s, errSize)
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil {
		if n > math.MaxInt64/unit {
			return 0, fmt.Errorf("%q is larger than any memory: %w", s, errSize)
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %w", s, errSize)
	}
	if f *= float64(unit); f >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is larger than any memory: %w", s, errSize)
	}
	return int64(math.Round(f)), nil
}

// formatSize is the shortest exact form that parseSize reads back.
func formatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range sizeUnits() {
		if u.n > 1 && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// approxSize is for people: three digits and a binary unit.
func approxSize(n int64) string {
	for _, u := range sizeUnits()[:4] {
		if n >= u.n {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(u.n), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// parseDuration reads "1m30s"; a bare 0 needs no unit.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration: %w", s, errDuration)
	case d < 0:
		return 0, fmt.Errorf("%q is negative: %w", s, errDuration)
	}
	return d, nil
}

// formatDuration is [time.Duration.String] without its zero minutes and seconds.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseRate reads a share of one: "0.5%" and "0.005" are the same.
func parseRate(s string) (float64, error) {
	num, pct := strings.CutSuffix(strings.TrimSpace(s), "%")
	num = strings.TrimRight(num, " ")
	if !isDecimal(num) {
		return 0, fmt.Errorf("%q is not a rate: %w", s, errRate)
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rate: %w", s, errRate)
	}
	if pct {
		f /= 100
	}
	return f, nil
}

// formatRate is the shortest percentage that parseRate reads back to the same number.
func formatRate(r float64) string {
	for prec := 1; prec <= 17; prec++ {
		s := strconv.FormatFloat(r*100, 'g', prec, 64)
		if f, err := strconv.ParseFloat(s, 64); err == nil && f/100 == r {
			return strconv.FormatFloat(f, 'f', -1, 64) + "%"
		}
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}

// parseCount reads a whole number of at most 18 digits; underscores may group them.
func parseCount(s string) (int, error) {
	digits := strings.ReplaceAll(strings.TrimSpace(s), "_", "")
	n, err := strconv.Atoi(digits)
	if err != nil || !isDecimal(digits) || len(digits) > 18 || len(digits) > 1 && digits[0] == '0' {
		return 0, fmt.Errorf("%q is not a number: want a whole number, such as 1000000", s)
	}
	return n, nil
}

// A count is the number of a flag; people write large ones in many ways.
type count int

// UnmarshalText reads a whole number: "1000000", "1_000_000", "1e6" or "1M"
// (k, M and G are thousands).
func (c *count) UnmarshalText(b []byte) error {
	if n, err := parseCount(string(b)); err == nil {
		*c = count(n)
		return nil
	}
	num, factor := strings.ReplaceAll(strings.TrimSpace(string(b)), "_", ""), 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9} {
		if rest, ok := strings.CutSuffix(num, suffix); ok {
			num, factor = rest, f
			break
		}
	}
	mantissa, exponent, scaled := strings.Cut(num, "e")
	n, err := strconv.ParseFloat(num, 64)
	n *= factor
	if err != nil || !isDecimal(mantissa) || scaled && !isDecimal(exponent) || n != math.Trunc(n) || n > 1e15 {
		return fmt.Errorf("%q is not a number: want a whole number, such as 1000000, 1e6 or 1M", b)
	}
	*c = count(n)
	return nil
}

// isDecimal reports whether s is digits with at most one point: no sign, no
// exponent, no hexadecimal, no "inf".
func isDecimal(s string) bool {
	digits, points := 0, 0
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.':
			points++
		default:
			return false
		}
	}
	return digits > 0 && points <= 1 && len(s) <= 32
}

// UnmarshalText reads a rate from a flag.
func (r *rate) UnmarshalText(b []byte) error { return setText(r, string(b)) }
