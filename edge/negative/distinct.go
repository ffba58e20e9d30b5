package negative

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	distinctBits   = 12 // 4096 registers: a standard error of 1.6 %
	distinctN      = 1 << distinctBits
	distinctWindow = time.Minute
)

// Distinct estimates how many distinct keys were seen in a minute, in 33 KB
// whatever their number: HyperLogLog (Flajolet et al. 2007) over two rotating
// windows. It tells a crawler that repeats itself from a flood of ever new
// keys, which look the same to a counter of requests.
//
// The zero Distinct is ready for use. Its methods are safe for concurrent use;
// Add takes no lock but once a minute.
type Distinct struct {
	current, previous atomic.Pointer[window]
	mu                sync.Mutex // held to turn
}

// window has, for each class of hashes, the longest run of zeros that one of
// them began with, plus one; 0: none came.
type window struct {
	since     time.Time
	registers [distinctN]atomic.Uint32
}

// Add notes a key by its hash, which must be well mixed; one with a secret seed
// keeps the estimate out of the keys' senders' hands.
func (d *Distinct) Add(hash uint64, now time.Time) {
	w := d.turn(now)
	r := &w.registers[hash>>(64-distinctBits)]
	rank := uint32(bits.LeadingZeros64(hash<<distinctBits|1<<(distinctBits-1)) + 1)
	for {
		old := r.Load()
		if rank <= old || r.CompareAndSwap(old, rank) {
			return
		}
	}
}

// turn returns the window of now.
func (d *Distinct) turn(now time.Time) *window {
	if w := d.current.Load(); w != nil && now.Sub(w.since) < distinctWindow {
		return w
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.current.Load()
	if w != nil && now.Sub(w.since) < distinctWindow {
		return w
	}
	d.previous.Store(nil)
	if w != nil && now.Sub(w.since) < 2*distinctWindow {
		d.previous.Store(w)
	}
	next := &window{since: now}
	d.current.Store(next)
	return next
}

// Estimate returns about how many distinct keys were added in the last whole
// minute or, when they are more already, in the one that runs.
func (d *Distinct) Estimate(now time.Time) float64 {
	d.turn(now)
	most := 0.0
	for _, p := range []*atomic.Pointer[window]{&d.current, &d.previous} {
		if w := p.Load(); w != nil {
			most = max(most, w.estimate())
		}
	}
	return most
}

// estimate is the raw estimator, and linear counting where few came. Hashes of
// 64 bits need no correction for many.
func (w *window) estimate() float64 {
	sum, empty := 0.0, 0
	for i := range w.registers {
		r := w.registers[i].Load()
		sum += math.Ldexp(1, -int(r))
		if r == 0 {
			empty++
		}
	}
	const m = float64(distinctN)
	e := 0.7213 / (1 + 1.079/m) * m * m / sum
	if e <= 2.5*m && empty > 0 {
		return m * math.Log(m/float64(empty))
	}
	return e
}
