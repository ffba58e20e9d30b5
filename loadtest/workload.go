package loadtest

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// arrival is one request of a schedule.
type arrival struct {
	at     time.Duration // since the start of the schedule
	target int           // which node
	path   string
	exists bool  // 200 and the body of the path are expected, else 404
	size   int64 // of that body
}

// schedule is the sequence of a scenario's arrivals. It is a function of the
// scenario, its seed and the number of targets alone: nothing that happens
// during a run changes it.
//
// next is safe for concurrent use.
type schedule struct {
	size    SizeRange
	targets int
	keys    int
	phases  []Phase

	mu     sync.Mutex
	rng    *rand.Rand
	phase  int           // index of the running phase
	start  time.Duration // of that phase
	course course        // of the phase's rate
	number float64       // of the last arrival in its phase, see course
	scan   uint64        // keys that a scanning phase has asked for
	zipf   *zipf         // over the phase's keys
	absent *zipf         // over its absent keys, nil when each is asked once
	unique uint64        // absent keys given out
}

func newSchedule(s Scenario, targets int) *schedule {
	sc := &schedule{
		size: s.Size, targets: targets, keys: s.Keys, phases: s.Phases,
		rng: rand.New(rand.NewPCG(s.Seed, mix64(s.Seed))),
		// Different seeds ask for different absent keys, so that a second run
		// against a running cluster does not find the answers of the first.
		unique: mix64(s.Seed),
	}
	sc.enterLocked()
	return sc
}

// arrivalsOf returns what a scenario asks for, and how long that takes.
func arrivalsOf(s Scenario, targets int) (arrivals, time.Duration, error) {
	if s.Replay.File == "" {
		return newSchedule(s, targets), s.duration(), nil
	}
	r, err := newReplay(s, targets)
	return r, s.duration(), err
}

// enterLocked prepares the samplers of the present phase.
func (sc *schedule) enterLocked() {
	if sc.phase >= len(sc.phases) {
		return
	}
	p := sc.phases[sc.phase]
	sc.number, sc.scan, sc.course = 0, 0, p.course()
	sc.zipf = newZipf(p.Zipf, phaseKeys(p, sc.keys))
	sc.absent = nil
	if p.AbsentKeys > 0 {
		sc.absent = newZipf(p.Zipf, p.AbsentKeys)
	}
}

// phaseKeys is the number of keys that a phase asks for.
func phaseKeys(p Phase, keys int) int {
	if p.Keys > 0 {
		return p.Keys
	}
	return max(keys-p.FirstKey, 1)
}

// next returns the next arrival; ok is false after the last one.
func (sc *schedule) next() (a arrival, ok bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for sc.phase < len(sc.phases) {
		p := sc.phases[sc.phase]
		gap := 1.0
		if p.Arrivals == Poisson {
			gap = sc.rng.ExpFloat64()
		}
		sc.number += gap
		if t := sc.course.when(sc.number); !math.IsInf(t, 1) {
			return sc.drawLocked(p, sc.start+time.Duration(t*float64(time.Second))), true
		}
		sc.start += p.Duration
		sc.phase++
		sc.enterLocked()
	}
	return arrival{}, false
}

func (sc *schedule) drawLocked(p Phase, at time.Duration) arrival {
	a := arrival{at: at, target: sc.rng.IntN(sc.targets)}
	if p.Clients > 0 && p.Affinity != Sprayed {
		// A client stays with its node, by a hash, as a balancer would have it.
		a.target = int(mix64(uint64(sc.rng.IntN(p.Clients))) % uint64(sc.targets))
	}
	if sc.rng.Float64() < float64(p.Absent) {
		var n uint64
		if sc.absent != nil {
			// Away from the unique ones, which are spread over all 64 bits.
			n = scatter(sc.absent.draw(sc.rng), uint64(p.AbsentKeys))
		} else {
			sc.unique += golden
			n = mix64(sc.unique)
		}
		a.path = AbsentPath(n)
		return a
	}
	keys := uint64(phaseKeys(p, sc.keys))
	n := uint64(p.FirstKey)
	if p.Scan {
		n += sc.scan % keys
		sc.scan++
	} else {
		n += scatter(sc.zipf.draw(sc.rng), keys)
	}
	a.exists, a.size = true, sc.size.of(n)
	a.path = KeyPath(n, a.size)
	return a
}

// scatter maps rank to a key in 0 to n-1, so that neighbours in popularity are
// not neighbours in key: a multiplicative permutation with a prime that is
// larger than any n allowed here and so has no factor in common with it.
func scatter(rank, n uint64) uint64 {
	const prime = 4294967291 // the largest below 2^32
	return rank * prime % n
}

// purges returns the schedule of the scenario's purges: arrivals for existing
// keys, as popular as in the requests. A phase without purges has none.
func purges(s Scenario) *schedule {
	s.Seed = mix64(s.Seed + golden)
	s.Phases = append([]Phase(nil), s.Phases...)
	for i := range s.Phases {
		p := &s.Phases[i]
		p.Rate, p.ToRate, p.Steps, p.Think, p.Absent = p.PurgeRate, 0, 0, 0, 0 // at rate 0 none ever comes
	}
	return newSchedule(s, 1)
}

// everyNth are the arrivals of one of several worker processes: all have the
// same schedule, and each takes its turn.
type everyNth struct {
	all   arrivals
	index int // of this process, from 0
	of    int

	mu      sync.Mutex
	started bool
}

func (e *everyNth) next() (a arrival, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	skip := e.of - 1
	if !e.started {
		skip, e.started = e.index, true
	}
	for range skip {
		if _, ok := e.all.next(); !ok {
			return a, false
		}
	}
	return e.all.next()
}
