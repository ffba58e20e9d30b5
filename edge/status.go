package edge

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"edged/edge/admin"
	"edged/edge/negative"
	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/gossip"
	"edged/peerfilter"
	"edged/shield"
	"github.com/prometheus/client_golang/prometheus"
)

// adminNode is what the admin API shows and steers.
func (n *Node) adminNode() admin.Node {
	node := admin.Node{
		Live: func() error { return nil },
		Ready: func() error {
			if n.draining.Load() {
				return fmt.Errorf("draining")
			}
			return n.synced()
		},
		Metrics:       n.metrics.handler(),
		Cluster:       n.watchedStatus,
		Feed:          n.feed,
		Explain:       n.explain,
		Keys:          n.keys,
		Tags:          n.tags,
		Purge:         n.purgeRequested,
		PurgeProgress: n.purgeProgress,
		Created:       n.created,
		Warm:          n.warm,
		CatalogUpdate: n.catalogUpdate,
		Drain:         n.drain,
	}
	if n.cfg.Reread != nil {
		node.Reload = n.reread
	}
	return node
}

// keys asks all members which cluster keys they have.
func (n *Node) keys(ctx context.Context) (all []admin.MemberKeys) {
	for _, m := range n.gossip.Keys(ctx) {
		k := admin.MemberKeys{Member: m.Member, Decrypt: m.Keys}
		if len(m.Keys) > 0 {
			k.Encrypt = m.Keys[0]
		}
		if m.Err != nil {
			k.Error = m.Err.Error()
		}
		all = append(all, k)
	}
	return all
}

// drain begins a graceful stop.
func (n *Node) drain(context.Context) error {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Drain)
		defer cancel()
		if err := n.Shutdown(ctx); err != nil {
			n.log.Warn("drained", "err", err)
		}
	}()
	return nil
}

// counts reads a counter vector into a map by the value of one label, summed
// over the others.
func counts(c interface {
	Collect(chan<- prometheus.Metric)
}, label string) map[string]uint64 {
	ch := make(chan prometheus.Metric, 256)
	go func() { c.Collect(ch); close(ch) }()
	sums := map[string]uint64{}
	for m := range ch {
		var d dto.Metric
		if m.Write(&d) != nil || d.Counter == nil {
			continue
		}
		for _, l := range d.Label {
			if l.GetName() == label {
				sums[l.GetValue()] += uint64(d.Counter.GetValue())
			}
		}
	}
	return sums
}

func (c *bloomCounters) status() admin.Bloom {
	return admin.Bloom{
		Negative: counted(c.negative), PositiveHit: counted(c.positiveHit),
		PositiveMiss: counted(c.positiveMiss), Unknown: counted(c.unknown),
	}
}

func counted(c prometheus.Metric) uint64 {
	var d dto.Metric
	if c.Write(&d) != nil {
		return 0
	}
	return uint64(d.Counter.GetValue())
}

