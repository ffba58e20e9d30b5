package negative

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newCatalog(t testing.TB, cfg CatalogConfig) *Catalog {
	t.Helper()
	c, err := NewCatalog(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func zip(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, s)
	w.Close()
	return b.String()
}

func TestCatalog_configuration(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  CatalogConfig
		want string
	}{
		{"nothing at all is off", CatalogConfig{}, ""},
		{"a file", CatalogConfig{Mode: ModeEnforce, File: "f"}, ""},
		{"unknown mode", CatalogConfig{Mode: "on"}, `mode "on"`},
		{"two sources", CatalogConfig{File: "f", URL: "http://h/"}, "want one of them"},
		{"not a URL", CatalogConfig{URL: "ftp://h/"}, "not an http or https URL"},
		{"rate out of range", CatalogConfig{Rate: 0.5}, "rate 0.5"},
		{"all complaints at once", CatalogConfig{Mode: "on", Refresh: -1}, "refresh -1ns"},
		{"paths", CatalogConfig{MaxPaths: -1}, "at most -1 paths"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewCatalog(tt.cfg)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v: want %q", err, tt.want)
			}
		})
	}
}

func TestCatalog_loads(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         string // space-separated paths
	}{
		{"plain", "/a\n/b\n", "/a /b"},
		{"empty lines, comments, CR LF", "# all pages\r\n\r\n/a\r\n/b\r\n", "/a /b"},
		{"JSON lines", `{"path":"/a","size":3}` + "\n" + `{"path":"/\u0062"}` + "\n", "/a /b"},
		{"JSON as it is mostly written", `{"path":"/a"}` + "\n" + `{ "n": 1, "path": "/b" }` + "\n", "/a /b"},
		{"JSON with escapes", `{"path":"\/a"}` + "\n" + `{"path":"/é\""}` + "\n", "/a /é\""},
		{"mixed", "/a\n{\"path\":\"/b\"}\n", "/a /b"},
		{"gzip", zip("/a\n/b\n"), "/a /b"},
		{"gzip proves its end", zip("/a\n/b"), "/a /b"},
		{"gzip of two members", zip("/a\n") + zip("/b\n"), "/a /b"},
		{"a query is no part of a path", "/a?x=1\n{\"path\":\"/b#top\"}\n", "/a /b"},
		{"the root", "/\n", "/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCatalog(t, CatalogConfig{})
			if err := c.Load(strings.NewReader(tt.source), time.Now()); err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(tt.want)
			for _, p := range want {
				if !c.Contains(p) {
					t.Errorf("%s is not in it", p)
				}
			}
			if c.Contains("/a/b") || c.Contains("") {
				t.Error("what is not in it is in it")
			}
			if st := c.Stats(time.Now()); st.Paths != len(want) || st.Loads != 1 {
				t.Errorf("%+v: want %d paths", st, len(want))
			}
		})
	}
}

