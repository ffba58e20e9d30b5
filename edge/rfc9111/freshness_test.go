package rfc9111

import (
	"math"
	"testing"
	"time"
)

// Rules 2, 3, 6 and 7: where the freshness lifetime comes from.
func TestLifetime(t *testing.T) {
	const day = 24 * time.Hour
	modified := "Last-Modified: " + at(-100*time.Hour)
	for _, c := range []struct {
		name string
		x    Exchange
		p    Policy
		want time.Duration
		rule string
	}{
		{"max-age (§4.2.1)", got(200, "Cache-Control: max-age=60"), Policy{}, time.Minute, ruleMaxAge},
		{"s-maxage beats max-age", got(200, "Cache-Control: max-age=3600, s-maxage=60"), Policy{}, time.Minute, ruleSMaxAge},
		{"s-maxage beats max-age, longer", got(200, "Cache-Control: s-maxage=3600, max-age=60"), Policy{}, time.Hour, ruleSMaxAge},
		{"s-maxage=0 beats max-age", got(200, "Cache-Control: s-maxage=0, max-age=60"), Policy{}, 0, ruleSMaxAge},
		{"unreadable s-maxage is stale whatever max-age says", got(200, "Cache-Control: s-maxage=x, max-age=60"), Policy{}, 0, ruleSMaxAge},
		{"max-age beats Expires", got(200, "Cache-Control: max-age=60", "Expires: "+at(-day)), Policy{}, time.Minute, ruleMaxAge},
		{"max-age beats an invalid Expires", got(200, "Cache-Control: max-age=60", "Expires: 0"), Policy{}, time.Minute, ruleMaxAge},
		{"max-age=0 beats Expires", got(200, "Cache-Control: max-age=0", "Expires: "+at(day)), Policy{}, 0, ruleMaxAge},
		{"s-maxage beats Expires", got(200, "Cache-Control: s-maxage=60", "Expires: "+at(-day)), Policy{}, time.Minute, ruleSMaxAge},

		{"Expires - Date (§5.3)", got(200, "Expires: "+at(time.Hour), "Date: "+at(-time.Hour)), Policy{}, 2 * time.Hour, ruleExpires},
		{"Expires without Date: since receipt", got(200, "Expires: "+at(time.Hour)), Policy{}, time.Hour, ruleExpires},
		{"Expires with an invalid Date: since receipt", got(200, "Expires: "+at(time.Hour), "Date: today"), Policy{}, time.Hour, ruleExpires},
		{"Expires with two Dates: since receipt", got(200, "Expires: "+at(time.Hour), "Date: "+at(-day), "Date: "+at(0)), Policy{}, time.Hour, ruleExpires},
		{"Expires with a fast Date", got(200, "Expires: "+at(time.Hour), "Date: "+at(10*time.Minute)), Policy{}, 50 * time.Minute, ruleExpires},
		{"Expires as Date", got(200, "Expires: "+at(0), "Date: "+at(0)), Policy{}, 0, ruleExpires},
		{"Expires in the past", got(200, "Expires: "+at(-day)), Policy{}, 0, ruleExpires},
		{"Expires far ahead clamps", got(200, "Expires: Thu, 18 Aug 9999 02:01:18 GMT"), Policy{}, maxDelta, ruleExpires},
		{"Expires: 0", got(200, "Expires: 0"), Policy{}, 0, ruleExpiresInvalid},
		{"Expires: -1", got(200, "Expires: -1"), Policy{}, 0, ruleExpiresInvalid},
		{"Expires twice", got(200, "Expires: "+at(day), "Expires: "+at(day)), Policy{}, 0, ruleExpiresMany},
		{"Expires in RFC 850", got(200, "Expires: Tuesday, 03-Mar-26 13:00:00 GMT"), Policy{}, time.Hour, ruleExpires},
		{"invalid Expires hides the heuristic", got(200, "Expires: 0", modified), Policy{}, 0, ruleExpiresInvalid},
		{"max-age=0 hides the heuristic", got(200, "Cache-Control: max-age=0", modified), Policy{}, 0, ruleMaxAge},

		{"heuristic: a tenth (§4.2.2)", got(200, modified), Policy{}, 10 * time.Hour, ruleHeuristic},
		{"heuristic of Date, not of receipt", got(200, modified, "Date: "+at(-50*time.Hour)), Policy{}, 5 * time.Hour, ruleHeuristic},
		{"heuristic is capped", got(200, "Last-Modified: "+at(-1000*day)), Policy{}, day, ruleHeuristic},
		{"heuristic, own cap", got(200, modified), Policy{HeuristicCap: time.Hour}, time.Hour, ruleHeuristic},
		{"heuristic, own fraction", got(200, modified), Policy{HeuristicFraction: 0.2}, 20 * time.Hour, ruleHeuristic},
		{"heuristic switched off", got(200, modified), Policy{HeuristicFraction: -1}, 0, ruleHeuristicOff},
		{"heuristic of a future", got(200, "Last-Modified: "+at(day)), Policy{}, 0, ruleHeuristic},
		{"heuristic of the year 1", got(200, "Last-Modified: Mon, 01 Jan 0001 00:00:00 GMT"), Policy{}, day, ruleHeuristic},
		{"heuristic of no date", got(200, "Last-Modified: recently"), Policy{}, 0, ruleNoFreshness},
		{"heuristic of two dates", got(200, modified, modified), Policy{}, 0, ruleNoFreshness},
		{"no default lifetime", got(200), Policy{}, 0, ruleNoFreshness},
		{"an ETag is no freshness", got(200, `ETag: "a"`), Policy{}, 0, ruleNoFreshness},
		{"Pragma in a response means nothing (§5.4)", got(200, "Pragma: no-cache", modified), Policy{}, 10 * time.Hour, ruleHeuristic},
		{"public with a status of no heuristic", got(201, "Cache-Control: public", modified), Policy{}, 10 * time.Hour, ruleHeuristic},
		{"public with an unknown status", got(599, "Cache-Control: public", modified), Policy{}, 10 * time.Hour, ruleHeuristic},
		{"public without Last-Modified", got(200, "Cache-Control: public"), Policy{}, 0, ruleNoFreshness},

		{"targeted beats all (RFC 9213)", got(200, "CDN-Cache-Control: max-age=60", "Cache-Control: s-maxage=1, max-age=2", "Expires: "+at(day)), Policy{}, time.Minute, ruleTargetedMaxAge},
		{"targeted s-maxage beats targeted max-age", got(200, "CDN-Cache-Control: max-age=60, s-maxage=30"), Policy{}, 30 * time.Second, ruleTargetedSMaxAge},
		{"targeted max-age=0 beats Expires", got(200, "CDN-Cache-Control: max-age=0", "Expires: "+at(day)), Policy{}, 0, ruleTargetedMaxAge},
		{"targeted without freshness leaves the heuristic", got(200, "CDN-Cache-Control: foo", "Cache-Control: max-age=1", "Expires: "+at(day), modified), Policy{}, 10 * time.Hour, ruleHeuristic},
		{"invalid targeted one", got(200, "CDN-Cache-Control: max-age=60, &", "Cache-Control: max-age=1"), Policy{}, time.Second, ruleMaxAge},

		{"absence, configured", got(404), Policy{NegativeTTL: 5 * time.Second}, 5 * time.Second, ruleNegativeTTL},
		{"absence with a lifetime of its own", got(410, "Cache-Control: max-age=1"), Policy{NegativeTTL: 5 * time.Second}, time.Second, ruleMaxAge},
		{"absence with a heuristic", got(404, modified), Policy{NegativeTTL: 5 * time.Second}, 10 * time.Hour, ruleHeuristic},
		{"absence, by a status that is configured", got(403), Policy{NegativeTTL: 5 * time.Second, Absences: []int{403}}, 5 * time.Second, ruleNegativeTTL},
		{"what a request can provoke is no absence", got(405), Policy{NegativeTTL: 5 * time.Second}, 0, ruleNoFreshness},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d, rule := Lifetime(c.x, c.p); d != c.want || rule != c.rule {
				t.Errorf("Lifetime = %v (%s), want %v (%s)", d, rule, c.want, c.rule)
			}
		})
	}
}

