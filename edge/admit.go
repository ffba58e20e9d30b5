package edge

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"edged/edge/rfc9111"
	"edged/shield"
)

const (
	maxTargetBytes = 16 << 10 // of a request target
	maxFields      = 256      // lines in a request's head
	maxHeaderBytes = 64 << 10 // of a request's head
)

// The reasons why a request is refused before it has a key.
const (
	rejectHost   = "host"
	rejectTarget = "target"
	rejectMethod = "method"
	rejectFields = "fields"
	rejectLoop   = "loop"
	rejectHop    = "hop"

	rejectFraming = "framing" // see framing.go
	rejectMemory  = "memory"  // too much is held by unfinished heads
)

var rejectReasons = []string{rejectHost, rejectTarget, rejectMethod, rejectFields, rejectLoop, rejectHop, rejectFraming, rejectMemory}

// admit checks what must hold of every request, and fills in what it asks
// for; when something does not, the request has been answered.
func (n *Node) admit(rq *request) bool {
	r := rq.r
	fields := 0
	for _, lines := range r.Header {
		fields += len(lines)
	}
	switch {
	case fields > maxFields:
		return n.reject(rq, rejectFields, http.StatusRequestHeaderFieldsTooLarge, "too many header fields")
	case r.Method == http.MethodConnect:
		return n.reject(rq, rejectMethod, http.StatusNotImplemented, "CONNECT is not served here")
	case len(r.RequestURI) > maxTargetBytes:
		return n.reject(rq, rejectTarget, http.StatusRequestURITooLong, "the request target is too long")
	}
	path, query, ok := splitTarget(r)
	if !ok {
		return n.reject(rq, rejectTarget, http.StatusBadRequest, "the request target is neither a path nor an http URL")
	}
	rq.scheme = "http"
	if r.TLS != nil {
		rq.scheme = "https"
	}
	if r.Host == "" && !r.ProtoAtLeast(1, 1) {
		// HTTP/1.0 knows no Host: the server is the one at the address that the
		// connection came to (RFC 9112 §3.3).
		if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			r.Host = a.String()
		}
	}
	if rq.host, ok = rfc9111.CanonicalHost(r.Host, rq.scheme); !ok {
		return n.reject(rq, rejectHost, http.StatusBadRequest, "the Host is not valid")
	}
	if rq.hop == shield.HopNone {
		rq.host = n.withoutOwnPort(rq.host) // a member has done so already, with its own
	}
	if shield.CheckLoop(r.Header, n.cfg.Name) {
		return n.reject(rq, rejectLoop, http.StatusLoopDetected, "this request has passed here before (CDN-Loop): an origin points back at this node")
	}
	rq.target = rfc9111.NormaliseTarget(path, query)
	return true
}

// withoutOwnPort drops the port of a canonical host when it is the one that
// clients reach this node at: where a node happens to listen is no part of
// what a resource is called, and members on one machine listen on different
// ports.
func (n *Node) withoutOwnPort(host string) string {
	return strings.TrimSuffix(host, n.ownPort)
}

// splitTarget returns path and query as the client sent them, from the origin
// form or the absolute form of the target (RFC 9112 §3.2).
func splitTarget(r *http.Request) (path, query string, ok bool) {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") {
		if target == "*" && r.Method == http.MethodOptions {
			return "*", "", true
		}
		u, err := url.Parse(target)
		if err != nil || u.Host == "" || u.User != nil || (!strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https")) {
			return "", "", false
		}
		_, rest, _ := strings.Cut(target, "://")
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			return "/", "", true
		}
		if target = rest[i:]; target[0] == '?' {
			target = "/" + target
		}
	}
	path, query, _ = strings.Cut(target, "?")
	if strings.IndexByte(target, '#') >= 0 {
		return "", "", false
	}
	return path, query, true
}

// reject answers a request that has no key; it returns false. Who sends a
// malformed one may see its other requests on this connection in another way
// than we do, so the connection ends; and what follows a CONNECT was not
// meant for us.
func (n *Node) reject(rq *request, reason string, status int, text string) bool {
	n.metrics.rejected.WithLabelValues(reason).Inc()
	rq.reason = "refused-" + reason
	rq.hangUp = status == http.StatusBadRequest || rq.r.Method == http.MethodConnect
	n.failWith(rq, status, rfc9111.CacheStatus{}, text)
	return false
}

// stripInternal removes the fields by which members talk to each other from a
// client's request.
func (n *Node) stripInternal(h http.Header) {
	delete(h, shield.HopField)
	delete(h, changesField)
}

// forwardHeader makes the end-to-end fields of an outgoing request. For a
// fetch that may be stored, the client's conditions and ranges stay behind: it
// asks for the whole.
func (n *Node) forwardHeader(rq *request, whole bool) http.Header {
	h := rq.r.Header.Clone()
	shield.HopByHop(h)
	if whole {
		for _, name := range conditional {
			delete(h, name)
		}
	}
	if ae := h["Accept-Encoding"]; ae != nil && whole {
		if v := rfc9111.NormaliseAcceptEncoding(ae); v != "" {
			h["Accept-Encoding"] = []string{v}
		}
	}
	if !rq.hasBody() || !rq.r.ProtoAtLeast(1, 1) {
		// It speaks of the content that is to come, and HTTP/1.0 does not know it
		// (RFC 9110 §10.1.1).
		delete(h, "Expect")
	}
	if rq.hop == shield.HopNone {
		shield.StripOverrides(h)
		shield.SetForwarded(h, remoteAddr(rq.r), rq.r.Host, rq.scheme)
	}
	n.identifyHops(rq, h)
	shield.AppendVia(h, rq.r.Proto, n.cfg.Name)
	shield.AppendCDNLoop(h, n.cfg.Name)
	return h
}

var conditional = []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range"}

// clientConditions returns the conditions and ranges that the client sent.
func clientConditions(h http.Header) http.Header {
	c := http.Header{}
	for _, name := range conditional {
		if v := h[name]; v != nil {
			c[name] = v
		}
	}
	return c
}
