package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startWith runs edged run with more in its environment and with files beside
// the standard ones. $$ in a value is the process's id.
func startWith(t *testing.T, env []string, files []*os.File, args ...string) *child {
	t.Helper()
	var exports strings.Builder
	for _, v := range env {
		fmt.Fprintf(&exports, "export %s; ", v)
	}
	cmd := exec.Command("sh", append([]string{"-c", exports.String() + `exec "$0" run "$@"`, edgedBinary(t)}, args...)...)
	cmd.ExtraFiles = files
	return watch(t, cmd, append([]string{"run"}, args...))
}

func TestRun_tellsTheServiceManager(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// hears returns when a message has the line.
	hears := func(line string) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(deadline))
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("no %s: %v", line, err)
			}
			for got := range strings.Lines(string(buf[:n])) {
				if strings.TrimSuffix(got, "\n") == line {
					return
				}
			}
		}
	}
	file := filepath.Join(t.TempDir(), "edged.yaml")
	writeFile(t, file, "", 0o600)
	c := startWith(t, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=200000", "WATCHDOG_PID=$$"}, nil, alone("http://127.0.0.1:1", "-c", file)...)
	hears("READY=1")
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	c.signal(syscall.SIGHUP)
	hears("RELOADING=1")
	hears("READY=1")
	c.signal(syscall.SIGTERM)
	hears("STOPPING=1")
	if code := c.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// listening returns an open listener's address and its descriptor.
func listening(t *testing.T) (string, *os.File) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return ln.Addr().String(), f
}

func TestRun_socketActivation(t *testing.T) {
	origin := startOrigin(t)
	client, f1 := listening(t)
	admin, f2 := listening(t)
	c := startWith(t, []string{"LISTEN_PID=$$", "LISTEN_FDS=2", "LISTEN_FDNAMES=client:admin"}, []*os.File{f1, f2}, alone(origin.URL)...)
	// The sockets are open from the start: these requests wait for the node.
	if r := get(t, "http://"+client+"/x"); r.status != http.StatusOK || r.body != "this is /x" {
		t.Errorf("a client is answered %+v", r)
	}
	if r := get(t, "http://"+admin+"/readyz"); r.status != http.StatusOK {
		t.Errorf("/readyz: %+v", r)
	}
	c.signal(syscall.SIGTERM)
	if code := c.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestRun_socketActivationIsChecked(t *testing.T) {
	_, f := listening(t)
	for want, env := range map[string][]string{
		`LISTEN_FDS="9"`:                 {"LISTEN_PID=$$", "LISTEN_FDS=9"},
		`LISTEN_FDNAMES="web"`:           {"LISTEN_PID=$$", "LISTEN_FDS=1", "LISTEN_FDNAMES=web"},
		`LISTEN_FDNAMES="client:client"`: {"LISTEN_PID=$$", "LISTEN_FDS=2", "LISTEN_FDNAMES=client:client"},
		`want a name for each of the 2`:  {"LISTEN_PID=$$", "LISTEN_FDS=2", "LISTEN_FDNAMES=client"},
		`the socket "client" of systemd`: {"LISTEN_PID=$$", "LISTEN_FDS=1", "LISTEN_FDNAMES=client", "IGNORED=1"},
		`EDGED_HANDOVER="{"`:             {`EDGED_HANDOVER={`},
		`take over: `:                    {`EDGED_HANDOVER='{}'`},
	} {
		files := []*os.File{f, f}
		if strings.HasPrefix(want, "the socket") || strings.HasPrefix(want, "take over") {
			file, err := os.Open(os.DevNull) // no socket
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			files = []*os.File{file}
		}
		c := startWith(t, env, files, alone("http://127.0.0.1:1")...)
		if code := c.wait(); code != exitFailure || !strings.Contains(c.stderr.String(), want) {
			t.Errorf("%q: exit code %d, %s; want %s", env, code, c.stderr, want)
		}
	}
}

func TestReloadCommand(t *testing.T) {
	origin := startOrigin(t)
	file := filepath.Join(t.TempDir(), "edged.yaml")
	config := "cache:\n  memory: %s\nsites:\n  - { name: default, origin: { urls: [%q] }, bypass: [%s] }\n"
	writeFile(t, file, fmt.Sprintf(config, "64MiB", origin.URL, ""), 0o600)
	c := startNode(t, alone("", "-c", file)[2:]...)
	reload := func() ran { return command(t, "", "reload", "--admin", c.ready.Admin) }
	bypassed := func() bool {
		return strings.Contains(get(t, "http://"+c.ready.Client+"/x").header.Get("Cache-Status"), "fwd=bypass")
	}

	writeFile(t, file, fmt.Sprintf(config, "64MiB", origin.URL, `"/x"`), 0o600)
	if got := reload(); got.code != exitOK || !strings.Contains(got.out, "has reloaded") || !bypassed() {
		t.Errorf("a right file: %+v, in effect %v", got, bypassed())
	}
	for _, wrong := range []struct{ text, want string }{
		{fmt.Sprintf(config, "64MiB", origin.URL, ``) + "lisen: {}\n", file + ":5:1: lisen: unknown key"},
		{fmt.Sprintf(config, "128MiB", origin.URL, ``), file + ":2:11: cache.memory: a restart is needed"},
		{fmt.Sprintf(config, "64MiB", "ftp://x", ``), "sites[0].origin.urls[0]: "},
		{"sites: [", file + ":1:"},
	} {
		writeFile(t, file, wrong.text, 0o600)
		if got := reload(); got.code != exitFailure || !strings.Contains(got.errOut, wrong.want) || !bypassed() {
			t.Errorf("%s: %+v, as before %v; want %s", wrong.text, got, bypassed(), wrong.want)
		}
		if got := c.metrics()["edged_config_last_reload_successful"]; got != "0" {
			t.Errorf("edged_config_last_reload_successful is %q after a wrong reload", got)
		}
	}
}
