package loadtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"text/tabwriter"
)

// maxReportBytes bounds a report.json: a day of three nodes has some 100 MB.
const maxReportBytes = 512 << 20

// ReadReport reads what [Run] wrote as report.json.
func ReadReport(r io.Reader) (*Report, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxReportBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read report: %w", err)
	case len(data) > maxReportBytes:
		return nil, fmt.Errorf("read report: more than %v", Bytes(maxReportBytes))
	}
	rep := new(Report)
	if err := json.Unmarshal(data, rep); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if rep.Requests <= 0 || rep.DurationS <= 0 {
		return nil, errors.New("read report: there are no requests in it: is it a report.json of edged loadtest?")
	}
	rep.counted = len(rep.Nodes) > 0 && rep.Nodes[0].Admin != ""
	return rep, nil
}

// Change is one number of two reports.
type Change struct {
	Name string
	A, B float64
	// Noise is the standard error of B - A, from how much the number moved from
	// second to second in each of the runs; 0 where it has no samples.
	Noise float64
	// Worse says that B is worse than A by more than the threshold and by more
	// than noise explains; Better the opposite.
	Worse, Better bool
}

// sigmas is how many standard errors are no noise any more. Of a dozen numbers
// compared, one in sixty comparisons of equals would show 3 by chance.
const sigmas = 4

// measure is one number that two reports are compared by.
type measure struct {
	name   string
	higher bool // is better
	value  func(g *Group) (v float64, ok bool)
	// second is the number in one second of the series; nil: none.
	second func(p Point, seconds float64) float64
	floor  float64 // smaller differences matter to nobody
}

func measures() []measure {
	ok := func(f func(*Group) float64) func(*Group) (float64, bool) {
		return func(g *Group) (float64, bool) { return f(g), true }
	}
	counted := func(f func(*Group) float64) func(*Group) (float64, bool) {
		return func(g *Group) (float64, bool) { return f(g), g.counted }
	}
	nodes := func(p Point, f func(NodePoint) float64) float64 {
		if p.Responses == 0 || len(p.Nodes) == 0 {
			return math.NaN()
		}
		var v float64
		for _, n := range p.Nodes {
			v += f(n)
		}
		return v / float64(p.Responses)
	}
	return []measure{
		{"wrong answers", false, ok(func(g *Group) float64 { return float64(g.WrongAnswers) }), nil, 0},
		{"error ratio", false, ok(func(g *Group) float64 { return ratio(g.Errors, g.Requests) }), func(p Point, _ float64) float64 {
			return ratio(p.Errors, p.Responses)
		}, 0.001},
		{"rate a second", true, ok(func(g *Group) float64 { return g.Rate }), func(p Point, s float64) float64 { return float64(p.Responses) / s }, 0},
		{"p50 ms", false, ok(func(g *Group) float64 { return g.LatencyMS.P50 }), func(p Point, _ float64) float64 { return p.P50MS }, 0.05},
		{"p99 ms", false, ok(func(g *Group) float64 { return g.LatencyMS.P99 }), func(p Point, _ float64) float64 { return p.P99MS }, 0.2},
		{"hit ratio", true, ok(func(g *Group) float64 { return g.HitRatio }), func(p Point, _ float64) float64 {
			return ratio(p.Sources[fromHit]+p.Sources[fromStale]+p.Sources[fromPeer]+p.Sources[fromOwner], p.Responses)
		}, 0.001},
		{"skip ratio", true, counted(func(g *Group) float64 { return g.SkipRatio }), func(p Point, _ float64) float64 { return orNaN(p.SkipRatio) }, 0.001},
		{"peer RPCs a request", false, counted(func(g *Group) float64 { return g.PeerRPCsPerRequest }), func(p Point, _ float64) float64 {
			return nodes(p, func(n NodePoint) float64 { return float64(n.PeerRPCs) })
		}, 0.001},
		{"origin requests a request", false, counted(func(g *Group) float64 { return ratio(g.OriginRequests, g.Requests) }), func(p Point, _ float64) float64 {
			return nodes(p, func(n NodePoint) float64 { return float64(n.OriginRequests) })
		}, 0.001},
		{"CPU ms a request", false, counted(func(g *Group) float64 {
			var s float64
			for _, n := range g.Nodes {
				s += n.CPUSeconds
			}
			return 1000 * s / math.Max(float64(g.Requests), 1)
		}), func(p Point, _ float64) float64 {
			return nodes(p, func(n NodePoint) float64 { return 1000 * n.CPUSeconds })
		}, 0},
	}
}

