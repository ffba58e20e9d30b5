package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// A testOrigin answers every path with its own text, "/slow" when it is let
// go, and counts.
type testOrigin struct {
	*httptest.Server
	requests atomic.Int64
	slow     chan struct{} // a value lets one "/slow" go
	asked    chan struct{} // a value for each "/slow" that waits
}

func startOrigin(t *testing.T) *testOrigin {
	t.Helper()
	o := &testOrigin{slow: make(chan struct{}), asked: make(chan struct{}, 16)}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.requests.Add(1)
		w.Header().Set("Cache-Control", "max-age=600")
		if r.URL.Path == "/slow" {
			o.asked <- struct{}{}
			select {
			case <-o.slow:
			case <-r.Context().Done():
				return
			}
		}
		io.WriteString(w, "this is "+r.URL.Path)
	}))
	t.Cleanup(o.Close)
	return o
}

func TestRun_servesAndStops(t *testing.T) {
	origin := startOrigin(t)
	c := startNode(t, alone(origin.URL)...)
	if c.ready.Event != "ready" || c.ready.Name != "a" || c.ready.PID != c.cmd.Process.Pid {
		t.Errorf("the ready line says %+v", c.ready)
	}
	for name, addr := range map[string]string{"client": c.ready.Client, "peer": c.ready.Peer, "gossip": c.ready.Gossip, "admin": c.ready.Admin} {
		if host, port, err := net.SplitHostPort(addr); err != nil || host != "127.0.0.1" || port == "0" {
			t.Errorf("the ready line's %s is %q", name, addr)
		}
	}

	url := "http://" + c.ready.Client + "/x"
	first, second := get(t, url), get(t, url)
	if first.status != 200 || first.body != "this is /x" || first.header.Get("Cache-Status") != "a; fwd=uri-miss; fwd-status=200; stored; detail=origin" {
		t.Errorf("the first answer: %+v", first)
	}
	if second.body != first.body || !strings.HasPrefix(second.header.Get("Cache-Status"), "a; hit; ttl=") {
		t.Errorf("the second answer: %+v", second)
	}
	if n := origin.requests.Load(); n != 1 {
		t.Errorf("the origin saw %d requests", n)
	}
	// A request is counted when it is over, which its client may see earlier.
	var m map[string]string
	eventually(t, func() error {
		m = c.metrics()
		for sample, want := range map[string]string{
			`edged_requests_total{result="hit",site="default"}`:  "1",
			`edged_requests_total{result="miss",site="default"}`: "1",
			`edged_bloom_unknown_total{partition="default"}`:     "1",
			`edged_bloom_negative_total{partition="default"}`:    "0",
			`edged_members{state="alive"}`:                       "1",
			`edged_config_last_reload_successful`:                "1",
		} {
			if m[sample] != want {
				return fmt.Errorf("%s is %q; want %q", sample, m[sample], want)
			}
		}
		return nil
	})
	if limit, err := strconv.ParseFloat(m["go_gc_gomemlimit_bytes"], 64); err != nil || limit < 512<<20 || limit > 2<<30 {
		t.Errorf("the memory limit is %q; want what 512MiB of cache need", m["go_gc_gomemlimit_bytes"])
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if r := get(t, "http://"+c.ready.Admin+path); r.status != 200 {
			t.Errorf("%s: %+v", path, r)
		}
	}

	c.signal(syscall.SIGTERM)
	if code := c.wait(); code != exitOK {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if out := c.stdout.String(); strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "}\n") {
		t.Errorf("standard output has more than the ready line: %q", out)
	}
}

// TestRun_showsEveryMetric holds a new node against the contract: each family
// is described, and what has no label that only others bring is there at once.
func TestRun_showsEveryMetric(t *testing.T) {
	c := startNode(t, alone("http://127.0.0.1:1")...)
	text := get(t, "http://"+c.ready.Admin+"/metrics").body
	for name, labels := range contractMetrics(t) {
		var perPeer bool
		for _, l := range labels {
			perPeer = perPeer || l == "peer" // a node alone has none
		}
		if perPeer {
			continue
		}
		sample := regexp.MustCompile(`(?m)^` + name + `(_count|_bucket)?(\{[^}]*\})? `).FindString(text)
		if sample == "" {
			t.Errorf("no sample of %s", name)
			continue
		}
		for _, l := range labels {
			if !strings.Contains(sample, l+"=\"") {
				t.Errorf("%s lacks the label %s", sample, l)
			}
		}
	}
	for _, name := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		if n := name[1]; !strings.HasPrefix(n, "edged_") && !strings.HasPrefix(n, "go_") && !strings.HasPrefix(n, "process_") && !strings.HasPrefix(n, "promhttp_") {
			t.Errorf("metric %s has a foreign prefix", n)
		}
	}
}

