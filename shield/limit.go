package shield

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Class is what a request to an origin is for, as a [Limit] tells them apart.
type Class int

// The classes.
const (
	New   Class = iota // nothing is known of what is asked for: it may not exist
	Known              // it has been there before
)

// Classes lists them.
func Classes() []Class { return []Class{New, Known} }

func (c Class) String() string {
	if c == Known {
		return "known"
	}
	return "new"
}

// The reasons of a refusal.
const (
	RefusedQueue = "queue" // too many wait already
	RefusedWait  = "wait"  // it waited for as long as it may
)

// RefusedReasons lists them.
func RefusedReasons() []string { return []string{RefusedQueue, RefusedWait} }

// A SaturatedError is a request that was not sent because the origin has as
// many as it may have. A caller maps it to 503.
type SaturatedError struct {
	Class  Class
	Reason string
	Retry  time.Duration // after which asking again may be worth it
}

func (e *SaturatedError) Error() string {
	return fmt.Sprintf("the origin has as many requests as it may have (%s, %s)", e.Class, e.Reason)
}

// LimitConfig bounds the requests to one origin.
type LimitConfig struct {
	// Max is the number of requests whose answer is not over, at most; 0: no
	// limit, and then nothing waits.
	Max int
	// Queue is the number that may wait for their turn; 0: none.
	Queue int
	// KnownShare is the part of Max and of Queue that requests of class New
	// can't take, 0 to 1. One place in flight is always left to them.
	KnownShare float64
	// MaxWait bounds the time in the queue; 0: a second.
	MaxWait time.Duration
}

// Limit bounds how many requests are at an origin at once, and how many wait
// for that, so that an origin that can't keep up is never buried. A flood of
// what does not exist looks like nothing known; part of the places is not for
// it, so that known content is fetched all the same:
//
//	in flight    |<-------- Max ------------------------------>|
//	             |<-- New, at most -------->|<-- KnownShare -->|
//	             |<-- Known -------------------- at most ----->|
//
// Whoever waits longest is next, but for the share of Known: while fewer of
// them are in flight, they go first. So neither class can starve the other.
//
// Limiting the number in flight, instead of requests a second, follows the
// origin by itself: one that slows down gets fewer (Little's law).
//
// Its methods are safe for concurrent use; no lock is held while one waits.
type Limit struct {
	mu    sync.Mutex
	cfg   LimitConfig
	kept  int // of Max, for Known
	lanes [2]lane
	turn  uint64 // of the next one to wait
}

type lane struct {
	inFlight int
	waiting  list.List // of *waiter, first come first
	refused  map[string]uint64
	waited   uint64
}

type waiter struct {
	turn    uint64
	granted chan struct{} // closed, under Limit.mu, when it is its turn
}

// LimitStats is one class at one moment; the counters are since the start.
type LimitStats struct {
	InFlight int
	Waiting  int
	Waited   uint64            // requests that had to wait, whatever came of it
	Refused  map[string]uint64 // by reason; every reason stands in it
}

// NewLimit returns a limit, or all that is wrong with cfg.
func NewLimit(cfg LimitConfig) (*Limit, error) {
	l := &Limit{}
	for i := range l.lanes {
		l.lanes[i].refused = map[string]uint64{}
	}
	return l, l.Resize(cfg)
}

// Resize makes cfg hold from now on. Requests in flight stay, also when they
// are more than cfg allows; what waits and no longer may, waits on.
func (l *Limit) Resize(cfg LimitConfig) error {
	var bad []error
	if cfg.Max < 0 || cfg.Queue < 0 || cfg.MaxWait < 0 {
		bad = append(bad, errors.New("limit: Max, Queue or MaxWait is negative"))
	}
	if !(cfg.KnownShare >= 0 && cfg.KnownShare <= 1) {
		bad = append(bad, fmt.Errorf("limit: a share of %g is not within 0 and 1", cfg.KnownShare))
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = time.Second
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
	l.kept = max(0, min(share(cfg.Max, cfg.KnownShare), cfg.Max-1))
	l.grantLocked()
	return nil
}

// share is a part of n, rounded up.
func share(n int, part float64) int { return int(math.Ceil(float64(n) * part)) }

// Acquire waits for a place at the origin and returns how to give it back,
// which may be called more than once. It fails with a *[SaturatedError], at
// once or after MaxWait, and with the context's error when that ends first.
func (l *Limit) Acquire(ctx context.Context, c Class) (release func(), err error) {
	l.mu.Lock()
	la := &l.lanes[c]
	if la.waiting.Len() == 0 && l.roomLocked(c) {
		la.inFlight++
		l.mu.Unlock()
		return l.releaser(c), nil
	}
	wait := l.cfg.MaxWait
	if l.queueFullLocked(c) {
		la.refused[RefusedQueue]++
		l.mu.Unlock()
		return nil, &SaturatedError{c, RefusedQueue, wait}
	}
	w := &waiter{l.turn, make(chan struct{})}
	l.turn++
	la.waited++
	at := la.waiting.PushBack(w)
	l.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.granted:
		return l.releaser(c), nil
	case <-timer.C:
		err = &SaturatedError{c, RefusedWait, wait}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.granted: // in the meantime: it is not asked for any more
		if ctx.Err() == nil {
			return l.releaser(c), nil
		}
		la.inFlight--
	default:
		la.waiting.Remove(at)
		if ctx.Err() == nil {
			la.refused[RefusedWait]++
		}
	}
	l.grantLocked()
	return nil, err
}

// releaser returns what gives one place of the class back, once.
func (l *Limit) releaser(c Class) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lanes[c].inFlight--
			l.grantLocked()
		})
	}
}

// roomLocked reports whether one more request of the class may be sent.
func (l *Limit) roomLocked(c Class) bool {
	if l.cfg.Max == 0 {
		return true
	}
	if l.lanes[New].inFlight+l.lanes[Known].inFlight >= l.cfg.Max {
		return false
	}
	return c == Known || l.lanes[New].inFlight < l.cfg.Max-l.kept
}

// queueFullLocked reports whether no more of the class may wait.
func (l *Limit) queueFullLocked(c Class) bool {
	n := l.lanes[New].waiting.Len()
	if n+l.lanes[Known].waiting.Len() >= l.cfg.Queue {
		return true
	}
	return c == New && n >= l.cfg.Queue-share(l.cfg.Queue, l.cfg.KnownShare)
}

// grantLocked lets in whoever's turn it is, for as long as there is room.
func (l *Limit) grantLocked() {
	head := func(c Class) *list.Element {
		if !l.roomLocked(c) {
			return nil
		}
		return l.lanes[c].waiting.Front()
	}
	for {
		c, next := New, head(New)
		if known := head(Known); known != nil {
			if next == nil || l.lanes[Known].inFlight < l.kept || known.Value.(*waiter).turn < next.Value.(*waiter).turn {
				c, next = Known, known
			}
		}
		if next == nil {
			return
		}
		la := &l.lanes[c]
		la.waiting.Remove(next)
		la.inFlight++
		close(next.Value.(*waiter).granted)
	}
}

// Stats returns the current numbers of a class.
func (l *Limit) Stats(c Class) LimitStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	la := &l.lanes[c]
	st := LimitStats{InFlight: la.inFlight, Waiting: la.waiting.Len(), Waited: la.waited, Refused: map[string]uint64{}}
	for _, r := range RefusedReasons() {
		st.Refused[r] = la.refused[r]
	}
	return st
}

// Max returns the number that may be in flight; 0: any.
func (l *Limit) Max() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.Max
}
