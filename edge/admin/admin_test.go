package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// fake is a node that notes what it was told.
type fake struct {
	called string
	err    error
}

func (f *fake) note(format string, args ...any) { f.called = fmt.Sprintf(format, args...) }

func (f *fake) node() Node {
	return Node{
		Live:    func() error { return nil },
		Ready:   func() error { return f.err },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "edged_members 1\n") }),
		Cluster: func() Cluster { return Cluster{Name: "edge-a", Members: []Member{{Name: "edge-a", Self: true}}} },
		Explain: func(_ context.Context, method, url string, header http.Header) (Explanation, error) {
			f.note("%s %s %v", method, url, header)
			return Explanation{URL: url, Would: "hit", Stored: []Stored{{Status: 200}}}, f.err
		},
		Tags: func(n int) Tags {
			return Tags{Tags: []TagCount{{Tag: "a", Stored: n}}, Distinct: 2, References: 3, Bytes: 400, Untagged: 5}
		},
		Keys: func(context.Context) []MemberKeys {
			return []MemberKeys{{Member: "edge-a", Encrypt: "9f86d081", Decrypt: []string{"9f86d081"}}, {Member: "edge-b", Error: "gone"}}
		},
		Purge: func(_ context.Context, req PurgeRequest, _ *PurgeWatch) (PurgeResult, error) {
			f.note("%+v", req)
			return PurgeResult{ID: "1", Members: 3, Acked: 3}, f.err
		},
		Created: func(_ context.Context, urls []string) (PurgeResult, error) {
			f.note("%v", urls)
			return PurgeResult{ID: "2", Members: 3, Acked: 2, Missing: []string{"edge-c"}}, f.err
		},
		CatalogUpdate: func(_ context.Context, site string, add, remove []string) (CatalogResult, error) {
			f.note("%s +%v -%v", site, add, remove)
			return CatalogResult{Added: len(add), Removed: len(remove)}, f.err
		},
		Warm: func(_ context.Context, req WarmRequest, progress func(WarmResult)) (WarmResult, error) {
			f.note("%v %d", req.URLs, req.Rate)
			if f.err == nil {
				progress(WarmResult{Skipped: 1})
			}
			return WarmResult{Fetched: len(req.URLs)}, f.err
		},
		Drain:  func(context.Context) error { f.note("drain"); return f.err },
		Reload: func(context.Context) error { f.note("reload"); return f.err },
	}
}

func do(h http.Handler, method, target, body string, fields ...string) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func compact(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		t.Fatalf("%q is no JSON: %v", s, err)
	}
	return b.String()
}

