package edge

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/tracing"
	"edged/shield"
)

// uploadTimeout is how long a client may pause within its request's body.
const uploadTimeout = time.Minute

const brokenContent = "the request's content broke off, or its framing is not valid"

// leftoverTimeout is how long the rest of a request's body may take after the
// answer.
const leftoverTimeout = 5 * time.Second

// isUpgrade reports whether the client asks for a WebSocket (RFC 6455 §4.1). A
// wish for any other protocol is ignored, as RFC 9110 §7.8 allows: behind an
// origin that grants one, h2c say, requests would pass that no rule here sees.
func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && hasToken(r.Header["Connection"], "upgrade") && hasToken(r.Header["Upgrade"], webSocket)
}

const webSocket = "websocket"

func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// creates reports whether a method and its answer may mean that there is
// something now where there was nothing. Other methods that do are the
// business of POST /v1/created.
func creates(method string, status int) bool {
	switch method {
	case http.MethodPut, http.MethodPost, http.MethodPatch:
		return status >= 200 && status <= 299
	}
	return false
}

// pass sends a request straight to the origin, body and all, and the answer
// back as it comes; neither is stored. An unsafe method that succeeds
// invalidates what is stored under its URLs (RFC 9111 §4.4).
//
// A process that has handed its place in the cluster over can tell nobody what
// it invalidates, so it refuses what is not safe; the next try, on a new
// connection, reaches the other process.
func (n *Node) pass(rq *request, why string, res result) {
	if n.released.Load() && !rfc9111.IsSafe(rq.r.Method) {
		rq.hangUp, rq.retryAfter = true, "1"
		n.fail(rq, http.StatusServiceUnavailable, why, "this process hands over to another one: try again in a moment")
		return
	}
	wantsUpgrade := isUpgrade(rq.r)
	h := n.forwardHeader(rq, false)
	if wantsUpgrade {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{webSocket}
	}
	if te := rq.r.Header["Te"]; hasToken(te, "trailers") {
		h["Te"] = []string{"trailers"}
	}
	ctx := traceInfo(tracing.With(rq.r.Context(), rq.span), func(i informational) {
		n.sendInformational(rq, i)
	})
	out := (&http.Request{
		Method: rq.r.Method, URL: targetURL("http", "", rq.target), Host: rq.host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		ContentLength: rq.r.ContentLength, Trailer: rq.r.Trailer,
	}).WithContext(ctx)
	if h["User-Agent"] == nil {
		h["User-Agent"] = nil
	}
	if c := connOf(rq.r); rq.hasBody() && c != nil && c.broken.Load() {
		// Known before anything was sent on: nobody need find out by half of it.
		rq.hangUp = true
		n.fail(rq, http.StatusBadRequest, why, brokenContent)
		return
	}
	upload := &uploadReader{rq: rq, body: rq.r.Body}
	if rq.hasBody() {
		out.Body = upload
		defer upload.leave()
		// An answer that comes before the request is complete goes on at once:
		// net/http would first wait for the rest of the request.
		http.NewResponseController(rq.w).EnableFullDuplex()
	}

	began, gen := time.Now(), n.epochs.Generation()
	resp, release, err := n.askOrigin(ctx, rq.site, n.class(rq.site, rq.key.Filter, rq.target, began), out)
	if err != nil && upload.broken() {
		rq.hangUp = true
		n.fail(rq, http.StatusBadRequest, why, brokenContent)
		return
	}
	if err != nil {
		n.failUpstream(rq, why, err, false)
		return
	}
	defer release()
	defer resp.Body.Close()
	if keys := rfc9111.Invalidates(rq.r.Method, resp.StatusCode, rq.key.URL, n.asKeyed(resp.Header)); len(keys) > 0 {
		var own *ownAnswer
		if rq.r.Method == http.MethodPost {
			own = &ownAnswer{url: rq.key.URL, gen: gen}
			own.tags, _ = tagsOf(resp.Header)
		}
		n.invalidations.invalidate(rq.r.RemoteAddr, keys, rq.site.catalog != nil && creates(rq.r.Method, resp.StatusCode), own)
		if own != nil {
			gen = own.gen
		}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		release() // it may last for days, and asks nothing more of the cache
		n.tunnel(rq, resp, why, wantsUpgrade)
		return
	}

	if rq.r.Method == http.MethodPost && n.passStoring(rq, resp, why, gen, rfc9111.Exchange{
		Method: rq.r.Method, URL: rq.key.URL, ReqHeader: h, Status: resp.StatusCode, Header: resp.Header,
		RequestTime: began, ResponseTime: time.Now(),
	}) {
		return
	}

	wh := rq.w.Header()
	for name, v := range forwardable(resp.Header) {
		wh[name] = v
	}
	n.finishHead(rq, rfc9111.CacheStatus{Fwd: why, FwdStatus: resp.StatusCode, Detail: "origin"}, joinLines(resp.Header["Cache-Status"]))
	if resp.ContentLength >= 0 && bodyAllowed(resp.StatusCode) {
		wh["Content-Length"] = []string{itoa(resp.ContentLength)}
	}
	n.writeHeadAs(rq, resp.StatusCode, phraseOf(resp))
	ctl := http.NewResponseController(rq.w)
	if rq.r.Method != http.MethodHead {
		ctl.Flush()
	}
	buf := make([]byte, 32<<10)
	for {
		k, err := resp.Body.Read(buf)
		if k > 0 {
			if n.write(rq, buf[:k]) != nil {
				rq.reason = reasonBroken
				n.count(rq, resError)
				panic(http.ErrAbortHandler)
			}
			ctl.Flush()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			rq.reason = reasonBroken
			n.count(rq, resError)
			panic(http.ErrAbortHandler)
		}
	}
	sendTrailer(wh, resp.Trailer)
	n.count(rq, res)
}

