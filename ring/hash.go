package ring

import "github.com/cespare/xxhash/v2"

// pointsPerWeight is the number of virtual nodes of a member of weight 1.
//
// A member's share of the circle has a relative standard deviation of about
// 1/sqrt(points): 6.3 % at 256, 12.5 % at 64, 3.1 % at 1024. At 256 a ring of
// 64 members takes 16 384 points, 256 KiB with the index, and still fits a
// level-2 cache; each doubling halves the variance and doubles the memory.
const pointsPerWeight = 256

// golden is 2^64 divided by the golden ratio, rounded to an odd number: the
// increment of the SplitMix64 generator (Steele, Lea and Flood 2014).
const golden = 0x9e3779b97f4a7c15

// mix is SplitMix64's output function: a bijection of 64 bits in which every
// input bit reaches every output bit.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// point returns the position of the i-th virtual node of a member: the i-th
// output of a SplitMix64 generator that is seeded with the hash of its name.
// It needs no mixing of its arguments by the caller.
func point(nameHash uint64, i int) uint64 {
	return mix(nameHash + uint64(i+1)*golden)
}

// nameHash is the seed of a member's points.
func nameHash(name string) uint64 {
	return xxhash.Sum64String(name)
}
