package main

import (
	"math"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "4096": 4096, "512MiB": 512 << 20, "1KiB": 1024, "2GiB": 2 << 30, "1TiB": 1 << 40,
		"1KB": 1000, "1kB": 1000, "3MB": 3e6, "1.5GB": 15e8, "0.5KiB": 512, "64 MiB": 64 << 20, "7B": 7,
		"9223372036854775807": math.MaxInt64,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "-1MiB", "1e6", "0x10", "1mib", "1M", "inf", "NaN", "1.2.3", "9999999999GiB", "9223372036854775808", "1 000", "９"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %d; want an error", in, got)
		}
	}
}

func TestFormatSize_readsBack(t *testing.T) {
	for _, n := range []int64{0, 1, 999, 1000, 1024, 1536, 512 << 20, 1 << 40, 15e8, math.MaxInt64} {
		if got, err := parseSize(formatSize(n)); err != nil || got != n {
			t.Errorf("%d is written %q and read as %d, %v", n, formatSize(n), got, err)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"1m30s": 90 * time.Second, "0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "1h": time.Hour} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "5", "-5s", "5 s", "s", "1d", "99999999999h"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("parseDuration(%q) = %v; want an error", in, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "1m": time.Minute, "1h": time.Hour, "1h1m": 61 * time.Minute, "1m30s": 90 * time.Second, "30s": 30 * time.Second, "10s": 10 * time.Second, "1h0m5s": time.Hour + 5*time.Second} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%v) = %q; want %q", d, got, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]float64{"0.5%": 0.005, "0.005": 0.005, "70%": 0.7, "1": 1, "100%": 1, "0": 0, "1 %": 0.01} {
		if got, err := parseRate(in); err != nil || got != want {
			t.Errorf("parseRate(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "%", "-1%", "1e-3", "nan", "inf%", "1%%", "0x1p-2"} {
		if got, err := parseRate(in); err == nil {
			t.Errorf("parseRate(%q) = %v; want an error", in, got)
		}
	}
}

func TestFormatRate_readsBack(t *testing.T) {
	for _, r := range []float64{0, 1e-6, 0.005, 0.01, 0.1, 1.0 / 3, 0.7, 0.07, 1, math.Nextafter(0.01, 1)} {
		if got, err := parseRate(formatRate(r)); err != nil || got != r {
			t.Errorf("%v is written %q and read as %v, %v", r, formatRate(r), got, err)
		}
	}
	if got := formatRate(0.005); got != "0.5%" {
		t.Errorf("formatRate(0.005) = %q", got)
	}
}

func TestParseCount(t *testing.T) {
	for in, want := range map[string]int{"0": 0, "12": 12, "1_000_000": 1e6} {
		if got, err := parseCount(in); err != nil || got != want {
			t.Errorf("parseCount(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "_", "-1", "1.5", "010", "0x10", "1e3", "9999999999999999999"} {
		if got, err := parseCount(in); err == nil {
			t.Errorf("parseCount(%q) = %d; want an error", in, got)
		}
	}
}

func TestCount_unmarshalText(t *testing.T) {
	for in, want := range map[string]count{"0": 0, "12": 12, "1_000_000": 1e6, "1e6": 1e6, "10M": 1e7, "50k": 5e4, "1.5M": 15e5, "2G": 2e9, "1_0e1": 100} {
		var got count
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q is read as %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "M", "e6", "1e", "1.5", "-1M", "1e-3", "1e99", "0x10", "1MM", "1kM", "inf", "1e+6", "10 M", "9999999G"} {
		var got count
		if err := got.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q is read as %d; want an error", in, got)
		}
	}
}