func TestCatalog_keepsOldOnBadInput(t *testing.T) {
	whole := zip(strings.Repeat("/a/long/enough/path\n", 1000) + "/last\n")
	spoiled := []byte(whole)
	spoiled[len(spoiled)-6] ^= 1 // in the checksum
	for _, tt := range []struct {
		name, source, want string
	}{
		{"empty", "", "no path"},
		{"nothing but comments", "# none\n\n", "no path"},
		{"not paths", "/a\nhttp://h/b\n", "line 2: \"http://h/b\" is not a path"},
		{"a page of HTML", "<!doctype html>\n<p>Sorry\n", "line 1"},
		{"no line feed at the end", "/a\n/b/cut/sho", "cut short"},
		{"a long line", "/" + strings.Repeat("a", maxPathLine) + "\n", "line 1 is longer"},
		{"a line longer than the buffer", "/" + strings.Repeat("a", 1<<20) + "\n", "line 1 is longer"},
		{"bad JSON", "/a\n{\"path\":\n", "line 2"},
		{"JSON without path", "{\"url\":\"/a\"}\n", `no "path"`},
		{"JSON path of another type", "{\"path\":7}\n", "line 1"},
		{"JSON path that is none", "{\"path\":\"a\"}\n", "not a path"},
		{"gzip cut short", whole[:len(whole)/2], "unexpected EOF"},
		{"gzip without its trailer", whole[:len(whole)-8], "unexpected EOF"},
		{"gzip with a wrong checksum", string(spoiled), "checksum"},
		{"gzip of garbage", "\x1f\x8bgarbage", "gzip"},
		{"too many paths", strings.Repeat("/a\n", 2001), "more than 2000 paths"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCatalog(t, CatalogConfig{MaxPaths: 2000})
			if err := c.Load(strings.NewReader("/old\n"), time.Now()); err != nil {
				t.Fatal(err)
			}
			err := c.Load(strings.NewReader(tt.source), time.Now())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v: want %q", err, tt.want)
			}
			if st := c.Stats(time.Now()); !c.Contains("/old") || c.Contains("/a") || st.Failures != 1 || st.Loads != 1 {
				t.Errorf("the old catalog did not stay: %+v", st)
			}
		})
	}
}

func TestCatalog_rate(t *testing.T) {
	for _, tt := range []struct {
		rate float64
		// The keys fill the first of 2^crowd equal parts of a set that is so
		// much larger: as if it were full of as many more keys.
		crowd int
	}{{0.0001, 0}, {0.001, 0}, {0.02, 0}, {0.001, 6}} {
		set, err := newPathSet(100_000<<tt.crowd, tt.rate)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(7, 7))
		for range 100_000 {
			set.fill(rng.Uint64() >> tt.crowd)
		}
		const n = 1_000_000
		found := 0
		for range n {
			if set.has(rng.Uint64() >> tt.crowd) {
				found++
			}
		}
		// Five standard deviations.
		if limit := n*tt.rate + 5*math.Sqrt(n*tt.rate); float64(found) > limit || float64(found) < n*tt.rate/2 {
			t.Errorf("rate %g: %d of %d absent keys were found: want %.0f, at most %.0f", tt.rate, found, n, n*tt.rate, limit)
		}
	}
	set, _ := newPathSet(1_000_000, 0.001)
	if b := float64(len(set.words)) * 64 / 1e6; b < 15.5 || b > 15.9 {
		t.Errorf("%.2f bits a key at 0.1 %%: want 15.7", b)
	}
}

func TestCatalog_normalizes(t *testing.T) {
	c := newCatalog(t, CatalogConfig{Normalize: strings.ToLower})
	now := time.Now()
	c.Load(strings.NewReader("/A\n/B\n"), now)
	c.Add([]string{"/C"}, now)
	c.Remove([]string{"/B"}, now)
	if !c.Contains("/a") || c.Contains("/b") || !c.Contains("/c") || c.Contains("/A") {
		t.Error("paths are not compared in their normal form")
	}
}

func TestCatalog_modes(t *testing.T) {
	for _, tt := range []struct {
		mode Mode
		want Verdict
	}{
		{ModeOff, Verdict{}},
		{ModeObserve, Verdict{Absent: true, Report: true}},
		{ModeEnforce, Verdict{Absent: true, Refuse: true}},
	} {
		c := newCatalog(t, CatalogConfig{Mode: tt.mode})
		now := time.Now()
		if v := c.Check("/absent", now); v != (Verdict{}) {
			t.Errorf("%s before the first load: %+v", tt.mode, v)
		}
		c.Load(strings.NewReader("/a\n"), now)
		if v := c.Check("/a", now); v != (Verdict{}) {
			t.Errorf("%s of what exists: %+v", tt.mode, v)
		}
		c.Check("/the first one is a sample", now)
		if v := c.Check("/absent", now); v != tt.want {
			t.Errorf("%s of what is absent: %+v, want %+v", tt.mode, v, tt.want)
		}
	}
}

