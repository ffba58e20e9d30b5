package negative

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
)

// pathSet is a Bloom filter over the hashes of paths, in blocks of 512 bits:
// one cache line a look-up. A key sets one bit in each of its block's eight
// words of 64. Bits are only ever added, so it takes no lock.
//
// With a mean of l keys to a block their number is Poisson distributed, and
// the expected false-positive probability is the mean of (1 - (63/64)^i)^8
// over it. A chance of 0.1 % takes 15.7 bits a key.
type pathSet struct {
	words []atomic.Uint64 // eight to a block
}

const (
	blockWords = 8
	minRate    = 1e-5
	maxRate    = 0.1
)

// newPathSet returns a set for n keys.
func newPathSet(n int, rate float64) (*pathSet, error) {
	if !(rate >= minRate && rate <= maxRate) {
		return nil, fmt.Errorf("rate %g is not between %g and %g", rate, minRate, maxRate)
	}
	// The mean load that gives the rate, by bisection.
	lo, hi := 0.1, 512.0
	for range 60 {
		if mid := (lo + hi) / 2; blockRate(mid) > rate {
			hi = mid
		} else {
			lo = mid
		}
	}
	blocks := int(float64(n)/lo) + 1
	return &pathSet{words: make([]atomic.Uint64, blocks*blockWords)}, nil
}

// blockRate is the expected false-positive probability at a mean of l keys to
// a block.
func blockRate(l float64) float64 {
	sum, poisson := 0.0, math.Exp(-l)
	for i := 0; float64(i) < l+12*math.Sqrt(l)+12; i++ {
		if i > 0 {
			poisson *= l / float64(i)
		}
		sum += poisson * math.Pow(1-math.Pow(63.0/64, float64(i)), 8)
	}
	return sum
}

// block returns the words of the hash's block, and six bits for each of them.
// The bits come from the hash mixed once more: taken from the bits that chose
// the block, they would repeat with it.
func (s *pathSet) block(hash uint64) ([]atomic.Uint64, uint64) {
	b, _ := bits.Mul64(hash, uint64(len(s.words)/blockWords))
	return s.words[b*blockWords : b*blockWords+blockWords], remix(hash)
}

// remix turns a well mixed hash into another that seems independent of it: the
// finaliser of splitmix64.
func remix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *pathSet) has(hash uint64) bool {
	w, z := s.block(hash)
	for i := range w {
		if w[i].Load()>>(z&63)&1 == 0 {
			return false
		}
		z >>= 6
	}
	return true
}

func (s *pathSet) add(hash uint64) {
	w, z := s.block(hash)
	for i := range w {
		w[i].Or(1 << (z & 63))
		z >>= 6
	}
}

// fill is add for a set that nobody else knows yet.
func (s *pathSet) fill(hash uint64) {
	w, z := s.block(hash)
	for i := range w {
		w[i].Store(w[i].Load() | 1<<(z&63))
		z >>= 6
	}
}
