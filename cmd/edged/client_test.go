package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	}
	s := stubAdmin(t, "/v1/cluster", 200, st)
	got := command(t, "", "status", "--admin", s.URL)
	for _, want := range []string{
		"a (edge, version v1): in service, up 1h2m5s", "a *", "b.[2J", "suspect", "live", "250ms", "37%",
		"STORED INCL. INDEX", "hot", "5 MiB", "64 MiB", "0.2%", "requests: 10 = hit 8 + miss 2; hit ratio 80%", "peer RPCs: none yet", "absent: 5",
		"catalog of www: 12 paths, enforce, in effect observe: older than its refresh",
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

	st.Draining = true
	s = stubAdmin(t, "/v1/cluster", 200, st)
	if got := command(t, "", "status", "--admin", s.URL); got.code != exitFailure || !strings.Contains(got.out, "draining") || got.errOut != "" {
		t.Errorf("status of a draining node: %+v", got)
	}
}

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
