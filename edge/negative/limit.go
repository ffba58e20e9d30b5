package negative

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"edged/peerfilter"
)

// limiter decides which new keys become entries.
//
// All together have a bucket of one second's worth of new entries. While it is
// at least half full nobody is asked who he is. Below, each client network
// (/24, or /56 in IPv6) may create its fair share in each second: the rate
// divided by the number of networks that created in this second or the last.
//
// A key that is refused so, is remembered in the doorkeeper for a minute or
// two, less in a flood: when it comes a second time it is not one of ever new
// keys, and gets in, by a bucket of its own. So at most 2 x rate entries are created in a second.
type limiter struct {
	rate float64 // 0: no limit
	seed maphash.Seed

	mu         sync.Mutex
	bucket     float64
	repeat     float64
	last       int64 // milliseconds since the cache began
	second     uint32
	networks   int // that created in this second
	before     int // in the one before
	created    [2][]tally
	doorkeeper *peerfilter.Rotating
}

// tally counts one network's creations in one second. Networks that share a
// place in one row seldom share it in the other; the smaller count holds.
type tally struct{ second, n uint32 }

func newLimiter(rate, tallies, doorBytes int, seed maphash.Seed) *limiter {
	l := &limiter{rate: float64(rate), bucket: float64(rate), repeat: float64(rate), seed: seed}
	if rate > 0 {
		for i := range l.created {
			l.created[i] = make([]tally, tallies)
		}
		params := peerfilter.Params{Layout: peerfilter.LayoutSectors, Blocks: uint32(doorBytes / 64)}
		// It fails only for a size that New does not choose.
		l.doorkeeper, _ = peerfilter.NewRotating(peerfilter.RotatingConfig{Params: params, MaxAge: time.Minute})
	}
	return l
}

func limiterBytes(tallies, doorBytes int) int64 { return int64(2*tallies*8 + 2*doorBytes) }

// admit decides about a new key; now is in milliseconds since the cache began.
func (l *limiter) admit(hash uint64, client netip.Addr, now int64) (Reason, bool) {
	if l.rate == 0 {
		return "", true
	}
	network, known := l.network(client)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	var reason Reason
	switch {
	case known && l.bucket < l.rate/2 && float64(l.count(network)) >= l.share():
		reason = ReasonClient
	case l.bucket < 1:
		reason = ReasonRate
	default:
		l.bucket--
		if known {
			l.add(network)
		}
		return "", true
	}
	door := peerfilter.Hash{hash, remix(hash)}
	if l.doorkeeper.Add(door, time.UnixMilli(now)) && l.repeat >= 1 {
		l.repeat--
		return "", true
	}
	return reason, false
}

func (l *limiter) advance(now int64) {
	if now > l.last {
		more := l.rate * float64(now-l.last) / 1000
		l.bucket = min(l.rate, l.bucket+more)
		l.repeat = min(l.rate, l.repeat+more)
		l.last = now
	}
	// Seconds begin at 1, so that an unused tally belongs to none.
	if s := uint32(l.last/1000) + 1; s != l.second {
		l.before = 0
		if s == l.second+1 {
			l.before = l.networks
		}
		l.second, l.networks = s, 0
	}
}

func (l *limiter) share() float64 {
	return max(1, l.rate/float64(max(1, l.networks, l.before)))
}

// network hashes the client's network; known is false for the zero Addr.
func (l *limiter) network(client netip.Addr) (hash uint64, known bool) {
	if !client.IsValid() {
		return 0, false
	}
	client = client.Unmap()
	n := 56
	if client.Is4() {
		n = 24
	}
	p, err := client.WithZone("").Prefix(n)
	if err != nil {
		return 0, false
	}
	b := p.Addr().As16()
	return maphash.Bytes(l.seed, b[:]), true
}

func (l *limiter) tallies(network uint64) (a, b *tally) {
	n := uint64(len(l.created[0]))
	return &l.created[0][network%n], &l.created[1][(network>>32)%n]
}

func (l *limiter) count(network uint64) uint32 {
	a, b := l.tallies(network)
	return min(a.of(l.second), b.of(l.second))
}

func (l *limiter) add(network uint64) {
	a, b := l.tallies(network)
	if min(a.of(l.second), b.of(l.second)) == 0 {
		l.networks++
	}
	*a = tally{l.second, a.of(l.second) + 1}
	*b = tally{l.second, b.of(l.second) + 1}
}

func (t *tally) of(second uint32) uint32 {
	if t.second != second {
		return 0
	}
	return t.n
}
