package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// formTimeout bounds the forming of the cluster, and how long replicas may
	// take to be in step after the prefill.
	formTimeout = time.Minute

	// inStepFor is how long all replicas must be live before they count as in
	// step: a record that is still on its way shows as a gap within that time.
	inStepFor = time.Second

	// settleTimeout bounds the wait for the nodes' counters to stand still: a
	// node counts a request after its last byte has left.
	settleTimeout = 3 * time.Second

	// prefillWorkers store keys at once; more would measure the nodes before
	// the test does.
	prefillWorkers = 32

	defaultHost = "loadtest.test"
)

// runner is one call of Run.
type runner struct {
	opts Options
	out  io.Writer
}

func (r *runner) run(ctx context.Context) (Report, error) {
	s, err := scenarioOf(r.opts)
	if err == nil {
		err = r.checkOptions(s, r.opts.OwnNetwork)
	}
	if err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	rep := Report{
		Scenario: s, Command: r.opts.Command, Version: r.opts.Version,
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Started: time.Now().UTC(),
	}
	if dir := r.opts.ReportDir; dir != "" { // before the work, not after it
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Report{}, fmt.Errorf("make a directory for the report: %w", err)
		}
	}
	r.announce(s)
	first := modeFilters
	if r.opts.NoFilters {
		first = modeAskAll
	}
	rep.Group, err = r.group(ctx, s, first)
	if err == nil && r.opts.Compare {
		with := rep.Group
		rep.WithFilters = &with
		var without, ring Group
		if without, err = r.group(ctx, s, modeAskAll); err == nil {
			rep.NoFilters, rep.Comparison = &without, compare(&with, &without, nil)
		}
		if err == nil && ctx.Err() == nil {
			if ring, err = r.group(ctx, s, modeRing); err == nil {
				rep.RingOnly, rep.Comparison = &ring, compare(&with, &without, &ring)
			}
		}
	}
	rep.Interrupted = ctx.Err() != nil
	if err != nil && (!rep.Interrupted || rep.Requests == 0) {
		return rep, err
	}
	rep.judge()
	rep.summarise(r.out)
	if r.opts.ReportDir != "" {
		if err := rep.write(r.opts.ReportDir); err != nil {
			return rep, err
		}
		fmt.Fprintf(r.out, "\nReport: %s/report.json and report.html\n", r.opts.ReportDir)
	}
	switch {
	case rep.Interrupted:
		return rep, context.Cause(ctx)
	case len(rep.Broken) > 0:
		return rep, fmt.Errorf("%w: %s", ErrThreshold, rep.Broken[0])
	}
	return rep, nil
}

// checkOptions returns what is wrong with the options beside the scenario, in a
// network namespace of our own or not.
func (r *runner) checkOptions(s Scenario, ownNetwork bool) error {
	o := r.opts
	switch {
	case s.partition() >= 0 && !ownNetwork && len(o.Targets) == 0:
		return errNoNetwork(s, errors.New("this process is not in one"))
	case len(o.Targets) == 0 && len(o.Admins) > 0:
		return errors.New("admin addresses without targets: they are those of running nodes")
	case len(o.Targets) == 0 && o.Binary == "":
		return errors.New("no binary to start nodes with, and no targets")
	case len(o.Targets) > 0 && (o.Compare || o.NoFilters):
		return errors.New("the filters of running nodes are theirs: leave the targets out to compare with and without")
	case len(o.Targets) > 0 && o.Nodes > 0:
		return errors.New("a number of nodes to start, and targets that run already: want one of them")
	case len(o.Admins) > 0 && len(o.Admins) != len(o.Targets):
		return fmt.Errorf("%d admin addresses for %d targets: want one each, or none", len(o.Admins), len(o.Targets))
	case len(o.Targets) > 0 && s.Origin.Errors > 0:
		return errors.New("origin.errors is about an origin of the scenario's own: leave the targets out")
	case len(o.Targets) > 0 && len(s.Faults) > 0:
		return errors.New("the scenario has faults, which are for nodes of its own: leave the targets out")
	case o.Compare && o.NoFilters:
		return errors.New("compare runs without filters too: want one of the two")
	case len(o.Targets) > 0 && len(o.Admins) == 0 && slices.ContainsFunc(s.Phases, func(p Phase) bool { return p.PurgeRate > 0 }):
		return errors.New("the scenario purges, so it needs the targets' admin addresses")
	case o.Connections < 0 || o.Connections > 100_000:
		return fmt.Errorf("%d connections: want 1 to 100000", o.Connections)
	case o.Workers < 0 || o.Workers > maxWorkers:
		return fmt.Errorf("%d driver processes: want 1 to %d", o.Workers, maxWorkers)
	case o.Workers > 1 && o.Binary == "":
		return errors.New("no binary to start driver processes with")
	case o.Rate < 0 || o.Duration < 0 || o.Nodes < 0 || o.Keys < 0:
		return errors.New("rate, duration, nodes and keys can't be negative")
	}
	for _, t := range slices.Concat(o.Targets, o.Admins) {
		if _, err := hostPort(t); err != nil {
			return err
		}
	}
	return nil
}