func TestCatalog_samples(t *testing.T) {
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce})
	now := time.Now()
	c.Load(strings.NewReader("/a\n"), now)
	n := 0
	for i := range 10 * sampleEvery {
		v := c.Check(fmt.Sprint("/absent/", i), now)
		if v.Report {
			n++
		}
		if v.Report == v.Refuse {
			t.Fatalf("%+v", v)
		}
	}
	st := c.Stats(now)
	if n != 10 || st.WouldRefuse != 10*sampleEvery || st.Refused != 10*sampleEvery-10 {
		t.Errorf("%d samples, %+v", n, st)
	}
}

func TestCatalog_contradicted(t *testing.T) {
	var log bytes.Buffer
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce, Site: "www", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	now := time.Now()
	c.Load(strings.NewReader("/a\n"), now)
	c.Check("/lie", now)
	c.Observed("/absent", false, now)
	if st := c.Stats(now); st.Effective != ModeEnforce || st.Wrong != 0 {
		t.Fatalf("after an absence that was right: %+v", st)
	}
	c.Observed("/lie", true, now)
	c.Observed("/lie", true, now) // exists by now
	if st := c.Stats(now); st.Effective != ModeObserve || st.Reason != "contradicted" || st.Wrong != 1 {
		t.Errorf("after a contradiction: %+v", st)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "/lie") {
		t.Errorf("it was not said loudly: %s", log.String())
	}
	if v := c.Check("/absent", now); v.Refuse || !v.Report {
		t.Errorf("it still refuses: %+v", v)
	}
	if !c.Contains("/lie") {
		t.Error("it still calls absent what exists")
	}
	c.Load(strings.NewReader("/a\n/lie\n"), now.Add(time.Second))
	if st := c.Stats(now); st.Effective != ModeEnforce {
		t.Errorf("after a newer catalog: %+v", st)
	}
}

func TestCatalog_incomplete(t *testing.T) {
	var log bytes.Buffer
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	now := time.Now()
	c.Load(strings.NewReader("/a\n"), now)
	c.Check("/sample", now)
	c.Doubt()
	if v := c.Check("/absent", now); v.Refuse || !v.Report {
		t.Errorf("it still refuses: %+v", v)
	}
	if st := c.Stats(now); st.Effective != ModeObserve || st.Reason != "incomplete" || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%+v, log %s", st, &log)
	}
	c.Load(strings.NewReader("/a\n"), now)
	if v := c.Check("/absent", now); !v.Refuse {
		t.Errorf("after a load: %+v", v)
	}
}

func TestCatalog_stale(t *testing.T) {
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce, Refresh: time.Second})
	now := time.Now()
	c.Load(strings.NewReader("/a\n"), now)
	c.Check("/sample", now)
	if v := c.Check("/absent", now.Add(10*time.Second)); !v.Refuse {
		t.Errorf("ten times the refresh: %+v", v)
	}
	later := now.Add(10*time.Second + 1)
	if v := c.Check("/absent", later); v.Refuse {
		t.Errorf("after that: %+v", v)
	}
	if st := c.Stats(later); st.Effective != ModeObserve || st.Reason != "stale" || st.Age != 10*time.Second+1 {
		t.Errorf("%+v", st)
	}
}

