package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edged/edge/tracing"
	"edged/gossip"
	"edged/ring"
	"edged/shield"
)

const (
	// peerBudget is how long the peers may take before the shield or origin
	// request starts beside theirs.
	peerBudget = 30 * time.Millisecond

	// peerLast is how long they may take once that has failed, too, and there is
	// nobody else to ask.
	peerLast = time.Second

	// maxAsked is how many peers one look-up may ask.
	maxAsked = 2

	// peerConcurrency bounds the requests in flight to one peer.
	peerConcurrency = 64

	// hedgeDefault is after how long the second peer is asked while nothing
	// is known about the first one's answers.
	hedgeDefault = 5 * time.Millisecond

	// askNone is the value of Filter.Ask that leaves the peers alone.
	askNone = "none"
)

// peer is another member as this node sees it.
type peer struct {
	name string
	addr string // of its peer listener
	boot uint64

	slots chan struct{} // one token a request in flight
	gone  chan struct{} // closed when the member is not to be asked any more

	mu       sync.Mutex
	rtt      time.Duration // smoothed, to the answer's head; 0 unknown
	dev      time.Duration // smoothed deviation
	failures int           // in a row
	until    time.Time     // not asked before, after failures
	last     time.Time     // when it failed last
}

// usable reports whether the peer is worth asking now.
func (p *peer) usable(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.until)
}

func (p *peer) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rtt
}

// slow returns an estimate of the 95th percentile of the peer's answers: the
// smoothed round trip and two deviations (RFC 6298's estimator with a smaller
// factor).
func (p *peer) slow() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rtt == 0 {
		return hedgeDefault
	}
	return p.rtt + 2*p.dev
}

func (p *peer) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures, p.until = 0, time.Time{}
	if p.rtt == 0 {
		p.rtt, p.dev = took, took/2
		return
	}
	diff := took - p.rtt
	p.rtt += diff / 8
	if diff < 0 {
		diff = -diff
	}
	p.dev += (diff - p.dev) / 4
}

// failed backs off: 250 ms after the first failure, doubling up to 30 s. Of
// requests that were under way together, all of which one stall may fail, the
// first one to fail speaks for all: began is when the request did.
func (p *peer) failed(began, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if began.Before(p.last) {
		return
	}
	p.last = now
	p.failures++
	p.until = now.Add(min(250*time.Millisecond<<min(p.failures-1, 10), 30*time.Second))
}

// errNotMember is a request of a member that is none any more.
var errNotMember = errors.New("it is no member any more")

// topology is what the membership means for requests. It is immutable; peers
// carry over from one to the next.
type topology struct {
	members []gossip.Member
	peers   map[string]*peer // alive members but this one
	edges   *ring.Ring       // this node included, when it is one
	shields *ring.Ring
}

// newTopology builds the rings and peers of a member list.
func newTopology(self string, members []gossip.Member, old *topology) *topology {
	t := &topology{members: members, peers: map[string]*peer{}}
	var edges, shields []ring.Member
	for _, m := range members {
		if m.State != gossip.StateAlive && m.State != gossip.StateSuspect || m.Draining {
			continue
		}
		if m.Role == string(RoleShield) {
			shields = append(shields, ring.Member{Name: m.Name})
		} else {
			edges = append(edges, ring.Member{Name: m.Name})
		}
		if m.Name == self || m.State != gossip.StateAlive {
			// A suspected member keeps its place on the ring, so that keys
			// don't move for nothing, but is not asked.
			continue
		}
		if old != nil {
			if p := old.peers[m.Name]; p != nil && p.addr == m.PeerAddr && p.boot == m.Boot {
				t.peers[m.Name] = p
				continue
			}
		}
		t.peers[m.Name] = &peer{name: m.Name, addr: m.PeerAddr, boot: m.Boot, slots: make(chan struct{}, peerConcurrency), gone: make(chan struct{})}
	}
	if old != nil {
		for name, p := range old.peers {
			if t.peers[name] != p {
				close(p.gone)
			}
		}
	}
	t.edges, t.shields = ring.New(edges), ring.New(shields)
	return t
}

