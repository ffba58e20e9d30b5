package loadtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Fault is something that goes wrong on a schedule.
type Fault struct {
	At   time.Duration `yaml:"at"`   // since the start of the measurement
	Do   FaultKind     `yaml:"do"`   //
	Node int           `yaml:"node"` // which one, from 1; of the faults of nodes
	// For is how long it lasts. A killed node is started again after it, at the
	// same addresses and with an empty store; 0: it stays dead. The others want
	// more than 0, but for restart, which takes what it takes.
	For     time.Duration `yaml:"for"`
	Latency time.Duration `yaml:"latency"` // of slow_origin
	Errors  Share         `yaml:"errors"`  // of failing_origin: this part of its answers is 503
}

// FaultKind is what goes wrong.
type FaultKind string

// The faults.
const (
	FaultKill          FaultKind = "kill"           // kill -9
	FaultPause         FaultKind = "pause"          // SIGSTOP, and SIGCONT after it
	FaultRestart       FaultKind = "restart"        // SIGTERM, and a start when it is gone
	FaultPartition     FaultKind = "partition"      // no packets between the node and the others; clients and origin reach it
	FaultSlowOrigin    FaultKind = "slow_origin"    // latency before each answer
	FaultFailingOrigin FaultKind = "failing_origin" // 503
)

func faultKinds() []FaultKind {
	return []FaultKind{FaultKill, FaultPause, FaultRestart, FaultPartition, FaultSlowOrigin, FaultFailingOrigin}
}

// ofNode reports whether the fault is one of a node.
func (f Fault) ofNode() bool { return slices.Contains(faultKinds()[:4], f.Do) }

// String says what happens, "kill edge-b for 5s".
func (f Fault) String() string {
	text := string(f.Do)
	switch f.Do {
	case FaultKill, FaultPause, FaultRestart:
		text += " " + nodeName(f.Node-1)
	case FaultPartition:
		text = nodeName(f.Node-1) + " cut off from the others"
	case FaultSlowOrigin:
		text = "origin slow by " + f.Latency.String()
	case FaultFailingOrigin:
		text = "origin fails " + f.Errors.String()
	}
	if f.For > 0 {
		text += " for " + f.For.Round(time.Millisecond).String()
	}
	return text
}

// complaints are what is wrong with the fault in a scenario of so many nodes
// and such a length.
func (f Fault) complaints(nodes int, length time.Duration, bad func(field, format string, args ...any)) {
	if !slices.Contains(faultKinds(), f.Do) {
		bad(".do", "%q: want one of %v", f.Do, faultKinds())
		return
	}
	if f.At < 0 || f.At > length {
		bad(".at", "%v: want 0s to the end, %v", f.At, length)
	}
	if f.For < 0 || f.For > 24*time.Hour || f.For == 0 && f.Do != FaultKill && f.Do != FaultRestart {
		bad(".for", "%v: want above 0s and up to 24h", f.For)
	}
	switch {
	case f.ofNode() && (f.Node < 1 || f.Node > nodes):
		bad(".node", "%d: want 1 to %d", f.Node, nodes)
	case f.Do == FaultPartition && nodes < 2:
		bad(".do", "a node alone has nobody to be cut off from: want 2 nodes or more")
	case !f.ofNode() && f.Node != 0:
		bad(".node", "%d: the fault is of the origin", f.Node)
	case f.Do == FaultSlowOrigin && (f.Latency <= 0 || f.Latency > time.Minute):
		bad(".latency", "%v: want above 0s and up to 1m", f.Latency)
	case f.Do == FaultFailingOrigin && f.Errors <= 0:
		bad(".errors", "%v: want above 0%%", f.Errors)
	}
}

