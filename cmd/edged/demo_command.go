package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

type demoCmd struct {
	Nodes    int `default:"3" placeholder:"N" help:"Nodes to start (${default})."`
	BasePort int `default:"8080" placeholder:"PORT" help:"First port that clients use, one a node (${default})."`
}

func (demoCmd) Help() string {
	return `Starts a sample origin and a cluster of this binary on loopback, and prints what to try. Ctrl-C stops all of it.

Examples:

    edged demo
    edged demo --nodes 5 --base-port 9000`
}

// Run shows a cluster until a signal.
func (c *demoCmd) Run(p *process) error {
	if c.Nodes < 1 || c.Nodes > 64 {
		return usagef("--nodes %d: want 1 to 64", c.Nodes)
	}
	if c.BasePort < 0 || c.BasePort > 65535-c.Nodes {
		return usagef("--base-port %d: want 0 to %d for %d nodes", c.BasePort, 65535-c.Nodes, c.Nodes)
	}
	binary, err := thisProgram()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	return runDemo(ctx, demoOptions{Nodes: c.Nodes, BasePort: c.BasePort, Out: p.stdout, Err: p.stderr, Binary: binary})
}

// thisProgram is the file that this process runs, to start nodes with.
func thisProgram() (string, error) {
	file, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program, to start nodes with: %w", err)
	}
	return file, nil
}
