package edge

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// result is what became of one client request; each is one exit of serve.go.
type result string

const (
	resHit         result = "hit"
	resStale       result = "stale"
	resRevalidated result = "revalidated"
	resPeer        result = "peer"
	resShield      result = "shield"
	resMiss        result = "miss"
	resNegative    result = "negative"
	resCatalog     result = "catalog"
	resBypass      result = "bypass"
	resError       result = "error"
)

var results = []result{resHit, resStale, resRevalidated, resPeer, resShield, resMiss, resNegative, resCatalog, resBypass, resError}

// The results of a peer request.
const (
	rpcHit     = "hit"
	rpcMiss    = "miss"
	rpcStale   = "stale"
	rpcTimeout = "timeout"
	rpcError   = "error"
)

var rpcResults = []string{rpcHit, rpcMiss, rpcStale, rpcTimeout, rpcError}

// noSite labels the requests for hosts that no site has.
const noSite = "none"

// bloomCounters count look-ups in the replicas of one partition.
type bloomCounters struct {
	negative, positiveHit, positiveMiss, unknown       prometheus.Counter
	localNegative, localPositiveHit, localPositiveMiss prometheus.Counter
}

// metrics are the counters that edge itself moves; what its parts count is
// collected from their Stats at each scrape (collect.go).
type metrics struct {
	reg *prometheus.Registry

	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	origin      *prometheus.CounterVec
	collapsed   *prometheus.CounterVec
	rpcs        *prometheus.CounterVec
	busy        *prometheus.CounterVec
	backedOff   *prometheus.CounterVec
	probes      *prometheus.CounterVec
	missed      *prometheus.CounterVec
	purges      *prometheus.CounterVec
	purgeTime   prometheus.Histogram
	unstored    *prometheus.CounterVec
	reclaims    *prometheus.CounterVec
	droppedTags *prometheus.CounterVec
	rejected    *prometheus.CounterVec
	conns       *prometheus.GaugeVec

	purgesRefused, invalidations, unknownChanges *prometheus.CounterVec

	evictedConns *prometheus.CounterVec

	rebuilds  *prometheus.CounterVec
	deviation *prometheus.GaugeVec
	member    *prometheus.CounterVec
	misses    *prometheus.CounterVec
	reloadOK  prometheus.Gauge

	bloom []bloomCounters // by partition

	// The same by site and result, resolved once.
	bySite map[string]map[result]prometheus.Counter
	took   map[result]prometheus.Observer
}