// hostPort returns the host:port of a base URL.
func hostPort(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return "", fmt.Errorf("%q is not the address of a node: want http://host:port", base)
	}
	if u.Port() == "" {
		return u.Host + ":80", nil
	}
	return u.Host, nil
}

// cluster is what a group is measured on: nodes, and the origin and the
// processes when they are ours.
type cluster struct {
	targets []string // host:port
	host    string
	admins  []*admin
	nodes   []NodeReport // names and addresses
	fleet   *Fleet       // nil: running nodes
	origin  *Origin      // nil: not ours
	net     *bridge      // nil: loopback
}

func (c *cluster) close() error {
	var errs []error
	closeAll(c.admins)
	if c.fleet != nil {
		errs = append(errs, c.fleet.Close())
	}
	if c.origin != nil {
		errs = append(errs, c.origin.Close())
	}
	if c.net != nil {
		errs = append(errs, c.net.close())
	}
	return errors.Join(errs...)
}

func (r *runner) cluster(ctx context.Context, s Scenario, how mode) (*cluster, error) {
	if len(r.opts.Targets) > 0 {
		return r.runningCluster()
	}
	return r.ownCluster(ctx, s, how)
}

// mode is how the nodes of a group find what others have.
type mode string

// The modes.
const (
	modeFilters mode = "filters" // their peers' filters say whom to ask
	modeAskAll  mode = "ask_all" // every local miss asks every peer
	modeRing    mode = "ring"    // every local miss asks the key's owner, who asks the origin
)

func (r *runner) runningCluster() (*cluster, error) {
	c := &cluster{host: r.opts.Host}
	for i, t := range r.opts.Targets {
		addr, err := hostPort(t)
		if err != nil {
			return nil, err
		}
		c.targets = append(c.targets, addr)
		n := NodeReport{Name: addr, Client: addr}
		if len(r.opts.Admins) > 0 {
			n.Admin = r.opts.Admins[i]
			c.admins = append(c.admins, newAdmin(n.Admin, r.opts.AdminToken))
		}
		c.nodes = append(c.nodes, n)
	}
	if c.host == "" {
		c.host = c.targets[0]
	}
	return c, nil
}

