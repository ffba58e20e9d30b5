package loadtest

import (
	"fmt"
	"math"
	"slices"
)

// maxNodeLines is how many nodes have a line of their own in a chart; of more,
// the lowest, the median and the highest of each second are drawn.
const maxNodeLines = chartColours

// timeCharts have the time of the run on the x axis.
func (g *htmlGroup) timeCharts() []chart {
	charts := []chart{
		g.rateChart(), g.latencyChart(), g.hitChart(), g.skipChart(), g.bloomChart(), g.ratesChart(), g.originChart(),
		g.nodeChart("Filter fill", "% of the bits of the node's fullest filter that are set", func(p NodePoint, _ float64) float64 { return 100 * p.FilterFill }),
		g.nodeChart("Gossip sent", "KiB a second and node", func(p NodePoint, s float64) float64 { return float64(p.GossipSentBytes) / s / 1024 }),
		g.nodeChart("Peer RPCs", "a second and node", func(p NodePoint, s float64) float64 { return float64(p.PeerRPCs) / s }),
		g.nodeChart("CPU", "% of one core, by node", func(p NodePoint, s float64) float64 { return 100 * p.CPUSeconds / s }),
		g.nodeChart("Memory", "MiB resident, by node", func(p NodePoint, _ float64) float64 { return float64(p.ResidentBytes) / (1 << 20) }),
	}
	last := 0.0
	if n := len(g.Series); n > 0 {
		last = g.Series[n-1].S
	}
	for i := range charts {
		charts[i].xTicks = timeTicks(last)
		for j, e := range g.Events {
			charts[i].marks = append(charts[i].marks, mark{e.S, e.Until, fmt.Sprint(j + 1), e.Text})
		}
	}
	return charts
}

// over draws one value of each second; f is told how long it was.
func (g *htmlGroup) over(name string, f func(p Point, seconds float64) float64) line {
	l := line{name: name}
	last := 0.0
	for _, p := range g.Series {
		l.points = append(l.points, point{p.S, f(p, max(p.S-last, 0.001))})
		last = p.S
	}
	return l
}

func (g *htmlGroup) rateChart() chart {
	c := chart{title: "Answers", unit: "a second, by where they came from"}
	for _, s := range []string{fromHit, fromStale, fromPeer, fromOwner, fromShield, fromNegative, fromCatalog, fromOrigin} {
		if g.Sources[s] > 0 {
			c.lines = append(c.lines, g.over(s, func(p Point, seconds float64) float64 { return float64(p.Sources[s]) / seconds }))
		}
	}
	if g.Errors > 0 {
		c.lines = append(c.lines, g.over("errors", func(p Point, seconds float64) float64 { return float64(p.Errors) / seconds }))
	}
	return c
}

func (g *htmlGroup) latencyChart() chart {
	return chart{title: "Latency", unit: "ms, of each second", logY: true, lines: []line{
		g.over("p50", func(p Point, _ float64) float64 { return p.P50MS }),
		g.over("p99", func(p Point, _ float64) float64 { return p.P99MS }),
	}}
}

func (g *htmlGroup) hitChart() chart {
	part := func(sources ...string) func(Point, float64) float64 {
		return func(p Point, _ float64) float64 {
			if p.Responses == 0 {
				return math.NaN()
			}
			var n int64
			for _, s := range sources {
				n += p.Sources[s]
			}
			return 100 * ratio(n, p.Responses)
		}
	}
	return chart{title: "Hit ratio", unit: "% of each second's answers", maxY: 100, lines: []line{
		g.over("all hits", part(fromHit, fromStale, fromPeer, fromOwner)),
		g.over("the asked node's store", part(fromHit, fromStale)),
		g.over("a peer or the key's owner", part(fromPeer, fromOwner)),
		g.over("remembered absence", part(fromNegative, fromCatalog)),
	}}
}

