//go:build e2e

package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	trafficRate = flag.Int("traffic.rate", 1000, "requests a second of the tests under traffic")
	trafficFor  = flag.Duration("traffic.for", 3*time.Second, "how long the tests under traffic last at least")
)

// pageTraffic asks a node for a few pages at a rate, over raw connections, so that
// nothing is sent twice behind the test's back. Every answer must be whole, 200,
// and satisfy check.
type pageTraffic struct {
	addr  string
	fresh bool // a connection for each request
	pages int
	check func(resp *http.Response, body string) error

	sent, connections atomic.Int64
	mu                sync.Mutex
	failures          []error
	stop              chan struct{}
	done              sync.WaitGroup
}

// start sends rate requests a second from several connections until end.
func (tr *pageTraffic) start(rate, workers int) {
	tr.stop = make(chan struct{})
	began := time.Now()
	var next atomic.Int64
	for range workers {
		tr.done.Go(func() {
			var conn net.Conn
			var from *bufio.Reader
			defer func() {
				if conn != nil {
					conn.Close()
				}
			}()
			timer := time.NewTimer(0)
			defer timer.Stop()
			<-timer.C
			for {
				i := next.Add(1)
				timer.Reset(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				select {
				case <-tr.stop:
					return
				case <-timer.C:
				}
				if conn == nil {
					var err error
					if conn, err = net.DialTimeout("tcp", tr.addr, deadline); err != nil {
						tr.failed(fmt.Errorf("connect: %w", err))
						continue
					}
					from = bufio.NewReader(conn)
					tr.connections.Add(1)
				}
				tr.sent.Add(1)
				again, err := tr.ask(conn, from, fmt.Sprintf("/page/%d", i%int64(tr.pages)))
				if err != nil {
					tr.failed(err)
				}
				if !again || err != nil || tr.fresh {
					conn.Close()
					conn = nil
				}
			}
		})
	}
}

func (tr *pageTraffic) ask(conn net.Conn, from *bufio.Reader, path string) (again bool, err error) {
	conn.SetDeadline(time.Now().Add(deadline))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: www\r\n\r\n", path); err != nil {
		return false, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, fmt.Errorf("read the body: %w", err)
	case resp.StatusCode != http.StatusOK || string(body) != "this is "+path:
		return false, fmt.Errorf("%s is answered %s, %q", path, resp.Status, body)
	}
	return !resp.Close, tr.check(resp, string(body))
}

func (tr *pageTraffic) failed(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failures = append(tr.failures, err)
}

// end stops the traffic and reports what failed.
func (tr *pageTraffic) end(t *testing.T, what string) {
	t.Helper()
	close(tr.stop)
	tr.done.Wait()
	t.Logf("%s: %d requests over %d connections, %d failures", what, tr.sent.Load(), tr.connections.Load(), len(tr.failures))
	if len(tr.failures) > 0 {
		t.Errorf("%s: %d of %d requests failed, the first: %v", what, len(tr.failures), tr.sent.Load(), tr.failures[0])
	}
	if tr.sent.Load() == 0 {
		t.Errorf("%s: nothing was sent", what)
	}
}