func (t *topology) usable(name string) bool {
	p := t.peers[name]
	return p != nil && p.usable(time.Now())
}

// plan is whom a look-up asks.
type plan struct {
	ask     []*peer
	all     bool // every one at once, for the control group
	unknown bool // decided without the filters
	counter *bloomCounters
	truth   *truth
	clean   atomic.Int32 // peers that said that they don't have it, not even stale
}

// choosePeers is the one look-up in the replicas that a forward makes, and
// counts it: the members that may hold the key, its ring owner first, then the
// quickest. The owner is asked too when its replica is not known.
func (n *Node) choosePeers(fw *forward) *plan {
	t := n.topo.Load()
	pl := &plan{counter: &n.metrics.bloom[fw.part], truth: &n.truths[fw.part]}
	if len(t.peers) == 0 {
		pl.unknown = true
		pl.counter.unknown.Inc()
		return pl
	}
	now := time.Now()
	if n.cfg.Filter.Off {
		pl.unknown, pl.all = true, true
		for _, p := range t.peers {
			if n.cfg.Filter.Ask != askNone && n.usable(p, now) {
				pl.ask = append(pl.ask, p)
			}
		}
		pl.counter.unknown.Inc()
		return pl
	}

	set := n.gossip.Lookup(fw.part, fw.key.Filter)
	owner := t.edges.Owner(fw.key.Hash)
	ownerUnknown := owner != n.cfg.Name && owner != "" && !set.Known(owner)
	if set.Len() > 0 {
		for name := range set.All() {
			if p := t.peers[name]; p != nil && n.usable(p, now) {
				pl.ask = append(pl.ask, p)
			}
		}
		slices.SortFunc(pl.ask, func(a, b *peer) int {
			switch {
			case a.name == owner:
				return -1
			case b.name == owner:
				return 1
			}
			return int(a.roundTrip() - b.roundTrip())
		})
	}
	if p := t.peers[owner]; ownerUnknown && p != nil && n.usable(p, now) {
		pl.ask = append([]*peer{p}, pl.ask...)
		pl.unknown = true
	}
	if len(pl.ask) > maxAsked {
		pl.ask = pl.ask[:maxAsked]
	}
	if len(pl.ask) == 0 {
		if set.Len() > 0 {
			// Someone may have it, but can't be asked now.
			pl.counter.unknown.Inc()
		} else {
			pl.counter.negative.Inc()
			pl.truth.add(false)
			n.probeSkipped(t, fw, set.Known)
		}
		pl.unknown = true // counted
		return pl
	}
	if pl.unknown {
		pl.counter.unknown.Inc()
	}
	return pl
}

// usable reports whether a peer that should be asked may be, and counts when
// it may not because it has failed lately.
func (n *Node) usable(p *peer, now time.Time) bool {
	if p.usable(now) {
		return true
	}
	n.metrics.backedOff.WithLabelValues(p.name).Inc()
	return false
}

// settle counts what asking came to, unless the look-up was counted already.
func (pl *plan) settle(hit bool) {
	switch {
	case pl.unknown:
	case hit:
		pl.counter.positiveHit.Inc()
	default:
		pl.counter.positiveMiss.Inc()
		if int(pl.clean.Load()) == len(pl.ask) {
			// Nobody had it, or has lately had it: the filters were wrong.
			pl.truth.add(true)
		}
	}
}

