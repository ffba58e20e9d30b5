package loadtest

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrThreshold is in the error that [Run] returns, together with a complete
// report, when a fail_if line of the scenario holds.
var ErrThreshold = errors.New("threshold broken")

// ErrUsage is in the errors of [Run] that say that the options or the
// scenario file are wrong: nothing was started.
var ErrUsage = errors.New("usage")

// Options says what to run and where. What is empty comes from the scenario.
type Options struct {
	// Scenario is the name of a built-in scenario (see [Scenarios]) or the
	// path of a YAML file; empty: "steady".
	Scenario string

	Rate     float64       // requests a second, all nodes together; 0: the scenario's
	Duration time.Duration // of the measured part; phases keep their proportions; 0: the scenario's
	Nodes    int           // edged processes to start; 0: the scenario's
	Keys     int           // existing keys; 0: the scenario's
	Absent   *Share        // part of the requests that asks for keys that do not exist; nil: the scenario's
	Zipf     *float64      // exponent of the popularity, 0 is uniform; nil: the scenario's
	Size     *SizeRange    // of bodies; nil: the scenario's
	Seed     *uint64       // same seed, same requests at the same times; nil: the scenario's

	// Replay takes the place of the scenario's requests when it has a file. With
	// a Rate, only the order of the requests is the log's.
	Replay ReplaySpec

	NoFilters bool // the control group: every local miss asks every peer
	Compare   bool // with filters, without, and with the ring only, with the same seed

	// ReportDir receives report.json and report.html and is created when it
	// does not exist; empty: no files.
	ReportDir string

	// Targets are base URLs of running nodes ("http://10.0.0.1:8080"), used
	// instead of starting a fleet. Their origin must be an [Origin], such as
	// the one of edged demo. Admins are the nodes' admin URLs in the same
	// order; without them the report has only what the driver saw.
	Targets []string
	Admins  []string
	// AdminToken is sent to the admins as a bearer token; empty: none.
	AdminToken string
	// Host is the Host of every request, so that all nodes compute the same
	// cache keys; empty: "loadtest.test", or the first target's.
	Host string

	// Connections bounds the requests in flight; 0: 512. A schedule that needs
	// more starts requests late, which the latencies and the report show.
	Connections int

	// Workers is the number of driver processes, among which the requests and
	// the connections are shared out; 0 or 1: this process is the only one.
	Workers int

	// OwnNetwork says that the process is in a network namespace of its own,
	// in which faults may cut nodes off from each other, see [EnterNetwork].
	OwnNetwork bool

	Binary string    // edged, to start nodes and workers with; required without Targets
	Out    io.Writer // progress and summary; nil: discarded
	Live   bool      // Out is a terminal, on which a line can be written over
	// Command is kept in the report, to repeat the run by.
	Command []string
	Version string // of edged, kept in the report
}

// Run executes one load test and returns its report. It stops all that it
// started before it returns, also when ctx ends early: the report then covers
// what was measured until then and the error is the cause of ctx.
//
// The error wraps [ErrThreshold] when the test ran but a threshold is broken,
// [ErrUsage] when the options are wrong.
func Run(ctx context.Context, o Options) (Report, error) {
	r := runner{opts: o, out: o.Out}
	if r.out == nil {
		r.out = io.Discard
	}
	return r.run(ctx)
}
