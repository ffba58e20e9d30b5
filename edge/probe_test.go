package edge

import (
	"testing"
	"time"
)

func TestProber_interval(t *testing.T) {
	for _, tc := range []struct {
		name             string
		samples, missed  int
		skipped          int
		share, low, high float64
	}{
		{"nothing is known", 0, 0, 3, 0, 0, 1},
		{"nothing was missed: the rule of three", 1000, 0, 3, 0, 0, 3 * 3. / 1000},
		{"few samples say nothing", 2, 0, 63, 0, 0, 1},
		{"one peer, one in ten", 1000, 100, 1, 0.1, 0.081, 0.119},
		{"63 peers, one in a thousand: of all look-ups one in 16", 10000, 10, 63, 0.063, 0.0231, 0.1029},
	} {
		var p prober
		for i := range tc.samples {
			p.add(tc.skipped, i < tc.missed)
		}
		share, low, high := p.estimate()
		near := func(a, b float64) bool { return a-b < 5e-4 && b-a < 5e-4 }
		if !near(share, tc.share) || !near(low, tc.low) || !near(high, tc.high) {
			t.Errorf("%s: %.4f from %.4f to %.4f, want %.4f from %.4f to %.4f", tc.name, share, low, high, tc.share, tc.low, tc.high)
		}
	}
}

// TestProbe_tellsLateFromWrong: of two peers' filters that lack what the peer
// has, one learns of it a little later and the other one never does.
func TestProbe_tellsLateFromWrong(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 2, o.URL, func(c *Config) { c.Filter.NoLocal = true })
	a, b := nodes[0], nodes[1]
	for _, tc := range []struct {
		path, class string
		late        bool
		recheck     time.Duration
	}{{"/late", missedLate, true, 2 * time.Second}, {"/wrong", missedDiverged, false, 300 * time.Millisecond}} {
		a.recheckAfter = tc.recheck // nothing is being checked again at the moment
		b.get(t, tc.path).want(t, 200, tc.path)
		k := a.keyOf("http://www.example.com" + tc.path)
		c, _, _ := b.filters[0].current()
		knows := func() bool { return a.gossip.Lookup(0, k.Filter).Contains("edge-b") }
		eventually(t, "a has heard of it", knows)
		c.Remove(k.Filter) // not what the store does
		eventually(t, "a has heard that it is gone", func() bool { return !knows() })
		before := counted(a.metrics.missed.WithLabelValues(tc.class))
		a.get(t, tc.path).want(t, 200, tc.path, "detail=origin")
		if tc.late {
			c.Add(k.Filter)
			eventually(t, "a has heard of it", knows)
		}
		eventually(t, "it is found to be "+tc.class, func() bool {
			return counted(a.metrics.missed.WithLabelValues(tc.class)) == before+1
		})
	}
	if n := counted(a.metrics.probes.WithLabelValues(probeMissed)); n != 2 {
		t.Errorf("%v samples", n)
	}
}
