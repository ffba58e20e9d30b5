package edge

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/edge/tracing"
	"edged/peerfilter"
	"edged/shield"
)

// request is one request on its way through the node.
type request struct {
	w     http.ResponseWriter
	r     *http.Request
	began time.Time
	hop   shield.Hop // who asks: a client, or another node

	scheme string
	host   string // canonical
	target string // normalised path and query
	site   *site
	part   int
	key    store.Key
	dirs   rfc9111.RequestDirectives
	sent   http.Header // what goes on to the origin, once variants were selected by it

	retryAfter string // of an answer that the limit of the origin refused

	absent   *store.Response // a stale remembered absence, for when the origin fails
	report   bool            // the catalog wants to know what the origin says
	extended time.Time       // when the write deadline was last moved
	hangUp   bool            // the connection ends with this answer
	counted  bool
	behind   bool // who asks knows of a purge that this node does not know yet
	apart    bool // a part of what is asked for is being fetched: not to be waited for

	// For the access log; id is made when it is first needed.
	span      *tracing.Span // nil: not traced
	id        string
	reason    string
	status    int // 0: no head was sent
	headAfter time.Duration
	sentBytes int64
}

// serveClient is one client request's way.
func (n *Node) serveClient(w http.ResponseWriter, r *http.Request) {
	rq := &request{w: w, r: r, began: time.Now(), hop: shield.HopNone}
	n.stripInternal(r.Header)
	n.trace(rq)
	if n.admit(rq) && n.identify(rq) {
		n.serve(rq)
	}
}

// serve answers an admitted request. Each step that ends it sets Cache-Status
// and counts it, once.
func (n *Node) serve(rq *request) {
	switch {
	case rq.r.Method == "PURGE":
		n.servePurge(rq)
		return
	case (rq.r.Method == "OPTIONS" || rq.r.Method == "TRACE") && n.lastForward(rq):
		return
	case isUpgrade(rq.r) || !rfc9111.IsSafe(rq.r.Method) || rq.r.Method == "OPTIONS" || rq.r.Method == "TRACE":
		n.pass(rq, "method", resBypass)
		return
	case rq.hasBody() || rq.site.bypassed(pathOf(rq.target)):
		// A body with GET has no meaning, but an origin may read one: such a
		// request is neither answered from the cache nor stored.
		n.pass(rq, "bypass", resBypass)
		return
	}

	for range maxRejoins {
		variants := n.lookup(rq)
		selected := n.selectVariant(rq, variants)
		why := "uri-miss"
		if selected != nil {
			var reuse rfc9111.Reuse
			m := metaOf(selected)
			now := time.Now()
			enough := n.covers(rq, selected)
			if m.soft || !enough || n.unsure(rq) {
				reuse = rfc9111.Validate
			} else {
				reuse, _ = m.Decide(rq.dirs, now)
			}
			switch reuse {
			case rfc9111.Fresh:
				n.store.Hit(selected)
				n.serveStored(rq, selected, storedExit{result: resHit, hit: true})
				return
			case rfc9111.MaxStale:
				n.store.Hit(selected)
				n.serveStored(rq, selected, storedExit{result: resStale, hit: true})
				return
			case rfc9111.StaleWhileRevalidate:
				n.store.Hit(selected)
				n.validateBehind(rq, variants, selected)
				n.serveStored(rq, selected, storedExit{result: resStale, hit: true})
				return
			case rfc9111.RequestForbids:
				why = "request"
			default:
				if why = "stale"; !enough {
					why = "partial"
				}
			}
		} else if len(variants) > 0 {
			why = "vary-miss"
		}
		if why == "uri-miss" && !n.unsure(rq) && n.serveAbsence(rq) {
			return
		}
		if rq.dirs.OnlyIfCached {
			n.fail(rq, http.StatusGatewayTimeout, why, "nothing stored here answers this request, and only-if-cached forbids asking further")
			return
		}
		if rq.r.Method == http.MethodHead {
			// A HEAD fetches no body, so that it has nothing to share.
			n.forwardAlone(rq, why, variants, selected)
			return
		}
		if n.forwardCollapsed(rq, why, variants, selected) {
			return
		}
	}
	// Others' answers were never for this request: alone, then.
	n.forwardAlone(rq, "uri-miss", n.lookup(rq), nil)
}

// unsure reports whether this node may not know of a purge that has been when
// the request came: who asks does, or the node is out of step.
func (n *Node) unsure(rq *request) bool { return rq.behind || n.distrusts(rq.began) }

