package edge

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edged/edge/negative"
	"edged/peerfilter"
)

// absences counts a site's answers that say that there is nothing.
type absences struct {
	requests atomic.Uint64 // of clients, answered so by whomever
	origin   atomic.Uint64 // the origin's
	distinct negative.Distinct
}

// answered counts an absence that a client is told of.
func (a *absences) answered(key peerfilter.Hash, now time.Time) {
	a.requests.Add(1)
	a.distinct.Add(key[0], now)
}

// absenceMetrics describes what absences tells.
var absenceMetrics = []described{
	{"edged_absent_requests_total", "Client requests answered 404 or 410, by memory, catalog, shield or origin.", []string{"site"}},
	{"edged_absent_keys_estimate", "About how many distinct keys these were for, in the last whole minute or, if that is more, in the present one.", []string{"site"}},
	{"edged_origin_absences_total", "Answers 404 and 410 of the origin, out of edged_origin_requests_total.", []string{"site"}},
}

func (c *collector) absences(s *site, send func(kind prometheus.ValueType, name string, v float64, labels ...string)) {
	send(prometheus.CounterValue, "edged_absent_requests_total", float64(s.absent.requests.Load()), s.Name)
	send(prometheus.GaugeValue, "edged_absent_keys_estimate", s.absent.distinct.Estimate(time.Now()), s.Name)
	send(prometheus.CounterValue, "edged_origin_absences_total", float64(s.absent.origin.Load()), s.Name)
}
