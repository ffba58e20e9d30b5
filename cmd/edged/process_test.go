package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// deadline bounds every wait of these tests for something that another
// process does; on a good day each takes milliseconds.
const deadline = 30 * time.Second

// builtBinary is the program under test, built once for all tests of this
// package and removed by TestMain.
type builtBinary struct {
	once sync.Once
	dir  string
	file string
	err  error
}

var binary builtBinary

func TestMain(m *testing.M) {
	code := m.Run()
	if binary.dir != "" {
		os.RemoveAll(binary.dir)
	}
	os.Exit(code)
}

// edgedBinary is the path of the built program.
func edgedBinary(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "edged-test"); binary.err != nil {
			return
		}
		binary.file = filepath.Join(binary.dir, "edged")
		cmd := exec.Command("go", "build", "-o", binary.file, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the image has it
		if out, err := cmd.CombinedOutput(); err != nil {
			binary.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.file
}

// A child is a started edged process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *lines
	stderr *lines
	exited chan struct{}

	// From the ready line; set by startNode.
	ready struct {
		Event, Name, Client, Peer, Gossip, Admin string
		PID                                      int
	}
}

// start runs edged with the arguments. The test's end kills what still runs.
func start(t *testing.T, args ...string) *child {
	t.Helper()
	return watch(t, exec.Command(edgedBinary(t), args...), args)
}

// watch starts cmd, an edged with the arguments.
func watch(t *testing.T, cmd *exec.Cmd, args []string) *child {
	t.Helper()
	c := &child{t: t, cmd: cmd, stdout: newLines(), stderr: newLines(), exited: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.stdout, c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.cmd.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.exited
		if t.Failed() {
			t.Logf("edged %s wrote\n%s", strings.Join(args, " "), c.stderr)
		}
	})
	return c
}

// startNode runs edged run and waits for its ready line.
func startNode(t *testing.T, args ...string) *child {
	t.Helper()
	c := start(t, append([]string{"run"}, args...)...)
	select {
	case <-c.stdout.first:
	case <-c.exited:
		t.Fatalf("edged run %s ended with code %d:\n%s", strings.Join(args, " "), c.cmd.ProcessState.ExitCode(), c.stderr)
	case <-time.After(deadline):
		t.Fatalf("edged run %s is not ready in time", strings.Join(args, " "))
	}
	dec := json.NewDecoder(strings.NewReader(c.stdout.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c.ready); err != nil {
		t.Fatalf("the ready line %q: %v", c.stdout, err)
	}
	return c
}

// alone are the flags of a node on free ports of loopback.
func alone(origin string, more ...string) []string {
	return append([]string{
		"--origin", origin, "--name", "a", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--gossip", "127.0.0.1:0", "--peer", "127.0.0.1:0",
	}, more...)
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// wait is the exit code.
func (c *child) wait() int {
	c.t.Helper()
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(deadline):
		c.t.Fatal("the process has not ended in time")
		return -1
	}
}

// logged waits until the log has the text.
func (c *child) logged(text string) {
	c.t.Helper()
	eventually(c.t, func() error {
		if !strings.Contains(c.stderr.String(), text) {
			return fmt.Errorf("the log has no %q", text)
		}
		return nil
	})
}

// eventually waits until the condition returns nil.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %v", deadline, err)
		}
	}
}

// A reply is a response that was read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, url string) reply {
	t.Helper()
	r, err := tryGet(url)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryGet(url string) (reply, error) {
	client := &http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// metrics are the samples of a node, "name{labels}" to value as text.
func (c *child) metrics() map[string]string {
	c.t.Helper()
	samples := map[string]string{}
	sc := bufio.NewScanner(strings.NewReader(get(c.t, "http://"+c.ready.Admin+"/metrics").body))
	for sc.Scan() {
		if line := sc.Text(); !strings.HasPrefix(line, "#") {
			if i := strings.LastIndexByte(line, ' '); i > 0 {
				samples[line[:i]] = line[i+1:]
			}
		}
	}
	return samples
}

// lines collects what a process writes, and tells of its first line.
type lines struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	first chan struct{} // closed when there is a whole line
	seen  bool
}

func newLines() *lines { return &lines{first: make(chan struct{})} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	if !l.seen && bytes.IndexByte(p, '\n') >= 0 {
		l.seen = true
		close(l.first)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
