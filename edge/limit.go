package edge

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edged/edge/tracing"
	"edged/peerfilter"
	"edged/shield"
)

// knownFor is how long at least a key counts as known after it was last
// stored, unless more than filter.keys others were stored since.
const knownFor = 24 * time.Hour

// newKnown returns the memory of keys that have been stored: two rotating
// filters of filter.keys at 1 %. The counting filters can't tell, for a key
// that was evicted or purged is no longer in them, and that is just when it
// is fetched again.
func newKnown(keys int) (*peerfilter.Rotating, error) {
	plan, err := peerfilter.Size(keys, 0.01, 1)
	if err != nil {
		return nil, err
	}
	return peerfilter.NewRotating(peerfilter.RotatingConfig{Params: plan.Params, MaxKeys: keys, MaxAge: knownFor})
}

// limitConfig is the site's limit as the shield wants it.
func limitConfig(o Origin) shield.LimitConfig {
	return shield.LimitConfig{Max: o.MaxConcurrent, Queue: o.Queue, KnownShare: o.KnownShare, MaxWait: o.MaxWait}
}

// class tells a request for content that has been there from one for a key of
// which nothing is known, which in a flood is one for what does not exist.
func (n *Node) class(s *site, hash peerfilter.Hash, target string, now time.Time) shield.Class {
	if n.known.MayContain(hash, now) || s.catalog != nil && s.catalog.Lists(pathOf(target)) {
		return shield.Known
	}
	return shield.New
}

// askOrigin sends a request to the site's origin when its limit lets it, and
// returns the answer and what must be called when that is over.
func (n *Node) askOrigin(ctx context.Context, s *site, c shield.Class, req *http.Request) (*http.Response, func(), error) {
	release, err := s.limit.Acquire(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	span := tracing.From(ctx).Child("origin", tracing.Client)
	span.Text("edged.site", s.Name)
	span.Inject(req.Header)
	resp, err := s.pool.Do(req)
	span.Hop(resp, err)
	if err != nil {
		release()
		n.countOriginError(s.Name, err)
		return nil, nil, err
	}
	n.metrics.origin.WithLabelValues(s.Name, originResult(resp.StatusCode)).Inc()
	if s.policy.IsAbsence(resp.StatusCode) {
		s.absent.origin.Add(1)
	}
	return resp, release, nil
}

// retryAfter is the value of Retry-After for an error, in whole seconds; empty
// when there is nothing to wait for.
func retryAfter(err error) string {
	var se *shield.SaturatedError
	if !errors.As(err, &se) {
		return ""
	}
	return itoa(max(1, int64(math.Ceil(se.Retry.Seconds()))))
}

// limitMetrics describes what a site's limit tells.
var limitMetrics = []described{
	{"edged_origin_limit", "Requests that may be at the site's origin at once; 0: any number.", []string{"site"}},
	{"edged_origin_in_flight", "Requests at the site's origin whose answer is not over.", []string{"site", "class"}},
	{"edged_origin_waiting", "Requests that wait for a place at the site's origin.", []string{"site", "class"}},
	{"edged_origin_waited_total", "Requests that had to wait for a place at the site's origin.", []string{"site", "class"}},
	{"edged_origin_refused_total", "Requests answered 503 because the origin had as many as it may have.", []string{"site", "class", "reason"}},
}

func (c *collector) limits(s *site, send func(kind prometheus.ValueType, name string, v float64, labels ...string)) {
	send(prometheus.GaugeValue, "edged_origin_limit", float64(s.limit.Max()), s.Name)
	for _, class := range shield.Classes() {
		st := s.limit.Stats(class)
		send(prometheus.GaugeValue, "edged_origin_in_flight", float64(st.InFlight), s.Name, class.String())
		send(prometheus.GaugeValue, "edged_origin_waiting", float64(st.Waiting), s.Name, class.String())
		send(prometheus.CounterValue, "edged_origin_waited_total", float64(st.Waited), s.Name, class.String())
		for reason, v := range st.Refused {
			send(prometheus.CounterValue, "edged_origin_refused_total", float64(v), s.Name, class.String(), reason)
		}
	}
}
