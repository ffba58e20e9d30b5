package peerfilter

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// RotatingConfig describes a [Rotating].
type RotatingConfig struct {
	// Params is the layout of each of the two filters.
	Params Params
	// MaxKeys is the number of new keys after which the pair turns. More keys
	// remember longer and answer wrongly more often. Zero: as many as Params
	// holds at a rate of 1 %.
	MaxKeys int
	// MaxAge is the age of the current filter at which the pair turns, so a key
	// is remembered for one to two times MaxAge. Zero: never by age.
	MaxAge time.Duration
}

// Rotating remembers keys for a while: two plain Bloom filters, current and
// previous. Both are asked and the current one is added to; when it is full or
// old it becomes the previous one, and that is forgotten. For what should age
// out without deletes: who asked once before, how many new keys lately.
//
// A key is found until at least MaxKeys other keys came after it or MaxAge
// passed, but for one that is added in the very moment of a turn, which may
// live half as long. The false-positive probability is that of two filters.
//
// Methods are safe for concurrent use; all but a turn are lock-free. The time is the caller's and
// should not run backwards.
type Rotating struct {
	cfg  RotatingConfig
	pair atomic.Pointer[pair]

	mu    sync.Mutex // held to turn
	turns atomic.Uint64
}

// pair is immutable but for the bits and the count.
type pair struct {
	current, previous []uint64 // previous: nil when nothing is remembered from before
	started           bool     // since is valid: it was used once
	since             time.Time
	keys              atomic.Int64 // new in current
}

// RotatingStats describes a [Rotating].
type RotatingStats struct {
	Keys  int    // in the current filter
	Turns uint64 // so far
}

// NewRotating returns an empty pair. It fails if cfg is not valid.
func NewRotating(cfg RotatingConfig) (*Rotating, error) {
	if err := cfg.Params.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxKeys < 0 || cfg.MaxAge < 0 {
		return nil, fmt.Errorf("rotating filter: %d keys, age %v: want 0 or more", cfg.MaxKeys, cfg.MaxAge)
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = max(1, int(keysPerBlock(0.01)*float64(cfg.Params.Blocks)))
	}
	r := &Rotating{cfg: cfg}
	r.pair.Store(&pair{current: makeWords(cfg.Params.words())})
	return r, nil
}

// Add remembers the key with hash h and reports whether it was remembered
// already.
func (r *Rotating) Add(h Hash, now time.Time) (before bool) {
	p := r.turn(now)
	before = p.mayContain(h, r.cfg.Params)
	if addBits(p.current, h, r.cfg.Params) {
		p.keys.Add(1)
	}
	return before
}

// MayContain reports whether the key with hash h was added lately: false is
// certain.
func (r *Rotating) MayContain(h Hash, now time.Time) bool {
	return r.turn(now).mayContain(h, r.cfg.Params)
}

// Stats returns the pair's statistics.
func (r *Rotating) Stats() RotatingStats {
	return RotatingStats{Keys: int(r.pair.Load().keys.Load()), Turns: r.turns.Load()}
}

// turn returns the pair to use at now, turned if it is due.
func (r *Rotating) turn(now time.Time) *pair {
	p := r.pair.Load()
	if !r.due(p, now) {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p = r.pair.Load(); !r.due(p, now) {
		return p
	}
	next := &pair{current: p.current, started: true, since: now}
	if p.started { // else the clock starts, with the filter as it is
		next.current = makeWords(r.cfg.Params.words())
		r.turns.Add(1)
		switch age := now.Sub(p.since); {
		case r.cfg.MaxAge > 0 && age >= 2*r.cfg.MaxAge: // current is too old as well
		case r.cfg.MaxAge > 0 && age >= r.cfg.MaxAge:
			next.previous, next.since = p.current, p.since.Add(r.cfg.MaxAge)
		default:
			next.previous = p.current
		}
	}
	r.pair.Store(next)
	return next
}

func (r *Rotating) due(p *pair, now time.Time) bool {
	return !p.started ||
		p.keys.Load() >= int64(r.cfg.MaxKeys) ||
		r.cfg.MaxAge > 0 && now.Sub(p.since) >= r.cfg.MaxAge
}

func (p *pair) mayContain(h Hash, params Params) bool {
	at := uint64(blockOf(h[0], params.Blocks)) * blockWords
	return testWords((*[blockWords]uint64)(p.current[at:]), h[1]) ||
		p.previous != nil && testWords((*[blockWords]uint64)(p.previous[at:]), h[1])
}

// addBits sets the bits of h in a bitmap and reports whether one of them was
// clear.
func addBits(words []uint64, h Hash, params Params) (changed bool) {
	block := words[uint64(blockOf(h[0], params.Blocks))*blockWords:][:blockWords]
	for s := range block {
		bit := uint64(1) << (h[1] >> (6 * s) & 63)
		if atomic.LoadUint64(&block[s])&bit == 0 {
			atomic.OrUint64(&block[s], bit)
			changed = true
		}
	}
	return changed
}
