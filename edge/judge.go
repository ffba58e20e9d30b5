package edge

import (
	"context"
	"net/http"
	"strings"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/store"
)

// The reasons why a storable response was not stored.
const (
	unstoredTooLarge   = "too_large"  // above max_object, or what a partition can hold
	unstoredMemory     = "memory"     // too much in flight at once
	unstoredIncomplete = "incomplete" // the body broke off
	unstoredPurged     = "purged"     // a purge came while it was fetched
	unstoredRefused    = "refused"    // the store, or the negative partition, had no place
)

var unstoredReasons = []string{unstoredTooLarge, unstoredMemory, unstoredIncomplete, unstoredPurged, unstoredRefused}

// judge decides what an answer, or the lack of one, means for the flight. The
// answer it returns is the one whose body is the outcome's.
func (n *Node) judge(ctx context.Context, fw *forward, up *upstream, err error) (outcome, *upstream) {
	if err != nil {
		if r := fw.insteadOfFailure(time.Now()); r != nil {
			return outcome{stored: r, stale: true, shared: true}, nil
		}
		return outcome{err: err, shared: true}, nil
	}
	fwdStatus := up.resp.StatusCode
	if fw.filling != nil {
		if up, err = n.fill(ctx, fw, up); err != nil {
			return outcome{err: err, shared: true}, nil
		}
		if fw.filling == nil {
			fwdStatus = up.resp.StatusCode
		}
	}
	if up.resp.StatusCode == http.StatusNotModified && fw.cond != nil && !fw.asSent {
		out, ok := n.notModified(fw, up)
		up.close()
		if ok {
			return out, nil
		}
		// It speaks of nothing that is held here: once more, for the whole.
		again := *fw
		again.cond = nil
		if up, err = n.obtainOrigin(ctx, &again); err != nil {
			return outcome{err: err, shared: true}, nil
		}
		fwdStatus = up.resp.StatusCode
	}
	resp := up.resp
	if fw.observe != nil && up.detail != "peer" {
		switch {
		case resp.StatusCode < 400:
			fw.observe(true)
		case fw.site.policy.IsAbsence(resp.StatusCode):
			fw.observe(false)
		}
	}
	if rfc9111.IsOriginFailure(resp.StatusCode) {
		if r := fw.insteadOfFailure(time.Now()); r != nil {
			up.close()
			return outcome{stored: r, stale: true, shared: true, fwdStatus: resp.StatusCode, detail: up.detail}, nil
		}
	}

	if fw.absent != nil && resp.StatusCode < 400 {
		n.negative.Delete(fw.key.URL, time.Now()) // also when what is there now may not be stored
	}
	out := outcome{
		status: resp.StatusCode, phrase: phraseOf(resp), length: resp.ContentLength,
		fwdStatus: fwdStatus, detail: up.detail,
		upstreamStatus: joinLines(resp.Header["Cache-Status"]),
		trailer:        func() http.Header { return resp.Trailer },
	}
	if fw.method == http.MethodHead {
		n.headFreshens(fw, up)
	}
	limit := int64(0)
	m, header, rule := n.storable(fw, up)
	if m != nil {
		limit = n.maxObject[fw.part]
		if max(out.length, m.size) > limit {
			n.metrics.unstored.WithLabelValues(unstoredTooLarge).Inc()
			limit, rule = 0, "longer than cache.max_object"
		} else {
			out.meta, out.kept, out.shared = m, header, true
			out.nominated, out.variant = m.nominated, m.vary
		}
	}
	out.header = forwardable(resp.Header)
	switch {
	case out.shared:
		out.others = rfc9111.HeaderForOthers(out.header)
		n.uncacheable.remove(fw.key.Hash)
	case fw.method == http.MethodGet && !fw.answersCondition(resp.StatusCode):
		// Everyone fetches for himself, the next burst without queueing.
		n.uncacheable.add(fw.key.Hash, rule, time.Now())
	}
	out.body = newBody(limit, out.length, n.budget)
	return out, up
}

// answersCondition reports whether an answer with this status speaks of the
// client's own condition or range, and so says nothing of what another request
// would get.
func (fw *forward) answersCondition(status int) bool {
	switch status {
	case http.StatusNotModified, http.StatusPartialContent, http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return fw.asSent && len(fw.cond) > 0 || fw.ask != nil
	}
	return false
}

