package loadtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Report is the result of a load test, and the form of report.json. The
// fields of the group stand at the top; of a comparison they are those with
// filters, and both groups stand below as well.
type Report struct {
	Group

	Scenario    Scenario  `json:"scenario"`
	Command     []string  `json:"command,omitempty"`
	Version     string    `json:"version,omitempty"`
	GoVersion   string    `json:"go_version"`
	Platform    string    `json:"platform"` // linux/amd64
	CPUs        int       `json:"cpus"`
	Started     time.Time `json:"started"`
	Interrupted bool      `json:"interrupted"`

	WithFilters *Group      `json:"filters,omitempty"`
	NoFilters   *Group      `json:"no_filters,omitempty"`
	RingOnly    *Group      `json:"ring_only,omitempty"`
	Comparison  *Comparison `json:"comparison,omitempty"`

	// Broken are the thresholds that hold, each with the value that broke it.
	Broken []string `json:"broken"`
}

// named is a group, and what it is called beside others; empty when it is alone.
type named struct {
	name  string
	group *Group
}

// groups are those of the report, the first one at least.
func (r *Report) groups() []named {
	if r.NoFilters == nil {
		return []named{{"", &r.Group}}
	}
	gs := []named{{"with filters", &r.Group}, {"without filters", r.NoFilters}}
	if r.RingOnly != nil {
		gs = append(gs, named{"with the ring only", r.RingOnly})
	}
	return gs
}

// Comparison sets the group with filters beside the ones without.
type Comparison struct {
	PeerRPCsPerRequest          float64 `json:"peer_rpcs_per_request"`
	PeerRPCsPerRequestNoFilters float64 `json:"peer_rpcs_per_request_no_filters"`
	// PeerRPCRatio is the first divided by the second; 0 when the second is 0.
	PeerRPCRatio float64 `json:"peer_rpc_ratio"`
	// OriginRequestRatio is with filters by without, 1 when nobody asked the origin.
	OriginRequestRatio float64 `json:"origin_request_ratio"`
	// OriginRequestsEqual says that they are within 1 % of each other, and
	// AnswersEqual that no answer was wrong and the hit ratios are within 1 %.
	OriginRequestsEqual bool    `json:"origin_requests_equal"`
	AnswersEqual        bool    `json:"answers_equal"`
	HitRatioDifference  float64 `json:"hit_ratio_difference"`
	P99DifferenceMS     float64 `json:"p99_difference_ms"`

	// Requests between nodes a request of the ring-only group, and its origin
	// requests by those with filters; nil without the group.
	NodeRequestsPerRequestRing *float64 `json:"node_requests_per_request_ring,omitempty"`
	OriginRequestRatioRing     *float64 `json:"origin_request_ratio_ring,omitempty"`
}

// equalWithin is how close two groups' counts must be to be called equal.
const equalWithin = 0.01

