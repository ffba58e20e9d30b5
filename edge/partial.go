package edge

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/store"
)

// A range of what is not stored goes on as a range, so that an origin which
// knows ranges sends that part only. The 206 is stored: parts of one
// representation lie in one response, which is served like any other as far as
// its parts reach. A request for more asks for what is missing, under the
// condition that the representation is still the same, and what comes is
// joined to what is held (RFC 9111 §3.3, §3.4).
//
// What is held goes to the client first, then what comes, so that filling a
// gap streams like any forward: to the rest of the node a filled gap looks as
// if the origin had sent it all. The other design, to fetch the rest, store and
// then serve, would need no joining while it streams, but the first byte would
// wait for the last.
//
// Peers are not told of parts, and not asked for any: a part at a peer answers
// them as a stale response would.

const (
	// maxParts bounds the parts of one stored response. A client that jumps
	// about more than that has the earlier ones forgotten.
	maxParts = 64

	// shareChunk is the smallest chunk that a joined body takes over as it is;
	// smaller ones are copied together.
	shareChunk = 32 << 10
)

// parts is which bytes of a representation a stored response has: sorted,
// neither overlapping nor touching, one after the other in its body. A complete
// response has none.
type parts []rfc9111.Range

// offset is where in the body the range begins; not ok when it is not held
// whole.
func (ps parts) offset(r rfc9111.Range) (off int64, ok bool) {
	for _, p := range ps {
		if r.Start >= p.Start && r.Start+r.Length <= p.Start+p.Length {
			return off + r.Start - p.Start, true
		}
		off += p.Length
	}
	return 0, false
}

// span returns the run from the first to the last byte of r that is missing;
// its length is 0 when there is none. A hole in the middle that is held is
// asked for again: the answer is then one range, not a multipart to be read.
func (ps parts) span(r rfc9111.Range) rfc9111.Range {
	gaps := rfc9111.Missing(ps, r)
	if len(gaps) == 0 {
		return rfc9111.Range{Start: r.Start}
	}
	last := gaps[len(gaps)-1]
	return rfc9111.Range{Start: gaps[0].Start, Length: last.Start + last.Length - gaps[0].Start}
}

// partial reports whether only parts of the representation are there.
func (m *meta) partial() bool { return m.parts != nil }

// offset is where in a stored body the range begins.
func (m *meta) offset(r rfc9111.Range) int64 {
	if !m.partial() {
		return r.Start
	}
	off, _ := m.parts.offset(r)
	return off
}

// sizeOf is the size of the representation that a stored response is, or has
// parts of.
func sizeOf(r *store.Response) int64 {
	if m := metaOf(r); m.partial() {
		return m.size
	}
	return r.Body.Len()
}

// rangedHeaderOf is the header of a stored response with the Content-Range
// that a response with its first part has.
func rangedHeaderOf(r *store.Response) http.Header {
	h := headerOf(r)
	if m := metaOf(r); m.partial() {
		h["Content-Range"] = []string{m.parts[0].ContentRange(m.size)}
	}
	return h
}

// covers reports whether a stored response has all that the request asks for.
func (n *Node) covers(rq *request, r *store.Response) bool {
	m := metaOf(r)
	return !m.partial() || n.within(rq, m, headerOf(r))
}

// within reports whether the request asks for ranges that lie within a partial
// response with this header.
func (n *Node) within(rq *request, m *meta, header http.Header) bool {
	if rq.r.Method != http.MethodGet {
		return false
	}
	ranges, ok := n.rangesFor(rq, m.size, header, m)
	for _, r := range ranges {
		if _, held := m.parts.offset(r); !held {
			return false
		}
	}
	return ok
}

// framedPart reports whether a 206 answers a request for a range, and says the
// size of the representation and nothing that contradicts its own length.
func framedPart(req http.Header, resp *http.Response) bool {
	r, size, ok := rfc9111.ParseContentRange(strings.TrimSpace(resp.Header.Get("Content-Range")))
	return ok && size >= 0 && req["Range"] != nil && (resp.ContentLength < 0 || resp.ContentLength == r.Length)
}

// rangeToForward returns the fields that ask another party for the one range
// that the client asks for; nil when it does not ask for one that may exist.
func rangeToForward(rq *request) http.Header {
	lines := rq.r.Header["Range"]
	if rq.r.Method != http.MethodGet || len(lines) != 1 || strings.Contains(lines[0], ",") {
		return nil
	}
	const unit = "bytes="
	if _, satisfiable, ok := rfc9111.ParseRanges(lines[0], 1<<62); !ok || !satisfiable {
		return nil
	}
	h := http.Header{"Range": {unit + strings.TrimSpace(lines[0][len(unit):])}}
	if v := rq.r.Header["If-Range"]; v != nil {
		h["If-Range"] = v
	}
	return h
}