// maxRejoins bounds how often a request may find that the forward it waited
// for does not answer it.
const maxRejoins = 3

// identify gives the request its site, key and partition; when it can't, the
// request has been answered.
func (n *Node) identify(rq *request) bool {
	if !n.locate(rq) {
		return n.reject(rq, rejectHost, http.StatusMisdirectedRequest, "no site is configured for the host "+strconv.Quote(rq.host))
	}
	if rq.hop != shield.HopNone || rq.site.policy.HonourRequest {
		rq.dirs = rfc9111.ParseRequestDirectives(rq.r.Header, rq.site.policy)
	}
	return true
}

// locate finds the site of the request's host, and gives the request its key
// and partition; false when no site has that host.
func (n *Node) locate(rq *request) bool {
	if rq.site = n.sites.Load().find(rq.host); rq.site == nil {
		return false
	}
	url := rq.scheme + "://" + rq.host + rq.target
	rq.key = n.keyOf(url)
	rq.part = n.partitionOf(pathOf(rq.target))
	return true
}

// keyOf makes the key of a canonical URL: each hash is computed here, once.
func (n *Node) keyOf(url string) store.Key {
	return store.Key{URL: url, Hash: xxhash.Sum64String(url), Filter: peerfilter.Sum(n.seed, url)}
}

// partitionOf returns the first partition that matches the path.
func (n *Node) partitionOf(path string) int {
	ps := n.cfg.Cache.Partitions
	for i := range ps[:len(ps)-1] {
		for _, pat := range ps[i].Paths {
			if matchPath(pat, path) {
				return i
			}
		}
	}
	return len(ps) - 1
}

// lookup returns what is stored under the request's key. The own filter goes
// first, unless it is not to: when it calls the key absent, the store is not
// asked.
func (n *Node) lookup(rq *request) []*store.Response {
	if rq.span != nil {
		span := rq.span.Child("lookup", tracing.Internal)
		defer span.End()
	}
	if n.cfg.Filter.NoLocal {
		return n.stored(rq)
	}
	c := &n.metrics.bloom[rq.part]
	if !n.store.Filter(rq.part).MayContain(rq.key.Filter) {
		c.localNegative.Inc()
		return nil
	}
	v := n.stored(rq)
	if len(v) > 0 {
		c.localPositiveHit.Inc()
	} else {
		c.localPositiveMiss.Inc()
	}
	return v
}

// stored returns what the store holds under the request's key and no purge has
// covered.
func (n *Node) stored(rq *request) []*store.Response {
	return n.valid(rq.part, &rq.key, n.store.Get(rq.part, &rq.key))
}

// forwardCollapsed joins the forward for this request, or begins it, and
// answers with its outcome. It returns false when the outcome is of no use to
// this request, which should look again.
func (n *Node) forwardCollapsed(rq *request, why string, variants []*store.Response, selected *store.Response) bool {
	if why != "stale" && n.uncacheable.has(rq.key.Hash, rq.began) {
		n.forwardAlone(rq, why, variants, selected)
		return true
	}
	key := n.flightKey(rq, variants)
	if rq.wantsNewer() {
		// The others' forward may be answered by another tier's copy.
		key += newerKey
	}
	f, began := n.flights.joinRange(key, rangeKey(key, rq, why, selected), rq.apart, n.unsure(rq))
	if began {
		n.launch(f, n.newForward(rq, why, variants, selected))
	} else {
		n.metrics.collapsed.WithLabelValues(rq.site.Name).Inc()
	}
	defer n.flights.leave(f)
	if !n.await(rq, f, began) {
		return true
	}
	out := &f.out
	if !n.suits(rq, out, began) {
		rq.apart = out.meta != nil && out.meta.partial()
		if !out.shared {
			n.forwardAlone(rq, why, variants, selected)
			return true
		}
		return false
	}
	return n.serveOutcome(rq, f, why, !began)
}

// forwardAlone forwards the request and shares the outcome with nobody.
func (n *Node) forwardAlone(rq *request, why string, variants []*store.Response, selected *store.Response) {
	f := newFlight(rq.key.URL)
	fw := n.newForward(rq, why, variants, selected)
	fw.method = rq.r.Method
	if why == "uri-miss" || why == "vary-miss" || why == "partial" {
		// What is not shared goes as the client sent it.
		fw.cond, fw.asSent = clientConditions(rq.r.Header), true
		fw.ask, fw.filling = nil, nil
	}
	n.launch(f, fw)
	defer n.flights.leave(f)
	if n.await(rq, f, true) && !n.serveOutcome(rq, f, why, false) {
		n.fail(rq, http.StatusBadGateway, why, "the response could not be read from its start")
	}
}

