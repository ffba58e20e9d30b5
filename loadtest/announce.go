package loadtest

import (
	"fmt"
	"strings"
	"time"
)

// What a run takes beside the measuring, on two cores that share driver, nodes
// and origin (Intel Xeon, Go 1.26.8): 50 000 keys took 10 s, three nodes 4 s
// from their start until they were in step and after the run until they were
// gone. It is an estimate for the one who waits, and nothing depends on it.
const (
	prefillTime = 200 * time.Microsecond // a key
	clusterTime = 4 * time.Second        // to start, agree and stop
)

// announce prints what the run is and how long it will take.
func (r *runner) announce(s Scenario) {
	fmt.Fprintf(r.out, "Scenario %s", s.Name)
	if s.Description != "" {
		fmt.Fprintf(r.out, ": %s", s.Description)
	}
	fmt.Fprintln(r.out, ".")
	if len(s.Phases) > 1 {
		var phases []string
		for i, p := range s.Phases {
			phases = append(phases, fmt.Sprintf("%s %v at %s", p.title(i), p.Duration.Round(time.Millisecond), p.pace()))
		}
		fmt.Fprintf(r.out, "Phases: %s. --rate is that of the busiest one, the others are scaled with it; --duration is that of all together.\n", strings.Join(phases, ", "))
	}
	measure, prepare := s.duration(), preparation(s, len(r.opts.Targets) == 0)
	groups := ""
	if r.opts.Compare {
		measure, prepare, groups = 3*measure, 3*prepare, " in three runs"
	}
	fmt.Fprintf(r.out, "It takes about %v: %v of measuring%s, and about %v to prepare.\n",
		(measure + prepare).Round(time.Second), measure.Round(time.Second/10), groups, prepare.Round(time.Second))
}

// pace writes the rate, and where it goes.
func (p Phase) pace() string {
	from, to := p.rates()
	switch {
	case from == to:
		return fmt.Sprintf("%.4g/s", from)
	case p.Steps > 0:
		return fmt.Sprintf("%.4g/s to %.4g/s in %d steps", from, to, p.Steps)
	}
	return fmt.Sprintf("%.4g/s to %.4g/s", from, to)
}

// preparation is about how long one group takes beside its measuring; ours
// says that the cluster is to be started.
func preparation(s Scenario, ours bool) time.Duration {
	d := time.Second
	if ours {
		d = clusterTime
	}
	if s.Prefill {
		d += time.Duration(s.Keys) * max(prefillTime, s.Origin.Latency/prefillWorkers)
	}
	return d
}
