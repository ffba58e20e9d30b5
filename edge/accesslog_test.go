package edge

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// lineLog collects the lines of a log.
type lineLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// requests are the access log's lines so far.
func (l *lineLog) requests(t *testing.T) (all []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if m["msg"] == "request" {
			all = append(all, m)
		}
	}
	return all
}

func loggedNode(t *testing.T, origin string, change func(*Config)) (*Node, *lineLog) {
	t.Helper()
	l := &lineLog{}
	cfg := testConfig("edge-a", origin)
	cfg.Logger = slog.New(slog.NewJSONHandler(l, nil))
	cfg.Log.Access.Sample = 1
	cfg.Admin.Token = "s3cr3t-admin"
	change(&cfg)
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n, l
}

// Each request has one line with one reason, whatever its way; and no secret is
// in any.
func TestAccessLog_oneLineOneReason(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/absent":
			w.Header().Set("Cache-Control", "public, max-age=5")
			w.WriteHeader(404)
		case "/private":
			w.Header().Set("Cache-Control", "private")
		default:
			w.Header().Set("Cache-Control", "public, max-age=60") // for requests with Authorization, too
		}
		w.Header().Set("Set-Cookie", "s3cr3t-set")
		io.WriteString(w, "hello")
	})
	n, log := loggedNode(t, origin.URL, func(c *Config) {
		c.Sites[0].Bypass = []string{"/by/*"}
		c.Sites[0].SetCookie = "store"
		c.Sites[0].Hosts = []string{"www.example.com"}
	})
	steps := []struct {
		name, method, path string
		result, reason     string
		status             float64
	}{
		{"nothing stored", "GET", "/x?token=s3cr3t-query", "miss", "uri-miss", 200},
		{"stored", "GET", "/x?token=s3cr3t-query", "hit", "fresh", 200},
		{"absent", "GET", "/absent", "miss", "uri-miss", 404},
		{"remembered as absent", "GET", "/absent", "negative", "negative", 404},
		{"unsafe", "POST", "/x", "bypass", "method", 200},
		{"configured", "GET", "/by/x", "bypass", "bypass", 200},
		{"without the right", "PURGE", "/x", "error", "method", 403},
		{"too long", "GET", "/" + strings.Repeat("x", maxTargetBytes), "error", "refused-target", 414},
	}
	for i, s := range steps {
		var body io.Reader
		if s.method == "POST" {
			body = strings.NewReader("a=s3cr3t-body")
		}
		a := n.do(t, s.method, s.path, body, "Authorization: Bearer s3cr3t-auth", "Cookie: s3cr3t-cookie", "X-Request-Id: id-1")
		if got := a.header["X-Request-Id"]; len(got) != 1 || got[0] != "id-1" {
			t.Errorf("%s: the answer has the id %q", s.name, got)
		}
		eventually(t, "a line for "+s.name, func() bool { return len(log.requests(t)) > i })
		lines := log.requests(t)
		if len(lines) != i+1 {
			t.Fatalf("%s: %d lines for %d requests", s.name, len(lines), i+1)
		}
		m := lines[i]
		if m["result"] != s.result || m["reason"] != s.reason || m["status"] != s.status || m["id"] != "id-1" || m["method"] != s.method {
			t.Errorf("%s: %v, want %s for %s, %v", s.name, m, s.result, s.reason, s.status)
		}
	}
	if m := log.requests(t)[1]; m["bytes"] != 5.0 || m["path"] != "/x" || m["site"] != "www" || m["from"] != "client" || m["host"] != "www.example.com" {
		t.Errorf("a hit's line is %v", m)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if found := regexp.MustCompile(`s3cr3t-\w+`).FindAllString(log.b.String(), -1); found != nil {
		t.Errorf("the log has %v", found)
	}
}

// What is slow has a line however few are sampled; the rest has none.
func TestAccessLog_sampling(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "x")
	})
	for _, tt := range []struct {
		name        string
		access      AccessLog
		least, most int
	}{
		{"none", AccessLog{Slow: -1}, 0, 0},
		{"all", AccessLog{Sample: 1, Slow: -1}, 400, 400},
		{"all are slow", AccessLog{Slow: 1}, 400, 400},
		// Five standard deviations of the binomial on both sides.
		{"a quarter", AccessLog{Sample: 0.25, Slow: -1}, 56, 144},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, log := loggedNode(t, origin.URL, func(c *Config) { c.Log.Access = tt.access })
			n.get(t, "/x")
			r, w := benchRequest(), &discard{h: http.Header{}}
			for range 399 {
				clear(w.h)
				n.serveClient(w, r)
			}
			// The line of the first one, which came over a connection, may come after its answer.
			eventually(t, "the lines are written", func() bool { return len(log.requests(t)) >= tt.least })
			if got := len(log.requests(t)); got < tt.least || got > tt.most {
				t.Errorf("%d lines for 400 requests, want %d to %d", got, tt.least, tt.most)
			}
		})
	}
}

