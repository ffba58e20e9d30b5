package store

// Clear drops everything that a partition holds, in a time that does not depend
// on how much that is, and makes next, which must be empty and told nothing by
// anyone else, its filter. It does nothing and returns false while a Rebuild of
// the partition runs.
//
// What was stored is the collector's from then on; its memory is not counted
// any more.
func (s *Store) Clear(part int, next Filter) bool {
	return s.parts[part].clear(next)
}

func (p *partition) clear(next Filter) bool {
	if !p.rebuilding.TryLock() {
		return false
	}
	defer p.rebuilding.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.shards {
		sh := &p.shards[i]
		// A walk that has missed its key in the old table looks again.
		sh.table.Load().stale.Store(true)
		sh.table.Store(newTable(minBuckets))
	}
	p.count.purged += uint64(p.objects)
	p.count.dropped.add(p.keys, int(p.urls))
	p.objects, p.keys, p.urls = 0, 0, 0
	hits := p.policy.ghostHits
	p.policy = newS3FIFO(p.limit)
	p.policy.ghostHits = hits
	p.tags = newTagIndex(p.limit)
	p.used.Store(p.base)
	if next != nil {
		p.filter.Store(&next)
	} else {
		p.filter.Store(nil)
	}
	return true
}