func TestAdmin_routes(t *testing.T) {
	for _, tt := range []struct {
		name, method, target, body string
		status                     int
		called                     string // what the node was told
		answer                     string // a part of the answer, in compact form where it is JSON
	}{
		{"alive", "GET", "/livez", "", 200, "", "ok\n"},
		{"ready", "GET", "/readyz", "", 200, "", "ok\n"},
		{"metrics", "GET", "/metrics", "", 200, "", "edged_members 1\n"},
		{"page", "GET", "/", "", 200, "", "<!doctype html>"},
		{"script", "GET", "/web/app.js", "", 200, "", "use strict"},
		{"style", "GET", "/web/style.css", "", 200, "", ":root"},
		{"cluster", "GET", "/v1/cluster", "", 200, "", `{"name":"edge-a",`},
		{"tags", "GET", "/v1/tags", "", 200, "", `{"tags":[{"tag":"a","stored":20}],"distinct":2,"references":3,"bytes":400,"untagged":5}`},
		{"the largest tags", "GET", "/v1/tags?n=1000", "", 200, "", `{"tags":[{"tag":"a","stored":1000}],`},
		{"too many tags", "GET", "/v1/tags?n=1001", "", 400, "", "want a number from 1 to 1000"},
		{"no tags", "GET", "/v1/tags?n=0", "", 400, "", "want a number from 1 to 1000"},
		{"tags, not a number of them", "GET", "/v1/tags?n=many", "", 400, "", `n \"many\": want a number`},
		{"keys", "GET", "/v1/keys", "", 200, "", `{"members":[{"member":"edge-a","encrypt":"9f86d081","decrypt":["9f86d081"]},{"member":"edge-b","encrypt":"","decrypt":[],"error":"gone"}]}`},
		{"cluster without null", "GET", "/v1/cluster", "", 200, "", `"partitions":[],`},
		{"explain", "GET", "/v1/explain?url=http://h/a%3Fb", "", 200, "GET http://h/a?b map[]", `"steps":[],"stored":[{"status":200,`},
		{"explain with fields", "GET", "/v1/explain?url=http://h/&method=HEAD&header=Accept:%20a&header=accept:b&header=X:", "", 200,
			"HEAD http://h/ map[Accept:[a b] X:[]]", `"would":"hit"`},
		{"purge urls", "POST", "/v1/purge", `{"urls":["http://h/a"]}`, 200,
			"{URLs:[http://h/a] Tags:[] Prefixes:[] Hosts:[] All:false Soft:false Reason: Wait:all By:192.0.2.1:1234}", `{"id":"1","members":3,"acked":3,"missing":[],"nodes":[]}`},
		{"purge all there is", "POST", "/v1/purge", `{"urls":[],"tags":["t"],"prefixes":["http://h/"],"hosts":["h"],"all":true,"soft":true,"wait":"none"}`, 200,
			"{URLs:[] Tags:[t] Prefixes:[http://h/] Hosts:[h] All:true Soft:true Reason: Wait:none By:192.0.2.1:1234}", `"acked":3`},
		{"created", "POST", "/v1/created", `{"urls":["http://h/a","https://h/b"]}`, 200, "[http://h/a https://h/b]", `"missing":["edge-c"]`},
		{"catalog", "POST", "/v1/catalog/www", `{"add":["/a"],"remove":["/b","/c"]}`, 200, "www +[/a] -[/b /c]", `{"added":1,"removed":2,"id":"","members":0,"acked":0,"missing":[]}`},
		{"warm", "POST", "/v1/warm", `{"urls":["http://h/a"]}`, 200, "[http://h/a] 0", `{"fetched":1,"skipped":0,"failed":0}`},
		{"warm slowly", "POST", "/v1/warm", `{"urls":["http://h/a"],"rate":5}`, 200, "[http://h/a] 5", `{"fetched":1,"skipped":0,"failed":0}`},
		{"reload", "POST", "/v1/reload", ``, 200, "reload", `{"reloaded":true}`},
		{"drain", "POST", "/v1/drain", ``, 200, "drain", `{"draining":true}`},
		{"drain with an object", "POST", "/v1/drain", `{}`, 200, "drain", `{"draining":true}`},

		{"unknown path", "GET", "/v2", "", 404, "", "there is nothing at /v2"},
		{"catalog of no site", "POST", "/v1/catalog/", `{}`, 404, "", "there is nothing"},
		{"files beside the page", "GET", "/web/", "", 404, "", "there is nothing"},
		{"post to the page", "POST", "/", "", 405, "", "takes GET, HEAD, not POST"},
		{"get a purge", "GET", "/v1/purge", "", 405, "", "takes POST, not GET"},
		{"delete health", "DELETE", "/readyz", "", 405, "", "takes GET, HEAD"},

		{"explain nothing", "GET", "/v1/explain", "", 400, "", `url: \"\" is not an absolute`},
		{"explain a path", "GET", "/v1/explain?url=/a", "", 400, "", "not an absolute http or https URL"},
		{"explain a bad query", "GET", "/v1/explain?url=%zz", "", 400, "", "query can't be read"},
		{"explain with a typing error", "GET", "/v1/explain?uri=http://h/", "", 400, "", `unknown parameter \"uri\"`},
		{"explain a bad method", "GET", "/v1/explain?url=http://h/&method=G%20T", "", 400, "", "not a method"},
		{"explain a field without colon", "GET", "/v1/explain?url=http://h/&header=Accept", "", 400, "", "want Name:Value"},
		{"explain a field without name", "GET", "/v1/explain?url=http://h/&header=:x", "", 400, "", "want Name:Value"},
		{"explain a field with a line feed", "GET", "/v1/explain?url=http://h/&header=A:x%0aB:y", "", 400, "", "want Name:Value"},
		{"explain too many fields", "GET", "/v1/explain?url=http://h/" + strings.Repeat("&header=A:b", 65), "", 400, "", "more than 64"},

		{"purge with a name twice", "POST", "/v1/purge", `{"urls":["http://h/a"],"tags":[{"a":1,"a":2}],"URLs":["http://h/b"]}`, 400, "", `\"URLs\" is there twice`},
		{"purge what is no UTF-8", "POST", "/v1/purge", "{\"urls\":[\"http://h/\xff\"]}", 400, "", "not UTF-8"},
		{"purge nothing", "POST", "/v1/purge", `{}`, 400, "", "nothing to purge"},
		{"purge without a body", "POST", "/v1/purge", ``, 400, "", "nothing to purge"},
		{"purge no URL", "POST", "/v1/purge", `{"urls":["http://h/","h/a"]}`, 400, "", `urls[1]: \"h/a\" is not an absolute`},
		{"purge a URL with a user", "POST", "/v1/purge", `{"urls":["http://u@h/"]}`, 400, "", "urls[0]"},
		{"purge an empty prefix", "POST", "/v1/purge", `{"prefixes":[""]}`, 400, "", "prefixes[0] is empty"},
		{"purge an empty tag", "POST", "/v1/purge", `{"tags":["a",""]}`, 400, "", "tags[1] is empty"},
		{"purge an empty host", "POST", "/v1/purge", `{"hosts":[""]}`, 400, "", "hosts[0] is empty"},
		{"purge and wait for what", "POST", "/v1/purge", `{"all":true,"wait":"some"}`, 400, "", "want all or none"},
		{"unknown field", "POST", "/v1/purge", `{"url":["http://h/"]}`, 400, "", `unknown field \"url\": want urls, tags, prefixes, hosts, all, soft, reason or wait`},
		{"unknown field of reload", "POST", "/v1/reload", `{"file":"x"}`, 400, "", `unknown field \"file\": want an empty object`},
		{"unknown field of drain", "POST", "/v1/drain", `{"now":true}`, 400, "", `unknown field \"now\": want an empty object`},
		{"unknown field of warm", "POST", "/v1/warm", `{"uris":[]}`, 400, "", `want urls`},
		{"wrong type of list", "POST", "/v1/purge", `{"urls":"http://h/"}`, 400, "", "urls is a JSON string: want an array of strings"},
		{"wrong type of flag", "POST", "/v1/purge", `{"all":1}`, 400, "", "all is a JSON number: want true or false"},
		{"wrong type of element", "POST", "/v1/purge", `{"urls":[1]}`, 400, "", "a JSON number: want a string"},
		{"no JSON", "POST", "/v1/purge", `{"all":tru}`, 400, "", "not JSON"},
		{"JSON cut short", "POST", "/v1/purge", `{"all":`, 400, "", "ends too early"},
		{"two objects", "POST", "/v1/purge", `{"all":true}{}`, 400, "", "something follows"},
		{"a list", "POST", "/v1/purge", `[]`, 400, "", "not a JSON object"},
		{"null", "POST", "/v1/purge", `null`, 400, "", "not a JSON object"},
		{"created nothing", "POST", "/v1/created", `{}`, 400, "", "there is no URL"},
		{"created no URL", "POST", "/v1/created", `{"urls":["ftp://h/"]}`, 400, "", "urls[0]"},
		{"warm nothing", "POST", "/v1/warm", `{"urls":[]}`, 400, "", "there is no URL"},
		{"warm backwards", "POST", "/v1/warm", `{"urls":["http://h/"],"rate":-1}`, 400, "", "rate -1"},
		{"warm no URL", "POST", "/v1/warm", `{"urls":["http://"]}`, 400, "", "urls[0]"},
		{"change nothing", "POST", "/v1/catalog/www", `{"add":[]}`, 400, "", "nothing to change"},
		{"add no path", "POST", "/v1/catalog/www", `{"add":["a"]}`, 400, "", `\"a\" is not a path`},
		{"remove no path", "POST", "/v1/catalog/www", `{"add":["/a"],"remove":[""]}`, 400, "", "is not a path"},
		{"largest body", "POST", "/v1/purge", `{"all":true}` + strings.Repeat(" ", maxRequestBytes-12), 200, "{URLs:[] Tags:[] Prefixes:[] Hosts:[] All:true Soft:false Reason: Wait:all By:192.0.2.1:1234}", ""},
		{"larger body", "POST", "/v1/purge", `{"all":true}` + strings.Repeat(" ", maxRequestBytes-11), 413, "", "more than 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			r := do(New(Config{Node: f.node()}), tt.method, tt.target, tt.body, "Content-Type", "application/json")
			got := text(t, r)
			if r.StatusCode != tt.status {
				t.Errorf("status %d: want %d: %s", r.StatusCode, tt.status, got)
			}
			if f.called != tt.called {
				t.Errorf("the node was told %q: want %q", f.called, tt.called)
			}
			if r.Header.Get("Content-Type") == "application/json" {
				got = compact(t, got)
			}
			if !strings.Contains(got, tt.answer) {
				t.Errorf("answer %s: want %s", got, tt.answer)
			}
			if tt.status >= 400 && !strings.HasPrefix(got, `{"error":"`) {
				t.Errorf("answer %s: want an error", got)
			}
			if tt.status == 405 && r.Header.Get("Allow") == "" {
				t.Error("a 405 without Allow")
			}
		})
	}
}