// Group is one measured run. Ratios are 0 to 1.
type Group struct {
	Filters bool `json:"filters_enabled"`
	Mode    mode `json:"mode"` // filters, ask_all or ring

	Requests     int64            `json:"requests"`  // sent
	Responses    int64            `json:"responses"` // with a status, right or wrong
	Errors       int64            `json:"errors"`    // without a complete answer, or with a wrong one
	WrongAnswers int64            `json:"wrong_answers"`
	ErrorKinds   map[string]int64 `json:"error_kinds"`
	ErrorSamples []string         `json:"error_samples"` // the first few
	DurationS    float64          `json:"duration_s"`
	Rate         float64          `json:"rate"` // sent a second

	// LatencyMS counts from the scheduled time to the last byte.
	LatencyMS    Latency        `json:"latency_ms"`
	Distribution []LatencyPoint `json:"latency_distribution"`

	// Sources are the answers by where they came from, as Cache-Status says.
	Sources map[string]int64 `json:"sources"`
	// HitRatio is the part of the answers that came from a stored response,
	// the asked node's (hit, stale), a peer's or a shield's.
	HitRatio      float64 `json:"hit_ratio"`
	LocalHitRatio float64 `json:"local_hit_ratio"` // of the asked node's

	// What the nodes counted, all together.
	PeerRPCs           int64            `json:"peer_rpcs"`
	PeerRPCResults     map[string]int64 `json:"peer_rpc_results"`
	PeerRPCsPerRequest float64          `json:"peer_rpcs_per_request"`
	// PeerRPCsBusy were not sent, as too many were in flight to the peer: an
	// overloaded group has fewer RPCs than it wanted.
	PeerRPCsBusy int64 `json:"peer_rpcs_busy"`
	// ShieldRequests went to the key's shield or owner, who answered or asked
	// the origin.
	ShieldRequests  int64 `json:"shield_requests"`
	PeerRPCsSkipped int64 `json:"peer_rpcs_skipped"` // look-ups that no peer was asked about: Bloom.Negative
	// SkipRatio is PeerRPCsSkipped by all look-ups that missed locally.
	SkipRatio      float64 `json:"skip_ratio"`
	OriginRequests int64   `json:"origin_requests"`
	Bloom          Bloom   `json:"bloom"`
	// ObservedFalsePositiveRate is positive misses by positive misses and
	// negatives: of the look-ups that no peer could answer, those for which one
	// was asked. ExpectedFalsePositiveRate is the same by the fill of the
	// peers' filters, over all peers together. Nil: there is no such number.
	ObservedFalsePositiveRate *float64 `json:"observed_false_positive_rate"`
	ExpectedFalsePositiveRate *float64 `json:"expected_false_positive_rate"`
	// WastedRPCShare is positive misses by all positives; it depends on the
	// traffic more than on the filters.
	WastedRPCShare *float64 `json:"wasted_rpc_share"`

	// KeySets sets the filters beside exact key sets; nil without filters, and
	// when the nodes do not say.
	KeySets *KeySets `json:"key_sets,omitempty"`

	// OriginCounts is what the origin itself counted, by class; nil when it
	// was not ours.
	OriginCounts map[string]int64 `json:"origin_counts,omitempty"`

	Purges PurgeReport  `json:"purges"`
	Driver DriverReport `json:"driver"`
	Nodes  []NodeReport `json:"nodes"`
	Series []Point      `json:"series"` // one point a second
	Events []Event      `json:"events"` // what happened to the nodes

	// Disagreements between driver, nodes and origin, in words; none is the
	// good case.
	Disagreements []string `json:"disagreements"`

	// Unchecked says why the parties' counts could not be compared, although
	// nothing is wrong with them; empty: they were.
	Unchecked string `json:"unchecked,omitempty"`

	counted bool // the nodes' own counts are known
}

func (g *Group) lookups() int64 { return g.Bloom.lookups() }

// unsentRPCs are the peer requests that a group without filters should have
// sent, one to each peer for each look-up, and did not: it was overloaded.
func (g *Group) unsentRPCs() int64 {
	return max(g.lookups()*int64(len(g.Nodes)-1)-g.PeerRPCs, 0)
}

// PurgeReport counts the purges that the driver asked for.
type PurgeReport struct {
	Scheduled int64   `json:"scheduled"` // one is sent when the one before has its answer
	Requests  int64   `json:"requests"`  // those whose turn came before the end
	Errors    int64   `json:"errors"`
	MaxMS     float64 `json:"max_ms"` // until all members had acknowledged
}

// DriverReport says how well the driver kept its own schedule.
type DriverReport struct {
	Processes   int   `json:"processes"`
	Connections int   `json:"connections"` // of all processes together
	LateStarts  int64 `json:"late_starts"` // more than 5 ms after the scheduled time
	// LateWakeups are the late starts of workers that were idle: the machine
	// had no CPU for them. The others waited for a connection to be free.
	LateWakeups int64   `json:"late_wakeups"`
	MaxLateMS   float64 `json:"max_late_ms"`
	Unsent      int64   `json:"unsent"`     // given up, as they were too late to be sent at all
	Abandoned   int64   `json:"abandoned"`  // in flight when the run was interrupted
	Resent      int64   `json:"resent"`     // sent twice, as the node had closed the idle connection
	Bottleneck  string  `json:"bottleneck"` // empty: none
}

// NodeReport is what one node counted during the run.
type NodeReport struct {
	Name            string           `json:"name"`
	Client          string           `json:"client"`
	Admin           string           `json:"admin"`
	Requests        int64            `json:"requests"`
	Results         map[string]int64 `json:"results"`
	HitRatio        float64          `json:"hit_ratio"`
	PeerRPCs        int64            `json:"peer_rpcs"`
	PeerRPCResults  map[string]int64 `json:"peer_rpc_results"`
	OriginRequests  int64            `json:"origin_requests"`
	Bloom           Bloom            `json:"bloom"`
	Partitions      map[string]Bloom `json:"partitions"`
	FilterFill      float64          `json:"filter_fill_ratio"` // of the fullest partition
	Collapsed       int64            `json:"collapsed"`
	Evictions       int64            `json:"evictions"`
	GossipSentBytes int64            `json:"gossip_sent_bytes"`
	CPUSeconds      float64          `json:"cpu_seconds"`
	ResidentBytes   int64            `json:"resident_bytes"`
	Died            bool             `json:"died"`
}