// clusterStatus describes the node and what it knows of the others.
func (n *Node) clusterStatus() admin.Cluster {
	c := admin.Cluster{
		Name: n.cfg.Name, Role: string(n.cfg.Cluster.Role), Version: n.cfg.Version,
		UptimeSeconds: time.Since(n.started).Seconds(), Draining: n.draining.Load(),
		SavedSeconds: time.Duration(n.sampler.saved.Load()).Seconds(), PurgesInFlight: n.purging.Load(), PurgeLog: string(n.sync.Load().state), Now: n.sampler.current(),
		Requests: counts(n.metrics.requests, "result"), PeerRPCs: counts(n.metrics.rpcs, "result"),
	}
	t := n.topo.Load()
	replicas := map[string]admin.Replica{}
	gs := n.gossip.Stats()
	for _, r := range gs.Replicas {
		// Of several partitions the one that is worst off speaks for the member.
		have, seen := replicas[r.Member]
		if !seen || r.State != gossip.ReplicaLive {
			have.State = string(r.State)
		}
		have.AgeSeconds = max(have.AgeSeconds, r.Age.Seconds())
		params := n.paramsOf(r.Partition)
		fill := float64(r.BitsSet) / float64(params.Bits())
		have.Keys += uint64(peerfilter.KeysAt(params, fill))
		have.Fill = max(have.Fill, fill)
		if have.SetHashes == nil {
			have.SetHashes = map[string]string{}
		}
		have.SetHashes[r.Partition] = fmt.Sprintf("%016x", r.SetHash)
		replicas[r.Member] = have
	}
	now := time.Now()
	for _, m := range t.members {
		am := admin.Member{
			Name: m.Name, Role: m.Role, State: string(m.State), Peer: m.PeerAddr,
			Self: m.Name == n.cfg.Name, ShareOfRing: t.edges.Share(m.Name), Replica: replicas[m.Name],
		}
		if am.Self {
			am.Peer = n.listeners[lnPeer].Addr().String()
			own := n.summary()
			am.Summary = &own
		} else if m.State == gossip.StateAlive || m.State == gossip.StateSuspect {
			am.Summary = n.summaries.latest(m.Name, now) // what the dead said last misleads
		}
		c.Members = append(c.Members, am)
	}
	for i, p := range n.cfg.Cache.Partitions {
		counting, keys, epoch := n.filters[i].current()
		fs, ss, b := counting.Stats(), n.store.Stats(i), n.metrics.bloom[i].status()
		c.Partitions = append(c.Partitions, admin.Partition{
			Name: p.Name,
			Filter: admin.Filter{
				Keys: uint64(fs.Keys), CapacityKeys: uint64(keys), FillRatio: fs.Fill,
				PlanFillRatio: peerfilter.Fill(fs.Params, float64(keys)), PinnedCounters: uint64(fs.Pinned),
				ExpectedRate: n.expectedRate(i, gs.Replicas), ObservedRate: observedRate(b), Epoch: epoch, Rebuilds: epoch,
				SetHash: fmt.Sprintf("%016x", gs.Streams[i].SetHash),
			},
			Bloom: b,
			Store: admin.Store{
				Bytes: ss.Bytes, LimitBytes: ss.LimitBytes, Objects: int64(ss.Objects),
				Evictions: ss.Evicted.Small + ss.Evicted.Main + ss.Evicted.Variants,
			},
		})
		c.RPCsSkipped += b.Negative
	}
	ns := n.negative.Stats()
	c.Negative = admin.Negative{Entries: ns.Entries, Bytes: ns.Bytes, LimitBytes: ns.LimitBytes, Hits: n.absenceHits.Load(), Refused: map[string]uint64{}}
	for r, v := range ns.Refused {
		c.Negative.Refused[string(r)] = v
	}
	for _, s := range n.sites.Load().all {
		for _, u := range s.pool.Stats() {
			c.Origins = append(c.Origins, admin.Origin{
				Site: s.Name, URL: u.URL, Healthy: u.Healthy, InFlight: u.InFlight, Attempts: u.Attempts, Failures: u.Failures,
			})
		}
		if s.catalog == nil {
			continue
		}
		cs := s.catalog.Stats(time.Now())
		c.Catalogs = append(c.Catalogs, admin.Catalog{
			Site: s.Name, Mode: string(cs.Mode), Effective: string(cs.Effective), Reason: cs.Reason, Paths: int64(cs.Paths),
			AgeSeconds: cs.Age.Seconds(), WouldRefuse: cs.WouldRefuse, Wrong: cs.Wrong,
		})
	}
	c.HitRatio = hitRatio(c.Requests)
	return c
}

// watchedStatus is clusterStatus for who looks: it asks the others to speak
// for themselves, too.
func (n *Node) watchedStatus() admin.Cluster {
	n.askSummaries(time.Now())
	return n.clusterStatus()
}

// hitRatio is the share of the requests, counted by result, that no origin or
// shield had to answer in full.
func hitRatio(requests map[string]uint64) float64 {
	total, hits := uint64(0), uint64(0)
	for r, v := range requests {
		total += v
		switch result(r) {
		case resHit, resStale, resRevalidated, resPeer, resNegative, resCatalog:
			hits += v
		}
	}
	if total == 0 {
		return 0
	}
	return float64(hits) / float64(total)
}

// paramsOf returns the planned filter of a partition, by its name: what its
// peers have too, unless they have grown theirs.
func (n *Node) paramsOf(partition string) peerfilter.Params {
	for i, p := range n.cfg.Cache.Partitions {
		if p.Name == partition {
			return n.plans[i].Params
		}
	}
	return n.plans[0].Params
}

// expectedRate is the chance that a key that no peer has draws a request: one
// minus the chance that every live replica calls it absent.
func (n *Node) expectedRate(part int, replicas []gossip.ReplicaStats) float64 {
	none := 1.0
	for _, r := range replicas {
		if r.Partition == n.cfg.Cache.Partitions[part].Name && r.State == gossip.ReplicaLive {
			params := n.plans[part].Params
			none *= 1 - peerfilter.Rate(params, peerfilter.KeysAt(params, float64(r.BitsSet)/float64(params.Bits())))
		}
	}
	return 1 - none
}

