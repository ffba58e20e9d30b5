package edge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/shield"
)

// writeTimeout is how long one write to a client may take: a client that
// reads nothing for so long is gone.
const writeTimeout = time.Minute

var errPanic = errors.New("internal error while forwarding")

// storedExit is how a stored response came to be served.
type storedExit struct {
	result    result
	hit       bool   // without any forward
	why       string // else: what the forward was for
	collapsed bool
	out       *outcome
}

// serveStored answers with a stored response: whole, one or several ranges of
// it, or 304 when the client has it.
func (n *Node) serveStored(rq *request, r *store.Response, exit storedExit) {
	m := metaOf(r)
	now := time.Now()
	h := rq.w.Header()
	applyHead(h, r.Head)
	h["Age"] = []string{string(m.AppendAge(nil, now))}

	cs := rfc9111.CacheStatus{Hit: exit.hit, HasTTL: true, TTL: m.TTL(now)}
	if m.soft && cs.TTL > 0 {
		cs.TTL = -time.Second
	}
	upstream := ""
	if !exit.hit {
		cs.Fwd, cs.FwdStatus, cs.Collapsed, cs.Detail = exit.why, exit.out.fwdStatus, exit.collapsed, exit.out.detail
		upstream = exit.out.upstreamStatus
		if !exit.out.stale {
			cs.HasTTL, cs.Stored = false, true
		}
	}
	n.finishHead(rq, cs, upstream)
	defer n.count(rq, exit.result)

	if n.notModifiedFor(rq, int(m.Status), h, h, m) {
		return
	}
	size := sizeOf(r)
	if (int(m.Status) == http.StatusOK || m.partial()) && rq.r.Method == http.MethodGet {
		if ranges, ok := n.rangesFor(rq, size, h, m); ok {
			n.serveRanges(rq, r, size, ranges)
			return
		}
	}
	if bodyAllowed(int(m.Status)) {
		h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	}
	n.writeHeadAs(rq, int(m.Status), m.phrase)
	if rq.r.Method == http.MethodHead || size == 0 {
		return
	}
	for p := range r.Body.Section(0, size) {
		if n.write(rq, p) != nil {
			return
		}
	}
}

// notModifiedFor answers 304 when the client's conditions say that it has the
// response; header is the response's, h what is sent.
func (n *Node) notModifiedFor(rq *request, status int, h, header http.Header, m *meta) bool {
	if m := rq.r.Method; m != http.MethodGet && m != http.MethodHead {
		return false
	}
	if status != http.StatusOK && !m.partial() || !rfc9111.IsConditional(rq.r.Header) || !rfc9111.EvaluateConditional(rq.r.Header, header, &m.Stored) {
		return false
	}
	if rq.hop != shield.HopNone {
		delete(h, "Content-Range")
		// Another cache asks: to bring its copy up to date takes every field
		// that a validation may have changed here (RFC 9111 §3.2).
		n.writeHead(rq, http.StatusNotModified)
		return true
	}
	keep := rfc9111.NotModifiedHeader(header)
	for name := range h {
		switch name {
		case "Cache-Status", "Via", "Age", requestIDField:
			continue
		}
		if _, ok := keep[name]; !ok {
			delete(h, name)
		}
	}
	n.writeHead(rq, http.StatusNotModified)
	return true
}

// rangesFor returns the ranges that the client asks of a complete response;
// not ok when it gets the whole. An empty list is one that can't be satisfied.
func (n *Node) rangesFor(rq *request, size int64, header http.Header, m *meta) ([]rfc9111.Range, bool) {
	lines := rq.r.Header["Range"]
	if len(lines) != 1 || rq.r.Header["If-Range"] != nil && !rfc9111.IfRangeMatches(rq.r.Header, header, &m.Stored) {
		return nil, false
	}
	ranges, satisfiable, ok := rfc9111.ParseRanges(lines[0], size)
	if !ok {
		return nil, false
	}
	if !satisfiable {
		return nil, true
	}
	return ranges, true
}

// serveRanges answers 206, or 416 when there is no range to answer with.
func (n *Node) serveRanges(rq *request, stored *store.Response, size int64, ranges []rfc9111.Range) {
	h := rq.w.Header()
	switch len(ranges) {
	case 0:
		n.refuseRange(rq, size)
	case 1:
		h["Content-Range"] = []string{ranges[0].ContentRange(size)}
		h["Content-Length"] = []string{strconv.FormatInt(ranges[0].Length, 10)}
		n.writeHead(rq, http.StatusPartialContent)
		n.writeSection(rq, stored, ranges[0])
	default:
		n.serveMultipart(rq, stored, size, ranges)
	}
}

