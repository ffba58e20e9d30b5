package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/edge/admin"
)

// An adminStub answers one path, and keeps what it was asked.
type adminStub struct {
	*httptest.Server
	request *http.Request
	body    string
}

func stubAdmin(t *testing.T, path string, status int, answer any) *adminStub {
	t.Helper()
	s := &adminStub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		s.request, s.body = r, string(data)
		if r.URL.Path != path {
			http.Error(w, "no such path", http.StatusNotFound)
			return
		}
		w.WriteHeader(status)
		if text, ok := answer.(string); ok {
			io.WriteString(w, text)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestStatus(t *testing.T) {
	st := admin.Cluster{
		Name: "a", Role: "edge", Version: "v1", UptimeSeconds: 3725,
		Members: []admin.Member{
			{Name: "a", Role: "edge", State: "alive", Peer: "10.0.0.1:7947", Self: true, ShareOfRing: 0.5},
			{Name: "b\x1b[2J", Role: "edge", State: "suspect", Peer: "10.0.0.2:7947", ShareOfRing: 0.5, Replica: admin.Replica{State: "live", AgeSeconds: 0.25, Keys: 7, Fill: 0.37}},
		},
		Partitions: []admin.Partition{
			{Name: "hot", Filter: admin.Filter{Keys: 7, CapacityKeys: 1000, FillRatio: 0.01, ExpectedRate: 0.01, ObservedRate: 0.002}, Bloom: admin.Bloom{Negative: 499, PositiveMiss: 1}, Store: admin.Store{Bytes: 5 << 20, LimitBytes: 64 << 20, Objects: 7}},
			{Name: "new", Filter: admin.Filter{FillRatio: 0.000012, ExpectedRate: 3.1e-19, ObservedRate: 0.5}, Bloom: admin.Bloom{Negative: 1, PositiveMiss: 1}, Store: admin.Store{Bytes: 98816}}},
		Requests: map[string]uint64{"hit": 8, "miss": 2, "stale": 0},
		PeerRPCs: map[string]uint64{},
		HitRatio: 0.8, RPCsSkipped: 5,
		Catalogs: []admin.Catalog{{Site: "www", Mode: "enforce", Effective: "observe", Reason: "older than its refresh", Paths: 12}},
		Origins:  []admin.Origin{{Site: "www", URL: "http://10.0.0.9:9000", Attempts: 40, Failures: 4, InFlight: 1}, {Site: "www", URL: "http://10.0.0.8:9000", Healthy: true}},
	}
	s := stubAdmin(t, "/v1/cluster", 200, st)
	got := command(t, "", "status", "--admin", s.URL)
	for _, want := range []string{
		"a (edge, version v1): in service, up 1h2m5s", "a *", "b.[2J", "suspect", "live", "250ms", "37%",
		"STORED INCL. INDEX", "hot", "5 MiB", "64 MiB", "0.2%", "requests: 10 = hit 8 + miss 2; hit ratio 80%", "peer RPCs: none yet", "absent: 5",
		"catalog of www: 12 paths, enforce, in effect observe: older than its refresh",
		"ORIGIN", "http://10.0.0.9:9000  www      skipped  40        4       1", "http://10.0.0.8:9000  www      in use",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("status does not say %q", want)
		}
	}
	if line := regexp.MustCompile(`(?m)^new .*$`).FindString(got.out); !strings.HasSuffix(strings.TrimSpace(line), "-") || strings.Count(line, "<0.01%") != 2 {
		t.Errorf("a partition that hardly anybody asked for: %q; want a fill and an expected rate of <0.01%%, and no observed one", line)
	}
	if got.code != exitOK || strings.Contains(got.out, "\x1b") {
		t.Errorf("status: %+v", got)
	}
	if t.Failed() {
		t.Log(got.out)
	}

	got = command(t, "", "status", "--admin", s.URL, "--json")
	var back admin.Cluster
	if err := json.Unmarshal([]byte(got.out), &back); err != nil || back.Name != "a" {
		t.Errorf("status --json: %v, %+v", err, got)
	}

	got = command(t, "", "status", "--admin", s.URL, "--check")
	if want := "member b.[2J is suspect\norigin http://10.0.0.9:9000 of site www is skipped: 4 of 40 requests failed\n"; got.code != exitFailure || got.out != want || got.errOut != "" {
		t.Errorf("status --check: %+v, want %q", got, want)
	}

	st.Draining = true
	s = stubAdmin(t, "/v1/cluster", 200, st)
	if got := command(t, "", "status", "--admin", s.URL); got.code != exitFailure || !strings.Contains(got.out, "draining") || got.errOut != "" {
		t.Errorf("status of a draining node: %+v", got)
	}
}

func TestStatus_check(t *testing.T) {
	well := admin.Cluster{
		Name: "a",
		Members: []admin.Member{
			{Name: "a", State: "alive", Self: true}, {Name: "b", State: "alive", Replica: admin.Replica{State: "live"}}, {Name: "c", State: "left"},
		},
		Partitions: []admin.Partition{{Name: "hot", Filter: admin.Filter{ExpectedRate: 0.01, ObservedRate: 0.5}, Bloom: admin.Bloom{PositiveMiss: 3}}},
	}
	for _, tt := range []struct {
		name   string
		change func(*admin.Cluster)
		want   string
	}{
		{"all well", func(*admin.Cluster) {}, ""},
		{"draining", func(c *admin.Cluster) { c.Draining = true }, "a is draining\n"},
		{"isolated", func(c *admin.Cluster) { c.PurgeLog = "isolated" }, "a is isolated: it may have missed purges, and validates what it has stored before each use, unless purge.isolated is serve\n"},
		{"synced", func(c *admin.Cluster) { c.PurgeLog = "synced" }, ""},
		{"a member failed", func(c *admin.Cluster) { c.Members[1].State = "failed" }, "member b is failed\n"},
		{"a replica in a gap", func(c *admin.Cluster) { c.Members[1].Replica.State = "gap" }, "the replica of b's filter is gap\n"},
		{"no replica yet", func(c *admin.Cluster) { c.Members[1].Replica.State = "" }, "the replica of b's filter is absent\n"},
		{"pinned counters", func(c *admin.Cluster) { c.Partitions[0].Filter.PinnedCounters = 2 }, "partition hot: 2 counters of the filter are pinned\n"},
		{"a wrong rate", func(c *admin.Cluster) { c.Partitions[0].Bloom.PositiveMiss = 300 }, "partition hot: the observed false-positive rate is 50%, expected 1%\n"},
		{"an origin skipped", func(c *admin.Cluster) {
			c.Origins = []admin.Origin{{Site: "www", URL: "http://o:80", Attempts: 3, Failures: 3}, {Site: "www", URL: "http://p:80", Healthy: true}}
		}, "origin http://o:80 of site www is skipped: 3 of 3 requests failed\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := well
			st.Members, st.Partitions = slices.Clone(well.Members), slices.Clone(well.Partitions)
			tt.change(&st)
			s := stubAdmin(t, "/v1/cluster", 200, st)
			code := exitOK
			if tt.want != "" {
				code = exitFailure
			}
			if got := command(t, "", "status", "--check", "--admin", s.URL); got.out != tt.want || got.code != code || got.errOut != "" {
				t.Errorf("got %+v, want %q and code %d", got, tt.want, code)
			}
		})
	}
}

