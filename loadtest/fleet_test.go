package loadtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// running reports whether a process exists and is more than a zombie that
// nobody has collected.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestFleet_startsAndStops(t *testing.T) {
	t.Parallel()
	f, err := StartFleet(t.Context(), FleetConfig{Binary: fake(t, "ok"), Nodes: 3, Origin: "http://127.0.0.1:1", Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WaitFormed(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, m := range f.Members {
		if want := nodeName(i); m.Name != want || m.Pid == 0 || m.Client == "" || m.Admin == "" {
			t.Errorf("member %d: %+v, want name %s and all addresses", i, m, want)
		}
		if !running(m.Pid) {
			t.Errorf("%s is not running", m.Name)
		}
	}
	if err := f.Members[1].Kill(); err != nil {
		t.Error(err)
	}
	if got := f.Members[1].Exit(); got != "signal: killed" {
		t.Errorf("exit of a killed node: %q", got)
	}
	if err := f.Close(); err != nil {
		t.Errorf("close after a node was killed: %v", err)
	}
	for _, m := range f.Members {
		if running(m.Pid) {
			t.Errorf("%s was left running", m.Name)
		}
	}
	if _, err := os.Stat(f.dir); !os.IsNotExist(err) {
		t.Errorf("%s was left behind", f.dir)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestFleet_saysWhyANodeDidNotStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault string
		want  []string
	}{
		{"dies", []string{"edge-a", "exit status 3", "cannot go on"}},
		{"garbage", []string{"edge-a", "not a ready line", `"hello"`}},
		{"misnamed", []string{"edge-a", `"someone"`}},
		{"silent", []string{"edge-a", "not ready in time"}},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := StartFleet(ctx, FleetConfig{Binary: fake(t, tc.fault), Nodes: 2, Origin: "http://127.0.0.1:1"})
			if err == nil {
				t.Fatal("started")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
	t.Run("no such binary", func(t *testing.T) {
		if _, err := StartFleet(t.Context(), FleetConfig{Binary: "/nonexistent/edged", Nodes: 1}); err == nil || !strings.Contains(err.Error(), "/nonexistent/edged") {
			t.Errorf("error %v, want one that names the file", err)
		}
	})
}

func TestFleet_namesAPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	_, err = StartFleet(t.Context(), FleetConfig{Binary: fake(t, "ok"), Nodes: 1, BasePort: port})
	var pe *PortError
	if !errors.As(err, &pe) || pe.Port != port || !strings.Contains(err.Error(), "clients of node edge-a") {
		t.Errorf("got %v, want a PortError of port %d for clients of node edge-a", err, port)
	}
	if _, err := StartFleet(t.Context(), FleetConfig{Binary: fake(t, "ok"), Nodes: 3, BasePort: 65500}); err == nil {
		t.Error("started with ports above 65535")
	}
}

// A driver that is killed can stop nothing: the kernel has to.
func TestFleet_diesWithItsParent(t *testing.T) {
	t.Parallel()
	parent := fake(t, "parent")
	if err := os.Symlink(parent, filepath.Join(filepath.Dir(parent), fakePrefix+"ok")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(parent)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // for what it leaves behind
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var pids []int
	if err == nil {
		err = json.Unmarshal(line, &pids)
	}
	if err != nil || len(pids) != 2 || !running(pids[0]) {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("the parent started %v: %q, %v", pids, line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for _, pid := range pids {
		waitFor(t, "the end of a node", func() bool { return !running(pid) })
	}
}

func TestNodeConfig_controlGroup(t *testing.T) {
	n := nodeConfig(FleetConfig{Origin: "http://127.0.0.1:9", FiltersOff: true}, 1, []string{"127.0.0.1:7"})
	if n.Filter == nil || n.Filter.Enabled == nil || *n.Filter.Enabled {
		t.Error("filters are not off")
	}
	if n := nodeConfig(FleetConfig{FilterKeys: 5}, 0, nil); n.Filter.Enabled != nil {
		t.Error("filters are set where they need not be")
	}
}

func TestReadyLine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		writes []string
		ok     bool
	}{
		{"whole", []string{`{"event":"ready","client":"a:1","admin":"a:2"}` + "\nmore\n"}, true},
		{"in pieces", []string{`{"event":"ready",`, `"client":"a:1","admin":"a:2"}`, "\n"}, true},
		{"another event", []string{`{"event":"stopping","client":"a:1","admin":"a:2"}` + "\n"}, false},
		{"no addresses", []string{`{"event":"ready"}` + "\n"}, false},
		{"without an end", []string{strings.Repeat("x", 2*maxReadyLine), "y"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &readyLine{found: make(chan struct{})}
			for _, w := range tc.writes {
				if n, err := io.WriteString(r, w); n != len(w) || err != nil {
					t.Fatalf("write: %d, %v", n, err)
				}
			}
			select {
			case <-r.found:
			default:
				t.Fatal("no line found")
			}
			if _, err := r.parse(); (err == nil) != tc.ok {
				t.Errorf("parse: %v, want ok %v", err, tc.ok)
			}
			if len(r.line) > maxReadyLine {
				t.Errorf("keeps %d bytes", len(r.line))
			}
		})
	}
}

func TestTail_keepsTheLastLines(t *testing.T) {
	tl := &tail{}
	for i := range 5000 {
		fmt.Fprintf(tl, "line %d of many\n", i)
	}
	got := strings.Split(tl.String(), "\n")
	if len(got) != maxTailLines || got[len(got)-1] != "line 4999 of many" || got[0] != fmt.Sprintf("line %d of many", 5000-maxTailLines) {
		t.Errorf("got %d lines, %q to %q", len(got), got[0], got[len(got)-1])
	}
	tl.Write(make([]byte, 3*maxStderrTail))
	if len(tl.buf) != maxStderrTail {
		t.Errorf("keeps %d bytes", len(tl.buf))
	}
}

func TestOrigin_serves(t *testing.T) {
	t.Parallel()
	o, err := NewOrigin(OriginConfig{Keys: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, tc := range []struct {
		path, rang string
		status     int
		kind       string
		cc         string
	}{
		{"/", "", 200, "text/html; charset=utf-8", "public, max-age=60, stale-while-revalidate=30"},
		{PagePath(Pages), "", 200, "text/html; charset=utf-8", "public, max-age=60, stale-while-revalidate=30"},
		{PagePath(Pages + 1), "", 404, "text/plain; charset=utf-8", ""},
		{"/pages/01", "", 404, "text/plain; charset=utf-8", ""},
		{ImagePath(1), "", 200, "image/png", "public, max-age=60"},
		{ImagePath(99), "", 404, "text/plain; charset=utf-8", ""},
		{ClockPath, "", 200, "text/plain; charset=utf-8", "public, max-age=1"},
		{ClockNowPath, "", 200, "text/plain; charset=utf-8", "no-store"},
		{MissingPath, "", 404, "text/plain; charset=utf-8", ""},
		{AbsentPath(1), "", 404, "text/plain; charset=utf-8", ""},
		{KeyPath(9, 100), "", 200, "application/octet-stream", "public, max-age=3600"},
		{KeyPath(9, 100), "bytes=10-19", 206, "application/octet-stream", "public, max-age=3600"},
		{KeyPath(10, 100), "", 404, "text/plain; charset=utf-8", ""},
		{"/k/5/1/", "", 404, "text/plain; charset=utf-8", ""},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", o.URL()+tc.path, nil)
		if tc.rang != "" {
			req.Header.Set("Range", tc.rang)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(body) == 0 {
			t.Errorf("%s: %d bytes, %v", tc.path, len(body), err)
		}
		if resp.StatusCode != tc.status || resp.Header.Get("Content-Type") != tc.kind || resp.Header.Get("Cache-Control") != tc.cc {
			t.Errorf("%s: %d, %q, %q; want %d, %q, %q", tc.path, resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Cache-Control"), tc.status, tc.kind, tc.cc)
		}
	}
	want := map[string]int64{ClassPage: 2, ClassImage: 1, ClassClock: 2, ClassKey: 2, ClassAbsent: 7}
	got := o.Counts()
	for k, n := range want {
		if got[k] != n {
			t.Errorf("counted %d of class %s, want %d", got[k], k, n)
		}
	}
	if total(got) != 14 {
		t.Errorf("counted %v, want 14 in all", got)
	}
}