// Rule 6: the statuses that allow a heuristic (RFC 9110 §15.1).
func TestIsHeuristicallyCacheable(t *testing.T) {
	want := map[int]bool{200: true, 203: true, 204: true, 206: true, 300: true, 301: true, 308: true, 404: true, 405: true, 410: true, 414: true, 501: true}
	for status := 100; status < 600; status++ {
		if IsHeuristicallyCacheable(status) != want[status] {
			t.Errorf("%d: %v", status, !want[status])
		}
		d, _ := Lifetime(got(status, "Last-Modified: "+at(-10*time.Hour)), Policy{})
		if (d == time.Hour) != want[status] {
			t.Errorf("%d: lifetime %v", status, d)
		}
	}
}

// Rule 5: Age received (§5.1) and corrected (§4.2.3).
func TestStored_Age(t *testing.T) {
	delayed := got(200, "Age: 10")
	delayed.RequestTime = epoch.Add(-3 * time.Second)
	slow := got(200, "Date: "+at(0))
	slow.ResponseTime = epoch.Add(900 * time.Millisecond)
	slow.RequestTime = slow.ResponseTime
	backwards := got(200)
	backwards.RequestTime = epoch.Add(time.Hour)
	unknown := got(200)
	unknown.RequestTime = time.Time{}
	for _, c := range []struct {
		name string
		x    Exchange
		want time.Duration
	}{
		{"none", got(200), 0},
		{"Age (§5.1)", got(200, "Age: 7200"), 2 * time.Hour},
		{"Age of 0", got(200, "Age: 0"), 0},
		{"zeros before", got(200, "Age: 0010"), 10 * time.Second},
		{"words", got(200, "Age: abc"), 0},
		{"negative", got(200, "Age: -7200"), 0},
		{"decimal", got(200, "Age: 7200.0"), 0},
		{"parameter", got(200, "Age: 7200;foo=bar"), 0},
		{"unit", got(200, "Age: 7200s"), 0},
		{"quoted", got(200, `Age: "7200"`), 0},
		{"first of a list", got(200, "Age: 10, 7200"), 10 * time.Second},
		{"first of a list, old", got(200, "Age: 7200, 0"), 2 * time.Hour},
		{"first of a list, unreadable", got(200, "Age: x, 7200"), 0},
		{"first line", got(200, "Age: 0", "Age: 7200"), 0},
		{"first line, old", got(200, "Age: 7200", "Age: 0"), 2 * time.Hour},
		{"2^31", got(200, "Age: 2147483648"), maxDelta},
		{"huge", got(200, "Age: 99999999999999999999"), maxDelta},
		{"Date in the past: apparent age (§4.2.3)", got(200, "Date: "+at(-time.Hour)), time.Hour},
		{"Date in the future", got(200, "Date: "+at(time.Hour)), 0},
		{"Date invalid", got(200, "Date: 0"), 0},
		{"Date of the year 1", got(200, "Date: Mon, 01 Jan 0001 00:00:00 GMT"), maxDelta},
		{"the larger of the two", got(200, "Date: "+at(-time.Hour), "Age: 60"), time.Hour},
		{"the larger of the two, reversed", got(200, "Date: "+at(-time.Minute), "Age: 3600"), time.Hour},
		{"the way took time", delayed, 13 * time.Second},
		{"Date has whole seconds only", slow, 0},
		{"request after the response", backwards, 0},
		{"request time unknown", unknown, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewStored(c.x, Policy{})
			if got := s.Age(c.x.ResponseTime); got != c.want {
				t.Errorf("age on arrival %v, want %v", got, c.want)
			}
			if got := s.Age(c.x.ResponseTime.Add(90 * time.Second)); got != c.want+90*time.Second {
				t.Errorf("age 90 s later %v, want %v", got, c.want+90*time.Second)
			}
			if got := s.Age(c.x.ResponseTime.Add(-time.Hour)); got != c.want {
				t.Errorf("age before arrival %v, want %v", got, c.want)
			}
		})
	}
}

