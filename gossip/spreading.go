package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Spreading is how far a change, or several that were entered together, has
// come on each other member. It is safe for concurrent use.
//
// A member is waited for until it has acknowledged, or can't be reached any
// more. In the latter case nobody waits, but it is noted when it acknowledges
// after all, as long as the Spreading is among the last 4096.
type Spreading struct {
	log   *changeLog
	id    string
	seq   uint64 // of the last one
	began time.Time
	done  chan struct{} // closed when left is 0

	// Guarded by log.mu.
	nodes  []MemberProgress // sorted by name
	left   int              // of those: waited for
	marked []int            // which of them have changed, in order; each twice at most
	more   chan struct{}    // closed with the next mark; nil: nobody follows
}

// MemberProgress is how far a change has come on one member. One that neither
// has applied it nor is gone is waited for.
type MemberProgress struct {
	Name    string
	Applied bool
	Gone    bool          // it can't be reached; it applies the change when it comes back
	After   time.Duration // from the call to its acknowledgement; 0 before that
}

// maxProgress is how many changes are remembered for Find.
const maxProgress = 4096

// ID is that of the last change.
func (s *Spreading) ID() string { return s.id }

// Members returns how far the change is on each other member, sorted by name.
func (s *Spreading) Members() []MemberProgress {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.Clone(s.nodes)
}

// Wait returns when no member is waited for any more, or ctx has ended, or the
// Gossip is closed.
func (s *Spreading) Wait(ctx context.Context) {
	select {
	case <-s.done:
	case <-ctx.Done():
	case <-s.log.g.done:
	}
}

// Follow is Wait, and calls each, from this goroutine, for every member that
// has applied the change or can't be reached: in the order in which that is
// found, beginning with what was before the call. One that can't be reached, and
// comes back while others are waited for, comes twice.
func (s *Spreading) Follow(ctx context.Context, each func(MemberProgress)) {
	told := 0
	for {
		s.log.mu.Lock()
		news := make([]MemberProgress, 0, len(s.marked)-told)
		for _, i := range s.marked[told:] {
			news = append(news, s.nodes[i])
		}
		told = len(s.marked)
		over := s.left == 0
		if s.more == nil {
			s.more = make(chan struct{})
		}
		more := s.more
		s.log.mu.Unlock()
		for _, m := range news {
			each(m)
		}
		if over {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		case <-s.log.g.done:
			return
		}
	}
}

// member returns the index of a member in nodes.
func (s *Spreading) member(name string) (int, bool) {
	return slices.BinarySearchFunc(s.nodes, name, func(m MemberProgress, name string) int { return cmp.Compare(m.Name, name) })
}

// markLocked changes what is known of a member, after which it is not waited
// for any more.
func (s *Spreading) markLocked(name string, f func(*MemberProgress)) {
	i, ok := s.member(name)
	if !ok {
		return
	}
	m := &s.nodes[i]
	waited := !m.Applied && !m.Gone
	f(m)
	s.marked = append(s.marked, i)
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
	if !waited {
		return
	}
	if s.left--; s.left == 0 {
		close(s.done)
	}
}

// goneLocked reports whether a member is known to be out of reach.
func (s *Spreading) goneLocked(name string) bool {
	i, ok := s.member(name)
	return ok && s.nodes[i].Gone
}

// acked takes note that a member has applied all up to seq.
func (l *changeLog) acked(name string, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.waiting[name]
	for len(q) > 0 && q[0].seq <= seq {
		s := q[0]
		s.markLocked(name, func(m *MemberProgress) { m.Applied, m.Gone, m.After = true, false, time.Since(s.began) })
		q = q[1:]
	}
	l.setWaitingLocked(name, q)
}

func (l *changeLog) setWaitingLocked(name string, q []*Spreading) {
	if len(q) == 0 {
		delete(l.waiting, name)
		return
	}
	l.waiting[name] = q
}

// gone takes note that a member can't be reached; one that left is not
// expected to come back.
func (l *changeLog) gone(name string, left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var kept []*Spreading
	for _, s := range l.waiting[name] {
		if !s.goneLocked(name) {
			s.markLocked(name, func(m *MemberProgress) { m.Gone = true })
		}
		if !left && l.byID[s.id] == s {
			kept = append(kept, s)
		}
	}
	l.setWaitingLocked(name, kept)
}

// rememberLocked takes s among the last maxProgress.
func (l *changeLog) rememberLocked(s *Spreading) {
	if len(l.recent) >= maxProgress {
		old := l.recent[0]
		delete(l.byID, old.id)
		l.recent = append(l.recent[:0], l.recent[1:]...)
		// Nobody asks any more whether those that were out of reach have it.
		for _, m := range old.nodes {
			if q := l.waiting[m.Name]; m.Gone && len(q) > 0 && q[0] == old {
				l.setWaitingLocked(m.Name, q[1:])
			}
		}
	}
	l.recent = append(l.recent, s)
	l.byID[s.id] = s
}

// enter gives changes to the log.
func (g *Gossip) enter(changes []Change) (*Spreading, error) {
	cs := make([]*Change, len(changes))
	for i := range changes {
		c := changes[i]
		if c.Kind == 0 || len(c.URLs)+len(c.Tags)+len(c.Prefixes)+len(c.Hosts) > maxStrings || len(appendChange(nil, &c)) > maxChangeLen {
			return nil, fmt.Errorf("change of kind %d: %w", c.Kind, ErrChangeLen)
		}
		cs[i] = &c
	}
	if len(cs) == 0 {
		return nil, errors.New("there is no change to spread")
	}
	l := g.changes
	s := &Spreading{log: l, began: time.Now(), done: make(chan struct{})}
	l.do(func(now time.Duration) {
		s.seq = l.core.accept(now, cs)
		s.id = cs[len(cs)-1].ID
		for i, p := range l.core.peers {
			s.nodes = append(s.nodes, MemberProgress{Name: p.name, Gone: !p.up})
			l.waiting[p.name] = append(l.waiting[p.name], s)
			if p.up {
				s.left++
			} else {
				s.marked = append(s.marked, i)
			}
		}
		if s.left == 0 {
			close(s.done)
		}
		l.rememberLocked(s)
	})
	return s, nil
}

// Spread enters changes into the log: it has OnChange apply them here, then
// sends them to every other member, and returns when they are applied here and
// durable. The [Spreading] tells how far they are on the others, and waits for
// them. Members that can't be reached, or join later, apply them when they
// come; none is forgotten within an hour.
//
// It fails when a change is too long ([ErrChangeLen]), or the log can't be
// written; in the latter case the changes are spread all the same, and the
// Spreading is not nil.
//
// A member may apply changes in another order than they were entered, and does
// not apply one twice; after a restart it may.
func (g *Gossip) Spread(changes ...Change) (*Spreading, error) {
	s, err := g.enter(changes)
	if err != nil {
		return nil, err
	}
	if g.changes.file != nil {
		if err := g.changes.file.wait(); err != nil {
			return s, fmt.Errorf("the log of purges can't be written: %w", err)
		}
	}
	return s, nil
}

// Find returns the Spreading of the change with an id; nil when it is none of
// this member's last 4096.
func (g *Gossip) Find(id string) *Spreading {
	g.changes.mu.Lock()
	defer g.changes.mu.Unlock()
	return g.changes.byID[id]
}
