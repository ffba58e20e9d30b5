package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"edged/edge/admin"
)

type statusCmd struct {
	adminFlags
}

func (statusCmd) Help() string {
	return `Shows the node, the members as it sees them, its partitions and filters, and what they saved.

Examples:

    edged status
    edged status --admin 10.0.0.7:9901 --token-file /etc/edged/token --json

Exit code: 0 when the node answers and is in service, 1 when it does not or drains.`
}

// Run shows the node's state.
func (c *statusCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var st admin.Cluster
	raw, err := client.get(context.Background(), "/v1/cluster", nil, &st)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printRaw(p.stdout, raw)
	} else {
		err = printStatus(p.stdout, st)
	}
	if err == nil && st.Draining {
		err = errReported
	}
	return err
}

func printStatus(w io.Writer, st admin.Cluster) error {
	state := "in service"
	if st.Draining {
		state = "draining"
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

	fmt.Fprintf(w, "\nrequests: %s; hit ratio %s\n", counts(st.Requests), percent(st.HitRatio))
	fmt.Fprintf(w, "peer RPCs: %s; skipped, as every filter said absent: %d\n", counts(st.PeerRPCs), st.RPCsSkipped)
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
