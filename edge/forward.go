package edge

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"time"

	"edged/edge/store"
	"edged/edge/tracing"
	"edged/shield"
)

// forward is one request for somebody else to answer: what a flight carries.
// It holds nothing of the client's request, which may end before it does.
type forward struct {
	site *site
	key  store.Key
	part int

	method string
	scheme string
	host   string      // canonical
	target string      // path and query, as in the key
	header http.Header // end-to-end, without conditions and ranges
	cond   http.Header // conditions for the shield or origin; nil: none

	ask        http.Header // Range and If-Range for the shield or origin; nil: the whole
	askInstead http.Header // the same, once filling has come to nothing
	filling    *filling    // the parts that the answer completes; nil: none

	lookup     bool // ask the peers first
	fromMember bool // another node asks: straight to the origin
	asSent     bool // the conditions are the client's own

	variants []*store.Response // stored under the key, newest first: what may be validated
	stale    *store.Response   // the one of them that this request selects
	held     *store.Response   // instead: a partial one that is not enough for it
	absent   *store.Response   // a stale remembered absence, for when the origin fails
	gen      uint64            // purge generation when it began
	asked    time.Time         // when it began
	client   netip.Addr        // for the creation limits of negative entries
	info     func(informational)
	span     *tracing.Span     // of the request that began it; nil: not traced
	observe  func(exists bool) // told what the origin says of the key; nil: nobody asks
}

// upstream is an answer on its way: the head is here, the body follows.
type upstream struct {
	resp   *http.Response
	detail string // peer, shield, origin

	requestTime, responseTime time.Time
	done                      []func()
}

// onClose adds what must happen when the answer is done with.
func (u *upstream) onClose(f func()) { u.done = append(u.done, f) }

func (u *upstream) close() {
	u.resp.Body.Close()
	for _, f := range u.done {
		f()
	}
	u.done = nil
}

// request makes the outgoing request to addr. Validators go only where a 304
// is understood.
func (fw *forward) request(ctx context.Context, scheme, addr string, validate bool) *http.Request {
	r := &http.Request{
		Method: fw.method, URL: targetURL(scheme, addr, fw.target), Host: fw.host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: fw.header.Clone(),
	}
	if validate {
		for name, v := range fw.cond {
			r.Header[name] = v
		}
		for name, v := range fw.ask {
			r.Header[name] = v
		}
	}
	if r.Header["User-Agent"] == nil {
		r.Header["User-Agent"] = nil // net/http would add its own
	}
	return r.WithContext(ctx)
}

// sent is what the origin may have made its answer of: the fields that are the
// client's own, with the range that was asked for.
func (fw *forward) sent() http.Header {
	if fw.ask == nil && !fw.asSent {
		return fw.header
	}
	h := fw.header.Clone()
	if fw.asSent {
		maps.Copy(h, fw.cond)
	}
	maps.Copy(h, fw.ask)
	return h
}

// obtain asks whoever is to be asked, in order: the peers that may have it,
// within their budget; then, beside those that still think, the shield of the
// key or the origin.
func (n *Node) obtain(ctx context.Context, fw *forward) (*upstream, error) {
	ctx = tracing.With(ctx, fw.span)
	if !fw.lookup || fw.fromMember {
		return n.obtainOrigin(ctx, fw)
	}
	span := fw.span.Child("filters", tracing.Internal)
	pl := n.choosePeers(fw)
	span.Int("edged.peers_to_ask", int64(len(pl.ask)))
	span.End()
	if len(pl.ask) == 0 {
		return n.obtainOrigin(ctx, fw)
	}

	peersCtx, stopPeers := context.WithCancel(ctx)
	peersc := make(chan *upstream, 1)
	go func() { peersc <- n.askPeers(peersCtx, fw, pl) }()
	budget := time.NewTimer(peerBudget)
	defer budget.Stop()
	select {
	case up := <-peersc:
		if up != nil {
			up.onClose(stopPeers)
			return up, nil
		}
		stopPeers()
		return n.obtainOrigin(ctx, fw)
	case <-budget.C:
	}

	type answer struct {
		up  *upstream
		err error
	}
	originCtx, stopOrigin := context.WithCancel(ctx)
	originc := make(chan answer, 1)
	go func() {
		up, err := n.obtainOrigin(originCtx, fw)
		originc <- answer{up, err}
	}()
	var failed error
	var late <-chan time.Time
	for peersc != nil || originc != nil {
		select {
		case <-late:
			stopPeers()
			stopOrigin()
			go func() {
				if up := <-peersc; up != nil {
					up.close()
				}
			}()
			return nil, failed
		case up := <-peersc:
			peersc = nil
			if up == nil {
				continue
			}
			up.onClose(stopPeers)
			stopOrigin()
			if originc != nil {
				go func() {
					if a := <-originc; a.up != nil {
						a.up.close()
					}
				}()
			}
			return up, nil
		case a := <-originc:
			originc = nil
			if a.err != nil {
				failed, late = a.err, time.After(peerLast)
				continue
			}
			a.up.onClose(stopOrigin)
			stopPeers()
			if peersc != nil {
				go func() {
					if up := <-peersc; up != nil {
						up.close()
					}
				}()
			}
			return a.up, nil
		}
	}
	stopPeers()
	stopOrigin()
	return nil, failed
}