// observedRate is, of the look-ups that no peer could have answered, the share
// that was sent anyway.
func observedRate(b admin.Bloom) float64 {
	if d := b.PositiveMiss + b.Negative; d > 0 {
		return float64(b.PositiveMiss) / float64(d)
	}
	return 0
}

// tags lists the largest tags of what is stored here.
func (n *Node) tags(most int) admin.Tags {
	var t admin.Tags
	for i := range n.cfg.Cache.Partitions {
		s := n.store.Stats(i)
		t.Distinct += s.Tags // one of several partitions counts in each
		t.References += s.TagRefs
		t.Bytes += s.TagBytes
		t.Untagged += s.Untagged
	}
	for _, c := range n.store.LargestTags(most) {
		t.Tags = append(t.Tags, admin.TagCount{Tag: shownTags([]string{c.Tag})[0], Stored: c.Responses})
	}
	return t
}

// shownTags are a response's tags for somebody to read.
func shownTags(tags []string) []string {
	shown := slices.Clone(tags)
	for i, t := range shown {
		if t == store.AnyTag {
			shown[i] = "(and more: any purge by tag covers it)"
		}
	}
	return shown
}

// explain tells what a request would meet here.
func (n *Node) explain(_ context.Context, method, rawURL string, header http.Header) (admin.Explanation, error) {
	rq, err := n.explained(method, rawURL, header)
	if err != nil {
		return admin.Explanation{}, err
	}
	t := n.topo.Load()
	e := admin.Explanation{
		URL: rawURL, Method: method, Key: rq.key.URL, Hash: fmt.Sprintf("%016x", rq.key.Hash),
		Partition: n.cfg.Cache.Partitions[rq.part].Name, Site: rq.site.Name, Owner: t.edges.Owner(rq.key.Hash),
	}
	step := func(name, result, rule string) {
		e.Steps = append(e.Steps, admin.Step{Name: name, Result: result, Rule: rule})
	}
	// would ends the explanation: what becomes of the request, as a sentence.
	would := func(format string, args ...any) (admin.Explanation, error) {
		e.Would = "This request would " + fmt.Sprintf(format, args...) + "."
		return e, nil
	}
	step("key", rq.key.URL, "scheme, authority, path and query, normalised (RFC 3986 §6.2.2)")
	step("partition", e.Partition, "cache.partitions, first match")

	set := n.gossip.Lookup(rq.part, rq.key.Filter)
	for name := range t.peers {
		says := "no"
		switch {
		case !set.Known(name):
			says = "unknown"
		case set.Contains(name):
			says = "yes"
		}
		e.Filters = append(e.Filters, admin.FilterSay{Member: name, Says: says})
	}
	slices.SortFunc(e.Filters, func(a, b admin.FilterSay) int { return strings.Compare(a.Member, b.Member) })

	now := time.Now()
	variants := n.stored(rq)
	selected := n.selectVariant(rq, variants)
	for _, v := range variants {
		m := metaOf(v)
		ttl := m.TTL(now)
		if m.soft {
			ttl = 0 // it is stale by order, not for any time
		}
		e.Stored = append(e.Stored, admin.Stored{
			Status: int(m.Status), Variant: v.Variant, StoredAt: m.ResponseTime, AgeSeconds: m.Age(now).Seconds(),
			TTLSeconds: ttl.Seconds(), Bytes: v.Body.Len(), Tags: shownTags(v.Tags), Matches: v == selected,
		})
	}
	absent, remembered := n.remembered(rq, now)
	if remembered {
		e.Stored = append(e.Stored, admin.Stored{
			Status: absent.Status, Negative: true, From: absent.From.String(), ExpiresAt: absent.Expires, StoredAt: absent.Stored, AgeSeconds: now.Sub(absent.Stored).Seconds(),
			TTLSeconds: absent.Expires.Sub(now).Seconds(), Bytes: int64(len(absent.Body)), Matches: true,
		})
	}

	switch {
	case !rfc9111.IsSafe(method):
		step("method", "not answered from the store", "RFC 9111 §4.4")
		return would("go to the origin, and invalidate what is stored under this URL if it succeeds")
	case rq.site.bypassed(pathOf(rq.target)):
		step("bypass", "skips the cache", "sites[].bypass")
		return would("go to the origin, past the cache")
	}
	step("select", selection(len(variants), selected != nil), "RFC 9111 §4.1")
	if rule := n.uncacheable.why(rq.key.Hash); rule != "" && len(variants) == 0 {
		step("storing", "the last answer was not stored", rule)
	}
	validate := false
	if selected != nil {
		m := metaOf(selected)
		if !n.covers(rq, selected) {
			step("range", "only parts of it are stored here", "RFC 9111 §3.3")
			return would("ask the shield or the origin for what is missing")
		}
		reuse, rule := m.Decide(rq.dirs, now)
		if m.soft {
			reuse, rule = rfc9111.Validate, "a soft purge"
		}
		if reuse != rfc9111.Validate && n.distrusts(now) {
			reuse, rule = rfc9111.Validate, n.distrustRule()
		}
		step("decide", reuse.String(), rule)
		switch reuse {
		case rfc9111.Fresh:
			return would("be answered from the store of %s", n.cfg.Name)
		case rfc9111.MaxStale, rfc9111.StaleWhileRevalidate:
			return would("be answered stale from the store of %s", n.cfg.Name)
		}
		validate = true
	} else if remembered && len(variants) == 0 {
		reuse, rule := absent.decide(rq.dirs, now, rq.site.policy)
		step("negative", fmt.Sprintf("a remembered absence: the %s said %d at %s, and it holds until %s", absent.From, absent.Status,
			absent.Stored.UTC().Format(time.RFC3339), absent.Expires.UTC().Format(time.RFC3339)), absenceRule(absent.From))
		if n.distrusts(now) {
			reuse, rule = rfc9111.Validate, n.distrustRule()
		}
		if reuse != rfc9111.Fresh {
			step("decide", reuse.String(), rule)
		}
		if reuse.Served() {
			return would("be answered %d from a remembered absence of %s", absent.Status, n.cfg.Name)
		}
	}
	if c := rq.site.catalog; c != nil && selected == nil && len(variants) == 0 {
		st := c.Stats(now)
		says := "may exist"
		if st.Paths > 0 && !c.Contains(pathOf(rq.target)) {
			says = "definitely absent"
		}
		rule := "catalog.mode " + string(st.Effective)
		if st.Reason != "" {
			rule += ", because it is " + st.Reason
		}
		step("catalog", says, rule)
		if says == "definitely absent" && st.Effective == negative.ModeEnforce {
			return would("be answered 404 from the catalog of site %s, but for one in a thousand", rq.site.Name)
		}
	}
	next := "the origin"
	if name, ok := shield.Choose(shield.Mode(rq.site.Shield), n.cfg.Name, rq.key.Hash, t.shields, t.edges, t.usable); ok {
		next = "the shield " + name
	}
	if validate {
		step("forward", next, "validation (RFC 9111 §4.3)")
		return would("be validated with %s", next)
	}
	asked := slices.DeleteFunc(slices.Clone(e.Filters), func(f admin.FilterSay) bool {
		return f.Says == "no" || f.Says == "unknown" && f.Member != e.Owner
	})
	if len(asked) == 0 {
		step("filters", "every peer's filter calls it absent: no peer is asked", "filter")
		return would("go to %s without asking a peer", next)
	}
	names := make([]string, len(asked))
	for i, f := range asked {
		names[i] = f.Member
	}
	step("filters", "may be stored at "+strings.Join(names, ", "), "filter")
	return would("ask %s, and then %s", strings.Join(names, ", "), next)
}

