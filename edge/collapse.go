package edge

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"edged/edge/store"
)

// finishBytes is how little may be left of a storable response for it to be
// fetched to its end although nobody waits any more.
const finishBytes = 1 << 20

// flight is one forward and everybody who waits for it.
//
// Its outcome is written once, before ready is closed, and read only after.
type flight struct {
	key    string
	ready  chan struct{}
	out    outcome
	info   chan informational // 1xx answers, for the one who began it
	cancel context.CancelCauseFunc

	rangeKey string          // what key becomes if the answer is only a part
	gen      uint64          // the newest purge when it began
	after    <-chan struct{} // closed when it may ask; nil: at once

	// Guarded by flights.mu.
	waiters  int
	joinable bool // still in the table
	asks     bool // somebody may have got its request already
	storable bool // worth finishing
}

// informational is a 1xx answer on its way to a client.
type informational struct {
	status int
	header http.Header
}

// outcome is what a forward came to: exactly one of err, stored and header is
// set. It is immutable.
type outcome struct {
	err error // no answer: the origin could not be reached, or broke off

	// A response that this node holds: freshened by a 304, or stale and served
	// because the origin failed.
	stored *store.Response
	stale  bool

	// A response on its way. Its header has no hop-by-hop fields.
	status  int
	phrase  *phrase // nil: the usual one
	header  http.Header
	others  http.Header        // the same for those who joined
	trailer func() http.Header // complete once the body has ended
	length  int64              // -1 unknown
	body    *body
	meta    *meta       // nil when it will not be stored
	kept    http.Header // what will be stored with it

	fwdStatus      int      // what the other side answered, 0 when nothing
	detail         string   // peer, shield, origin
	upstreamStatus string   // Cache-Status as received
	shared         bool     // joiners whose nominated fields match may use it
	nominated      []string // Vary
	variant        string   // of the request that was forwarded
}

// flights is the table of forwards that can be joined. The zero value is
// ready, and knows no purges. It is safe for concurrent use.
type flights struct {
	epochs *store.Epochs // set before use

	mu  sync.Mutex
	tab map[string]*flight
}

// join returns the flight of key, and whether the caller has to begin it.
// Either way the caller waits for it and must leave it.
//
// Who may not know of a purge that has been (unsure) joins none that asks
// already: the purge may have come after it asked. It gets the next one, which
// asks once the one under way has its answer, and which all share that come
// until then: one request at a time draws no more from the origin than the
// origin answers, and none is older than who waits for it.
func (fs *flights) join(key string, unsure bool) (f *flight, began bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var after <-chan struct{}
	if f := fs.tab[key]; f != nil {
		switch {
		case !fs.joins(f):
		case unsure && f.asks:
			after = f.ready
		case f.waiters == 0 && !f.out.body.expect():
		default:
			f.waiters++
			return f, false
		}
		fs.detachLocked(f)
	}
	f = newFlight(key)
	f.after = after
	if fs.epochs != nil {
		f.gen = fs.epochs.Generation()
	}
	f.joinable = true
	if fs.tab == nil {
		fs.tab = map[string]*flight{}
	}
	fs.tab[key] = f
	return f, true
}

// joinRange is join for who asks for a range. It waits for a flight that
// carries just that, under rangeKey, else for the one under key, which may bring
// the whole; so that a burst of ranges draws one request from an origin that
// knows no ranges. apart says that this one has turned out not to. A request
// for the whole has one and the same key for both.
func (fs *flights) joinRange(key, rangeKey string, apart, unsure bool) (f *flight, began bool) {
	fs.mu.Lock()
	same := fs.tab[rangeKey] != nil
	fs.mu.Unlock()
	if same || apart {
		key = rangeKey
	}
	if f, began = fs.join(key, unsure); began {
		f.rangeKey = rangeKey // read by settle, which launch comes before
	}
	return f, began
}