// planRange decides what range the forward of a request that is not answered
// from the store asks for. A partial response that is not enough for the
// request is completed where it can be, and never validated: a part fetched
// with If-Range says as much.
func (n *Node) planRange(fw *forward, rq *request, why string) {
	if !forwardsRange(why, fw.stale) {
		return
	}
	if fw.ask = rangeToForward(rq); why != "partial" {
		return
	}
	fw.held, fw.stale = fw.stale, nil
	fw.askInstead = fw.ask
	if rq.r.Method != http.MethodGet {
		return
	}
	if f, ask := n.newFilling(rq, fw.held); f != nil {
		fw.filling, fw.ask = f, ask
	}
}

// toValidate returns those variants that a 304 may speak of: the complete
// ones, and the selected one.
func toValidate(variants []*store.Response, selected *store.Response) []*store.Response {
	other := func(r *store.Response) bool { return r != selected && metaOf(r).partial() }
	if !slices.ContainsFunc(variants, other) {
		return variants
	}
	return slices.DeleteFunc(slices.Clone(variants), other)
}

// forwardsRange reports whether the forward of a request for a range asks for
// that range. It does not where a complete response is validated: that is to be
// replaced by a complete one.
func forwardsRange(why string, selected *store.Response) bool {
	return why != "stale" && why != "request" || selected != nil && metaOf(selected).partial()
}

// rangeKey is the key of the flight that fetches a range for the request, when
// key is that of a flight for the whole.
func rangeKey(key string, rq *request, why string, selected *store.Response) string {
	if !forwardsRange(why, selected) {
		return key
	}
	ask := rangeToForward(rq)
	if ask == nil {
		return key
	}
	return key + "\x00" + ask["Range"][0] + "\x00" + joinLines(ask["If-Range"])
}

// filling is what a forward does with parts that are held.
type filling struct {
	held  *store.Response
	want  rfc9111.Range // what the client gets
	gap   rfc9111.Range // what is asked for, within want
	whole bool          // the client asks for the whole, not for a range
}

// newFilling plans how a held partial response is completed for the request;
// nil when its parts can't be joined with others, or one forward can't do it.
func (n *Node) newFilling(rq *request, held *store.Response) (*filling, http.Header) {
	m, header := metaOf(held), rangedHeaderOf(held)
	validator := rfc9111.StrongValidator(header)
	if validator == "" {
		return nil, nil
	}
	f := &filling{held: held, want: rfc9111.Range{Length: m.size}, whole: true}
	if ranges, ok := n.rangesFor(rq, m.size, header, m); ok {
		if len(ranges) != 1 {
			return nil, nil
		}
		f.want, f.whole = ranges[0], false
	}
	f.gap = m.parts.span(f.want)
	if f.gap.Length == 0 {
		return nil, nil
	}
	asks := rfc9111.FormatRanges([]rfc9111.Range{f.gap})
	if end := f.gap.Start + f.gap.Length; end == m.size {
		asks = asks[:strings.IndexByte(asks, '-')+1] // to the end, wherever that is
	}
	return f, http.Header{"Range": {asks}, "If-Range": {validator}}
}

// fill looks at the answer to a request for a gap, and makes one of it that
// the client's own request could have had. When the answer speaks of another
// representation, the parts are dropped, and unless it is the whole, the
// client's own request is made once.
func (n *Node) fill(ctx context.Context, fw *forward, up *upstream) (*upstream, error) {
	f, resp := fw.filling, up.resp
	switch {
	case resp.StatusCode == http.StatusPartialContent && f.joins(resp):
		up.resp = f.joined(fw, up)
		return up, nil
	case resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		up.close()
		n.store.RemoveResponse(fw.part, &fw.key, f.held)
		fw.filling, fw.ask = nil, fw.askInstead
		return n.obtainOrigin(ctx, fw)
	case resp.StatusCode < 300:
		n.store.RemoveResponse(fw.part, &fw.key, f.held)
	}
	return up, nil
}

// joins reports whether a 206 is the gap that was asked for, of the same
// representation.
func (f *filling) joins(resp *http.Response) bool {
	lines := resp.Header["Content-Range"]
	if len(lines) != 1 || !rfc9111.CombinesPartial(rangedHeaderOf(f.held), resp.Header) {
		return false
	}
	r, _, ok := rfc9111.ParseContentRange(strings.TrimSpace(lines[0]))
	return ok && r == f.gap && (resp.ContentLength < 0 || resp.ContentLength == r.Length)
}

// joined is the response that the held parts and the fetched gap make
// together. Its fields are the newer ones, laid over those that are held.
func (f *filling) joined(fw *forward, up *upstream) *http.Response {
	rfc9111.EnsureDate(up.resp.Header, up.responseTime)
	m := metaOf(f.held)
	h := rfc9111.Freshen(headerOf(f.held), up.resp.Header, fw.site.policy)
	delete(h, "Content-Range")
	if v := up.resp.Header["Cache-Status"]; v != nil {
		h["Cache-Status"] = v
	}
	resp := &http.Response{
		StatusCode: http.StatusOK, Proto: up.resp.Proto, ProtoMajor: up.resp.ProtoMajor, ProtoMinor: up.resp.ProtoMinor,
		Header: h, ContentLength: f.want.Length, Request: up.resp.Request,
	}
	if !f.whole {
		resp.StatusCode = http.StatusPartialContent
		h["Content-Range"] = []string{f.want.ContentRange(m.size)}
	}
	end := f.gap.Start + f.gap.Length
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(
		f.section(f.want.Start, f.gap.Start-f.want.Start),
		&exactReader{up.resp.Body, f.gap.Length},
		f.section(end, f.want.Start+f.want.Length-end),
	), up.resp.Body}
	return resp
}