// Each look is one write that begins at the screen's top; a node that goes away
// ends nothing, and is told of by the code.
func TestStatus_watch(t *testing.T) {
	s := stubAdmin(t, "/v1/cluster", 200, admin.Cluster{Name: "a"})
	c := statusCmd{Watch: true, Interval: time.Millisecond, adminFlags: adminFlags{Admin: s.URL, Timeout: deadline}}
	client, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var looks []string
	err = c.watch(ctx, writerFunc(func(p []byte) (int, error) {
		looks = append(looks, string(p))
		switch len(looks) {
		case 2:
			s.Close()
		case 3:
			cancel()
		}
		return len(p), nil
	}), client)
	if len(looks) != 3 || !errors.Is(err, errReported) {
		t.Fatalf("%d looks, then %v", len(looks), err)
	}
	for i, want := range []string{"a (", "a (", errNoNode.Error()} {
		if !strings.HasPrefix(looks[i], "\x1b[H"+want) || !strings.HasSuffix(looks[i], "\x1b[J") {
			t.Errorf("look %d is %q, want %q from the top", i, looks[i], want)
		}
	}
	if got := command(t, "", "status", "--watch", "--interval", "0s", "--admin", s.URL); got.code != exitUsage {
		t.Errorf("an interval of nothing: %+v", got)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExplain(t *testing.T) {
	x := admin.Explanation{
		URL: "http://h/a", Method: "GET", Key: "http://h/a", Partition: "hot", Owner: "b",
		Steps:   []admin.Step{{Name: "admit", Result: "yes", Rule: "sites[0]"}},
		Stored:  []admin.Stored{{Status: 200, AgeSeconds: 5, TTLSeconds: -2, Bytes: 1024, Tags: []string{"t1"}}, {Status: 203, AgeSeconds: 0.082, Bytes: 1024, Matches: true}},
		Filters: []admin.FilterSay{{Member: "b", Says: "no"}},
		Would:   "This request would go to the origin.",
	}
	s := stubAdmin(t, "/v1/explain", 200, x)
	got := command(t, "", "explain", "--admin", s.URL, "-H", "Accept: a,b", "-H", "X: y", "http://h/a?b=c&d")
	for _, want := range []string{"GET http://h/a", "1. admit  yes  sites[0]", "status 200, 1 KiB, age 5s, stale for 2s (does not match this request), tags t1", "b: no", "status 203, 1 KiB, age 82ms, stale\n", "\nThis request would go to the origin.\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("explain does not say %q:\n%s", want, got.out)
		}
	}
	q := s.request.URL.Query()
	if q.Get("url") != "http://h/a?b=c&d" || strings.Join(q["header"], "|") != "Accept: a,b|X: y" || q.Get("method") != "GET" {
		t.Errorf("explain asks %s", s.request.URL)
	}
}

func TestPurge(t *testing.T) {
	s := stubAdmin(t, "/v1/purge", 200, admin.PurgeResult{ID: "p1", Members: 3, Acked: 3})
	got := command(t, "", "purge", "--admin", s.URL, "http://h/a", "--url", "http://h/b", "--tag", "t,u", "--prefix", "http://h/p", "--host", "h", "--soft")
	if got.code != exitOK || got.out != "purge p1: 3 of 3 members have acknowledged\n" {
		t.Errorf("purge: %+v", got)
	}
	stored := 12
	for more, want := range map[bool]string{
		false: "purge p1: 1 of 1 members have acknowledged; the node asked had 12 stored responses of it\n",
		true:  "purge p1: 1 of 1 members have acknowledged; the node asked had 12 stored responses of it, or more\n",
	} {
		s := stubAdmin(t, "/v1/purge", 200, admin.PurgeResult{ID: "p1", Members: 1, Acked: 1, Stored: &stored, StoredMore: more})
		if got := command(t, "", "purge", "--admin", s.URL, "--tag", "t"); got.code != exitOK || got.out != want {
			t.Errorf("purge: %+v, want %q", got, want)
		}
	}
	var req admin.PurgeRequest
	if err := json.Unmarshal([]byte(s.body), &req); err != nil {
		t.Fatal(err)
	}
	want := admin.PurgeRequest{URLs: []string{"http://h/a", "http://h/b"}, Tags: []string{"t,u"}, Prefixes: []string{"http://h/p"}, Hosts: []string{"h"}, Soft: true, Wait: "all"}
	if g, w := mustJSON(t, req), mustJSON(t, want); g != w || s.request.Method != http.MethodPost {
		t.Errorf("purge sends %s %s; want %s", s.request.Method, g, w)
	}
}

func TestPurge_missingMembers(t *testing.T) {
	s := stubAdmin(t, "/v1/purge", 200, admin.PurgeResult{ID: "p1", Members: 3, Acked: 2, Missing: []string{"c"}})
	if got := command(t, "", "purge", "--admin", s.URL, "--all"); got.code != exitFailure || !strings.Contains(got.errOut, "no acknowledgement from c: it was not reached and may still serve what was purged") {
		t.Errorf("purge: %+v", got)
	}
	two := stubAdmin(t, "/v1/purge", 200, admin.PurgeResult{ID: "p1", Members: 3, Acked: 1, Missing: []string{"b", "c"}})
	if got := command(t, "", "purge", "--admin", two.URL, "--all"); got.code != exitFailure || !strings.Contains(got.errOut, "from b, c: they were not reached") {
		t.Errorf("purge: %+v", got)
	}
	if got := command(t, "", "purge", "--admin", s.URL, "--all", "--wait", "none"); got.code != exitOK {
		t.Errorf("purge --wait none: %+v", got)
	}
	if got := command(t, "", "purge", "--admin", s.URL, "--all", "--json"); got.code != exitFailure || !json.Valid([]byte(got.out)) {
		t.Errorf("purge --json: %+v", got)
	}
}

// A purge is shown as it goes on: a member's line is there while another one is
// waited for.
func TestPurge_live(t *testing.T) {
	out, release := newLines(), make(chan struct{})
	node := func(name, state string) admin.PurgeNode {
		return admin.PurgeNode{Name: name, State: state, After: 0.004}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Accept"), "application/x-ndjson") {
			t.Errorf("Accept: %s", r.Header.Get("Accept"))
		}
		e := json.NewEncoder(w)
		e.Encode(admin.PurgeResult{ID: "p1", Members: 4, Acked: 1, Missing: []string{"b", "c\x1b", "d"}, Nodes: []admin.PurgeNode{{Name: "b", State: "waiting"}, {Name: "c\x1b", State: "waiting"}, {Name: "d", State: "waiting"}}})
		e.Encode(node("b", "applied"))
		http.NewResponseController(w).Flush()
		<-release
		e.Encode(node("c\x1b", "unreachable"))
		e.Encode(admin.PurgeResult{ID: "p1", Members: 4, Acked: 2, Missing: []string{"c\x1b", "d"}, Nodes: []admin.PurgeNode{node("b", "applied"), node("c\x1b", "unreachable"), {Name: "d", State: "waiting"}}})
	}))
	defer s.Close()
	code := make(chan int, 1)
	errOut := newLines()
	go func() {
		code <- execute(&process{args: []string{"purge", "--admin", s.URL, "--all"}, stdout: out, stderr: errOut, env: func(string) (string, bool) { return "", false }})
	}()
	<-out.first
	if got := out.String(); got != "  b: applied after 4 ms\n" {
		t.Errorf("while others are waited for: %q", got)
	}
	close(release)
	if got := <-code; got != exitFailure || !strings.Contains(errOut.String(), "no acknowledgement from c., d:") {
		t.Errorf("exit code %d: %s", got, errOut)
	}
	if want := "  b: applied after 4 ms\n  c.: unreachable after 4 ms\n  d: waiting\npurge p1: 2 of 4 members have acknowledged\n"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// What the terminal shows while a purge goes on.
