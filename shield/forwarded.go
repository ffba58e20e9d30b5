package shield

import (
	"net/http"
	"net/netip"
	"strings"
)

// StripOverrides removes from a stranger's request, in place, the fields by
// which frameworks behind proxies let a request's host, scheme, port, path,
// method or client address be replaced. They are no part of the cache key, so
// one client could choose what is stored for the others.
//
// Beside the fields by name it removes everything that begins with
// X-Forwarded-, and Proxy, which CGI programs take for their outgoing proxy.
// Spellings with underscores count as well: CGI, WSGI and Rack make the same
// variable of both. X-Forwarded-For and Forwarded go too; [SetForwarded] puts
// our own there.
func StripOverrides(h http.Header) {
	for name := range h {
		if isOverride(name) {
			delete(h, name)
		}
	}
}

// isOverride reports whether a field's name is one of those, in any case.
func isOverride(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if strings.HasPrefix(name, "x-forwarded-") {
		return true
	}
	switch name {
	case "client-ip",
		"forwarded",
		"forwarded-for",
		"front-end-https",
		"proxy",
		"true-client-ip",
		"x-client-ip",
		"x-cluster-client-ip",
		"x-envoy-external-address",
		"x-envoy-original-path",
		"x-forwarded",
		"x-host",
		"x-http-host-override",
		"x-http-method",
		"x-http-method-override",
		"x-https",
		"x-method-override",
		"x-middleware-subrequest",
		"x-original-host",
		"x-original-method",
		"x-original-remote-addr",
		"x-original-uri",
		"x-original-url",
		"x-originating-ip",
		"x-override-url",
		"x-proxy-url",
		"x-real-ip",
		"x-remote-addr",
		"x-remote-ip",
		"x-request-uri",
		"x-rewrite-uri",
		"x-rewrite-url",
		"x-scheme",
		"x-url-scheme":
		return true
	}
	return false
}

// SetForwarded replaces X-Forwarded-For and Forwarded (RFC 7239) by what this
// node saw itself: the client's address, the host that it asked for and the
// scheme that it used. A zero address stands as "unknown"; a host that needs it
// is quoted, an empty one left out.
func SetForwarded(h http.Header, client netip.Addr, host, scheme string) {
	client = client.Unmap().WithZone("")
	node, xff := "unknown", "unknown"
	if client.IsValid() {
		xff = client.String()
		node = xff
		if client.Is6() {
			node = `"[` + xff + `]"`
		}
	}
	v := "for=" + node
	if host != "" {
		v += ";host=" + quoteUnlessToken(host)
	}
	if scheme != "" {
		v += ";proto=" + quoteUnlessToken(scheme)
	}
	h["X-Forwarded-For"] = []string{xff}
	h["Forwarded"] = []string{v}
}

// quoteUnlessToken writes a parameter's value as RFC 9110 section 5.6.6 has it.
func quoteUnlessToken(s string) string {
	if s != "" && tokenLen(s) == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' && c != '\t' || c == 0x7f:
			// a control byte has no place in a quoted string
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