func TestAdmin_head(t *testing.T) {
	srv := httptest.NewServer(New(Config{Node: (&fake{}).node()}))
	defer srv.Close()
	for _, path := range []string{"/", "/livez", "/v1/cluster"} {
		r, err := http.Head(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != 200 {
			t.Errorf("HEAD %s: %s", path, r.Status)
		}
	}
}

// Every route but health wants the token, whatever else is wrong.
func TestAdmin_token(t *testing.T) {
	const token = "s3cret"
	paths := []string{"GET /", "GET /web/app.js", "GET /metrics", "GET /v1/cluster", "GET /v1/explain", "GET /v1/keys", "GET /v1/tags", "POST /v1/purge",
		"POST /v1/created", "POST /v1/catalog/www", "POST /v1/warm", "POST /v1/drain", "POST /v1/reload", "GET /nothing", "DELETE /v1/purge"}
	for _, tt := range []struct {
		name, field string
		ok          bool
	}{
		{"none", "", false},
		{"the token", "Bearer " + token, true},
		{"scheme in another case", "bearer " + token, true},
		{"two spaces", "Bearer  " + token, true},
		{"password of Basic", "Basic OnMzY3JldA==", true},             // :s3cret
		{"password of Basic with a user", "Basic YTpzM2NyZXQ=", true}, // a:s3cret
		{"user of Basic", "Basic czNjcmV0Og==", false},                // s3cret:
		{"a part", "Bearer s3cre", false},
		{"more", "Bearer s3crett", false},
		{"empty", "Bearer ", false},
		{"another scheme", "Digest " + token, false},
		{"no scheme", token, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range paths {
				f := &fake{}
				method, path, _ := strings.Cut(p, " ")
				var fields []string
				if tt.field != "" {
					fields = []string{"Authorization", tt.field}
				}
				r := do(New(Config{Node: f.node(), Token: token}), method, path, "{}", fields...)
				if (r.StatusCode != 401) != tt.ok {
					t.Errorf("%s: %s", p, r.Status)
				}
				if !tt.ok && (f.called != "" || len(r.Header.Values("WWW-Authenticate")) != 2) {
					t.Errorf("%s: the node was told %q, challenges %q", p, f.called, r.Header.Values("WWW-Authenticate"))
				}
			}
		})
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if r := do(New(Config{Node: (&fake{}).node(), Token: token}), "GET", path, ""); r.StatusCode != 200 {
			t.Errorf("%s wants a token: %s", path, r.Status)
		}
	}
}

