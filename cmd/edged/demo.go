package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"edged/loadtest"
)

// demoOptions is what edged demo was asked for.
type demoOptions struct {
	Nodes    int       // 1 to 64
	BasePort int       // client port of the first node; the others follow
	Out      io.Writer // tables
	Err      io.Writer // what happens to the nodes while they run
	Binary   string    // edged, to start the nodes with
}

// demoFormTimeout bounds the wait for the nodes to see each other.
const demoFormTimeout = 30 * time.Second

// runDemo starts a sample origin and a cluster in front of it, says what to
// try, and waits until ctx ends. It stops everything that it started before
// it returns. The error is nil when the demo started.
func runDemo(ctx context.Context, o demoOptions) error {
	origin, err := loadtest.NewOrigin(loadtest.OriginConfig{Latency: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	defer origin.Close()
	fmt.Fprintf(o.Out, "Starting %d nodes.\n", o.Nodes)
	fleet, err := loadtest.StartFleet(ctx, loadtest.FleetConfig{
		Binary: o.Binary, Nodes: o.Nodes, Origin: origin.URL(), BasePort: o.BasePort,
		Memory: 64 << 20, FilterKeys: 100_000, // it shares a laptop with other things
	})
	if err != nil {
		return demoStartError(ctx, err)
	}
	defer fleet.Close()
	formCtx, cancel := context.WithTimeoutCause(ctx, demoFormTimeout, fmt.Errorf("not formed after %v", demoFormTimeout))
	err = fleet.WaitFormed(formCtx)
	cancel()
	if err != nil {
		return demoStartError(ctx, err)
	}
	printDemo(o.Out, origin, fleet, o.Binary)
	watchDemo(ctx, o, fleet)
	fmt.Fprintln(o.Out, "\nStopping.")
	if err := fleet.Close(); err != nil {
		fmt.Fprintln(o.Err, "edged demo:", err)
	}
	return nil
}

// demoStartError adds what to do about a start that failed; a start that was
// interrupted is no failure.
func demoStartError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	var port *loadtest.PortError
	if errors.As(err, &port) {
		return fmt.Errorf("%w\nAnother program uses it; choose other ports with --base-port N", err)
	}
	return err
}

// watchDemo tells of nodes that die until ctx ends.
func watchDemo(ctx context.Context, o demoOptions, fleet *loadtest.Fleet) {
	died := make(chan *loadtest.Member)
	for _, m := range fleet.Members {
		go func() {
			select {
			case <-m.Done():
			case <-ctx.Done():
				return
			}
			select {
			case died <- m:
			case <-ctx.Done():
			}
		}()
	}
	for left := len(fleet.Members); ; {
		select {
		case <-ctx.Done():
			return
		case m := <-died:
			left--
			fmt.Fprintf(o.Err, "\nNode %s (pid %d) ended: %s. ", m.Name, m.Pid, cmp.Or(m.Exit(), "exit status 0"))
			if left > 0 {
				fmt.Fprintf(o.Err, "The other %d keep running.\n", left)
			} else {
				fmt.Fprintf(o.Err, "It was the last one; Ctrl-C ends the demo.\n")
			}
			if log := m.Log(); log != "" {
				fmt.Fprintf(o.Err, "Its last log lines:\n    %s\n", strings.ReplaceAll(log, "\n", "\n    "))
			}
		}
	}
}

func printDemo(w io.Writer, origin *loadtest.Origin, fleet *loadtest.Fleet, binary string) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "\nNODE\tCLIENTS\tSTATUS PAGE AND METRICS\tPID")
	for _, m := range fleet.Members {
		fmt.Fprintf(tw, "%s\thttp://%s/\t%s/\t%d\n", m.Name, m.Client, m.AdminURL(), m.Pid)
	}
	fmt.Fprintf(tw, "origin\t%s/\t\t\n", origin.URL())
	tw.Flush()

	first := fleet.Members[0]
	base := "http://" + first.Client
	fmt.Fprintln(tw, "\nTRY\tAND EXPECT")
	for _, row := range []struct{ path, expect string }{
		{"/", "a page with links and images, stored for a minute"},
		{loadtest.PagePath(1), "another one; its images are stored one by one"},
		{loadtest.ImagePath(1), "a PNG; with Range: bytes=0-99, a part of it"},
		{loadtest.SlowPath, fmt.Sprintf("%v the first time, at once after that; many at once at one node make one origin request", loadtest.SlowDelay)},
		{loadtest.ClockPath, "the time, at most one second old"},
		{loadtest.ClockNowPath, "the time, never stored"},
		{loadtest.MissingPath, "404, remembered for five seconds (detail=negative)"},
		{loadtest.KeyPath(1, 10<<20), "10 MiB of bytes that the path determines"},
	} {
		fmt.Fprintf(tw, "%s%s\t%s\n", base, row.path, row.expect)
	}
	tw.Flush()
	fmt.Fprintf(w, "\nStatus page: %s/\n", first.AdminURL())

	second := fleet.Members[min(1, len(fleet.Members)-1)]
	wait, expect := "sleep 1; ", second.Name+" has it from "+first.Name+" (peers learn of it within a second): detail=peer, no origin request"
	if second == first {
		wait, expect = "", "now it is a hit"
	}
	fmt.Fprintln(w, "\nThree lines worth trying; look at Cache-Status:")
	for _, line := range []struct{ wait, node, path, expect string }{
		{"", first.Client, loadtest.PagePath(2), first.Name + " asks the origin and stores the answer: detail=origin"},
		{wait, second.Client, loadtest.PagePath(2), expect},
		{"", second.Client, "/nobody-has-this", "no filter knows it, so no peer is asked; again: detail=negative"},
	} {
		fmt.Fprintf(w, "  # %s\n  %scurl -sD- -o/dev/null http://%s%s\n", line.expect, line.wait, line.node, line.path)
	}
	fmt.Fprintln(w, "\nThe same as on the status page:")
	fmt.Fprintf(w, "  %s status --admin %s\n", shellWord(binary), second.AdminURL())
	fmt.Fprintln(w, "\nCtrl-C stops everything.")
}

// shellWord is s as one word of a shell's command line.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
