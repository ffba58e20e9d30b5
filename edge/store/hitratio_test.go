package store

import (
	stdlist "container/list"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// trace makes requests of a synthetic popularity: Zipf over a fixed set, a
// share of keys that are asked for once ever, and a popularity that drifts.
type trace struct {
	rnd     *rand.Rand
	cum     []float64
	oneHit  float64 // share of requests for keys never seen again
	drift   int     // every so many requests the ranks move on by one
	n, next int
}

func newTrace(keys int, alpha, oneHit float64, drift int) *trace {
	t := &trace{rnd: rand.New(rand.NewPCG(2023, 10)), oneHit: oneHit, drift: drift, next: 1 << 40}
	sum := 0.0
	for i := range keys {
		sum += 1 / math.Pow(float64(i+1), alpha)
		t.cum = append(t.cum, sum)
	}
	return t
}

// request returns a key's number.
func (t *trace) request() int {
	t.n++
	if t.rnd.Float64() < t.oneHit {
		t.next++
		return t.next
	}
	rank := sort.SearchFloat64s(t.cum, t.rnd.Float64()*t.cum[len(t.cum)-1])
	if t.drift > 0 {
		rank += t.n / t.drift
	}
	return rank
}

// sizeOf gives a key a fixed size, whatever its popularity: log-normal with a median of 4 KiB, as web
// objects roughly are, up to 1 MiB.
func sizeOf(key int) int {
	rnd := rand.New(rand.NewPCG(uint64(key), 5))
	return int(min(4096*math.Exp(1.3*rnd.NormFloat64()), 1<<20))
}

// lru is least recently used, by the same bytes.
type lru struct {
	limit, used int64
	order       *stdlist.List
	at          map[int]*stdlist.Element
}

type lruEntry struct {
	key  int
	cost int64
}

func (c *lru) request(key int, cost int64) bool {
	if e := c.at[key]; e != nil {
		c.order.MoveToFront(e)
		return true
	}
	for c.used+cost > c.limit {
		e := c.order.Back()
		c.used -= e.Value.(lruEntry).cost
		delete(c.at, e.Value.(lruEntry).key)
		c.order.Remove(e)
	}
	c.used += cost
	c.at[key] = c.order.PushFront(lruEntry{key, cost})
	return false
}

// The policy earns its place. The seed is fixed, and each bound stands some
// two hundredths below what was measured, so that a policy that forgets its
// ghosts or its small queue fails.
func TestStore_hitsMoreThanLRU(t *testing.T) {
	const requests, keys = 100_000, 20_000
	for _, c := range []struct {
		name  string
		alpha float64
		one   float64
		drift int
		share int64 // of the bytes of all keys, one in
		gain  float64
	}{
		{"zipf 0.9, cache of 1/10", 0.9, 0, 0, 10, 0.05},
		{"zipf 0.9, cache of 1/100", 0.9, 0, 0, 100, 0.09},
		{"zipf 0.7, cache of 1/10", 0.7, 0, 0, 10, 0.07},
		{"zipf 0.9 and 30 % one-hit wonders", 0.9, 0.3, 0, 10, 0.07},
		{"zipf 0.9 that drifts", 0.9, 0.1, 100, 10, 0.04},
	} {
		t.Run(c.name, func(t *testing.T) {
			total := int64(0)
			for k := range keys {
				total += int64(sizeOf(k)) + 600
			}
			limit := total / c.share
			s, err := New(Config{Partitions: []PartitionConfig{{MaxBytes: limit}}})
			if err != nil {
				t.Fatal(err)
			}
			other := &lru{limit: limit - s.parts[0].base, order: stdlist.New(), at: map[int]*stdlist.Element{}}
			tr := newTrace(keys, c.alpha, c.one, c.drift)
			hits, lruHits, counted := 0, 0, 0
			for i := range requests {
				key := tr.request()
				k := keyOf(fmt.Sprint("http://example.com/", key))
				r := &Response{MetaBytes: sizeOf(key)}
				lruHit := other.request(key, r.bytes()+entryBytes(k.URL)+8)
				rs := s.Get(0, k)
				if rs != nil {
					s.Hit(rs[0])
				} else {
					mustPut(t, s, k, r)
				}
				if i < requests/4 {
					continue // filling
				}
				counted++
				if rs != nil {
					hits++
				}
				if lruHit {
					lruHits++
				}
			}
			ours, theirs := float64(hits)/float64(counted), float64(lruHits)/float64(counted)
			t.Logf("hit ratio: S3-FIFO %.4f, LRU %.4f; ghost hits %d", ours, theirs, s.Stats(0).GhostHits)
			if ours < theirs+c.gain {
				t.Errorf("hit ratio %.4f against %.4f of LRU: want %.2f more", ours, theirs, c.gain)
			}
		})
	}
}
