package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edged/edge/store"
	"edged/gossip"
)

// adminCall makes a request of the admin API and returns status and body.
func (n *Node) adminCall(t *testing.T, method, path, body string, fields ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+n.Addrs().Admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := testClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// taggedOrigin answers with a version that the test raises, and one tag for
// each path.
func taggedOrigin(t *testing.T, version *atomic.Int64) *testOrigin {
	return newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		v := fmt.Sprint(version.Load())
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Surrogate-Key", "all "+strings.ReplaceAll(r.URL.Path, "/", "-"))
		w.Header().Set("ETag", `"`+v+`"`)
		if r.Header.Get("If-None-Match") == `"`+v+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, v)
	})
}

// TestPurge_asPluginsDo: the calls of Fastly's API, on each of two members.
func TestPurge_asPluginsDo(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	nodes := startCluster(t, 2, o.URL, func(c *Config) { c.Admin.Token = "secret" })
	a, b := nodes[0], nodes[1]
	for _, tc := range []struct {
		name, path, body string
		fields           []string
		answer           string
		soft             bool
	}{
		{"a key", "/service/x1/purge/-p", "", nil, `"status": "ok"`, false},
		{"a key, softly", "/service/x1/purge/-p", "", []string{"Fastly-Soft-Purge", "1"}, `"status": "ok"`, true},
		{"keys in a field", "/service/x1/purge", "", []string{"Surrogate-Key", "other -p"}, `"other": "`, false},
		{"keys in the body", "/service/x1/purge", `{"surrogate_keys":["-p"]}`, []string{"Content-Type", "application/json"}, `"-p": "`, false},
		{"all", "/service/x1/purge_all", "", nil, `"status": "ok"`, false},
	} {
		for _, n := range nodes {
			n.get(t, "/p")
		}
		version.Add(1)
		status, body := b.adminCall(t, "POST", tc.path, tc.body, append(tc.fields, "Fastly-Key", "secret")...)
		if status != 200 || !strings.Contains(body, tc.answer) {
			t.Errorf("%s: %d %s", tc.name, status, body)
		}
		want := "fwd=uri-miss"
		if tc.soft {
			want = "fwd=stale"
		}
		a.get(t, "/p").want(t, 200, fmt.Sprint(version.Load()), want)
		b.get(t, "/p").want(t, 200, fmt.Sprint(version.Load()))
	}
	if status, _ := b.adminCall(t, "POST", "/service/x1/purge_all", "", "Fastly-Key", "wrong"); status != 401 {
		t.Errorf("with a wrong key: %d", status)
	}
	if status, _ := b.adminCall(t, "POST", "/service/x1/purge", "{}", "Fastly-Key", "secret", "Content-Type", "application/json"); status != 400 {
		t.Errorf("without keys: %d", status)
	}
}

// What one call names may be more than one entry of the log takes, and who
// waits for nobody can ask how far it is.
func TestPurge_manyAtOnce(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	nodes := startCluster(t, 2, o.URL, nil)
	nodes[1].get(t, "/p")
	version.Add(1)
	tags := make([]string, 10_000)
	for i := range tags {
		tags[i] = fmt.Sprintf("a-tag-of-some-length-%d", i)
	}
	tags[7777] = "-p"
	body, err := json.Marshal(map[string]any{"tags": tags, "wait": "none"})
	if err != nil {
		t.Fatal(err)
	}
	status, answer := nodes[0].adminCall(t, "POST", "/v1/purge", string(body), "Content-Type", "application/json")
	var res struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &res); status != 200 || err != nil {
		t.Fatal(status, answer, err)
	}
	eventually(t, "the other member has applied it", func() bool {
		_, s := nodes[0].adminCall(t, "GET", "/v1/purge/"+res.ID, "")
		return strings.Contains(s, `"state": "applied"`) && strings.Contains(s, `"acked": 2`)
	})
	nodes[1].get(t, "/p").want(t, 200, "1")
	if status, _ := nodes[0].adminCall(t, "GET", "/v1/purge/none", ""); status != 404 {
		t.Errorf("progress of no purge: %d", status)
	}
}

