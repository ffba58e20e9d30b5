package loadtest

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// chart is a line chart, drawn as an SVG of fixed proportions that scales with
// the page. Values that are NaN or infinite are left out.
type chart struct {
	title  string
	unit   string // of the values, written after the title
	xTicks []tick
	lines  []line
	logY   bool    // a logarithmic axis; values at or below 0 are left out
	maxY   float64 // end of the axis; 0: by the values
	marks  []mark
}

type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// tick is a label on the x axis.
type tick struct {
	x    float64
	text string
}

// mark is a vertical line, or a band when it lasts: something happened. The
// label stands at its top and is explained elsewhere.
type mark struct {
	x, until float64 // until 0: a line
	label    string
	text     string
}

const (
	// At this width the text, 13 units high, is 10 pixels on a page of 400.
	chartWidth, chartHeight         = 480, 240
	chartLeft, chartRight           = 52, 14
	chartTop, chartBottom           = 20, 30
	chartInnerW                     = chartWidth - chartLeft - chartRight
	chartInnerH                     = chartHeight - chartTop - chartBottom
	maxChartPoints                  = 400  // of a line; more cannot be told apart
	maxDrawnPoints                  = 2000 // of a chart's lines together, so that the page stays small
	chartColours                    = 7    // classes c0 to c6 of the style sheet
	smallestLogValue        float64 = 1e-3
)