func TestCatalog_changes(t *testing.T) {
	c := newCatalog(t, CatalogConfig{})
	at := func(d time.Duration) time.Time { return c.base.Add(d) }
	load := func(d time.Duration) {
		t.Helper()
		if err := c.Load(strings.NewReader("/a\n/b\n"), at(d)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(paths string) {
		t.Helper()
		got := ""
		for _, p := range []string{"/a", "/b", "/c", "/d"} {
			if c.Contains(p) {
				got += p
			}
		}
		if got != paths {
			t.Errorf("contains %s: want %s", got, paths)
		}
	}
	c.Add([]string{"/c"}, at(0)) // before the first load
	load(1)
	want("/a/b/c")
	c.Add([]string{"/d"}, at(time.Minute))
	c.Remove([]string{"/a", "/c"}, at(time.Minute))
	want("/b/d")
	c.Add([]string{"/a"}, at(time.Minute))
	want("/a/b/d")
	c.Remove([]string{"/b"}, at(2*time.Minute))
	load(2 * time.Minute) // begun at the moment of the removal, which may be newer
	want("/a/d")
	load(3 * time.Minute)
	want("/a/b/d")
	load(2 * time.Hour) // now the source should have had the additions
	want("/a/b")
}

// Members learn of changes in any order, and agree.
func TestCatalog_laterChangeHolds(t *testing.T) {
	a, b := newCatalog(t, CatalogConfig{}), newCatalog(t, CatalogConfig{})
	a.Load(strings.NewReader("/old\n"), a.base)
	b.Load(strings.NewReader("/old\n"), b.base)
	at := func(ms int) time.Time { return time.UnixMilli(a.base.UnixMilli() + int64(ms)) }
	changes := []func(*Catalog){
		func(c *Catalog) { c.Change([]string{"/x"}, nil, at(1)) },
		func(c *Catalog) { c.Change(nil, []string{"/x", "/old"}, at(2)) },
		func(c *Catalog) { c.Change([]string{"/old", "/y"}, nil, at(3)) },
		func(c *Catalog) { c.Change([]string{"/z"}, []string{"/z", "/y"}, at(4)) },
	}
	for i := range changes {
		changes[i](a)
		changes[len(changes)-1-i](b)
	}
	for path, want := range map[string]bool{"/x": false, "/old": true, "/y": false, "/z": false} {
		if a.Contains(path) != want || b.Contains(path) != want {
			t.Errorf("%s: in order %t, in reverse %t, want %t", path, a.Contains(path), b.Contains(path), want)
		}
	}
}

// A removal outlives a source that was written before it, and not one that
// was written after it.
func TestCatalog_removalOutlivesAnOlderSource(t *testing.T) {
	c := newCatalog(t, CatalogConfig{})
	at := func(d time.Duration) time.Time { return c.base.Add(d) }
	load := func(began, modified time.Duration, want bool) {
		t.Helper()
		if err := c.load(strings.NewReader("/a\n"), false, at(began), at(modified)); err != nil {
			t.Fatal(err)
		}
		if c.Contains("/a") != want {
			t.Errorf("a source written %v, read %v: exists %t, want %t", modified, began, !want, want)
		}
	}
	load(0, 0, true)
	c.Remove([]string{"/a"}, at(time.Minute))
	load(2*time.Minute, 50*time.Second, false)
	load(3*time.Minute, 2*time.Minute, true)
	c.Remove([]string{"/a"}, at(4*time.Minute))
	load(4*time.Minute+overlayAge+1, 0, true) // it can't be held for ever
}

func TestCatalog_refusesToShrink(t *testing.T) {
	var log bytes.Buffer
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "/%d\n", i)
		}
		return b.String()
	}
	now := c.base
	for _, step := range []struct {
		paths int
		ok    bool
	}{{99, true}, {3, true}, {1000, true}, {499, false}, {1, false}, {500, true}, {2000, true}} {
		err := c.Load(strings.NewReader(list(step.paths)), now)
		if (err == nil) != step.ok {
			t.Errorf("%d paths: %v", step.paths, err)
		}
	}
	if st := c.Stats(now); st.Shrunk != 2 || st.Failures != 2 || st.Paths != 2000 {
		t.Errorf("%+v", st)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("it was not said loudly: %s", &log)
	}
}