func (r *runner) ownCluster(ctx context.Context, s Scenario, how mode) (_ *cluster, err error) {
	c := &cluster{host: r.opts.Host}
	if c.host == "" {
		c.host = defaultHost
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	address := ""
	if s.partition() >= 0 {
		if c.net, err = newBridge(); err != nil {
			return nil, err
		}
		address = net.JoinHostPort(bridgeAddress, "0")
	}
	if c.origin, err = NewOrigin(OriginConfig{Latency: s.Origin.Latency, Address: address}); err != nil {
		return nil, err
	}
	fmt.Fprintf(r.out, "Starting %d nodes%s.\n", s.Nodes, map[mode]string{modeAskAll: " without filters", modeRing: " without filters, with the ring only"}[how])
	c.fleet, err = StartFleet(ctx, FleetConfig{
		Binary: r.opts.Binary, Nodes: s.Nodes, Origin: c.origin.URL(), Memory: s.Memory,
		// Every node may come to hold every key; twice that leaves the filters
		// as far below their capacity as an operator would.
		FilterKeys: max(2*s.Keys, 100_000), FiltersOff: how == modeAskAll, RingOnly: how == modeRing, net: c.net,
	})
	if err != nil {
		return nil, err
	}
	for _, m := range c.fleet.Members {
		c.targets = append(c.targets, m.Client)
		c.nodes = append(c.nodes, NodeReport{Name: m.Name, Client: m.Client, Admin: m.AdminURL()})
	}
	c.admins = c.fleet.admins()
	ctx, cancel := context.WithTimeoutCause(ctx, formTimeout, fmt.Errorf("not formed after %v", formTimeout))
	defer cancel()
	return c, c.fleet.WaitFormed(ctx)
}

// group measures the scenario once. When ctx ends during the measurement the
// group covers what was measured until then, and there is no error.
func (r *runner) group(ctx context.Context, s Scenario, how mode) (g Group, err error) {
	c, err := r.cluster(ctx, s, how)
	if err != nil {
		return g, err
	}
	defer func() {
		if cerr := c.close(); err == nil {
			err = cerr
		}
	}()
	connections := r.opts.Connections
	if connections == 0 {
		connections = defaultConnections
	}
	rec := newRecorder()
	d := newDriver(c.targets, c.host, connections, rec)
	if err := c.whileAlive(ctx, func(ctx context.Context) error { return r.prepare(ctx, s, c, d, how == modeFilters) }); err != nil {
		return g, err
	}

	before, err := settled(ctx, c.admins)
	if err != nil {
		return g, err
	}
	var originBefore map[string]int64
	if c.origin != nil {
		originBefore = c.origin.Counts()
	}
	fmt.Fprintf(r.out, "Measuring %s for %v.\n", s.Name, s.duration().Round(time.Millisecond))
	mon := newMonitor(r.out, r.opts.Live, rec, c.admins, s.Phases, before)
	if c.origin != nil {
		mon.origin, mon.asked = c.origin, total(originBefore)
	}
	if g.Purges, err = r.measure(ctx, s, c, d, mon); err != nil {
		return g, err
	}

	// The counts are read even after Ctrl-C.
	after, dead := r.countsAfter(context.WithoutCancel(ctx), c, mon)
	counts := make([]counters, len(after))
	for i := range after {
		counts[i] = after[i].minus(before[i])
		c.nodes[i].Died = dead[i]
	}
	g.Filters, g.Mode = how == modeFilters, how
	g.addTally(rec.tally(), connections)
	g.Driver.Processes = max(r.opts.Workers, 1)
	g.Nodes = append([]NodeReport{}, c.nodes...)
	if len(counts) > 0 {
		g.addNodes(c.nodes, counts)
		if g.Filters {
			g.KeySets = keySetsOf(counts)
		}
	}
	if c.origin != nil {
		g.OriginCounts = minus(c.origin.Counts(), originBefore)
	}
	g.Series, g.Events, _ = mon.result()
	if i := slices.IndexFunc(s.Faults, func(f Fault) bool { return f.Do == FaultKill || f.Do == FaultRestart }); i >= 0 {
		g.Unchecked = fmt.Sprintf("a node ended on schedule (%v) and took along what it counted since it was read last", s.Faults[i])
	}
	g.Disagreements = crossCheck(&g, counts, g.OriginCounts)
	return g, nil
}

// whileAlive runs a step that needs every node. When a process of the fleet ends
// meanwhile the step is cancelled, and the error says which one and its last
// words rather than what the step saw of it.
func (c *cluster) whileAlive(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	if c.fleet != nil {
		for _, m := range c.fleet.Members {
			wg.Go(func() {
				select {
				case <-m.Done():
					cancel(&deathError{m})
				case <-ctx.Done():
				}
			})
		}
	}
	err := step(ctx)
	if c.fleet != nil && err != nil && ctx.Err() == nil {
		// A refused connection is often seen before the end of its process is.
		if m := c.fleet.ended(deathGrace); m != nil {
			err = &deathError{m}
		}
	}
	cancel(nil)
	wg.Wait()
	if death := (*deathError)(nil); errors.As(context.Cause(ctx), &death) {
		return death
	}
	return err
}

// deathGrace is how long after a failed request a process may take to be seen
// as gone.
const deathGrace = time.Second

// deathError says that a node ended while it was needed.
type deathError struct{ m *Member }

func (e *deathError) Error() string {
	return fmt.Sprintf("node %s died before the measurement: %s%s", e.m.Name, e.m.exitOr("exit status 0"), e.m.lastWords())
}

// prepare brings the cluster into the state in which the scenario begins.
func (r *runner) prepare(ctx context.Context, s Scenario, c *cluster, d *driver, filters bool) error {
	if c.fleet == nil {
		// One known answer from each node, before thousands of wrong ones.
		for i := range c.targets {
			size := s.Size.of(0)
			a := arrival{target: i, path: KeyPath(0, size), exists: true, size: size}
			w := d.newWorker(ctx)
			o := w.send(a)
			if w.close(); o.kind != "" {
				return fmt.Errorf("the target does not serve the test content (%w): its origin must be the sample origin, such as that of edged demo", o.err)
			}
		}
	}
	if !s.Prefill {
		return nil
	}
	fmt.Fprintf(r.out, "Storing %d keys, each on one of %d nodes.\n", s.Keys, len(c.targets))
	if err := prefill(ctx, s, c, d); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	if len(c.admins) < 2 || !filters {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, formTimeout, fmt.Errorf("not in step after %v", formTimeout))
	defer cancel()
	if err := waitUntil(ctx, c.admins, inStepFor, replicasAreLive(len(c.admins))); err != nil {
		return fmt.Errorf("the replicas are not in step: %w", err)
	}
	return nil
}

// prefill asks for each key once, at node key mod N, and wants a right answer
// to each.
func prefill(ctx context.Context, s Scenario, c *cluster, d *driver) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range prefillWorkers {
		wg.Go(func() {
			w := d.newWorker(ctx)
			defer w.close()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= s.Keys {
					return
				}
				size := s.Size.of(uint64(i))
				a := arrival{target: i % len(c.targets), path: KeyPath(uint64(i), size), exists: true, size: size}
				if o := w.send(a); o.kind != "" && ctx.Err() == nil {
					cancel(o.err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// measure runs the schedule, with the purges and the monitor beside it.
func (r *runner) measure(ctx context.Context, s Scenario, c *cluster, d *driver, mon *monitor) (p PurgeReport, err error) {
	all, length, err := arrivalsOf(s, len(c.targets))
	if err != nil {
		return p, err
	}
	var remotes []*remote
	mon.start = time.Now()
	if n := r.opts.Workers; n > 1 {
		j := job{Scenario: s, Targets: c.targets, Host: c.host, Connections: d.workers / n}
		if remotes, err = startWorkers(ctx, r.opts.Binary, n, j); err != nil {
			return p, err
		}
		mon.start = time.Now().Add(workerStartDelay)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { mon.watch(context.WithoutCancel(ctx), stop) })
	if c.fleet != nil {
		for _, m := range c.fleet.Members {
			wg.Go(func() {
				select {
				case <-m.Done():
					if m.planned.Load() {
						return
					}
					mon.event(fmt.Sprintf("Node %s died: %s%s", m.Name, m.exitOr("exit status 0"), m.lastWords()))
				case <-stop:
				}
			})
		}
	}
	if len(c.admins) > 0 {
		wg.Go(func() { p = purgeAll(ctx, purges(s), c, mon.start, stop) })
	}
	var faultErr error
	faultCtx, endFaults := context.WithCancel(ctx)
	defer endFaults()
	fs := &faults{c: c, mon: mon}
	if s.Origin.Errors > 0 {
		fs.disturb(func() { fs.fail = append(fs.fail, s.Origin.Errors) })
	}
	if len(s.Faults) > 0 {
		wg.Go(func() { faultErr = fs.run(faultCtx, s.Faults, mon.start) })
	}
	if remotes == nil {
		d.run(ctx, all, mon.start, length, requestTimeout)
	} else {
		err = runWorkers(ctx, remotes, d.rec, mon.start)
	}
	endFaults()
	close(stop)
	wg.Wait()
	if ctx.Err() == nil {
		err = errors.Join(err, faultErr)
	}
	return p, err
}

// purgeAll sends the purges of a schedule, one after the other, to the nodes
// in turn, until stop is closed.
func purgeAll(ctx context.Context, sc *schedule, c *cluster, start time.Time, stop <-chan struct{}) (p PurgeReport) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for i := 0; ; i++ {
		a, ok := sc.next()
		if !ok {
			return p
		}
		p.Scheduled++
		timer.Reset(time.Until(start.Add(a.at)))
		select {
		case <-timer.C:
		case <-stop:
			for ok { // what is left has not been sent
				if _, ok = sc.next(); ok {
					p.Scheduled++
				}
			}
			return p
		case <-ctx.Done():
			return p
		}
		began := time.Now()
		p.Requests++
		if err := c.admins[i%len(c.admins)].purge(ctx, "http://"+c.host+a.path); err != nil {
			p.Errors++
		}
		if ctx.Err() != nil {
			return p
		}
		p.MaxMS = max(p.MaxMS, float64(time.Since(began))/float64(time.Millisecond))
	}
}

// purge purges one URL on all members, and wants all of them to acknowledge.
func (a *admin) purge(ctx context.Context, url string) error {
	body, err := json.Marshal(map[string]any{"urls": []string{url}, "wait": "all"})
	if err != nil {
		return err
	}
	data, err := a.do(ctx, "POST", "/v1/purge", string(body), 1<<20)
	if err != nil {
		return err
	}
	var answer struct {
		Missing []string `json:"missing"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("answer to a purge: %w", err)
	}
	if len(answer.Missing) > 0 {
		return fmt.Errorf("purge: no acknowledgement of %v", answer.Missing)
	}
	return nil
}

// settled returns the counters of all nodes once they stand still; those that
// keep moving, as others use the cluster too, are returned as they are after
// settleTimeout.
func settled(ctx context.Context, admins []*admin) ([]counters, error) {
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	deadline := time.Now().Add(settleTimeout)
	var last int64 = -1
	for {
		cs := make([]counters, len(admins))
		var moved int64
		for i, a := range admins {
			var err error
			if cs[i], err = a.counters(ctx); err != nil {
				return nil, err
			}
			moved += total(cs[i].requests) + total(cs[i].origin) + total(cs[i].rpcs)
		}
		if moved == last || time.Now().After(deadline) {
			return cs, nil
		}
		last = moved
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// countsAfter returns the final counters of all nodes; those of a node that
// doesn't answer any more are the last that the monitor saw.
func (r *runner) countsAfter(ctx context.Context, c *cluster, mon *monitor) (after []counters, dead []bool) {
	_, _, after = mon.result()
	dead = make([]bool, len(c.admins))
	var alive []*admin
	var index []int
	for i, a := range c.admins {
		if _, err := a.counters(ctx); err != nil {
			dead[i] = true
			mon.event(fmt.Sprintf("The counters of %s can't be read any more: %v", c.nodes[i].Name, err))
			continue
		}
		alive, index = append(alive, a), append(index, i)
	}
	cs, err := settled(ctx, alive)
	if err != nil {
		mon.event(fmt.Sprintf("Counters: %v", err))
		return after, dead
	}
	mon.tookOver(index, cs)
	_, _, after = mon.result()
	return after, dead
}
