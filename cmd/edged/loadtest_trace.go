package main

import (
	"fmt"
	"strconv"

	"edged/edge/store"
	"edged/loadtest"
	"edged/peerfilter"
)

type loadtestTraceCmd struct {
	File   string             `arg:"" type:"path" help:"A key trace (one key a line) or an access log; may be gzip."`
	Size   []string           `placeholder:"SIZE" help:"Size of a cache, such as 64MiB; may be repeated. Default: 1%, 3%, 10% and 30% of what the trace asks for."`
	Body   loadtest.SizeRange `placeholder:"SIZE" default:"1KiB" help:"Size of bodies that the trace does not tell: 4KiB, or a range 1KiB-64KiB."`
	Format loadtest.LogFormat `placeholder:"FORMAT" enum:"auto,combined,json,keys" default:"auto" help:"auto (the default), combined, json or keys."`
	Rate   string             `placeholder:"RATE" default:"1%" help:"False-positive rate that the filter is sized for."`
}

func (loadtestTraceCmd) Help() string {
	return `Feeds a trace to the store's own policy, without a network, and prints its hit ratio for several
sizes beside LRU and the optimum, and what the filter of the stored keys costs and answers.

Example:

    edged loadtest trace access.log.gz --size 64MiB --size 256MiB`
}

// Run simulates.
func (c *loadtestTraceCmd) Run(p *process) error {
	rate, err := parseRate(c.Rate)
	if err != nil || !(rate > 0 && rate < 1) {
		return usagef("--rate %q: want above 0%% and below 100%%", c.Rate)
	}
	overhead, err := responseOverhead()
	if err != nil {
		return err
	}
	cfg := loadtest.TraceConfig{
		File: c.File, Format: c.Format, Body: c.Body, Overhead: overhead, Out: p.stdout,
		New: func(bytes int64, keys int) (loadtest.Cache, error) { return newSimulated(bytes, keys, rate, overhead) },
	}
	for _, s := range c.Size {
		n, err := parseSize(s)
		if err != nil {
			return usagef("--size: %w", err)
		}
		cfg.Sizes = append(cfg.Sizes, loadtest.Bytes(n))
	}
	if _, err := loadtest.Trace(cfg); err != nil {
		return usageOf(err)
	}
	return nil
}

// simulated is a store with its filter, and no bytes behind the bodies.
type simulated struct {
	store  *store.Store
	filter *tallied
	plan   peerfilter.Sizing
	zeros  []byte
	misses int64
	wrong  int64
}

// tallied is a filter that counts what comes and goes.
type tallied struct {
	*peerfilter.Counting
	changes int64
}

func (t *tallied) Add(h [2]uint64) {
	t.changes++
	t.Counting.Add(h)
}

func (t *tallied) Remove(h [2]uint64) {
	t.changes++
	t.Counting.Remove(h)
}

// newSimulated is a store of so many bytes, its filter planned for as many keys
// as fit or as there are.
func newSimulated(bytes int64, keys int, rate float64, overhead int64) (*simulated, error) {
	plan, err := peerfilter.Size(max(min(keys, int(bytes/overhead)), 1), rate, 1)
	if err != nil {
		return nil, fmt.Errorf("size the filter: %w", err)
	}
	counting, err := peerfilter.NewCounting(plan.Params)
	if err != nil {
		return nil, fmt.Errorf("make the filter: %w", err)
	}
	s := &simulated{filter: &tallied{Counting: counting}, plan: plan, zeros: make([]byte, 64<<10)}
	s.store, err = store.New(store.Config{Partitions: []store.PartitionConfig{{Name: "trace", MaxBytes: bytes, Filter: s.filter}}})
	return s, err
}

// Ask implements [loadtest.Cache].
func (s *simulated) Ask(key uint64, bodyBytes int64) bool {
	url := "http://trace.test/" + strconv.FormatUint(key, 36)
	k := &store.Key{URL: url, Hash: key, Filter: peerfilter.Sum(peerfilter.Seed{1, 2}, url)}
	if found := s.store.Get(0, k); len(found) > 0 {
		s.store.Hit(found[0])
		return true
	}
	s.misses++
	if s.filter.MayContain(k.Filter) {
		s.wrong++
	}
	// All bodies share the same bytes; the store counts them as if they did not.
	var chunks [][]byte
	for left := bodyBytes; left > 0; {
		n := min(left, int64(len(s.zeros)))
		chunks = append(chunks, s.zeros[:n:n])
		left -= n
	}
	s.store.Put(0, k, &store.Response{Head: simulatedHead, Body: store.NewBody(chunks)})
	return false
}

// simulatedHead is as long as the head of an ordinary response.
const simulatedHead = "Content-Type: text/html; charset=utf-8\r\nCache-Control: public, max-age=3600\r\nETag: \"0123456789abcdef\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n"

// Filter implements [loadtest.Cache].
func (s *simulated) Filter() loadtest.FilterAccount {
	st := s.filter.Stats()
	return loadtest.FilterAccount{
		Keys: st.Keys, BitBytes: int64(s.plan.BitBytes), CounterBytes: int64(s.plan.CounterBytes), Fill: st.Fill, ExpectedRate: st.ExpectedRate,
		Misses: s.misses, FalsePositives: s.wrong, Changes: s.filter.changes,
	}
}

// responseOverhead is what the store takes for a response beside its body: the
// difference that a thousand make.
func responseOverhead() (int64, error) {
	const n, body = 1000, 1 << 10
	s, err := newSimulated(64<<20, n, 0.01, 1)
	if err != nil {
		return 0, err
	}
	for i := range n {
		s.Ask(mixKey(uint64(i)), body)
	}
	return s.store.Bytes(0)/n - body, nil
}

// mixKey makes small numbers into well mixed keys, as those of a trace are
// (the finaliser of murmur3).
func mixKey(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
