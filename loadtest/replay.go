package loadtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// ReplaySpec names a log whose requests take the place of generated ones.
//
// Each different host, path and query becomes a key of the origin's content,
// with the size that the log gives it, or else one of Scenario.Size; what was
// answered with 404 or 410 becomes an absent key. A log with times is replayed
// in them. A key trace, or any log at a rate, takes the phase's course and
// arrivals, and only the order of the keys from the file.
type ReplaySpec struct {
	File   string    `yaml:"file"`   // may be compressed with gzip; empty: no replay
	Format LogFormat `yaml:"format"` // empty: by the first line
	// Speed is how much faster than in the log time goes; 0: as it was.
	Speed float64 `yaml:"speed"`
	// IgnoreTimes replays at the phase's rate although the log has times.
	IgnoreTimes bool `yaml:"ignore_times"`
}

// maxReplay is the longest replay, as it is of a phase.
const maxReplay = 24 * time.Hour

func (spec ReplaySpec) read() (*accessLog, error) {
	f, err := os.Open(spec.File)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer f.Close()
	return readLog(f, spec.File, spec.Format)
}

// speed is by how much times are divided.
func (spec ReplaySpec) speed() float64 {
	if spec.Speed == 0 {
		return 1
	}
	return spec.Speed
}

// fit gives the scenario's phase the length of the replay, at most limit where
// that is not 0, and a rate that tells how fast it is.
func (s *Scenario) fit(limit time.Duration) error {
	log, err := s.Replay.read()
	if err != nil {
		return err
	}
	p := &s.Phases[0]
	n := float64(len(log.entries))
	timed := log.timed && !s.Replay.IgnoreTimes
	length := time.Duration(0)
	switch {
	case timed:
		scaled := float64(log.entries[len(log.entries)-1].at) / s.Replay.speed()
		if scaled > float64(maxReplay) {
			return fmt.Errorf("replay: %s covers %v: want a speed that makes it at most %v", s.Replay.File, log.entries[len(log.entries)-1].at.Round(time.Second), maxReplay)
		}
		// The last one comes at the end, and one at 0 takes time too.
		length = max(time.Duration(scaled), time.Second)
	case s.Replay.Speed != 0:
		return fmt.Errorf("replay: %s is replayed at a rate, not in times of its own: want no speed", s.Replay.File)
	default:
		if scaled := n / p.peak() * float64(time.Second); scaled <= float64(maxReplay) {
			length = time.Duration(math.Ceil(scaled))
		} else {
			length = maxReplay
		}
	}
	if limit > 0 {
		length = min(length, limit)
	}
	p.Duration = length
	if timed {
		k := 0
		for k < len(log.entries) && float64(log.entries[k].at)/s.Replay.speed() <= float64(length) {
			k++
		}
		p.Rate = min(max(float64(k)/length.Seconds(), 1e-3), 1e6)
		p.ToRate, p.Steps, p.Think, p.Clients = 0, 0, 0, 0
	}
	if p.Name = "replay"; s.Description == "" {
		s.Description = fmt.Sprintf("%d requests of %s, %d lines of it skipped", len(log.entries), s.Replay.File, log.skipped)
	}
	return nil
}

// replay is a log as a sequence of arrivals.
type replay struct {
	log     *accessLog
	speed   float64 // 0: the course says the times
	phase   Phase
	size    SizeRange
	targets int

	mu     sync.Mutex
	rng    *rand.Rand
	course course
	number float64
	done   int
}

func newReplay(s Scenario, targets int) (*replay, error) {
	log, err := s.Replay.read()
	if err != nil {
		return nil, err
	}
	r := &replay{
		log: log, phase: s.Phases[0], size: s.Size, targets: targets, course: s.Phases[0].course(),
		rng: rand.New(rand.NewPCG(s.Seed, mix64(s.Seed))),
	}
	if log.timed && !s.Replay.IgnoreTimes {
		r.speed = s.Replay.speed()
	}
	return r, nil
}

func (r *replay) next() (a arrival, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == len(r.log.entries) {
		return a, false
	}
	e := r.log.entries[r.done]
	seconds := e.at.Seconds() / max(r.speed, math.SmallestNonzeroFloat64)
	if r.speed == 0 {
		gap := 1.0
		if r.phase.Arrivals == Poisson {
			gap = r.rng.ExpFloat64()
		}
		r.number += gap
		seconds = r.course.when(r.number)
	}
	if seconds > r.phase.Duration.Seconds() {
		return a, false
	}
	r.done++
	a = arrival{at: time.Duration(seconds * float64(time.Second)), target: r.rng.IntN(r.targets)}
	if e.absent {
		a.path = AbsentPath(e.key)
		return a, true
	}
	if a.exists, a.size = true, e.size; a.size < 0 {
		a.size = r.size.of(e.key)
	}
	a.path = KeyPath(e.key, a.size)
	return a, true
}
