package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"edged/edge/admin"
)

type statusCmd struct {
	Watch    bool          `short:"w" help:"Show it again and again, on a cleared screen, until Ctrl-C."`
	Interval time.Duration `default:"2s" help:"How often, with --watch (${default})."`
	Check    bool          `help:"Print only what is wrong; exit code 1 when anything is."`
	adminFlags
}

func (statusCmd) Help() string {
	return `Shows the node, the members as it sees them, its partitions and filters, and what they saved.

Examples:

    edged status
    edged status --watch
    edged status --check && echo all is well
    edged status --admin 10.0.0.7:9901 --token-file /etc/edged/token --json

With --watch and --json it prints one line of JSON each time.

Exit code: 0 when the node answers and is in service, 1 when it does not or drains, 2 for wrong usage.
With --check also 1 when the node may have missed purges, a member is suspect or failed, a replica of an alive member's filter is not in
step, a filter's counters are pinned, a partition's observed false-positive rate is twice the expected one,
or a server of an origin is skipped for its failures. With --watch that of the last look at the node.`
}

// Run shows the node's state.
func (c *statusCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if !c.Watch {
		return c.show(context.Background(), p.stdout, client)
	}
	if c.Interval <= 0 {
		return usagef("--interval %v: want above 0s", c.Interval)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return c.watch(ctx, p.stdout, client)
}

// watch shows the state again and again until ctx ends. Each screen is written
// at once, so that it does not flicker; a node that does not answer may come
// back, so that ends nothing.
func (c *statusCmd) watch(ctx context.Context, w io.Writer, client *adminClient) error {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	var last error // what the look before found, which decides at the end
	for {
		var screen bytes.Buffer
		err := c.show(ctx, &screen, client)
		if ctx.Err() != nil {
			return last // it ends in the middle of this one
		}
		if last = nil; err != nil {
			last = errReported
		}
		if err != nil && !errors.Is(err, errReported) {
			fmt.Fprintf(&screen, "%v\n", err)
		}
		if !c.JSON {
			// Home, and after the text clear the rest (ECMA-48 CUP and ED).
			text := strings.ReplaceAll(screen.String(), "\n", "\x1b[K\n")
			screen.Reset()
			screen.WriteString("\x1b[H" + text + "\x1b[J")
		}
		if _, werr := w.Write(screen.Bytes()); werr != nil {
			return werr
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}

// show looks at the node once.
func (c *statusCmd) show(ctx context.Context, w io.Writer, client *adminClient) error {
	var st admin.Cluster
	raw, err := client.get(ctx, "/v1/cluster", nil, &st)
	if err != nil {
		return err
	}
	wrongs := ills(st)
	switch {
	case c.JSON && c.Watch:
		var line bytes.Buffer
		if err = json.Compact(&line, raw); err == nil {
			line.WriteByte('\n')
			_, err = w.Write(line.Bytes())
		}
	case c.JSON:
		err = printRaw(w, raw)
	case c.Check:
		for _, wrong := range wrongs {
			fmt.Fprintln(w, wrong)
		}
	default:
		err = printStatus(w, st)
	}
	if err == nil && (st.Draining || c.Check && len(wrongs) > 0) {
		err = errReported
	}
	return err
}

// ills says what is wrong with the node or its cluster, one line each.
func ills(st admin.Cluster) []string {
	var all []string
	ill := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if st.Draining {
		ill("%s is draining", printable(st.Name))
	}
	if st.PurgeLog != "" && st.PurgeLog != "synced" {
		ill("%s is %s: it may have missed purges, and %s", printable(st.Name), printable(st.PurgeLog), unsure)
	}
	for _, m := range st.Members {
		switch {
		case m.State == "suspect" || m.State == "failed":
			ill("member %s is %s", printable(m.Name), m.State)
		case m.State == "alive" && !m.Self && m.Replica.State != "live":
			ill("the replica of %s's filter is %s", printable(m.Name), printable(cmp.Or(m.Replica.State, "absent")))
		}
	}
	for _, p := range st.Partitions {
		if p.Filter.PinnedCounters > 0 {
			ill("partition %s: %d counters of the filter are pinned", printable(p.Name), p.Filter.PinnedCounters)
		}
		if p.Bloom.PositiveMiss > fewLookups && p.Filter.ObservedRate > 2*p.Filter.ExpectedRate {
			ill("partition %s: the observed false-positive rate is %s, expected %s", printable(p.Name), percent(p.Filter.ObservedRate), percent(p.Filter.ExpectedRate))
		}
	}
	for _, o := range st.Origins {
		if !o.Healthy {
			ill("origin %s of site %s is skipped: %d of %d requests failed", printable(o.URL), printable(o.Site), o.Failures, o.Attempts)
		}
	}
	return all
}

// unsure is what a node does that may have missed purges.
const unsure = "validates what it has stored before each use, unless purge.isolated is serve"

func printStatus(w io.Writer, st admin.Cluster) error {
	state := "in service"
	switch {
	case st.Draining:
		state = "draining"
	case st.PurgeLog == "isolated":
		state = "in service, but isolated from most members: it " + unsure
	}
	fmt.Fprintf(w, "%s (%s, version %s): %s, up %s\n\n", printable(st.Name), printable(st.Role), printable(st.Version), state, seconds(st.UptimeSeconds))

	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "MEMBER\tROLE\tSTATE\tPEER ADDRESS\tRING\tREPLICA\tAGE\tKEYS\tFILL")
		for _, m := range st.Members {
			name := printable(m.Name)
			if m.Self {
				name += " *"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t", name, printable(m.Role), printable(m.State), printable(m.Peer), percent(m.ShareOfRing))
			if m.Self || m.Replica.State == "" {
				fmt.Fprintln(w, "-\t-\t-\t-")
			} else {
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", printable(m.Replica.State), seconds(m.Replica.AgeSeconds), m.Replica.Keys, percent(m.Replica.Fill))
			}
		}
	})
	if err != nil {
		return err
	}

	fmt.Fprintln(w)
	err = table(w, func(w io.Writer) {
		fmt.Fprintln(w, "PARTITION\tSTORED INCL. INDEX\tOF\tRESPONSES\tEVICTED\tFILTER KEYS\tPLANNED\tFILL\tRATE EXPECTED\tOBSERVED")
		for _, p := range st.Partitions {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", printable(p.Name),
				approxSize(p.Store.Bytes), approxSize(p.Store.LimitBytes), p.Store.Objects, p.Store.Evictions,
				p.Filter.Keys, p.Filter.CapacityKeys, percent(p.Filter.FillRatio), percent(p.Filter.ExpectedRate), observed(p))
		}
		n := st.Negative
		fmt.Fprintf(w, "(absences)\t%s\t%s\t%d\n", approxSize(n.Bytes), approxSize(n.LimitBytes), n.Entries)
	})
	if err != nil {
		return err
	}

	fmt.Fprintln(w)
	err = table(w, func(w io.Writer) {
		fmt.Fprintln(w, "ORIGIN\tOF SITE\tSTATE\tREQUESTS\tFAILED\tIN FLIGHT")
		for _, o := range st.Origins {
			state := "in use"
			if !o.Healthy {
				state = "skipped"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\n", printable(o.URL), printable(o.Site), state, o.Attempts, o.Failures, o.InFlight)
		}
	})
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "\nrequests: %s; hit ratio %s\n", counts(st.Requests), percent(st.HitRatio))
	fmt.Fprintf(w, "peer RPCs: %s; skipped, as every filter said absent: %d, which saved %s of waiting\n", counts(st.PeerRPCs), st.RPCsSkipped, seconds(st.SavedSeconds))
	fmt.Fprintf(w, "now: %.4g requests a second, p50 about %s, p99 about %s; %.4g RPCs a second skipped, %.4g sent; purges in flight: %d\n",
		st.Now.RPS, seconds(st.Now.P50/1000), seconds(st.Now.P99/1000), st.Now.Skipped, st.Now.Sent, st.PurgesInFlight)
	for _, c := range st.Catalogs {
		line := fmt.Sprintf("catalog of %s: %d paths, %s", printable(c.Site), c.Paths, printable(c.Mode))
		if c.Effective != c.Mode {
			line += fmt.Sprintf(", in effect %s: %s", printable(c.Effective), printable(c.Reason))
		}
		fmt.Fprintln(w, line)
	}
	return nil
}