// insteadOfFailure returns the stale response, or remembered absence, that the
// request selects, when it may be served because the origin failed (RFC 5861
// §4); else nil.
func (fw *forward) insteadOfFailure(now time.Time) *store.Response {
	for _, r := range []*store.Response{fw.stale, fw.absent} {
		if r != nil && metaOf(r).StaleOnError(now, fw.site.policy) {
			return r
		}
	}
	return nil
}

// exchange is the request and its answer as the rules want to see them.
func (fw *forward) exchange(up *upstream, header http.Header, status int) rfc9111.Exchange {
	x := rfc9111.Exchange{
		Method: fw.method, URL: fw.key.URL, ReqHeader: fw.header,
		Status: status, Header: header,
		RequestTime: up.requestTime, ResponseTime: up.responseTime,
	}
	x.StaleFor = fw.staleFor(up)
	return x
}

// staleFor is for how long a response has been stale where it comes from; 0
// when it is fresh, or an origin's.
func (fw *forward) staleFor(up *upstream) time.Duration {
	if up.detail == "origin" {
		return 0
	}
	d, _ := rfc9111.StaleFromPeer(up.resp.Header["Cache-Status"])
	return d
}

// storable returns what to keep of a response, and nil when it may not be
// stored; and the rule that decided.
func (n *Node) storable(fw *forward, up *upstream) (m *meta, header http.Header, rule string) {
	x := fw.exchange(up, up.resp.Header, up.resp.StatusCode)
	asked := x
	asked.ReqHeader = fw.sent()
	v := rfc9111.Storable(asked, fw.site.policy)
	switch {
	case !v.OK:
		return nil, nil, v.Rule
	case x.StaleFor > 0:
		return nil, nil, "stale where it comes from"
	case fw.site.policy.IsAbsence(x.Status) && rfc9111.NoCache(x.Header):
		// An answer to a condition has no such status (RFC 9110 §13.2.1): it can't
		// be validated but by asking anew.
		return nil, nil, "no-cache, and an absence can't be validated"
	case x.Status == http.StatusPartialContent && !framedPart(asked.ReqHeader, up.resp):
		return nil, nil, "206 of unknown size, or that contradicts itself"
	}
	m, header = newMeta(x, fw.site.policy, phraseOf(up.resp))
	return m, header, v.Rule
}

func newMeta(x rfc9111.Exchange, p rfc9111.Policy, ph *phrase) (*meta, http.Header) {
	header := rfc9111.StoredHeader(x.Header)
	rfc9111.EnsureDate(header, x.ResponseTime)
	m := &meta{Stored: rfc9111.NewStored(x, p), phrase: ph}
	if x.Status == http.StatusPartialContent {
		r, size, _ := rfc9111.ParseContentRange(strings.TrimSpace(header.Get("Content-Range")))
		m.parts, m.size = parts{r}, size
		delete(header, "Content-Range")
	}
	m.nominated, _ = rfc9111.NominatedFields(x.Header)
	m.vary = rfc9111.VariantKey(m.nominated, x.ReqHeader)
	return m, header
}

// notModified freshens the stored response that a 304 speaks of (RFC 9111
// §4.3.4); not ok when there is none.
func (n *Node) notModified(fw *forward, up *upstream) (outcome, bool) {
	headers := make([]http.Header, len(fw.variants))
	for i, r := range fw.variants {
		headers[i] = headerOf(r)
	}
	picked := rfc9111.SelectNotModified(headers, up.resp.Header)
	if len(picked) == 0 {
		return outcome{}, false
	}
	old := fw.variants[picked[0]]
	for _, i := range picked {
		if fw.variants[i] == fw.stale {
			old = fw.stale
		}
	}
	out := outcome{fwdStatus: http.StatusNotModified, detail: up.detail, shared: true, upstreamStatus: joinLines(up.resp.Header["Cache-Status"])}
	fresh, v := n.freshened(fw, up, old)
	m := metaOf(fresh)
	stale := fw.staleFor(up) > 0
	out.nominated, out.variant = m.nominated, m.vary
	out.stored = fresh
	if stale {
		// Another tier still holds it stale: so do we.
		out.stale = true
		return out, true
	}
	if !v.OK {
		// This answer may be used, once.
		n.store.RemoveResponse(fw.part, &fw.key, old)
		out.shared = false
		return out, true
	}
	n.commitFill(fw, fresh.Tags, false, func(gen uint64, soft bool) {
		if !soft { // what was asked for before a soft purge does not undo it
			fresh.SeenAt(gen)
			n.store.Replace(fw.part, &fw.key, old, fresh)
		}
	})
	return out, true
}

