package peerfilter

import (
	"math/bits"

	"github.com/twmb/murmur3"
)

// Hash is the 128-bit hash of one cache key under the cluster's secret seed.
// The first half picks the block, the second half the bits inside it, so both
// halves must be well mixed. [Sum] makes one; it is computed once a request.
//
// It is an alias so that packages that import nothing of ours can carry it.
type Hash = [2]uint64

// Seed is the cluster's secret: the same on all members, unknown outside, so
// that nobody can craft keys that collide. Filters made under different seeds
// have nothing to say about each other's keys.
type Seed [2]uint64

// Sum returns the hash of key under seed: murmur3 x64 128, its two lanes
// started from the two halves of the seed. Two nodes must agree on it, so it
// is frozen by golden values in testdata.
func Sum(seed Seed, key string) Hash {
	h0, h1 := murmur3.SeedStringSum128(seed[0], seed[1], key)
	return Hash{h0, h1}
}

// blockOf returns the block, among n, of a key whose hash has the first half
// h0: floor(h0*n / 2^64). It needs no power of two, and the top bits of h0 decide.
func blockOf(h0 uint64, n uint32) uint32 {
	hi, _ := bits.Mul64(h0, uint64(n))
	return uint32(hi)
}

// mix64 spreads a position over 64 bits (the splitmix64 step and finaliser,
// Steele, Lea, Flood 2014). The step comes first so that position 0 counts.
func mix64(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