func TestAdmin_browsers(t *testing.T) {
	const body = `{"all":true}`
	for _, tt := range []struct {
		name   string
		fields []string
		status int
	}{
		{"a program", []string{"Content-Type", "application/json"}, 200},
		{"with parameters", []string{"Content-Type", "application/json; charset=utf-8"}, 200},
		{"one that says nothing", nil, 200},
		{"curl -d", []string{"Content-Type", "application/x-www-form-urlencoded"}, 200},
		{"a program that sends something else", []string{"Content-Type", "text/xml"}, 415},
		{"a program that sends nonsense", []string{"Content-Type", ";"}, 415},
		{"our page", []string{"Content-Type", "application/json", "Origin", "http://example.com", "Sec-Fetch-Site", "same-origin"}, 200},
		{"a form of our origin", []string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}, 415},
		{"another page's form", []string{"Content-Type", "text/plain", "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{"another page's form, old browser", []string{"Content-Type", "text/plain", "Origin", "http://evil.example"}, 403},
		{"another page's JSON", []string{"Content-Type", "application/json", "Sec-Fetch-Site", "cross-site"}, 403},
		{"another port of this host", []string{"Content-Type", "application/json", "Sec-Fetch-Site", "same-site"}, 403},
		{"a page without origin", []string{"Content-Type", "application/json", "Origin", "null"}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			r := do(New(Config{Node: f.node()}), "POST", "/v1/purge", body, tt.fields...)
			if r.StatusCode != tt.status || (f.called != "") != (tt.status == 200) {
				t.Errorf("%s, the node was told %q: want %d", r.Status, f.called, tt.status)
			}
		})
	}
}

