package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// Bloom are a node's counters of look-ups that missed locally.
type Bloom struct {
	Negative     int64 `json:"negative"`      // every filter said absent: no peer was asked
	PositiveHit  int64 `json:"positive_hit"`  // a filter said maybe, and a peer had it
	PositiveMiss int64 `json:"positive_miss"` // a filter said maybe, and no asked peer had it
	Unknown      int64 `json:"unknown"`       // decided without the filters
}

func (b Bloom) lookups() int64 { return b.Negative + b.PositiveHit + b.PositiveMiss + b.Unknown }

// plus adds o, sign times.
func (b Bloom) plus(o Bloom, sign int64) Bloom {
	return Bloom{
		b.Negative + sign*o.Negative, b.PositiveHit + sign*o.PositiveHit,
		b.PositiveMiss + sign*o.PositiveMiss, b.Unknown + sign*o.Unknown,
	}
}

// counters are what a node says of itself at one time, or, after minus, what
// it counted between two times.
type counters struct {
	requests  map[string]int64 // by result
	collapsed int64
	bloom     map[string]Bloom // by partition
	rpcs      map[string]int64 // by result
	busy      int64            // peer requests not sent, as too many were in flight
	origin    map[string]int64 // by result
	expected  map[string]float64
	fill      map[string]float64
	gossip    int64 // bytes sent
	evictions int64
	purges    int64
	cpu       float64 // seconds
	memory    int64   // bytes resident, at the time
	start     float64 // of the process, in seconds since 1970
	objects   int64   // stored, at the time
	negatives int64   // remembered absences, at the time
	keys      int64   // in the filter, at the time
	capacity  int64   // keys the filter is planned for

	shielded int64 // requests of other nodes for which this one is the shield or the key's owner

	// What an exact set of the keys would cost, see [KeySets].
	hasKeys                   bool  // the node tells of its keys
	stored, keyBytes          int64 // at the time
	changes, changeBytes      int64 // keys that came or went, and their length
	filterBytes, replicaBytes int64 // memory, at the time
	delta, records            int64 // bytes of messages with changes, and of the changes in them
	falsePositives            int64 // peers' requests in vain that an exact set would have spared them
}

// readCounters picks the counters out of a scrape. A metric that the contract
// names and the node lacks is an error: without it the report would say 0.
func readCounters(ss samples) (counters, error) {
	var missing []string
	need := func(name, label string) map[string]int64 {
		m := map[string]int64{}
		if _, ok := ss.sum(name); !ok {
			missing = append(missing, name)
		}
		for k, v := range ss.by(name, label) {
			m[k] = int64(v)
		}
		return m
	}
	total := func(name string) int64 { v, _ := ss.sum(name); return int64(v) }
	c := counters{
		requests: need("edged_requests_total", "result"),
		origin:   need("edged_origin_requests_total", "result"),
		// A node alone has no peers, so no such series.
		rpcs:      map[string]int64{},
		bloom:     map[string]Bloom{},
		expected:  ss.by("edged_filter_expected_false_positive_rate", "partition"),
		fill:      ss.by("edged_filter_fill_ratio", "partition"),
		collapsed: total("edged_collapsed_requests_total"),
		busy:      total("edged_peer_busy_total"),
		gossip:    total("edged_gossip_sent_bytes_total"),
		evictions: total("edged_store_evictions_total"),
		purges:    total("edged_purges_total"),
		memory:    total("process_resident_memory_bytes"),
	}
	c.cpu, _ = ss.sum("process_cpu_seconds_total")
	c.start, _ = ss.sum("process_start_time_seconds")
	c.objects = total("edged_store_objects")
	c.negatives = total("edged_negative_entries")
	c.keys, c.capacity = total("edged_filter_keys"), total("edged_filter_capacity_keys")
	c.shielded = int64(ss.by("edged_member_requests_total", "hop")["shield"])
	_, c.hasKeys = ss.sum("edged_store_keys")
	c.stored, c.keyBytes = total("edged_store_keys"), total("edged_store_key_bytes")
	c.changes, c.changeBytes = total("edged_store_key_changes_total"), total("edged_store_key_change_bytes_total")
	c.filterBytes, c.replicaBytes = total("edged_filter_bytes"), total("edged_replica_bytes")
	c.delta, c.records = int64(ss.by("edged_gossip_sent_bytes_total", "kind")["delta"]), total("edged_gossip_record_bytes_total")
	c.falsePositives = int64(ss.by("edged_peer_misses_total", "cause")["false_positive"])
	for k, v := range ss.by("edged_peer_rpcs_total", "result") {
		c.rpcs[k] = int64(v)
	}
	for name, field := range map[string]func(*Bloom) *int64{
		"edged_bloom_negative_total":      func(b *Bloom) *int64 { return &b.Negative },
		"edged_bloom_positive_hit_total":  func(b *Bloom) *int64 { return &b.PositiveHit },
		"edged_bloom_positive_miss_total": func(b *Bloom) *int64 { return &b.PositiveMiss },
		"edged_bloom_unknown_total":       func(b *Bloom) *int64 { return &b.Unknown },
	} {
		for partition, v := range need(name, "partition") {
			b := c.bloom[partition]
			*field(&b) = v
			c.bloom[partition] = b
		}
	}
	if len(missing) > 0 {
		return c, fmt.Errorf("metrics: %s missing: is this the admin address of an edged node?", strings.Join(missing, ", "))
	}
	return c, nil
}