func TestRun_portTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()

	for _, tc := range []struct{ flag, key, section string }{
		{"--listen", "listen.address", "listen"},
		{"--admin", "admin.address", "admin"},
		{"--peer", "cluster.peer", "cluster"},
		{"--gossip", "cluster.gossip", "cluster"},
	} {
		t.Run(tc.key, func(t *testing.T) {
			c := start(t, append([]string{"run"}, alone("http://127.0.0.1:1", tc.flag, taken)...)...)
			if code := c.wait(); code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			if log := c.stderr.String(); !strings.Contains(log, "edged: "+tc.flag+": ") || !strings.Contains(log, taken) || !strings.Contains(log, "in use") {
				t.Errorf("by flag it says %q", log)
			}
			if out := c.stdout.String(); out != "" {
				t.Errorf("standard output has %q", out)
			}

			key := strings.TrimPrefix(tc.key, tc.section+".")
			file := filepath.Join(t.TempDir(), "edged.yaml")
			writeFile(t, file, fmt.Sprintf("%s:\n  %s: %q\n", tc.section, key, taken), 0o600)
			var args []string
			for i, flags := 0, alone("http://127.0.0.1:1"); i < len(flags); i += 2 {
				if flags[i] != tc.flag {
					args = append(args, flags[i:i+2]...)
				}
			}
			c = start(t, append([]string{"run", "-c", file}, args...)...)
			if code := c.wait(); code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			if want := fmt.Sprintf("edged: %s:2:%d: %s: ", file, len(key)+5, tc.key); !strings.Contains(c.stderr.String(), want) {
				t.Errorf("by file it says %q; want %q", c.stderr, want)
			}
		})
	}
}

func TestRun_wrongUsage(t *testing.T) {
	c := start(t, "run", "--orgin", "http://127.0.0.1:1")
	if code := c.wait(); code != exitUsage {
		t.Errorf("exit code %d for a wrong flag", code)
	}
	file := filepath.Join(t.TempDir(), "edged.yaml")
	writeFile(t, file, "lisen: {}\n", 0o600)
	c = start(t, "run", "-c", file)
	if code := c.wait(); code != exitUsage || !strings.Contains(c.stderr.String(), file+":1:1: lisen: unknown key, did you mean \"listen\"?\n") {
		t.Errorf("exit code %d, %q for a wrong file", code, c.stderr)
	}
}

// inFlight asks for /slow and returns when the origin has the request.
func inFlight(t *testing.T, c *child, o *testOrigin) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		r, err := tryGet("http://" + c.ready.Client + "/slow")
		if err == nil && (r.status != 200 || r.body != "this is /slow") {
			err = fmt.Errorf("answer %+v", r)
		}
		done <- err
	}()
	<-o.asked
	return done
}

func TestRun_drainsRequestsInFlight(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			origin := startOrigin(t)
			c := startNode(t, alone(origin.URL)...)
			done := inFlight(t, c, origin)
			c.signal(sig)
			eventually(t, func() error {
				if r, err := tryGet("http://" + c.ready.Admin + "/readyz"); err != nil || r.status != 503 {
					return fmt.Errorf("readyz of a draining node: %+v, %v", r, err)
				}
				return nil
			})
			eventually(t, func() error {
				if conn, err := net.Dial("tcp", c.ready.Client); err == nil {
					conn.Close()
					return fmt.Errorf("still accepts")
				}
				return nil
			})
			origin.slow <- struct{}{}
			if err := <-done; err != nil {
				t.Errorf("the request in flight: %v", err)
			}
			if code := c.wait(); code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestRun_secondSignalStopsAtOnce(t *testing.T) {
	origin := startOrigin(t)
	c := startNode(t, alone(origin.URL)...)
	done := inFlight(t, c, origin)
	c.signal(syscall.SIGTERM)
	c.logged("stopping")
	c.signal(syscall.SIGTERM)
	if code := c.wait(); code != exitFailure || !strings.Contains(c.stderr.String(), "second signal") {
		t.Errorf("exit code %d", code)
	}
	if err := <-done; err == nil {
		t.Error("the request in flight was answered, although the origin was not let go")
	}
}

func TestRun_drainIsBounded(t *testing.T) {
	origin := startOrigin(t)
	file := filepath.Join(t.TempDir(), "edged.yaml")
	writeFile(t, file, "drain: 100ms\n", 0o600)
	c := startNode(t, alone(origin.URL, "-c", file)...)
	done := inFlight(t, c, origin)
	c.signal(syscall.SIGTERM)
	if code := c.wait(); code != exitFailure {
		t.Errorf("exit code %d, although a request was cut", code)
	}
	if err := <-done; err == nil {
		t.Error("the request in flight was answered, although the origin was not let go")
	}
}

func TestRun_reload(t *testing.T) {
	origin := startOrigin(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "edged.yaml")
	config := "sites: [{name: default, origin: {urls: [\"" + origin.URL + "\"]}, bypass: [%s]}]\n"
	writeFile(t, file, fmt.Sprintf(config, ""), 0o600)
	c := startNode(t, alone(origin.URL, "-c", file)...)
	url := "http://" + c.ready.Client + "/page"
	if r := get(t, url); !strings.Contains(r.header.Get("Cache-Status"), "uri-miss") {
		t.Errorf("before: %+v", r)
	}

	writeFile(t, file, fmt.Sprintf(config, `"/page"`), 0o600)
	c.signal(syscall.SIGHUP)
	c.logged("configuration reloaded")
	if r := get(t, url); !strings.Contains(r.header.Get("Cache-Status"), "fwd=bypass") {
		t.Errorf("after the reload: %+v", r)
	}

	writeFile(t, file, "lisen: {}\n", 0o600)
	c.signal(syscall.SIGHUP)
	c.logged("lisen: unknown key")
	if r := get(t, url); r.status != 200 {
		t.Errorf("after a wrong reload: %+v", r)
	}
	if got := c.metrics()["edged_config_last_reload_successful"]; got != "0" {
		t.Errorf("edged_config_last_reload_successful is %q after a wrong reload", got)
	}

	writeFile(t, file, fmt.Sprintf(config, ""), 0o600)
	c.signal(syscall.SIGHUP)
	eventually(t, func() error {
		if got := c.metrics()["edged_config_last_reload_successful"]; got != "1" {
			return fmt.Errorf("edged_config_last_reload_successful is %q after a right reload", got)
		}
		return nil
	})
}

func TestRun_logsJSON(t *testing.T) {
	c := startNode(t, alone("http://127.0.0.1:1", "--log-format", "json", "--log-level", "debug")...)
	c.signal(syscall.SIGTERM)
	c.wait()
	log := strings.TrimSpace(c.stderr.String())
	if log == "" {
		t.Fatal("nothing is logged")
	}
	for line := range strings.Lines(log) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || m["msg"] == nil || m["level"] == nil {
			t.Errorf("log line %q: %v", line, err)
		}
	}
}

