package edge

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"edged/edge/rfc9111"
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

// prober samples the look-ups that asked no peer. Safe for concurrent use.
type prober struct {
	mu      sync.Mutex
	tokens  float64
	refill  time.Time
	samples float64
	missed  float64 // of the samples, weighted by the number of peers skipped
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
	if had {
		p.missed += float64(skipped)
	}
}

// estimate is the share of the skipped look-ups that a peer could have
// answered; 0 before the first sample.
func (p *prober) estimate() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.samples == 0 {
		return 0
	}
	return min(1, p.missed/p.samples)
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
	scheme, host := n.memberURL(p)
	req := fw.request(n.ctx, scheme, host, false)
	req.Method = http.MethodHead
	req.Header.Set("Cache-Control", "only-if-cached")
	req.Header.Set(shield.HopField, string(shield.HopPeer))
	n.loop(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		resp, err := n.peerClient.RoundTrip(req.WithContext(ctx))
		if err != nil {
			n.metrics.probes.WithLabelValues(probeError).Inc()
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		had := lastCacheStatus(resp.Header).Hit
		n.prober.add(len(skipped), had)
		if had {
			n.metrics.probes.WithLabelValues(probeMissed).Inc()
		} else {
			n.metrics.probes.WithLabelValues(probeAbsent).Inc()
		}
	})
}

// lastCacheStatus returns what the node that sent a response says of itself.
func lastCacheStatus(h http.Header) rfc9111.CacheStatus {
	all, ok := rfc9111.ParseCacheStatus(h["Cache-Status"])
	if !ok || len(all) == 0 {
		return rfc9111.CacheStatus{}
	}
	return all[len(all)-1]
}
