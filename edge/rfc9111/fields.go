package rfc9111

import (
	"net/http"
	"slices"
)

// isHopByHop reports whether the field, by its canonical name, concerns one
// connection only, RFC 9110 §7.6.1, or the proxy that sent it, §3.1. Trailer
// is among them as a stored response is sent without trailers. Proxy-Status
// (RFC 9209) isn't: it tells about the response.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization":
		return true
	}
	return false
}

// connectionFields are the canonical names that Connection lists.
func connectionFields(h http.Header) []string {
	var names []string
	for m := range members(h["Connection"]) {
		names = append(names, http.CanonicalHeaderKey(m))
	}
	return names
}

// StoredHeader is the part of a received header section that is kept with the
// stored response and sent on reuse, as a copy: without the hop-by-hop fields
// and those that Connection lists (§3.1), without the fields that a qualified
// no-cache or private names (§5.2.2.4, §5.2.2.7), and without Age, which is
// computed anew from [Stored.Age].
//
// net/http's Transport removes a Connection field that holds close, and with it
// the names of the fields that it lists; a caller that wants those gone has to
// see the response before the Transport does.
func StoredHeader(h http.Header) http.Header {
	cc, _ := Control(h)
	listed := connectionFields(h)
	kept := make(http.Header, len(h))
	for name, lines := range h {
		if name == "Age" || isHopByHop(name) || slices.Contains(listed, name) || cc.hides(name) {
			continue
		}
		kept[name] = slices.Clone(lines)
	}
	return kept
}

// HeaderForOthers returns what a client may see of a response that another one's
// request has brought: all but the fields that a qualified no-cache or private
// names (§5.2.2.4, §5.2.2.7). It is h itself when there are none.
func HeaderForOthers(h http.Header) http.Header {
	cc, _ := Control(h)
	if len(cc.NoCacheFields) == 0 && len(cc.PrivateFields) == 0 {
		return h
	}
	open := make(http.Header, len(h))
	for name, lines := range h {
		if !cc.hides(name) {
			open[name] = lines
		}
	}
	return open
}
