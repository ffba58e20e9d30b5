package loadtest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Threshold is a line of fail_if: "p99 > 50ms", "skip_ratio < 98%",
// "errors > 0". Latencies are in milliseconds inside. It breaks when the
// comparison holds. A value that a run does not have (the skip ratio of a run
// without filters) breaks nothing.
type Threshold struct {
	Name  string // a key of thresholdValues
	Op    string // ">", ">=", "<" or "<="
	Limit float64
}

// thresholdValues are the numbers of a group that a threshold can name; ok is
// false where the group has no such number.
var thresholdValues = map[string]func(g *Group) (v float64, ok bool){
	"requests":              func(g *Group) (float64, bool) { return float64(g.Requests), true },
	"errors":                func(g *Group) (float64, bool) { return float64(g.Errors), true },
	"error_ratio":           func(g *Group) (float64, bool) { return ratio(g.Errors, g.Requests), g.Requests > 0 },
	"wrong_answers":         func(g *Group) (float64, bool) { return float64(g.WrongAnswers), true },
	"rate":                  func(g *Group) (float64, bool) { return g.Rate, true },
	"p50":                   func(g *Group) (float64, bool) { return g.LatencyMS.P50, true },
	"p90":                   func(g *Group) (float64, bool) { return g.LatencyMS.P90, true },
	"p99":                   func(g *Group) (float64, bool) { return g.LatencyMS.P99, true },
	"p999":                  func(g *Group) (float64, bool) { return g.LatencyMS.P999, true },
	"max":                   func(g *Group) (float64, bool) { return g.LatencyMS.Max, true },
	"late_ratio":            func(g *Group) (float64, bool) { return ratio(g.Driver.LateStarts, g.Requests), g.Requests > 0 },
	"hit_ratio":             func(g *Group) (float64, bool) { return g.HitRatio, true },
	"peer_rpcs_per_request": func(g *Group) (float64, bool) { return g.PeerRPCsPerRequest, g.counted },
	"origin_requests":       func(g *Group) (float64, bool) { return float64(g.OriginRequests), g.counted },
	"disagreements":         func(g *Group) (float64, bool) { return float64(len(g.Disagreements)), true },
	"skip_ratio":            func(g *Group) (float64, bool) { return g.SkipRatio, g.counted && g.Filters && g.lookups() > 0 },
	"observed_false_positive_rate": func(g *Group) (float64, bool) {
		return deref(g.ObservedFalsePositiveRate), g.ObservedFalsePositiveRate != nil
	},
}

// UnmarshalText parses "NAME OP VALUE".
func (t *Threshold) UnmarshalText(text []byte) error {
	f := strings.Fields(string(text))
	if len(f) != 3 {
		return fmt.Errorf("%q is not a threshold: want NAME OP VALUE, such as p99 > 50ms", text)
	}
	if _, ok := thresholdValues[f[0]]; !ok {
		return fmt.Errorf("%q is not the name of a value: want one of %s", f[0], strings.Join(thresholdNames(), ", "))
	}
	if !slices.Contains([]string{">", ">=", "<", "<="}, f[1]) {
		return fmt.Errorf("%q: want >, >=, < or <=", f[1])
	}
	limit, err := parseLimit(f[2], isLatency(f[0]))
	if err != nil {
		return err
	}
	*t = Threshold{f[0], f[1], limit}
	return nil
}

func thresholdNames() []string {
	var names []string
	for n := range thresholdValues {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func isLatency(name string) bool {
	return slices.Contains([]string{"p50", "p90", "p99", "p999", "max"}, name)
}

func parseLimit(s string, latency bool) (float64, error) {
	if latency {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a latency: want 50ms or 1.5s", s)
		}
		return float64(d) / float64(time.Millisecond), nil
	}
	num, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || v != v {
		return 0, fmt.Errorf("%q is not a number: want 0, 0.98 or 98%%", s)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

// String writes what UnmarshalText reads.
func (t Threshold) String() string {
	limit := strconv.FormatFloat(t.Limit, 'g', -1, 64)
	if isLatency(t.Name) {
		limit = time.Duration(math.Round(t.Limit * float64(time.Millisecond))).String()
	}
	return t.Name + " " + t.Op + " " + limit
}

// MarshalText writes what UnmarshalText reads.
func (t Threshold) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// broken reports whether the threshold holds for the group, and the value.
func (t Threshold) broken(g *Group) (float64, bool) {
	value, known := thresholdValues[t.Name]
	if !known {
		return 0, false
	}
	v, ok := value(g)
	if !ok {
		return 0, false
	}
	switch t.Op {
	case ">":
		return v, v > t.Limit
	case ">=":
		return v, v >= t.Limit
	case "<":
		return v, v < t.Limit
	default:
		return v, v <= t.Limit
	}
}
