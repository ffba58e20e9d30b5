package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Everything at once: the filter is told of each key once and un-told once,
// never while the key can be found; the limit holds at every instant; what is
// found is what was asked for; and at the end index, queues, bytes and filter
// agree to the last one.
func TestStore_everythingAtOnce(t *testing.T) {
	rnd := newRand(t)
	for _, c := range []struct {
		name  string
		pc    PartitionConfig
		keys  int
		size  int
		steps int
	}{
		{"evicting all the time", PartitionConfig{MaxBytes: 100 << 10, Shards: 8}, 400, 3000, 5000},
		{"one shard that grows and shrinks", PartitionConfig{MaxBytes: 4 << 20, Shards: 1}, 3000, 200, 5000},
		{"objects as large as the partition", PartitionConfig{MaxBytes: 64 << 10, Shards: 2}, 50, 62000, 6000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, first := newStore(t, c.pc)
			keys := make([]*Key, c.keys)
			known := map[[2]uint64]*Key{}
			for i := range keys {
				keys[i] = keyOf(fmt.Sprint("http://h/", i))
				known[keys[i].Filter] = keys[i]
			}
			first.keys = known
			var wg sync.WaitGroup
			var stop atomic.Bool
			wg.Go(func() {
				for !stop.Load() {
					if n := s.Bytes(0); n > c.pc.MaxBytes {
						t.Errorf("%d bytes of %d", n, c.pc.MaxBytes)
					}
					if st := s.Stats(0); st.Bytes > st.LimitBytes || st.IndexBytes <= 0 || st.Keys > st.Objects {
						t.Errorf("stats = %+v", st)
					}
				}
			})
			wg.Go(func() {
				for !stop.Load() {
					next := newTally(t)
					next.part, next.keys = s.parts[0], known
					last := s.Filter(0).(*tally)
					s.Rebuild(0, next)
					last.close()
				}
			})
			var workers sync.WaitGroup
			for range 4 {
				rnd := rand.New(rand.NewPCG(rnd.Uint64(), 2))
				workers.Go(func() {
					for range c.steps {
						act(t, s, rnd, keys[rnd.IntN(len(keys))], c.size)
					}
				})
			}
			workers.Wait()
			stop.Store(true)
			wg.Wait()
			mustAudit(t, s)
			t.Logf("%+v", s.Stats(0))
			s.Purge(func(string, *Response) *Response { return nil })
			mustAudit(t, s)
			if n := s.Bytes(0); n != s.parts[0].base {
				t.Errorf("%d bytes remain in the empty store, want %d", n, s.parts[0].base)
			}
		})
	}
}

// act does one random operation on k.
func act(t *testing.T, s *Store, rnd *rand.Rand, k *Key, size int) {
	rs := s.Get(0, k)
	for i, r := range rs {
		for _, name := range r.Tags {
			if !strings.HasPrefix(name, "section-") && !strings.HasPrefix(name, "a-tag-of-its-own-") {
				t.Errorf("%s has the tag %q", k.URL, name)
			}
		}
		if !strings.HasSuffix(r.Head, k.URL+"\r\n") {
			t.Errorf("%s gives %q", k.URL, r.Head)
		}
		for _, v := range rs[:i] {
			if v.Variant == r.Variant {
				t.Errorf("%s has variant %q twice", k.URL, r.Variant)
			}
		}
		s.Hit(r)
	}
	variant := "gzip"[:rnd.IntN(4)]
	switch op := rnd.IntN(1000); {
	case op < 500:
		r := &Response{Variant: variant, Head: "X: " + k.URL + "\r\n", MetaBytes: rnd.IntN(size), Tags: someTags(rnd)}
		if ok, why := s.Put(0, k, r); !ok && why != TooLarge {
			t.Errorf("Put: %s", why)
		}
	case op < 700 && len(rs) > 0:
		r := rs[rnd.IntN(len(rs))].With(nil, rnd.IntN(size))
		if op%4 == 0 {
			r.Variant = variant
		}
		s.Replace(0, k, rs[rnd.IntN(len(rs))], r)
	case op < 750:
		s.Remove(0, k)
	case op < 800 && len(rs) > 0:
		s.RemoveResponse(0, k, rs[rnd.IntN(len(rs))])
	case op < 805:
		name := someTag(rnd)
		s.PurgeTag(name, func(url string, r *Response) *Response {
			switch {
			case !slices.Contains(r.Tags, name):
				return r
			case op == 803:
				return nil
			}
			return r.With(nil, r.MetaBytes+op%2*100)
		})
		s.Tagged(name)
		s.LargestTags(3)
	case op < 808:
		digit := fmt.Sprint(rnd.IntN(10))
		s.Purge(func(url string, r *Response) *Response {
			switch {
			case !strings.HasSuffix(url, digit):
				return r
			case op == 805:
				return nil
			}
			return r.With(nil, r.MetaBytes+op%2*100)
		})
	}
}

// A key that stays is found at every instant, though its table is exchanged
// under the look-up.
func TestStore_findsWhatStaysWhileTablesChange(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 4 << 20, Shards: 1})
	var stay []*Key
	for i := range 20 {
		stay = append(stay, keyOf(fmt.Sprint("http://h/stay/", i)))
		mustPut(t, s, stay[i], sized("", 10))
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				for _, k := range stay {
					if s.Get(0, k) == nil {
						t.Errorf("%s is gone for a moment", k.URL)
						return
					}
				}
			}
		})
	}
	var come []*Key
	for i := range 600 {
		come = append(come, keyOf(fmt.Sprint("http://h/come/", i)))
	}
	for range 60 {
		for _, k := range come {
			mustPut(t, s, k, sized("", 10))
		}
		for _, k := range come {
			s.Remove(0, k)
		}
	}
	stop.Store(true)
	wg.Wait()
	mustAudit(t, s)
}

// Rebuilds that start together follow one another: mixed, each would be told
// of only a part of the changes.
func TestRebuild_oneAtATime(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20, Shards: 64})
	for i := range 60 {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), sized("", 10))
	}
	var wg sync.WaitGroup
	var running atomic.Int32
	for range 3 {
		next := newTally(t)
		next.seen = func() {
			// Hold the lock until whoever waits for it is given it next.
			for since := time.Now(); time.Since(since) < 1500*time.Microsecond; {
				runtime.Gosched()
			}
		}
		running.Add(1)
		wg.Go(func() {
			s.Rebuild(0, next)
			running.Add(-1)
		})
	}
	for i := 0; running.Load() > 0; i++ {
		k := keyOf(fmt.Sprint("http://h/", i%60))
		s.Remove(0, k)
		mustPut(t, s, k, sized("", 10))
	}
	wg.Wait()
	mustAudit(t, s)
}