// passStoring passes on an answer to POST that says of itself that it is what
// its URL now holds, and stores it for later GETs (RFC 9110 §9.3.3), unless a
// purge after the one numbered gen covers it; false, and nothing done, when it
// is no such answer.
func (n *Node) passStoring(rq *request, resp *http.Response, why string, gen uint64, x rfc9111.Exchange) bool {
	limit := n.maxObject[rq.part]
	if v := rfc9111.Storable(x, rq.site.policy); !v.OK || resp.StatusCode == http.StatusPartialContent || resp.ContentLength > limit {
		return false
	}
	out := &outcome{
		status: resp.StatusCode, phrase: phraseOf(resp), header: forwardable(resp.Header), length: resp.ContentLength,
		fwdStatus: resp.StatusCode, detail: "origin", upstreamStatus: joinLines(resp.Header["Cache-Status"]),
		trailer: func() http.Header { return resp.Trailer },
		body:    newBody(limit, resp.ContentLength, n.budget),
	}
	out.meta, out.kept = newMeta(x, rq.site.policy, out.phrase)
	out.nominated, out.variant = out.meta.nominated, out.meta.vary
	fw := &forward{
		site: rq.site, key: rq.key, part: rq.part, gen: gen, asked: rq.began, client: remoteAddr(rq.r),
	}
	rd, _ := out.body.reader()
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		out.body.copyFrom(rq.r.Context(), resp.Body, func(pending int, err error) {
			if err == nil {
				n.commit(fw, out, pending)
			} else {
				n.metrics.unstored.WithLabelValues(unstoredIncomplete).Inc()
			}
		})
		out.body.release()
	}()
	defer func() {
		rd.leave()
		resp.Body.Close() // ends the filling of what the client no longer reads
		<-filled
	}()
	n.stream(rq, out, rd, why, false)
	return true
}

