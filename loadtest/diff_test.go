package loadtest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// sample is a report of a minute with noise, from a seed; slower multiplies
// latencies and CPU.
func noisyReport(seed uint64, slower float64) *Report {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := &Report{Scenario: steady()}
	r.Requests, r.Responses, r.DurationS, r.Rate = 60_000, 60_000, 60, 1000
	r.Nodes = []NodeReport{{Name: "edge-a", Admin: "http://x"}}
	r.Bloom = Bloom{Negative: 100}
	for i := range 60 {
		noise := 1 + 0.1*rng.NormFloat64()
		skip := 0.9
		r.Series = append(r.Series, Point{S: float64(i + 1), Responses: 1000, P50MS: slower * noise, P99MS: 5 * slower * noise, SkipRatio: &skip, Nodes: []NodePoint{{CPUSeconds: 0.1 * slower * noise}}})
		r.LatencyMS.P50 += slower * noise / 60
		r.LatencyMS.P99 += 5 * slower * noise / 60
		r.Nodes[0].CPUSeconds += 0.1 * slower * noise
	}
	r.HitRatio, r.SkipRatio, r.counted = 0.5, 0.9, true
	return r
}

func TestDiff(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(a, b *Report)
		want   string // the numbers that are worse, or better with a +
	}{
		{"the same", func(a, b *Report) {}, ""},
		{"slower", func(a, b *Report) { *b = *noisyReport(2, 1.3) }, "p50 ms,p99 ms,CPU ms a request"},
		{"slower, below the threshold", func(a, b *Report) { *b = *noisyReport(2, 1.02) }, ""},
		{"faster", func(a, b *Report) { *b = *noisyReport(2, 0.7) }, "+p50 ms,+p99 ms,+CPU ms a request"},
		{"fewer hits", func(a, b *Report) { b.HitRatio = 0.4 }, "hit ratio"},
		{"more hits", func(a, b *Report) { b.HitRatio = 0.6 }, "+hit ratio"},
		{"one wrong answer", func(a, b *Report) { b.WrongAnswers = 1 }, "wrong answers"},
		{"an error in a thousand, of none", func(a, b *Report) { b.Errors = 50 }, ""},
		{"errors", func(a, b *Report) { b.Errors = 600 }, "error ratio"},
		{"more at the origin", func(a, b *Report) { a.OriginRequests, b.OriginRequests = 6000, 7000 }, "origin requests a request"},
		{"within noise", func(a, b *Report) {
			for _, r := range []*Report{a, b} {
				for i := range r.Series {
					r.Series[i].P99MS = 5 + 60*float64(i%2)
				}
			}
			b.LatencyMS.P99 *= 1.5
		}, ""},
		{"without the nodes' counts", func(a, b *Report) { b.counted, b.SkipRatio = false, 0 }, ""},
	} {
		a, b := noisyReport(1, 1), noisyReport(2, 1)
		tc.change(a, b)
		var got []string
		for _, c := range Diff(a, b, 0.05) {
			switch {
			case c.Worse:
				got = append(got, c.Name)
			case c.Better:
				got = append(got, "+"+c.Name)
			}
		}
		if text := strings.Join(got, ","); text != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
		}
	}
}

func TestWriteDiff(t *testing.T) {
	a, b := noisyReport(1, 1), noisyReport(2, 1.3)
	b.Scenario.Keys, b.CPUs, b.Driver.Bottleneck = 7, 64, "x"
	var out bytes.Buffer
	if !WriteDiff(&out, a, b, 0.05) {
		t.Error("nothing is worse")
	}
	for _, want := range []string{"two scenarios", "two machines", "driver of B was a bottleneck", "p99 ms", "WORSE", "+3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if WriteDiff(&out, a, a, 0.05) || strings.Contains(out.String(), "Note") {
		t.Errorf("a report beside itself:\n%s", out.String())
	}
}

func TestReadReport(t *testing.T) {
	a := noisyReport(1, 1)
	a.Scenario = Scenarios()[5]
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadReport(bytes.NewReader(data))
	if err != nil || !got.counted {
		t.Fatalf("%v, counted %v", err, got)
	}
	var out bytes.Buffer
	if WriteDiff(&out, a, got, 0) || strings.Contains(out.String(), "Note") {
		t.Errorf("a report beside itself, read back:\n%s", out.String())
	}
	for _, wrong := range []string{"", "{", "{}", "[]", `{"requests":"many"}`} {
		if _, err := ReadReport(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q is a report", wrong)
		}
	}
}
