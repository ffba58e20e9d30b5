package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// historySpan is what the plots of the status page show.
	historySpan = 15 * time.Minute

	// maxWatchers bounds the status pages that are open at once. Each costs a
	// connection and the sending of some kilobytes a second; what it shows is
	// gathered once for all.
	maxWatchers = 32
)

// errWatchers is why one more page can't watch.
var errWatchers = errors.New("too many status pages are open")

// FeedConfig says where a [Feed] gets what it shows.
type FeedConfig struct {
	// Sample tells what happened since it was last called. It is called once
	// a second for as long as the node runs, so it must be cheap.
	Sample func(now time.Time) Sample
	// Cluster describes the cluster. It is called once a second while at
	// least one page watches, however many do.
	Cluster func() Cluster
	// Logger receives what goes wrong inside; nil discards it.
	Logger *slog.Logger
}

// A Feed is what status pages watch: the last 15 minutes in a ring of samples,
// and from then on one event a second. It belongs to the node, not to a page,
// so that a page that opens at night shows what led there.
//
// Its methods are safe for concurrent use. It holds 900 samples and, for each
// watcher, one event that has not been sent: a page that reads slowly misses
// events and delays nobody.
type Feed struct {
	cfg FeedConfig

	mu       sync.Mutex
	ring     []Sample // in the order of time, once rotated by next
	next     int      // where the next sample goes when the ring is full
	watchers map[chan []byte]struct{}
	ended    bool
}

// NewFeed makes a feed; [Feed.Run] drives it.
func NewFeed(cfg FeedConfig) *Feed {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Feed{cfg: cfg, ring: make([]Sample, 0, historySpan/time.Second), watchers: map[chan []byte]struct{}{}}
}

// Run takes a sample a second and tells the watchers, until ctx ends; then the
// watchers' streams end.
func (f *Feed) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.end()
			return
		case now := <-tick.C:
			f.turn(now)
		}
	}
}

// turn is one second of the feed.
func (f *Feed) turn(now time.Time) {
	s := f.cfg.Sample(now)
	if !f.record(s) {
		return
	}
	c := f.cfg.Cluster()
	complete(&c)
	c.Now = s
	event, err := json.Marshal(c)
	if err != nil {
		f.cfg.Logger.Error("admin: status is no JSON", "error", err)
		return
	}
	f.tell(event)
}

// record keeps a sample, and reports whether anybody watches.
func (f *Feed) record(s Sample) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ring) < cap(f.ring) {
		f.ring = append(f.ring, s)
	} else {
		f.ring[f.next] = s
		f.next = (f.next + 1) % len(f.ring)
	}
	return len(f.watchers) > 0
}

// tell gives an event to every watcher; it takes the place of one that the
// watcher has not taken yet.
func (f *Feed) tell(event []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		select {
		case <-w:
		default:
		}
		w <- event // there is room for one, and only we send
	}
}

// watch returns the samples so far and the events from now on, which end when
// the feed does. Who has called it calls leave.
func (f *Feed) watch() (_ History, events <-chan []byte, leave func(), _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := make(chan []byte, 1)
	switch {
	case f.ended:
		close(w)
	case len(f.watchers) >= maxWatchers:
		return History{}, nil, nil, errWatchers
	default:
		f.watchers[w] = struct{}{}
	}
	return f.historyLocked(), w, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	}, nil
}

// end ends every watcher's stream.
func (f *Feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	for w := range f.watchers {
		close(w)
		delete(f.watchers, w)
	}
}

func (f *Feed) historyLocked() History {
	h := History{SpanSeconds: int(historySpan / time.Second), Samples: make([]Sample, 0, len(f.ring))}
	h.Samples = append(append(h.Samples, f.ring[f.next:]...), f.ring[:f.next]...)
	return h
}
