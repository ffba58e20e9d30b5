package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"edged/loadtest"
)

// loadtestCmd groups what has to do with load tests; the name alone runs one.
type loadtestCmd struct {
	Run    loadtestRunCmd    `cmd:"" default:"withargs" help:"Measure a cluster, its own or a running one."`
	Diff   loadtestDiffCmd   `cmd:"" help:"Compare two reports; exit code 1 when the second is worse."`
	Trace  loadtestTraceCmd  `cmd:"" help:"Feed a key trace to the store's policy, without a network."`
	Worker loadtestWorkerCmd `cmd:"" hidden:"" help:"One of several driver processes, started by another one."`
}

type loadtestWorkerCmd struct{}

// Run drives a part of a load test, for the process at the other end of the
// standard streams. Ctrl-C at a terminal is for that one, which then closes
// our input.
func (loadtestWorkerCmd) Run(p *process) error {
	return loadtest.Work(context.Background(), p.stdin, p.stdout)
}

type loadtestRunCmd struct {
	Scenario string `arg:"" optional:"" placeholder:"SCENARIO|FILE" help:"steady (the default), flood, churn, hot, mixed, faults, or a YAML file."`

	Rate     *float64            `placeholder:"N" help:"Requests a second, all nodes together. In a scenario of several phases: the peak, that is of the busiest phase; the others are scaled with it."`
	Duration *time.Duration      `placeholder:"TIME" help:"Time to measure."`
	Nodes    *int                `placeholder:"N" help:"Nodes to start."`
	Keys     *count              `placeholder:"N" help:"Existing keys: 50000, 5e4 or 50k."`
	Absent   *loadtest.Share     `placeholder:"SHARE" help:"Share of the requests for keys that do not exist: 65% or 0.65."`
	Zipf     *float64            `placeholder:"S" help:"Exponent of the keys' popularity, such as 0.9; 0 is uniform."`
	Size     *loadtest.SizeRange `placeholder:"SIZE" help:"Size of bodies: 4KiB, or a range 1KiB-64KiB."`
	Seed     *uint64             `placeholder:"N" help:"Same seed, same requests."`

	Replay       string             `placeholder:"FILE" type:"path" help:"Replay an access log (Combined Log Format, JSON lines) in its own times, or a key trace (one key a line); may be gzip. With --rate only in its order."`
	ReplayFormat loadtest.LogFormat `placeholder:"FORMAT" enum:"auto,combined,json,keys" default:"auto" help:"auto (the default), combined, json or keys."`
	Speed        *float64           `placeholder:"N" help:"Replay so many times faster than it was."`

	NoFilters bool   `xor:"groups" help:"The control group: every local miss asks every peer."`
	Compare   bool   `xor:"groups" help:"With filters, without, and with the ring only, side by side."`
	Report    string `placeholder:"DIR" type:"path" help:"Write report.json and report.html there."`

	Target    []string `sep:"none" placeholder:"URL" help:"A running node to measure, rather than ones of its own; may be repeated."`
	Admin     []string `sep:"none" placeholder:"URL" help:"The targets' admin addresses, in the same order."`
	TokenFile string   `placeholder:"FILE" type:"path" help:"File with the token of those."`
	Host      string   `placeholder:"HOST" help:"Host of every request."`

	Connections *int `placeholder:"N" help:"Most requests in flight (512)."`
	Workers     *int `placeholder:"N" help:"Driver processes that share the requests (1)."`
}

