package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"edged/peerfilter"
)

type sizeCmd struct {
	Keys  count `required:"" placeholder:"N" help:"Planned stored responses of one node: 1000000, 1e6 or 1M."`
	Rate  rate  `required:"" placeholder:"RATE" help:"Share of look-ups for what nobody has that may ask a peer in vain, over all peers together: 1% or 0.01."`
	Peers int   `default:"16" placeholder:"P" help:"Planned number of peers (${default})."`
	JSON  bool  `help:"Print JSON."`
}

func (sizeCmd) Help() string {
	return `The rate is that of all peers together, as it is what traffic meets; each filter is made so much better.

Examples:

    edged size --keys 1000000 --rate 1%
    edged size --keys 10000000 --rate 0.1% --peers 64`
}

// Run prints the sizing of one filter and of the replicas of all peers' filters.
func (c *sizeCmd) Run(p *process) error {
	if c.Rate >= 1 {
		return usagef("--rate %s: want above 0%% and below 100%%; without the sign, 1%% is 0.01", formatRate(float64(c.Rate)))
	}
	s, err := peerfilter.Size(int(c.Keys), float64(c.Rate), c.Peers)
	if err != nil {
		return usageError{err}
	}
	if c.JSON {
		return printJSON(p.stdout, struct {
			Keys              int     `json:"keys"`
			Peers             int     `json:"peers"`
			Bits              uint64  `json:"m"`
			K                 int     `json:"k"`
			BitsPerKey        float64 `json:"bits_per_key"`
			CounterBytes      uint64  `json:"counter_bytes"`
			ReplicaBytes      uint64  `json:"replica_bytes"`
			AllReplicaBytes   uint64  `json:"all_replica_bytes"`
			FillRatio         float64 `json:"fill_ratio"`
			ExpectedRate      float64 `json:"expected_rate"`
			ExpectedTotalRate float64 `json:"expected_rate_all_peers"`
		}{s.Keys, s.Peers, s.Bits, s.K, s.BitsPerKey, s.CounterBytes, s.ReplicaBytes, s.AllReplicaBytes,
			s.Fill, s.ExpectedRate, overAll(s.ExpectedRate, s.Peers)})
	}
	return table(p.stdout, func(w io.Writer) {
		fmt.Fprintf(w, "keys (n)\t%d\tplanned stored responses of one node\n", s.Keys)
		fmt.Fprintf(w, "peers (P)\t%d\n", s.Peers)
		fmt.Fprintf(w, "counters (m)\t%d\t%.1f a key; blocks of 512, a classic filter takes %.1f\n", s.Bits, s.BitsPerKey, float64(s.ClassicBits)/float64(s.Keys))
		fmt.Fprintf(w, "hashes (k)\t%d\n", s.K)
		fmt.Fprintf(w, "counters\t%s\t%d bytes: the node's own filter\n", approxSize(int64(s.CounterBytes)), s.CounterBytes)
		fmt.Fprintf(w, "one replica\t%s\t%d bytes: the published bits of one peer\n", approxSize(int64(s.ReplicaBytes)), s.ReplicaBytes)
		fmt.Fprintf(w, "all replicas\t%s\t%d bytes: room for %d peers\n", approxSize(int64(s.AllReplicaBytes)), s.AllReplicaBytes, s.AllReplicaBytes/s.ReplicaBytes)
		fmt.Fprintf(w, "fill ratio\t%.1f%%\tof the bits are set at %d keys\n", s.Fill*100, s.Keys)
		fmt.Fprintf(w, "expected rate\t%.4g%%\tof one filter\n", s.ExpectedRate*100)
		fmt.Fprintf(w, "\t%.4g%%\tover all %d peers; asked for: %.4g%%\n", overAll(s.ExpectedRate, s.Peers)*100, s.Peers, s.Total*100)
	})
}

// overAll is the chance that one of peers filters is wrong: 1 - (1-p)^P.
func overAll(p float64, peers int) float64 {
	ok := 1.0
	for range peers {
		ok *= 1 - p
	}
	return 1 - ok
}

// table prints cells separated by tabs in columns.
func table(w io.Writer, rows func(io.Writer)) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(tw)
	return tw.Flush()
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
