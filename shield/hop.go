package shield

import (
	"net/http"
	"strings"
)

// HopByHop removes from a message's fields, in place, what is meant for one
// connection only (RFC 9110 section 7.6.1): the fields that Connection lists,
// Connection itself, Keep-Alive, TE, Trailer, Transfer-Encoding, Upgrade,
// HTTP2-Settings, and every Proxy-* but Proxy-Status, which is for everyone
// (RFC 9209).
//
// It goes over requests and responses on their way in and, for a response that
// switches protocols, before the caller puts Connection and Upgrade back. The
// trailers that net/http announces stand beside the fields, in
// Response.Trailer, and are not touched.
//
// Fields that guard us are kept even if Connection lists them, since a stranger
// could use it to take them away: see guarded. "Cache-Control is never
// appropriate as a connection option" says the section itself.
func HopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if name := http.CanonicalHeaderKey(trimOWS(option)); !guarded(name) {
				delete(h, name)
			}
		}
	}
	for name := range h {
		if hopByHop(name) {
			delete(h, name)
		}
	}
}

// hopByHop reports whether a field, in canonical form, is for one connection.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	case "Proxy-Status":
		return false
	}
	return strings.HasPrefix(name, "Proxy-")
}

// guarded reports whether a field, in canonical form, outlasts being listed in
// Connection: the loop guard, what says that a response is not for everyone,
// and what selects it.
func guarded(name string) bool {
	switch name {
	case cdnLoopField, "Via", HopField, "Cache-Control", "Cdn-Cache-Control", "Vary", "Host":
		return true
	}
	return false
}

// AppendVia adds this node to Via (RFC 9110 section 7.6.3): proto is the
// protocol in which the message was received, as http.Request.Proto and
// http.Response.Proto have it ("HTTP/1.1" becomes 1.1, "HTTP/2.0" 2), and
// pseudonym the token that stands for the node.
func AppendVia(h http.Header, proto, pseudonym string) {
	version := strings.TrimPrefix(proto, "HTTP/")
	switch version {
	case "":
		version = "1.1"
	case "2.0", "3.0":
		version = version[:1]
	}
	appendList(h, "Via", version+" "+pseudonym)
}
