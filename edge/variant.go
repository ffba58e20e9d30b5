package edge

import (
	"net/http"
	"strings"

	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/shield"
)

// nominating returns the fields that the named ones are read from when a
// variant is selected for the request (RFC 9111 §4.1): those that go on to the
// origin, as its answer depends on them and on nothing else. A field that the
// client's Connection lists, or that is not taken from strangers, counts as
// absent; else one client could have a response stored for the others that was
// made without the field which they send. X-Forwarded-For is what this node
// writes there.
//
// For nearly all requests these fields are the client's own, which costs nothing.
func (n *Node) nominating(rq *request, names []string) http.Header {
	if rq.hop != shield.HopNone || goAsTheyCame(names) && onlyOptions(rq.r.Header["Connection"]) {
		return rq.r.Header
	}
	if rq.sent == nil {
		rq.sent = n.forwardHeader(rq, true)
	}
	return rq.sent
}

// goAsTheyCame reports whether all these fields are ones that forwarding does
// not touch. Accept-Encoding goes on in another form with the same meaning.
func goAsTheyCame(names []string) bool {
	for _, name := range names {
		switch name {
		case "Accept", "Accept-Encoding", "Accept-Language", "Access-Control-Request-Headers", "Access-Control-Request-Method",
			"Authorization", "Cookie", "Device-Memory", "Dpr", "Origin", "Purpose", "Referer", "Save-Data", "User-Agent",
			"Viewport-Width", "Width", "X-Requested-With":
		default:
			if !strings.HasPrefix(name, "Sec-") {
				return false
			}
		}
	}
	return true
}

// onlyOptions reports whether the Connection field lists no other field.
func onlyOptions(lines []string) bool {
	for _, line := range lines {
		if !strings.EqualFold(line, "keep-alive") && !strings.EqualFold(line, "close") {
			return false
		}
	}
	return true
}

// selectVariant returns the most recent response whose nominated request
// fields match (RFC 9111 §4.1).
func (n *Node) selectVariant(rq *request, variants []*store.Response) *store.Response {
	for _, v := range variants {
		m := metaOf(v)
		if len(m.nominated) == 0 || rfc9111.Matches(m.nominated, m.vary, n.nominating(rq, m.nominated)) {
			return v
		}
	}
	return nil
}

// flightKey names the forward that the request may share: its key, and the
// nominated fields as far as they are known from what is stored.
func (n *Node) flightKey(rq *request, variants []*store.Response) string {
	if len(variants) == 0 || len(metaOf(variants[0]).nominated) == 0 {
		return rq.key.URL
	}
	names := metaOf(variants[0]).nominated
	return rq.key.URL + "\x00" + rfc9111.VariantKey(names, n.nominating(rq, names))
}
