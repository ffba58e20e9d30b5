package loadtest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is one line of the summary: a name, and the value in each group.
type row struct {
	name  string
	value func(g *Group) string
}

var summaryRows = []row{
	{"requests", func(g *Group) string { return fmt.Sprintf("%d in %.1fs, %.0f/s", g.Requests, g.DurationS, g.Rate) }},
	{"errors", func(g *Group) string {
		if g.Errors == 0 {
			return "none, every byte checked"
		}
		return fmt.Sprintf("%d, of which %d wrong answers", g.Errors, g.WrongAnswers)
	}},
	{"latency p50", func(g *Group) string { return ms(g.LatencyMS.P50) }},
	{"latency p90", func(g *Group) string { return ms(g.LatencyMS.P90) }},
	{"latency p99", func(g *Group) string { return ms(g.LatencyMS.P99) }},
	{"latency p99.9", func(g *Group) string { return ms(g.LatencyMS.P999) }},
	{"latency max", func(g *Group) string { return ms(g.LatencyMS.Max) }},
	{"late starts", func(g *Group) string {
		if g.Driver.LateStarts == 0 {
			return "none"
		}
		v := fmt.Sprintf("%d (%s), at most by %s", g.Driver.LateStarts, percent(ratio(g.Driver.LateStarts, g.Requests)), ms(g.Driver.MaxLateMS))
		if g.Driver.Bottleneck != "" {
			v += ": see the warning"
		}
		return v
	}},
	{"hit ratio", func(g *Group) string {
		return fmt.Sprintf("%s (own store %s)", percent(g.HitRatio), percent(g.LocalHitRatio))
	}},
	{"answers from", func(g *Group) string { return shares(g.Sources) }},
	{"look-ups", func(g *Group) string {
		return counted(g, fmt.Sprintf("%d that missed locally", g.lookups()))
	}},
	{"peers skipped", func(g *Group) string {
		return counted(g, fmt.Sprintf("%d (%s)", g.PeerRPCsSkipped, percent(g.SkipRatio)))
	}},
	{"peer RPCs", func(g *Group) string {
		v := fmt.Sprintf("%d (%.4f a request)", g.PeerRPCs, g.PeerRPCsPerRequest)
		if g.PeerRPCsBusy > 0 {
			v += fmt.Sprintf(", %d not sent: peer busy", g.PeerRPCsBusy)
		}
		return counted(g, v)
	}},
	{"requests to owners", func(g *Group) string { return counted(g, fmt.Sprint(g.ShieldRequests)) }},
	{"origin requests", func(g *Group) string { return counted(g, fmt.Sprint(g.OriginRequests)) }},
	{"false positives", func(g *Group) string {
		if g.ObservedFalsePositiveRate == nil {
			return "-"
		}
		v := smallRate(*g.ObservedFalsePositiveRate) + " observed"
		if g.ExpectedFalsePositiveRate != nil {
			v += ", " + smallRate(*g.ExpectedFalsePositiveRate) + " expected"
			if *g.ObservedFalsePositiveRate > 2**g.ExpectedFalsePositiveRate {
				v += " (peers had just dropped the others)"
			}
		}
		return v
	}},
}

// rows are the lines of the summary that say anything.
func (r *Report) rows() []row {
	return slices.DeleteFunc(slices.Clone(summaryRows), func(w row) bool {
		return w.name == "requests to owners" && !slices.ContainsFunc(r.groups(), func(g named) bool { return g.group.ShieldRequests > 0 })
	})
}

// verdict is one sentence about a comparison.
type verdict struct {
	Text string
	Bad  bool // not as a comparison of the same requests should be
}

// lines say what is the same in the groups, and what is not.
func (c *Comparison) lines(r *Report) (out []verdict) {
	a, b := &r.Group, r.NoFilters
	if !a.counted || !b.counted {
		return nil
	}
	counts := fmt.Sprintf("Origin requests: %d with filters, %d without: ", a.OriginRequests, b.OriginRequests)
	if c.OriginRequestsEqual {
		out = append(out, verdict{counts + "equal within 1%.", false})
	} else {
		out = append(out, verdict{counts + "not equal within 1%. On a machine that is too busy peers miss their budget, and the origin is asked in their place: lower the rate.", true})
	}
	hits := fmt.Sprintf("Hit ratio: %s with filters, %s without", percent(a.HitRatio), percent(b.HitRatio))
	switch wrong := a.WrongAnswers + b.WrongAnswers; {
	case wrong > 0:
		out = append(out, verdict{fmt.Sprintf("%s; %d answers were wrong.", hits, wrong), true})
	case !c.AnswersEqual:
		out = append(out, verdict{hits + ": not equal within 1%; no answer was wrong.", true})
	default:
		out = append(out, verdict{hits + ": equal within 1%, and no answer was wrong.", false})
	}
	if g := r.RingOnly; g != nil && g.counted {
		out = append(out, verdict{fmt.Sprintf("With the ring only: %.4f requests to the key's owner a request, %d origin requests, p99 %s.", deref(c.NodeRequestsPerRequestRing), g.OriginRequests, ms(g.LatencyMS.P99)), false})
	}
	return out
}

func counted(g *Group, v string) string {
	if !g.counted {
		return "-"
	}
	return v
}