func (n *Node) refuseRange(rq *request, size int64) {
	h := rq.w.Header()
	h["Content-Range"] = []string{rfc9111.UnsatisfiedRange(size)}
	h["Content-Length"] = []string{"0"}
	delete(h, "Content-Type")
	n.writeHead(rq, http.StatusRequestedRangeNotSatisfiable)
}

func (n *Node) writeSection(rq *request, stored *store.Response, r rfc9111.Range) error {
	for p := range stored.Body.Section(metaOf(stored).offset(r), r.Length) {
		if err := n.write(rq, p); err != nil {
			return err
		}
	}
	return nil
}

// serveMultipart answers with several ranges as multipart/byteranges (RFC
// 9110 §14.6).
func (n *Node) serveMultipart(rq *request, stored *store.Response, size int64, ranges []rfc9111.Range) {
	h := rq.w.Header()
	boundary := "edged" + strconv.FormatUint(rq.key.Hash, 36) + strconv.FormatInt(rq.began.UnixNano(), 36)
	kind := h.Get("Content-Type")
	part := func(r rfc9111.Range) string {
		s := "\r\n--" + boundary + "\r\n"
		if kind != "" {
			s += "Content-Type: " + kind + "\r\n"
		}
		return s + "Content-Range: " + r.ContentRange(size) + "\r\n\r\n"
	}
	end := "\r\n--" + boundary + "--\r\n"
	length := int64(len(end))
	for _, r := range ranges {
		length += int64(len(part(r))) + r.Length
	}
	h["Content-Type"] = []string{"multipart/byteranges; boundary=" + boundary}
	h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	n.writeHead(rq, http.StatusPartialContent)
	for _, r := range ranges {
		if n.write(rq, []byte(part(r))) != nil || n.writeSection(rq, stored, r) != nil {
			return
		}
	}
	n.write(rq, []byte(end))
}

// serveOutcome answers with what a flight came to; false when that can't be
// read from its start any more.
func (n *Node) serveOutcome(rq *request, f *flight, why string, collapsed bool) bool {
	out := &f.out
	switch {
	case out.err != nil:
		n.failUpstream(rq, why, out.err, collapsed)
		return true
	case out.stored != nil:
		exit := storedExit{result: resRevalidated, why: why, collapsed: collapsed, out: out}
		if out.stale {
			exit.result = resStale
		}
		n.serveStored(rq, out.stored, exit)
		return true
	}
	rd, ok := out.body.reader()
	if !ok {
		n.flights.detach(f)
		return false
	}
	defer rd.leave()
	n.stream(rq, out, rd, why, collapsed)
	return true
}

// stream answers with a response while it arrives.
func (n *Node) stream(rq *request, out *outcome, rd *bodyReader, why string, collapsed bool) {
	h, header := rq.w.Header(), out.header
	if collapsed {
		header = out.others
	}
	for name, v := range header {
		h[name] = v
	}
	if out.meta != nil && (h["Age"] != nil || out.detail != "origin") {
		h["Age"] = []string{string(out.meta.AppendAge(nil, time.Now()))}
	}
	n.finishHead(rq, rfc9111.CacheStatus{
		Fwd: why, FwdStatus: out.fwdStatus, Stored: out.meta != nil, Collapsed: collapsed, Detail: out.detail,
	}, out.upstreamStatus)
	res := resMiss
	switch out.detail {
	case "peer":
		res = resPeer
	case "shield":
		res = resShield
	}

	skip, limit := int64(0), int64(-1)
	status := out.status
	if out.meta != nil {
		if n.notModifiedFor(rq, status, h, out.header, out.meta) {
			n.count(rq, res)
			return
		}
		size, partial := out.length, out.meta.partial()
		if partial {
			size = out.meta.size
		}
		if (status == http.StatusOK || partial) && size >= 0 && rq.r.Method == http.MethodGet {
			if ranges, ok := n.rangesFor(rq, size, out.header, out.meta); ok && len(ranges) == 0 {
				n.refuseRange(rq, size)
				n.count(rq, res)
				return
			} else if ok && len(ranges) == 1 {
				// A part that is not the one asked for goes on as it is.
				if at, held := out.meta.parts.offset(ranges[0]); held || !partial {
					if !partial {
						at = ranges[0].Start
					}
					status, skip, limit = http.StatusPartialContent, at, ranges[0].Length
					h["Content-Range"] = []string{ranges[0].ContentRange(size)}
				}
			}
		}
	}
	switch {
	case limit >= 0:
		h["Content-Length"] = []string{strconv.FormatInt(limit, 10)}
	case out.length >= 0 && bodyAllowed(status):
		h["Content-Length"] = []string{strconv.FormatInt(out.length, 10)}
	}
	n.writeHeadAs(rq, status, out.phrase)
	if rq.r.Method == http.MethodHead || !bodyAllowed(status) {
		n.count(rq, res)
		return
	}
	if err := n.copyBody(rq, rd, skip, limit); err != nil {
		rq.reason = reasonBroken
		n.count(rq, resError)
		if rq.r.Context().Err() == nil {
			n.log.Debug("response broke off", "key", rq.key.URL, "err", err)
		}
		// The client must see that this is not all.
		panic(http.ErrAbortHandler)
	}
	sendTrailer(h, out.trailer())
	n.count(rq, res)
}

