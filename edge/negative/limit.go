package negative

import (
	"hash/maphash"
	"net/netip"
	"strings"
	"sync"
	"time"

	"edged/peerfilter"
)

// limiter decides which new keys become entries.
//
// Each site has a bucket of one second's worth of new entries, so that a flood
// of one costs another nothing. While it is at least half full nobody is asked
// who he is. Below, each client network (/24, or /56 in IPv6) may create its
// fair share in each second: the rate divided by the number of networks that
// created in this second or the last.
//
// A key that is refused so, is remembered in the doorkeeper for a minute or
// two, less in a flood: when it comes a second time it is not one of ever new
// keys, and gets in, by a bucket of its own. So at most 2 x rate entries of a
// site are created in a second.
//
// Tallies and doorkeeper are the same for all sites: what a client can make of
// them is bounded, whatever it asks for. Sites come from the configuration.
type limiter struct {
	rate   float64 // 0: no limit
	seed   maphash.Seed
	budget *budget // for more sites

	mu         sync.Mutex
	sites      map[string]*siteLimit
	others     *siteLimit // of sites for which there is no memory
	created    [2][]tally
	doorkeeper *peerfilter.Rotating
}

// siteLimit is what the sites don't share.
type siteLimit struct {
	salt     uint64 // keeps a network's tallies apart from those with other sites
	bucket   float64
	repeat   float64
	last     int64 // milliseconds since the cache began
	second   uint32
	networks int // that created in this second
	before   int // in the one before
}

// siteLimitBytes is the size of a siteLimit and its place in the map, rounded
// up, but for the name.
const siteLimitBytes = 160

// tally counts one network's creations in one second. Networks that share a
// place in one row seldom share it in the other; the smaller count holds.
type tally struct{ second, n uint32 }

func newLimiter(rate, tallies, doorBytes int, seed maphash.Seed, b *budget) *limiter {
	l := &limiter{rate: float64(rate), seed: seed, budget: b, sites: map[string]*siteLimit{}}
	l.others = l.newSite("")
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

func (l *limiter) newSite(name string) *siteLimit {
	return &siteLimit{salt: maphash.String(l.seed, name), bucket: l.rate, repeat: l.rate}
}

// siteLocked returns the site's part, made when there is none.
func (l *limiter) siteLocked(name string) *siteLimit {
	s := l.sites[name]
	if s == nil {
		if !l.budget.take(siteLimitBytes + int64(len(name))) {
			return l.others
		}
		s = l.newSite(name)
		l.sites[strings.Clone(name)] = s
	}
	return s
}

func limiterBytes(tallies, doorBytes int) int64 { return int64(2*tallies*8 + 2*doorBytes) }

// admit decides about a site's new key; now is in milliseconds since the cache
// began.
func (l *limiter) admit(hash uint64, site string, client netip.Addr, now int64) (Reason, bool) {
	if l.rate == 0 {
		return "", true
	}
	network, known := l.network(client)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.siteLocked(site)
	s.advance(now, l.rate)
	network ^= s.salt
	var reason Reason
	switch {
	case known && s.bucket < l.rate/2 && float64(l.count(network, s.second)) >= s.share(l.rate):
		reason = ReasonClient
	case s.bucket < 1:
		reason = ReasonRate
	default:
		s.bucket--
		if known && l.add(network, s.second) {
			s.networks++
		}
		return "", true
	}
	door := peerfilter.Hash{hash, remix(hash)}
	if l.doorkeeper.Add(door, time.UnixMilli(now)) && s.repeat >= 1 {
		s.repeat--
		return "", true
	}
	return reason, false
}

func (s *siteLimit) advance(now int64, rate float64) {
	if now > s.last {
		more := rate * float64(now-s.last) / 1000
		s.bucket = min(rate, s.bucket+more)
		s.repeat = min(rate, s.repeat+more)
		s.last = now
	}
	// Seconds begin at 1, so that an unused tally belongs to none.
	if sec := uint32(s.last/1000) + 1; sec != s.second {
		s.before = 0
		if sec == s.second+1 {
			s.before = s.networks
		}
		s.second, s.networks = sec, 0
	}
}

// share is what one network may create in a second.
func (s *siteLimit) share(rate float64) float64 {
	return max(1, rate/float64(max(1, s.networks, s.before)))
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

func (l *limiter) count(network uint64, second uint32) uint32 {
	a, b := l.tallies(network)
	return min(a.of(second), b.of(second))
}

// add counts a creation and reports whether it is the network's first one in
// this second.
func (l *limiter) add(network uint64, second uint32) (first bool) {
	a, b := l.tallies(network)
	first = min(a.of(second), b.of(second)) == 0
	*a = tally{second, a.of(second) + 1}
	*b = tally{second, b.of(second) + 1}
	return first
}

func (t *tally) of(second uint32) uint32 {
	if t.second != second {
		return 0
	}
	return t.n
}
