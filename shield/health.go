package shield

import (
	"math/rand/v2"
	"net/url"
	"time"
)

// target is one server of a pool. Its health is passive: what became of the
// requests to it. The fields below url are guarded by Pool.mu.
type target struct {
	text string // as configured
	url  *url.URL

	fails    int       // failures since the last whole answer
	downs    int       // times in a row that it was put aside
	until    time.Time // put aside until then; zero while it is healthy
	trial    bool      // it was put aside, and a request is finding out
	away     bool      // the last failure was to connect
	inFlight int
	attempts uint64
	failures uint64
}

// aside reports whether the server is skipped. When its time is over, one
// request goes there, and the others wait for what becomes of it.
func (t *target) aside(now time.Time) bool {
	return !t.until.IsZero() && (t.trial || now.Before(t.until))
}

// tries is where one request has been.
type tries struct {
	targets []*target
	anyway  bool // one of them was put aside
}

func (t *tries) has(target *target) bool {
	for _, h := range t.targets {
		if h == target {
			return true
		}
	}
	return false
}

// pick chooses the server for a request's next try and counts it as in flight,
// or returns nil to give up. Of those that are not put aside it is the one with
// the fewest requests in flight, in turn. When there is none left, the least bad
// is tried anyway: one that can be connected to, and of these the one whose time
// is over first. A request gets only one of
// those, lest it wait for all the dead ones.
func (p *Pool) pick(t *tries) *target {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var best, bad *target
	for i := range p.targets {
		c := p.targets[(p.next+i)%len(p.targets)]
		switch {
		case t.has(c):
		case c.aside(now):
			if bad == nil || bad.away && !c.away || bad.away == c.away && c.until.Before(bad.until) {
				bad = c
			}
		case best == nil || c.inFlight < best.inFlight:
			best = c
		}
	}
	p.next = (p.next + 1) % len(p.targets)
	switch {
	case best != nil:
		best.trial = !best.until.IsZero()
	case bad != nil && !t.anyway:
		t.anyway = true
		best = bad
	default:
		return nil
	}
	t.targets = append(t.targets, best)
	best.inFlight++
	return best
}

// answered notes the head of an answer: the server is there.
func (p *Pool) answered(t *target) {
	p.mu.Lock()
	back := !t.until.IsZero()
	t.until, t.downs, t.trial, t.away = time.Time{}, 0, false, false
	p.mu.Unlock()
	if back {
		p.log.Info("origin server is back", "url", t.text)
	}
}

// over notes the end of a try: e is what broke it, nil for a whole answer or
// one that the caller did not want any more, which says nothing against the
// server. What the caller cancelled says nothing at all.
func (p *Pool) over(t *target, e *Error, canceled bool) {
	now := time.Now()
	p.mu.Lock()
	t.inFlight--
	if e == nil || canceled {
		if e == nil {
			t.fails = 0
		}
		t.trial = false
		p.mu.Unlock()
		return
	}
	t.failures++
	t.fails++
	t.away = e.Phase == PhaseConnect
	// Many requests that fail together step the back-off once only.
	down := !now.Before(t.until) && (e.Phase == PhaseConnect || t.fails >= p.cfg.Failures || !t.until.IsZero())
	var wait time.Duration
	if down {
		t.downs++
		wait = backoff(t.downs, p.cfg.BackoffMin, p.cfg.BackoffMax)
		t.until = now.Add(wait)
	}
	t.trial = false
	p.mu.Unlock()
	if down {
		p.log.Warn("origin server is skipped for a while", "url", t.text, "for", wait.Round(time.Millisecond), "error", e)
	}
}

// backoff returns the time aside for the n-th time in a row: low doubled each
// time, up to high, give or take a quarter so that the nodes of a cluster don't
// come back together.
func backoff(n int, low, high time.Duration) time.Duration {
	d := low
	for range n - 1 {
		if d >= high/2 {
			d = high
			break
		}
		d *= 2
	}
	return time.Duration(float64(min(d, high)) * (0.75 + rand.Float64()/2))
}