// section reads bytes that are held.
func (f *filling) section(start, length int64) io.Reader {
	return io.NewSectionReader(f.held.Body, metaOf(f.held).offset(rfc9111.Range{Start: start, Length: length}), length)
}

// exactReader reads n bytes; an end before that is an error, and what follows
// is not read.
type exactReader struct {
	r io.Reader
	n int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	k, err := e.r.Read(p[:min(int64(len(p)), e.n)])
	e.n -= int64(k)
	if err == io.EOF && e.n > 0 {
		err = io.ErrUnexpectedEOF
	} else if e.n == 0 {
		err = nil
	}
	return k, err
}

// joinStored returns the response that a complete 206 is to be stored as: with
// the parts of the same representation that the store holds, and a 200 once
// nothing is missing. nil says that what is stored is better left.
func (n *Node) joinStored(fw *forward, out *outcome, chunks [][]byte) *store.Response {
	m, fresh := *out.meta, out.meta.parts[0]
	body := store.NewBody(chunks)
	if body.Len() != fresh.Length {
		n.metrics.unstored.WithLabelValues(unstoredIncomplete).Inc()
		return nil
	}
	incoming := out.kept.Clone()
	incoming["Content-Range"] = []string{fresh.ContentRange(m.size)}
	for _, old := range n.valid(fw.part, &fw.key, n.store.Get(fw.part, &fw.key)) {
		om := metaOf(old)
		if old.Variant != m.vary {
			continue
		}
		if !om.partial() {
			if reuse, _ := om.Decide(rfc9111.RequestDirectives{}, time.Now()); reuse == rfc9111.Fresh && !om.soft {
				return nil // the whole came while this part did
			}
		} else if rfc9111.CombinesPartial(rangedHeaderOf(old), incoming) {
			if ps, joined := joinParts(om.parts, old.Body, fresh, body); len(ps) <= maxParts {
				m.parts, body = ps, joined
			}
		}
		break
	}
	if len(m.parts) == 1 && m.parts[0].Length == m.size {
		m.parts, m.size = nil, 0
		m.phrase = nil
		m.Status, m.Flags = http.StatusOK, m.Flags&^rfc9111.FlagPartial
	}
	return &store.Response{Variant: m.vary, Head: serialiseHead(out.kept), Body: body, Meta: &m, MetaBytes: m.metaBytes()}
}

// joinParts joins a part to others. Where both have a byte, it is the newer's.
func joinParts(held parts, old store.Body, r rfc9111.Range, fresh store.Body) (parts, store.Body) {
	type piece struct {
		rfc9111.Range
		body store.Body
		off  int64
	}
	pieces := []piece{{r, fresh, 0}}
	off, end := int64(0), r.Start+r.Length
	for _, p := range held {
		if left := min(p.Start+p.Length, r.Start) - p.Start; left > 0 {
			pieces = append(pieces, piece{rfc9111.Range{Start: p.Start, Length: left}, old, off})
		}
		if right := p.Start + p.Length - max(p.Start, end); right > 0 {
			pieces = append(pieces, piece{rfc9111.Range{Start: p.Start + p.Length - right, Length: right}, old, off + p.Length - right})
		}
		off += p.Length
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Compare(a.Start, b.Start) })
	var ps parts
	var j joiner
	for _, p := range pieces {
		if i := len(ps) - 1; i >= 0 && ps[i].Start+ps[i].Length == p.Start {
			ps[i].Length += p.Length
		} else {
			ps = append(ps, p.Range)
		}
		j.add(p.body, p.off, p.Length)
	}
	return ps, store.NewBody(j.chunks)
}

// joiner makes a body of sections of others.
type joiner struct {
	chunks [][]byte
	own    bool // the last chunk is a copy, and may grow
}

// add appends a section. Large chunks that lie in it whole are shared with
// the body that they come from; the rest is copied, as a cut chunk would hold
// on to more memory than it shows.
func (j *joiner) add(b store.Body, off, length int64) {
	at := int64(0)
	for _, c := range b.Slices(nil) {
		from, to := max(off-at, 0), min(off+length-at, int64(len(c)))
		at += int64(len(c))
		switch i := len(j.chunks) - 1; {
		case from >= to:
		case to-from == int64(len(c)) && len(c) >= shareChunk:
			j.chunks, j.own = append(j.chunks, c), false
		case j.own && len(j.chunks[i]) < shareChunk:
			j.chunks[i] = append(j.chunks[i], c[from:to]...)
		default:
			j.chunks, j.own = append(j.chunks, append([]byte(nil), c[from:to]...)), true
		}
	}
}