// tunnel joins client and origin after the origin has switched protocols.
func (n *Node) tunnel(rq *request, resp *http.Response, why string, asked bool) {
	origin, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !asked || !hasToken(resp.Header["Upgrade"], webSocket) {
		n.failUpstream(rq, why, &shield.Error{Kind: shield.Protocol, Phase: shield.PhaseFirstByte, Err: errors.New("unasked 101")}, false)
		return
	}
	conn, buffered, err := http.NewResponseController(rq.w).Hijack()
	if err != nil {
		n.fail(rq, http.StatusInternalServerError, why, "this connection can't change its protocol")
		return
	}
	defer conn.Close()
	defer origin.Close()
	if c, ok := conn.(*framedConn); ok {
		c.passThrough()
	}
	conn.SetDeadline(time.Time{})
	h := rq.w.Header()
	for name, v := range forwardable(resp.Header) {
		h[name] = v
	}
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, resp.Header["Upgrade"]
	n.finishHead(rq, rfc9111.CacheStatus{Fwd: why, FwdStatus: resp.StatusCode, Detail: "origin"}, "")
	delete(h, "Content-Type")
	rq.status = http.StatusSwitchingProtocols
	buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	h.Write(buffered)
	buffered.WriteString("\r\n")
	if buffered.Flush() != nil {
		n.count(rq, resError)
		return
	}
	// A side that has nothing more to say closes that direction only; when it
	// can't, or the node stops, both end.
	ended := make(chan bool, 2)
	relay := func(to io.Writer, from io.Reader) {
		_, err := io.Copy(to, from)
		half, ok := to.(interface{ CloseWrite() error })
		ended <- err == nil && ok && half.CloseWrite() == nil
	}
	go relay(origin, buffered)
	go relay(conn, origin)
	for range 2 {
		select {
		case clean := <-ended:
			if clean {
				continue
			}
		case <-n.ctx.Done():
		}
		break
	}
	n.count(rq, resBypass)
}

// uploadReader bounds each pause of a client that sends a body, and remembers
// whether it was the client who broke it off.
type uploadReader struct {
	rq     *request
	body   io.ReadCloser
	ended  atomic.Bool // nothing more comes
	failed atomic.Bool // and that was not its end
	closed atomic.Bool
}

func (u *uploadReader) Read(p []byte) (int, error) {
	if u.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	ctl := http.NewResponseController(u.rq.w)
	ctl.SetReadDeadline(time.Now().Add(uploadTimeout))
	k, err := u.body.Read(p)
	if err != nil {
		ctl.SetReadDeadline(time.Time{})
		u.ended.Store(true)
		// Reading after Close is the sender's doing: it has its answer already.
		if err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
			u.failed.Store(true)
		}
	}
	return k, err
}

// Close ends the reading, and does not close the body: that would wait for the
// rest of it, which a client that expects 100 will not send.
func (u *uploadReader) Close() error {
	u.closed.Store(true)
	return nil
}

func (u *uploadReader) broken() bool { return u.failed.Load() }

// leave bounds how long net/http waits, after the answer, for what is left of
// the body.
func (u *uploadReader) leave() {
	if !u.ended.Load() {
		http.NewResponseController(u.rq.w).SetReadDeadline(time.Now().Add(leftoverTimeout))
	}
}

// asKeyed returns the fields of a response that name other URLs as keys have
// these: an origin whose clients speak TLS to a terminator in front of the node
// writes https.
func (n *Node) asKeyed(h http.Header) http.Header {
	named := http.Header{}
	for _, name := range []string{"Location", "Content-Location"} {
		for _, u := range h[name] {
			if len(u) > 6 && strings.EqualFold(u[:6], "https:") {
				if scheme, host, target, err := n.canonicalURL(u, ""); err == nil {
					u = scheme + "://" + host + target
				}
			}
			named[name] = append(named[name], u)
		}
	}
	return named
}

// forwardable returns the fields of a response that go on to the client: the
// end-to-end ones. Cache-Status is rebuilt by who serves it.
func forwardable(h http.Header) http.Header {
	h = h.Clone()
	shield.HopByHop(h)
	delete(h, "Cache-Status")
	delete(h, "Content-Length")
	delete(h, shield.HopField)
	return h
}
