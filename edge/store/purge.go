package store

// Purged counts what a purge did.
type Purged struct {
	Dropped int
	Marked  int
}

// Purge shows every stored response, in all partitions, to judge, which
// returns what shall stand in its place: r itself to keep it, nil to drop it,
// or another, not yet stored, to mark it (a soft purge returns r.With(...)). A
// mark for which there is no room drops the response.
//
// No lock is held while judge runs; it is held to list the keys of a few
// buckets, and to take a response out; requests are served meanwhile. When a key changes between judgement and deed, all its
// responses are judged again.
//
// What is stored when Purge is called and still there at its turn is judged.
// What is put meanwhile may be missed: a caller that fetches while it purges
// checks for itself whether a response began before the purge.
func (s *Store) Purge(judge func(url string, r *Response) *Response) Purged {
	var sum Purged
	for _, p := range s.parts {
		done := p.purge(judge)
		sum.Dropped += done.Dropped
		sum.Marked += done.Marked
	}
	return sum
}

// purgeBuckets is how many buckets of the index are listed under the lock. Each
// costs a cache miss or two, 10 µs in all; a shard at a time had stopped
// puts, and look-ups that take a response out, for 3 ms.
const purgeBuckets = 64

func (p *partition) purge(judge func(url string, r *Response) *Response) Purged {
	var sum Purged
	var es []*entry
	var fate []*Response
	for i := range p.shards {
		var walked *table
		for at := 0; ; at += purgeBuckets {
			p.mu.Lock()
			t := p.shards[i].table.Load()
			if t != walked { // the entries have moved: from the start
				walked, at = t, 0
			}
			es = t.entries(es[:0], at, at+purgeBuckets)
			p.mu.Unlock()
			for _, e := range es {
				fate = p.purgeEntry(e, judge, fate, &sum)
			}
			clear(es) // what was evicted meanwhile need not live on
			if at+purgeBuckets >= len(t.buckets) {
				break
			}
		}
	}
	return sum
}

// maxJudgements bounds how often a key is judged that changes all the time;
// then all it holds came after the purge began.
const maxJudgements = 8

// purgeEntry judges e's responses without the lock, then acts under it if they
// are still the same. fate is scratch space.
func (p *partition) purgeEntry(e *entry, judge func(string, *Response) *Response, fate []*Response, sum *Purged) []*Response {
	for range maxJudgements {
		l := e.list.Load()
		if l == nil {
			break
		}
		fate = fate[:0]
		keep := true
		for _, r := range l.rs {
			next := judge(e.url, r)
			keep = keep && next == r
			fate = append(fate, next)
		}
		if keep || p.applyFate(e, l, fate, sum) {
			break
		}
	}
	clear(fate)
	return fate
}

// applyFate does what was judged, if e still holds l.
func (p *partition) applyFate(e *entry, l *list, fate []*Response, sum *Purged) bool {
	k := &Key{URL: e.url, Hash: e.hash, Filter: e.filter}
	fits := make([]bool, len(fate))
	for i, next := range fate {
		fits[i] = next != nil && next != l.rs[i] && p.take(k, next) == Stored
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cleared := p.shard(e.hash).table.Load().find(k) != e
	if cleared || e.list.Load() != l {
		for i, next := range fate {
			if fits[i] {
				next.taken.Store(false)
			}
		}
		return cleared // it is not stored any more
	}
	// From the oldest to the newest, since each mark becomes the newest.
	for i := len(fate) - 1; i >= 0; i-- {
		r := l.rs[i]
		switch {
		case fate[i] == r:
		case r.entry == nil: // made room for its sibling's mark
		case fits[i]:
			p.installLocked(k, nil, r, fate[i])
			p.count.marked++
			sum.Marked++
		default:
			p.dropLocked(r)
			p.count.purged++
			sum.Dropped++
		}
	}
	return true
}