// distrustRule says why what is stored here is validated although it is fresh.
func (n *Node) distrustRule() string {
	return fmt.Sprintf("purge.isolated: revalidate, as this node may have missed purges (%s)", n.sync.Load().state)
}

// absenceRule tells what gave a remembered absence its lifetime.
func absenceRule(from negative.From) string {
	if from == negative.FromPurge {
		return "a purge with reason deleted, and negative.ttl"
	}
	return "negative.ttl or the response's own lifetime"
}

// selection tells what is stored under a key, and whether a request's fields
// select one of it.
func selection(stored int, selected bool) string {
	switch {
	case stored == 0:
		return "nothing stored here"
	case selected:
		return fmt.Sprintf("%d stored here, one matches", stored)
	}
	return fmt.Sprintf("%d stored here, none matches this request's fields", stored)
}

// explained makes a request out of a URL, for the questions of the admin API.
func (n *Node) explained(method, rawURL string, header http.Header) (*request, error) {
	rq := &request{r: &http.Request{Method: method, Header: header, Proto: "HTTP/1.1"}, began: time.Now()}
	var err error
	if rq.scheme, rq.host, rq.target, err = n.canonicalURL(rawURL, header.Get("Host")); err != nil {
		return nil, err
	}
	if !n.locate(rq) {
		return nil, &admin.Error{Status: http.StatusNotFound, Text: "no site is configured for the host " + rq.host}
	}
	if rq.site.policy.HonourRequest {
		rq.dirs = rfc9111.ParseRequestDirectives(header, rq.site.policy)
	}
	return rq, nil
}
