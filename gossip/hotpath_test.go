package gossip

import (
	"math/rand/v2"
	"testing"
	"time"

	"edged/peerfilter"
)

// BenchmarkTransition: what storing and evicting pay, for each bit that changes,
// when the filter is published to a member and when it is not. Publishing puts
// nothing into their way: it compares with what it last sent, at each flush,
// which "flushed" adds.
func BenchmarkTransition(b *testing.B) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(3, 3))
	size, err := peerfilter.Size(n, 0.01, 63)
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]peerfilter.Hash, n)
	filled := func() *peerfilter.Counting {
		c, err := peerfilter.NewCounting(size.Params)
		if err != nil {
			b.Fatal(err)
		}
		for i := range keys {
			keys[i] = peerfilter.Hash{rng.Uint64(), rng.Uint64()}
			c.Add(keys[i])
		}
		return c
	}
	for _, name := range []string{"alone", "published", "flushed"} {
		b.Run(name, func(b *testing.B) {
			c := filled()
			core, err := newCore(coreConfig{
				name: "a", newest: frameVersion, boot: 1, peerAddr: "127.0.0.1:1",
				partitions: []Partition{{Name: "all", Params: size.Params}}, flush: defaultFlush, rateLimit: defaultRateLimit,
			}, rng)
			if err != nil {
				b.Fatal(err)
			}
			if name != "alone" {
				core.publish(0, 0, peerfilter.NewShadow(c))
				core.flush(0)
			}
			per := transitionsOf(c, rng)
			b.ReportAllocs()
			i, now := 0, time.Duration(0)
			for b.Loop() {
				c.Add(peerfilter.Hash{rng.Uint64(), rng.Uint64()})
				c.Remove(keys[i%n])
				keys[i%n] = peerfilter.Hash{}
				i++
				if name == "flushed" && i%250 == 0 { // as at 1 000 a second and a flush each 250 ms
					now += defaultFlush
					core.flush(now)
				}
				if i%n == 0 {
					b.StopTimer()
					c = filled()
					if name != "alone" {
						core.publish(now, 0, peerfilter.NewShadow(c))
						core.flush(now)
					}
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*per), "ns/transition")
		})
	}
}

// transitionsOf is how many bits one key changes on average.
func transitionsOf(c *peerfilter.Counting, rng *rand.Rand) float64 {
	const n = 200
	sh, tr := peerfilter.NewShadow(c), peerfilter.Transitions{}
	for sh.Diff(&tr) {
	}
	all := 0
	for range n {
		h := peerfilter.Hash{rng.Uint64(), rng.Uint64()}
		c.Add(h)
		sh.Diff(&tr)
		all += tr.Len()
		c.Remove(h)
		sh.Diff(&tr)
	}
	return float64(all) / n
}

// TestHotPath_allocatesNothing: storing, evicting and looking up, beside a
// member that publishes.
func TestHotPath_allocatesNothing(t *testing.T) {
	p := live(t)
	keys := make([]peerfilter.Hash, 64)
	for i := range keys {
		keys[i] = key(1000 + i)
	}
	i, least := 0, 1e9
	for range 20 { // the whole process is counted, and others may be at work
		least = min(least, testing.AllocsPerRun(100, func() {
			k := keys[i%len(keys)]
			p.filter.Add(k)
			p.filter.Remove(k)
			p.a.replicas[0].Lookup(k)
			i++
		}))
	}
	if least != 0 {
		t.Errorf("%v allocations", least)
	}
}
