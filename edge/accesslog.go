package edge

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"edged/edge/rfc9111"
	"edged/shield"
)

// AccessLog says which requests get a line in the log, on level info with the
// message "request". Each has exactly one reason: why it was not simply a hit,
// or "fresh".
//
// What may be secret is never in it: no header field but the request id, the
// trace and the address of the client, and no query unless Query says so.
type AccessLog struct {
	Sample float64       // share of the requests that are logged, 0 to 1; 0: none
	Slow   time.Duration // a request whose answer's head took so long is always logged; 0: 5 s, below 0: never
	Query  bool          // log the query, too: it may hold tokens and names
}

// accessed decides whether a request is logged, and logs it. It costs a hit two
// comparisons when it is not.
func (n *Node) accessed(rq *request, r result, took time.Duration) {
	cfg := &n.cfg.Log.Access
	head := rq.headAfter
	if rq.status == 0 {
		head = took // there was none
	}
	slow := cfg.Slow > 0 && head >= cfg.Slow
	if !slow && (cfg.Sample == 0 || cfg.Sample < 1 && rand.Float64() >= cfg.Sample) {
		return
	}
	target := rq.target
	if !cfg.Query {
		target = pathOf(target)
	}
	from := "client"
	if rq.hop != shield.HopNone {
		from = string(rq.hop)
	}
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("id", n.requestID(rq)), slog.String("from", from), slog.String("client", remoteAddr(rq.r).String()),
		slog.String("method", rq.r.Method), slog.String("host", rq.host), slog.String("path", target), slog.String("proto", rq.r.Proto),
		slog.Int("status", rq.status), slog.Int64("bytes", rq.sentBytes),
		slog.Float64("head_ms", milliseconds(head)), slog.Float64("took_ms", milliseconds(took)),
		slog.String("result", string(r)), slog.String("reason", rq.reason),
	)
	if rq.site != nil {
		attrs = append(attrs, slog.String("site", rq.site.Name))
	}
	if tp, ok := traceParent(rq.r.Header); ok {
		attrs = append(attrs, slog.String("trace", tp[3:35]))
	}
	if slow {
		attrs = append(attrs, slog.Bool("slow", true))
	}
	n.log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// The reasons that Cache-Status has no word for.
const (
	reasonFresh   = "fresh"
	reasonStale   = "stale-served"
	reasonGone    = "client-gone"
	reasonBroken  = "broken-off"
	reasonUnasked = "refused" // when nothing better is known
)

// because sets the one reason of a request from what its Cache-Status says: for
// what it went on, else what answered here. One that is set stays.
func (rq *request) because(cs *rfc9111.CacheStatus) {
	switch {
	case rq.reason != "":
	case cs.Fwd != "":
		rq.reason = cs.Fwd
	case cs.Detail != "":
		rq.reason = cs.Detail
	case cs.Hit && cs.HasTTL && cs.TTL < 0:
		rq.reason = reasonStale
	case cs.Hit:
		rq.reason = reasonFresh
	default:
		rq.reason = reasonUnasked
	}
}

const (
	requestIDField = "X-Request-Id"
	maxRequestID   = 128

	traceParentField = "Traceparent"
	traceStateField  = "Tracestate"
	maxTraceState    = 512 // W3C Trace Context §3.3.1.5 asks for as much
)

// requestID is the request's own id when it is well-formed, else a new one of
// 128 random bits; always the same for one request. The client is told it, so
// that who complains of an answer can say which: the log, the peers and the
// origin know it by this.
func (n *Node) requestID(rq *request) string {
	if rq.id == "" {
		if ids := rq.r.Header[requestIDField]; len(ids) == 1 && wellFormedID(ids[0]) {
			rq.id = ids[0]
		} else {
			var b [32]byte
			hex64(b[:16], rand.Uint64())
			hex64(b[16:], rand.Uint64())
			rq.id = string(b[:])
		}
	}
	return rq.id
}

// wellFormedID reports whether an id is one that a log and a header field can
// hold without quoting.
func wellFormedID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:+/=~@", c) >= 0) {
			return false
		}
	}
	return true
}

// hex64 writes v as 16 hexadecimal digits.
func hex64(b []byte, v uint64) {
	const digits = "0123456789abcdef"
	for i := 15; i >= 0; i-- {
		b[i] = digits[v&15]
		v >>= 4
	}
}

// identifyHops gives an outgoing request the id, and only such trace context as
// W3C Trace Context allows to pass on (§4.3): an invalid parent goes with its
// state, so that nobody continues a trace that is none.
func (n *Node) identifyHops(rq *request, h http.Header) {
	h[requestIDField] = []string{n.requestID(rq)}
	if h[traceParentField] == nil && h[traceStateField] == nil {
		return
	}
	if _, ok := traceParent(h); !ok {
		delete(h, traceParentField)
		delete(h, traceStateField)
		return
	}
	size := 0
	for _, line := range h[traceStateField] {
		size += len(line) + 1
	}
	if size > maxTraceState+1 {
		delete(h, traceStateField)
	}
}

// traceParent returns the traceparent (W3C Trace Context §3.2) and whether
// there is exactly one and it is valid. A later version may have more at its
// end, after a dash.
func traceParent(h http.Header) (string, bool) {
	lines := h[traceParentField]
	if len(lines) != 1 {
		return "", false
	}
	s := lines[0]
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return "", false
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	switch {
	case !lowerHex(version) || version == "ff" || !lowerHex(trace) || !lowerHex(parent) || !lowerHex(flags):
		return "", false
	case strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "":
		return "", false
	case version == "00" && len(s) != 55, len(s) > 55 && s[55] != '-', len(s) > 512:
		return "", false
	}
	return s, true
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}