// joinBehind is join for who does not wait: nil when the forward is under way
// already.
func (fs *flights) joinBehind(key string) *flight {
	fs.mu.Lock()
	f := fs.tab[key]
	busy := f != nil && fs.joins(f)
	fs.mu.Unlock()
	if busy {
		return nil
	}
	f, began := fs.join(key, false)
	if !began {
		fs.leave(f)
		return nil
	}
	return f
}

func newFlight(key string) *flight {
	return &flight{key: key, ready: make(chan struct{}), info: make(chan informational, 8), waiters: 1}
}

// asking waits until the flight may ask, and says that it does.
func (fs *flights) asking(ctx context.Context, f *flight) {
	if f.after != nil {
		select {
		case <-f.after:
		case <-ctx.Done():
		}
	}
	fs.mu.Lock()
	f.asks = true
	fs.mu.Unlock()
}

// leave takes one waiter off. The last one ends a forward that is not worth
// finishing; in one step, so that nobody joins one that is about to end.
func (fs *flights) leave(f *flight) {
	fs.mu.Lock()
	f.waiters--
	// storable is set together with the outcome.
	if f.waiters > 0 || f.storable && f.out.body.desert() {
		fs.mu.Unlock()
		return
	}
	fs.detachLocked(f)
	fs.mu.Unlock()
	f.cancel(errAbandoned)
}

// settle publishes the outcome. One that cannot be shared leaves the table at
// once, so that nobody joins it any more.
func (fs *flights) settle(f *flight, out outcome) {
	fs.mu.Lock()
	f.out = out
	f.storable = out.meta != nil
	switch {
	case !out.shared:
		fs.detachLocked(f)
	case out.meta != nil && out.meta.partial() && f.joinable && f.key != f.rangeKey:
		// Only who asks for that part still joins.
		fs.detachLocked(f)
		if f.rangeKey != "" && fs.tab[f.rangeKey] == nil {
			f.key, f.joinable = f.rangeKey, true
			fs.tab[f.key] = f
		}
	}
	fs.mu.Unlock()
	close(f.ready)
}

// detach takes a flight out of the table: who comes later begins another one.
func (fs *flights) detach(f *flight) {
	fs.mu.Lock()
	fs.detachLocked(f)
	fs.mu.Unlock()
}

func (fs *flights) detachLocked(f *flight) {
	if f.joinable {
		f.joinable = false
		delete(fs.tab, f.key)
	}
}

// joins reports whether a request that comes now may join f: no purge has come
// since it began that may cover its answer, so that what comes after a purge
// never sees what was asked for before it.
func (fs *flights) joins(f *flight) bool {
	if fs.epochs == nil {
		return true
	}
	url, _, _ := strings.Cut(f.key, "\x00")
	return fs.epochs.CheckFlight(f.gen, url)
}

// uncacheable remembers for a moment which keys had an answer that may not be
// shared, so that the next burst for them does not queue; and why, for who
// asks. It forgets early rather than grow.
type uncacheable struct {
	mu  sync.Mutex
	tab map[uint64]unshared // by key hash: a collision costs one collapse
}

type unshared struct {
	until time.Time
	rule  string
}

const (
	uncacheableFor = 10 * time.Second
	uncacheableMax = 1 << 16
)

func (u *uncacheable) add(h uint64, rule string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tab == nil || len(u.tab) >= uncacheableMax {
		u.tab = map[uint64]unshared{}
	}
	u.tab[h] = unshared{now.Add(uncacheableFor), rule}
}

func (u *uncacheable) remove(h uint64) {
	u.mu.Lock()
	delete(u.tab, h)
	u.mu.Unlock()
}

func (u *uncacheable) has(h uint64, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	e, ok := u.tab[h]
	return ok && !now.After(e.until)
}

// why returns the rule by which the last answer was not stored; "" when none
// is remembered.
func (u *uncacheable) why(h uint64) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tab[h].rule
}