func TestAdmin_errorsOfTheNode(t *testing.T) {
	routes := []struct{ method, target, body string }{
		{"GET", "/v1/explain?url=http://h/", ""},
		{"POST", "/v1/purge", `{"all":true}`},
		{"POST", "/v1/created", `{"urls":["http://h/"]}`},
		{"POST", "/v1/catalog/www", `{"add":["/a"]}`},
		{"POST", "/v1/warm", `{"urls":["http://h/"]}`},
		{"POST", "/v1/drain", ""},
		{"POST", "/v1/reload", ""},
	}
	for _, tt := range []struct {
		name   string
		err    error
		status int
		text   string
	}{
		{"for the client", &Error{Status: 404, Text: "no such site"}, 404, `{"error":"no such site"}`},
		{"wrapped", fmt.Errorf("x: %w", &Error{Status: 503, Text: "draining"}), 503, `{"error":"draining"}`},
		{"of no use as a status", &Error{Status: 200, Text: "x"}, 500, `{"error":"internal error, see the log of this node"}`},
		{"inside", errors.New("secret of the house"), 500, `{"error":"internal error, see the log of this node"}`},
	} {
		for _, rt := range routes {
			var log bytes.Buffer
			f := &fake{err: tt.err}
			r := do(New(Config{Node: f.node(), Logger: slog.New(slog.NewTextHandler(&log, nil))}), rt.method, rt.target, rt.body)
			if got := compact(t, text(t, r)); r.StatusCode != tt.status || got != tt.text {
				t.Errorf("%s, %s: %s %s: want %d %s", tt.name, rt.target, r.Status, got, tt.status, tt.text)
			}
			if logged := strings.Contains(log.String(), tt.err.Error()); logged != (tt.status == 500) {
				t.Errorf("%s: the log has %q", tt.name, log.String())
			}
		}
	}
}

func TestAdmin_notReady(t *testing.T) {
	f := &fake{err: errors.New("draining")}
	h := New(Config{Node: f.node()})
	r := do(h, "GET", "/readyz", "")
	if got := text(t, r); r.StatusCode != 503 || got != "draining\n" {
		t.Errorf("%s %q", r.Status, got)
	}
	if r := do(h, "GET", "/livez", ""); r.StatusCode != 200 {
		t.Errorf("a node that drains is not alive: %s", r.Status)
	}
}