// Rule 5: Age sent (§5.1).
func TestStored_AppendAge(t *testing.T) {
	for _, c := range []struct {
		name string
		age  string
		rest time.Duration
		want string
	}{
		{"rounded down", "Age: 5", 1999 * time.Millisecond, "6"},
		{"zero", "Age: 0", 0, "0"},
		{"clamped", "Age: 99999999999", time.Hour, "2147483648"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewStored(got(200, c.age), Policy{})
			if got := string(s.AppendAge(nil, epoch.Add(c.rest))); got != c.want {
				t.Errorf("Age: %s, want %s", got, c.want)
			}
		})
	}
}

func TestSeconds_roundsDown(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, time.Second: 1, 1999 * time.Millisecond: 1, -1: -1, -time.Second: -1, -1001 * time.Millisecond: -2,
	} {
		if got := Seconds(d); got != want {
			t.Errorf("Seconds(%v) = %d, want %d", d, got, want)
		}
	}
}

// The monotonic clock decides, so a stepped wall clock changes no age.
func TestStored_Age_monotonic(t *testing.T) {
	now := time.Now()
	x := got(200, "Cache-Control: max-age=60")
	x.RequestTime, x.ResponseTime = now, now
	s := NewStored(x, Policy{})
	if s.ResponseTime != now {
		t.Fatal("the monotonic reading was lost")
	}
	if got := s.Age(now.Add(time.Minute)); got != time.Minute {
		t.Errorf("age %v", got)
	}
}

