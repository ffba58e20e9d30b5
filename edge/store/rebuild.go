package store

// Rebuild fills next, which must be empty and told nothing by anyone else, with
// the partition's keys and makes it the partition's filter. Requests are served
// meanwhile, and the present filter stays exact until the exchange.
//
// It goes shard by shard under the lock; from its turn on, a shard's changes
// go to both filters. When it returns, the former filter is told nothing any
// more. A second Rebuild of the partition waits for the first. It does nothing
// when next, a pointer like all filters, is the present filter.
func (s *Store) Rebuild(part int, next Filter) {
	s.parts[part].rebuild(next)
}

func (p *partition) rebuild(next Filter) {
	p.rebuilding.Lock()
	defer p.rebuilding.Unlock()
	if f := p.filter.Load(); f != nil && *f == next {
		return
	}
	var hashes [][2]uint64
	for i := range p.shards {
		hashes = p.moveShard(&p.shards[i], next, hashes[:0])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filter.Store(&next)
	p.next = nil
	for i := range p.shards {
		p.shards[i].moved = false
	}
}

// adder is a filter that is told many keys at once in less time.
type adder interface{ AddAll(hs [][2]uint64) }

// moveShard tells next the shard's keys. It collects them in hashes, and
// returns that for the next shard.
func (p *partition) moveShard(sh *shard, next Filter, hashes [][2]uint64) [][2]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
	t := sh.table.Load()
	for i := range t.buckets {
		for e := t.buckets[i].Load(); e != nil; e = e.next.Load() {
			hashes = append(hashes, e.filter)
		}
	}
	if many, ok := next.(adder); ok {
		many.AddAll(hashes)
	} else {
		for _, h := range hashes {
			next.Add(h)
		}
	}
	sh.moved = true
	return hashes
}