// obtainOrigin asks the shield of the key, where there is one that answers,
// else the origin.
func (n *Node) obtainOrigin(ctx context.Context, fw *forward) (*upstream, error) {
	if !fw.fromMember {
		if up := n.askShield(ctx, fw); up != nil {
			return up, nil
		}
	}
	began := time.Now()
	class := n.class(fw.site, fw.key.Filter, fw.target, began)
	if len(fw.variants) > 0 || fw.stale != nil || fw.held != nil {
		class = shield.Known
	}
	resp, release, err := n.askOrigin(ctx, fw.site, class, fw.request(traceInfo(ctx, fw.info), "http", "", true))
	if err != nil {
		return nil, err
	}
	up := &upstream{resp: resp, detail: "origin", requestTime: began, responseTime: time.Now()}
	// A panic leaves the answer open; the flight's context ends all the same.
	stop := context.AfterFunc(ctx, release)
	up.onClose(func() { stop(); release() })
	return up, nil
}

// countOriginError counts a request that had no answer. One that was given up
// before it was sent did not reach the origin.
func (n *Node) countOriginError(site string, err error) {
	var se *shield.Error
	result := "error"
	switch {
	case !errors.As(err, &se):
	case se.Kind == shield.Timeout:
		result = "timeout"
	case se.Kind == shield.Canceled && se.Phase == shield.PhaseConnect:
		return
	case se.Kind == shield.Canceled:
		result = "canceled"
	}
	n.metrics.origin.WithLabelValues(site, result).Inc()
}

// askShield sends the request to the key's shield; nil when there is none, or
// it can't be reached, so that the origin is asked instead: a request that is
// safe to repeat, which is all that a forward for the store ever is.
func (n *Node) askShield(ctx context.Context, fw *forward) *upstream {
	t := n.topo.Load()
	if n.cfg.Cluster.Role == RoleShield {
		return nil
	}
	name, ok := shield.Choose(shield.Mode(fw.site.Shield), n.cfg.Name, fw.key.Hash, t.shields, t.edges, t.usable)
	if !ok {
		return nil
	}
	p := t.peers[name]
	if p == nil {
		return nil
	}
	scheme, host := n.memberURL(p)
	req := fw.request(ctx, scheme, host, true)
	req.Header.Set(shield.HopField, string(shield.HopShield))
	n.carry(req, fw, name)
	// A member that is suspected is not waited for: whoever waits here, waits
	// for all who have joined.
	hctx, stop := context.WithCancel(traceInfo(ctx, fw.info))
	answered := make(chan struct{})
	limit := time.NewTimer(fw.site.Origin.Timeout.Connect + fw.site.Origin.Timeout.FirstByte)
	go func() {
		defer limit.Stop()
		select {
		case <-answered:
			return
		case <-p.gone:
		case <-limit.C:
		case <-hctx.Done():
		}
		stop()
	}()
	span := tracing.From(ctx).Child("shield", tracing.Client)
	span.Text("edged.member", name)
	span.Inject(req.Header)
	began := time.Now()
	resp, err := n.peerClient.RoundTrip(req.WithContext(hctx))
	span.Hop(resp, err)
	close(answered)
	if err != nil {
		stop()
		if ctx.Err() == nil {
			p.failed(began, time.Now())
			n.log.Warn("shield did not answer, asking the origin", "shield", name, "err", err)
		}
		return nil
	}
	up := &upstream{resp: resp, detail: "shield", requestTime: began, responseTime: time.Now()}
	up.onClose(stop)
	return up
}

// traceInfo makes 1xx answers reach f, which must not block.
func traceInfo(ctx context.Context, f func(informational)) context.Context {
	if f == nil {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code != http.StatusContinue {
				f(informational{code, http.Header(header).Clone()})
			}
			return nil
		},
	})
}

// fly carries out a flight: it obtains an answer, settles the outcome, fills
// the body and stores what may be stored. A panic releases everyone.
func (n *Node) fly(ctx context.Context, f *flight, fw *forward) {
	settled := false
	var out outcome
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("panic in a forward", "key", fw.key.URL, "panic", p, "stack", stack())
			if !settled {
				n.flights.settle(f, outcome{err: errPanic})
			} else if out.body != nil {
				out.body.close(errPanic)
				out.body.release()
			}
			n.flights.detach(f)
		}
		f.cancel(nil)
	}()

	n.flights.asking(ctx, f)
	up, err := n.obtain(ctx, fw)
	var answer *upstream
	out, answer = n.judge(ctx, fw, up, err)
	end := func(pending int, err error) {
		switch {
		case out.meta == nil:
		case err == nil:
			n.commit(fw, &out, pending)
		default:
			n.metrics.unstored.WithLabelValues(unstoredIncomplete).Inc()
		}
		n.flights.detach(f)
	}
	empty := out.body != nil && out.length == 0
	if empty {
		end(0, nil) // who has its head has all of it
		out.body.close(nil)
	}
	settled = true
	n.flights.settle(f, out)
	if out.body == nil {
		n.flights.detach(f)
		return
	}
	if !empty {
		out.body.copyFrom(ctx, answer.resp.Body, end)
	}
	answer.close()
	out.body.release()
}
