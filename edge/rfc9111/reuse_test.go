package rfc9111

import (
	"net/http"
	"testing"
	"time"
)

// Rules 9, 22, 23 and 28: what may be done with a stored response, after it
// rested for some time.
func TestStored_Decide(t *testing.T) {
	honour := Policy{HonourRequest: true}
	for _, c := range []struct {
		name  string
		resp  string
		rest  time.Duration
		req   []string
		p     Policy
		want  Reuse
		extra string
	}{
		{"fresh (§4.2)", "max-age=60", 59 * time.Second, nil, honour, Fresh, ""},
		{"fresh to the last moment", "max-age=60", time.Minute - 1, nil, honour, Fresh, ""},
		{"stale when age is lifetime", "max-age=60", time.Minute, nil, honour, Validate, ""},
		{"stale on arrival", "max-age=60", 0, nil, honour, Validate, "Age: 60"},
		{"no-cache (§5.2.2.4)", "no-cache, max-age=60", 0, nil, honour, Validate, ""},
		{"qualified no-cache is no no-cache", `no-cache="x", max-age=60`, 0, nil, honour, Fresh, ""},
		{"must-revalidate, fresh (§5.2.2.2)", "must-revalidate, max-age=60", 0, nil, honour, Fresh, ""},
		{"immutable means nothing here", "max-age=60, immutable", time.Minute, nil, honour, Validate, ""},

		{"stale-while-revalidate (RFC 5861 §3)", "max-age=60, stale-while-revalidate=30", time.Minute, nil, honour, StaleWhileRevalidate, ""},
		{"its last second", "max-age=60, stale-while-revalidate=30", 90 * time.Second, nil, honour, StaleWhileRevalidate, ""},
		{"and not later", "max-age=60, stale-while-revalidate=30", 90*time.Second + 1, nil, honour, Validate, ""},
		{"its must-revalidate", "max-age=60, stale-while-revalidate=30, must-revalidate", time.Minute, nil, honour, Validate, ""},
		{"its proxy-revalidate", "max-age=60, stale-while-revalidate=30, proxy-revalidate", time.Minute, nil, honour, Validate, ""},
		{"its no-cache", "no-cache, max-age=60, stale-while-revalidate=30", 0, nil, honour, Validate, ""},
		{"beside s-maxage", "s-maxage=60, stale-while-revalidate=30", time.Minute, nil, honour, StaleWhileRevalidate, ""},
		{"with max-age=0", "max-age=0, stale-while-revalidate=30", 0, nil, honour, StaleWhileRevalidate, ""},

		{"request no-cache (§5.2.1.4)", "max-age=60", 0, []string{"Cache-Control: no-cache"}, honour, RequestForbids, ""},
		{"request Pragma (§5.4)", "max-age=60", 0, []string{"Pragma: foo, No-Cache"}, honour, RequestForbids, ""},
		{"request Pragma beside Cache-Control", "max-age=60", 0, []string{"Pragma: no-cache", "Cache-Control: foo"}, honour, Fresh, ""},
		{"request Pragma extension", "max-age=60", 0, []string{"Pragma: foo"}, honour, Fresh, ""},
		{"request no-store (§5.2.1.5)", "max-age=60", 0, []string{"Cache-Control: no-store"}, honour, Fresh, ""},
		{"request max-age (§5.2.1.1)", "max-age=60", 10 * time.Second, []string{"Cache-Control: max-age=9"}, honour, RequestForbids, ""},
		{"request max-age, young enough", "max-age=60", 10 * time.Second, []string{"Cache-Control: max-age=10"}, honour, Fresh, ""},
		{"request max-age=0", "max-age=60", 1, []string{"Cache-Control: max-age=0"}, honour, RequestForbids, ""},
		{"request max-age, unreadable", "max-age=60", 1, []string{"Cache-Control: max-age=x"}, honour, RequestForbids, ""},
		{"request max-age counts Age", "max-age=3600", 0, []string{"Cache-Control: max-age=600"}, honour, RequestForbids, "Age: 1800"},
		{"request max-age takes no stale one", "max-age=60, stale-while-revalidate=600", time.Minute, []string{"Cache-Control: max-age=3600"}, honour, Validate, ""},
		{"request min-fresh (§5.2.1.3)", "max-age=60", 0, []string{"Cache-Control: min-fresh=61"}, honour, RequestForbids, ""},
		{"request min-fresh, fresh enough", "max-age=60", 0, []string{"Cache-Control: min-fresh=60"}, honour, Fresh, ""},
		{"request min-fresh counts Age", "max-age=1500", 0, []string{"Cache-Control: min-fresh=1000"}, honour, RequestForbids, "Age: 1000"},
		{"request max-stale (§5.2.1.2)", "max-age=60", 70 * time.Second, []string{"Cache-Control: max-stale=10"}, honour, MaxStale, ""},
		{"request max-stale, too stale", "max-age=60", 71 * time.Second, []string{"Cache-Control: max-stale=10"}, honour, Validate, ""},
		{"request max-stale, any", "max-age=60", time.Hour, []string{"Cache-Control: max-stale"}, honour, MaxStale, ""},
		{"request max-stale counts Age", "max-age=1500", 0, []string{"Cache-Control: max-stale=1000"}, honour, MaxStale, "Age: 2000"},
		{"request max-stale, must-revalidate", "max-age=60, must-revalidate", 61 * time.Second, []string{"Cache-Control: max-stale"}, honour, Validate, ""},
		{"request max-stale, proxy-revalidate", "max-age=60, proxy-revalidate", 61 * time.Second, []string{"Cache-Control: max-stale"}, honour, Validate, ""},
		{"request max-stale, s-maxage", "s-maxage=60", 61 * time.Second, []string{"Cache-Control: max-stale"}, honour, Validate, ""},
		{"request max-stale with max-age", "max-age=60", 65 * time.Second, []string{"Cache-Control: max-age=70, max-stale=10"}, honour, MaxStale, ""},

		{"ignored: no-cache", "max-age=60", 0, []string{"Cache-Control: no-cache", "Pragma: no-cache"}, Policy{}, Fresh, ""},
		{"ignored: Pragma", "max-age=60", 0, []string{"Pragma: no-cache"}, Policy{}, Fresh, ""},
		{"ignored: max-age", "max-age=60", 1, []string{"Cache-Control: max-age=0"}, Policy{}, Fresh, ""},
		{"ignored: min-fresh", "max-age=60", 1, []string{"Cache-Control: min-fresh=600"}, Policy{}, Fresh, ""},
		{"ignored: max-stale", "max-age=60", 61 * time.Second, []string{"Cache-Control: max-stale"}, Policy{}, Validate, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := []string{"Cache-Control: " + c.resp}
			if c.extra != "" {
				lines = append(lines, c.extra)
			}
			s := NewStored(got(200, lines...), c.p)
			req := ParseRequestDirectives(head(c.req...), c.p)
			reuse, rule := s.Decide(req, epoch.Add(c.rest))
			if reuse != c.want {
				t.Errorf("Decide = %v (%s), want %v", reuse, rule, c.want)
			}
			if rule == "" {
				t.Error("no rule")
			}
			served := c.want == Fresh || c.want == StaleWhileRevalidate || c.want == MaxStale
			if reuse.Served() != served {
				t.Errorf("%v.Served() = %v", reuse, !served)
			}
		})
	}
}