func newMetrics(cfg *Config) *metrics {
	m := &metrics{reg: prometheus.NewRegistry(), bySite: map[string]map[result]prometheus.Counter{}, took: map[result]prometheus.Observer{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.reg.MustRegister(v)
		return v
	}
	m.requests = counter("edged_requests_total", "Client requests by what became of them.", "site", "result")
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "edged_request_duration_seconds", Help: "From the request's head to the end of the answer.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"result"})
	m.origin = counter("edged_origin_requests_total", "Requests that reached an origin, by status class or error.", "site", "result")
	m.collapsed = counter("edged_collapsed_requests_total", "Requests that joined another's forward.", "site")
	m.rpcs = counter("edged_peer_rpcs_total", "Peer requests sent, by result.", "peer", "result")
	m.member = counter("edged_member_requests_total", "Requests of other nodes on the peer address, by what they wanted and what became of them.", "hop", "result")
	m.misses = counter("edged_peer_misses_total", "Peers' requests for what this node could not give them, by cause: false_positive is the filter's part.", "partition", "cause")
	m.probes = counter("edged_probe_samples_total", "Look-ups that asked no peer, checked afterwards with one of the peers.", "result")
	m.missed = counter("edged_probe_missed_total", "Samples in which a peer had what its filter called absent, by why: diverged is always 0 in a correct program.", "class")
	for _, c := range missedClasses {
		m.missed.WithLabelValues(c)
	}
	m.backedOff = counter("edged_peer_backed_off_total", "Peer requests not sent because the peer had failed lately.", "peer")
	m.busy = counter("edged_peer_busy_total", "Peer requests not sent because too many were in flight to that peer.", "peer")
	m.purges = counter("edged_purges_total", "Purges by kind and result: complete when every member has acknowledged in time, accepted when nobody was waited for.", "kind", "result")
	m.reclaims = counter("edged_purge_reclaims_total", "Times that what purges had covered was taken out of the store: by the index what has a tag, or by a walk over everything.", "by")
	for _, by := range []string{"tag", "walk"} {
		m.reclaims.WithLabelValues(by)
	}
	m.droppedTags = counter("edged_tags_dropped_total", "Tags of responses that were not kept, because they were too many or too long: any purge by tag covers such a response.", "reason")
	for _, reason := range []string{"many", "long"} {
		m.droppedTags.WithLabelValues(reason)
	}
	m.purgesRefused = counter("edged_purge_refused_total", "Calls to purge that were refused, by reason: above the rate, or with a name above 8 KiB, or more than 50 000 names.", "reason")
	m.unknownChanges = counter("edged_purge_unknown_total", "Entries of the log that a newer version wrote and this one does not know: advisory ones are passed over, binding ones make all that is stored stale.", "kind")
	for _, k := range []string{"advisory", "binding"} {
		m.unknownChanges.WithLabelValues(k)
	}
	m.invalidations = counter("edged_invalidations_total", "URLs that unsafe requests invalidated: sent to the members, merged with the same URL of another request, or folded, above the limit, into a soft purge of their host.", "result")
	for _, r := range []string{"rate", "length"} {
		m.purgesRefused.WithLabelValues(r)
	}
	for _, r := range []string{"sent", "merged", "folded"} {
		m.invalidations.WithLabelValues(r)
	}
	m.unstored = counter("edged_unstored_responses_total", "Storable responses that were not stored, by reason.", "reason")
	m.rejected = counter("edged_rejected_requests_total", "Requests refused before they had a key, by reason.", "reason")
	m.conns = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "edged_connections", Help: "Open connections by listener."}, []string{"listener"})
	m.reg.MustRegister(m.conns)
	m.evictedConns = counter("edged_evicted_connections_total", "Idle connections closed to make room for new ones, by listener.", "listener")
	for _, l := range listenerNames {
		m.conns.WithLabelValues(l)
		m.evictedConns.WithLabelValues(l)
	}
	m.deviation = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "edged_filter_rate_deviation", Help: "1 while the filters are wrong more than twice as often as planned, by the cause.",
	}, []string{"partition", "cause"})
	m.reg.MustRegister(m.deviation)
	m.rebuilds = counter("edged_filter_rebuilds_total", "Rebuilds of the own filter, by reason.", "partition", "reason")
	m.purgeTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "edged_purge_propagation_seconds", Help: "From a purge's call to the last acknowledgement.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
	m.reloadOK = prometheus.NewGauge(prometheus.GaugeOpts{Name: "edged_config_last_reload_successful", Help: "1 unless the last reload was refused."})
	m.reloadOK.Set(1)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "edged_build_info", Help: "Always 1."}, []string{"version", "goversion"})
	build.WithLabelValues(cfg.Version, runtime.Version()).Set(1)
	m.reg.MustRegister(m.duration, m.purgeTime, m.reloadOK, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	kinds := []string{"negative", "positive_hit", "positive_miss", "unknown", "local_negative", "local_positive_hit", "local_positive_miss"}
	helps := map[string]string{
		"negative":            "Look-ups that missed locally and that every peer's filter called absent: no peer was asked.",
		"positive_hit":        "Look-ups where a filter said maybe and an asked peer had it.",
		"positive_miss":       "Look-ups where a filter said maybe and no asked peer had it.",
		"unknown":             "Look-ups decided without the filters.",
		"local_negative":      "Look-ups that the own filter called absent: the store was not asked.",
		"local_positive_hit":  "Look-ups where the own filter said maybe and the store had the key.",
		"local_positive_miss": "Look-ups where the own filter said maybe and the store did not have the key.",
	}
	vecs := map[string]*prometheus.CounterVec{}
	for _, k := range kinds {
		vecs[k] = counter("edged_bloom_"+k+"_total", helps[k], "partition")
	}
	for _, p := range cfg.Cache.Partitions {
		m.bloom = append(m.bloom, bloomCounters{
			vecs["negative"].WithLabelValues(p.Name), vecs["positive_hit"].WithLabelValues(p.Name),
			vecs["positive_miss"].WithLabelValues(p.Name), vecs["unknown"].WithLabelValues(p.Name),
			vecs["local_negative"].WithLabelValues(p.Name), vecs["local_positive_hit"].WithLabelValues(p.Name),
			vecs["local_positive_miss"].WithLabelValues(p.Name),
		})
		for _, c := range missCauses {
			m.misses.WithLabelValues(p.Name, c)
		}
		for _, c := range deviationCauses {
			m.deviation.WithLabelValues(p.Name, c).Set(0)
		}
		for _, r := range rebuildReasons {
			m.rebuilds.WithLabelValues(p.Name, r)
		}
	}
	for _, r := range results {
		m.took[r] = m.duration.WithLabelValues(string(r))
	}
	sites := []string{noSite}
	for _, s := range cfg.Sites {
		sites = append(sites, s.Name)
	}
	for _, s := range sites {
		m.addSite(s)
	}
	for _, kind := range purgeKinds {
		m.purges.WithLabelValues(kind, "complete")
		m.purges.WithLabelValues(kind, "incomplete")
		m.purges.WithLabelValues(kind, "accepted")
	}
	for _, r := range probeResults {
		m.probes.WithLabelValues(r)
	}
	for _, r := range unstoredReasons {
		m.unstored.WithLabelValues(r)
	}
	for _, r := range rejectReasons {
		m.rejected.WithLabelValues(r)
	}
	return m
}