// TestE2E_reloadUnderTraffic reloads again and again, by signal and by the
// admin API, right files and wrong ones, while clients ask: none fails, none is
// cut off, every one of them is a hit, and the origin hears of nothing.
func TestE2E_reloadUnderTraffic(t *testing.T) {
	const pages = 50
	origin := startOrigin(t)
	file := filepath.Join(t.TempDir(), "edged.yaml")
	right := func(i int) string {
		return fmt.Sprintf("sites:\n  - { name: www, hosts: [www], origin: { urls: [%q] }, bypass: [\"/none/%d\"] }\n  - { name: other%d, hosts: [other], origin: { urls: [\"http://127.0.0.1:1\"] } }\n", origin.URL, i, i%3)
	}
	writeFile(t, file, right(0), 0o600)
	c := startNode(t, alone("", "-c", file)[2:]...)
	tr := &pageTraffic{addr: c.ready.Client, pages: pages, check: func(*http.Response, string) error { return nil }}
	conn, err := net.Dial("tcp", c.ready.Client)
	if err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(conn)
	for i := range pages { // fill the store
		if _, err := tr.ask(conn, from, fmt.Sprintf("/page/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	asked := origin.requests.Load()

	tr.check = func(resp *http.Response, _ string) error {
		if s := resp.Header.Get("Cache-Status"); !strings.HasPrefix(s, "a; hit") {
			return fmt.Errorf("no hit: %s", s)
		}
		return nil
	}
	const workers = 64
	tr.start(*trafficRate, workers)
	end := time.After(*trafficFor)
	reloads := 0
	for going := true; going; reloads++ {
		switch reloads % 3 {
		case 0:
			writeFile(t, file, right(reloads), 0o600)
			if got := command(t, "", "reload", "--admin", c.ready.Admin); got.code != exitOK {
				t.Fatalf("reload %d: %+v", reloads, got)
			}
		case 1:
			writeFile(t, file, "sites: [}\n", 0o600)
			if got := command(t, "", "reload", "--admin", c.ready.Admin); got.code != exitFailure || !strings.Contains(got.errOut, file+":1:") {
				t.Fatalf("a broken file: %+v", got)
			}
		case 2:
			writeFile(t, file, right(reloads), 0o600)
			c.signal(syscall.SIGHUP)
		}
		select {
		case <-end:
			going = false
		case <-time.After(20 * time.Millisecond): // between two reloads, not for an event
		}
	}
	tr.end(t, fmt.Sprintf("%d reloads at %d requests a second", reloads, *trafficRate))
	if n := tr.connections.Load(); n != workers {
		t.Errorf("%d connections were made by %d clients: some were cut off", n, workers)
	}
	if n := origin.requests.Load() - asked; n != 0 {
		t.Errorf("the origin saw %d requests", n)
	}
}

// generations is a node whose process is replaced: all of them write to the
// same files, which no pipe to a process that has ended could do.
type generations struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout string
	stderr string
}

func startGenerations(t *testing.T, args ...string) *generations {
	t.Helper()
	return startGenerationsOf(t, edgedBinary(t), args...)
}

func startGenerationsOf(t *testing.T, program string, args ...string) *generations {
	t.Helper()
	dir := t.TempDir()
	g := &generations{t: t, stdout: filepath.Join(dir, "stdout"), stderr: filepath.Join(dir, "stderr")}
	g.cmd = exec.Command(program, append([]string{"run"}, args...)...)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // of all its successors, too
	for name, to := range map[string]*io.Writer{g.stdout: &g.cmd.Stdout, g.stderr: &g.cmd.Stderr} {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		*to = f
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
		g.cmd.Wait()
		if t.Failed() {
			t.Logf("the node wrote\n%s", readFile(t, g.stderr))
		}
	})
	return g
}

// ready waits for the n-th ready line.
func (g *generations) ready(n int) (line struct {
	Client, Peer, Gossip, Admin string
	PID                         int
}) {
	g.t.Helper()
	eventually(g.t, func() error {
		all := strings.SplitAfter(readFile(g.t, g.stdout), "\n")
		if len(all) <= n {
			return fmt.Errorf("%d ready lines; want %d: %s", len(all)-1, n, readFile(g.t, g.stderr))
		}
		return json.Unmarshal([]byte(all[n-1]), &line)
	})
	return line
}

// gone waits until no process has the id; the first one is this test's child
// and must be waited for.
func (g *generations) gone(pid int) {
	g.t.Helper()
	if pid == g.cmd.Process.Pid {
		ended := make(chan error, 1)
		go func() { ended <- g.cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				g.t.Errorf("the old process ended with %v", err)
			}
		case <-time.After(deadline):
			g.t.Fatal("the old process has not ended in time")
		}
		return
	}
	eventually(g.t, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return fmt.Errorf("process %d is still there", pid)
	})
}

// TestE2E_upgradeUnderTraffic replaces a member of a cluster of two by a new
// process, twice, while clients ask over connections that they keep and over new
// ones: no request fails, and the other member sees the same name come back
// without ever having taken it for failed.
func TestE2E_upgradeUnderTraffic(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		io.WriteString(w, "this is "+r.URL.Path)
	}))
	defer origin.Close()
	// The gossip address is given free and bound again, so it is a fixed one: of
	// an IP address of loopback that nobody else has. The node that is upgraded is
	// its own only seed: it was seen to be alone for seven seconds afterwards.
	pid := os.Getpid()
	gossip := fmt.Sprintf("127.%d.%d.%d:7946", 1+pid>>16&0x7f, pid>>8&0xff, 1+pid&0x7f)
	g := startGenerations(t, append(alone(origin.URL), "--name", "b", "--gossip", gossip, "--join", gossip)...)
	first := g.ready(1)
	other := startNode(t, append(alone(origin.URL), "--join", gossip)...)
	startNode(t, append(alone(origin.URL), "--name", "c", "--join", gossip)...)
	eventually(t, func() error { return other.alive("3") })

	check := func(resp *http.Response, _ string) error {
		if s := resp.Header.Get("Cache-Status"); !strings.Contains(s, "b; ") {
			return fmt.Errorf("answered by %s", s)
		}
		return nil
	}
	kept := &pageTraffic{addr: first.Client, pages: 50, check: check}
	fresh := &pageTraffic{addr: first.Client, pages: 50, check: check, fresh: true}
	kept.start(*trafficRate, 32)
	fresh.start(max(1, *trafficRate/4), 8)
	before := first.PID
	for n := 2; n <= 3; n++ {
		if err := syscall.Kill(before, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		now := g.ready(n)
		if now.Client != first.Client || now.Peer != first.Peer || now.Admin != first.Admin || now.Gossip != gossip || now.PID == before {
			t.Errorf("after the upgrade: %+v; before: %+v", now, first)
		}
		g.gone(before)
		if r := get(t, "http://"+first.Admin+"/readyz"); r.status != http.StatusOK {
			t.Errorf("/readyz after the upgrade: %+v", r)
		}
		before = now.PID
		successor := child{t: t}
		successor.ready.Admin = now.Admin
		if err := successor.alive("3"); err != nil {
			t.Errorf("a new process that is ready: %v", err)
		}
		eventually(t, func() error {
			if m := other.metrics(); m[`edged_members{state="alive"}`] != "3" || m[`edged_members{state="failed"}`] != "0" || m[`edged_replica_state{peer="b",state="live"}`] != "1" {
				return fmt.Errorf("the other member counts %s alive, %s failed", m[`edged_members{state="alive"}`], m[`edged_members{state="failed"}`])
			}
			return nil
		})
	}
	kept.end(t, "kept connections")
	fresh.end(t, "new connections")
	if log := other.stderr.String(); strings.Contains(log, "member failed") {
		t.Errorf("the other member took it for failed:\n%s", log)
	}
}

