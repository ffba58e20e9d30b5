package rfc9111

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxHostLen is the longest host that is accepted: a DNS name has 253 bytes,
// and one may end in a dot.
const maxHostLen = 254

// CanonicalHost brings a Host field or authority to its one form, RFC 9110
// §4.2.3: lower case, without the scheme's default port or an empty one, IPv6
// addresses as RFC 5952 writes them, in brackets. It reports false for what is
// no host[:port]: user information, "h:abc", "h:80:80", "[::1", a zone, an
// empty host, labels that are empty or hold anything but letters, digits, "-"
// and "_". scheme is "http" or "https". It does not allocate for a name that is
// in that form already.
//
// A dot at the end stays: to a server, it is another host.
func CanonicalHost(host, scheme string) (string, bool) {
	name, port, ok := splitHost(host)
	if !ok {
		return "", false
	}
	if name[0] == '[' {
		addr, err := netip.ParseAddr(name[1 : len(name)-1])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", false
		}
		if v6 := addr.String(); v6 != name[1:len(name)-1] {
			name = "[" + v6 + "]"
		}
	} else if !isHostname(name) {
		return "", false
	}
	canonicalPort, ok := canonicalPort(port, scheme)
	if !ok {
		return "", false
	}
	if canonicalPort == "" {
		return strings.ToLower(name), true
	}
	if canonicalPort == port && host[:len(name)] == name {
		return strings.ToLower(host), true
	}
	return strings.ToLower(name) + ":" + canonicalPort, true
}

// splitHost cuts at the colon before the port. name is never empty; in
// brackets, it has both.
func splitHost(host string) (name, port string, ok bool) {
	end := strings.IndexByte(host, ':')
	if host != "" && host[0] == '[' {
		if end = strings.IndexByte(host, ']'); end < 0 {
			return "", "", false
		}
		end++
	} else if end < 0 {
		end = len(host)
	}
	if end == 0 {
		return "", "", false
	}
	if end == len(host) {
		return host, "", true
	}
	if host[end] != ':' {
		return "", "", false
	}
	return host[:end], host[end+1:], true
}

func isHostname(s string) bool {
	if len(s) > maxHostLen {
		return false
	}
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
		case isAlpha(c), isDigit(c), c == '-', c == '_':
			label++
		default:
			return false
		}
	}
	return true
}

// canonicalPort is "" for the default port and for no port.
func canonicalPort(port, scheme string) (string, bool) {
	if port == "" {
		return "", true
	}
	n, ok := parseLength(port)
	if !ok || n > 65535 {
		return "", false
	}
	if n == 80 && scheme == "http" || n == 443 && scheme == "https" {
		return "", true
	}
	if port[0] != '0' || len(port) == 1 {
		return port, true
	}
	return strconv.FormatInt(n, 10), true
}