// overlaps complains of faults of one node at the same time: one of a process
// that is dead, hangs or starts already would fail in the middle of a run.
// Origin faults may overlap, the worst counts.
func overlaps(list []Fault, bad func(i int, format string, args ...any)) {
	order := make([]int, 0, len(list))
	for i, f := range list {
		if f.ofNode() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[a].At, list[b].At) })
	last := map[int]int{} // of each node, the fault that ends last of those so far
	for _, i := range order {
		f := list[i]
		j, met := last[f.Node]
		if !met {
			last[f.Node] = i
			continue
		}
		before := list[j]
		switch {
		case before.Do == FaultKill && before.For == 0:
			bad(i, "%v: %s is dead since %v, by faults[%d]: want it before that, or a \"for\" there, after which it is started again", f.At, nodeName(f.Node-1), before.At, j)
			continue
		case f.At < before.At+before.For:
			bad(i, "%v: %v of faults[%d] lasts until %v: want that time or a later one, or another node", f.At, before, j, before.At+before.For)
		case f.At == before.At:
			bad(i, "%v: %v of faults[%d] is at the same time: want a later one, or another node", f.At, before, j)
		}
		if f.Do == FaultKill && f.For == 0 || f.At+f.For >= before.At+before.For {
			last[f.Node] = i
		}
	}
}

// faults runs the faults of a scenario on a cluster of ours.
type faults struct {
	c   *cluster
	mon *monitor

	// One token a node: a fault waits until the one before it is over, also
	// when the node took longer to start again than the scenario thought.
	busy []chan struct{}

	mu   sync.Mutex
	slow []time.Duration // in force
	fail []Share
	errs []error
}

// run has each fault happen at its time, until ctx ends. Then everything that
// was paused goes on, and what was to be started again is not. It returns what
// could not be done.
func (fs *faults) run(ctx context.Context, list []Fault, start time.Time) error {
	fs.busy = make([]chan struct{}, len(fs.c.targets))
	for i := range fs.busy {
		fs.busy[i] = make(chan struct{}, 1)
	}
	var wg sync.WaitGroup
	for _, f := range list {
		wg.Go(func() {
			if !sleepUntil(ctx, start.Add(f.At)) {
				return
			}
			if f.ofNode() {
				token := fs.busy[f.Node-1]
				select {
				case token <- struct{}{}:
					defer func() { <-token }()
				case <-ctx.Done():
					return
				}
			}
			if err := fs.happen(ctx, f); err != nil && ctx.Err() == nil {
				fs.mu.Lock()
				fs.errs = append(fs.errs, fmt.Errorf("%v: %w", f, err))
				fs.mu.Unlock()
				fs.mon.event(fmt.Sprintf("%v: %v", f, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(fs.errs...)
}

// sleepUntil reports whether the time came before ctx ended.
func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (fs *faults) happen(ctx context.Context, f Fault) error {
	began := time.Now()
	fs.mon.fault(f.String(), f.For)
	over := func() bool { return f.For > 0 && sleepUntil(ctx, began.Add(f.For)) }
	switch f.Do {
	case FaultKill:
		m := fs.c.fleet.member(f.Node - 1)
		m.planned.Store(true)
		if err := m.Kill(); err != nil {
			return err
		}
		if over() {
			return fs.c.fleet.restart(ctx, f.Node-1)
		}
	case FaultRestart:
		m := fs.c.fleet.member(f.Node - 1)
		m.planned.Store(true)
		if err := m.Stop(); err != nil {
			return err
		}
		return fs.c.fleet.restart(ctx, f.Node-1)
	case FaultPause:
		p := fs.c.fleet.member(f.Node - 1).cmd.Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		over()
		if err := p.Signal(syscall.SIGCONT); !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	case FaultPartition:
		net := fs.c.net
		if err := net.cut(f.Node-1, true); err != nil {
			return err
		}
		over()
		return net.cut(f.Node-1, false)
	case FaultSlowOrigin:
		fs.disturb(func() { fs.slow = append(fs.slow, f.Latency) })
		over()
		fs.disturb(func() { fs.slow = without(fs.slow, f.Latency) })
	case FaultFailingOrigin:
		fs.disturb(func() { fs.fail = append(fs.fail, f.Errors) })
		over()
		fs.disturb(func() { fs.fail = without(fs.fail, f.Errors) })
	}
	return nil
}

// disturb changes what is in force and tells the origin: the worst counts.
func (fs *faults) disturb(change func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	change()
	var d Disturbance
	for _, l := range fs.slow {
		d.Latency = max(d.Latency, l)
	}
	for _, e := range fs.fail {
		d.Errors = max(d.Errors, e)
	}
	fs.c.origin.Disturb(d)
}

// without is the list without one of the given value.
func without[T comparable](list []T, v T) []T {
	if i := slices.Index(list, v); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