// Point is one second of a run.
type Point struct {
	S         float64          `json:"s"` // since the start, at its end
	Responses int64            `json:"responses"`
	Errors    int64            `json:"errors"`
	P50MS     float64          `json:"p50_ms"`
	P99MS     float64          `json:"p99_ms"`
	Sources   map[string]int64 `json:"sources"`
	// SkipRatio of this second's look-ups; nil: there were none.
	SkipRatio *float64 `json:"skip_ratio"`
	// ObservedRate and ExpectedRate are the false-positive rates of this second,
	// over all peers; nil where there is no such number.
	ObservedRate *float64 `json:"observed_false_positive_rate"`
	ExpectedRate *float64 `json:"expected_false_positive_rate"`
	// Origin is the origin's own count of requests in this second, if it is ours.
	Origin int64 `json:"origin_requests"`
	// Nodes are in the order of the group's; a node that could not be read has
	// only what was known of it before.
	Nodes []NodePoint `json:"nodes,omitempty"`
}

// NodePoint is one second of a node: what it counted in it, and what it was at
// its end.
type NodePoint struct {
	Bloom           Bloom   `json:"bloom"`
	PeerRPCs        int64   `json:"peer_rpcs"`
	OriginRequests  int64   `json:"origin_requests"`
	GossipSentBytes int64   `json:"gossip_sent_bytes"`
	CPUSeconds      float64 `json:"cpu_seconds"`
	ResidentBytes   int64   `json:"resident_bytes"`
	FilterFill      float64 `json:"filter_fill_ratio"`
	Unread          bool    `json:"unread,omitempty"` // the node did not answer
}

// Event is something that happened during a run.
type Event struct {
	S     float64 `json:"s"`                 // since the start
	Until float64 `json:"until_s,omitempty"` // of a fault that lasts
	Text  string  `json:"text"`
	Fault bool    `json:"fault,omitempty"` // on the scenario's schedule
}

// ratio is a/b, and 0 where there is nothing to divide.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// maybeRatio is a/b, and nil where there is nothing to divide.
func maybeRatio(a, b int64) *float64 {
	if b == 0 {
		return nil
	}
	r := ratio(a, b)
	return &r
}