// The id and a valid trace go on to the origin; a new id is made where there is
// no good one, and a broken trace ends here.
func TestForward_idAndTrace(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") })
	n := startNode(t, testConfig("edge-a", origin.URL))
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	fresh := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for i, tt := range []struct {
		name, id, parent, state string
		keepsID                 bool
		wantParent, wantState   string
	}{
		{"nothing sent", "", "", "", false, "", ""},
		{"good ones", "req-1.a:b/c", parent, "v=1", true, parent, "v=1"},
		{"an id with a space", "a b", "", "", false, "", ""},
		{"an id that is too long", strings.Repeat("x", 129), "", "", false, "", ""},
		{"a parent of zeros", "a", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "v=1", true, "", ""},
		{"no parent, but a state", "a", "", "v=1", true, "", ""},
		{"a state that is too long", "a", parent, "v=" + strings.Repeat("x", 600), true, parent, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fields []string
			for name, v := range map[string]string{"X-Request-Id": tt.id, "Traceparent": tt.parent, "Tracestate": tt.state} {
				if v != "" {
					fields = append(fields, name+": "+v)
				}
			}
			n.get(t, "/"+itoa(int64(i)), fields...)
			origin.mu.Lock()
			h := origin.heads[len(origin.heads)-1]
			origin.mu.Unlock()
			if id := h.Get("X-Request-Id"); tt.keepsID && id != tt.id || !tt.keepsID && !fresh.MatchString(id) {
				t.Errorf("the id %q arrives as %q", tt.id, id)
			}
			if h.Get("Traceparent") != tt.wantParent || h.Get("Tracestate") != tt.wantState {
				t.Errorf("the trace arrives as %q, %q", h.Get("Traceparent"), h.Get("Tracestate"))
			}
		})
	}
}

// An answer tells the id of its own request: the one that the log, and whoever
// was asked, know. What an origin said to another request never comes again.
func TestRequestID_answers(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "the-origin's-own")
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("ETag", `"e"`)
		io.WriteString(w, "x")
	})
	n, log := loggedNode(t, origin.URL, func(*Config) {})
	first, second := n.get(t, "/x"), n.get(t, "/x")
	fresh := regexp.MustCompile(`^[0-9a-f]{32}$`)
	eventually(t, "two lines", func() bool { return len(log.requests(t)) == 2 })
	for i, a := range []answer{first, second} {
		ids := a.header["X-Request-Id"]
		if len(ids) != 1 || !fresh.MatchString(ids[0]) || ids[0] != log.requests(t)[i]["id"] {
			t.Errorf("answer %d has the ids %q, its line says %v", i+1, ids, log.requests(t)[i]["id"])
		}
	}
	if first.header.Get("X-Request-Id") == second.header.Get("X-Request-Id") {
		t.Error("two requests have one id")
	}
	origin.mu.Lock()
	if told := origin.heads[0].Get("X-Request-Id"); told != first.header.Get("X-Request-Id") {
		t.Errorf("the origin was told %q, the client %q", told, first.header.Get("X-Request-Id"))
	}
	origin.mu.Unlock()
	if a := n.get(t, "/x", "If-None-Match: \"e\"", "X-Request-Id: mine"); a.status != http.StatusNotModified || a.header.Get("X-Request-Id") != "mine" {
		t.Errorf("%d with the id %q, want 304 with mine", a.status, a.header.Get("X-Request-Id"))
	}
}

func TestTraceParent(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"valid (§3.2.2)", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true},
		{"version ff (§3.2.2.1)", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
		{"version 00 with more (§3.2.2.2)", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", false},
		{"a later version with more (§4.3)", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", true},
		{"a later version with more, unparted", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x", false},
		{"upper case (§3.2.2.3)", "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
		{"trace of zeros (§3.2.2.3)", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
		{"parent of zeros (§3.2.2.4)", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
		{"flags that are no hex", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g", false},
		{"short", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", false},
		{"empty", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, got := traceParent(http.Header{traceParentField: {tt.value}}); got != tt.want {
				t.Errorf("valid: %v, want %v", got, tt.want)
			}
		})
	}
	two := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if _, ok := traceParent(http.Header{traceParentField: {two, two}}); ok {
		t.Error("two of them are valid")
	}
}

func FuzzTraceParent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("cc-12345678901234567890123456789012-1234567890123456-01.what-the-future-will-be-like")
	valid := regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-|$)`)
	f.Fuzz(func(t *testing.T, s string) {
		if got, ok := traceParent(http.Header{traceParentField: {s}}); ok && (got != s || !valid.MatchString(s)) {
			t.Errorf("%q is taken", s)
		}
		if wellFormedID(s) && strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' }) {
			t.Errorf("the id %q is taken", s)
		}
	})
}

// What a line costs a hit.
func BenchmarkAccessLog(b *testing.B) {
	for _, tt := range []struct {
		name   string
		sample float64
	}{{"off", 0}, {"sample=1%", 0.01}, {"sample=100%", 1}} {
		b.Run(tt.name, func(b *testing.B) {
			n := benchNode(b, 1<<10)
			n.cfg.Log.Access = AccessLog{Sample: tt.sample, Slow: 5 * time.Second}
			n.log = slog.New(slog.NewJSONHandler(io.Discard, nil))
			r, w := benchRequest(), &discard{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				n.serveClient(w, r)
			}
		})
	}
}
