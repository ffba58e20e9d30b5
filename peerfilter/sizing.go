package peerfilter

import (
	"fmt"
	"math"
)

// Sizing is the answer of [Size]: what one filter looks like and what it costs
// when each peer is to have one.
type Sizing struct {
	Keys  int     // planned keys of one filter, n
	Peers int     // planned number of peers, P
	Total float64 // target: chance that a key that no peer has draws a request to some peer
	Rate  float64 // target of one filter: 1 - (1-Total)^(1/P)

	Params       Params
	Bits         uint64  // m
	K            int     // bits a key sets
	BitsPerKey   float64 // m/n
	Fill         float64 // share of bits set at Keys keys
	ExpectedRate float64 // of one filter at Keys keys; at most Rate, since blocks are whole
	ClassicBits  uint64  // what an unblocked filter with the best k would need, for comparison

	BitBytes        uint64 // published bits of one filter; its shadow has as many again
	CounterBytes    uint64 // 4-bit counters of one filter
	ReplicaBytes    uint64 // one member's column of bits
	AllReplicaBytes uint64 // the matrix of Peers members, unused lanes included
}

// Size plans a filter for keys keys such that a key that nobody has draws a
// request to any of peers peers with probability total. It fails when an
// argument is out of range or the filter would have more than 2^32 bits.
//
// The size follows from the blocked layout's own formula, see [Rate]; the
// textbook formula would promise a rate that blocks do not keep.
func Size(keys int, total float64, peers int) (Sizing, error) {
	switch {
	case keys < 1:
		return Sizing{}, fmt.Errorf("size filter: %d keys: want at least 1", keys)
	case !(total > 0 && total < 1):
		return Sizing{}, fmt.Errorf("size filter: rate %v: want above 0 and below 1", total)
	case peers < 1 || peers > MaxMembers:
		return Sizing{}, fmt.Errorf("size filter: %d peers: want 1 to %d", peers, MaxMembers)
	}
	rate := -math.Expm1(math.Log1p(-total) / float64(peers))
	blocks := math.Ceil(float64(keys) / keysPerBlock(rate))
	if blocks > MaxBlocks {
		return Sizing{}, fmt.Errorf("size filter: %d keys at a rate of %.3g need %.0f bits: at most 2^32 are possible", keys, rate, blocks*BlockBits)
	}
	s := Sizing{
		Keys:   keys,
		Peers:  peers,
		Total:  total,
		Rate:   rate,
		Params: Params{Layout: LayoutSectors, Blocks: uint32(blocks)},
		K:      K,
	}
	s.Bits = s.Params.Bits()
	s.BitsPerKey = float64(s.Bits) / float64(keys)
	s.Fill = Fill(s.Params, float64(keys))
	s.ExpectedRate = Rate(s.Params, float64(keys))
	s.ClassicBits = uint64(math.Ceil(-float64(keys) * math.Log(rate) / (math.Ln2 * math.Ln2)))
	s.BitBytes = s.Bits / 8
	s.CounterBytes = s.Bits * counterBits / 8
	s.ReplicaBytes = s.Bits / 8
	s.AllReplicaBytes = s.ReplicaBytes * uint64(lanesFor(peers))
	return s, nil
}

// Rate is the expected false-positive probability of a filter of layout p that
// holds keys keys. With L = keys/blocks keys a block on average, a block holds
// j of them with Poisson probability, and then each of its eight sectors has
// the asked bit set with probability 1 - (63/64)^j:
//
//	Rate = sum over j of Poisson(j; L) * (1 - (63/64)^j)^8
func Rate(p Params, keys float64) float64 {
	return rateAt(keys / float64(p.Blocks))
}

// Fill is the expected share of bits set in a filter of layout p that holds
// keys keys: 1 - e^(-8 keys/m).
func Fill(p Params, keys float64) float64 {
	return -math.Expm1(-keys * K / float64(p.Bits()))
}

// KeysAt inverts [Fill]: the number of keys that a filter of layout p probably
// holds when the share fill of its bits is set.
func KeysAt(p Params, fill float64) float64 {
	return -math.Log1p(-fill) * float64(p.Bits()) / K
}

// rateAt is [Rate] for a mean of load keys a block.
func rateAt(load float64) float64 {
	switch {
	case !(load > 0):
		return 0
	case load > 1<<16:
		return 1 // (63/64)^65536 is below 10^-448
	}
	// Beyond twelve standard deviations (and 40 for small means) the Poisson
	// weights are below 10^-30.
	width := 12*math.Sqrt(load) + 40
	lo, hi := math.Max(0, math.Floor(load-width)), math.Ceil(load+width)
	var sum float64
	for j := lo; j <= hi; j++ {
		lg, _ := math.Lgamma(j + 1)
		weight := math.Exp(j*math.Log(load) - load - lg)
		sum += weight * math.Pow(-math.Expm1(j*math.Log(63.0/64)), K)
	}
	return math.Min(sum, 1)
}

// keysPerBlock inverts rateAt, which is monotonic, by bisection.
func keysPerBlock(rate float64) float64 {
	lo, hi := 0.0, 1.0
	for rateAt(hi) < rate && hi < 1<<16 {
		hi *= 2
	}
	for range 100 {
		mid := (lo + hi) / 2
		if rateAt(mid) <= rate {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