// TestE2E_upgradeFails: a new process that can't start leaves everything as it is.
func TestE2E_upgradeFails(t *testing.T) {
	origin := startOrigin(t)
	other := startNode(t, alone(origin.URL)...)
	file := filepath.Join(t.TempDir(), "edged.yaml")
	writeFile(t, file, "", 0o600)
	g := startGenerations(t, append(alone(origin.URL), "--name", "b", "--join", other.ready.Gossip, "-c", file)...)
	first := g.ready(1)
	writeFile(t, file, "lisen: {}\n", 0o600)
	if err := syscall.Kill(first.PID, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		log := readFile(t, g.stderr)
		if !strings.Contains(log, "no other process has taken over") || !strings.Contains(log, "lisen: unknown key") {
			return fmt.Errorf("the log does not say why: %s", log)
		}
		return nil
	})
	if r := get(t, "http://"+first.Client+"/x"); r.status != http.StatusOK {
		t.Errorf("a client is answered %+v", r)
	}
	if m := other.metrics(); m[`edged_members{state="alive"}`] != "2" {
		t.Errorf("the other member counts %s alive", m[`edged_members{state="alive"}`])
	}
	// And it can be tried again.
	writeFile(t, file, "", 0o600)
	if err := syscall.Kill(first.PID, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	g.ready(2)
	g.gone(first.PID)
}

// TestE2E_upgradeProgram exchanges the program's file as installers do, by
// renaming: what stands at the path then is what is started. First it is one
// that ends and leaves a process behind, which holds all that it has inherited.
func TestE2E_upgradeProgram(t *testing.T) {
	origin := startOrigin(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "edged")
	if err := os.Link(edgedBinary(t), program); err != nil {
		t.Fatal(err)
	}
	exchange := func(script string) {
		t.Helper()
		if err := os.Rename(program, program+".old"); err != nil {
			t.Fatal(err)
		}
		next := program + ".new"
		writeFile(t, next, "#!/bin/sh\n"+script, 0o700)
		if err := os.Rename(next, program); err != nil {
			t.Fatal(err)
		}
	}
	g := startGenerationsOf(t, program, append(alone(origin.URL), "--name", "b")...)
	first := g.ready(1)

	exchange("sleep 300 &\nexit 3\n")
	if err := syscall.Kill(first.PID, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if log := readFile(t, g.stderr); !strings.Contains(log, "no other process has taken over") || !strings.Contains(log, "exit status 3") {
			return fmt.Errorf("the log does not say why: %s", log)
		}
		return nil
	})
	if r := get(t, "http://"+first.Client+"/x"); r.status != http.StatusOK {
		t.Errorf("a client is answered %+v", r)
	}

	exchange("echo the new one >&2\nexec " + edgedBinary(t) + ` "$@"` + "\n")
	if err := syscall.Kill(first.PID, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	g.ready(2)
	g.gone(first.PID)
	if log := readFile(t, g.stderr); !strings.Contains(log, "the new one\n") {
		t.Errorf("the program at the path was not started:\n%s", log)
	}
}

// alive is nil when the node counts so many members as alive.
func (c *child) alive(want string) error {
	if got := c.metrics()[`edged_members{state="alive"}`]; got != want {
		return fmt.Errorf("it counts %s members as alive, want %s", got, want)
	}
	return nil
}
