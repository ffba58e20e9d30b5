package edge

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edged/edge/store"
	"edged/gossip"
)

// collector turns what the parts of a node count into metrics, at each scrape.
type collector struct {
	n      *Node
	descs  map[string]*prometheus.Desc
	gossip func() gossip.Stats
}

// described is a metric that the collector sends.
type described struct {
	name, help string
	labels     []string
}

var partMetrics = []described{
	{"edged_filter_fill_ratio", "Share of the own filter's bits that are set.", []string{"partition"}},
	{"edged_filter_keys", "Keys in the own filter.", []string{"partition"}},
	{"edged_filter_bytes", "Memory of the own filter: counters, bits, and the bits that peers were told.", []string{"partition"}},
	{"edged_filter_capacity_keys", "Keys that the own filter is planned for.", []string{"partition"}},
	{"edged_filter_pinned_counters", "Counters at their maximum, which never count down again.", []string{"partition"}},
	{"edged_filter_underflows_total", "Removals of keys that were not in the own filter: always 0 in a correct program.", []string{"partition"}},
	{"edged_filter_expected_false_positive_rate", "Chance that a key that no peer has draws a peer request, by the fill of the live replicas.", []string{"partition"}},
	{"edged_filter_observed_false_positive_rate", "Of the look-ups that no peer could have answered, the share that was sent anyway.", []string{"partition"}},
	{"edged_missed_peer_hits_estimate", "Share of the look-ups that asked no peer that a peer could have answered, by sampling.", nil},
	{"edged_missed_peer_hits_estimate_low", "Lower end of the 95 % interval of edged_missed_peer_hits_estimate.", nil},
	{"edged_missed_peer_hits_estimate_high", "Upper end of it; 1 while nothing is known.", nil},
	{"edged_replica_state", "1 for the present state of what this node holds of a peer's filter.", []string{"peer", "state"}},
	{"edged_replica_bytes", "Memory of what this node holds of its peers' filters, all together.", nil},
	{"edged_replica_age_seconds", "Since the peer's filter was last known to be in step.", []string{"peer"}},
	{"edged_replica_resyncs_total", "Snapshots and pulls of a peer's filter, by reason.", []string{"peer", "reason"}},
	{"edged_replica_seq_lag", "Records of a peer that were heard of and are not applied yet.", []string{"peer"}},
	{"edged_replica_gaps_total", "Times that records of a peer were missed and had to be waited for or pulled.", []string{"peer"}},
	{"edged_replica_apply_lag_seconds", "From first hearing of a peer's record to having applied it; what comes in order takes no time.", nil},
	{"edged_replica_diverged_total", "Replicas found in step and yet not equal to what the peer published: always 0 in a correct program.", nil},
	{"edged_replica_quarantines_total", "Replicas that were not believed for a while.", nil},
	{"edged_gossip_sent_bytes_total", "Bytes sent to members, by kind.", []string{"kind"}},
	{"edged_gossip_received_bytes_total", "Bytes received from members, by kind.", []string{"kind"}},
	{"edged_gossip_record_bytes_total", "The changes of filters in messages of kind delta: what is left of them without frames.", nil},
	{"edged_gossip_messages_total", "Messages sent to members, and answers to their pulls, by path.", []string{"path"}},
	{"edged_gossip_send_queue", "Messages that wait to be sent.", nil},
	{"edged_gossip_handoff_drops_total", "Packets that the membership library dropped because more came than were looked at.", nil},
	{"edged_gossip_dropped_total", "Messages, or parts of one, that were dropped, by reason.", []string{"reason"}},
	{"edged_gossip_refused_total", "Peer requests refused, by reason.", []string{"reason"}},
	{"edged_gossip_log_lines_dropped_total", "Lines of the membership library that were not logged, by class.", []string{"class"}},
	{"edged_members", "Members by state, this node included.", []string{"state"}},
	{"edged_store_bytes", "Memory of stored responses: bodies, heads and index.", []string{"tier", "partition"}},
	{"edged_store_objects", "Stored responses.", []string{"tier", "partition"}},
	{"edged_store_keys", "Keys of stored responses.", []string{"tier", "partition"}},
	{"edged_store_key_bytes", "Length of all stored keys together.", []string{"tier", "partition"}},
	{"edged_store_key_changes_total", "Keys that came to be stored, and that ceased to be.", []string{"tier", "change", "partition"}},
	{"edged_store_key_change_bytes_total", "Length of these keys.", []string{"tier", "change", "partition"}},
	{"edged_store_limit_bytes", "The hard limit of edged_store_bytes.", []string{"tier", "partition"}},
	{"edged_store_evictions_total", "Responses that left the store, by reason.", []string{"tier", "reason", "partition"}},
	{"edged_store_tags", "Different tags of stored responses.", []string{"tier", "partition"}},
	{"edged_store_tag_references", "Tags of stored responses, each counted for each response that carries it.", []string{"tier", "partition"}},
	{"edged_store_tag_bytes", "The part of edged_store_bytes that the index of tags takes, responses' own share apart.", []string{"tier", "partition"}},
	{"edged_store_untagged_objects", "Stored responses whose tags found no room in the index: a purge by tag takes them out by a walk.", []string{"tier", "partition"}},
	{"edged_trace_spans_sent_total", "Spans that the collector has taken.", nil},
	{"edged_trace_spans_dropped_total", "Spans lost because they were too many, or no collector took them.", nil},
	{"edged_log_lines_dropped_total", "Lines of the log that were lost because they could not be written in time.", nil},
	{"edged_inflight_bytes", "Memory of storable responses that are still arriving.", nil},
	{"edged_negative_entries", "Remembered absences.", nil},
	{"edged_negative_bytes", "Memory of remembered absences.", nil},
	{"edged_negative_limit_bytes", "The hard limit of edged_negative_bytes.", nil},
	{"edged_negative_hits_total", "Requests answered from a remembered absence.", nil},
	{"edged_negative_refused_total", "Absences that were not remembered, by reason.", []string{"reason"}},
	{"edged_purge_log_state", "1 for the present state of this node's copy of the cluster's log of purges.", []string{"state"}},
	{"edged_purge_applied_total", "Entries of the log that were applied: purges of all members, created URLs, catalogs.", nil},
	{"edged_purge_outstanding_acks", "Acknowledgements of this node's entries that are waited for, over all members.", nil},
	{"edged_purge_behind", "Entries that another member has shown and this node has not applied.", nil},
	{"edged_purge_retransmits_total", "Times that entries were sent to a member again.", nil},
	{"edged_purge_catchups_total", "Times that missing entries were fetched from a member.", nil},
	{"edged_purge_catchup_errors_total", "Times that a member did not answer to that.", nil},
	{"edged_purge_lost_total", "Times that entries were missed for good, and all that was stored was made stale.", nil},
	{"edged_purge_log_bytes", "The log of purges: in memory, and on disk.", []string{"place"}},
	{"edged_purge_log_failed", "1 when the log of purges can't be written to disk.", nil},
	{"edged_purge_marks", "What look-ups compare with until nothing stored or fetched can be older.", nil},
	{"edged_origin_healthy", "1 while the origin's server is not being skipped.", []string{"site", "url"}},
}

