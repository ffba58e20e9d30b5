package loadtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxReadyLine  = 64 << 10
	maxStderrTail = 16 << 10

	// drainGrace is how long a node may take to stop after SIGTERM before it is
	// killed. Its own drain is bounded by 30 s; a fleet has no clients left by
	// then, so one that takes longer hangs.
	drainGrace = 10 * time.Second
)

// Member is one edged process of a [Fleet]. Its addresses are host:port and
// never change.
type Member struct {
	Name   string
	Client string
	Peer   string
	Gossip string
	Admin  string
	Pid    int

	cmd    *exec.Cmd
	ready  *readyLine
	stderr *tail
	done   chan struct{} // closed when the process is gone

	planned atomic.Bool // its end is a fault of the scenario

	err error // how it ended; written before done is closed
}

// AdminURL returns the base URL of the admin API and the status page.
func (m *Member) AdminURL() string { return "http://" + m.Admin }

// Done is closed when the process is gone.
func (m *Member) Done() <-chan struct{} { return m.done }

// Exit tells how a process that is gone ended: "exit status 1", "signal:
// killed". It is empty after status 0, and before the end.
func (m *Member) Exit() string {
	select {
	case <-m.done:
	default:
		return ""
	}
	if m.err == nil {
		return ""
	}
	return m.err.Error()
}

// Log returns the last lines that the process wrote to standard error.
func (m *Member) Log() string { return m.stderr.String() }

// startMember starts a process. The result is not ready yet; see waitReady.
// It is node i of net, or on loopback when that is nil.
func startMember(name, binary string, args []string, net *bridge, i int) (*Member, error) {
	m := &Member{
		Name:   name,
		cmd:    exec.Command(binary, args...),
		ready:  &readyLine{found: make(chan struct{})},
		stderr: &tail{},
		done:   make(chan struct{}),
	}
	m.cmd.Stdout, m.cmd.Stderr = m.ready, m.stderr
	m.cmd.WaitDelay = 2 * time.Second // for pipes that a grandchild holds open
	if err := net.started(m.cmd, i, func(exit error) {
		m.err = exit
		close(m.done)
	}); err != nil {
		return nil, fmt.Errorf("start node %s: %w", name, err)
	}
	m.Pid = m.cmd.Process.Pid
	return m, nil
}

// waitReady waits for the ready line and takes the addresses from it, or holds
// it against those that the member has already: others may be reading them.
func (m *Member) waitReady(deadline <-chan struct{}) error {
	select {
	case <-m.ready.found:
	case <-m.done:
		// The line may have come just before the end.
		return fmt.Errorf("node %s ended before it was ready: %s%s", m.Name, m.exitOr("exit status 0"), m.lastWords())
	case <-deadline:
		return fmt.Errorf("node %s is not ready in time%s", m.Name, m.lastWords())
	}
	r, err := m.ready.parse()
	if err != nil {
		return fmt.Errorf("node %s: %w", m.Name, err)
	}
	if r.Name != m.Name {
		return fmt.Errorf("node %s calls itself %q in its ready line", m.Name, r.Name)
	}
	if m.Client == "" {
		m.Client, m.Peer, m.Gossip, m.Admin = r.Client, r.Peer, r.Gossip, r.Admin
	} else if m.Client != r.Client || m.Peer != r.Peer || m.Gossip != r.Gossip || m.Admin != r.Admin {
		return fmt.Errorf("node %s does not listen at the addresses that it had", m.Name)
	}
	return nil
}

func (m *Member) exitOr(clean string) string {
	if e := m.Exit(); e != "" {
		return e
	}
	return clean
}

// lastWords returns the log for an error message.
func (m *Member) lastWords() string {
	log := strings.TrimSpace(m.Log())
	if log == "" {
		return ""
	}
	return "; its last log lines:\n    " + strings.ReplaceAll(log, "\n", "\n    ")
}

// Kill ends the process at once, as kill -9 does, and waits until it is gone.
func (m *Member) Kill() error {
	err := m.cmd.Process.Kill()
	<-m.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop asks the process to stop (SIGTERM), waits, and kills it when it has not
// stopped after ten seconds. It returns an error when the process had to be
// killed or ended with a status other than 0, none when it was gone before.
func (m *Member) Stop() error {
	select {
	case <-m.done:
		return nil
	default:
	}
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.cmd.Process.Kill()
	}
	grace := time.NewTimer(drainGrace)
	defer grace.Stop()
	select {
	case <-m.done:
	case <-grace.C:
		m.cmd.Process.Kill()
		<-m.done
		return fmt.Errorf("node %s did not stop within %v and was killed", m.Name, drainGrace)
	}
	if e := m.Exit(); e != "" {
		return fmt.Errorf("node %s: %s", m.Name, e)
	}
	return nil
}

// readyLine receives a process's standard output and keeps its first line.
type readyLine struct {
	found chan struct{} // closed when the line is complete, or too long

	mu   sync.Mutex
	line []byte
	over bool
}

// Write never fails, so that a node that prints too much is not stopped by a
// broken pipe.
func (r *readyLine) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return len(p), nil
	}
	line, _, complete := bytes.Cut(p, []byte("\n"))
	r.line = append(r.line, line[:min(len(line), maxReadyLine-len(r.line))]...)
	if complete || len(r.line) == maxReadyLine {
		r.over = true
		close(r.found)
	}
	return len(p), nil
}

// readyEvent is the ready line of edged run.
type readyEvent struct {
	Event  string `json:"event"`
	Name   string `json:"name"`
	Client string `json:"client"`
	Peer   string `json:"peer"`
	Gossip string `json:"gossip"`
	Admin  string `json:"admin"`
	Pid    int    `json:"pid"`
}

func (r *readyLine) parse() (readyEvent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e readyEvent
	if err := json.Unmarshal(r.line, &e); err != nil || e.Event != "ready" || e.Client == "" || e.Admin == "" {
		return e, fmt.Errorf("its first line is not a ready line: %.200q", r.line)
	}
	return e, nil
}

// tail keeps the last lines of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(0, len(p)-maxStderrTail):]
	if over := len(t.buf) + len(p) - maxStderrTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// maxTailLines of a log are shown.
const maxTailLines = 15

// String returns the last lines, none of them cut unless it is longer than
// what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimRight(string(t.buf), "\n"), "\n")
	if len(t.buf) == maxStderrTail && len(lines) > 1 {
		lines = lines[1:]
	}
	return strings.Join(lines[max(0, len(lines)-maxTailLines):], "\n")
}
