package loadtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
)

//go:embed report.html
var reportHTML string

// htmlGroup is a group as the page shows it.
type htmlGroup struct {
	*Group
	Name   string // "with filters"; empty when there is one group only
	Charts []template.HTML
}

// htmlRow is a line of the summary table.
type htmlRow struct {
	Name   string
	Values []string
}

type htmlPage struct {
	*Report
	Title  string
	Cmd    string
	Groups []htmlGroup
	Rows   []htmlRow
	Shared []template.HTML // charts in which the groups stand together
}

// writeHTML writes the report as one page that needs nothing else.
func (r *Report) writeHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{"percent": percent, "ms": ms, "mib": func(n int64) int64 { return n >> 20 }}).Parse(reportHTML)
	if err != nil {
		return fmt.Errorf("report.html: %w", err)
	}
	p := htmlPage{Report: r, Title: "edged load test: " + r.Scenario.Name, Cmd: strings.Join(r.Command, " ")}
	p.Groups = []htmlGroup{{Group: &r.Group}}
	if r.NoFilters != nil {
		p.Groups[0].Name = "with filters"
		p.Groups = append(p.Groups, htmlGroup{Group: r.NoFilters, Name: "without filters"})
	}
	for _, row := range summaryRows {
		h := htmlRow{Name: row.name}
		for _, g := range p.Groups {
			h.Values = append(h.Values, row.value(g.Group))
		}
		p.Rows = append(p.Rows, h)
	}
	p.Shared = []template.HTML{distributionChart(p.Groups).svg()}
	for i := range p.Groups {
		g := &p.Groups[i]
		for _, c := range g.timeCharts() {
			g.Charts = append(g.Charts, c.svg())
		}
	}
	return t.Execute(w, p)
}

// distributionChart has the quantiles on an axis that gives each further nine
// the same room.
func distributionChart(groups []htmlGroup) chart {
	nines := func(q float64) float64 { return -math.Log10(1 - min(q, 0.99999)) }
	c := chart{title: "Latency by quantile", unit: "ms, from the scheduled time", logY: true}
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		c.xTicks = append(c.xTicks, tick{nines(q), fmt.Sprintf("p%g", math.Round(q*1e6)/1e4)})
	}
	for _, g := range groups {
		l := line{name: "latency " + g.Name}
		for _, p := range g.Distribution {
			l.points = append(l.points, point{nines(p.Quantile), p.MS})
		}
		c.lines = append(c.lines, l)
	}
	return c
}

// timeCharts have the time of the run on the x axis.
func (g *htmlGroup) timeCharts() []chart {
	latency := chart{title: "Latency over time", unit: "ms", logY: true}
	rate := chart{title: "Answers over time", unit: "a second, by where they came from"}
	skipped := chart{title: "Peers skipped, and hits", unit: "% of each second's look-ups, and answers", maxY: 100}
	p50, p99 := line{name: "p50"}, line{name: "p99"}
	skip, hit := line{name: "peers skipped"}, line{name: "hits"}
	sources := []string{fromHit, fromStale, fromPeer, fromShield, fromNegative, fromCatalog, fromOrigin}
	bySource := make([]line, len(sources))
	failed := line{name: "errors"}
	var last float64
	for _, p := range g.Series {
		seconds := max(p.S-last, 0.001)
		last = p.S
		p50.points = append(p50.points, point{p.S, p.P50MS})
		p99.points = append(p99.points, point{p.S, p.P99MS})
		hit.points = append(hit.points, point{p.S, 100 * ratio(p.Sources[fromHit]+p.Sources[fromStale]+p.Sources[fromPeer], p.Responses)})
		if p.SkipRatio != nil {
			skip.points = append(skip.points, point{p.S, 100 * *p.SkipRatio})
		}
		for i, s := range sources {
			bySource[i].name = s
			bySource[i].points = append(bySource[i].points, point{p.S, float64(p.Sources[s]) / seconds})
		}
		failed.points = append(failed.points, point{p.S, float64(p.Errors) / seconds})
	}
	latency.lines = []line{p50, p99}
	skipped.lines = []line{skip, hit}
	for i, l := range bySource {
		if g.Sources[sources[i]] > 0 {
			rate.lines = append(rate.lines, l)
		}
	}
	if g.Errors > 0 {
		rate.lines = append(rate.lines, failed)
	}
	charts := []chart{rate, latency, skipped}
	for i := range charts {
		charts[i].xTicks = timeTicks(last)
		for _, e := range g.Events {
			charts[i].marks = append(charts[i].marks, mark{e.S, e.Text})
		}
	}
	return charts
}

func timeTicks(end float64) []tick {
	var ts []tick
	for _, s := range linearGrid(end) {
		ts = append(ts, tick{s, fmt.Sprintf("%gs", s)})
	}
	return ts
}