func TestCatalog_overlayIsBounded(t *testing.T) {
	c := newCatalog(t, CatalogConfig{})
	now := c.base
	c.Load(strings.NewReader("/a\n"), now)
	many := make([]string, maxOverlay)
	for i := range many {
		many[i] = fmt.Sprint("/", i)
	}
	for _, change := range []func([]string, time.Time) error{c.Add, c.Remove} {
		if err := change(many, now); err != nil {
			t.Fatal(err)
		}
		if err := change([]string{"/one/more"}, now); !errors.Is(err, ErrOverlayFull) {
			t.Errorf("error %v: want the overlay full", err)
		}
		if err := change(many[:3], now); err != nil {
			t.Errorf("what is there already: %v", err)
		}
	}
	c.Load(strings.NewReader("/a\n"), now.Add(2*overlayAge))
	if err := c.Add(many, now); err != nil {
		t.Errorf("after a load: %v", err)
	}
}

func TestCatalog_concurrently(t *testing.T) {
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce})
	c.Load(strings.NewReader("/always\n"), c.base)
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				if !c.Contains("/always") {
					t.Error("a path was absent while the catalog was swapped")
					return
				}
				c.Check("/absent", c.base)
				c.Stats(c.base)
			}
		})
	}
	for i := range 50 {
		now := c.base.Add(time.Duration(i))
		p := fmt.Sprint("/", i)
		c.Add([]string{p}, now)
		c.Observed(p+"x", true, now)
		c.Remove([]string{p}, now)
		if err := c.Load(strings.NewReader("/always\n"), now); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestCatalog_file(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "paths")
	c := newCatalog(t, CatalogConfig{Mode: ModeEnforce, File: name})
	var src source
	refresh := func(want string) {
		t.Helper()
		err := c.refresh(t.Context(), &src)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
	write := func(s string, mtime int64) {
		t.Helper()
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Time{}, time.Unix(mtime, 0)); err != nil {
			t.Fatal(err)
		}
	}
	refresh("no such file")
	write("/a\n", 1000)
	refresh("")
	refresh("")
	if st := c.Stats(time.Now()); st.Loads != 1 {
		t.Errorf("an unchanged file was loaded %d times", st.Loads)
	}
	write("/b\n", 1001)
	refresh("")
	write("/c", 1002)
	refresh("cut short")
	if !c.Contains("/b") || c.Contains("/a") || c.Contains("/c") {
		t.Error("not the last good one is in place")
	}
	c.cfg.File = dir
	refresh("not a regular file")

	// A file that changes while it is read.
	c.cfg.File = name
	write("/d\n", 1003)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.Load(&stableFile{t.Context(), f, time.Unix(1003, 0), 7}, time.Now()); err == nil || !strings.Contains(err.Error(), "changed while") {
		t.Errorf("error %v: want that it changed", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Load(&stableFile{ctx, f, time.Time{}, 0}, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v: want canceled", err)
	}
}

// pipes is a listener of connections in memory, for a server in a bubble.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestCatalog_url(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		var handler atomic.Value
		serve := func(h http.HandlerFunc) { handler.Store(h) }
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler.Load().(http.HandlerFunc)(w, r)
		})}
		go srv.Serve(ln)
		defer srv.Close()
		tr := &http.Transport{DialContext: ln.dial, DisableKeepAlives: true}
		var log bytes.Buffer
		c := newCatalog(t, CatalogConfig{
			Mode: ModeEnforce, URL: "http://catalog/", Refresh: time.Minute,
			Client: &http.Client{Transport: tr}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.Run(ctx); close(ended) }()
		state := func() string {
			st := c.Stats(time.Now())
			return fmt.Sprintf("%s %s loads=%d failures=%d paths=%d", st.Effective, st.Reason, st.Loads, st.Failures, st.Paths)
		}
		step := func(name string, h http.HandlerFunc, wait time.Duration, want string) {
			t.Helper()
			serve(h)
			time.Sleep(wait)
			synctest.Wait()
			if got := state(); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		fail := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }
		step("the source fails", fail, 0, "observe loading loads=0 failures=1 paths=0")
		asked := ""
		good := func(w http.ResponseWriter, r *http.Request) {
			asked = r.Header.Get("If-None-Match")
			if asked == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			w.Header().Set("ETag", `"1"`)
			io.WriteString(w, "/a\n/b") // net/http adds its length
		}
		step("it recovers, and is asked again soon", good, 6*time.Second, "enforce  loads=1 failures=1 paths=2")
		step("it has not changed", good, 70*time.Second, "enforce  loads=1 failures=1 paths=2")
		if asked != `"1"` {
			t.Errorf("it was asked with the ETag %q", asked)
		}
		if age := c.Stats(time.Now()).Age; age > time.Minute {
			t.Errorf("a 304 does not confirm it: age %v", age)
		}
		step("the answer is cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "/c\n")
		}, 67*time.Second, "enforce  loads=1 failures=2 paths=2")
		step("there is a newer one, in gzip", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("ETag", `"2"`)
			io.WriteString(w, zip("/a\n/b\n/c"))
		}, 67*time.Second, "enforce  loads=2 failures=2 paths=3")
		serve(fail)
		time.Sleep(9 * time.Minute)
		if st := c.Stats(time.Now()); st.Effective != ModeEnforce || st.Failures < 8 {
			t.Errorf("the source fails for nine minutes: %+v", st)
		}
		time.Sleep(3 * time.Minute)
		if st := c.Stats(time.Now()); st.Effective != ModeObserve || st.Reason != "stale" || st.Paths != 3 {
			t.Errorf("it fails for long: %+v", st)
		}
		// A source that hangs does not keep Run from ending.
		hang := make(chan struct{})
		serve(func(http.ResponseWriter, *http.Request) { <-hang })
		time.Sleep(2 * time.Minute)
		cancel()
		<-ended
		close(hang)
		if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "reason=stale") {
			t.Errorf("that it only observes was not said loudly: %s", log.String())
		}
	})
}

