package loadtest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Share is a part of a whole, 0 to 1, written as "65%" or "0.65".
type Share float64

// UnmarshalText parses "65%" and "0.65".
func (s *Share) UnmarshalText(text []byte) error {
	num, percent := strings.CutSuffix(strings.TrimSpace(string(text)), "%")
	v, err := strconv.ParseFloat(num, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return fmt.Errorf("%q is not a share: want 0%% to 100%%, or 0 to 1", text)
	}
	*s = Share(v)
	return nil
}

// MarshalText writes a percentage.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String writes a percentage, "65%".
func (s Share) String() string {
	return strconv.FormatFloat(math.Round(float64(s)*1e8)/1e6, 'f', -1, 64) + "%"
}

// Bytes is a size, written as "4096", "4KiB" or "1.5MiB".
type Bytes int64

// maxBytes is far above any size that makes sense here and far below what
// would overflow in arithmetic.
const maxBytes = 1 << 50

var byteUnits = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

// UnmarshalText parses a number with an optional unit.
func (b *Bytes) UnmarshalText(text []byte) error {
	num, factor := strings.TrimSpace(string(text)), 1.0
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(num, u.suffix); ok {
			num, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	v, err := strconv.ParseFloat(num, 64)
	if v *= factor; err != nil || !(v >= 0 && v <= maxBytes) {
		return fmt.Errorf("%q is not a size: want bytes, or a unit as in 4KiB, 512MiB", text)
	}
	*b = Bytes(v)
	return nil
}

// MarshalText writes the largest unit that leaves a whole number.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String writes the largest unit that leaves a whole number, "4KiB".
func (b Bytes) String() string {
	switch {
	case b >= 1<<30 && b%(1<<30) == 0:
		return strconv.FormatInt(int64(b>>30), 10) + "GiB"
	case b >= 1<<20 && b%(1<<20) == 0:
		return strconv.FormatInt(int64(b>>20), 10) + "MiB"
	case b >= 1<<10 && b%(1<<10) == 0:
		return strconv.FormatInt(int64(b>>10), 10) + "KiB"
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// SizeRange is the size of bodies: one size ("4KiB"), or a range
// ("1KiB-64KiB") from which each key has its own, evenly on a logarithmic
// scale, as sizes on the web are closer to than to an even spread.
type SizeRange struct{ Min, Max Bytes }

// UnmarshalText parses "4KiB" and "1KiB-64KiB".
func (s *SizeRange) UnmarshalText(text []byte) error {
	lo, hi, isRange := strings.Cut(string(text), "-")
	var r SizeRange
	if err := r.Min.UnmarshalText([]byte(lo)); err != nil {
		return err
	}
	if r.Max = r.Min; isRange {
		if err := r.Max.UnmarshalText([]byte(hi)); err != nil {
			return err
		}
	}
	if r.Max < r.Min || r.Max > MaxBodyBytes {
		return fmt.Errorf("%q is not a size of bodies: want SIZE or SMALL-LARGE, at most %v", text, Bytes(MaxBodyBytes))
	}
	*s = r
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (s SizeRange) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String writes what UnmarshalText reads.
func (s SizeRange) String() string {
	if s.Min == s.Max {
		return s.Min.String()
	}
	return s.Min.String() + "-" + s.Max.String()
}

// of returns the size of the body of key n.
func (s SizeRange) of(n uint64) int64 {
	if s.Min == s.Max {
		return int64(s.Min)
	}
	lo, hi := math.Log(float64(max(s.Min, 1))), math.Log(float64(s.Max))
	u := float64(mix64(n^0x6a09e667f3bcc909)>>11) / (1 << 53) // its own stream: the square root of 2
	return min(int64(math.Exp(lo+u*(hi-lo))), int64(s.Max))
}
