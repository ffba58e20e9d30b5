package edge

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"edged/edge/negative"
	"edged/edge/store"
)

// Purges take effect by what look-ups compare with (store.Epochs). What they
// cover is taken out, or marked as stale, behind them: by the index of tags what
// a tag names, else by a walk over all that is stored. A walk also lets the
// marks be forgotten, since it looks at everything; where only URLs and
// tags are purged, one in forgetAfter does, or after forgetMarks.
const (
	forgetAfter = 5 * time.Minute
	forgetMarks = 1 << 15 // an eighth of what Epochs remembers
	pendingTags = 1 << 16 // more to take out are left to a walk
)

// Taking out rests after reclaimStep of them, some 100 µs, for reclaimRest
// times what they took, so that it takes a tenth of a processor; not for longer than
// reclaimLongest, since on a busy machine most of that was not its own time.
const (
	reclaimStep    = 128
	reclaimRest    = 9
	reclaimLongest = 10 * time.Millisecond
)

// leftovers is what purges have left to be taken out.
type leftovers struct {
	wake chan struct{} // holds a token when there is something

	mu    sync.Mutex
	tags  map[string]struct{} // each on something stored
	walk  bool                // there is something that only a walk finds
	marks int                 // made since the last walk began
	since time.Time           // when the first of these was
}

// add leaves what a purge has to be taken out; of its tags those that something
// carries, according to carried, which also says whether that is all.
func (l *leftovers) add(p *store.Purge, carried func(tag string) (n int, all bool), now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.marks == 0 {
		l.since = now
	}
	l.marks += 1 + len(p.URLs) + len(p.Tags)
	if p.All || len(p.Hosts)+len(p.Prefixes) > 0 {
		l.walk = true
	}
	tags := p.Tags
	if len(tags) > 0 {
		tags = append(slices.Clone(tags), store.AnyTag)
	}
	for _, t := range tags {
		n, all := carried(t)
		if !all || n > 0 && len(l.tags) == pendingTags {
			l.walk = true
		} else if n > 0 {
			l.tags[t] = struct{}{}
		}
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pace makes taking out rest.
type pace struct {
	seen  int
	began time.Time // the step
}

// step is called before each thing that is looked at.
func (p *pace) step(ctx context.Context) {
	if p.seen++; p.seen%reclaimStep != 0 {
		return
	}
	if ctx.Err() == nil {
		time.Sleep(min(reclaimRest*time.Since(p.began), reclaimLongest))
	}
	p.began = time.Now()
}

// take returns what there is to do, which is the caller's from then on: tags to
// take out, then perhaps a walk. rest is how long to wait for another when
// there is nothing; 0 means until there is.
func (l *leftovers) take(now time.Time) (tags []string, walk bool, rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.tags {
		tags = append(tags, t)
	}
	clear(l.tags)
	if l.marks > 0 {
		rest = max(forgetAfter-now.Sub(l.since), 0)
	}
	if l.walk || l.marks >= forgetMarks || l.marks > 0 && rest == 0 {
		l.walk, l.marks = false, 0
		return tags, true, 0
	}
	return tags, false, rest
}

// reclaim takes out what purges leave, as long as the node lives.
func (n *Node) reclaim(ctx context.Context) {
	for {
		tags, walk, rest := n.leftovers.take(time.Now())
		for _, t := range tags {
			n.reclaimTag(ctx, t)
		}
		if walk {
			n.walk(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if len(tags) > 0 || walk {
			continue
		}
		var due <-chan time.Time
		if rest > 0 {
			due = time.After(rest)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.leftovers.wake:
		case <-due:
		}
	}
}

// reclaimTag takes out what the index has under a purged tag.
func (n *Node) reclaimTag(ctx context.Context, tag string) {
	n.metrics.reclaims.WithLabelValues("tag").Inc()
	n.store.PurgeTag(tag, n.reclaiming(ctx))
}

// walk looks at all that is stored, and all that is remembered to be absent.
func (n *Node) walk(ctx context.Context) {
	n.metrics.reclaims.WithLabelValues("walk").Inc()
	gen := n.epochs.Generation()
	n.store.Purge(n.reclaiming(ctx))
	p := pace{began: time.Now()}
	n.negative.Review(ctx, gen, func(key string, e negative.Entry) bool {
		p.step(ctx)
		url, _, _ := strings.Cut(key, "\n")
		return !n.purged(url, &e)
	})
	if ctx.Err() == nil {
		n.epochs.Walked(gen, time.Now())
	}
}

// reclaiming returns what judges stored responses by the purges since they were
// looked at last, and rests now and then. When ctx has ended it keeps everything,
// so that a stopping node waits for nothing.
func (n *Node) reclaiming(ctx context.Context) func(url string, r *store.Response) *store.Response {
	now := time.Now()
	p := pace{began: now}
	return func(url string, r *store.Response) *store.Response {
		p.step(ctx)
		if ctx.Err() != nil {
			return r
		}
		switch v, gen := n.epochs.Judge(url, r); v {
		case store.Gone:
			return nil
		case store.Stale:
			return n.soften(r, gen, now)
		}
		return r
	}
}
