package edge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edged/gossip"
)

func TestPurgeLog(t *testing.T) {
	urls := func(u ...string) map[string]bool {
		m := map[string]bool{}
		for _, u := range u {
			m[u] = true
		}
		return m
	}
	const key = "http://h/a"
	tags := []string{"red"}
	for _, c := range []struct {
		name     string
		p        purge
		absence  bool
		ok, soft bool
	}{
		{"another URL", purge{urls: urls("http://h/b")}, false, true, false},
		{"its URL", purge{urls: urls(key)}, false, false, false},
		{"its tag", purge{tags: urls("red")}, false, false, false},
		{"another tag", purge{tags: urls("blue")}, false, true, false},
		{"its prefix", purge{prefixes: []string{"http://h/"}}, false, false, false},
		{"its host", purge{hosts: urls("h")}, false, false, false},
		{"everything", purge{all: true}, false, false, false},
		{"softly", purge{urls: urls(key), soft: true}, false, true, true},
		{"softly, but it is an absence", purge{urls: urls(key), soft: true}, true, false, false},
		{"created, and it is a response", purge{urls: urls(key), absences: true}, false, true, false},
		{"created, and it is an absence", purge{urls: urls(key), absences: true}, true, false, false},
	} {
		var l purgeLog
		now := time.Unix(1000, 0)
		l.add(&purge{urls: urls("http://h/earlier")}, now)
		before := l.generation()
		l.add(&c.p, now)
		soft := false
		if ok := l.store(fill{since: before, key: key, tags: tags, absence: c.absence}, now, func(s bool) { soft = s }); ok != c.ok || soft != c.soft {
			t.Errorf("%s: stored %v, softly %v; want %v, %v", c.name, ok, soft, c.ok, c.soft)
		}
		if !l.store(fill{since: l.generation(), key: key, tags: tags, absence: c.absence}, now, func(bool) {}) {
			t.Errorf("%s: a fill that began after it is not stored", c.name)
		}
	}
}

// A member's copy that comes right after a purge may be from before it, for
// that member may not have purged yet: it is not stored, until that is over.
// (Seen as an old response that outlived an acknowledged purge.)
func TestPurgeLog_distrustsMembersForAMoment(t *testing.T) {
	var l purgeLog
	now := time.Unix(1000, 0)
	l.add(&purge{prefixes: []string{"http://h/"}}, now)
	for _, c := range []struct {
		name   string
		key    string
		member bool
		after  time.Duration
		want   bool
	}{
		{"a member's, at once", "http://h/a", true, time.Millisecond, false},
		{"the origin's, at once", "http://h/a", false, time.Millisecond, true},
		{"a member's of something else", "http://g/a", true, time.Millisecond, true},
		{"a member's, later", "http://h/a", true, purgeSettle, true},
	} {
		f := fill{since: l.generation(), key: c.key, fromMember: c.member}
		if got := l.store(f, now.Add(c.after), func(bool) {}); got != c.want {
			t.Errorf("%s: stored %v, want %v", c.name, got, c.want)
		}
	}
}

// The second round says that everybody has purged.
func TestPurgeLog_secondRoundEndsTheDistrust(t *testing.T) {
	var l purgeLog
	now := time.Unix(1000, 0)
	g := gossip.Change{Kind: gossip.KindPurge, ID: "p", All: true}
	l.add(purgeFrom(g), now)
	g.ID += secondRound
	l.add(purgeFrom(g), now.Add(time.Millisecond))
	if !l.store(fill{since: l.generation(), key: "http://h/a", fromMember: true}, now.Add(2*time.Millisecond), func(bool) {}) {
		t.Error("a member's copy is not stored although everybody has purged")
	}
	l.add(purgeFrom(gossip.Change{Kind: gossip.KindPurge, ID: "q", All: true}), now.Add(3*time.Millisecond))
	if l.store(fill{since: l.generation(), key: "http://h/a", fromMember: true}, now.Add(4*time.Millisecond), func(bool) {}) {
		t.Error("another purge is taken for settled")
	}
}

// A fill that began before what is remembered of purges is not stored.
func TestPurgeLog_forgetsSafely(t *testing.T) {
	var l purgeLog
	now := time.Unix(1000, 0)
	before := l.generation()
	for i := range purgeLogMax + 10 {
		l.add(&purge{urls: map[string]bool{fmt.Sprint(i): true}}, now)
	}
	if len(l.entries) > purgeLogMax {
		t.Errorf("%d purges are remembered, want %d at most", len(l.entries), purgeLogMax)
	}
	if l.store(fill{since: before, key: "http://h/"}, now, func(bool) {}) {
		t.Error("stored across purges that are forgotten")
	}
	large := &purge{urls: map[string]bool{strings.Repeat("x", purgeLogBytes/3): true}}
	for range 10 {
		l.add(large, now)
	}
	if l.bytes > purgeLogBytes {
		t.Errorf("%d bytes of purges are remembered, want %d at most", l.bytes, purgeLogBytes)
	}
	recent := l.generation()
	l.add(&purge{urls: map[string]bool{"x": true}}, now.Add(2*purgeLogFor))
	if len(l.entries) != 1 || !l.store(fill{since: recent, key: "http://h/"}, now, func(bool) {}) {
		t.Errorf("%d purges are remembered after their time", len(l.entries))
	}
}

// A purge comes while a fill is under way: its client gets the answer that it
// asked for, nobody after the purge does, and it is not stored.
func TestPurge_outrunsAFill(t *testing.T) {
	for _, status := range []int{200, 404} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var version atomic.Int64
			arrived, gate := make(chan struct{}, 10), make(chan struct{})
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				v := version.Load()
				arrived <- struct{}{}
				if v == 0 {
					<-gate
				}
				w.Header().Set("Cache-Control", "max-age=60")
				w.WriteHeader(status)
				fmt.Fprint(w, v)
			})
			n := startNode(t, testConfig("edge-a", o.URL))
			old := make(chan answer)
			go func() { old <- n.get(t, "/x") }()
			<-arrived
			version.Store(1)
			resp, err := testClient.Post("http://"+n.Addrs().Admin+"/v1/purge", "application/json", strings.NewReader(`{"urls":["http://www.example.com/x"]}`))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			n.get(t, "/x").want(t, status, "1", "fwd=uri-miss") // does not join the old one
			close(gate)
			(<-old).want(t, status, "0")
			n.get(t, "/x").want(t, status, "1", "hit")
		})
	}
}
