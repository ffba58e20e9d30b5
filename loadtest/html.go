package loadtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/goccy/go-yaml"
)

//go:embed report.html
var reportHTML string

// htmlGroup is a group as the page shows it.
type htmlGroup struct {
	*Group
	Name   string // "with filters"; empty when there is one group only
	Charts []template.HTML
	Bars   template.HTML // of the nodes' bloom counters
}

// htmlRow is a line of the summary table.
type htmlRow struct {
	Name   string
	Values []htmlValue
}

// htmlValue is a value, and the group that it is of when there are two.
type htmlValue struct{ Group, Text string }

type htmlPage struct {
	*Report
	Title  string
	Cmd    string
	Groups []htmlGroup
	Rows   []htmlRow

	Verdicts []verdict       // of a comparison
	Shared   []template.HTML // charts in which the groups stand together
	File     string          // the scenario as YAML
}

// writeHTML writes the report as one page that needs nothing else.
func (r *Report) writeHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{"percent": percent, "ms": ms, "mib": func(n int64) int64 { return n >> 20 }, "kib": func(n int64) int64 { return n >> 10 }}).Parse(reportHTML)
	if err != nil {
		return fmt.Errorf("report.html: %w", err)
	}
	p := htmlPage{Report: r, Title: "edged load test: " + r.Scenario.Name, Cmd: strings.Join(r.Command, " ")}
	file, err := yaml.Marshal(r.Scenario)
	if err != nil {
		return fmt.Errorf("scenario: %w", err)
	}
	p.File = string(file)
	for _, g := range r.groups() {
		p.Groups = append(p.Groups, htmlGroup{Group: g.group, Name: g.name})
	}
	if r.Comparison != nil {
		p.Verdicts = r.Comparison.lines(r)
	}
	for _, row := range r.rows() {
		h := htmlRow{Name: row.name}
		for _, g := range p.Groups {
			h.Values = append(h.Values, htmlValue{g.Name, row.value(g.Group)})
		}
		p.Rows = append(p.Rows, h)
	}
	p.Shared = []template.HTML{distributionChart(p.Groups).svg()}
	for i := range p.Groups {
		g := &p.Groups[i]
		for _, c := range g.timeCharts() {
			g.Charts = append(g.Charts, c.svg())
		}
		if g.counted || len(g.Nodes) > 0 {
			g.Bars = g.bloomBars().svg()
		}
	}
	return t.Execute(w, p)
}

// distributionChart has the quantiles on an axis that gives each further nine
// the same room.
func distributionChart(groups []htmlGroup) chart {
	nines := func(q float64) float64 { return -math.Log10(1 - min(q, 0.99999)) }
	c := chart{title: "Latency by quantile", unit: "ms, from the scheduled time", logY: true}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999} {
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