func (n *Node) registerCollectors() {
	n.metrics.reg.MustRegister(newCollector(n))
}

func newCollector(n *Node) *collector {
	c := &collector{n: n, descs: map[string]*prometheus.Desc{}, gossip: n.gossip.Stats}
	for _, d := range slices.Concat(partMetrics, limitMetrics, catalogMetrics, absenceMetrics) {
		c.descs[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return c
}

// Describe is part of prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name string, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], kind, v, labels...)
	}
	gauge := func(name string, v float64, labels ...string) { send(prometheus.GaugeValue, name, v, labels...) }
	count := func(name string, v uint64, labels ...string) {
		send(prometheus.CounterValue, name, float64(v), labels...)
	}
	n, gs := c.n, c.gossip()
	for i, p := range n.cfg.Cache.Partitions {
		counting, keys, _ := n.filters[i].current()
		fs := counting.Stats()
		gauge("edged_filter_fill_ratio", fs.Fill, p.Name)
		gauge("edged_filter_keys", float64(fs.Keys), p.Name)
		gauge("edged_filter_bytes", float64(fs.Bytes)+float64(fs.Params.Bits()/8), p.Name)
		gauge("edged_filter_capacity_keys", float64(keys), p.Name)
		gauge("edged_filter_pinned_counters", float64(fs.Pinned), p.Name)
		count("edged_filter_underflows_total", fs.Underflows, p.Name)
		gauge("edged_filter_expected_false_positive_rate", n.expectedRate(i, gs.Replicas), p.Name)
		gauge("edged_filter_observed_false_positive_rate", observedRate(n.metrics.bloom[i].status()), p.Name)

		ss := n.store.Stats(i)
		gauge("edged_store_bytes", float64(ss.Bytes), "memory", p.Name)
		gauge("edged_store_objects", float64(ss.Objects), "memory", p.Name)
		gauge("edged_store_limit_bytes", float64(ss.LimitBytes), "memory", p.Name)
		gauge("edged_store_keys", float64(ss.Keys), "memory", p.Name)
		gauge("edged_store_key_bytes", float64(ss.URLBytes), "memory", p.Name)
		for change, v := range map[string]store.KeyChanges{"added": ss.Added, "removed": ss.Dropped} {
			count("edged_store_key_changes_total", v.Keys, "memory", change, p.Name)
			count("edged_store_key_change_bytes_total", v.Bytes, "memory", change, p.Name)
		}
		gauge("edged_store_tags", float64(ss.Tags), "memory", p.Name)
		gauge("edged_store_tag_references", float64(ss.TagRefs), "memory", p.Name)
		gauge("edged_store_tag_bytes", float64(ss.TagBytes), "memory", p.Name)
		gauge("edged_store_untagged_objects", float64(ss.Untagged), "memory", p.Name)
		for reason, v := range map[string]uint64{
			"capacity": ss.Evicted.Small + ss.Evicted.Main, "variants": ss.Evicted.Variants,
			"replaced": ss.Replaced, "purged": ss.Purged, "removed": ss.Removed,
		} {
			count("edged_store_evictions_total", v, "memory", reason, p.Name)
		}
	}
	dropped := uint64(0)
	if n.cfg.LogDropped != nil {
		dropped = n.cfg.LogDropped()
	}
	count("edged_log_lines_dropped_total", dropped)
	ts := n.tracer.Stats()
	count("edged_trace_spans_sent_total", ts.Sent)
	count("edged_trace_spans_dropped_total", ts.Dropped)
	gauge("edged_inflight_bytes", float64(n.budget.Used()))

	ns := n.negative.Stats()
	gauge("edged_negative_entries", float64(ns.Entries))
	gauge("edged_negative_bytes", float64(ns.Bytes))
	gauge("edged_negative_limit_bytes", float64(ns.LimitBytes))
	count("edged_negative_hits_total", n.absenceHits.Load())
	for reason, v := range ns.Refused {
		count("edged_negative_refused_total", v, string(reason))
	}

	missed, low, high := n.prober.estimate()
	gauge("edged_missed_peer_hits_estimate", missed)
	gauge("edged_missed_peer_hits_estimate_low", low)
	gauge("edged_missed_peer_hits_estimate_high", high)
	for _, state := range gossip.States() {
		gauge("edged_members", float64(gs.Members[state]), string(state))
	}
	for _, kind := range gossip.Kinds() {
		count("edged_gossip_sent_bytes_total", gs.Sent[kind].Bytes, kind)
		count("edged_gossip_received_bytes_total", gs.Received[kind].Bytes, kind)
	}
	for reason, v := range gs.Drops {
		count("edged_gossip_dropped_total", v, reason)
	}
	for reason, v := range gs.Refused {
		count("edged_gossip_refused_total", v, reason)
	}
	for class, v := range gs.LogDropped {
		count("edged_gossip_log_lines_dropped_total", v, class)
	}
	for path, v := range gs.SentBy {
		count("edged_gossip_messages_total", v, path)
	}
	count("edged_gossip_record_bytes_total", gs.RecordBytes)
	gauge("edged_replica_bytes", float64(gs.ReplicaBytes))
	gauge("edged_gossip_send_queue", float64(gs.SendQueue))
	count("edged_gossip_handoff_drops_total", gs.HandoffDrops)
	buckets := map[float64]uint64{}
	for i, b := range gossip.LagBounds() {
		buckets[b.Seconds()] = gs.ApplyLag.Buckets[i]
	}
	ch <- prometheus.MustNewConstHistogram(c.descs["edged_replica_apply_lag_seconds"], gs.ApplyLag.Count, gs.ApplyLag.Sum.Seconds(), buckets)
	count("edged_replica_diverged_total", gs.Diverged)
	count("edged_replica_quarantines_total", gs.Quarantines)
	c.replicas(gs.Replicas, gauge, count)
	c.log(gs.Log, gauge, count)

	for _, s := range n.sites.Load().all {
		c.limits(s, send)
		c.catalog(s, send)
		c.absences(s, send)
		for _, u := range s.pool.Stats() {
			healthy := 0.0
			if u.Healthy {
				healthy = 1
			}
			gauge("edged_origin_healthy", healthy, s.Name, u.URL)
		}
	}
}