func TestRun_adminCommands(t *testing.T) {
	origin := startOrigin(t)
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, "abc\n", 0o600)
	c := startNode(t, alone(origin.URL, "--token-file", token)...)
	flags := []string{"--admin", c.ready.Admin, "--token-file", token}
	url := "http://" + c.ready.Client + "/x"
	get(t, url)

	eventually(t, func() error {
		got := command(t, "", append([]string{"status"}, flags...)...)
		if got.code != exitOK || !strings.Contains(got.out, "a *") || !strings.Contains(got.out, "1 = miss 1") {
			return fmt.Errorf("status: %+v", got)
		}
		return nil
	})
	if got := command(t, "", "status", "--admin", c.ready.Admin); got.code != exitFailure || !strings.Contains(got.errOut, "--token-file") {
		t.Errorf("status without the token: %+v", got)
	}
	if got := command(t, "", append([]string{"explain", url, "-H", "Accept: text/html"}, flags...)...); got.code != exitOK || !strings.Contains(got.out, "status 200") {
		t.Errorf("explain: %+v", got)
	}
	if got := command(t, "", append([]string{"purge", url}, flags...)...); got.code != exitOK || !strings.Contains(got.out, "1 of 1 members have acknowledged") {
		t.Errorf("purge: %+v", got)
	}
	if r := get(t, url); !strings.Contains(r.header.Get("Cache-Status"), "uri-miss") {
		t.Errorf("after the purge: %+v", r)
	}
	if got := command(t, "", append([]string{"drain", "--wait"}, flags...)...); got.code != exitOK || !strings.Contains(got.out, "has stopped") {
		t.Errorf("drain: %+v", got)
	}
	if code := c.wait(); code != exitOK {
		t.Errorf("exit code %d after a drain", code)
	}
}

// TestRun_readyLineGoesNowhere: who starts a node must get the line, so a node
// that can't write it does not stay.
func TestRun_readyLineGoesNowhere(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	code := execute(&process{
		args: append([]string{"run"}, alone("http://127.0.0.1:1")...), stdin: strings.NewReader(""), stdout: full, stderr: io.Discard,
		env: func(string) (string, bool) { return "", true }, host: os.Hostname,
	})
	if code != exitFailure {
		t.Errorf("exit code %d", code)
	}
}

func TestLoadtest_interrupted(t *testing.T) {
	c := start(t, "loadtest", "--rate", "50", "--duration", "1m", "--nodes", "1", "--keys", "100")
	eventually(t, func() error { return contains(c.stdout, "/s  p99") })
	c.signal(syscall.SIGINT)
	if code := c.wait(); code != exitFailure || c.stderr.String() != "edged: interrupted\n" {
		t.Errorf("exit code %d, err %q; want %d and that it was interrupted", code, c.stderr, exitFailure)
	}
	if err := contains(c.stdout, "this is what was measured until then"); err != nil {
		t.Error(err)
	}
}
