package rfc9111

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// Rule 24 and RFC 9211 §2.
func TestAppendCacheStatus(t *testing.T) {
	for _, c := range []struct {
		name string
		in   CacheStatus
		want string
	}{
		{"hit", CacheStatus{Name: "edge-a", Hit: true, HasTTL: true, TTL: 53*time.Second + 999*time.Millisecond}, "edge-a; hit; ttl=53"},
		{"stored", CacheStatus{Name: "edge-a", Fwd: "uri-miss", FwdStatus: 200, Stored: true}, "edge-a; fwd=uri-miss; fwd-status=200; stored"},
		{"everything", CacheStatus{Name: "a", Fwd: "stale", FwdStatus: 304, HasTTL: true, TTL: time.Minute, Stored: true, Collapsed: true, Key: "/k", Detail: "peer"},
			`a; fwd=stale; fwd-status=304; ttl=60; stored; collapsed; key="/k"; detail=peer`},
		{"stale", CacheStatus{Name: "a", Hit: true, HasTTL: true, TTL: -time.Millisecond}, "a; hit; ttl=-1"},
		{"no name", CacheStatus{Hit: true}, ""},
		{"a name that is no token", CacheStatus{Name: "1.example edge", Detail: "no token"}, `"1.example edge"; detail="no token"`},
		{"a name that begins with a digit", CacheStatus{Name: "10-0-0-1"}, `"10-0-0-1"`},
		{"quotes", CacheStatus{Name: `a"b\c`}, `"a\"b\\c"`},
		{"no ASCII", CacheStatus{Name: "ä\n\x7f"}, `"????"`},
		{"colon and slash", CacheStatus{Name: "a:b/c"}, "a:b/c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.in.String()
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if _, err := httpsfv.UnmarshalList([]string{got}); err != nil {
				t.Errorf("no structured list: %v", err)
			}
		})
	}
	buf := make([]byte, 0, 128)
	c := CacheStatus{Name: "edge-a", Hit: true, HasTTL: true, TTL: time.Minute, Detail: "peer"}
	allocates(t, "AppendCacheStatus", func() { AppendCacheStatus(buf, c) })
}

func TestParseCacheStatus(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  []CacheStatus
		ok    bool
	}{
		{"none", nil, []CacheStatus{}, true},
		{"two lines", []string{"a; fwd=uri-miss; fwd-status=200; stored", `"b c"; hit; ttl=-5; detail=x; key="k"`}, []CacheStatus{
			{Name: "a", Fwd: "uri-miss", FwdStatus: 200, Stored: true},
			{Name: "b c", Hit: true, HasTTL: true, TTL: -5 * time.Second, Detail: "x", Key: "k"},
		}, true},
		{"without spaces", []string{"a;hit;ttl=5,b;fwd=miss;collapsed"}, []CacheStatus{
			{Name: "a", Hit: true, HasTTL: true, TTL: 5 * time.Second}, {Name: "b", Fwd: "miss", Collapsed: true}}, true},
		{"wrong types are left out", []string{`a; hit=5; ttl="x"; fwd=7; fwd-status=9; stored=?0`}, []CacheStatus{{Name: "a"}}, true},
		{"statuses", []string{"a; fwd-status=100, b; fwd-status=999, c; fwd-status=1000, d; fwd-status=99"}, []CacheStatus{
			{Name: "a", FwdStatus: 100}, {Name: "b", FwdStatus: 999}, {Name: "c"}, {Name: "d"}}, true},
		{"huge ttl clamps", []string{"a; ttl=-999999999999999"}, []CacheStatus{{Name: "a", HasTTL: true, TTL: -maxDelta}}, true},
		{"members that are no name", []string{"5; hit, (a b); hit, c"}, []CacheStatus{{Name: "c"}}, true},
		{"no list", []string{"a; hit;; ttl"}, nil, false},
		{"far too long", []string{strings.Repeat("a, ", maxCacheStatusLen)}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := ParseCacheStatus(c.lines)
			if ok != c.ok || !slices.Equal(got, c.want) {
				t.Errorf("ParseCacheStatus = %+v, %v; want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// Rule 24: a reply that was served stale says so.
func TestStaleFromPeer(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  time.Duration
	}{
		{"none", nil, 0},
		{"fresh", []string{"edge-b; hit; ttl=5"}, 0},
		{"zero", []string{"edge-b; hit; ttl=0"}, 0},
		{"stale", []string{"edge-b; hit; ttl=-5"}, 5 * time.Second},
		{"stale, not the last", []string{"edge-b; hit; ttl=-5, shield; fwd=uri-miss; ttl=9"}, 5 * time.Second},
		{"the most stale", []string{"a; hit; ttl=-5", "b; hit; ttl=-7, c; ttl=-6"}, 7 * time.Second},
		{"others' nonsense aside", []string{"nonsense;;; ttl=-9", "b; hit; ttl=-7"}, 7 * time.Second},
		{"only in a string", []string{`b; hit; ttl=7; detail="ttl=-5"`}, 0},
		{"its own writing", []string{CacheStatus{Name: "10.0.0.1", Hit: true, HasTTL: true, TTL: -1}.String()}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, stale := StaleFromPeer(c.lines)
			if got != c.want || stale != (c.want > 0) {
				t.Errorf("StaleFromPeer = %v, %v; want %v", got, stale, c.want)
			}
		})
	}
	lines := []string{"a; fwd=uri-miss; stored", "edge-b; hit; ttl=5"}
	allocates(t, "StaleFromPeer", func() { StaleFromPeer(lines) })
}

func FuzzCacheStatus(f *testing.F) {
	f.Add("edge-a; hit; ttl=-5", "edge-a", "peer", int64(-5))
	f.Add(`"a b"; fwd=stale; key="x\"y"`, "1", "\x00\"", int64(1<<40))
	f.Fuzz(func(t *testing.T, line, name, detail string, ttl int64) {
		ParseCacheStatus([]string{line, line})
		StaleFromPeer([]string{line})
		d := time.Duration(ttl)
		c := CacheStatus{Name: name, Hit: true, Fwd: "stale", FwdStatus: 200, HasTTL: true, TTL: d, Stored: true, Collapsed: true, Key: detail, Detail: detail}
		got, ok := ParseCacheStatus([]string{c.String()})
		if name == "" {
			return
		}
		if !ok || len(got) != 1 {
			t.Fatalf("%s is %+v, %v", c, got, ok)
		}
		if again := got[0].String(); again != c.String() && Seconds(d) < 1<<31 && Seconds(d) > -(1<<31) {
			t.Errorf("%s became %s", c, again)
		}
	})
}