func TestAdmin_withoutFunctions(t *testing.T) {
	h := New(Config{})
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/livez", 200}, {"GET", "/readyz", 200}, {"GET", "/metrics", 404}, {"GET", "/v1/cluster", 501}, {"GET", "/v1/explain", 501}, {"GET", "/v1/keys", 501}, {"GET", "/v1/tags", 501},
		{"POST", "/v1/purge", 501}, {"POST", "/v1/created", 501}, {"POST", "/v1/catalog/www", 501}, {"POST", "/v1/warm", 501}, {"POST", "/v1/drain", 501}, {"POST", "/v1/reload", 501},
	} {
		if r := do(h, tt.method, tt.path, ""); r.StatusCode != tt.status {
			t.Errorf("%s: %s, want %d", tt.path, r.Status, tt.status)
		}
	}
}

func TestAdmin_answerThatIsNoJSON(t *testing.T) {
	zero := 0.0
	h := New(Config{Node: Node{Cluster: func() Cluster { return Cluster{HitRatio: zero / zero} }}})
	r := do(h, "GET", "/v1/cluster", "")
	if got := text(t, r); r.StatusCode != 500 || !strings.HasPrefix(got, `{"error":`) {
		t.Errorf("%s %s", r.Status, got)
	}
}

// The page loads nothing from elsewhere, and has nothing inline that its
// policy would refuse.
func TestPage_isSelfContained(t *testing.T) {
	h := New(Config{Node: new(fake).node()})
	for _, path := range pagePaths(t) {
		r := do(h, "GET", path, "")
		body := text(t, r)
		if p := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none';") || strings.Contains(p, "unsafe") || strings.Contains(p, "*") {
			t.Errorf("%s: policy %q", path, p)
		}
		if m := regexp.MustCompile(`(?i)(src|href)=["']?(https?:|//)|@import|url\(|\son[a-z]+=|\sstyle=|<style|innerHTML|insertAdjacentHTML|eval\(`).FindString(body); m != "" {
			t.Errorf("%s: has %q", path, m)
		}
		for _, m := range regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(body, -1) {
			if r := do(h, "GET", m[1], ""); r.StatusCode == 404 {
				t.Errorf("%s refers to %s, which is not there", path, m[1])
			}
		}
	}
}

// pagePaths are where the page and its files are.
func pagePaths(t *testing.T) []string {
	t.Helper()
	files, err := web.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/"}
	for _, f := range files {
		if f.Name() != "index.html" {
			paths = append(paths, "/web/"+f.Name())
		}
	}
	return paths
}