// percent writes a ratio with as many digits as tell it from 0 and 100%.
func percent(r float64) string {
	switch {
	case r != 0 && (r < 0.01 || r > 0.99 && r < 1):
		return fmt.Sprintf("%.3f%%", 100*r)
	default:
		return fmt.Sprintf("%.1f%%", 100*r)
	}
}

// smallRate writes a rate that is most often far below a percent, with its
// significant digits; below one in a million there are none to speak of.
func smallRate(r float64) string {
	if r > 0 && r < 1e-6 {
		return "<0.0001%"
	}
	return fmt.Sprintf("%.3g%%", 100*r)
}

// shares writes the parts of a whole, largest first.
func shares(m map[string]int64) string {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, k := range keys {
		if m[k] > 0 {
			parts = append(parts, k+" "+percent(ratio(m[k], total(m))))
		}
	}
	return strings.Join(parts, ", ")
}

// summarise writes the report for people.
func (r *Report) summarise(w io.Writer) {
	fmt.Fprintln(w)
	if r.Interrupted {
		fmt.Fprintln(w, "Interrupted; this is what was measured until then.")
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	groups := r.groups()
	if len(groups) > 1 {
		for _, g := range groups {
			fmt.Fprint(tw, "\t", g.name)
		}
		fmt.Fprintln(tw)
	}
	for _, row := range r.rows() {
		fmt.Fprint(tw, row.name)
		for _, g := range groups {
			fmt.Fprint(tw, "\t", row.value(g.group))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	if c := r.Comparison; c != nil {
		fmt.Fprintf(w, "\nPeer RPCs a request: %.4f with filters, %.4f without", c.PeerRPCsPerRequest, c.PeerRPCsPerRequestNoFilters)
		if c.PeerRPCsPerRequestNoFilters > 0 {
			fmt.Fprintf(w, ": %s of them, %s saved", percent(c.PeerRPCRatio), percent(1-c.PeerRPCRatio))
		}
		fmt.Fprintln(w, ".")
		for _, line := range c.lines(r) {
			fmt.Fprintln(w, line.Text)
		}
		if n := r.NoFilters.unsentRPCs(); n > 0 {
			fmt.Fprintf(w, "Without filters %d more were meant to be sent: %d found too many in flight to the peer, for the others the node left the peer alone after timeouts. So the difference is larger than that: lower the rate to see it.\n", n, min(n, r.NoFilters.PeerRPCsBusy))
		}
	}
	for _, g := range groups {
		g.group.summariseNodes(w, g.name)
		if g.group.KeySets != nil {
			g.group.KeySets.summarise(w)
		}
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "\nThreshold broken: %s\n", b)
	}
}

// summariseNodes writes the table of the nodes and everything that a reader
// must know before believing the numbers.
func (g *Group) summariseNodes(w io.Writer, name string) {
	if name != "" {
		name = " " + name
	}
	if g.counted {
		fmt.Fprintf(w, "\nNodes%s:\n", name)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "node\trequests\thits\tnegative\tpositive hit\tpositive miss\tunknown\tpeer RPCs\torigin\tfill\tCPU s\tRSS MiB\t")
		for _, n := range g.Nodes {
			fmt.Fprintf(tw, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%.1f\t%d\t\n", n.Name, n.Requests, percent(n.HitRatio),
				n.Bloom.Negative, n.Bloom.PositiveHit, n.Bloom.PositiveMiss, n.Bloom.Unknown,
				n.PeerRPCs, n.OriginRequests, percent(n.FilterFill), n.CPUSeconds, n.ResidentBytes>>20)
		}
		tw.Flush()
	}
	if p := g.Purges; p.Scheduled > 0 {
		fmt.Fprintf(w, "Purges%s: %d, %d failed, the slowest took %s", name, p.Requests, p.Errors, ms(p.MaxMS))
		if left := p.Scheduled - p.Requests; left > 0 {
			fmt.Fprintf(w, "; their turn never came: %d, since one waits for the one before", left)
		}
		fmt.Fprintln(w, ".")
	}
	if g.Driver.Bottleneck != "" {
		fmt.Fprintf(w, "Warning%s: %s.\n", name, g.Driver.Bottleneck)
	}
	for _, k := range slices.Sorted(maps.Keys(g.ErrorKinds)) {
		fmt.Fprintf(w, "Errors%s: %s %d\n", name, k, g.ErrorKinds[k])
	}
	for _, s := range g.ErrorSamples {
		fmt.Fprintf(w, "  %s\n", s)
	}
	if n := g.OriginCounts[ClassFailed]; n > 0 {
		fmt.Fprintf(w, "The origin%s failed on purpose: %d answers with 503.\n", name, n)
	}
	switch {
	case len(g.Disagreements) > 0:
		for _, d := range g.Disagreements {
			fmt.Fprintf(w, "The counts disagree%s: %s.\n", name, d)
		}
	case g.Unchecked != "":
		fmt.Fprintf(w, "The counts were not compared%s: %s.\n", name, g.Unchecked)
	case g.counted && g.OriginCounts != nil:
		fmt.Fprintf(w, "The counts of driver, nodes and origin agree%s.\n", name)
	case g.counted:
		fmt.Fprintf(w, "The counts of driver and nodes agree%s.\n", name)
	}
}