// Rule 28: only-if-cached is read whatever the policy, everything else only
// when it is honoured.
func TestParseRequestDirectives(t *testing.T) {
	h := head("Cache-Control: only-if-cached, no-cache, no-store, max-age=1, min-fresh=2, max-stale=3")
	if got := ParseRequestDirectives(h, Policy{}); got != (RequestDirectives{OnlyIfCached: true}) {
		t.Errorf("ignored: %+v", got)
	}
	want := RequestDirectives{OnlyIfCached: true, NoCache: true, NoStore: true, MaxAge: seconds(1), MinFresh: seconds(2), MaxStale: seconds(3)}
	if got := ParseRequestDirectives(h, Policy{HonourRequest: true}); got != want {
		t.Errorf("honoured: %+v", got)
	}
	for name, h := range map[string]http.Header{"none": {}, "nil": nil, "one": h} {
		allocates(t, "ParseRequestDirectives, "+name, func() { ParseRequestDirectives(h, Policy{HonourRequest: true}) })
	}
}

// Rule 23: stale on failure (RFC 5861 §4, §4.2.4).
func TestStored_StaleOnError(t *testing.T) {
	grace := Policy{StaleGrace: 100 * time.Second}
	for _, c := range []struct {
		name  string
		resp  string
		stale time.Duration
		p     Policy
		want  bool
	}{
		{"nothing allows it", "max-age=60", time.Second, Policy{}, false},
		{"nothing allows it, from the first moment", "max-age=60", 0, Policy{}, false},
		{"stale-if-error", "max-age=60, stale-if-error=10", 10 * time.Second, Policy{}, true},
		{"stale-if-error, over", "max-age=60, stale-if-error=10", 10*time.Second + 1, Policy{}, false},
		{"grace", "max-age=60", 100 * time.Second, grace, true},
		{"grace, over", "max-age=60", 100*time.Second + 1, grace, false},
		{"stale-if-error beats a longer grace", "max-age=60, stale-if-error=10", 11 * time.Second, grace, false},
		{"stale-if-error beats a shorter grace", "max-age=60, stale-if-error=600", 500 * time.Second, grace, true},
		{"stale-if-error=0", "max-age=60, stale-if-error=0", time.Second, grace, false},
		{"must-revalidate", "max-age=60, must-revalidate, stale-if-error=10", time.Second, grace, false},
		{"proxy-revalidate", "max-age=60, proxy-revalidate, stale-if-error=10", time.Second, grace, false},
		{"s-maxage", "s-maxage=60, stale-if-error=10", time.Second, grace, false},
		{"no-cache", "max-age=60, no-cache, stale-if-error=10", time.Second, grace, false},
		{"no-cache, fresh", "max-age=60, no-cache", -time.Second, grace, false},
		{"fresh", "max-age=60, must-revalidate", -time.Second, Policy{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewStored(got(200, "Cache-Control: "+c.resp), c.p)
			if got := s.StaleOnError(epoch.Add(time.Minute+c.stale), c.p); got != c.want {
				t.Errorf("StaleOnError = %v, want %v", got, c.want)
			}
		})
	}
	for status := 200; status < 600; status++ {
		if want := status == 500 || status == 502 || status == 503 || status == 504; IsOriginFailure(status) != want {
			t.Errorf("IsOriginFailure(%d) = %v", status, !want)
		}
	}
}

func TestStored_reuseAllocatesNothing(t *testing.T) {
	s := NewStored(got(200, "Cache-Control: max-age=60, stale-while-revalidate=60", `ETag: "a"`), Policy{})
	req := ParseRequestDirectives(head("Cache-Control: max-stale=5, min-fresh=1"), Policy{HonourRequest: true})
	now := epoch.Add(30 * time.Second)
	allocates(t, "Decide", func() { s.Decide(req, now) })
	allocates(t, "StaleOnError", func() { s.StaleOnError(now, Policy{}) })
	buf := make([]byte, 0, 16)
	allocates(t, "AppendAge", func() { s.AppendAge(buf, now) })
}
