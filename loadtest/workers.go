package loadtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// One driver process is bounded by its scheduler and its collector before the
// machine is full. So a run can have several: each has the whole schedule and
// takes every nth arrival, and sends what it saw, latencies as a HdrHistogram,
// to the one that merges. Between them go lines of JSON: first the job, then
// "ready", then the start time, then a share twice a second. The worker ends
// with its standard input, so also with the process that started it.

const (
	maxWorkers       = 64
	shareInterval    = 500 * time.Millisecond
	maxShareBytes    = 16 << 20
	maxJobBytes      = 64 << 20
	workerStartDelay = 200 * time.Millisecond // so that all have the start time before it comes
)

// workerArgs are the arguments that make the binary a worker, see [Work].
func workerArgs() []string { return []string{"loadtest", "worker"} }

// job is what a worker is to do.
type job struct {
	Scenario    Scenario `json:"scenario"`
	Targets     []string `json:"targets"` // host:port
	Host        string   `json:"host"`
	Connections int      `json:"connections"`
	Index       int      `json:"index"`
	Of          int      `json:"of"`
}

// Work makes the process one of several drivers of a load test; it is what
// "edged loadtest worker" does. It reads what to do from in, tells to out what
// it sees, and returns after the schedule, or when in or ctx ends.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := json.NewDecoder(io.LimitReader(in, maxJobBytes))
	var j job
	if err := lines.Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := j.Scenario.problems(); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if j.Of < 1 || j.Index < 0 || j.Index >= j.Of || len(j.Targets) == 0 || j.Connections < 1 {
		return fmt.Errorf("job: part %d of %d, %d targets, %d connections", j.Index, j.Of, len(j.Targets), j.Connections)
	}
	all, length, err := arrivalsOf(j.Scenario, len(j.Targets))
	if err != nil {
		return err
	}
	rec := newRecorder()
	d := newDriver(j.Targets, j.Host, j.Connections, rec)
	enc := json.NewEncoder(out)
	if err := enc.Encode("ready"); err != nil {
		return err
	}
	var wall int64
	if err := lines.Decode(&wall); err != nil {
		return fmt.Errorf("read the start time: %w", err)
	}
	start := time.Now().Add(time.Until(time.Unix(0, wall))) // with a monotonic clock
	go func() {
		io.Copy(io.Discard, in)
		cancel()
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.run(ctx, &everyNth{all: all, index: j.Index, of: j.Of}, start, length, requestTimeout)
	}()
	ticker := time.NewTicker(shareInterval)
	defer ticker.Stop()
	for {
		last := false
		select {
		case <-ticker.C:
		case <-done:
			last = true
		}
		s, err := rec.cut()
		if err != nil {
			return err
		}
		s.Done = last
		if err := enc.Encode(s); err != nil || last {
			return err
		}
	}
}

// remote is a worker process as the one that merges sees it.
type remote struct {
	index int
	in    io.WriteCloser
	lines *bufio.Scanner
	words *tail
	done  chan struct{}
	exit  error
}

// startWorkers starts n processes and waits until all have their part of the
// schedule. On an error none is left.
func startWorkers(ctx context.Context, binary string, n int, j job) (_ []*remote, err error) {
	var rs []*remote
	defer func() {
		if err != nil {
			stopWorkers(rs)
		}
	}()
	for i := range n {
		cmd := exec.Command(binary, workerArgs()...)
		r := &remote{index: i, words: &tail{}, done: make(chan struct{})}
		cmd.Stderr = r.words
		if r.in, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
		out, w := io.Pipe()
		cmd.Stdout = w
		r.lines = bufio.NewScanner(out)
		r.lines.Buffer(nil, maxShareBytes)
		if err := spawn(cmd, nil, func(exit error) {
			r.exit = exit
			w.Close()
			close(r.done)
		}); err != nil {
			return nil, fmt.Errorf("start driver process %d: %w", i+1, err)
		}
		rs = append(rs, r)
		// A pipe holds less than a long scenario, so this may wait for the process.
		j.Index, j.Of, j.Connections = i, n, max(j.Connections, 1)
		if err := json.NewEncoder(r.in).Encode(j); err != nil {
			return nil, r.failed(err)
		}
	}
	stop := context.AfterFunc(ctx, func() { closeInputs(rs) })
	defer stop()
	for _, r := range rs {
		if !r.lines.Scan() || r.lines.Text() != `"ready"` {
			return nil, r.failed(r.lines.Err())
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return rs, nil
}

func closeInputs(rs []*remote) {
	for _, r := range rs {
		r.in.Close()
	}
}

// stopWorkers ends the processes and waits until they are gone.
func stopWorkers(rs []*remote) {
	closeInputs(rs)
	for _, r := range rs {
		for r.lines.Scan() { // until it has written everything
		}
		<-r.done
	}
}

// failed is an error with the process's own words. It waits for its end.
func (r *remote) failed(err error) error {
	r.in.Close()
	for r.lines.Scan() {
	}
	<-r.done
	if r.exit != nil {
		err = r.exit // what we saw of it, such as a closed pipe, says less
	}
	if err == nil {
		err = errors.New("it stopped before it was done")
	}
	text := fmt.Errorf("driver process %d: %w", r.index+1, err)
	if log := r.words.String(); log != "" {
		return fmt.Errorf("%w: %s", text, log)
	}
	return text
}

// runWorkers has the processes send their parts from start on, and merges what
// they see into rec, until all are done. When one fails the others are stopped.
func runWorkers(ctx context.Context, rs []*remote, rec *recorder, start time.Time) error {
	stop := context.AfterFunc(ctx, func() { closeInputs(rs) })
	defer stop()
	rec.begin(start)
	errs := make([]error, len(rs))
	var wg sync.WaitGroup
	for i, r := range rs {
		wg.Go(func() {
			if errs[i] = r.follow(rec, start); errs[i] != nil {
				closeInputs(rs)
			}
		})
	}
	wg.Wait()
	rec.end(time.Now())
	stopWorkers(rs)
	if ctx.Err() != nil {
		return nil // they were told to
	}
	return errors.Join(errs...)
}

// follow merges a process's shares until the last one.
func (r *remote) follow(rec *recorder, start time.Time) error {
	if err := json.NewEncoder(r.in).Encode(start.UnixNano()); err != nil {
		return r.failed(err)
	}
	for r.lines.Scan() {
		var s share
		if err := json.Unmarshal(r.lines.Bytes(), &s); err != nil {
			return r.failed(err)
		}
		if err := rec.merge(s); err != nil {
			return r.failed(err)
		}
		if s.Done {
			return nil
		}
	}
	return r.failed(r.lines.Err())
}