// addSite makes a site's counters, at 0, and resolves them. Only before the
// node serves.
func (m *metrics) addSite(name string) {
	m.declareSite(name)
	byResult := map[result]prometheus.Counter{}
	for _, r := range results {
		byResult[r] = m.requests.WithLabelValues(name, string(r))
	}
	m.bySite[name] = byResult
}

// declareSite makes a site's counters, at 0.
func (m *metrics) declareSite(name string) {
	for _, r := range results {
		m.requests.WithLabelValues(name, string(r))
	}
	m.collapsed.WithLabelValues(name)
	for _, r := range originResults {
		m.origin.WithLabelValues(name, r)
	}
}

// addPeer makes a peer's counters, at 0.
func (m *metrics) addPeer(name string) {
	for _, r := range rpcResults {
		m.rpcs.WithLabelValues(name, r)
	}
	m.busy.WithLabelValues(name)
	m.backedOff.WithLabelValues(name)
}

// request counts one client request.
func (m *metrics) request(site string, r result, took time.Duration) {
	if by := m.bySite[site]; by != nil {
		by[r].Inc()
	} else {
		m.requests.WithLabelValues(site, string(r)).Inc()
	}
	m.took[r].Observe(took.Seconds())
}

func (m *metrics) peerRPC(peer, result string) { m.rpcs.WithLabelValues(peer, result).Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

var originResults = []string{"2xx", "3xx", "4xx", "5xx", "304", "error", "timeout", "canceled"}

// originResult is the label of an origin's answer.
func originResult(status int) string {
	switch {
	case status == http.StatusNotModified:
		return "304"
	case status < 300:
		return "2xx"
	case status < 400:
		return "3xx"
	case status < 500:
		return "4xx"
	default:
		return "5xx"
	}
}