// headFreshens lets the answer to a HEAD update, or outdate, the stored
// response to GET (RFC 9111 §4.3.5).
func (n *Node) headFreshens(fw *forward, up *upstream) {
	old, now := fw.stale, time.Now()
	if old == nil {
		old = fw.held
	}
	if old == nil {
		return
	}
	m := *metaOf(old)
	stored := headerOf(old)
	stored["Content-Length"] = []string{itoa(sizeOf(old))}
	switch rfc9111.HeadFreshens(int(m.Status), stored, up.resp.StatusCode, up.resp.Header) {
	case rfc9111.HeadUpdates:
		fresh, v := n.freshened(fw, up, old)
		if v.OK {
			n.commitFill(fw, fresh.Tags, false, func(gen uint64, soft bool) {
				if !soft {
					fresh.SeenAt(gen)
					n.store.Replace(fw.part, &fw.key, old, fresh)
				}
			})
		} else {
			n.store.RemoveResponse(fw.part, &fw.key, old)
		}
	case rfc9111.HeadInvalidates:
		m.Stored = m.AsStale(now)
		n.store.Replace(fw.part, &fw.key, old, old.With(&m, m.metaBytes()))
	}
}

// freshened returns the stored response as the fields of a newer answer make
// it, and whether that may be stored.
func (n *Node) freshened(fw *forward, up *upstream, old *store.Response) (*store.Response, rfc9111.Verdict) {
	merged := rfc9111.Freshen(rangedHeaderOf(old), up.resp.Header, fw.site.policy)
	x := fw.exchange(up, merged, int(metaOf(old).Status))
	x.Method = http.MethodGet
	m, header := newMeta(x, fw.site.policy, metaOf(old).phrase)
	m.parts = metaOf(old).parts // newMeta knows of the first one only
	return &store.Response{
		Variant: m.vary, Head: serialiseHead(header), Body: old.Body,
		Meta: m, MetaBytes: m.metaBytes(), Tags: n.tagsOf(header),
	}, rfc9111.Storable(x, fw.site.policy)
}

// commit stores a complete response, unless a purge came in between. The last
// bytes of its body are pending: see body.copyFrom.
func (n *Node) commit(fw *forward, out *outcome, pending int) {
	chunks, ok := out.body.keep(pending)
	if !ok {
		n.metrics.unstored.WithLabelValues(unstoredMemory).Inc()
		return
	}
	absence := fw.site.policy.IsAbsence(out.status)
	tags := n.tagsOf(out.kept)
	var whole *store.Response
	key := ""
	switch {
	case absence:
		key = n.absenceKey(fw.key.URL, out)
	case out.meta.partial():
		if whole = n.joinStored(fw, out, chunks); whole == nil {
			return
		}
	default:
		whole = &store.Response{
			Variant: out.meta.vary, Head: serialiseHead(out.kept), Body: store.NewBody(chunks),
			Meta: out.meta, MetaBytes: out.meta.metaBytes(),
		}
	}
	if whole != nil {
		whole.Tags = tags
	}
	allowed := n.commitFill(fw, tags, absence, func(gen uint64, soft bool) {
		if absence {
			n.rememberAbsence(fw, key, out, chunks, tags, gen)
			return
		}
		r := whole
		if soft {
			r = n.soften(r, gen, time.Now())
		}
		r.SeenAt(gen)
		r.Compact()
		if stored, _ := n.store.Put(fw.part, &fw.key, r); !stored {
			n.metrics.unstored.WithLabelValues(unstoredRefused).Inc()
			return
		}
		n.negative.Delete(fw.key.URL, time.Now())
		if out.status < 400 {
			n.known.Add(fw.key.Filter, time.Now())
		}
	})
	if !allowed {
		n.metrics.unstored.WithLabelValues(unstoredPurged).Inc()
	}
}

// phraseOf returns the reason phrase of a response; nil when it is the usual one.
func phraseOf(resp *http.Response) *phrase {
	if len(resp.Status) <= 4 {
		return nil
	}
	return unusual(resp.StatusCode, resp.Status[4:])
}

func joinLines(lines []string) string {
	if len(lines) == 1 {
		return lines[0]
	}
	return strings.Join(lines, ", ")
}
