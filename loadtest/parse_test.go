package loadtest

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValues(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want float64 // -1: refused
	}{
		{"65%", 0.65}, {"0.65", 0.65}, {"0", 0}, {"100%", 1}, {" 5 %", -1}, {"1.1", -1}, {"-1%", -1}, {"NaN", -1}, {"", -1}, {"%", -1}, {"x", -1},
	} {
		var s Share
		err := s.UnmarshalText([]byte(tc.in))
		if (err != nil) != (tc.want < 0) || err == nil && float64(s) != tc.want {
			t.Errorf("share %q: %v, %v; want %v", tc.in, float64(s), err, tc.want)
		}
	}
	for _, tc := range []struct {
		in   string
		want Bytes // -1: refused
	}{
		{"0", 0}, {"4096", 4096}, {"4KiB", 4096}, {"1.5 MiB", 3 << 19}, {"2GiB", 2 << 30}, {"1KB", 1000}, {"7B", 7}, {"-1", -1}, {"KiB", -1}, {"1TiB", -1}, {"Inf", -1}, {"1e30GiB", -1},
	} {
		var b Bytes
		err := b.UnmarshalText([]byte(tc.in))
		if (err != nil) != (tc.want < 0) || err == nil && b != tc.want {
			t.Errorf("size %q: %d, %v; want %d", tc.in, b, err, tc.want)
		}
		if err == nil {
			var again Bytes
			if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
				t.Errorf("size %q is written as %q and read as %d, %v", tc.in, b, again, err)
			}
		}
	}
	for _, tc := range []struct {
		in       string
		min, max Bytes // -1: refused
	}{
		{"1KiB", 1024, 1024}, {"1KiB-64KiB", 1024, 65536}, {"0-5B", 0, 5}, {"2KiB-1KiB", -1, -1}, {"1KiB-", -1, -1}, {"5GiB", -1, -1},
	} {
		var r SizeRange
		err := r.UnmarshalText([]byte(tc.in))
		if (err != nil) != (tc.min < 0) || err == nil && r != (SizeRange{tc.min, tc.max}) {
			t.Errorf("range %q: %v, %v; want %d-%d", tc.in, r, err, tc.min, tc.max)
		}
		for n := range uint64(1000) {
			if size := r.of(n); err == nil && (size < int64(r.Min) || size > int64(r.Max)) {
				t.Fatalf("range %q: key %d has %d bytes", tc.in, n, size)
			}
		}
	}
}

func TestSourceOf(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"no field", nil, fromUnknown},
		{"hit", []string{"edge-a; hit; ttl=53"}, fromHit},
		{"stale", []string{"edge-a; hit; ttl=-3"}, fromStale},
		{"miss", []string{"edge-a; fwd=uri-miss; fwd-status=200; stored"}, fromOrigin},
		{"the last member counts", []string{"edge-a; hit; ttl=9, edge-b; fwd=uri-miss; detail=peer"}, fromPeer},
		{"in the last field line", []string{"edge-a; fwd=uri-miss; detail=origin", "edge-b; hit"}, fromHit},
		{"negative", []string{"edge-a; hit; detail=negative"}, fromNegative},
		{"joined a negative", []string{"edge-a; fwd=uri-miss; collapsed; detail=coalesced-negative"}, fromNegative},
		{"catalog", []string{"edge-a; hit; detail=catalog"}, fromCatalog},
		{"shield", []string{"s; fwd=uri-miss; stored, edge-b; fwd=uri-miss; detail=shield"}, fromShield},
		{"shield that had it", []string{"s; hit; ttl=9, edge-b; fwd=uri-miss; detail=shield"}, fromOwner},
		{"shield that had it, in two lines", []string{"s; hit; ttl=9", "edge-b; fwd=uri-miss; detail=shield"}, fromOwner},
		{"shield that had it not, behind one that had", []string{"o; hit, s; fwd=uri-miss, edge-b; fwd=uri-miss; detail=shield"}, fromShield},
		{"quoted separators", []string{`"a, b; hit"; fwd=miss; key="x;hit, \"y\""`}, fromOrigin},
		{"hit=?0", []string{"edge-a; hit=?0; fwd=miss"}, fromOrigin},
		{"garbage", []string{`;;,"`}, fromUnknown},
	} {
		if got := sourceOf(tc.fields); got != tc.want {
			t.Errorf("%s: %q is %s, want %s", tc.name, tc.fields, got, tc.want)
		}
	}
}