// Who asks for lines sees each member acknowledge, also of a purge that nobody
// waited for.
func TestPurge_lineByLine(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	a := startCluster(t, 2, o.URL, nil)[0]
	type step struct {
		ID, Name, State string
		Acked           int
	}
	steps := func(method, path, body string) (list []step) {
		t.Helper()
		status, text := a.adminCall(t, method, path, body, "Accept", "application/x-ndjson")
		if status != 200 {
			t.Fatal(status, text)
		}
		for line := range strings.Lines(text) {
			var s step
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			list = append(list, s)
		}
		return list
	}
	check := func(list []step) {
		t.Helper()
		if len(list) != 3 || list[0].ID == "" || list[0].ID != list[2].ID || list[1] != (step{Name: "edge-b", State: "applied"}) || list[2].Acked != 2 {
			t.Errorf("%+v", list)
		}
	}
	check(steps("POST", "/v1/purge", `{"tags":["x"]}`))
	behind := steps("POST", "/v1/purge", `{"tags":["x"],"wait":"none"}`)
	if len(behind) != 2 || behind[0].ID == "" {
		t.Fatalf("%+v", behind)
	}
	check(steps("GET", "/v1/purge/"+behind[0].ID, ""))
	_, metrics := a.adminCall(t, "GET", "/metrics", "")
	for _, want := range []string{`edged_purges_total{kind="tag",result="complete"} 1`, `edged_purges_total{kind="tag",result="accepted"} 1`, `edged_purges_total{kind="tag",result="incomplete"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestSplitChange(t *testing.T) {
	c := gossip.Change{Kind: gossip.KindPurge, Soft: true, All: true}
	for i := range 3 * changeNames / 2 {
		c.URLs = append(c.URLs, fmt.Sprint("u", i))
		c.Tags = append(c.Tags, fmt.Sprint("t", i))
	}
	c.Hosts = []string{strings.Repeat("h", changeBytes-1)}
	var got gossip.Change
	for _, p := range splitChange(c) {
		if p.Kind != c.Kind || !p.Soft || len(p.URLs)+len(p.Tags)+len(p.Hosts) > changeNames {
			t.Errorf("%d URLs, %d tags, %d hosts", len(p.URLs), len(p.Tags), len(p.Hosts))
		}
		got.All = got.All || p.All
		got.URLs, got.Tags, got.Hosts = append(got.URLs, p.URLs...), append(got.Tags, p.Tags...), append(got.Hosts, p.Hosts...)
	}
	if !got.All || !slices.Equal(got.URLs, c.URLs) || !slices.Equal(got.Tags, c.Tags) || !slices.Equal(got.Hosts, c.Hosts) {
		t.Error("the parts do not come to the whole")
	}
}

func TestPurgeLimit(t *testing.T) {
	l := purgeLimit{rate: purgeRate, burst: purgeBurst}
	now := time.Unix(1000, 0)
	if w := l.take(purgeBurst, now); w != 0 {
		t.Errorf("a burst waits %v", w)
	}
	if w := l.take(1, now); w != time.Second {
		t.Errorf("one more waits %v", w)
	}
	if w := l.take(purgeRate, now.Add(time.Second)); w != 0 {
		t.Errorf("a second's worth waits %v a second later", w)
	}
}

// What can never pass is told from what may pass later.
func TestPurge_tooManyNames(t *testing.T) {
	n := startNode(t, testConfig("edge-a", "http://127.0.0.1:1"))
	call := func(names int) int {
		status, _ := n.adminCall(t, "POST", "/v1/purge", `{"tags":["a"`+strings.Repeat(`,"a"`, names-1)+`]}`, "Content-Type", "application/json")
		return status
	}
	for _, c := range []struct{ names, want int }{{purgeBurst + 1, 413}, {purgeBurst, 200}, {purgeBurst, 429}, {purgeBurst + 1, 413}} {
		if got := call(c.names); got != c.want {
			t.Errorf("%d names: %d, want %d", c.names, got, c.want)
		}
	}
}

// A purge of a node that is to have others, and knows of none, says so.
func TestPurge_alone(t *testing.T) {
	for _, join := range [][]string{nil, {"127.0.0.1:1"}} {
		cfg := testConfig("edge-a", "http://127.0.0.1:1")
		cfg.Cluster.Join = join
		n := startNode(t, cfg)
		for _, wait := range []string{"all", "none"} {
			_, body := n.adminCall(t, "POST", "/v1/purge", `{"tags":["a"],"wait":"`+wait+`"}`, "Content-Type", "application/json")
			if warns := strings.Contains(body, "knows of no other member"); warns != (join != nil) {
				t.Errorf("join %v, wait %s: %s", join, wait, body)
			}
		}
	}
}

// Every purge leaves a line that says who, what and how far.
func TestPurge_audit(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	cfg := testConfig("edge-a", o.URL)
	var mu sync.Mutex
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	n := startNode(t, cfg)
	n.adminCall(t, "POST", "/v1/purge", `{"tags":["red"],"soft":true}`, "Content-Type", "application/json")
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"audit=true", "kind=tag", "by=127.0.0.1:", "soft=true", "what=[red]", "id=edge-a."} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is missing in %s", want, log.String())
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// A node that may have missed purges validates what it has, or serves it where
// it is told to; it is not ready while it has just begun to catch up.
func TestSync_validatesWhileOutOfStep(t *testing.T) {
	for _, tc := range []struct{ isolated, state, want string }{
		{"revalidate", "synced", "hit"}, {"revalidate", "syncing", "fwd=stale"}, {"revalidate", "isolated", "fwd=stale"},
		{"serve", "syncing", "fwd=stale"}, {"serve", "isolated", "hit"},
	} {
		var version atomic.Int64
		o := taggedOrigin(t, &version)
		cfg := testConfig("edge-a", o.URL)
		cfg.Purge.Isolated = tc.isolated
		n := startNode(t, cfg)
		n.get(t, "/p")
		n.syncChanged(gossip.SyncState(tc.state))
		e, err := n.explain(t.Context(), "GET", "http://www.example.com/p", nil)
		if err != nil {
			t.Fatal(err)
		}
		if would := "This request would be answered from the store of edge-a."; (e.Would == would) != (tc.want == "hit") {
			t.Errorf("%s, %s: explain says %q", tc.isolated, tc.state, e.Would)
		}
		if s := n.clusterStatus().PurgeLog; s != tc.state {
			t.Errorf("the status says %q, want %q", s, tc.state)
		}
		n.get(t, "/p").want(t, 200, "0", tc.want)
		want := 200
		if tc.state == "syncing" {
			want = 503
		}
		if status, body := n.adminCall(t, "GET", "/readyz", ""); status != want {
			t.Errorf("%s: readyz answers %d %s", tc.state, status, body)
		}
	}
}

// Purges that nobody can tell any more: what is stored is validated, once.
func TestSync_lostPurges(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	n := startNode(t, testConfig("edge-a", o.URL))
	n.get(t, "/p")
	n.get(t, "/q")
	n.changesLost()
	n.get(t, "/p").want(t, 200, "0", "fwd=stale", "fwd-status=304")
	n.get(t, "/p").want(t, 200, "0", "hit")
	version.Add(1)
	n.get(t, "/q").want(t, 200, "1", "fwd=stale", "fwd-status=200")
}

// What is https to clients, whose TLS ends in front of the node, has one key with
// what is http to the node: for who purges, and for an origin's Location.
func TestPurge_httpsIsTheSame(t *testing.T) {
	var version atomic.Int64
	o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Location", r.Header.Get("X-Location"))
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprint(w, version.Load())
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	for _, tc := range []struct {
		path, call, body string
	}{
		{"/v1/purge", `{"urls":["https://www.example.com/x"]}`, ""},
		{"/v1/purge", `{"urls":["HTTPS://www.example.com:443/x"],"soft":true}`, ""},
		{"/v1/purge", `{"prefixes":["https://www.example.com/"]}`, ""},
		{"", "https://www.example.com/x", ""},
		{"", "https://www.example.com:443/x", ""},
		{"", "https://www.example.com:8443/x", "hit"}, // another origin
		{"", "https://www.example.org/x", "hit"},
	} {
		n.get(t, "/x").want(t, 200, fmt.Sprint(version.Load()))
		version.Add(1)
		want := fmt.Sprint(version.Load())
		if tc.body != "" {
			want = fmt.Sprint(version.Add(-1))
		}
		if tc.path != "" {
			if status, body := n.adminCall(t, "POST", tc.path, tc.call, "Content-Type", "application/json"); status != 200 {
				t.Errorf("%s: %d %s", tc.call, status, body)
			}
		} else {
			n.do(t, http.MethodPost, "/other", strings.NewReader("a"), "X-Location: "+tc.call).want(t, 303, "")
		}
		n.get(t, "/x").want(t, 200, want, tc.body)
	}
	e, err := n.explain(t.Context(), "GET", "https://www.example.com/x", nil)
	if err != nil || len(e.Stored) != 1 {
		t.Errorf("explain of an https URL: %+v, %v", e, err)
	}
}

// What a newer version says, and this one does not know, may be about anything,
// unless its number says that it is advice.
func TestChange_ofUnknownKind(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	var mu sync.Mutex
	var log bytes.Buffer
	nodes := startCluster(t, 2, o.URL, func(c *Config) {
		if c.Name == "edge-b" {
			c.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
		}
	})
	b := nodes[1]
	spread := func(k gossip.Kind) {
		s, err := nodes[0].gossip.Spread(gossip.Change{Kind: k, Payload: []byte("what?")})
		if err != nil {
			t.Fatal(err)
		}
		s.Wait(t.Context())
	}
	b.get(t, "/p")
	spread(128)
	spread(255)
	b.get(t, "/p").want(t, 200, "0", "hit")
	spread(127)
	b.get(t, "/p").want(t, 200, "0", "fwd=stale", "fwd-status=304")
	b.get(t, "/p").want(t, 200, "0", "hit")
	spread(127)
	spread(5)
	b.get(t, "/p").want(t, 200, "0", "fwd=stale", "fwd-status=304")
	_, metrics := b.adminCall(t, "GET", "/metrics", "")
	for _, want := range []string{`edged_purge_unknown_total{kind="advisory"} 2`, `edged_purge_unknown_total{kind="binding"} 3`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("there is no %s", want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "newer version"); n != 2 {
		t.Errorf("it is logged %d times, want once for each kind:\n%s", n, &log)
	}
}

// Purging everything begins an empty filter, in which what comes after is.
func TestPurge_allBeginsAnEmptyFilter(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	n := startNode(t, testConfig("edge-a", o.URL))
	for i := range 50 {
		n.get(t, fmt.Sprint("/p", i))
	}
	before, _, epoch := n.filters[0].current()
	n.apply(&store.Purge{All: true})
	after, _, next := n.filters[0].current()
	if next != epoch+1 || after == before || after.Stats().Keys != 0 || n.store.Stats(0).Objects != 0 {
		t.Errorf("epoch %d after %d, %d keys, %d stored", next, epoch, after.Stats().Keys, n.store.Stats(0).Objects)
	}
	version.Add(1)
	n.get(t, "/p1").want(t, 200, "1", "fwd=uri-miss")
	n.get(t, "/p1").want(t, 200, "1", "hit")
	if k := after.Stats().Keys; k != 1 {
		t.Errorf("%d keys, want 1", k)
	}
}

// The walk behind a purge takes out what nobody asks for.
func TestPurge_isReclaimed(t *testing.T) {
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	n := startNode(t, testConfig("edge-a", o.URL))
	for i := range 20 {
		n.get(t, fmt.Sprint("/p", i))
	}
	n.apply(&store.Purge{Tags: []string{"-p1", "-p2"}})
	eventually(t, "the walk has been there", func() bool { return n.store.Stats(0).Objects == 18 })
	n.apply(&store.Purge{Prefixes: []string{"http://www.example.com/"}})
	eventually(t, "the walk has been there", func() bool { return n.store.Stats(0).Objects == 0 })
}

// TestPurge_ofAPopularTag: a tag of 100 000 stored responses on each of two
// members, purged by a call: when it is answered, none of them is used. How long
// the calls took is logged; that they don't look at the responses is for
// BenchmarkPurgeTag to show.
func TestPurge_ofAPopularTag(t *testing.T) {
	const stored = 100_000
	calls := 7
	if raceEnabled {
		calls = 1
	}
	var version atomic.Int64
	o := taggedOrigin(t, &version)
	nodes := startCluster(t, 2, o.URL, func(c *Config) { c.Cache.Memory, c.Filter.Keys = 256<<20, stored })
	keys := make([]store.Key, stored)
	for i := range keys {
		keys[i] = nodes[0].keyOf(fmt.Sprintf("http://www.example.com/products/%d", i))
	}
	part := nodes[0].partitionOf("/products/0")
	var took []time.Duration
	for range calls {
		for _, n := range nodes {
			for i := range keys {
				r := &store.Response{Head: "Content-Type: text/html\r\n", Meta: &meta{}, Tags: []string{"all"}}
				r.SeenAt(n.epochs.Generation())
				if ok, why := n.store.Put(part, &keys[i], r); !ok {
					t.Fatal(why)
				}
			}
		}
		began := time.Now()
		status, body := nodes[0].adminCall(t, "POST", "/v1/purge", `{"tags":["all"]}`)
		if took = append(took, time.Since(began)); status != 200 {
			t.Fatal(status, body)
		}
		for _, n := range nodes {
			for i := range keys {
				if rs := n.valid(part, &keys[i], n.store.Get(part, &keys[i])); len(rs) > 0 {
					t.Fatalf("%s is used after its purge", keys[i].URL)
				}
			}
		}
	}
	slices.Sort(took)
	t.Logf("from the call to its answer: median %v, max %v of %d", took[calls/2], took[calls-1], calls)
}
