package edge

import (
	"math"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"edged/edge/admin"
	"github.com/prometheus/client_golang/prometheus"
)

// latencyWindow is over how many samples percentiles are taken: one second of
// a quiet node has too few requests for a 99th.
const latencyWindow = 10

// sampler tells what happened from one second to the next, by the differences
// of the node's own counters. Only the feed's goroutine calls sample; the
// others read what it publishes.
type sampler struct {
	n    *Node
	last tally
	took []latencies // of the last seconds, oldest first, at most latencyWindow + 1

	now   atomic.Pointer[admin.Sample] // the last one; nil before the first
	saved atomic.Int64                 // nanoseconds, see admin.Cluster.SavedSeconds
}

// tally is the counters at one moment.
type tally struct {
	at            time.Time
	requests      map[string]uint64
	skipped, sent uint64
}

// latencies is a histogram: how many requests took no longer than each bound,
// the last one being +Inf.
type latencies struct {
	bounds []float64 // seconds, ascending
	counts []uint64  // cumulative, one more than bounds
}

func newSampler(n *Node) *sampler {
	s := &sampler{n: n}
	s.last = s.read(n.started)
	return s
}

func (s *sampler) read(now time.Time) tally {
	c := tally{at: now, requests: counts(s.n.metrics.requests, "result")}
	for _, v := range counts(s.n.metrics.rpcs, "result") {
		c.sent += v
	}
	for i := range s.n.metrics.bloom {
		c.skipped += counted(s.n.metrics.bloom[i].negative)
	}
	return c
}

// sample returns what happened since it was last called.
func (s *sampler) sample(now time.Time) admin.Sample {
	c := s.read(now)
	out := admin.Sample{At: now.Unix()}
	span := c.at.Sub(s.last.at).Seconds()
	if span > 0 {
		total, by := 0.0, map[result]float64{}
		for r, v := range c.requests {
			d := float64(v - s.last.requests[r])
			by[result(r)], total = d, total+d
		}
		out.RPS = rounded(total / span)
		share := func(rs ...result) (sum float64) {
			if total == 0 {
				return 0
			}
			for _, r := range rs {
				sum += by[r]
			}
			return rounded(sum / total)
		}
		out.Own, out.Absent = share(resHit, resStale), share(resNegative, resCatalog)
		out.Peer, out.Shield, out.Origin = share(resPeer), share(resShield), share(resMiss, resRevalidated)
		out.Other = share(resBypass, resError)
		skipped := c.skipped - s.last.skipped
		out.Skipped, out.Sent = rounded(float64(skipped)/span), rounded(float64(c.sent-s.last.sent)/span)
		s.saved.Add(int64(skipped) * int64(s.n.meanRoundTrip()))
	}
	if len(s.took) > latencyWindow {
		s.took = s.took[1:]
	}
	s.took = append(s.took, latenciesOf(s.n.metrics.duration))
	window := s.took[len(s.took)-1].minus(s.took[0])
	out.P50, out.P99 = rounded(1000*window.quantile(0.5)), rounded(1000*window.quantile(0.99))
	s.last = c
	s.now.Store(&out)
	return out
}

// current is the last sample.
func (s *sampler) current() admin.Sample {
	if p := s.now.Load(); p != nil {
		return *p
	}
	return admin.Sample{At: s.n.started.Unix()}
}

// meanRoundTrip is that of the peers that have answered, 0 when none has: what
// one skipped look-up would have waited at the least.
func (n *Node) meanRoundTrip() time.Duration {
	var sum, k time.Duration
	for _, p := range n.topo.Load().peers {
		if rtt := p.roundTrip(); rtt > 0 {
			sum, k = sum+rtt, k+1
		}
	}
	if k == 0 {
		return 0
	}
	return sum / k
}

// latenciesOf adds up a histogram over its labels.
func latenciesOf(h *prometheus.HistogramVec) latencies {
	ch := make(chan prometheus.Metric, 64)
	go func() { h.Collect(ch); close(ch) }()
	var l latencies
	for m := range ch {
		var d dto.Metric
		if m.Write(&d) != nil || d.Histogram == nil {
			continue
		}
		buckets := d.Histogram.Bucket
		if l.counts == nil {
			l.counts = make([]uint64, len(buckets)+1)
			for _, b := range buckets {
				l.bounds = append(l.bounds, b.GetUpperBound())
			}
		}
		for i, b := range buckets {
			l.counts[i] += b.GetCumulativeCount()
		}
		l.counts[len(buckets)] += d.Histogram.GetSampleCount()
	}
	return l
}

// minus is what was added since before, which has the same bounds.
func (l latencies) minus(before latencies) latencies {
	d := latencies{bounds: l.bounds, counts: make([]uint64, len(l.counts))}
	for i := range l.counts {
		d.counts[i] = l.counts[i] - before.counts[i]
	}
	return d
}

// quantile interpolates linearly in the bucket that holds it, as Prometheus'
// histogram_quantile does; beyond the last bound it is that bound, and 0 when
// there is nothing.
func (l latencies) quantile(q float64) float64 {
	if len(l.bounds) == 0 || l.counts[len(l.bounds)] == 0 {
		return 0
	}
	rank := q * float64(l.counts[len(l.bounds)])
	low, below := 0.0, uint64(0)
	for i, bound := range l.bounds {
		if in := l.counts[i] - below; float64(l.counts[i]) >= rank && in > 0 {
			return low + (bound-low)*(rank-float64(below))/float64(in)
		}
		low, below = bound, l.counts[i]
	}
	return low
}

// rounded keeps four digits, which a plot does not show either: a history is
// sent in half the bytes.
func rounded(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
