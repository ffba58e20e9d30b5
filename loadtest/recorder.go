package loadtest

import (
	"fmt"
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
	all    *hdrhistogram.Histogram // what is not in window
	window *hdrhistogram.Histogram // since the last tick

	counts  seen
	samples []string
	ticked  window // the counts at the last tick
}

// seen are the counts of a recorder. Those of several drivers add up.
type seen struct {
	Sent      int64            `json:"sent"`
	Unsent    int64            `json:"unsent"`
	Answered  int64            `json:"answered"`
	Abandoned int64            `json:"abandoned"`
	Resent    int64            `json:"resent"`  // among the sent ones: twice, as a connection was closed
	Sources   map[string]int64 `json:"sources"` // by sourceOf
	Kinds     map[string]int64 `json:"kinds"`   // of errors

	// Late starts: Asleep counts those of workers that slept until the time and
	// woke up late, so the machine had no CPU for them; Busy those for which
	// all workers were waiting for answers.
	Asleep int64         `json:"asleep"`
	Busy   int64         `json:"busy"`
	Worst  time.Duration `json:"worst"` // of the late starts
}

func newSeen() seen { return seen{Sources: map[string]int64{}, Kinds: map[string]int64{}} }

// add adds what another one has counted.
func (c *seen) add(o seen) {
	c.Sent += o.Sent
	c.Unsent += o.Unsent
	c.Answered += o.Answered
	c.Abandoned += o.Abandoned
	c.Resent += o.Resent
	c.Asleep += o.Asleep
	c.Busy += o.Busy
	c.Worst = max(c.Worst, o.Worst)
	for k, n := range o.Sources {
		c.Sources[k] += n
	}
	for k, n := range o.Kinds {
		c.Kinds[k] += n
	}
}

func newRecorder() *recorder {
	return &recorder{all: newLatencies(), window: newLatencies(), counts: newSeen()}
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
	r.counts.Sent++
	r.counts.Worst = max(r.counts.Worst, late)
	switch {
	case late <= lateAfter:
	case slept:
		r.counts.Asleep++
	default:
		r.counts.Busy++
	}
}

func (r *recorder) unsent(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Unsent += n
}

// abandoned counts a request whose answer nobody waits for, as the run was
// interrupted.
func (r *recorder) abandoned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Abandoned++
}

// done counts a finished request, scheduled at the given time.
func (r *recorder) done(o outcome, now, scheduled time.Time) {
	us := min(max(now.Sub(scheduled), time.Microsecond), maxLatency).Microseconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window.RecordValue(us) // in range, by the line above
	if o.resent {
		r.counts.Resent++
	}
	if o.from != "" {
		r.counts.Answered++
		r.counts.Sources[o.from]++
	}
	if o.kind != "" {
		r.counts.Kinds[o.kind]++
		if len(r.samples) < maxErrorSamples {
			r.samples = append(r.samples, o.kind+": "+o.err.Error())
		}
	}
}

// share is what one driver process has seen since its last share: as JSON, the
// way from a worker process to the one that merges.
type share struct {
	Counts    seen     `json:"counts"`
	Samples   []string `json:"samples,omitempty"`
	Latencies []byte   `json:"latencies"` // a HdrHistogram in its own encoding
	Done      bool     `json:"done"`      // the last one
}

// cut returns what was seen since the last cut, and forgets it.
func (r *recorder) cut() (share, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := r.window.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return share{}, fmt.Errorf("encode latencies: %w", err)
	}
	s := share{Counts: r.counts, Samples: r.samples, Latencies: data}
	r.counts, r.samples = newSeen(), nil
	r.window.Reset()
	return s, nil
}

// merge adds what another process has seen.
func (r *recorder) merge(s share) error {
	h, err := hdrhistogram.Decode(s.Latencies)
	if err != nil {
		return fmt.Errorf("decode latencies: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if lost := r.window.Merge(h); lost != 0 {
		return fmt.Errorf("decode latencies: %d are out of range", lost)
	}
	r.counts.add(s.Counts)
	for _, text := range s.Samples {
		if len(r.samples) < maxErrorSamples {
			r.samples = append(r.samples, text)
		}
	}
	return nil
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
	seen
	start, end    time.Time
	errors, wrong int64
	samples       []string
	late          int64
	latency       Latency
	distribution  []LatencyPoint
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
	r.flushLocked()
	t := tally{seen: newSeen(), start: r.start, end: r.ended, samples: append([]string(nil), r.samples...), latency: latencyOf(r.all)}
	t.add(r.counts)
	t.late = t.Asleep + t.Busy
	t.errors, t.wrong = errorCounts(t.Kinds)
	for _, q := range []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .998, .999, .9995, .9998, .9999, 1} {
		t.distribution = append(t.distribution, LatencyPoint{q, float64(r.all.ValueAtQuantile(q*100)) / 1e3})
	}
	return t
}

// flushLocked moves the present window's latencies to the others.
func (r *recorder) flushLocked() {
	r.all.Merge(r.window) // same range, so none is lost
	r.window.Reset()
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
	failed, _ := errorCounts(r.counts.Kinds)
	w := window{
		answered: r.window.TotalCount(), errors: failed - r.ticked.errors,
		p50:     float64(r.window.ValueAtQuantile(50)) / 1e3,
		p99:     float64(r.window.ValueAtQuantile(99)) / 1e3,
		sources: map[string]int64{},
	}
	for k, n := range r.counts.Sources {
		w.sources[k] = n - r.ticked.sources[k]
	}
	r.flushLocked()
	r.ticked = window{errors: failed, sources: maps.Clone(r.counts.Sources)}
	return w
}
