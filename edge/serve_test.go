package edge

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// The core of a shared cache, one behaviour a row: what the origin answers,
// then what clients ask and see, in order.
func TestServe(t *testing.T) {
	type step struct {
		method, path string
		fields       []string
		status       int
		body         string
		cache        string // part of Cache-Status
		origin       int64  // requests that have reached it by then
	}
	get := func(path string, status int, body, cache string, origin int64, fields ...string) step {
		return step{"GET", path, fields, status, body, cache, origin}
	}
	for _, c := range []struct {
		name   string
		site   Site
		origin func(w http.ResponseWriter, r *http.Request, nth int64)
		steps  []step
	}{
		{"fresh (§4.2)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, n)
		}, []step{
			get("/", 200, "1", "edge-a; fwd=uri-miss; fwd-status=200; stored; detail=origin", 1),
			get("/", 200, "1", "edge-a; hit; ttl=", 1),
			get("/?q", 200, "2", "fwd=uri-miss", 2),
			{"HEAD", "/", nil, 200, "", "edge-a; hit", 2},
		}},
		{"no freshness information: not reused (§4.2.2)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "fwd=uri-miss", 1), get("/", 200, "2", "fwd=uri-miss", 2)}},
		{"no-store (§5.2.2.5)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "no-store, max-age=60")
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "fwd=uri-miss", 1), get("/", 200, "2", "fwd=uri-miss", 2)}},
		{"arrives stale, is validated, is freshened (§4.3)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Cache-Control", "max-age=60")
			if r.Header.Get("If-None-Match") == `"e"` {
				w.Header().Set("X-Fresh", "yes")
				w.WriteHeader(304)
				return
			}
			w.Header().Set("Age", "100")
			fmt.Fprint(w, n)
		}, []step{
			get("/", 200, "1", "stored", 1),
			get("/", 200, "1", "fwd=stale; fwd-status=304", 2),
			get("/", 200, "1", "hit; ttl=", 2),
		}},
		{"Vary: one response a variant (§4.1)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Vary", "X-Kind")
			fmt.Fprint(w, n, r.Header.Get("X-Kind"))
		}, []step{
			get("/", 200, "1a", "uri-miss", 1, "X-Kind: a"),
			get("/", 200, "2b", "fwd=vary-miss", 2, "X-Kind: b"),
			get("/", 200, "1a", "hit", 2, "X-Kind: a"),
			get("/", 200, "2b", "hit", 2, "X-Kind: b"),
		}},
		{"Vary on a field that stays behind still selects", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Vary", "X-Forwarded-Proto")
			fmt.Fprint(w, n)
		}, []step{
			get("/", 200, "1", "uri-miss", 1, "X-Forwarded-Proto: https"),
			get("/", 200, "1", "hit", 1, "X-Forwarded-Proto: https"),
		}},
		{"one key for all spellings of a target (RFC 3986 §6.2.2)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, n, r.RequestURI)
		}, []step{
			get("/a%7eb?", 200, "1/a~b", "uri-miss", 1),
			get("/a~b", 200, "1/a~b", "hit", 1),
			get("/a%2fb", 200, "2/a%2Fb", "uri-miss", 2),
			get("/a/b?x=%2f", 200, "3/a/b?x=%2F", "uri-miss", 3),
		}},
		{"conditions of the client (RFC 9110 §13)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("ETag", `"e"`)
			fmt.Fprint(w, n)
		}, []step{
			get("/", 304, "", "fwd=uri-miss", 1, `If-None-Match: "e"`),
			get("/", 304, "", "hit", 1, `If-None-Match: W/"e"`),
			get("/", 200, "1", "hit", 1, `If-None-Match: "x"`),
		}},
		{"ranges of a complete response (RFC 9110 §14)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			io.WriteString(w, "0123456789")
		}, []step{
			get("/", 206, "23", "fwd=uri-miss", 1, "Range: bytes=2-3"),
			get("/", 206, "89", "hit", 1, "Range: bytes=-2"),
			get("/", 206, "9", "hit", 1, "Range: bytes=9-"),
			get("/", 416, "", "hit", 1, "Range: bytes=10-"),
			get("/", 200, "0123456789", "hit", 1, "Range: lines=1-2"),
			get("/", 200, "0123456789", "hit", 1),
		}},
		{"an unsafe method invalidates (§4.4)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			if r.URL.Query().Get("fail") != "" {
				w.WriteHeader(500)
			}
			fmt.Fprint(w, n)
		}, []step{
			get("/", 200, "1", "stored", 1),
			{"POST", "/", nil, 200, "2", "edge-a; fwd=method", 2},
			get("/", 200, "3", "fwd=uri-miss", 3),
			{"POST", "/?fail=1", nil, 500, "4", "fwd=method", 4},
			get("/", 200, "3", "hit", 4),
		}},
		{"stale-while-revalidate (RFC 5861 §3)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
			if n == 1 {
				w.Header().Set("Age", "20")
			}
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "stored", 1), get("/", 200, "1", "hit; ttl=-", -1)}},
		{"stale-if-error (RFC 5861 §4)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=10, stale-if-error=60")
			w.Header().Set("Age", "20")
			if n > 1 {
				w.WriteHeader(503)
			}
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "stored", 1), get("/", 200, "1", "fwd=stale; fwd-status=503; ttl=-", 2)}},
		{"without stale-if-error the failure passes", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=10")
			w.Header().Set("Age", "20")
			w.Header().Set("ETag", `"e"`)
			if n > 1 {
				w.WriteHeader(503)
			}
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "stored", 1), get("/", 503, "2", "fwd=stale; fwd-status=503", 2)}},
		{"a 404 is remembered", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.WriteHeader(404)
			fmt.Fprint(w, n)
		}, []step{get("/", 404, "1", "fwd=uri-miss; fwd-status=404", 1), get("/", 404, "1", "hit; ttl=4; detail=negative", 1)}},
		{"PURGE without a token configured", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {}, []step{
			{"PURGE", "/", nil, 403, "403 Forbidden: PURGE is off: it needs a token, and admin.token_file is not set\n", "fwd=method", 0},
		}},
		{"bypass", Site{Bypass: []string{"/api/*"}}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, n)
		}, []step{get("/api/x", 200, "1", "edge-a; fwd=bypass", 1), get("/api/x", 200, "2", "fwd=bypass", 2), get("/", 200, "3", "stored", 3), get("/", 200, "3", "hit", 3)}},
		{"Set-Cookie is passed, not stored", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Set-Cookie", "id="+strconv.FormatInt(n, 10))
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "fwd=uri-miss", 1), get("/", 200, "2", "fwd=uri-miss", 2)}},
		{"clients' directives, honoured (§5.2.1)", Site{RequestDirectives: "honour"}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, n)
		}, []step{
			get("/", 504, "504 Gateway Timeout: nothing stored here answers this request, and only-if-cached forbids asking further\n", "fwd=uri-miss", 0, "Cache-Control: only-if-cached"),
			get("/", 200, "1", "stored", 1),
			get("/", 200, "2", "fwd=request", 2, "Cache-Control: no-cache"),
		}},
		{"clients' directives, ignored", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, n)
		}, []step{get("/", 200, "1", "stored", 1), get("/", 200, "1", "hit", 1, "Cache-Control: no-cache", "Pragma: no-cache")}},
		{"HEAD outdates a stored response that it contradicts (§4.3.5)", Site{RequestDirectives: "honour"}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(n, 10)))
			fmt.Fprint(w, n)
		}, []step{
			get("/", 200, "1", "stored", 1),
			{"HEAD", "/", []string{"Cache-Control: no-cache"}, 200, "", "fwd=request", 2},
			get("/", 200, "3", "fwd=stale", 3),
		}},
		{"HEAD freshens a stored response that it agrees with (§4.3.5)", Site{RequestDirectives: "honour"}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("X-Nth", strconv.FormatInt(n, 10))
			w.Header().Set("Content-Length", "1")
			if r.Method == "GET" {
				fmt.Fprint(w, n)
			}
		}, []step{
			get("/", 200, "1", "stored", 1),
			{"HEAD", "/", []string{"Cache-Control: no-cache"}, 200, "", "fwd=request", 2},
			get("/", 200, "1", "hit", 2),
		}},
		{"a GET with content is no cached GET", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			b, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, n, string(b))
		}, []step{
			{"GET+body", "/", nil, 200, "1evil", "fwd=bypass", 1},
			get("/", 200, "2", "fwd=uri-miss", 2),
			{"GET+body", "/", nil, 200, "3evil", "fwd=bypass", 3},
		}},
		{"overrides of strangers don't arrive", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, r.Host, r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Original-URL"))
		}, []step{get("/", 200, "www.example.com", "stored", 1, "X-Forwarded-Host: evil", "X-Original-URL: /admin")}},
		{"a loop ends (RFC 8586)", Site{}, func(w http.ResponseWriter, r *http.Request, n int64) {}, []step{
			get("/", 508, "508 Loop Detected: this request has passed here before (CDN-Loop): an origin points back at this node\n", "edge-a", 0, "CDN-Loop: edge-a"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var nth atomic.Int64
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) { c.origin(w, r, nth.Add(1)) })
			cfg := testConfig("edge-a", o.URL)
			c.site.Name, c.site.Origin = "www", cfg.Sites[0].Origin
			cfg.Sites[0] = c.site
			n := startNode(t, cfg)
			for i, s := range c.steps {
				method, content := s.method, io.Reader(nil)
				if m, ok := strings.CutSuffix(method, "+body"); ok {
					method, content = m, strings.NewReader("evil")
				}
				a := n.do(t, method, s.path, content, s.fields...)
				a.want(t, s.status, s.body, s.cache)
				if got := o.requests.Load(); s.origin >= 0 && got != s.origin {
					t.Errorf("step %d: %d requests reached the origin, want %d", i+1, got, s.origin)
				}
			}
		})
	}
}
