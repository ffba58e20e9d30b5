package loadtest

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// Latencies are recorded in microseconds, up to a minute, to 3 digits.
	maxLatency    = time.Minute
	latencyDigits = 3

	maxErrorSamples = 5
)

// recorder counts what the driver sees. All methods are safe for concurrent
// use.
type recorder struct {
	mu     sync.Mutex
	start  time.Time
	ended  time.Time
	all    *hdrhistogram.Histogram
	window *hdrhistogram.Histogram // since the last tick

	sentN, unsentN, answered, abandonedN int64
	sources                              map[string]int64 // by sourceOf
	kinds                                map[string]int64 // of errors
	samples                              []string
	ticked                               window // the counts at the last tick

	// Late starts: asleep counts those of workers that slept until the time and
	// woke up late, so the machine had no CPU for them; busy those for which
	// all workers were waiting for answers.
	asleep, busy int64
	worst        time.Duration
}

func newRecorder() *recorder {
	return &recorder{
		all: newLatencies(), window: newLatencies(),
		sources: map[string]int64{}, kinds: map[string]int64{},
	}
}

func newLatencies() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), latencyDigits)
}

func (r *recorder) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = now
}

func (r *recorder) end(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = now
}

// sent counts a start that was late by so much; slept says whether the worker
// had to wait for the time to come.
func (r *recorder) sent(late time.Duration, slept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sentN++
	r.worst = max(r.worst, late)
	switch {
	case late <= lateAfter:
	case slept:
		r.asleep++
	default:
		r.busy++
	}
}

func (r *recorder) unsent(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsentN += n
}

// abandoned counts a request whose answer nobody waits for, as the run was
// interrupted.
func (r *recorder) abandoned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandonedN++
}

// done counts a finished request, scheduled at the given time.
func (r *recorder) done(o outcome, now, scheduled time.Time) {
	us := min(max(now.Sub(scheduled), time.Microsecond), maxLatency).Microseconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.RecordValue(us) // in range, by the line above
	r.window.RecordValue(us)
	if o.from != "" {
		r.answered++
		r.sources[o.from]++
	}
	if o.kind != "" {
		r.kinds[o.kind]++
		if len(r.samples) < maxErrorSamples {
			r.samples = append(r.samples, o.kind+": "+o.err.Error())
		}
	}
}

// Latency is a summary of a histogram in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	ms := func(us int64) float64 { return float64(us) / 1e3 }
	return Latency{
		P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)),
		P99: ms(h.ValueAtQuantile(99)), P999: ms(h.ValueAtQuantile(99.9)),
		Max: ms(h.Max()), Mean: h.Mean() / 1e3,
	}
}

// tally is what a recorder has counted so far.
type tally struct {
	start, end                        time.Time
	sent, unsent, answered, abandoned int64
	errors, wrong                     int64
	sources, kinds                    map[string]int64
	samples                           []string
	late, asleep                      int64
	worst                             time.Duration
	latency                           Latency
	distribution                      []LatencyPoint
}

// LatencyPoint is one point of a latency distribution: that share of the
// requests took at most so long.
type LatencyPoint struct {
	Quantile float64 `json:"quantile"` // 0 to 1
	MS       float64 `json:"ms"`
}

func (r *recorder) tally() tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := tally{
		start: r.start, end: r.ended, sent: r.sentN, unsent: r.unsentN,
		answered: r.answered, abandoned: r.abandonedN,
		sources: maps.Clone(r.sources), kinds: maps.Clone(r.kinds),
		samples: append([]string(nil), r.samples...),
		late:    r.asleep + r.busy, asleep: r.asleep, worst: r.worst,
		latency: latencyOf(r.all),
	}
	t.errors, t.wrong = errorCounts(r.kinds)
	for _, q := range []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .998, .999, .9995, .9998, .9999, 1} {
		t.distribution = append(t.distribution, LatencyPoint{q, float64(r.all.ValueAtQuantile(q*100)) / 1e3})
	}
	return t
}

// errorCounts returns all errors, and those among them that were wrong answers.
func errorCounts(kinds map[string]int64) (all, wrong int64) {
	for _, n := range kinds {
		all += n
	}
	return all, kinds[errStatus] + kinds[errContent]
}

// window is what happened between two ticks.
type window struct {
	answered, errors int64
	p50, p99         float64 // milliseconds
	sources          map[string]int64
}

// tick ends the present window and returns it.
func (r *recorder) tick() window {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed, _ := errorCounts(r.kinds)
	w := window{
		answered: r.window.TotalCount(), errors: failed - r.ticked.errors,
		p50:     float64(r.window.ValueAtQuantile(50)) / 1e3,
		p99:     float64(r.window.ValueAtQuantile(99)) / 1e3,
		sources: map[string]int64{},
	}
	for k, n := range r.sources {
		w.sources[k] = n - r.ticked.sources[k]
	}
	r.window.Reset()
	r.ticked = window{errors: failed, sources: maps.Clone(r.sources)}
	return w
}
