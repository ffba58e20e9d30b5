package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// contains returns what the output lacks.
func contains(out *lines, want ...string) error {
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			return fmt.Errorf("%q lacks %q", out, w)
		}
	}
	return nil
}

// cacheStatus asks for a URL and returns the status and Cache-Status.
func cacheStatus(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Cache-Status")
}

func TestDemo_showsAClusterAndKeepsItThroughADeath(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs, done := newLines(), newLines(), make(chan error, 1)
	binary := edgedBinary(t) // built first: on a busy machine this takes longer than the demo may
	go func() { done <- runDemo(ctx, demoOptions{Nodes: 2, Out: out, Err: errs, Binary: binary}) }()
	eventually(t, func() error {
		select {
		case err := <-done:
			t.Fatalf("the demo ended: %v", err)
		default:
		}
		return contains(out, "Ctrl-C stops everything.")
	})
	text := out.String()
	nodes := regexp.MustCompile(`(?m)^(edge-[ab])\s+(http://\S+)/\s+(http://\S+)/\s+(\d+)$`).FindAllStringSubmatch(text, -1)
	if len(nodes) != 2 {
		t.Fatalf("%d nodes in the table, want 2:\n%s", len(nodes), text)
	}
	a, b := nodes[0][2], nodes[1][2]

	// What the table says is what one gets.
	for _, tc := range []struct {
		path   string
		status int
	}{{"/", 200}, {"/pages/1", 200}, {"/images/1.png", 200}, {"/slow", 200}, {"/clock", 200}, {"/clock/now", 200}, {"/missing", 404}, {"/k/10485760/1", 200}} {
		if !strings.Contains(text, a+tc.path+" ") {
			t.Errorf("the table lacks %s", tc.path)
		}
		if status, _ := cacheStatus(t, a+tc.path); status != tc.status {
			t.Errorf("%s: status %d, want %d", tc.path, status, tc.status)
		}
	}

	// The three lines: the origin, a peer, nobody. A filter needs a moment to
	// reach the other node, so the second line waits; here it is tried with
	// more keys.
	curl := regexp.MustCompile(`(?m)^  (sleep 1; )?curl .*http://127\.0\.0\.1:\d+/\S+$`).FindAllStringSubmatch(text, -1)
	if len(curl) != 3 || curl[0][1] != "" || curl[1][1] == "" || curl[2][1] != "" {
		t.Errorf("curl lines %q; want three, the second one with a pause:\n%s", curl, text)
	}
	// The line for the status runs as it stands, wherever the program is.
	status := regexp.MustCompile(`(?m)^  (\S+) status --admin (\S+)$`).FindStringSubmatch(text)
	if status == nil {
		t.Fatalf("no status line:\n%s", text)
	}
	if got, err := exec.Command(status[1], "status", "--admin", status[2]).Output(); err != nil || !strings.Contains(string(got), "edge-b *") {
		t.Errorf("%s: %v\n%s", status[0], err, got)
	}
	if _, cs := cacheStatus(t, a+"/pages/2"); !strings.Contains(cs, "detail=origin") {
		t.Errorf("first line: %q, want detail=origin", cs)
	}
	key := 1000
	eventually(t, func() error {
		// The keys of the last ten polls are at a; the oldest one had half a
		// second to be announced, and b is asked for it for the first time.
		cacheStatus(t, fmt.Sprintf("%s/k/100/%d", a, key))
		key++
		if key < 1010 {
			return errors.New("no key had time to be announced")
		}
		if _, cs := cacheStatus(t, fmt.Sprintf("%s/k/100/%d", b, key-10)); !strings.Contains(cs, "detail=peer") {
			return fmt.Errorf("second line: %q, want detail=peer", cs)
		}
		return nil
	})
	// A request right behind the first may still join it.
	eventually(t, func() error {
		if status, cs := cacheStatus(t, b+"/nobody-has-this"); status != 404 || !strings.Contains(cs, "detail=negative") {
			return fmt.Errorf("third line, again: %d, %q, want 404 and detail=negative", status, cs)
		}
		return nil
	})

	pid, err := strconv.Atoi(nodes[1][4])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return contains(errs, "Node edge-b", "signal: killed", "The other 1 keep running.") })
	if status, _ := cacheStatus(t, a+"/pages/1"); status != 200 {
		t.Errorf("the other node answers %d", status)
	}

	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the demo ended with %v", err)
		}
	case <-time.After(deadline):
		t.Fatal("the demo does not end")
	}
	pid, _ = strconv.Atoi(nodes[0][4])
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("node edge-a was left running")
	}
}

func TestDemo_saysWhichPortIsTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	err = runDemo(t.Context(), demoOptions{Nodes: 1, BasePort: port, Out: newLines(), Err: newLines(), Binary: edgedBinary(t)})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d", port)) || !strings.Contains(err.Error(), "--base-port") {
		t.Errorf("got %v, want an error with the port and the flag", err)
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/bin/edged": "/usr/bin/edged", "/a b/edged": "'/a b/edged'", "/it's": `'/it'\''s'`, "/$x": "'/$x'", "": "''",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s; want %s", in, got, want)
		}
	}
}
