package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// quick is a run of a second against fake nodes.
func quick(t *testing.T, fault string) (Options, *output) {
	out := &output{}
	return Options{
		Scenario: "flood", Rate: 400, Duration: time.Second, Nodes: 2, Keys: 100,
		Binary: fake(t, fault), Out: out, ReportDir: filepath.Join(t.TempDir(), "report"),
	}, out
}

// output is a buffer that can wait for a text, and do something then.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	text string
	then func()
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if o.then != nil && strings.Contains(o.buf.String(), o.text) {
		o.then()
		o.then = nil
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func TestRun_reports(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	absent := Share(0.8)
	o.Absent = &absent
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Requests < 399 || r.Requests > 400 || r.Errors != 0 || r.Responses != r.Requests {
		t.Errorf("%d requests, %d responses, %d errors: want 400, 400, 0", r.Requests, r.Responses, r.Errors)
	}
	if len(r.Disagreements) != 0 {
		t.Errorf("disagreements: %q", r.Disagreements)
	}
	if r.SkipRatio != 1 || r.PeerRPCs != 0 || *r.ObservedFalsePositiveRate != 0 || math.Abs(*r.ExpectedFalsePositiveRate-0.001) > 1e-9 {
		t.Errorf("skip ratio %v, %d RPCs, rates %v and %v", r.SkipRatio, r.PeerRPCs, *r.ObservedFalsePositiveRate, *r.ExpectedFalsePositiveRate)
	}
	if r.OriginCounts[ClassAbsent]+r.OriginCounts[ClassKey] != r.OriginRequests || r.OriginCounts[ClassAbsent] == 0 {
		t.Errorf("origin counts %v, the nodes' %d", r.OriginCounts, r.OriginRequests)
	}
	if len(r.Nodes) != 2 || r.Nodes[0].Requests+r.Nodes[1].Requests != r.Requests {
		t.Errorf("nodes %+v", r.Nodes)
	}
	if len(r.Series) == 0 {
		t.Error("no series")
	}
	for _, want := range []string{"Storing 100 keys", "hits", "Scenario flood: ", "It takes about 5s: 1s of measuring, and about 4s to prepare.\n", "peers skipped 100.0%", "late starts  ", "peers skipped", "edge-b", "driver, nodes and origin agree"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	checkJSON(t, o.ReportDir, "requests", "errors", "duration_s", "rate", "latency_ms.p50", "latency_ms.p90", "latency_ms.p99", "latency_ms.p999", "latency_ms.max",
		"hit_ratio", "peer_rpcs", "peer_rpcs_skipped", "skip_ratio", "origin_requests", "bloom.negative", "bloom.positive_hit", "bloom.positive_miss",
		"observed_false_positive_rate", "expected_false_positive_rate", "nodes")
}

// checkJSON wants each path in report.json, and a value there.
func checkJSON(t *testing.T, dir string, paths ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var at any = doc
		for _, key := range strings.Split(path, ".") {
			m, _ := at.(map[string]any)
			at = m[key]
		}
		if at == nil {
			t.Errorf("report.json lacks %s", path)
		}
	}
}

func TestRun_compares(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Compare = true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	with, without := r.WithFilters, r.NoFilters
	if with == nil || without == nil || !with.Filters || without.Filters {
		t.Fatalf("groups: %v, %v", with, without)
	}
	// The fake nodes don't collapse, so two requests at once for one key may be two at the origin.
	if with.Requests != without.Requests || math.Abs(float64(with.OriginRequests-without.OriginRequests)) > 10 {
		t.Errorf("the groups had different requests: %d and %d, %d and %d at the origin", with.Requests, without.Requests, with.OriginRequests, without.OriginRequests)
	}
	ring := r.RingOnly
	if ring == nil || ring.Mode != modeRing || ring.Requests != with.Requests || ring.PeerRPCs != 0 || ring.Filters || r.Comparison.OriginRequestRatioRing == nil {
		t.Errorf("the group with the ring only: %+v", ring)
	}
	if k := with.KeySets; k == nil || k.Keys < 100 || k.Whole.MemoryBytes != 30*k.Keys || without.KeySets != nil {
		t.Errorf("key sets %+v", k)
	}
	if with.PeerRPCs != 0 || without.PeerRPCs == 0 || r.Comparison.PeerRPCsPerRequestNoFilters < 0.5 {
		t.Errorf("peer RPCs %d and %d", with.PeerRPCs, without.PeerRPCs)
	}
	checkJSON(t, o.ReportDir, "filters.requests", "no_filters.requests", "filters.bloom.negative", "no_filters.skip_ratio", "comparison.peer_rpcs_per_request",
		"ring_only.requests", "key_sets.filters.memory_bytes", "filters.key_sets.hashes.sent_bytes", "filters.key_sets.whole.wasted_rpcs")
	for _, want := range []string{"with filters", "without filters", "with the ring only", "Peer RPCs a request", "exact hashes, calculated", "Origin requests: ", "of measuring in three runs"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// A report that can't be written is no surprise at the end.
func TestRun_reportNowhere(t *testing.T) {
	o, out := quick(t, "ok")
	o.ReportDir = filepath.Join(writeLog(t, "a file"), "report")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "make a directory for the report") || out.String() != "" {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestRun_purges(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Scenario, o.Duration = "churn", 2*time.Second
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	scheduled, sc := int64(0), purges(r.Scenario)
	for _, ok := sc.next(); ok; _, ok = sc.next() {
		scheduled++
	}
	p := r.Purges
	if scheduled < 30 || p.Scheduled != scheduled || p.Requests == 0 || p.Requests > scheduled || p.Errors != 0 {
		t.Errorf("%+v of %d", p, scheduled)
	}
	left := fmt.Sprintf("their turn never came: %d", scheduled-p.Requests)
	if has := strings.Contains(out.String(), left); has != (scheduled > p.Requests) {
		t.Errorf("the output has %q: %v\n%s", left, has, out)
	}
	if len(r.Disagreements) != 0 { // the nodes count them too
		t.Errorf("%q", r.Disagreements)
	}
}

func TestRun_findsFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault string
		check func(t *testing.T, r Report, err error, out string)
	}{
		{"corrupts", func(t *testing.T, r Report, err error, out string) {
			// Already the prefill finds it.
			if err == nil || !strings.Contains(err.Error(), "wrong body") {
				t.Errorf("got %v, want a wrong body", err)
			}
		}},
		{"dies-early", func(t *testing.T, r Report, err error, out string) {
			if err == nil || !strings.Contains(err.Error(), "node edge-b died before the measurement: exit status 2") || !strings.Contains(err.Error(), "panic: so soon") {
				t.Errorf("got %v, want that the node died, and why", err)
			}
		}},
		{"miscounts", func(t *testing.T, r Report, err error, out string) {
			if err != nil || len(r.Disagreements) == 0 || !strings.Contains(out, "The counts disagree") {
				t.Errorf("%v, disagreements %q", err, r.Disagreements)
			}
		}},
		{"dies-later", func(t *testing.T, r Report, err error, out string) {
			if !errors.Is(err, ErrThreshold) || r.ErrorKinds[errRefused] == 0 {
				t.Errorf("%v, errors %v: want a broken threshold for refused connections", err, r.ErrorKinds)
			}
			for _, want := range []string{"Node edge-b died: exit status 2", "panic: what now", "Threshold broken: error_ratio"} {
				if !strings.Contains(out, want) {
					t.Errorf("the output lacks %q:\n%s", want, out)
				}
			}
			if !r.Nodes[1].Died || len(r.Events) == 0 {
				t.Errorf("the report does not say that the node died: %+v", r.Nodes[1])
			}
		}},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			t.Parallel()
			o, out := quick(t, tc.fault)
			o.Rate = 1000
			r, err := Run(t.Context(), o)
			tc.check(t, r, err, out.String())
		})
	}
}