// svg draws the chart.
func (c chart) svg() template.HTML {
	lines := make([]line, len(c.lines))
	minX, maxX, minY, maxY := math.Inf(1), math.Inf(-1), math.Inf(1), c.maxY
	limit := min(maxChartPoints, maxDrawnPoints/max(len(c.lines), 1))
	for i, l := range c.lines {
		lines[i].name = l.name
		for _, p := range thin(l.points, limit) {
			if math.IsNaN(p.y) || math.IsInf(p.y, 0) || c.logY && p.y <= 0 {
				continue
			}
			lines[i].points = append(lines[i].points, p)
			minX, maxX = min(minX, p.x), max(maxX, p.x)
			minY, maxY = min(minY, p.y), max(maxY, p.y)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure class="chart"><figcaption>%s <small>%s</small></figcaption>`, html.EscapeString(c.title), html.EscapeString(c.unit))
	if minX > maxX {
		b.WriteString(`<p>There is nothing to draw.</p></figure>`)
		return template.HTML(b.String())
	}
	if minX == maxX {
		maxX = minX + 1
	}
	grid := linearGrid(maxY)
	lo, hi := 0.0, grid[len(grid)-1]
	if c.logY {
		grid = logGrid(max(minY, smallestLogValue), maxY)
		lo, hi = math.Log10(grid[0]), math.Log10(grid[len(grid)-1])
	}
	xAt := func(x float64) float64 { return chartLeft + (x-minX)/(maxX-minX)*chartInnerW }
	yAt := func(y float64) float64 {
		if c.logY {
			y = math.Log10(max(y, smallestLogValue))
		}
		return chartTop + (1-(y-lo)/(hi-lo))*chartInnerH
	}

	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, chartHeight, html.EscapeString(c.title))
	for _, y := range grid {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, chartWidth-chartRight, yAt(y), yAt(y), chartLeft-6, yAt(y)+4, axisNumber(y))
	}
	for _, t := range c.xTicks {
		if t.x >= minX && t.x <= maxX {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, xAt(t.x), chartHeight-8, html.EscapeString(t.text))
		}
	}
	for _, m := range c.marks {
		from, to := max(m.x, minX), min(max(m.until, m.x), maxX)
		if from > maxX || to < minX {
			continue
		}
		if m.until > m.x {
			fmt.Fprintf(&b, `<rect class="band" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`, xAt(from), chartTop, max(xAt(to)-xAt(from), 2), chartInnerH, html.EscapeString(m.text))
		} else {
			fmt.Fprintf(&b, `<line class="mark" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>%s</title></line>`, xAt(from), xAt(from), chartTop, chartHeight-chartBottom, html.EscapeString(m.text))
		}
		fmt.Fprintf(&b, `<text class="label" x="%.1f" y="%d" text-anchor="middle">%s</text>`, (xAt(from)+xAt(to))/2, chartTop-5, html.EscapeString(m.label))
	}
	for i, l := range lines {
		if len(l.points) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<polyline class="c%d" points="`, i%chartColours)
		for _, p := range l.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", xAt(p.x), yAt(p.y))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg>`)
	var names []string
	for _, l := range lines {
		if len(l.points) == 0 {
			l.name = ""
		}
		names = append(names, l.name)
	}
	writeLegend(&b, names)
	b.WriteString(`</figure>`)
	return template.HTML(b.String())
}

// writeLegend writes the names of the colours; an empty one is left out.
func writeLegend(b *strings.Builder, names []string) {
	b.WriteString(`<p class="legend">`)
	for i, name := range names {
		if name != "" {
			fmt.Fprintf(b, `<span class="c%d">%s</span> `, i%chartColours, html.EscapeString(name))
		}
	}
	b.WriteString(`</p>`)
}

// bars is a chart of stacked horizontal bars, one for each name.
type bars struct {
	title, unit string
	parts       []string // of each bar, in the order of the colours
	names       []string
	values      [][]float64 // of each name, by part
}

const (
	barHeight, barGap = 18, 8
	barLeft, barRight = 84, 62
)

// svg draws the bars.
func (c bars) svg() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<figure class="chart"><figcaption>%s <small>%s</small></figcaption>`, html.EscapeString(c.title), html.EscapeString(c.unit))
	top := 0.0
	for _, vs := range c.values {
		top = max(top, sum(vs))
	}
	if !(top > 0) || math.IsInf(top, 0) {
		b.WriteString(`<p>There is nothing to draw.</p></figure>`)
		return template.HTML(b.String())
	}
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, len(c.names)*(barHeight+barGap), html.EscapeString(c.title))
	for i, name := range c.names {
		y := i * (barHeight + barGap)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, barLeft-6, y+barHeight-5, html.EscapeString(name))
		x := float64(barLeft)
		for j, v := range c.values[i] {
			if w := v / top * (chartWidth - barLeft - barRight); w > 0 {
				fmt.Fprintf(&b, `<rect class="c%d" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s: %.6g</title></rect>`, j%chartColours, x, y, w, barHeight, html.EscapeString(c.parts[j]), v)
				x += w
			}
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, x+5, y+barHeight-5, axisNumber(sum(c.values[i])))
	}
	b.WriteString(`</svg>`)
	parts := slices.Clone(c.parts)
	for j := range parts {
		if !slices.ContainsFunc(c.values, func(vs []float64) bool { return vs[j] > 0 }) {
			parts[j] = "" // no bar has it
		}
	}
	writeLegend(&b, parts)
	b.WriteString(`</figure>`)
	return template.HTML(b.String())
}

func sum(vs []float64) (t float64) {
	for _, v := range vs {
		t += v
	}
	return t
}

// thin leaves at most n, the highest of each group, so that no peak disappears.
func thin(ps []point, n int) []point {
	if len(ps) <= n {
		return ps
	}
	out := make([]point, 0, n)
	for i := range n {
		group := ps[i*len(ps)/n : (i+1)*len(ps)/n]
		top := group[0]
		for _, p := range group {
			if p.y > top.y {
				top = p
			}
		}
		out = append(out, top)
	}
	return out
}

// linearGrid returns some round values from 0 to at least top.
func linearGrid(top float64) []float64 {
	if !(top > 0) {
		return []float64{0, 1}
	}
	step := math.Pow(10, math.Floor(math.Log10(top/4)))
	for _, f := range []float64{1, 2, 2.5, 5, 10} {
		if step*f*5 >= top {
			step *= f
			break
		}
	}
	var g []float64
	for i := 0; ; i++ {
		g = append(g, float64(i)*step)
		if g[i] >= top*(1-1e-9) {
			return g
		}
	}
}

// logGrid returns the powers of ten around the range.
func logGrid(low, high float64) []float64 {
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if to <= from {
		to = from + 1
	}
	var g []float64
	for e := from; e <= to; e++ {
		g = append(g, math.Pow(10, e))
	}
	return g
}

func axisNumber(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}
