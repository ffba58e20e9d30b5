package negative

import "sync/atomic"

// budget is a hard limit on bytes that many holders share.
type budget struct {
	used  atomic.Int64
	limit int64
}

// take reserves n bytes and reports whether they were free.
func (b *budget) take(n int64) bool {
	for {
		u := b.used.Load()
		if u+n > b.limit {
			return false
		}
		if b.used.CompareAndSwap(u, u+n) {
			return true
		}
	}
}

func (b *budget) release(n int64) { b.used.Add(-n) }

// fits reports whether n more bytes would be granted now.
func (b *budget) fits(n int64) bool { return b.used.Load()+n <= b.limit }