// minus returns what was counted since before; gauges stay as they are.
func (c counters) minus(before counters) counters { return c.add(before, -1) }

// plus returns what c and an earlier process of the same node have counted.
func (c counters) plus(o counters) counters { return c.add(o, 1) }

func (c counters) add(o counters, sign int64) counters {
	d := c
	sum := func(a, b map[string]int64) map[string]int64 {
		m := maps.Clone(a)
		for k, n := range b {
			if m == nil {
				m = map[string]int64{}
			}
			m[k] += sign * n
		}
		return m
	}
	d.requests = sum(c.requests, o.requests)
	d.rpcs = sum(c.rpcs, o.rpcs)
	d.origin = sum(c.origin, o.origin)
	d.bloom = map[string]Bloom{}
	for p, b := range c.bloom {
		d.bloom[p] = b.plus(o.bloom[p], sign)
	}
	for p, b := range o.bloom {
		if _, ok := c.bloom[p]; !ok {
			d.bloom[p] = Bloom{}.plus(b, sign)
		}
	}
	d.collapsed += sign * o.collapsed
	d.busy += sign * o.busy
	d.gossip += sign * o.gossip
	d.evictions += sign * o.evictions
	d.purges += sign * o.purges
	d.shielded += sign * o.shielded
	d.changes += sign * o.changes
	d.changeBytes += sign * o.changeBytes
	d.delta += sign * o.delta
	d.records += sign * o.records
	d.falsePositives += sign * o.falsePositives
	d.cpu += float64(sign) * o.cpu
	return d
}

func minus(after, before map[string]int64) map[string]int64 {
	d := map[string]int64{}
	for k, n := range after {
		d[k] = n - before[k]
	}
	return d
}

func total(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

func (c counters) allBloom() (b Bloom) {
	for _, p := range c.bloom {
		b = b.plus(p, 1)
	}
	return b
}

// admin is a client of one node's admin API. It is safe for concurrent use.
type admin struct {
	base   string // http://host:port
	token  string
	client *http.Client
}

// adminTimeout bounds each request to an admin API.
const adminTimeout = 5 * time.Second

func newAdmin(base, token string) *admin {
	return &admin{strings.TrimSuffix(base, "/"), token, &http.Client{
		Timeout:   adminTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second},
	}}
}

func (a *admin) close() { a.client.CloseIdleConnections() }

func (a *admin) do(ctx context.Context, method, path, body string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s%s: %w", method, a.base, path, err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s %s%s: more than %d bytes", method, a.base, path, limit)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s %s%s: status %d: %.200s", method, a.base, path, resp.StatusCode, data)
	}
	return data, nil
}

func (a *admin) scrape(ctx context.Context) (samples, error) {
	data, err := a.do(ctx, http.MethodGet, "/metrics", "", maxExpositionBytes)
	if err != nil {
		return nil, err
	}
	ss, err := parseExposition(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.base, err)
	}
	return ss, nil
}

func (a *admin) counters(ctx context.Context) (counters, error) {
	ss, err := a.scrape(ctx)
	if err != nil {
		return counters{}, err
	}
	c, err := readCounters(ss)
	if err != nil {
		return c, fmt.Errorf("%s: %w", a.base, err)
	}
	return c, nil
}

// waitInterval is the time between two looks at a cluster that is forming.
const waitInterval = 100 * time.Millisecond

// waitUntil looks at the metrics of all nodes until ready says nothing any
// more for the given stretch of time, or ctx ends: the error then holds the
// last complaint.
func waitUntil(ctx context.Context, admins []*admin, stretch time.Duration, ready func(node int, ss samples) error) error {
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	var since time.Time // ready without a break
	for {
		var complaint error
		for i, a := range admins {
			ss, err := a.scrape(ctx)
			if err == nil {
				err = ready(i, ss)
			}
			if err != nil {
				complaint = err
				break
			}
		}
		switch {
		case complaint != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if complaint == nil && time.Since(since) >= stretch {
			return nil
		}
		select {
		case <-ctx.Done():
			if complaint == nil {
				complaint = errors.New("not ready for long enough")
			}
			return fmt.Errorf("%w: %w", complaint, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// membersAre returns a condition for [waitUntil]: every node counts n members
// alive.
func membersAre(n int) func(int, samples) error {
	return func(node int, ss samples) error {
		if alive := ss.by("edged_members", "state")["alive"]; int(alive) != n {
			return fmt.Errorf("node %d sees %d of %d members alive", node+1, int(alive), n)
		}
		return nil
	}
}

// replicasAreLive returns a condition for [waitUntil]: every node's replicas of
// its n-1 peers are in sequence.
func replicasAreLive(n int) func(int, samples) error {
	return func(node int, ss samples) error {
		if live := ss.by("edged_replica_state", "state")["live"]; int(live) < n-1 {
			return fmt.Errorf("node %d has %d of %d replicas live", node+1, int(live), n-1)
		}
		return nil
	}
}
