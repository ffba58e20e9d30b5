package edge

import (
	"io"
	"math"
	"net/http"
	"testing"
	"time"
)

func TestLatencies_quantile(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, tt := range []struct {
		name   string
		counts []uint64
		q      float64
		want   float64
	}{
		{"nothing", []uint64{0, 0, 0, 0}, 0.5, 0},
		{"all in the first", []uint64{10, 10, 10, 10}, 0.5, 0.5},
		{"halfway into the second", []uint64{0, 10, 10, 10}, 0.5, 1.5},
		{"an empty one between", []uint64{5, 5, 10, 10}, 0.99, 2 + 2*4.9/5},
		{"beyond the last bound", []uint64{0, 0, 0, 3}, 0.5, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := (latencies{bounds, tt.counts}).quantile(tt.q); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRounded_fourDigits(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 1234567: 1235000, 0.000123456: 0.0001235, 12.3456: 12.35, math.Inf(1): 0, math.NaN(): 0, 1: 1, -2.00004: -2} {
		if got := rounded(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("rounded(%v) is %v, want %v", v, got, want)
		}
	}
}

// A sample tells what happened since the one before, in shares that add up.
func TestSampler_tellsTheLastSecond(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "x")
	})
	n := startNode(t, testConfig("edge-a", origin.URL))
	s := newSampler(n)
	at := s.last.at
	next := func() (sec time.Time) { at = at.Add(time.Second); return at }
	if got := s.sample(next()); got.RPS != 0 || got.Own != 0 || got.P99 != 0 {
		t.Errorf("before the first request: %+v", got)
	}
	for range 4 {
		n.get(t, "/x")
	}
	eventually(t, "all are counted", func() bool {
		by := n.metrics.bySite["www"]
		return counted(by[resHit])+counted(by[resMiss]) == 4
	})
	got := s.sample(next())
	if got.RPS != 4 || got.Own != 0.75 || got.Origin != 0.25 || got.P50 <= 0 || got.P99 < got.P50 || got.At != at.Unix() {
		t.Errorf("one miss and three hits: %+v", got)
	}
	if c := s.current(); c != got {
		t.Errorf("the last one is %+v, want %+v", c, got)
	}
	for range latencyWindow {
		got = s.sample(next())
	}
	if got.RPS != 0 || got.Own != 0 || got.P99 != 0 {
		t.Errorf("ten quiet seconds later: %+v", got)
	}
}
