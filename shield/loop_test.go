package shield

import (
	"net/http"
	"strings"
	"testing"
)

func TestParseHop(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  Hop
		bad   bool
	}{
		{"absent", nil, HopNone, false},
		{"peer", []string{"peer"}, HopPeer, false},
		{"shield", []string{"shield"}, HopShield, false},
		{"empty", []string{""}, HopNone, true},
		{"another case", []string{"Peer"}, HopNone, true},
		{"a list", []string{"peer, shield"}, HopNone, true},
		{"twice", []string{"peer", "peer"}, HopNone, true},
		{"with a parameter", []string{"peer;x=1"}, HopNone, true},
		{"long", []string{strings.Repeat("p", 1<<16)}, HopNone, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			if tc.lines != nil {
				h[HopField] = tc.lines
			}
			got, err := ParseHop(h)
			if got != tc.want || (err != nil) != tc.bad {
				t.Errorf("%q, %v; want %q, error %v", got, err, tc.want, tc.bad)
			}
			if err != nil && len(err.Error()) > 200 {
				t.Errorf("the error repeats %d bytes of the input", len(err.Error()))
			}
		})
	}
}

// TestHop_oneHopOnly: whoever was asked by a node asks no other node, and for
// a peer not even the origin.
func TestHop_oneHopOnly(t *testing.T) {
	for _, tc := range []struct {
		hop           Hop
		nodes, origin bool
	}{{HopNone, true, true}, {HopPeer, false, false}, {HopShield, false, true}} {
		if tc.hop.MayAskNodes() != tc.nodes || tc.hop.MayAskOrigin() != tc.origin {
			t.Errorf("hop %q may ask nodes %v, the origin %v; want %v, %v", tc.hop, tc.hop.MayAskNodes(), tc.hop.MayAskOrigin(), tc.nodes, tc.origin)
		}
	}
	if http.CanonicalHeaderKey(HopField) != HopField || http.CanonicalHeaderKey("CDN-Loop") != cdnLoopField {
		t.Error("a field's name is not in net/http's canonical form")
	}
}

func TestCountCDNLoop(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  int
	}{
		{"absent", nil, 0},
		{"empty", []string{""}, 0},
		{"self (RFC 8586 section 2)", []string{"edge-a"}, 1},
		{"the RFC's example without us", []string{`foo123.foocdn.example, barcdn.example; trace="abcdef"`, `AnotherCDN; abc=123; def="456"`}, 0},
		{"behind the RFC's example", []string{`foo123.foocdn.example, barcdn.example; trace="abcdef"`, `AnotherCDN; abc=123; def="456", edge-a`}, 1},
		{"in another case", []string{"Edge-A"}, 1},
		{"with a port it is another", []string{"edge-a:80"}, 0},
		{"part of a longer name", []string{"edge-ab, xedge-a"}, 0},
		{"several times, on several lines", []string{"edge-a, x", "edge-a ;v=1, edge-a"}, 3},
		{"parameters, spaces, empty elements", []string{", ,x ; a=1 ;b=\"2\" , edge-a\t;c=3,"}, 1},
		{"in a quoted string (section 2)", []string{`x; by="edge-a"`}, 0},
		{"in a quoted string with commas", []string{`x; by=", edge-a, "`}, 0},
		{"escaped quote", []string{`x; by="\", edge-a", y`}, 0},
		{"as a parameter's value", []string{`x; by=edge-a`}, 0},
		{"as a parameter's name", []string{`x; edge-a=1`}, 0},
		{"IPv6 host", []string{"[::1]:80, edge-a"}, 1},
		{"unclosed quote can't hide what follows", []string{`x; a=", edge-a`}, 1},
		{"unclosed quote and parameters", []string{`x; a=", edge-a; v=1`}, 1},
		{"junk is searched too", []string{`x y, edge-a`}, 1},
		{"a parameter without value is junk, and searched", []string{`x; y, edge-a`}, 1},
		{"quoted identifier is junk", []string{`"edge-a"`}, 0},
		{"junk on one line, us on the next", []string{`"`, "edge-a"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{cdnLoopField: tc.lines}
			if got := CountCDNLoop(h, "edge-a"); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
			if got := CheckLoop(h, "edge-a"); got != (tc.want > 0) {
				t.Errorf("CheckLoop %v", got)
			}
		})
	}
}

func TestAppendCDNLoop_keepsWhatCame(t *testing.T) {
	h := http.Header{}
	AppendCDNLoop(h, "edge-a")
	if got := h.Get("CDN-Loop"); got != "edge-a" {
		t.Errorf("%q", got)
	}
	came := []string{`barcdn.example; trace="a,b"`, "x"}
	h = http.Header{cdnLoopField: came}
	AppendCDNLoop(h, "edge-a")
	if got, want := strings.Join(h[cdnLoopField], "|"), `barcdn.example; trace="a,b", x, edge-a`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if came[0] != `barcdn.example; trace="a,b"` {
		t.Error("the old slice was written to")
	}
}

// FuzzCDNLoop: whatever came before, a node that appended itself is found.
func FuzzCDNLoop(f *testing.F) {
	f.Add(`foo123.foocdn.example, barcdn.example; trace="abcdef"`)
	f.Add(`AnotherCDN; abc=123; def="456"`)
	f.Add(`x; a="\`)
	f.Fuzz(func(t *testing.T, line string) {
		h := http.Header{cdnLoopField: {line}}
		before := CountCDNLoop(h, "edge-a")
		AppendCDNLoop(h, "edge-a")
		if after := CountCDNLoop(h, "edge-a"); after < 1 || after < before {
			t.Errorf("%q: counted %d before and %d after", line, before, after)
		}
	})
}

func TestIsTokenByte(t *testing.T) {
	const tchar = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" // RFC 9110 section 5.6.2
	for c := range 256 {
		if got, want := isTokenByte(byte(c)), strings.IndexByte(tchar, byte(c)) >= 0; got != want {
			t.Errorf("isTokenByte(%q) = %v", rune(c), got)
		}
	}
}