func (g *htmlGroup) skipChart() chart {
	return chart{title: "Peers skipped", unit: "% of each second's look-ups", maxY: 100, lines: []line{
		g.over("skipped", func(p Point, _ float64) float64 { return 100 * orNaN(p.SkipRatio) }),
	}}
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func (p Point) bloom() (b Bloom) {
	for _, n := range p.Nodes {
		b = b.plus(n.Bloom, 1)
	}
	return b
}

func (g *htmlGroup) bloomChart() chart {
	a := func(field func(Bloom) int64) func(Point, float64) float64 {
		return func(p Point, seconds float64) float64 {
			if len(p.Nodes) == 0 {
				return math.NaN()
			}
			return float64(field(p.bloom())) / seconds
		}
	}
	return chart{title: "Bloom counters", unit: "look-ups a second, all nodes", lines: []line{
		g.over("negative", a(func(b Bloom) int64 { return b.Negative })),
		g.over("positive hit", a(func(b Bloom) int64 { return b.PositiveHit })),
		g.over("positive miss", a(func(b Bloom) int64 { return b.PositiveMiss })),
		g.over("unknown", a(func(b Bloom) int64 { return b.Unknown })),
	}}
}

func (g *htmlGroup) ratesChart() chart {
	return chart{title: "False positives over all peers", unit: "% of look-ups, at least 0.001", logY: true, lines: []line{
		// Seconds without a false positive are at the foot of the axis, not gaps.
		g.over("observed", func(p Point, _ float64) float64 { return max(100*orNaN(p.ObservedRate), smallestLogValue) }),
		g.over("expected", func(p Point, _ float64) float64 { return max(100*orNaN(p.ExpectedRate), smallestLogValue) }),
	}}
}

func (g *htmlGroup) originChart() chart {
	c := chart{title: "Origin load", unit: "requests a second"}
	if g.OriginCounts != nil {
		c.lines = append(c.lines, g.over("as the origin counts", func(p Point, seconds float64) float64 { return float64(p.Origin) / seconds }))
	}
	if len(g.Nodes) > 0 {
		c.lines = append(c.lines, g.over("as the nodes count", func(p Point, seconds float64) float64 {
			if len(p.Nodes) == 0 {
				return math.NaN()
			}
			var n int64
			for _, x := range p.Nodes {
				n += x.OriginRequests
			}
			return float64(n) / seconds
		}))
	}
	return c
}

// nodeChart draws a value of each node. A node that did not answer has no
// point; what it counted meanwhile is spread over the time until it answers.
func (g *htmlGroup) nodeChart(title, unit string, value func(p NodePoint, seconds float64) float64) chart {
	c := chart{title: title, unit: unit}
	read := make([]float64, len(g.Nodes)) // when each was, last
	var spread [3]line
	for i, name := range []string{"lowest", "median", "highest"} {
		spread[i].name = name
	}
	lines := make([]line, len(g.Nodes))
	for _, p := range g.Series {
		var all []float64
		for i, n := range p.Nodes[:min(len(p.Nodes), len(g.Nodes))] {
			if n.Unread {
				continue
			}
			v := value(n, max(p.S-read[i], 0.001))
			read[i] = p.S
			lines[i].points = append(lines[i].points, point{p.S, v})
			all = append(all, v)
		}
		if slices.Sort(all); len(all) > 0 {
			for i, v := range []float64{all[0], all[len(all)/2], all[len(all)-1]} {
				spread[i].points = append(spread[i].points, point{p.S, v})
			}
		}
	}
	if len(g.Nodes) > maxNodeLines {
		c.lines = spread[:]
		return c
	}
	for i := range lines {
		lines[i].name = g.Nodes[i].Name
	}
	c.lines = lines
	return c
}

// bloomBars are the nodes' bloom counters over the whole run.
func (g *htmlGroup) bloomBars() bars {
	title := "Bloom counters by node"
	if g.Name != "" {
		title += ", " + g.Name
	}
	b := bars{title: title, unit: "look-ups that missed locally", parts: []string{"negative", "positive hit", "positive miss", "unknown"}}
	for _, n := range g.Nodes {
		b.names = append(b.names, n.Name)
		b.values = append(b.values, []float64{float64(n.Bloom.Negative), float64(n.Bloom.PositiveHit), float64(n.Bloom.PositiveMiss), float64(n.Bloom.Unknown)})
	}
	return b
}

func timeTicks(end float64) []tick {
	var ts []tick
	for _, s := range linearGrid(end) {
		ts = append(ts, tick{s, fmt.Sprintf("%gs", s)})
	}
	return ts
}