func TestRun_stopsOnInterrupt(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Duration = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out.text, out.then = "/s  p99", cancel // in the first progress line
	r, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cause", err)
	}
	if !r.Interrupted || r.Requests == 0 || r.Errors != 0 || len(r.Disagreements) != 0 {
		t.Errorf("interrupted %v, %d requests, %d errors, %q", r.Interrupted, r.Requests, r.Errors, r.Disagreements)
	}
	if !strings.Contains(out.String(), "Interrupted") {
		t.Errorf("the output does not say so:\n%s", out)
	}
	checkJSON(t, o.ReportDir, "requests", "interrupted")
}

func TestRun_measuresRunningNodes(t *testing.T) {
	t.Parallel()
	origin, err := NewOrigin(OriginConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	f, err := StartFleet(t.Context(), FleetConfig{Binary: fake(t, "ok"), Nodes: 2, Origin: origin.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := Options{Rate: 300, Duration: time.Second, Keys: 100}
	for _, m := range f.Members {
		o.Targets = append(o.Targets, "http://"+m.Client)
		o.Admins = append(o.Admins, m.AdminURL())
	}
	r, err := Run(t.Context(), o)
	if err != nil || r.Errors != 0 || r.OriginCounts != nil || r.HitRatio == 0 || len(r.Disagreements) != 0 {
		t.Errorf("%v; %d errors, origin %v, hit ratio %v, %q", err, r.Errors, r.OriginCounts, r.HitRatio, r.Disagreements)
	}
	o.Admins = nil
	if r, err := Run(t.Context(), o); err != nil || r.counted || r.HitRatio == 0 {
		t.Errorf("without admins: %v, hit ratio %v", err, r.HitRatio)
	}
	o.Targets[1] = origin.URL() + "1" // a port that nobody listens on, or none at all
	if _, err := Run(t.Context(), o); err == nil {
		t.Error("measured a node that is not there")
	}
}

func TestCrossCheck(t *testing.T) {
	// Two nodes, 100 requests: 40 hits, 10 by a peer, 50 from the origin.
	agree := func() (*Group, []counters, map[string]int64) {
		g := &Group{
			Requests: 100, Responses: 100, Sources: map[string]int64{fromHit: 40, fromPeer: 10, fromOrigin: 50},
			PeerRPCs: 12, OriginRequests: 50, Bloom: Bloom{Negative: 48, PositiveHit: 10, PositiveMiss: 2},
			Nodes: make([]NodeReport, 2),
		}
		half := counters{requests: map[string]int64{"hit": 20, "peer": 5, "miss": 25}, origin: map[string]int64{"2xx": 25}}
		return g, []counters{half, half}, map[string]int64{ClassKey: 50}
	}
	g, counts, origin := agree()
	if got := crossCheck(g, counts, origin); len(got) != 0 {
		t.Fatalf("counts that agree: %q", got)
	}
	for _, tc := range []struct {
		name  string
		spoil func(g *Group, counts []counters, origin map[string]int64)
		want  string
	}{
		{"a request got lost", func(g *Group, _ []counters, _ map[string]int64) { g.Requests++ }, "driver"},
		{"the nodes saw fewer", func(_ *Group, c []counters, _ map[string]int64) {
			c[0].requests = map[string]int64{"hit": 20, "peer": 5, "miss": 24}
		}, "requests"},
		{"the nodes claim hits", func(_ *Group, c []counters, _ map[string]int64) {
			c[0].requests = map[string]int64{"hit": 22, "peer": 3, "miss": 25}
		}, "asked node's store"},
		{"a purge got lost", func(g *Group, _ []counters, _ map[string]int64) { g.Purges.Requests = 1 }, "purges"},
		{"the nodes purged more", func(g *Group, c []counters, _ map[string]int64) { c[0].purges = 1 }, "purges"},
		{"the answers claim peers", func(g *Group, c []counters, _ map[string]int64) {
			g.Sources = map[string]int64{fromHit: 40, fromPeer: 11, fromOrigin: 49}
		}, "from a peer"},
		{"a look-up was not counted", func(g *Group, _ []counters, _ map[string]int64) { g.Bloom.Negative-- }, "look-ups"},
		{"a look-up was counted twice", func(g *Group, _ []counters, _ map[string]int64) { g.Bloom.Unknown++ }, "look-ups"},
		{"no RPC for a positive", func(g *Group, _ []counters, _ map[string]int64) { g.PeerRPCs = 11 }, "peer RPCs"},
		{"the origin saw more", func(_ *Group, _ []counters, o map[string]int64) { o[ClassKey]++ }, "origin"},
		{"the origin saw more than the nodes tried", func(_ *Group, _ []counters, o map[string]int64) { o[ClassKey] = 99 }, "origin"},
		{"the origin saw fewer", func(_ *Group, _ []counters, o map[string]int64) { o[ClassKey]-- }, "origin"},
	} {
		g, counts, origin := agree()
		tc.spoil(g, counts, origin)
		got := crossCheck(g, counts, origin)
		if len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	t.Run("a request that the origin did not answer may not have got there", func(t *testing.T) {
		g, counts, origin := agree()
		g.OriginRequests++
		counts[0].origin = map[string]int64{"2xx": 25, "error": 1}
		if got := crossCheck(g, counts, origin); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
	t.Run("what a peer's answer validates counts as revalidated", func(t *testing.T) {
		g, counts, origin := agree()
		counts[0].requests = map[string]int64{"hit": 20, "peer": 4, "revalidated": 1, "miss": 25}
		if got := crossCheck(g, counts, origin); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
	t.Run("an unanswered request may have reached a node", func(t *testing.T) {
		g, counts, origin := agree()
		g.Requests, g.ErrorKinds = 102, map[string]int64{errTimeout: 2}
		counts[0].requests = map[string]int64{"hit": 20, "peer": 5, "miss": 25, "error": 1}
		if got := crossCheck(g, counts, origin); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}

func TestREADME_namesWhatThereIs(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, s := range Scenarios() {
		if !strings.Contains(text, "| `"+s.Name+"` |") {
			t.Errorf("the README lacks scenario %s", s.Name)
		}
	}
	for _, n := range thresholdNames() {
		if !strings.Contains(text, n) {
			t.Errorf("the README lacks threshold value %s", n)
		}
	}
	_, example, _ := strings.Cut(text, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if s, err := ReadScenario(strings.NewReader(example)); err != nil || len(s.Phases) != 2 || len(s.FailIf) != 3 {
		t.Errorf("the example of the README: %v, %+v", err, s)
	}
}

func TestExpectedRate_isOverAllPeers(t *testing.T) {
	node := func(p float64, lookups int64) counters {
		return counters{expected: map[string]float64{"d": p}, bloom: map[string]Bloom{"d": {Negative: lookups}}}
	}
	got := expectedRate([]counters{node(0.1, 100), node(0.2, 0), node(0.5, 0)})
	if got == nil || *got < 0.5999 || *got > 0.6001 { // 1 - 0.8*0.5
		t.Errorf("got %v, want 0.6", got)
	}
	if got := expectedRate([]counters{node(0.1, 0)}); got != nil {
		t.Errorf("nothing was looked up, but %v", *got)
	}
}
