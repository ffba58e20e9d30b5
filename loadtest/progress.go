package loadtest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// monitor looks once a second at the driver and the nodes while a run is on:
// it prints progress, keeps the series of points, and keeps each node's last
// known counters for the case that the node dies.
type monitor struct {
	out    io.Writer
	live   bool // out is a terminal: the progress line is overwritten
	rec    *recorder
	admins []*admin
	phases []Phase
	start  time.Time

	origin *Origin // nil: not ours

	mu     sync.Mutex
	last   []counters // by node, of all its processes together
	ended  []counters // what a node's earlier processes have counted
	asked  int64      // of the origin, at the last tick
	bloom  Bloom      // of all nodes, at the last tick
	series []Point
	events []Event
}

func newMonitor(out io.Writer, live bool, rec *recorder, admins []*admin, phases []Phase, before []counters) *monitor {
	m := &monitor{out: out, live: live, rec: rec, admins: admins, phases: phases, last: append([]counters(nil), before...)}
	m.ended = make([]counters, len(m.last))
	m.bloom = sumBloom(m.last)
	return m
}

// knownLocked takes new counters of a node. A process that is not the one before has
// begun at 0, so what that one had counted is added.
func (m *monitor) knownLocked(i int, c counters) {
	if last := m.last[i]; last.start != 0 && c.start != last.start {
		m.ended[i] = last
	}
	m.last[i] = c.plus(m.ended[i])
}

func sumBloom(cs []counters) (b Bloom) {
	for _, c := range cs {
		b = b.plus(c.allBloom(), 1)
	}
	return b
}

// watch ticks until stop is closed.
func (m *monitor) watch(ctx context.Context, stop <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			if m.sinceLast() >= minWindow {
				m.tick(ctx)
			}
			if m.live {
				fmt.Fprint(m.out, "\r\x1b[K")
			}
			return
		case <-ticker.C:
			// After a look that took long, the next tick comes at once.
			if m.sinceLast() >= minWindow {
				m.tick(ctx)
			}
		}
	}
}

// minWindow is the shortest last point of a series: rates and percentiles of
// less than this mean nothing.
const minWindow = 500 * time.Millisecond

// scrapeTimeout bounds the looks at the nodes of one second: what has not
// answered by then hangs.
const scrapeTimeout = 600 * time.Millisecond

// sinceLast returns the time since the last point.
func (m *monitor) sinceLast() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := time.Since(m.start)
	if n := len(m.series); n > 0 {
		d -= time.Duration(m.series[n-1].S * float64(time.Second))
	}
	return d
}

func (m *monitor) tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	scraped := make([]*counters, len(m.admins))
	var wg sync.WaitGroup
	for i, a := range m.admins {
		wg.Go(func() {
			if c, err := a.counters(ctx); err == nil {
				scraped[i] = &c
			}
		})
	}
	wg.Wait()
	w := m.rec.tick()

	m.mu.Lock()
	defer m.mu.Unlock()
	p := Point{
		S: time.Since(m.start).Seconds(), Responses: w.answered, Errors: w.errors,
		P50MS: w.p50, P99MS: w.p99, Sources: w.sources,
	}
	deltas := make([]counters, len(m.last))
	for i, c := range scraped {
		before := m.last[i]
		if c != nil {
			m.knownLocked(i, *c)
		}
		d := m.last[i].minus(before)
		deltas[i] = d
		n := NodePoint{
			Bloom: d.allBloom(), PeerRPCs: total(d.rpcs), OriginRequests: total(d.origin),
			GossipSentBytes: d.gossip, CPUSeconds: d.cpu, ResidentBytes: d.memory, Unread: c == nil,
		}
		for _, fill := range d.fill {
			n.FilterFill = max(n.FilterFill, fill)
		}
		p.Nodes = append(p.Nodes, n)
	}
	all := sumBloom(deltas)
	p.ObservedRate = maybeRatio(all.PositiveMiss, all.PositiveMiss+all.Negative)
	p.ExpectedRate = expectedRate(deltas)
	if m.origin != nil {
		now := total(m.origin.Counts())
		p.Origin, m.asked = now-m.asked, now
	}
	now := sumBloom(m.last)
	if d := now.plus(m.bloom, -1); d.lookups() > 0 {
		p.SkipRatio = maybeRatio(d.Negative, d.lookups())
	}
	m.bloom = now
	m.series = append(m.series, p)
	m.print(p)
}

// print writes one line: of the last second, not of the whole run.
func (m *monitor) print(p Point) {
	seconds := p.S
	if n := len(m.series); n > 1 {
		seconds -= m.series[n-2].S
	}
	hits := p.Sources[fromHit] + p.Sources[fromStale] + p.Sources[fromPeer] + p.Sources[fromOwner]
	line := fmt.Sprintf("%4.0fs  %s%6.0f/s  p99 %-8s  hits %5.1f%%  ", p.S, phaseColumn(m.phases, p.S), float64(p.Responses)/max(seconds, 0.001), ms(p.P99MS), 100*ratio(hits, p.Responses))
	if p.SkipRatio != nil {
		line += fmt.Sprintf("peers skipped %5.1f%%  ", 100**p.SkipRatio)
	}
	line += fmt.Sprintf("errors %d", p.Errors)
	if m.live {
		fmt.Fprint(m.out, "\r", line, "\x1b[K")
	} else {
		fmt.Fprintln(m.out, line)
	}
}

// phaseColumn names the phase that the second up to s was in, in a column that
// fits all of them; a single phase needs no name.
func phaseColumn(phases []Phase, s float64) string {
	if len(phases) < 2 {
		return ""
	}
	width, now := 0, 0
	var begins time.Duration
	for i, p := range phases {
		width = max(width, utf8.RuneCountInString(p.title(i)))
		// The last tick of a phase comes a little after its end.
		if s > begins.Seconds()+minWindow.Seconds() {
			now = i
		}
		begins += p.Duration
	}
	return fmt.Sprintf("%-*s  ", width, phases[now].title(now))
}

// event keeps something that happened to a node, and prints it.
func (m *monitor) event(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, Event{S: time.Since(m.start).Seconds(), Text: text})
	m.printLocked(text)
}

func (m *monitor) printLocked(text string) {
	if m.live {
		fmt.Fprint(m.out, "\r\x1b[K")
	}
	fmt.Fprintln(m.out, text)
}

// fault keeps a fault of the scenario that happens now, and prints it.
func (m *monitor) fault(text string, length time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := Event{S: time.Since(m.start).Seconds(), Text: text, Fault: true}
	if length > 0 {
		e.Until = e.S + length.Seconds()
	}
	m.events = append(m.events, e)
	m.printLocked("Fault: " + text)
}

// tookOver takes the final counters of the nodes that still answer.
func (m *monitor) tookOver(index []int, cs []counters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for j, i := range index {
		m.knownLocked(i, cs[j])
	}
}

func (m *monitor) result() (series []Point, events []Event, last []counters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Point{}, m.series...), append([]Event{}, m.events...), append([]counters(nil), m.last...)
}

// ms writes a number of milliseconds with some three digits and a unit.
func ms(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.1fs", v/1000)
	case v >= 1000:
		return fmt.Sprintf("%.2fs", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0fms", v)
	case v >= 10:
		return fmt.Sprintf("%.1fms", v)
	case v >= 1:
		return fmt.Sprintf("%.2fms", v)
	}
	return fmt.Sprintf("%.0fµs", v*1000)
}