// Sums of extreme ages and lifetimes stay within a Duration.
func TestStored_extremesDoNotOverflow(t *testing.T) {
	x := got(200, "Age: 99999999999", "Cache-Control: max-age=99999999999, stale-while-revalidate=99999999999")
	x.RequestTime = epoch.AddDate(-200, 0, 0)
	s := NewStored(x, Policy{})
	far := epoch.AddDate(290, 0, 0)
	if age := s.Age(far); age <= 0 || age > math.MaxInt64/2 {
		t.Errorf("age %v", age)
	}
	if ttl := s.TTL(far); ttl >= 0 {
		t.Errorf("ttl %v", ttl)
	}
	if reuse, _ := s.Decide(RequestDirectives{}, epoch); reuse != StaleWhileRevalidate {
		t.Errorf("%v", reuse)
	}
}

// Rule 24: what a peer served stale is stale here, for as long.
func TestNewStored_staleFromPeer(t *testing.T) {
	x := got(200, "Cache-Control: max-age=3600", "Age: 10")
	x.StaleFor = 5 * time.Second
	s := NewStored(x, Policy{})
	if ttl := s.TTL(epoch); ttl != -5*time.Second {
		t.Errorf("ttl %v, want -5s", ttl)
	}
	x = got(200, "Cache-Control: max-age=10", "Age: 3600")
	x.StaleFor = 5 * time.Second
	s = NewStored(x, Policy{})
	if ttl := s.TTL(epoch); ttl != 10*time.Second-time.Hour {
		t.Errorf("ttl %v: what Age shows is worse", ttl)
	}
}

func TestStored_AsStale(t *testing.T) {
	s := NewStored(got(200, "Cache-Control: max-age=3600, stale-while-revalidate=60, stale-if-error=60"), Policy{})
	now := epoch.Add(time.Minute)
	soft := s.AsStale(now)
	if Seconds(soft.TTL(now)) != -1 {
		t.Errorf("ttl %v: must show as negative at once (rule 24)", soft.TTL(now))
	}
	if reuse, _ := soft.Decide(RequestDirectives{}, now); reuse != Validate {
		t.Errorf("after a soft purge: %v", reuse)
	}
	if !soft.StaleOnError(now, Policy{}) {
		t.Error("stale-if-error was lost")
	}
	if s.TTL(now) != 59*time.Minute {
		t.Error("the original changed")
	}
	late := epoch.Add(3 * time.Hour)
	if soft := s.AsStale(late); soft.TTL(late) != s.TTL(late) {
		t.Errorf("a stale response became fresher: %v", soft.TTL(late))
	}
}

func TestNewStored(t *testing.T) {
	lm := "Last-Modified: " + at(-time.Hour)
	for _, c := range []struct {
		name string
		x    Exchange
		want Flags
	}{
		{"heuristic", got(200, lm), FlagLastModified},
		{"max-age", got(200, "Cache-Control: max-age=1"), FlagExplicit},
		{"Expires", got(200, "Expires: 0"), FlagExplicit},
		{"s-maxage (§3.5)", got(200, "Cache-Control: s-maxage=1"), FlagExplicit | FlagSMaxAge | FlagShared},
		{"public", got(200, "Cache-Control: public"), FlagShared},
		{"must-revalidate", got(200, "Cache-Control: must-revalidate"), FlagShared | FlagMustRevalidate},
		{"proxy-revalidate", got(200, "Cache-Control: proxy-revalidate"), FlagMustRevalidate},
		{"no-cache", got(200, "Cache-Control: no-cache"), FlagNoCache},
		{"stale-if-error=0", got(200, "Cache-Control: stale-if-error=0"), FlagStaleIfError},
		{"ETag", got(200, `ETag: "a"`), FlagETag},
		{"206", got(206, "Content-Range: bytes 0-1/2"), FlagPartial},
		{"targeted", got(200, "CDN-Cache-Control: max-age=1", "Expires: 0"), FlagExplicit | FlagTargeted},
		{"targeted without freshness", got(200, "CDN-Cache-Control: foo", "Expires: 0"), FlagTargeted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewStored(c.x, Policy{})
			if s.Flags != c.want {
				t.Errorf("flags %b, want %b", s.Flags, c.want)
			}
			if s.HasValidator() != (c.want&(FlagETag|FlagLastModified) != 0) {
				t.Errorf("HasValidator = %v", s.HasValidator())
			}
			if int(s.Status) != c.x.Status {
				t.Errorf("status %d", s.Status)
			}
		})
	}
	s := NewStored(got(200, lm, "Date: "+at(-time.Minute)), Policy{})
	if s.Date != epoch.Add(-time.Minute).Unix() || s.LastModified != epoch.Add(-time.Hour).Unix() {
		t.Errorf("dates %d, %d", s.Date, s.LastModified)
	}
}