// script is all of the page's scripts.
func script(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, path := range pagePaths(t) {
		if name, ok := strings.CutPrefix(path, "/"); ok && strings.HasSuffix(name, ".js") {
			b, err := web.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
	}
	return all
}

// Every member that the script reads exists in the answers, by its JSON name.
func TestPage_readsWhatThereIs(t *testing.T) {
	names := map[string]bool{}
	var collect func(t reflect.Type)
	collect = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice, reflect.Pointer:
			collect(typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				names[name] = true
				collect(typ.Field(i).Type)
			}
		}
	}
	collect(reflect.TypeFor[Cluster]())
	collect(reflect.TypeFor[Explanation]())
	collect(reflect.TypeFor[History]())
	script := script(t)
	found := 0
	// Names with an underscore are ours alone: the browser's have none.
	for _, m := range regexp.MustCompile(`\.([a-z]+(?:_[a-z]+)+)\b`).FindAllSubmatch(script, -1) {
		found++
		if name := string(m[1]); !names[name] {
			t.Errorf("the script reads %s, which no answer has", name)
		}
	}
	if found < 20 {
		t.Errorf("only %d names were found in the script", found)
	}
	// And every id that it looks for is in the page.
	index, err := web.ReadFile("web/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?:byId|setText)\("([^"]+)"`).FindAllSubmatch(script, -1) {
		if !bytes.Contains(index, []byte(`id="`+string(m[1])+`"`)) {
			t.Errorf("the script looks for the id %s, which the page lacks", m[1])
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"all":true}`, `{"urls":["http://h/"]}`, `{"tags":[""]}`, `{`, `[]`, `{"wait":"x"}`, `{"all":true}x`} {
		f.Add(s, "application/json")
	}
	f.Fuzz(func(t *testing.T, body, contentType string) {
		var told *PurgeRequest
		h := New(Config{Node: Node{Purge: func(_ context.Context, req PurgeRequest, _ *PurgeWatch) (PurgeResult, error) {
			told = &req
			return PurgeResult{}, nil
		}}})
		r := do(h, "POST", "/v1/purge", body, "Content-Type", contentType)
		if (told != nil) != (r.StatusCode == 200) {
			t.Fatalf("%s, the node was told %+v", r.Status, told)
		}
		if told != nil && !told.All && len(told.URLs)+len(told.Tags)+len(told.Prefixes)+len(told.Hosts) == 0 {
			t.Fatalf("an empty purge went through")
		}
	})
}

// A warm that is to show its progress answers line by line; one that fails
// before the first line has a status.
func TestWarm_progress(t *testing.T) {
	f := &fake{}
	h := New(Config{Node: f.node()})
	const body = `{"urls":["http://h/a"],"progress":true}`
	resp := do(h, "POST", "/v1/warm", body)
	text, _ := io.ReadAll(resp.Body)
	want := `{"fetched":0,"skipped":1,"failed":0}` + "\n" + `{"fetched":1,"skipped":0,"failed":0}` + "\n"
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" || string(text) != want {
		t.Errorf("%d %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	f.err = &Error{Status: 413, Text: "split it"}
	resp = do(h, "POST", "/v1/warm", body)
	if text, _ = io.ReadAll(resp.Body); resp.StatusCode != 413 || !strings.Contains(string(text), "split it") {
		t.Errorf("%d: %s", resp.StatusCode, text)
	}
}

// Who accepts lines of JSON sees a purge go on; an error before the first line
// has a status.
func TestPurge_progress(t *testing.T) {
	res := PurgeResult{ID: "p1", Members: 2, Acked: 1, Missing: []string{"b"}, Nodes: []PurgeNode{{Name: "b", State: "waiting"}}}
	var refused error
	goesOn := func(watch *PurgeWatch) (PurgeResult, error) {
		if refused != nil {
			return PurgeResult{}, refused
		}
		if watch != nil {
			watch.Begun(res)
			watch.Changed(PurgeNode{Name: "b", State: "applied", After: 0.25})
		}
		return PurgeResult{ID: "p1", Members: 2, Acked: 2, Nodes: []PurgeNode{{Name: "b", State: "applied", After: 0.25}}}, nil
	}
	h := New(Config{Node: Node{
		Purge: func(_ context.Context, _ PurgeRequest, watch *PurgeWatch) (PurgeResult, error) { return goesOn(watch) },
		PurgeProgress: func(_ context.Context, id string, watch *PurgeWatch) (PurgeResult, error) {
			if id != "p1" {
				t.Errorf("asked for %s", id)
			}
			return goesOn(watch)
		},
	}})
	const lines = `{"id":"p1","members":2,"acked":1,"missing":["b"],"nodes":[{"name":"b","state":"waiting"}]}
{"name":"b","state":"applied","after":0.25}
{"id":"p1","members":2,"acked":2,"missing":[],"nodes":[{"name":"b","state":"applied","after":0.25}]}
`
	for _, ask := range [][2]string{{"POST", "/v1/purge"}, {"GET", "/v1/purge/p1"}} {
		body := ""
		if ask[0] == "POST" {
			body = `{"all":true}`
		}
		for accept, want := range map[string]bool{
			"application/x-ndjson": true, "application/json;q=0.5, Application/X-NDJSON; q=1": true,
			"": false, "application/json": false, "*/*": false, "application/*": false, "application/x-ndjson;q=0": false, "application/x-ndjson2": false, ";": false,
		} {
			resp := do(h, ask[0], ask[1], body, "Accept", accept)
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 || (string(text) == lines) != want || (resp.Header.Get("Content-Type") == "application/x-ndjson") != want {
				t.Errorf("%s, Accept %q: %s %s\n%s", ask, accept, resp.Status, resp.Header.Get("Content-Type"), text)
			}
		}
		refused = &Error{Status: 429, Text: "too many"}
		resp := do(h, ask[0], ask[1], body, "Accept", "application/x-ndjson")
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 429 || !strings.Contains(string(text), "too many") {
			t.Errorf("%s: %s %s", ask, resp.Status, text)
		}
		refused = nil
	}
}
