package loadtest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Scenario is what a load test asks of a cluster. The YAML form has the same
// keys; what it leaves out has the value of the steady scenario, except that a
// phase must say its duration and rate.
type Scenario struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`

	Nodes  int       `yaml:"nodes"`  // processes to start
	Memory Bytes     `yaml:"memory"` // of each node's cache
	Keys   int       `yaml:"keys"`   // existing keys
	Size   SizeRange `yaml:"size"`   // of their bodies
	// Prefill stores every key once, spread over the nodes, and waits until the
	// nodes' replicas of each other are in step, before measuring.
	Prefill bool       `yaml:"prefill"`
	Seed    uint64     `yaml:"seed"`
	Origin  OriginSpec `yaml:"origin"`

	// Replay has a log in place of generated requests. There is one phase then,
	// for its rate and arrivals; no key is stored before.
	Replay ReplaySpec `yaml:"replay"`

	Phases []Phase `yaml:"phases"` // one after the other, measured as one

	// Faults go wrong while the phases run; only with nodes of our own.
	Faults []Fault `yaml:"faults"`

	// FailIf are lines such as "p99 > 50ms" or "skip_ratio < 98%", see
	// [Threshold]. The run fails when one of them holds.
	FailIf []Threshold `yaml:"fail_if"`
}

// OriginSpec is how the bundled origin behaves.
type OriginSpec struct {
	Latency time.Duration `yaml:"latency"` // before each answer
	// Errors is the share of the answers that are 503, evenly spread over the
	// measured part; a failing_origin fault with a larger one prevails.
	Errors Share `yaml:"errors"`
}

// Phase is a stretch of time with one kind of traffic.
type Phase struct {
	Name     string        `yaml:"name"`
	Duration time.Duration `yaml:"duration"`
	Rate     float64       `yaml:"rate"`     // requests a second, all nodes together
	Arrivals Arrivals      `yaml:"arrivals"` // constant or poisson; empty: constant
	// ToRate is the rate at the end, which Rate goes to evenly, or in so many
	// Steps of equal length, the first at Rate and the last at ToRate. 0: Rate
	// all the time.
	ToRate float64 `yaml:"to_rate"`
	Steps  int     `yaml:"steps"`

	// Clients is how many users there are; 0: nobody is told from another. Each
	// stays with one node (pinned), or asks any (sprayed). Think is the time
	// between two requests of one, on average; it takes the place of Rate, which
	// is then Clients / Think: the requests stay on schedule when answers are late.
	Clients  int           `yaml:"clients"`
	Affinity Affinity      `yaml:"affinity"` // pinned or sprayed; empty: pinned
	Think    time.Duration `yaml:"think"`

	Zipf   float64 `yaml:"zipf"`   // exponent of the popularity of existing keys; 0: uniform
	Absent Share   `yaml:"absent"` // part of the requests for keys that do not exist
	// AbsentKeys is the number of different absent keys, as popular as the
	// existing ones; 0: every one is asked for once.
	AbsentKeys int `yaml:"absent_keys"`

	// FirstKey and Keys are the range of keys that are asked for; Keys 0: up to
	// the last one. A range above Scenario.Keys is of keys that exist, and that
	// nobody has stored yet.
	FirstKey int `yaml:"first_key"`
	Keys     int `yaml:"keys"`

	// Scan asks for the keys one after the other rather than by popularity, from
	// the first again after the last, as a crawler or a backup does.
	Scan bool `yaml:"scan"`

	// PurgeRate is the number of purges a second through the admin API, each of
	// one popular key on all nodes.
	PurgeRate float64 `yaml:"purge_rate"`
}

// title is the phase's name, or its number from 1 when it has none.
func (p Phase) title(i int) string {
	if p.Name == "" {
		return fmt.Sprintf("phase %d", i+1)
	}
	return p.Name
}

// rates are the rates at the phase's start and end.
func (p Phase) rates() (from, to float64) {
	switch {
	case p.Think > 0:
		r := float64(p.Clients) / p.Think.Seconds()
		return r, r
	case p.ToRate > 0:
		return p.Rate, p.ToRate
	}
	return p.Rate, p.Rate
}

// peak is the highest rate.
func (p Phase) peak() float64 { return max(p.rates()) }

func (p Phase) course() course {
	from, to := p.rates()
	return course{from, to, p.Steps, p.Duration.Seconds()}
}

// Affinity is how the requests of one client are spread over the nodes.
type Affinity string

// The affinities.
const (
	Pinned  Affinity = "pinned"
	Sprayed Affinity = "sprayed"
)

// Arrivals is how the requests of a phase are spread over its time.
type Arrivals string

// The arrival processes.
const (
	Constant Arrivals = "constant" // at equal distances
	Poisson  Arrivals = "poisson"  // independent of each other, as those of many users are
)

// steady is the base of every other scenario.
func steady() Scenario {
	return Scenario{
		Name:        "steady",
		Description: "existing keys, Zipf popularity, every key stored on one node before",
		Nodes:       3,
		Memory:      256 << 20,
		Keys:        50_000,
		Size:        SizeRange{1 << 10, 1 << 10},
		Prefill:     true,
		Seed:        1,
		Origin:      OriginSpec{Latency: 2 * time.Millisecond},
		Phases:      []Phase{{Name: "steady", Duration: 30 * time.Second, Rate: 2000, Arrivals: Constant, Zipf: 0.9}},
		FailIf:      noWrongAnswer(),
	}
}

func noWrongAnswer() []Threshold {
	return []Threshold{{"wrong_answers", ">", 0}, {"error_ratio", ">", 0.01}}
}

// Scenarios returns the built-in scenarios.
func Scenarios() []Scenario {
	flood := steady()
	flood.Name = "flood"
	flood.Description = "a crawler or botnet: 95% of the requests ask for keys that nobody has, each of them once"
	flood.Phases = []Phase{{Name: "flood", Duration: 20 * time.Second, Rate: 2000, Arrivals: Constant, Zipf: 0.9, Absent: 0.95}}

	churn := steady()
	churn.Name = "churn"
	churn.Description = "a cache far too small for its keys: evictions all the time, and 20 purges a second"
	churn.Memory = 16 << 20
	churn.Size = SizeRange{1 << 10, 32 << 10}
	churn.Prefill = false
	churn.Phases = []Phase{{Name: "churn", Duration: 30 * time.Second, Rate: 1500, Arrivals: Poisson, Zipf: 0.7, PurgeRate: 20}}

	hot := steady()
	hot.Name = "hot"
	hot.Description = "a flash crowd: in the middle everyone asks for ten keys that nobody has stored yet"
	calm := Phase{Name: "before", Duration: 10 * time.Second, Rate: 1000, Arrivals: Poisson, Zipf: 0.9}
	crowd := Phase{Name: "crowd", Duration: 10 * time.Second, Rate: 3000, Arrivals: Poisson, FirstKey: hot.Keys, Keys: 10}
	after := calm
	after.Name = "after"
	hot.Phases = []Phase{calm, crowd, after}

	mixed := steady()
	mixed.Name = "mixed"
	mixed.Description = "a day at the edge: 65% absent of which some come again, sizes of the web, two purges a second"
	mixed.Size = SizeRange{1 << 10, 64 << 10}
	mixed.Keys = 20_000
	mixed.Phases = []Phase{{Name: "mixed", Duration: 30 * time.Second, Rate: 1500, Arrivals: Poisson, Zipf: 0.9, Absent: 0.65, AbsentKeys: 20_000, PurgeRate: 2}}

	faults := steady()
	faults.Name = "faults"
	faults.Description = "steady traffic with a third absent, while a node is killed and comes back empty, another one hangs, and the origin is slow and then fails"
	faults.Keys = 20_000
	faults.Phases = []Phase{{Name: "faults", Duration: 60 * time.Second, Rate: 1000, Arrivals: Poisson, Zipf: 0.9, Absent: 0.33}}
	faults.Faults = []Fault{
		{At: 10 * time.Second, Do: FaultKill, Node: 2, For: 8 * time.Second},
		{At: 25 * time.Second, Do: FaultPause, Node: 3, For: 3 * time.Second},
		{At: 36 * time.Second, Do: FaultSlowOrigin, Latency: 300 * time.Millisecond, For: 6 * time.Second},
		{At: 48 * time.Second, Do: FaultFailingOrigin, Errors: 0.5, For: 5 * time.Second},
	}
	faults.FailIf = []Threshold{{"wrong_answers", ">", 0}}

	return []Scenario{steady(), flood, churn, hot, mixed, faults}
}

// problems is an error that tells everything that is wrong with the scenario, or nil.
func (s Scenario) problems() error { return scenarioErr(s.complaints()) }

// complaints are the values that are out of their bounds.
func (s Scenario) complaints() (found []complaint) {
	bad := func(path, format string, args ...any) {
		found = append(found, complaint{path: path, text: fmt.Sprintf(format, args...)})
	}
	if s.Nodes < 1 || s.Nodes > maxNodes {
		bad("nodes", "%d: want 1 to %d", s.Nodes, maxNodes)
	}
	if s.Keys < 1 || s.Keys > 1e9 {
		bad("keys", "%d: want 1 to 1000000000", s.Keys)
	}
	if s.Memory < 1<<20 {
		bad("memory", "%v: want at least 1MiB", s.Memory)
	}
	if s.Origin.Latency < 0 || s.Origin.Latency > requestTimeout {
		bad("origin.latency", "%v: want 0s to %v", s.Origin.Latency, requestTimeout)
	}
	if r := s.Replay; r.File == "" && r != (ReplaySpec{}) {
		bad("replay.file", "missing: want the name of a log")
	} else if !(r.Speed >= 0 && r.Speed <= 1e6) {
		bad("replay.speed", "%v: want above 0 and up to 1000000", r.Speed)
	} else if !slices.Contains([]LogFormat{"", FormatAuto, FormatCombined, FormatJSON, FormatKeys}, r.Format) {
		bad("replay.format", "%q: want auto, combined, json or keys", r.Format)
	} else if r.File != "" && len(s.Phases) > 1 {
		bad("phases", "%d: want one, as a log is replayed", len(s.Phases))
	}
	if len(s.Phases) == 0 {
		bad("phases", "none: want at least one")
	}
	for i, p := range s.Phases {
		at := fmt.Sprintf("phases[%d]", i)
		if p.Duration <= 0 || p.Duration > 24*time.Hour {
			bad(at+".duration", "%v: want above 0s and up to 24h", p.Duration)
		}
		switch {
		case p.Think < 0 || p.Clients < 0 || p.Clients > 1e9:
			bad(at, "clients and think want 0 or more")
		case p.Think > 0 && (p.Clients == 0 || p.Rate != 0 || p.ToRate != 0):
			bad(at+".think", "want clients, and no rate: that is clients / think")
		case p.Think > 0 && p.peak() > 1e6:
			bad(at+".think", "%d clients each %v: want up to 1000000 requests a second", p.Clients, p.Think)
		}
		if p.Affinity != "" && p.Affinity != Pinned && p.Affinity != Sprayed {
			bad(at+".affinity", "%q: want pinned or sprayed", p.Affinity)
		}
		if !(p.ToRate >= 0 && p.ToRate <= 1e6) {
			bad(at+".to_rate", "%v: want above 0 and up to 1000000 requests a second", p.ToRate)
		}
		if p.Steps < 0 || p.Steps == 1 || p.Steps > 1000 || p.Steps > 0 && p.ToRate == 0 {
			bad(at+".steps", "%d: want 2 to 1000, and to_rate", p.Steps)
		}
		if p.Think == 0 && !(p.Rate > 0 && p.Rate <= 1e6) {
			bad(at+".rate", "%v: want above 0 and up to 1000000 requests a second", p.Rate)
		}
		if p.Arrivals != Constant && p.Arrivals != Poisson {
			bad(at+".arrivals", "%q: want constant or poisson", p.Arrivals)
		}
		if !(p.Zipf >= 0 && p.Zipf <= 10) {
			bad(at+".zipf", "%v: want 0 to 10", p.Zipf)
		}
		if !(p.Absent >= 0 && p.Absent <= 1) {
			bad(at+".absent", "%v: want 0%% to 100%%", p.Absent)
		}
		if p.FirstKey < 0 || p.Keys < 0 || p.AbsentKeys < 0 || p.FirstKey > 2e9 || p.Keys > 1e9 || p.AbsentKeys > 1e9 {
			bad(at, "first_key, keys and absent_keys want 0 to 1000000000")
		} else if p.Keys == 0 && p.FirstKey >= s.Keys {
			bad(at+".first_key", "%d is past the last key: say with keys how many are asked for", p.FirstKey)
		}
		if !(p.PurgeRate >= 0 && p.PurgeRate <= 10_000) {
			bad(at+".purge_rate", "%v: want 0 to 10000", p.PurgeRate)
		}
	}
	for i, f := range s.Faults {
		f.complaints(s.Nodes, s.duration(), func(field, format string, args ...any) {
			bad(fmt.Sprintf("faults[%d]%s", i, field), format, args...)
		})
	}
	overlaps(s.Faults, func(i int, format string, args ...any) { bad(fmt.Sprintf("faults[%d].at", i), format, args...) })
	return found
}

// duration is that of all phases together.
func (s Scenario) duration() time.Duration {
	var d time.Duration
	for _, p := range s.Phases {
		d += p.Duration
	}
	return d
}

// scenarioOf resolves the scenario that the options name, and lays their
// values over it.
func scenarioOf(o Options) (Scenario, error) {
	s, err := namedScenario(o.Scenario)
	if err != nil {
		return s, err
	}
	if o.Replay.File != "" {
		if o.Scenario == "" {
			s.Name, s.Description = "replay", ""
		}
		s.Replay = o.Replay
	}
	set := func(v *int, by int) {
		if by != 0 {
			*v = by
		}
	}
	set(&s.Nodes, o.Nodes)
	for i := range s.Phases {
		// A range above the existing keys stays above them.
		if p := &s.Phases[i]; o.Keys != 0 && p.FirstKey >= s.Keys {
			p.FirstKey += o.Keys - s.Keys
		}
	}
	set(&s.Keys, o.Keys)
	if o.Size != nil {
		s.Size = *o.Size
	}
	if o.Seed != nil {
		s.Seed = *o.Seed
	}
	stretch := 1.0
	if total := s.duration(); o.Duration != 0 && total > 0 {
		stretch = float64(o.Duration) / float64(total)
	}
	var peak float64
	for _, p := range s.Phases {
		peak = max(peak, p.peak())
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		f.At, f.For = time.Duration(float64(f.At)*stretch), time.Duration(float64(f.For)*stretch)
	}
	for i := range s.Phases {
		p := &s.Phases[i]
		p.Duration = time.Duration(float64(p.Duration) * stretch)
		if o.Rate != 0 && peak > 0 {
			by := o.Rate / peak // --rate is that of the busiest phase
			p.Rate *= by
			p.ToRate *= by
			p.Think = time.Duration(float64(p.Think) / by)
		}
		if o.Absent != nil {
			p.Absent = *o.Absent
		}
		if o.Zipf != nil {
			p.Zipf = *o.Zipf
		}
	}
	if err := s.problems(); err != nil || s.Replay.File == "" {
		return s, err
	}
	s.Prefill = false
	if o.Rate != 0 {
		s.Replay.IgnoreTimes = true
	}
	return s, s.fit(o.Duration)
}

func namedScenario(name string) (Scenario, error) {
	if name == "" {
		name = "steady"
	}
	all := Scenarios()
	if i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	f, err := os.Open(name)
	if err != nil {
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		return Scenario{}, fmt.Errorf("%q is neither a scenario (%s) nor a file that can be read: %w", name, strings.Join(names, ", "), err)
	}
	defer f.Close()
	s, err := ReadScenario(f)
	if wrong := (scenarioError{}); errors.As(err, &wrong) {
		wrong.file = name
		return s, wrong
	} else if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if s.Name == "" {
		s.Name = name
	}
	return s, nil
}