// askPeers asks as the plan says and returns the first stored response that a
// peer sends, or nil. The caller owns the response's body.
func (n *Node) askPeers(ctx context.Context, fw *forward, pl *plan) *upstream {
	type answer struct {
		i  int
		up *upstream
	}
	answers := make(chan answer, len(pl.ask))
	stops := make([]context.CancelFunc, len(pl.ask))
	pending, next := 0, 0
	ask := func() {
		i, p := next, pl.ask[next]
		next++
		pending++
		pctx, stop := context.WithCancel(ctx)
		stops[i] = stop
		go func() { answers <- answer{i, n.askPeer(pctx, fw, p, pl)} }()
	}
	ask()
	for pl.all && next < len(pl.ask) {
		ask()
	}
	hedge := time.NewTimer(pl.ask[0].slow())
	defer hedge.Stop()

	for pending > 0 {
		select {
		case a := <-answers:
			pending--
			if a.up == nil {
				stops[a.i]()
				if next < len(pl.ask) {
					ask()
				}
				continue
			}
			pl.settle(true)
			a.up.onClose(stops[a.i])
			if pending > 0 {
				go func() { // the losers' answers are not wanted
					for i, stop := range stops {
						if i != a.i && stop != nil {
							stop()
						}
					}
					for range pending {
						if late := <-answers; late.up != nil {
							late.up.close()
						}
					}
				}()
			}
			return a.up
		case <-hedge.C:
			if next < len(pl.ask) {
				ask()
			}
		}
	}
	pl.settle(false)
	return nil
}

// askPeer asks one peer for its stored response; nil when it has none that is
// fresh, or does not answer.
func (n *Node) askPeer(ctx context.Context, fw *forward, p *peer, pl *plan) *upstream {
	select {
	case p.slots <- struct{}{}:
	default:
		n.metrics.busy.WithLabelValues(p.name).Inc()
		return nil
	}
	scheme, host := n.memberURL(p)
	req := fw.request(ctx, scheme, host, fw.asSent)
	req.Header.Set("Cache-Control", "only-if-cached")
	req.Header.Set(shield.HopField, string(shield.HopPeer))
	n.carry(req, fw, p.name)
	span := tracing.From(ctx).Child("peer", tracing.Client)
	span.Text("edged.member", p.name)
	span.Inject(req.Header)

	began := time.Now()
	resp, err := n.peerClient.RoundTrip(req)
	span.Hop(resp, err)
	if err != nil {
		<-p.slots
		switch {
		case ctx.Err() != nil:
			// Another one was quicker, or the forward has ended. One that let
			// the whole budget pass hangs: not every request should find out.
			if time.Since(began) >= peerBudget {
				p.failed(began, time.Now())
			}
			n.metrics.peerRPC(p.name, rpcTimeout)
		case isTimeout(err):
			p.failed(began, time.Now())
			n.metrics.peerRPC(p.name, rpcTimeout)
		default:
			p.failed(began, time.Now())
			n.metrics.peerRPC(p.name, rpcError)
		}
		return nil
	}
	took := time.Since(began)
	p.answered(took)
	last := lastCacheStatus(resp.Header)
	if !pl.unknown {
		n.gossip.Asked(fw.part, p.name, last.Fwd != "uri-miss")
	}
	if !last.Hit || last.HasTTL && last.TTL < 0 {
		io.CopyN(io.Discard, resp.Body, 4<<10)
		resp.Body.Close()
		<-p.slots
		if last.Fwd == "stale" || last.Fwd == "partial" || last.Hit {
			n.metrics.peerRPC(p.name, rpcStale)
		} else {
			n.metrics.peerRPC(p.name, rpcMiss)
			pl.clean.Add(1)
		}
		return nil
	}
	n.metrics.peerRPC(p.name, rpcHit)
	up := &upstream{resp: resp, detail: "peer", requestTime: began, responseTime: began.Add(took)}
	up.onClose(func() { <-p.slots })
	return up
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// targetURL makes the URL of a request whose target must reach the other side
// byte for byte as it is in the key.
func targetURL(scheme, host, target string) *url.URL {
	path, query, hasQuery := strings.Cut(target, "?")
	u := &url.URL{Scheme: scheme, Host: host, RawQuery: query, ForceQuery: hasQuery && query == ""}
	if strings.HasPrefix(path, "//") {
		// An opaque target with two slashes would be taken for an authority.
		if p, err := url.PathUnescape(path); err == nil {
			u.Path, u.RawPath = p, path
			return u
		}
	}
	u.Opaque = path
	return u
}