// counts is "12 = hit 8 + miss 4", the largest first, without those at zero.
func counts(m map[string]uint64) string {
	var sum uint64
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b))
	})
	var parts []string
	for _, n := range names {
		if m[n] > 0 {
			sum += m[n]
			parts = append(parts, fmt.Sprintf("%s %d", printable(n), m[n]))
		}
	}
	if len(parts) == 0 {
		return "none yet"
	}
	return fmt.Sprintf("%d = %s", sum, strings.Join(parts, " + "))
}

// fewLookups is how many look-ups say too little for a rate of some percent.
const fewLookups = 100

// observed shows the observed false-positive rate of a partition, "-" while
// there are few look-ups that it is made of.
func observed(p admin.Partition) string {
	if p.Bloom.Negative+p.Bloom.PositiveMiss < fewLookups {
		return "-"
	}
	return percent(p.Filter.ObservedRate)
}

// percent shows a share with three digits, and as many as tell it from all;
// what is below a hundredth of a percent is that for people.
func percent(r float64) string {
	switch {
	case r > 0 && r < 0.0001:
		return "<0.01%"
	case r > 0.9999 && r < 1:
		return ">99.99%"
	case r > 0.99:
		return fmt.Sprintf("%.4g%%", r*100)
	}
	return fmt.Sprintf("%.3g%%", r*100)
}

// seconds shows a time span with the precision that its size deserves.
func seconds(s float64) string {
	d := time.Duration(min(max(s, 0), 1e9) * float64(time.Second))
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Millisecond)
	}
	return formatDuration(d)
}