// Diff compares two reports. The threshold is the part of A by which B may be
// worse, 0.05 for 5 %.
func Diff(a, b *Report, threshold float64) []Change {
	var out []Change
	for _, m := range measures() {
		va, okA := m.value(&a.Group)
		vb, okB := m.value(&b.Group)
		if !okA || !okB {
			continue
		}
		c := Change{Name: m.name, A: va, B: vb}
		if m.second != nil {
			c.Noise = math.Hypot(standardError(a.Series, m.second), standardError(b.Series, m.second))
		}
		worse := vb - va
		if m.higher {
			worse = -worse
		}
		far := math.Abs(worse) > threshold*math.Abs(va)+m.floor && math.Abs(worse) > sigmas*c.Noise
		c.Worse, c.Better = far && worse > 0, far && worse < 0
		out = append(out, c)
	}
	return out
}

// standardError is that of the mean of a series' values. Neighbouring seconds
// resemble each other, so n of them are worth n(1-r)/(1+r), r being their
// correlation. 0: there are too few to say.
func standardError(series []Point, value func(p Point, seconds float64) float64) float64 {
	var vs []float64
	last := 0.0
	for _, p := range series {
		if v := value(p, max(p.S-last, 0.001)); !math.IsNaN(v) && !math.IsInf(v, 0) {
			vs = append(vs, v)
		}
		last = p.S
	}
	n := float64(len(vs))
	if n < 3 {
		return 0
	}
	mean := sum(vs) / n
	var variance, together float64
	for i, v := range vs {
		variance += (v - mean) * (v - mean)
		if i > 0 {
			together += (v - mean) * (vs[i-1] - mean)
		}
	}
	if variance == 0 {
		return 0
	}
	r := min(max(together/variance, 0), 0.9)
	return math.Sqrt(variance / (n - 1) / (n * (1 - r) / (1 + r)))
}

// WriteDiff writes the changes as a table, and what makes the reports hard to
// compare. It reports whether anything is worse.
func WriteDiff(w io.Writer, a, b *Report, threshold float64) (worse bool) {
	sa, sb := a.Scenario, b.Scenario
	for _, s := range []*Scenario{&sa, &sb} {
		s.Name, s.Description, s.FailIf = "", "", nil
	}
	if !reflect.DeepEqual(sa, sb) {
		fmt.Fprintln(w, "Note: these are two scenarios, so differences may be theirs.")
	}
	if a.CPUs != b.CPUs || a.Platform != b.Platform {
		fmt.Fprintf(w, "Note: these are two machines: %s with %d CPUs, %s with %d.\n", a.Platform, a.CPUs, b.Platform, b.CPUs)
	}
	for i, r := range []*Report{a, b} {
		if r.Driver.Bottleneck != "" {
			fmt.Fprintf(w, "Note: the driver of %c was a bottleneck, so its latencies say little.\n", "AB"[i])
		}
		if r.Interrupted {
			fmt.Fprintf(w, "Note: %c was interrupted.\n", "AB"[i])
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tA\tB\tchange\tnoise\t\t")
	for _, c := range Diff(a, b, threshold) {
		change, verdict := "-", ""
		if c.A != 0 {
			change = fmt.Sprintf("%+.1f%%", 100*(c.B-c.A)/math.Abs(c.A))
		} else if c.B == 0 {
			change = "+0.0%"
		}
		noise := "-"
		if c.A != 0 && c.Noise > 0 {
			noise = fmt.Sprintf("±%.1f%%", 100*c.Noise/math.Abs(c.A))
		}
		switch {
		case c.Worse:
			verdict, worse = "WORSE", true
		case c.Better:
			verdict = "better"
		}
		fmt.Fprintf(tw, "%s\t%.4g\t%.4g\t%s\t%s\t%s\t\n", c.Name, c.A, c.B, change, noise, verdict)
	}
	tw.Flush()
	return worse
}