func TestCatalog_runEndsWithoutSource(t *testing.T) {
	newCatalog(t, CatalogConfig{Mode: ModeEnforce}).Run(t.Context())
	newCatalog(t, CatalogConfig{File: "f"}).Run(t.Context())
}

func FuzzReadPaths(f *testing.F) {
	for _, s := range []string{"/a\n", "# c\n\n/a?x\n", `{"path":"/a"}` + "\n", zip("/a\n/b"), "\x1f\x8b", "{}", "/a"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		// A stream of the fuzzer's, not a bomb: what it unpacks to is bounded.
		n := 0
		err := readPaths(bytes.NewReader(data), whole, func(path []byte) error {
			if len(path) == 0 || path[0] != '/' || bytes.ContainsAny(path, "?#") || len(path) > maxPathLine {
				t.Fatalf("%q is not a path", path)
			}
			if n++; n > 10_000 {
				return io.ErrShortBuffer
			}
			return nil
		})
		if plain := !bytes.HasPrefix(data, []byte{0x1f, 0x8b}); err == nil && plain && !whole && len(data) > 0 && data[len(data)-1] != '\n' {
			t.Fatal("a list that may be cut short was taken")
		}
	})
}

// The short way through an object agrees with the decoder.
func FuzzPathOfObject(f *testing.F) {
	for _, s := range []string{`{"path":"/a"}`, `{"path":"/a","path":"/b"}`, `{"path":"/a\"}`, `{"path":"/é"}`, `{"path":""}`, "{\"path\":\"\x7f\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := pathOfObject([]byte(s))
		var o struct{ Path *string }
		if jerr := json.Unmarshal([]byte(s), &o); (err == nil) != (jerr == nil && o.Path != nil) {
			t.Fatalf("%q: %v, the decoder says %v", s, err, jerr)
		}
		if err == nil && string(got) != *o.Path {
			t.Fatalf("%q: %q, the decoder says %q", s, got, *o.Path)
		}
	})
}