func (loadtestRunCmd) Help() string {
	var scenarios strings.Builder
	for _, s := range loadtest.Scenarios() {
		var rate, absent float64
		var duration time.Duration
		for _, p := range s.Phases {
			rate, absent, duration = max(rate, p.Rate), max(absent, float64(p.Absent)), duration+p.Duration
		}
		fmt.Fprintf(&scenarios, "    %-7s --nodes %d --rate %g --duration %s --keys %d --size %v --absent %g%%\n",
			s.Name, s.Nodes, rate, formatDuration(duration), s.Keys, s.Size, absent*100)
	}
	return `Starts an origin and a cluster of this binary on loopback, sends requests on a schedule whatever the
answers' pace, checks every answer, and prints a summary. What is not given comes from the scenario:

` + scenarios.String() + `
loadtest/README.md says what each is about.

Examples:

    edged loadtest
    edged loadtest flood --rate 2000 --duration 20s --nodes 3 --compare
    edged loadtest steady --report out --target http://10.0.0.7:8080 --admin http://10.0.0.7:9901

Beside it: edged loadtest diff A.json B.json, edged loadtest trace FILE.

Exit code: 0, 1 when a threshold of the scenario (fail_if) is broken, the test failed or was interrupted, 2 for wrong usage.`
}

// Run executes one load test.
func (c *loadtestRunCmd) Run(p *process) error {
	opts := loadtest.Options{
		Scenario:  c.Scenario,
		Absent:    c.Absent,
		Zipf:      c.Zipf,
		Size:      c.Size,
		Seed:      c.Seed,
		Replay:    loadtest.ReplaySpec{File: c.Replay},
		NoFilters: c.NoFilters,
		Compare:   c.Compare,
		ReportDir: c.Report,
		Targets:   c.Target,
		Admins:    c.Admin,
		Host:      c.Host,
		Out:       p.stdout,
		Live:      isTerminal(p.stdout),
		Command:   append([]string{"edged"}, p.args...),
		Version:   readBuild().Version,
	}
	switch {
	case c.Replay != "":
		opts.Replay.Format = c.ReplayFormat
	case c.Speed != nil || c.ReplayFormat != loadtest.FormatAuto:
		return usagef("--speed and --replay-format are about --replay FILE")
	}
	if c.Speed != nil && c.Rate != nil {
		return usagef("--rate replays in an order, --speed in times: want one of the two")
	}
	var keys *int
	if c.Keys != nil {
		keys = (*int)(c.Keys)
	}
	if err := errors.Join(
		given(&opts.Rate, c.Rate, "--rate", "requests a second, such as 2000"),
		given(&opts.Duration, c.Duration, "--duration", "a time, such as 30s"),
		given(&opts.Nodes, c.Nodes, "--nodes", "a number from 1"),
		given(&opts.Keys, keys, "--keys", "a number from 1"),
		given(&opts.Replay.Speed, c.Speed, "--speed", "a factor, such as 10"),
		given(&opts.Workers, c.Workers, "--workers", "a number from 1"),
		given(&opts.Connections, c.Connections, "--connections", "a number from 1"),
	); err != nil {
		return usageError{err}
	}
	var err error
	if c.TokenFile != "" {
		if opts.AdminToken, err = readToken(c.TokenFile); err != nil {
			return err
		}
	}
	if opts.Binary, err = thisProgram(); err != nil {
		return err
	}
	if opts.OwnNetwork, err = ownNetwork(opts); err != nil {
		return usageOf(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	_, err = loadtest.Run(ctx, opts)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return usageOf(err)
}

// networkVar says to the process that takes this one's place that it is in a
// network namespace of its own. Its children are not told.
const networkVar = "EDGED_LOADTEST_NETWORK"

// ownNetwork reports whether this process is in a network namespace of its own.
// When the scenario wants one, and it is not, another takes its place.
func ownNetwork(opts loadtest.Options) (bool, error) {
	if os.Getenv(networkVar) != "" {
		return true, os.Unsetenv(networkVar)
	}
	return false, loadtest.EnterNetwork(opts, os.Args, append(os.Environ(), networkVar+"=own"))
}

// given takes the value of a flag that must be above 0 where it is given: an
// option's zero means the default, which nobody asks for by writing 0.
func given[T int | float64 | time.Duration](to, flag *T, name, want string) error {
	switch {
	case flag == nil:
		return nil
	case !(*flag > 0) || math.IsInf(float64(*flag), 0):
		return fmt.Errorf("%s %v: want %s", name, *flag, want)
	}
	*to = *flag
	return nil
}