func deref(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

// addTally fills in what the driver saw.
func (g *Group) addTally(t tally, connections int) {
	g.Requests, g.Responses = t.Sent, t.Answered
	g.Errors, g.WrongAnswers = t.errors, t.wrong
	g.ErrorKinds, g.ErrorSamples = t.Kinds, append([]string{}, t.samples...)
	g.DurationS = t.end.Sub(t.start).Seconds()
	if g.DurationS > 0 {
		g.Rate = float64(t.Sent) / g.DurationS
	}
	g.LatencyMS, g.Distribution = t.latency, t.distribution
	g.Sources = t.Sources
	local := t.Sources[fromHit] + t.Sources[fromStale]
	g.HitRatio = ratio(local+t.Sources[fromPeer]+t.Sources[fromOwner], t.Answered)
	g.LocalHitRatio = ratio(local, t.Answered)
	g.Driver = DriverReport{
		Connections: connections,
		LateStarts:  t.late, LateWakeups: t.Asleep, MaxLateMS: float64(t.Worst) / float64(time.Millisecond),
		Unsent: t.Unsent, Abandoned: t.Abandoned, Resent: t.Resent,
	}
	g.Driver.Bottleneck = g.Driver.bottleneck(t.Sent)
}

// lateShare of the requests makes the driver a suspect.
const lateShare = 0.01

func (d DriverReport) bottleneck(sent int64) string {
	busy := d.LateStarts - d.LateWakeups
	switch {
	case d.Unsent > 0:
		return fmt.Sprintf("%d requests were not sent: all %d connections waited for answers until %v after the end", d.Unsent, d.Connections, requestTimeout)
	case ratio(d.LateWakeups, sent) > lateShare:
		return fmt.Sprintf("%.1f%% of the requests started late although a connection was free: this machine is too busy for driver and nodes together, so lower the rate or drive from another machine", 100*ratio(d.LateWakeups, sent))
	case ratio(busy, sent) > lateShare:
		return fmt.Sprintf("%.1f%% of the requests waited for one of the %d connections: the nodes answer slower than the rate asks for, or more connections are needed", 100*ratio(busy, sent), d.Connections)
	}
	return ""
}

// addNodes fills in what the nodes counted; the reports and their counters
// are in the same order.
func (g *Group) addNodes(nodes []NodeReport, counts []counters) {
	g.counted = len(nodes) > 0
	g.PeerRPCResults = map[string]int64{}
	for i := range nodes {
		n, c := &nodes[i], counts[i]
		n.Results, n.Requests = c.requests, total(c.requests)
		n.HitRatio = ratio(c.requests["hit"]+c.requests["stale"]+c.requests["peer"], n.Requests)
		n.PeerRPCResults, n.PeerRPCs = c.rpcs, total(c.rpcs)
		n.OriginRequests = total(c.origin)
		n.Partitions, n.Bloom = c.bloom, c.allBloom()
		for _, fill := range c.fill {
			n.FilterFill = max(n.FilterFill, fill)
		}
		n.Collapsed, n.Evictions, n.GossipSentBytes = c.collapsed, c.evictions, c.gossip
		n.CPUSeconds, n.ResidentBytes = c.cpu, c.memory

		g.PeerRPCs += n.PeerRPCs
		g.PeerRPCsBusy += c.busy
		g.ShieldRequests += c.shielded
		for k, v := range c.rpcs {
			g.PeerRPCResults[k] += v
		}
		g.OriginRequests += n.OriginRequests
		g.Bloom = g.Bloom.plus(n.Bloom, 1)
	}
	g.Nodes = append([]NodeReport{}, nodes...)
	g.PeerRPCsPerRequest = ratio(g.PeerRPCs, g.Requests)
	b := g.Bloom
	g.PeerRPCsSkipped = b.Negative
	g.SkipRatio = ratio(b.Negative, b.lookups())
	g.ObservedFalsePositiveRate = maybeRatio(b.PositiveMiss, b.PositiveMiss+b.Negative)
	g.WastedRPCShare = maybeRatio(b.PositiveMiss, b.PositiveHit+b.PositiveMiss)
	g.ExpectedFalsePositiveRate = expectedRate(counts)
}

// expectedRate is the probability that at least one peer's filter says maybe
// for a key that no peer has, from what each node expects of its own filter:
// 1 - product(1 - p) over the peers, averaged over nodes and partitions by
// their look-ups. Nil when the nodes don't say, or looked nothing up.
func expectedRate(counts []counters) *float64 {
	var sum, weight float64
	for i, c := range counts {
		for partition, b := range c.bloom {
			none := 1.0
			for j, peer := range counts {
				if p, ok := peer.expected[partition]; ok && j != i && p >= 0 && p <= 1 {
					none *= 1 - p
				}
			}
			if _, ok := c.expected[partition]; !ok {
				continue
			}
			w := float64(b.Negative + b.PositiveMiss)
			sum += w * (1 - none)
			weight += w
		}
	}
	if weight == 0 {
		return nil
	}
	r := sum / weight
	return &r
}

// nodeRequests are all requests between nodes that a look-up led to.
func (g *Group) nodeRequests() int64 { return g.PeerRPCs + g.ShieldRequests }

// equal reports whether two counts are within 1 % of the larger one.
func equal(a, b int64) bool { return math.Abs(float64(a-b)) <= equalWithin*float64(max(a, b)) }

// compare sets the groups beside each other; ring may be nil.
func compare(with, without, ring *Group) *Comparison {
	c := &Comparison{
		PeerRPCsPerRequest:          with.PeerRPCsPerRequest,
		PeerRPCsPerRequestNoFilters: without.PeerRPCsPerRequest,
		OriginRequestRatio:          ratio(with.OriginRequests, without.OriginRequests),
		OriginRequestsEqual:         equal(with.OriginRequests, without.OriginRequests),
		AnswersEqual:                with.WrongAnswers+without.WrongAnswers == 0 && math.Abs(with.HitRatio-without.HitRatio) <= equalWithin,
		HitRatioDifference:          with.HitRatio - without.HitRatio,
		P99DifferenceMS:             with.LatencyMS.P99 - without.LatencyMS.P99,
	}
	if without.PeerRPCsPerRequest > 0 {
		c.PeerRPCRatio = with.PeerRPCsPerRequest / without.PeerRPCsPerRequest
	}
	if with.OriginRequests == 0 && without.OriginRequests == 0 {
		c.OriginRequestRatio = 1
	}
	if ring != nil {
		asked := ratio(ring.nodeRequests(), ring.Requests)
		c.NodeRequestsPerRequestRing = &asked
		c.OriginRequestRatioRing = maybeRatio(ring.OriginRequests, with.OriginRequests)
	}
	return c
}

// judge fills in Broken.
func (r *Report) judge() {
	r.Broken = []string{}
	for _, t := range r.Scenario.FailIf {
		for _, g := range r.groups() {
			if v, broken := t.broken(g.group); broken {
				text := fmt.Sprintf("%s: it is %.4g", t, math.Round(v*1e6)/1e6)
				if isLatency(t.Name) {
					text = fmt.Sprintf("%s: it is %s", t, ms(v))
				}
				if g.group != &r.Group {
					text += " (" + g.name + ")"
				}
				r.Broken = append(r.Broken, text)
			}
		}
	}
}

// write puts report.json and report.html into dir.
func (r *Report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	var page bytes.Buffer
	if err := r.writeHTML(&page); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.html"), page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
