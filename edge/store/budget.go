package store

import "sync/atomic"

// Budget is a hard limit on bytes that several goroutines share: memory for
// bodies that are still arriving, which no partition counts yet. Make it with
// [NewBudget]; methods are safe for concurrent use and take no lock.
type Budget struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
}

// NewBudget makes a budget of limit bytes; below 0 counts as 0.
func NewBudget(limit int64) *Budget { return &Budget{limit: max(limit, 0)} }

// Reserve takes n bytes and reports whether it did: all of them, or none when
// they would pass the limit. It panics when n is negative.
func (b *Budget) Reserve(n int64) bool {
	if n < 0 {
		panic("store: negative reservation")
	}
	for {
		used := b.used.Load()
		if n > b.limit-used {
			b.refused.Add(1)
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Release gives back n bytes that Reserve took. It panics when more is given
// back than was taken: then the limit would be none.
func (b *Budget) Release(n int64) {
	if n < 0 || b.used.Add(-n) < 0 {
		panic("store: more released than was reserved")
	}
}

// Used returns the bytes taken at the moment.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns the limit.
func (b *Budget) Limit() int64 { return b.limit }

// Refused returns how often Reserve said no.
func (b *Budget) Refused() uint64 { return b.refused.Load() }
