package loadtest

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// bigReport is one of an hour, with everything in it.
func bigReport() *Report {
	rng := rand.New(rand.NewPCG(1, 1))
	group := func(filters bool) Group {
		g := Group{
			Filters: filters, Requests: 3600, Responses: 3600, counted: true, DurationS: 3600, Rate: 1,
			Sources: map[string]int64{fromHit: 3000, fromOrigin: 600}, Bloom: Bloom{Negative: 600},
			ErrorSamples: []string{"wrong_body: <script>alert(1)</script>"}, Errors: 1,
			Events: []Event{{S: 1800, Text: `Node edge-b died: "signal: killed" <b>`}}, Disagreements: []string{"origin: 1 & 2"},
		}
		for i := range 3600 {
			skip := rng.Float64()
			var nodes []NodePoint
			for range maxNodes {
				nodes = append(nodes, NodePoint{Bloom: Bloom{Negative: int64(rng.IntN(100)), PositiveMiss: 1}, CPUSeconds: rng.Float64(), ResidentBytes: 1 << 26, FilterFill: rng.Float64(), GossipSentBytes: 1000, PeerRPCs: int64(rng.IntN(9))})
			}
			g.Series = append(g.Series, Point{Nodes: nodes, ObservedRate: &skip, ExpectedRate: &skip, Origin: 5, S: float64(i + 1), Responses: 1, P50MS: rng.Float64(), P99MS: 1 + rng.ExpFloat64(), Sources: map[string]int64{fromHit: 1}, SkipRatio: &skip})
		}
		for _, q := range []float64{0, .5, .9, .99, .999, 1} {
			g.Distribution = append(g.Distribution, LatencyPoint{q, 1 + q})
		}
		for i := range maxNodes {
			g.Nodes = append(g.Nodes, NodeReport{Name: nodeName(i), Died: i == 1, Bloom: Bloom{Negative: int64(i)}})
		}
		return g
	}
	with, without, ring := group(true), group(false), group(false)
	with.KeySets = &KeySets{Keys: 50_000, Planned: 300_000, Changes: 1234, Filters: KeySet{5 << 20, 5 << 20, 20 << 10, 17}, Hashes: KeySet{2 << 20, 9 << 20, 40 << 10, 3}, Whole: KeySet{4 << 20, 18 << 20, 80 << 10, 3}}
	return &Report{
		Group: with, WithFilters: &with, NoFilters: &without, RingOnly: &ring, Comparison: compare(&with, &without, &ring),
		Scenario: Scenario{Name: "flood</title>", Description: "a & b"}, Started: time.Unix(0, 0), Broken: []string{"p99 > 1ms: it is 2"},
		Command: []string{"edged", "loadtest", "<x>"},
	}
}

func TestHTML_isOneSafePage(t *testing.T) {
	var page bytes.Buffer
	if err := bigReport().writeHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if len(text) > 1<<20 {
		t.Errorf("%d bytes: want under 1 MiB", len(text))
	}
	if m := regexp.MustCompile(`(?i)<script|<link|\ssrc=|@import|url\(|https?://`).FindString(text); m != "" {
		t.Errorf("the page has %q", m)
	}
	for _, want := range []string{"flood&lt;/title&gt;", "&lt;script&gt;", "edged loadtest &lt;x&gt;", "p99 &gt; 1ms", "edge-64", "The counts disagree: origin: 1 &amp; 2", "without filters", "with the ring only", "Filters beside exact key sets", "exact hashes, calculated"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(text, "<svg"); n != 40 {
		t.Errorf("%d charts, want 40", n) // the quantiles, and for each group the bars and 12 over time
	}
	// The drawings are well-formed.
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
		dec := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in %.300s", err, svg)
			}
		}
		if !strings.Contains(svg, "<polyline") && !strings.Contains(svg, "<rect") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("a chart without a line, or with NaN: %.300s", svg)
		}
	}
}

func TestChart_drawsAnything(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name   string
		points []point
		logY   bool
		lines  int
	}{
		{"nothing", nil, false, 0},
		{"one point", []point{{1, 1}}, false, 1},
		{"one point, logarithmic", []point{{1, 1}}, true, 1},
		{"zeros", []point{{0, 0}, {1, 0}}, false, 1},
		{"zeros, logarithmic", []point{{0, 0}, {1, 0}}, true, 0},
		{"not numbers", []point{{0, nan}, {1, inf}}, false, 0},
		{"some not numbers", []point{{0, nan}, {1, 2}, {2, 3}}, false, 1},
		{"huge", []point{{0, 1e300}, {1, 1e-300}}, true, 1},
	} {
		got := string(chart{title: tc.name, lines: []line{{"x", tc.points}}, logY: tc.logY}.svg())
		if n := strings.Count(got, "<polyline"); n != tc.lines || strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
			t.Errorf("%s: %d lines, want %d: %s", tc.name, n, tc.lines, got)
		}
	}
}

func TestThin_keepsPeaks(t *testing.T) {
	ps := make([]point, 10_000)
	ps[4321].y = 9
	got := thin(ps, maxChartPoints)
	peak := 0.0
	for _, p := range got {
		peak = max(peak, p.y)
	}
	if len(got) != maxChartPoints || peak != 9 {
		t.Errorf("%d points, peak %v", len(got), peak)
	}
}

// The scenario on the page is one that can be run.
func TestHTML_scenarioIsAFile(t *testing.T) {
	for _, s := range Scenarios() {
		data, err := yaml.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadScenario(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		again, err := yaml.Marshal(got)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%v: read back and written again it is\n%s\nwant\n%s", err, again, data)
		}
	}
}