func TestPurge_onATerminal(t *testing.T) {
	var out, live strings.Builder
	v := purgeView{out: &out, live: &live}
	res := admin.PurgeResult{ID: "p1", Members: 6, Acked: 1}
	for _, name := range []string{"b", "c", "d", "e", "f"} {
		res.Missing = append(res.Missing, name)
		res.Nodes = append(res.Nodes, admin.PurgeNode{Name: name, State: "waiting"})
	}
	v.result(res)
	v.node(admin.PurgeNode{Name: "c", State: "applied"})
	v.node(admin.PurgeNode{Name: "b", State: "unreachable"})
	v.node(admin.PurgeNode{Name: "b", State: "applied"})
	const clear = "\r\x1b[K"
	want := clear + "1 of 6 members have acknowledged, waiting for b, c, d and 2 more" +
		clear + clear + "2 of 6 members have acknowledged, waiting for b, d, e and 1 more" +
		clear + clear + "2 of 6 members have acknowledged, waiting for d, e, f" +
		clear + clear + "3 of 6 members have acknowledged, waiting for d, e, f"
	if live.String() != want {
		t.Errorf("the terminal got\n%q, want\n%q", live.String(), want)
	}
	if err := v.end(); err != nil || out.String() != "  c: applied\n  b: unreachable\n  b: applied\n  d: waiting\n  e: waiting\n  f: waiting\npurge p1: 3 of 6 members have acknowledged\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// An answer that breaks off, or is none, is no success.
func TestPurge_brokenAnswers(t *testing.T) {
	for body, want := range map[string]string{
		"":                          "does not say what became of the purge",
		"{}":                        "does not say what became of the purge",
		`{"id":"p1","members":2`:    "broke off",
		"hello":                     "not that of an admin API",
		`{"error":"too\u001blate"}`: "too.late",
	} {
		s := stubAdmin(t, "/v1/purge", 200, body)
		if got := command(t, "", "purge", "--admin", s.URL, "--all"); got.code != exitFailure || !strings.Contains(got.errOut, want) {
			t.Errorf("%q: %+v", body, got)
		}
	}
}

// What the node calls wrong usage is that.
func TestPurge_wrongUsage(t *testing.T) {
	for _, args := range [][]string{{"purge"}, {"purge", "--wait", "none"}, {"explain"}} {
		s := stubAdmin(t, "/v1/"+args[0], 400, `{"error":"not an absolute http or https URL: foo"}`)
		if got := command(t, "", append(args, "--admin", s.URL, "foo")...); got.code != exitUsage || !strings.Contains(got.errOut, "not an absolute http or https URL: foo") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// A star is no pattern in a URL, and an origin behind the client address no admin API.
func TestPurge_hints(t *testing.T) {
	s := stubAdmin(t, "/v1/purge", 200, admin.PurgeResult{ID: "p1", Members: 1, Acked: 1})
	if got := command(t, "", "purge", "--admin", s.URL, "http://h/a*"); got.code != exitOK || !strings.Contains(got.errOut, "the * is taken as it stands: --prefix http://h/a purges") {
		t.Errorf("%+v", got)
	}
	s = stubAdmin(t, "/v1/purge", 404, "<!DOCTYPE html>")
	if got := command(t, "", "purge", "--admin", s.URL, "http://h/a"); got.code != exitFailure || strings.Contains(got.errOut, "the *") || !strings.Contains(got.errOut, "is this its admin address?") {
		t.Errorf("%+v", got)
	}
}

// Something else than a node may answer 200 to everything.
func TestDrain_reload_ofNoNode(t *testing.T) {
	for _, c := range []string{"drain", "reload"} {
		for body, want := range map[string]string{"hello": "not that of an admin API", "{}": "is this its admin address?"} {
			s := stubAdmin(t, "/v1/"+c, 200, body)
			if got := command(t, "", c, "--admin", s.URL); got.code != exitFailure || !strings.Contains(got.errOut, want) {
				t.Errorf("%s, %q: %+v", c, body, got)
			}
		}
	}
}

func TestDrain(t *testing.T) {
	s := stubAdmin(t, "/v1/drain", 202, `{"draining":true}`)
	if got := command(t, "", "drain", "--admin", s.URL); got.code != exitOK || !strings.Contains(got.out, "is draining") || s.request.Method != http.MethodPost {
		t.Errorf("drain: %+v", got)
	}
	if got := command(t, "", "drain", "--admin", s.URL, "--wait", "--timeout", "300ms"); got.code != exitFailure || !strings.Contains(got.errOut, "has not stopped in time") {
		t.Errorf("drain --wait of a node that stays: %+v", got)
	}
}

func TestClient_token(t *testing.T) {
	s := stubAdmin(t, "/v1/cluster", 200, admin.Cluster{})
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, "abc\n", 0o600)
	if got := command(t, "", "status", "--admin", s.URL, "--token-file", file); got.code != exitOK || s.request.Header.Get("Authorization") != "Bearer abc" {
		t.Errorf("status: %+v, asked with %q", got, s.request.Header.Get("Authorization"))
	}
	writeFile(t, file, "\n", 0o600)
	if got := command(t, "", "status", "--admin", s.URL, "--token-file", file); got.code != exitUsage || !strings.Contains(got.errOut, "the file is empty") {
		t.Errorf("status with an empty token: %+v", got)
	}
}

// TestClient_followsNoRedirect: the token is for the node that was named.
func TestClient_followsNoRedirect(t *testing.T) {
	other := stubAdmin(t, "/v1/cluster", 200, admin.Cluster{})
	s := httptest.NewServer(http.RedirectHandler(other.URL+"/v1/cluster", http.StatusTemporaryRedirect))
	t.Cleanup(s.Close)
	if got := command(t, "", "status", "--admin", s.URL); got.code != exitFailure || !strings.Contains(got.errOut, "307") || other.request != nil {
		t.Errorf("status: %+v; the other server saw %v", got, other.request)
	}
}

func TestClient_answers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		answer any
		want   string
	}{
		{"no token", 401, "", "asks for a token: give its file with --token-file"},
		{"an error as JSON", 400, map[string]string{"error": "no\x1b[2J good"}, "400 Bad Request: no.[2J good"},
		{"an error as text", 500, "line one\nline two", "500 Internal Server Error: line one\n"},
		{"a page", 200, "<html>", "is not that of an admin API"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := stubAdmin(t, "/v1/cluster", tc.status, tc.answer)
			got := command(t, "", "status", "--admin", s.URL)
			if got.code != exitFailure || !strings.Contains(got.errOut, tc.want) {
				t.Errorf("status: %+v; want %q", got, tc.want)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPercent(t *testing.T) {
	for want, r := range map[string]float64{"0%": 0, "<0.01%": 9e-5, "0.0627%": 0.000627, "1.23%": 0.01234, "37%": 0.37, "99.96%": 0.9996, ">99.99%": 0.99999, "100%": 1} {
		if got := percent(r); got != want {
			t.Errorf("percent(%v) = %s; want %s", r, got, want)
		}
	}
}
