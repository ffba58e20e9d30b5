package edge

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/shield"
)

// A filter that says "definitely absent" is believed, so a replica that is
// late or wrong shows as nothing but origin requests. Therefore a few of the
// look-ups that asked nobody are checked behind the client's back: one of the
// peers that were skipped, drawn at random, is asked after all.

const (
	probesPerSecond = 10
	probeTimeout    = 2 * time.Second
)

// The results of a probe.
const (
	probeAbsent = "absent" // the filter was right
	probeMissed = "missed" // the peer had it
	probeError  = "error"  // no answer
)

var probeResults = []string{probeAbsent, probeMissed, probeError}

// Why a peer had what its replica here called absent. Asked again some seconds
// later, a replica that was only late knows it; one that does not, though it is
// in sequence and the peer has the response still, is not what the peer
// published. Time alone cannot tell: what a peer says of when it stored a
// response is of its clock, and of when the response began.
const (
	missedLate     = "late"     // news take time
	missedDiverged = "diverged" // a fault: must never happen
	missedUnclear  = "unclear"  // the peer or its replica is gone, or the response
)

var missedClasses = []string{missedLate, missedDiverged, missedUnclear}

const (
	// recheckAfter is when a miss is looked at again: many flushes of a filter
	// later, and heads. recheckTimes in a row must agree on a fault, for
	// a response may be evicted and stored again between two of them.
	recheckAfter = 5 * time.Second
	recheckTimes = 3

	maxRechecks = 16 // under way at once
)

// prober samples the look-ups that asked no peer. Safe for concurrent use.
type prober struct {
	mu      sync.Mutex
	tokens  float64
	refill  time.Time
	samples float64
	missed  float64 // of the samples, weighted by the number of peers skipped
	squares float64 // of these weights
	largest float64 // weight of any sample, had it missed
}

// take reports whether one more probe may be sent now.
func (p *prober) take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens = min(probesPerSecond, p.tokens+now.Sub(p.refill).Seconds()*probesPerSecond)
	p.refill = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// add counts a sample: one of skipped peers was asked, and had it or not. One
// peer of many stands for all of them (Horvitz and Thompson 1952).
func (p *prober) add(skipped int, had bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples++
	w := float64(skipped)
	p.largest = max(p.largest, w)
	if had {
		p.missed += w
		p.squares += w * w
	}
}

// estimate is the share of the skipped look-ups that a peer could have
// answered, with its interval of 95 %: two standard errors of a mean of weights,
// and where nothing was missed yet the rule of three (Hanley and Lippman-Hand
// 1983). Before the first sample nothing is known: 0, 0 and 1.
func (p *prober) estimate() (share, low, high float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.samples == 0 {
		return 0, 0, 1
	}
	mean := p.missed / p.samples
	if p.missed == 0 {
		return 0, 0, min(1, 3*p.largest/p.samples)
	}
	half := 2 * math.Sqrt(max(0, p.squares/p.samples-mean*mean)/p.samples)
	return min(1, mean), min(1, max(0, mean-half)), min(1, mean+half)
}

// probeSkipped checks a look-up that asked nobody, now and then.
func (n *Node) probeSkipped(t *topology, fw *forward, known func(string) bool) {
	now := time.Now()
	if !n.prober.take(now) {
		return
	}
	var skipped []*peer
	for name, p := range t.peers {
		if known(name) && p.usable(now) {
			skipped = append(skipped, p)
		}
	}
	if len(skipped) == 0 {
		return
	}
	p := skipped[rand.IntN(len(skipped))]
	// The forward goes on meanwhile, so what is asked is made now.
	scheme, host := n.memberURL(p)
	req := fw.request(n.ctx, scheme, host, false)
	req.Method = http.MethodHead
	req.Header.Set("Cache-Control", "only-if-cached")
	req.Header.Set(shield.HopField, string(shield.HopPeer))
	part, key := fw.part, fw.key
	n.loop(func(ctx context.Context) {
		had, err := n.probe(ctx, req)
		switch {
		case err != nil:
			n.metrics.probes.WithLabelValues(probeError).Inc()
			return
		case !had:
			n.prober.add(len(skipped), false)
			n.metrics.probes.WithLabelValues(probeAbsent).Inc()
			return
		}
		n.prober.add(len(skipped), true)
		n.metrics.probes.WithLabelValues(probeMissed).Inc()
		class := missedUnclear
		select {
		case n.rechecks <- struct{}{}:
			class = n.classifyMiss(ctx, req, part, key, p)
			<-n.rechecks
		default:
		}
		n.metrics.missed.WithLabelValues(class).Inc()
		if class == missedDiverged {
			n.log.Error("a peer's filter here lacks what the peer has, though it is in sequence: a fault, or partitions that are configured otherwise there",
				"peer", p.name, "partition", n.cfg.Cache.Partitions[part].Name, "key", key.URL)
		}
	})
}

// probe asks one peer whether it has the response.
func (n *Node) probe(ctx context.Context, req *http.Request) (had bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := n.peerClient.RoundTrip(req.Clone(ctx))
	if err != nil {
		return false, err
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return lastCacheStatus(resp.Header).Hit, nil
}

// classifyMiss finds out why a peer had what its replica here called absent.
func (n *Node) classifyMiss(ctx context.Context, req *http.Request, part int, key store.Key, p *peer) string {
	for range recheckTimes {
		select {
		case <-ctx.Done():
			return missedUnclear
		case <-p.gone:
			return missedUnclear
		case <-time.After(n.recheckAfter):
		}
		// The replica before the peer: what is stored in between is no fault.
		set := n.gossip.Lookup(part, key.Filter)
		if set.Contains(p.name) {
			return missedLate
		}
		if !set.Known(p.name) {
			return missedUnclear
		}
		if had, err := n.probe(ctx, req); err != nil || !had {
			return missedUnclear
		}
	}
	return missedDiverged
}

// lastCacheStatus returns what the node that sent a response says of itself.
func lastCacheStatus(h http.Header) rfc9111.CacheStatus {
	all, ok := rfc9111.ParseCacheStatus(h["Cache-Status"])
	if !ok || len(all) == 0 {
		return rfc9111.CacheStatus{}
	}
	return all[len(all)-1]
}
