package shield

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestHopByHop(t *testing.T) {
	h := http.Header{
		"Connection":                {"close, X-One", "x-two,, keep-alive ,Cache-Control, CDN-Loop,via, Edged-Hop, Vary, CDN-Cache-Control"},
		"X-One":                     {"1"},
		"X-Two":                     {"2", "2"},
		"X-Three":                   {"3"},
		"Keep-Alive":                {"timeout=5"},
		"Te":                        {"trailers"},
		"Trailer":                   {"X-T"},
		"Transfer-Encoding":         {"foo"},
		"Upgrade":                   {"h2c"},
		"Http2-Settings":            {"AAMAAABkAARAAAAAAAIAAAAA"},
		"Proxy-Connection":          {"keep-alive"},
		"Proxy-Authenticate":        {"Basic"},
		"Proxy-Authorization":       {"Basic eDp5"},
		"Proxy-Authentication-Info": {"x"},
		"Proxy-Status":              {"edge; error=dns"},
		"Cache-Control":             {"private"},
		"Cdn-Cache-Control":         {"no-store"},
		"Vary":                      {"Cookie"},
		"Cdn-Loop":                  {"x"},
		"Via":                       {"1.1 x"},
		"Edged-Hop":                 {"peer"},
		"Content-Type":              {"text/plain"},
	}
	HopByHop(h)
	want := []string{"Cache-Control", "Cdn-Cache-Control", "Cdn-Loop", "Content-Type", "Edged-Hop", "Proxy-Status", "Vary", "Via", "X-Three"}
	if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestAppendVia(t *testing.T) {
	for _, tc := range []struct {
		name  string
		came  []string
		proto string
		want  string
	}{
		{"first (RFC 9110 section 7.6.3)", nil, "HTTP/1.1", "1.1 edge-a"},
		{"HTTP/1.0", []string{"1.1 fred"}, "HTTP/1.0", "1.1 fred, 1.0 edge-a"},
		{"HTTP/2", []string{"1.0 fred", "1.1 p.example.net (x, y)"}, "HTTP/2.0", "1.0 fred, 1.1 p.example.net (x, y), 2 edge-a"},
		{"HTTP/3", nil, "HTTP/3.0", "3 edge-a"},
		{"unknown protocol", nil, "", "1.1 edge-a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			if tc.came != nil {
				h["Via"] = tc.came
			}
			AppendVia(h, tc.proto, "edge-a")
			if got := strings.Join(h["Via"], "|"); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestStripOverrides(t *testing.T) {
	gone := []string{"X-Forwarded-Host", "X-Forwarded-Scheme", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
		"X-Forwarded-Prefix", "X-Forwarded-For", "X-Forwarded-Anything", "X_forwarded_host", "X-Forwarded_host", "X_original-Url",
		"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Host",
		"Forwarded", "X-Real-Ip", "True-Client-Ip", "Proxy", "x-forwarded-host", "X-FORWARDED-HOST"}
	kept := []string{"Cookie", "Accept", "X-Forwarded", "X-Requested-With", "X-Forward", "Authorization", "Proxy-Authorization", strings.Repeat("X", 9999)}
	kept = slices.DeleteFunc(kept, func(s string) bool { return s == "X-Forwarded" })
	h := http.Header{}
	for _, n := range append(slices.Clone(gone), kept...) {
		h[n] = []string{"v"}
	}
	StripOverrides(h)
	slices.Sort(kept)
	if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, kept) {
		t.Errorf("left %.40q, want %.40q", got, kept)
	}
}

func TestSetForwarded(t *testing.T) {
	for _, tc := range []struct {
		name, addr, host, scheme string
		xff, forwarded           string
	}{
		{"IPv4 (RFC 7239 section 6.1)", "192.0.2.43", "example.com", "https", "192.0.2.43", "for=192.0.2.43;host=example.com;proto=https"},
		{"IPv6 is quoted", "2001:db8::17", "", "http", "2001:db8::17", `for="[2001:db8::17]";proto=http`},
		{"IPv4 in IPv6", "::ffff:192.0.2.1", "", "", "192.0.2.1", "for=192.0.2.1"},
		{"a zone is ours alone", "fe80::1%eth0", "", "", "fe80::1", `for="[fe80::1]"`},
		{"host with port is quoted (section 5.3)", "192.0.2.1", "example.com:8080", "", "192.0.2.1", `for=192.0.2.1;host="example.com:8080"`},
		{"a host can't break out", "192.0.2.1", "a\";by=\\evil\r\nX: y", "", "192.0.2.1", `for=192.0.2.1;host="a\";by=\\evilX: y"`},
		{"unknown", "", "example.com", "http", "unknown", "for=unknown;host=example.com;proto=http"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{"X-Forwarded-For": {"10.0.0.1", "10.0.0.2"}, "Forwarded": {"for=10.0.0.1"}}
			addr, _ := netip.ParseAddr(tc.addr)
			SetForwarded(h, addr, tc.host, tc.scheme)
			if got := strings.Join(h["X-Forwarded-For"], "|"); got != tc.xff {
				t.Errorf("X-Forwarded-For %q, want %q", got, tc.xff)
			}
			if got := strings.Join(h["Forwarded"], "|"); got != tc.forwarded {
				t.Errorf("Forwarded %q, want %q", got, tc.forwarded)
			}
		})
	}
}