// launch starts a flight under a context of its own.
func (n *Node) launch(f *flight, fw *forward) {
	ctx, cancel := context.WithCancelCause(n.ctx)
	f.cancel = cancel
	fw.info = func(i informational) {
		select {
		case f.info <- i:
		default: // a flood of them: the client gets the first ones
		}
	}
	n.run(func() { n.fly(ctx, f, fw) })
}

// await waits for the outcome and passes 1xx answers on; false when the client
// is gone.
func (n *Node) await(rq *request, f *flight, informed bool) bool {
	info := f.info
	if !informed {
		info = nil
	}
	for {
		select {
		case <-f.ready:
			for informed && len(f.info) > 0 {
				n.sendInformational(rq, <-f.info)
			}
			return true
		case i := <-info:
			n.sendInformational(rq, i)
		case <-rq.r.Context().Done():
			n.abandon(rq)
		}
	}
}

// abandon ends a request whose client has closed its side. net/http would send
// an empty 200 if nothing were written, which somebody between may store.
func (n *Node) abandon(rq *request) {
	rq.reason = reasonGone
	n.count(rq, resError)
	panic(http.ErrAbortHandler)
}

// suits reports whether an outcome answers this request, which began the
// forward or only waited for it.
func (n *Node) suits(rq *request, out *outcome, began bool) bool {
	switch {
	case out.stored != nil && !n.covers(rq, out.stored):
		return false
	case began:
		return true // what the other side says to it is the answer
	case out.meta != nil && out.meta.partial() && !n.within(rq, out.meta, out.header):
		return false
	}
	return out.shared && (out.err != nil || len(out.nominated) == 0 || rfc9111.Matches(out.nominated, out.variant, n.nominating(rq, out.nominated)))
}

// newForward makes what a flight carries of the request.
func (n *Node) newForward(rq *request, why string, variants []*store.Response, selected *store.Response) *forward {
	fw := &forward{
		site: rq.site, key: rq.key, part: rq.part,
		method: http.MethodGet, scheme: rq.scheme, host: rq.host, target: rq.target,
		header:     n.forwardHeader(rq, true),
		lookup:     (why == "uri-miss" || why == "vary-miss") && !rq.wantsNewer(),
		fromMember: rq.hop != shield.HopNone,
		variants:   variants, stale: selected, absent: rq.absent, span: rq.span,
		gen: n.epochs.Generation(), asked: rq.began, client: remoteAddr(rq.r),
	}
	if rq.report {
		fw.observe = func(exists bool) { rq.site.catalog.Observed(pathOf(rq.target), exists, time.Now()) }
	}
	n.planRange(fw, rq, why)
	fw.variants = toValidate(variants, fw.stale)
	variants = fw.variants
	if len(variants) > 0 && fw.filling == nil {
		cond := http.Header{}
		others := make([]http.Header, 0, len(variants))
		var chosen http.Header
		for _, v := range variants {
			if v == selected {
				chosen = headerOf(v)
			} else {
				others = append(others, headerOf(v))
			}
		}
		if rfc9111.Validators(cond, chosen, others...) {
			fw.cond = cond
		}
	}
	return fw
}

// validateBehind validates a stale response that has been served already.
func (n *Node) validateBehind(rq *request, variants []*store.Response, selected *store.Response) {
	f := n.flights.joinBehind(n.flightKey(rq, variants))
	if f == nil {
		return
	}
	n.launch(f, n.newForward(rq, "stale", variants, selected))
	n.background.Add(1)
	go func() {
		defer n.background.Done()
		defer n.flights.leave(f)
		n.drainFlight(n.ctx, f)
	}()
}

// newerKey ends the flight key of requests that want newer responses than
// others do.
const newerKey = "\x00newer"

// wantsNewer reports whether the client's directives, where they are honoured,
// ask for more than a fresh response: a peer's copy is then no answer.
func (rq *request) wantsNewer() bool {
	return rq.dirs.NoCache || rq.dirs.MaxAge.OK || rq.dirs.MinFresh.OK
}

func (rq *request) hasBody() bool {
	return rq.r.ContentLength != 0 || len(rq.r.TransferEncoding) > 0
}

func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

func remoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
