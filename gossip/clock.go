package gossip

import (
	"sync"
	"time"
)

// clock is a hybrid logical clock (Kulkarni et al. 2014): its stamps follow the
// wall clock and yet are larger than any stamp seen before, whatever other
// members' clocks say. A stamp is milliseconds since 1970 above a counter of 16
// bits. Safe for concurrent use; the zero value is ready.
type clock struct {
	mu   sync.Mutex
	last uint64
}

// maxAhead is how far another member's clock may be ahead of ours for its
// stamps to move ours: one that is years ahead must not take all others along.
const maxAhead = time.Minute

func wallStamp(now time.Time) uint64 { return uint64(max(now.UnixMilli(), 0)) << 16 }

// next returns a stamp that is larger than all before.
func (c *clock) next(now time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, wallStamp(now))
	return c.last
}

// merge takes note of another member's stamp, and reports whether it is one
// that can be: not more than a minute ahead.
func (c *clock) merge(stamp uint64, now time.Time) bool {
	if stamp > wallStamp(now.Add(maxAhead)) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, stamp)
	return true
}