func TestParseExposition(t *testing.T) {
	ss, err := parseExposition(`# HELP a_total text {"} 1
# TYPE a_total counter
a_total{x="1",y="q\"\\\n}"} 2
a_total{x="2",} 3 1700000000000
b 4.5e3
b_bucket{le="+Inf"} +Inf
c NaN

`)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := ss.sum("a_total"); v != 5 || !ok {
		t.Errorf("sum of a_total: %v, %v", v, ok)
	}
	if _, ok := ss.sum("a"); ok {
		t.Error("there is no a")
	}
	if by := ss.by("a_total", "x"); by["1"] != 2 || by["2"] != 3 {
		t.Errorf("by x: %v", by)
	}
	if got := ss[0].labels["y"]; got != "q\"\\\n}" {
		t.Errorf("label y is %q", got)
	}
	if v, _ := ss.sum("c"); !math.IsNaN(v) {
		t.Errorf("c is %v", v)
	}
	for _, bad := range []string{
		"1a 2", "a", "a x", "a 1 2 3", "{} 1", `a{x=1} 1`, `a{x="1} 1`, `a{x="1\`, `a{x="\q"} 1`, `a{x="1" y="2"} 1`, `a{="1"} 1`, `a{x="1",x="2"} 1`, `a{`, "<html>",
		"a" + strings.Repeat("\na 1", maxSamples) + "\na 1",
	} {
		if _, err := parseExposition(bad); err == nil {
			t.Errorf("accepted %.50q", bad)
		}
	}
}

func FuzzParseExposition(f *testing.F) {
	f.Add("a_total{x=\"1\",y=\"q\\\"\\\\\\n\"} 2\n# c\nb 1 2")
	f.Add(`a{x="1\`)
	f.Fuzz(func(t *testing.T, text string) {
		ss, err := parseExposition(text)
		if err != nil && ss != nil {
			t.Error("samples beside an error")
		}
		for _, s := range ss {
			if s.name == "" {
				t.Error("a sample without a name")
			}
		}
	})
}

func TestReadCounters_wantsTheContractsNames(t *testing.T) {
	_, err := readCounters(samples{{name: "edged_requests_total", value: 1}})
	if err == nil || !strings.Contains(err.Error(), "edged_bloom_negative_total") {
		t.Errorf("got %v, want the missing names", err)
	}
}

func TestScenarios_areValid(t *testing.T) {
	for _, s := range Scenarios() {
		if err := s.problems(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		got, err := scenarioOf(Options{Scenario: s.Name, Keys: 100, Duration: time.Second, Rate: 10})
		if err != nil || (got.duration()-time.Second).Abs() > time.Microsecond {
			t.Errorf("%s with options: %v, %v", s.Name, got.duration(), err)
		}
		var peak float64
		for _, p := range got.Phases {
			peak = max(peak, p.Rate)
		}
		if math.Abs(peak-10) > 1e-9 {
			t.Errorf("%s: the busiest phase has %v a second, want 10", s.Name, peak)
		}
	}
	hot, err := scenarioOf(Options{Scenario: "hot", Keys: 100})
	if err != nil || hot.Phases[1].FirstKey != 100 {
		t.Errorf("hot with 100 keys: the crowd asks for key %d, %v; want 100", hot.Phases[1].FirstKey, err)
	}
}

func TestReadScenario(t *testing.T) {
	s, err := ReadScenario(strings.NewReader(`
name: mine
nodes: 2
keys: 100
size: 1KiB-4KiB
memory: 32MiB
origin: { latency: 5ms, errors: 1.5% }
phases:
  - { name: one, duration: 2s, rate: 50, absent: 65%, zipf: 1.1 }
  - { name: two, duration: 1m30s, rate: 20.5, arrivals: poisson, absent: 0.5, purge_rate: 2 }
fail_if:
  - p99 > 50ms
  - skip_ratio < 98%
  - errors > 0
`))
	if err != nil {
		t.Fatal(err)
	}
	p := s.Phases
	switch {
	case s.Name != "mine", s.Nodes != 2, s.Keys != 100, s.Size != SizeRange{1024, 4096}, s.Memory != 32<<20, s.Origin.Latency != 5*time.Millisecond, s.Origin.Errors != 0.015, !s.Prefill, s.Seed != 1,
		len(p) != 2, p[0].Absent != 0.65, p[0].Zipf != 1.1, p[0].Arrivals != Constant, p[1].Absent != 0.5, p[1].Duration != 90*time.Second, p[1].Arrivals != Poisson:
		t.Errorf("read %+v", s)
	}
	want := []Threshold{{"p99", ">", 50}, {"skip_ratio", "<", 0.98}, {"errors", ">", 0}}
	for i := range want {
		if s.FailIf[i] != want[i] {
			t.Errorf("fail_if %d: %+v, want %+v", i, s.FailIf[i], want[i])
		}
	}
	for _, tc := range []struct{ name, in, want string }{
		{"unknown key", "nodes: 1\nspeed: 4", "2:1: speed: unknown key: want one of name, "},
		{"duplicate key", "nodes: 1\nnodes: 2", "2:1: nodes: duplicate key"},
		{"wrong type", "nodes: many", `1:8: nodes: "many" is not a number`},
		{"list for a value", "nodes: [1]", "1:8: nodes: want a single value"},
		{"value for a list", "phases: 1", "1:9: phases: want a list"},
		{"value for a section", "phases: [1]", "1:10: phases[0]: want a section with the keys name, "},
		{"too many errors", "origin: {errors: 101%}", `1:18: origin.errors: "101%" is not a share: want 0% to 100%`},
		{"no duration", "origin: {latency: 5}", `1:19: origin.latency: "5" is not a duration`},
		{"no switch", "prefill: on", `1:10: prefill: "on" is not a switch`},
		{"no YAML", "nodes: [1", "1:8: this is not YAML: "},
		{"two documents", "nodes: 1\n---\nnodes: 2", "3:1: a second YAML document begins here"},
		{"alias of nothing", "nodes: *a", "1:8: nodes: *a refers to nothing"},
		{"merge of itself", "phases:\n  - &a\n    <<: *a\n", "3:5: phases[0]: merge keys (<<) follow each other more than 8 deep"},
		{"merges without end", "phases:\n  - &a\n" + strings.Repeat("    <<: *a\n", 50), "there are more than 100000 values"},
		{"all at once", "nodes: many\nspeed: 4\nmemory: 1KiB\nphases:\n  - {duration: 1s, rate: x, zipf: 11}\n  - duration: 1s\nfail_if: [p98 > 1s, errors = 0]",
			"1:8: nodes: \"many\" is not a number: want a whole number, such as 50000\n" +
				"2:1: speed: unknown key: want one of name, description, nodes, memory, keys, size, prefill, seed, origin, replay, phases, faults, fail_if\n" +
				"3:9: memory: 1KiB: want at least 1MiB\n" +
				"5:26: phases[0].rate: \"x\" is not a number: want one such as 2000 or 0.9\n" +
				"5:35: phases[0].zipf: 11: want 0 to 10\n" +
				"6:5: phases[1].rate: 0: want above 0 and up to 1000000 requests a second\n" +
				"7:11: fail_if[0]: \"p98\" is not the name of a value: want one of "},
		{"bad share", "phases: [{duration: 1s, rate: 1, absent: 165%}]", "not a share"},
		{"bad threshold", "fail_if: [p99 > 50]", "not a latency"},
		{"unknown value", "fail_if: [p98 > 50ms]", "want one of"},
		{"bad operator", "fail_if: [errors = 0]", "want >"},
		{"no rate", "phases: [{duration: 1s}]", "phases[0].rate"},
		{"too many nodes", "nodes: 65", "nodes: 65: want 1 to 64"},
		{"the last of many", "nodes: x\nfail_if: [errors = 0]", "2:11: fail_if[0]: \"=\": want >, >=, < or <="},
		{"past the last key", "phases: [{duration: 1s, rate: 1, first_key: 50000}]", "past the last key"},
		{"too long", strings.Repeat("#", 1<<20+1), "more than 1MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ReadScenario(strings.NewReader(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestReadScenario_sharesPhases(t *testing.T) {
	s, err := ReadScenario(strings.NewReader(`
phases:
  - &calm { name: calm, duration: 2s, rate: 50, absent: 65% }
  - { <<: *calm, name: crowd, rate: 5_000 }
  - *calm
`))
	if err != nil {
		t.Fatal(err)
	}
	calm := Phase{Name: "calm", Duration: 2 * time.Second, Rate: 50, Absent: 0.65, Arrivals: Constant}
	crowd := calm
	crowd.Name, crowd.Rate = "crowd", 5000
	if want := []Phase{calm, crowd, calm}; !slices.Equal(s.Phases, want) {
		t.Errorf("phases %+v, want %+v", s.Phases, want)
	}
}

func FuzzReadScenario(f *testing.F) {
	f.Add("nodes: 2\nphases: [{duration: 1s, rate: 1}]\nfail_if: [p99 > 1ms]")
	f.Add("phases:\n  - &a { <<: *a, rate: x }\n  - <<: [*a]\n  - ? [1]\n    : 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadScenario(strings.NewReader(text))
		if err == nil && s.problems() != nil {
			t.Errorf("read without an error: %v", s.problems())
		}
	})
}

func TestScenario_errorsNameTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("speed: 1\nnodes: 65\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := scenarioOf(Options{Scenario: file})
	if err == nil || !strings.HasPrefix(err.Error(), file+":1:1: speed: unknown key") || !strings.Contains(err.Error(), "\n"+file+":2:8: nodes: 65: want 1 to 64") {
		t.Errorf("got %v; want each line with the file's name", err)
	}
}

func TestThreshold_breaks(t *testing.T) {
	g := &Group{Requests: 100, Errors: 2, LatencyMS: Latency{P99: 60}, SkipRatio: 0.9, Filters: true, counted: true, Bloom: Bloom{Negative: 9, Unknown: 1}}
	for _, tc := range []struct {
		in     string
		broken bool
	}{
		{"errors > 0", true}, {"errors > 2", false}, {"errors >= 2", true}, {"error_ratio > 1%", true}, {"p99 > 50ms", true}, {"p99 > 0.1s", false},
		{"skip_ratio < 94%", true}, {"skip_ratio <= 0.89", false}, {"observed_false_positive_rate < 1", false},
	} {
		var th Threshold
		if err := th.UnmarshalText([]byte(tc.in)); err != nil {
			t.Fatal(err)
		}
		if _, got := th.broken(g); got != tc.broken {
			t.Errorf("%s: broken %v, want %v", tc.in, got, tc.broken)
		}
		var again Threshold
		if err := again.UnmarshalText([]byte(th.String())); err != nil || again != th {
			t.Errorf("%s is written as %s and read as %+v, %v", tc.in, th, again, err)
		}
	}
	for in, want := range map[string]string{"p99 > 1us": "p99 > 1µs", "max >= 1.5s": "max >= 1.5s", "p50 < 50ms": "p50 < 50ms", "p90 > 0.3ms": "p90 > 300µs"} {
		var th Threshold
		if err := th.UnmarshalText([]byte(in)); err != nil || th.String() != want {
			t.Errorf("%s is written as %s, %v; want %s", in, th, err, want)
		}
	}
	r := Report{Group: *g, Scenario: Scenario{FailIf: []Threshold{{"p99", ">", 0.001}}}}
	if r.judge(); !slices.Equal(r.Broken, []string{"p99 > 1µs: it is 60.0ms"}) {
		t.Errorf("broken: %q", r.Broken)
	}
	g.Filters = false
	if _, broken := (Threshold{"skip_ratio", "<", 0.94}).broken(g); broken {
		t.Error("the skip ratio of a run without filters broke a threshold")
	}
}

func TestRun_refusesWrongOptions(t *testing.T) {
	for _, o := range []Options{
		{Scenario: "nothing-like-it", Binary: "x"},
		{},
		{Admins: []string{"http://a:1"}, Binary: "x"},
		{Targets: []string{"http://a:1"}, Compare: true},
		{Targets: []string{"http://a:1"}, Nodes: 3},
		{Targets: []string{"http://a:1", "http://b:1"}, Admins: []string{"http://a:2"}},
		{Targets: []string{"https://a:1"}},
		{Targets: []string{"a:1"}},
		{Targets: []string{"http://a:1"}, Scenario: "churn"},
		{Binary: "x", Compare: true, NoFilters: true},
		{Binary: "x", Rate: -1},
		{Binary: "x", Connections: -1},
	} {
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrUsage) {
			t.Errorf("%+v: %v, want ErrUsage", o, err)
		}
	}
}