// log sends the state of the cluster's log of purges.
func (c *collector) log(s gossip.LogStats, gauge func(string, float64, ...string), count func(string, uint64, ...string)) {
	truth := map[bool]float64{true: 1}
	for _, state := range gossip.SyncStates() {
		gauge("edged_purge_log_state", truth[state == s.State], string(state))
	}
	count("edged_purge_applied_total", s.Applied)
	gauge("edged_purge_outstanding_acks", float64(s.Outstanding))
	gauge("edged_purge_behind", float64(s.Behind))
	count("edged_purge_retransmits_total", s.Retransmitted)
	count("edged_purge_catchups_total", s.CatchUps)
	count("edged_purge_catchup_errors_total", s.CatchUpErrors)
	count("edged_purge_lost_total", s.Truncations)
	gauge("edged_purge_log_bytes", float64(s.Bytes), "memory")
	gauge("edged_purge_log_bytes", float64(s.FileBytes), "disk")
	gauge("edged_purge_log_failed", truth[s.FileFailed])
	gauge("edged_purge_marks", float64(c.n.epochs.Marks()))
}

// replicas sends one set of values a peer: of several partitions, the replica
// that is worst off speaks for it.
func (c *collector) replicas(all []gossip.ReplicaStats, gauge func(string, float64, ...string), count func(string, uint64, ...string)) {
	type peerState struct {
		state   gossip.ReplicaState
		age     time.Duration
		resyncs map[string]uint64

		lag, gaps uint64
	}
	peers := map[string]*peerState{}
	for _, r := range all {
		p := peers[r.Member]
		if p == nil {
			p = &peerState{state: r.State, resyncs: map[string]uint64{}}
			peers[r.Member] = p
		}
		if p.state == gossip.ReplicaLive {
			p.state = r.State
		}
		p.age = max(p.age, r.Age)
		p.lag += r.Lag
		p.gaps += r.Gaps
		for reason, v := range r.Resyncs {
			p.resyncs[reason] += v
		}
	}
	for name, p := range peers {
		for _, state := range gossip.ReplicaStates() {
			v := 0.0
			if state == p.state {
				v = 1
			}
			gauge("edged_replica_state", v, name, string(state))
		}
		gauge("edged_replica_age_seconds", p.age.Seconds(), name)
		gauge("edged_replica_seq_lag", float64(p.lag), name)
		count("edged_replica_gaps_total", p.gaps, name)
		for reason, v := range p.resyncs {
			count("edged_replica_resyncs_total", v, name, reason)
		}
	}
}
