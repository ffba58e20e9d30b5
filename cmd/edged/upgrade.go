package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"edged/edge"
)

// takeoverWait bounds how long a new process may take from its start until it
// serves: it builds its filters and catalogs, and joins.
const takeoverWait = 2 * time.Minute

// An upgrade is this process's attempt to be replaced by another one of the
// same program file, which may have been exchanged meanwhile, with the same
// arguments: see [edge.Node.HandOver] for its course. At any failure before the
// new process has asked for this one's place, nothing has changed.
type upgrade struct {
	node   *edge.Node
	config edge.Config // as this process has it
	log    *slog.Logger

	canceled context.Context
	cancel   func() // ends the new process, unless it serves already

	// To be read once begin has returned.
	released bool // this process has left the cluster
	pid      int  // of the new process
}

func newUpgrade(node *edge.Node, config edge.Config, log *slog.Logger) *upgrade {
	u := &upgrade{node: node, config: config, log: log}
	u.canceled, u.cancel = context.WithTimeout(context.Background(), takeoverWait)
	return u
}

// begin starts the new process and returns when it serves.
func (u *upgrade) begin(p *process) error {
	defer u.cancel()
	if p.self == "" {
		return errors.New("the path of the program's file is not known")
	}
	client, peer, adm, err := u.node.ListenerFiles()
	if err != nil {
		return err
	}
	fromNew, toOld, err := os.Pipe()
	if err != nil {
		return err
	}
	defer fromNew.Close()
	fromOld, toNew, err := os.Pipe()
	if err != nil {
		return err
	}
	defer toNew.Close()
	passed, err := json.Marshal(handover{u.config.Listen.Address, u.config.Cluster.Peer, u.config.Admin.Address, u.node.Known()})
	if err != nil {
		return err
	}

	cmd := exec.Command(p.self, p.args...)
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	cmd.ExtraFiles = []*os.File{client, peer, adm, toOld, fromOld}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", handoverEnv:
		default:
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, handoverEnv+"="+string(passed))
	err = cmd.Start()
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if err != nil {
		return err
	}
	u.pid = cmd.Process.Pid
	exited := make(chan error, 1)
	go func() {
		exited <- cmd.Wait()
		fromNew.Close() // a process that it has left behind may hold the other end open
	}()
	defer context.AfterFunc(u.canceled, func() { cmd.Process.Kill() })()

	err = u.converse(bufio.NewReader(io.LimitReader(fromNew, 64)), toNew)
	if err != nil {
		cmd.Process.Kill()
		return fmt.Errorf("%w (the new process: %v)", err, <-exited)
	}
	return nil
}

// converse does what the new process asks for, until it serves. Its end shows
// as an end of what it says.
func (u *upgrade) converse(from *bufio.Reader, to io.Writer) error {
	for {
		word, err := from.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the new process does not serve: %w", err)
		}
		switch strings.TrimSuffix(word, "\n") {
		case wordRelease:
			u.log.Info("the new process is built: giving it this node's place in the cluster", "pid", u.pid)
			u.released = true
			if err := u.node.Release(); err != nil {
				return fmt.Errorf("leave the cluster: %w", err)
			}
			if _, err := io.WriteString(to, wordReleased+"\n"); err != nil {
				return fmt.Errorf("tell the new process: %w", err)
			}
		case wordReady:
			return nil
		default:
			return fmt.Errorf("the new process says %q", word)
		}
	}
}