// sendTrailer adds the trailers that may stand in one: those that say nothing
// about framing, routing or the response's meaning (RFC 9110 §6.5.1).
func sendTrailer(h, trailer http.Header) {
	for name, v := range trailer {
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Content-Length", "Transfer-Encoding", "Trailer", "Host", "Connection", "Content-Encoding", "Content-Type",
			"Content-Range", "Cache-Control", "Set-Cookie", "Location", "Age", "Cache-Status", "Via", "Date", "Expires", "Vary":
		default:
			h[http.TrailerPrefix+name] = v
		}
	}
}

// copyBody writes limit bytes of the body after the first skip, all when
// limit is below 0, flushing whenever the writer of the body has paused.
func (n *Node) copyBody(rq *request, rd *bodyReader, skip, limit int64) error {
	ctx := rq.r.Context()
	ctl := http.NewResponseController(rq.w)
	if !rd.ready() {
		ctl.Flush() // the head, while the body is still to come
	}
	for limit != 0 {
		p, more, err := rd.next(ctx)
		if err == io.EOF {
			if limit > 0 {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if err != nil {
			return err
		}
		if skip >= int64(len(p)) {
			skip -= int64(len(p))
			continue
		}
		p, skip = p[skip:], 0
		if limit >= 0 && int64(len(p)) > limit {
			p = p[:limit]
		}
		if err := n.write(rq, p); err != nil {
			return err
		}
		if limit > 0 {
			limit -= int64(len(p))
		}
		if !more {
			if err := ctl.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// finishHead adds what this node says of itself to a response's fields.
func (n *Node) finishHead(rq *request, cs rfc9111.CacheStatus, upstream string) {
	h := rq.w.Header()
	cs.Name = n.cfg.Name
	rq.because(&cs)
	var b []byte
	if _, ok := rfc9111.ParseCacheStatus([]string{upstream}); ok && upstream != "" {
		// What does not parse would take our own member with it.
		b = append(append(b, upstream...), ", "...)
	}
	own := make([]string, 1, 2)
	own[0] = string(rfc9111.AppendCacheStatus(b, cs))
	h["Cache-Status"] = own[:1:1]
	if rq.hop == shield.HopNone {
		// What an origin said of another request is replaced, too.
		own = append(own, n.requestID(rq))
		h[requestIDField] = own[1:2:2]
	}
	shield.AppendVia(h, "HTTP/1.1", n.cfg.Name)
	if n.draining.Load() {
		h["Connection"] = []string{"close"} // the next request belongs elsewhere
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // net/http would guess one
	}
}

func (n *Node) writeHead(rq *request, status int) {
	n.extendWrite(rq)
	if rq.site != nil && rq.site.policy.IsAbsence(status) && rq.hop == shield.HopNone {
		rq.site.absent.answered(rq.key.Filter, rq.began)
	}
	if rq.w.Header()["Date"] == nil && rq.hop == shield.HopNone {
		// net/http adds the present one, as RFC 9110 §6.6.1 asks.
		delete(rq.w.Header(), "Date")
	}
	rq.status, rq.headAfter = status, rq.extended.Sub(rq.began)
	rq.w.WriteHeader(status)
}

// writeHeadAs is writeHead with the reason phrase of the response that is
// passed on, if the status is still that response's.
func (n *Node) writeHeadAs(rq *request, status int, ph *phrase) {
	if ph != nil && ph.status == status {
		if c := connOf(rq.r); c != nil {
			c.say(ph)
		}
	}
	n.writeHead(rq, status)
}

// write sends part of a body, in a bounded time.
func (n *Node) write(rq *request, p []byte) error {
	n.extendWrite(rq)
	sent, err := rq.w.Write(p)
	rq.sentBytes += int64(sent)
	return err
}

// extendWrite gives the client time for the next write. It is not asked for
// with each of many small ones.
func (n *Node) extendWrite(rq *request) {
	now := time.Now()
	if now.Sub(rq.extended) < writeTimeout/10 {
		return
	}
	rq.extended = now
	http.NewResponseController(rq.w).SetWriteDeadline(now.Add(writeTimeout))
}

// sendInformational passes a 1xx answer on.
func (n *Node) sendInformational(rq *request, i informational) {
	if !rq.r.ProtoAtLeast(1, 1) {
		return // RFC 9110 §15.2
	}
	h := rq.w.Header()
	for name, v := range i.header {
		h[name] = v
	}
	rq.w.WriteHeader(i.status)
	for name := range i.header {
		delete(h, name)
	}
}

// fail answers with an error of this node's own making: a short plain text.
func (n *Node) fail(rq *request, status int, why, text string) {
	n.failWith(rq, status, rfc9111.CacheStatus{Fwd: why}, text)
}

func (n *Node) failWith(rq *request, status int, cs rfc9111.CacheStatus, text string) {
	n.answer(rq, status, cs, text, resError)
}

// answer sends a short plain text of this node's own.
func (n *Node) answer(rq *request, status int, cs rfc9111.CacheStatus, text string, res result) {
	h := rq.w.Header()
	clear(h)
	h["Content-Type"] = []string{"text/plain; charset=utf-8"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Cache-Control"] = []string{"no-store"}
	if rq.hangUp {
		h["Connection"] = []string{"close"}
	}
	if rq.retryAfter != "" {
		h["Retry-After"] = []string{rq.retryAfter}
	}
	text = strconv.Itoa(status) + " " + http.StatusText(status) + ": " + text + "\n"
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	n.finishHead(rq, cs, "")
	n.writeHead(rq, status)
	if rq.r.Method != http.MethodHead {
		n.write(rq, []byte(text))
	}
	n.count(rq, res)
}

// failUpstream answers for an origin that did not.
func (n *Node) failUpstream(rq *request, why string, err error, collapsed bool) {
	if rq.r.Context().Err() != nil {
		n.abandon(rq)
	}
	status, text := statusOf(err)
	cs := rfc9111.CacheStatus{Fwd: why, Collapsed: collapsed}
	if rq.retryAfter = retryAfter(err); rq.retryAfter != "" {
		cs.Detail = "saturated"
	}
	n.failWith(rq, status, cs, text)
}

// statusOf maps what went wrong on the far side to a status (RFC 9110 §15.6)
// and a sentence that tells a stranger nothing about the inside.
func statusOf(err error) (int, string) {
	var se *shield.Error
	var saturated *shield.SaturatedError
	switch {
	case errors.As(err, &saturated):
		return http.StatusServiceUnavailable, "the origin has as many requests as it may have: try again soon"
	case errors.As(err, &se):
		switch se.Kind {
		case shield.Timeout:
			return http.StatusGatewayTimeout, "the origin did not answer in time (" + string(se.Phase) + ")"
		case shield.Refused:
			return http.StatusBadGateway, "the origin can't be reached"
		case shield.HeaderTooLarge:
			return http.StatusBadGateway, "the origin's response head is too large"
		case shield.Protocol:
			return http.StatusBadGateway, "the origin's answer is not a valid HTTP response"
		default:
			return http.StatusBadGateway, "the origin closed the connection before its answer was complete"
		}
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, "the origin did not answer in time"
	case errors.Is(err, errPanic):
		return http.StatusInternalServerError, errPanic.Error()
	}
	return http.StatusBadGateway, "no answer from the origin"
}

// count counts a request, once.
func (n *Node) count(rq *request, r result) {
	if rq.counted {
		return
	}
	rq.counted = true
	took := time.Since(rq.began)
	n.accessed(rq, r, took)
	rq.traced(r)
	if rq.hop != shield.HopNone {
		n.metrics.member.WithLabelValues(string(rq.hop), string(r)).Inc()
		return
	}
	site := noSite
	if rq.site != nil {
		site = rq.site.Name
	}
	n.metrics.request(site, r, took)
}

// bodyAllowed reports whether a response with this status has content
// (RFC 9110 §6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
