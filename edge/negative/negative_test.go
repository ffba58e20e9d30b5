package negative

import (
	"bytes"
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the model tests; 0: from the clock")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("run again with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

var nobody netip.Addr

// check verifies the invariants of every part, and that the budget is the sum
// of what is held.
func (c *Cache) check(t *testing.T) {
	t.Helper()
	used := int64(0)
	if len(c.shards) > 0 {
		used += int64(len(c.shards)) * shardStructBytes
		if l := c.limiter; l.rate > 0 {
			used += limiterBytes(len(l.created[0]), int(min(1<<20, max(1<<10, floorPow2(c.budget.limit/64)))))
			for name := range l.sites {
				used += siteLimitBytes + int64(len(name))
			}
		}
	}
	pages, bodies, origins := map[uint32]int{}, map[uint32]int{}, map[uint32]int{}
	for i := range c.shards {
		s := &c.shards[i]
		slots := map[uint64]bool{}
		for _, slot := range s.table {
			if slot != 0 {
				slots[slot] = true
			}
		}
		if len(slots) != s.n {
			t.Fatalf("shard %d: %d slots for %d records", i, len(slots), s.n)
		}
		n := 0
		for j, id := range s.order {
			seg := &s.segs[id]
			live := 0
			for off := 0; off < seg.used; {
				r := record(seg.buf[off:])
				if !r.dead() {
					live++
					if off < seg.tail {
						t.Fatalf("shard %d: a live record before the tail", i)
					}
					hash := maphash.String(c.seed, s.keyOf(r))
					if !slots[s.slotOf(id, off, uint32(hash))] {
						t.Fatalf("shard %d: a live record without a slot", i)
					}
					at := s.placeAt(id, off, r)
					if got := s.findLocked(hash, s.keyOf(r)); got != at {
						t.Fatalf("shard %d: key at %d is found at %d", i, at, got)
					}
					if pages[r.page()]++; pages[r.page()] == 1 {
						if body := c.pages.at(r.page()).body; body != 0 {
							bodies[body]++
						}
					}
					if r.origin() != 0 {
						origins[r.origin()]++
					}
				}
				off += r.len()
			}
			if live != seg.live {
				t.Fatalf("shard %d segment %d: %d live records, counted %d", i, id, live, seg.live)
			}
			if live == 0 && (j < len(s.order)-1 || seg.used != 0) {
				t.Fatalf("shard %d: an empty segment is kept", i)
			}
			n += live
			used += int64(len(seg.buf))
		}
		if n != s.n {
			t.Fatalf("shard %d: %d live records, counted %d", i, n, s.n)
		}
		used += int64(len(s.table))*8 + int64(len(s.segs))*segmentBytesExtra
	}
	used += checkBlobs(t, "pages", c.pages, pages) + checkBlobs(t, "bodies", c.bodies, bodies) + checkBlobs(t, "origins", c.origins, origins)
	if got := c.budget.used.Load(); got != used {
		t.Fatalf("budget says %d bytes are used, held are %d", got, used)
	}
	if used > c.budget.limit {
		t.Fatalf("%d bytes are above the limit of %d", used, c.budget.limit)
	}
}

func checkBlobs[T any](t *testing.T, name string, bs *blobs[T], refs map[uint32]int) (used int64) {
	t.Helper()
	if bs.live != len(refs) {
		t.Fatalf("%s: %d are held, records refer to %d", name, bs.live, len(refs))
	}
	for id, n := range refs {
		b := (*bs.slots.Load())[id]
		if b == nil || b.refs != n {
			t.Fatalf("%s %d: %+v for %d records", name, id, b, n)
		}
		used += bs.cost(b.data)
	}
	return used + int64(bs.next-1)*blobSlotBytes
}

func gone(head string, body string, now time.Time, ttl time.Duration) Entry {
	return Entry{Status: 404, Head: head, Body: []byte(body), Stored: now, Expires: now.Add(ttl)}
}

func TestCache_returnsWhatWasPut(t *testing.T) {
	c := New(Config{CapacityBytes: 1 << 20})
	now := c.base.Add(time.Hour)
	want := Entry{
		Status: 410, Head: "Content-Type: text/plain\r\n", Body: []byte("gone"), From: FromShield,
		Stored: now.Add(-time.Second), InitialAge: 1500 * time.Millisecond,
		Expires: now.Add(time.Minute), Keep: 90 * time.Second, Generation: 1<<40 - 2,
	}
	if ok, reason := c.Put("http://h/a", nobody, want, now); !ok {
		t.Fatalf("refused: %s", reason)
	}
	got, ok := c.Get("http://h/a", now)
	if !ok {
		t.Fatal("not found")
	}
	if got.Status != 410 || got.From != FromShield || got.Head != want.Head || string(got.Body) != "gone" || got.Keep != want.Keep || got.Generation != want.Generation {
		t.Errorf("got %+v", got)
	}
	if !got.Stored.Equal(want.Stored) || !got.Expires.Equal(want.Expires) {
		t.Errorf("stored %v, expires %v; want %v, %v", got.Stored, got.Expires, want.Stored, want.Expires)
	}
	if got.InitialAge != 2*time.Second {
		t.Errorf("initial age %v: want it rounded up to 2s", got.InitialAge)
	}
	if _, ok := c.Get("http://h/ab", now); ok {
		t.Error("another key was found")
	}
	c.check(t)
}

func TestCache_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{CapacityBytes: 1 << 20})
		e := gone("", "", time.Now(), 5*time.Second)
		c.Put("fresh", nobody, e, time.Now())
		e.Keep = 10 * time.Second
		c.Put("kept", nobody, e, time.Now())
		has := func(key string) bool { _, ok := c.Get(key, time.Now()); return ok }

		time.Sleep(5*time.Second - time.Millisecond)
		if !has("fresh") || !has("kept") {
			t.Fatal("an entry ended before its time")
		}
		time.Sleep(time.Millisecond)
		if has("fresh") {
			t.Error("an expired entry was returned")
		}
		if !has("kept") {
			t.Error("a stale entry was not kept")
		}
		c.Sweep(time.Now())
		if n := c.Stats().Entries; n != 1 {
			t.Errorf("%d entries after the sweep: want the kept one", n)
		}
		time.Sleep(10 * time.Second)
		if has("kept") {
			t.Error("a stale entry outlived its keep")
		}
		c.Sweep(time.Now())
		c.check(t)
		if st := c.Stats(); st.Entries != 0 || st.Bytes > New(Config{CapacityBytes: 1 << 20}).Stats().Bytes+2*segmentBytesExtra {
			t.Errorf("after the last entry ended: %+v", st)
		}
		if ok, reason := c.Put("late", nobody, e, time.Now()); ok || reason != ReasonExpired {
			t.Errorf("an entry that is over: stored %t, %q", ok, reason)
		}
	})
}

func TestCache_refuses(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name     string
		capacity int64
		key      string
		e        Entry
		want     Reason
	}{
		{"nothing fits into no capacity", 0, "k", gone("h", "b", now, time.Minute), ReasonCapacity},
		{"nor into too little", minCapacity - 1, "k", gone("h", "b", now, time.Minute), ReasonCapacity},
		{"nor into less than nothing", -5, "k", gone("h", "b", now, time.Minute), ReasonCapacity},
		{"the least capacity", minCapacity, "k", gone("h", "b", now, time.Minute), ""},
		{"a long key", 64 << 20, strings.Repeat("k", maxKeyBytes+1), gone("h", "b", now, time.Minute), ReasonTooLarge},
		{"the longest key", 64 << 20, strings.Repeat("k", 16<<10/2-recordHead), gone("h", "b", now, time.Minute), ""},
		{"a long head", 64 << 20, "k", gone(strings.Repeat("h", maxHeadBytes+1), "b", now, time.Minute), ReasonTooLarge},
		{"a long body", 64 << 20, "k", gone("h", strings.Repeat("b", 32<<10+1), now, time.Minute), ReasonTooLarge},
		{"a body of half the memory", minCapacity, "k", gone("h", strings.Repeat("b", 32<<10), now, time.Minute), ""},
		{"a lifetime that is over", 64 << 20, "k", gone("h", "b", now, 0), ReasonExpired},
		{"a lifetime that never was", 64 << 20, "k", Entry{Status: 404}, ReasonExpired},
		{"an empty key and nothing in it", 64 << 20, "", gone("", "", now, time.Minute), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Config{CapacityBytes: tt.capacity})
			_, got := c.Put(tt.key, nobody, tt.e, now)
			if got != tt.want {
				t.Errorf("reason %q: want %q", got, tt.want)
			}
			want := uint64(0)
			if tt.want != "" {
				want = 1
			}
			if n := c.Stats().Refused[tt.want]; n != want {
				t.Errorf("counted %d times: want %d", n, want)
			}
			if len(c.Stats().Refused) != len(reasons) {
				t.Errorf("refused %v: want every reason", c.Stats().Refused)
			}
			_, ok := c.Get(tt.key, now)
			if ok != (tt.want == "") {
				t.Errorf("found: %t", ok)
			}
			c.Delete(tt.key, now)
			c.Review(t.Context(), 1, func(string, Entry) bool { return false })
			c.Sweep(now)
			c.check(t)
		})
	}
}

// Below its capacity the cache is a map.
func TestCache_model(t *testing.T) {
	rng := newRand(t)
	c := New(Config{CapacityBytes: 16 << 20})
	now := c.base
	model := map[string]Entry{}
	gen := uint64(0)
	ended := func(e Entry) bool { return !now.Before(e.Expires.Add(e.Keep)) }
	for i := range 100_000 {
		now = now.Add(time.Duration(rng.IntN(3)) * time.Millisecond)
		key := fmt.Sprintf("http://h/%0*d", 1+rng.IntN(40), rng.IntN(3000))
		switch op := rng.IntN(100); {
		case op < 40:
			e := gone(strings.Repeat("h", rng.IntN(20)), strings.Repeat("b", rng.IntN(20)), now, time.Duration(1+rng.IntN(60_000))*time.Millisecond)
			e.Keep = time.Duration(rng.IntN(3)) * time.Second
			e.Generation = gen
			if ok, reason := c.Put(key, nobody, e, now); !ok {
				t.Fatalf("step %d: refused: %s", i, reason)
			}
			model[key] = e
		case op < 80:
			got, ok := c.Get(key, now)
			want, has := model[key]
			has = has && !ended(want)
			if ok != has {
				t.Fatalf("step %d: found %t, want %t", i, ok, has)
			}
			if ok && (got.Head != want.Head || !bytes.Equal(got.Body, want.Body) || !got.Expires.Equal(want.Expires) || got.Keep != want.Keep || got.Generation != want.Generation) {
				t.Fatalf("step %d: got %+v, want %+v", i, got, want)
			}
		case op < 99:
			_, has := model[key]
			if ok := c.Delete(key, now); ok && !has || !ok && has && !ended(model[key]) {
				t.Fatalf("step %d: deleted %t, want %t", i, ok, has)
			}
			delete(model, key)
		case rng.IntN(50) == 0:
			c.Sweep(now)
			for k, e := range model {
				if ended(e) {
					delete(model, k)
				}
			}
			if n := c.Stats().Entries; n != int64(len(model)) {
				t.Fatalf("step %d: %d entries after a sweep, want %d", i, n, len(model))
			}
			c.check(t)
		case rng.IntN(50) == 0:
			c.Sweep(now)
			last := byte('0' + rng.IntN(10))
			match := func(k string) bool { return k[len(k)-1] == last }
			want := 0
			for k, e := range model {
				if ended(e) {
					delete(model, k)
				} else if match(k) {
					delete(model, k)
					want++
				}
			}
			if n := c.Review(t.Context(), gen+1, func(k string, _ Entry) bool { return !match(k) }); n != want {
				t.Fatalf("step %d: forgot %d, want %d", i, n, want)
			}
			if n := c.Review(t.Context(), gen+1, func(string, Entry) bool { return false }); n != 0 {
				t.Fatalf("step %d: %d were looked at again", i, n)
			}
			gen++
			for k, e := range model {
				e.Generation = gen
				model[k] = e
			}
			c.check(t)
		}
	}
}

// At its capacity it forgets, stays inside, and never tells a wrong thing.
func TestCache_modelAtCapacity(t *testing.T) {
	for _, tt := range []struct {
		name     string
		capacity int64
		unique   bool // every head and body is another
		key      int  // its largest length
	}{
		{"least", minCapacity, false, 40},
		{"least, unique content", minCapacity, true, 40},
		{"one mebibyte", 1 << 20, false, 80},
		{"one mebibyte, unique content", 1 << 20, true, 40},
		{"long keys", 1 << 20, true, 4000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rng := newRand(t)
			c := New(Config{CapacityBytes: tt.capacity})
			now := c.base
			latest := map[string]Entry{}
			for i := range 25_000 {
				now = now.Add(time.Millisecond)
				key := fmt.Sprintf("http://h/%d/%s", rng.IntN(40_000), strings.Repeat("x", rng.IntN(8)*tt.key/8))
				switch rng.IntN(8) {
				default:
					head, body := "Content-Type: text/html\r\n", "<h1>Not Found</h1>"
					if tt.unique {
						head = fmt.Sprintf("X-Request-Id: %d\r\n", i)
						body = fmt.Sprintf("no %s%s", key, strings.Repeat("!", rng.IntN(2000)))
					}
					e := gone(head, body, now, time.Hour)
					if ok, reason := c.Put(key, nobody, e, now); !ok {
						t.Fatalf("step %d: refused for %s: it should forget instead", i, reason)
					}
					latest[key] = e
					if _, ok := c.Get(key, now); !ok {
						t.Fatalf("step %d: the newest entry is not there", i)
					}
				case 0:
					c.Delete(key, now)
					delete(latest, key)
				case 1:
					got, ok := c.Get(key, now)
					want, put := latest[key]
					if ok && (!put || got.Head != want.Head || !bytes.Equal(got.Body, want.Body)) {
						t.Fatalf("step %d: got %+v, want %+v", i, got, want)
					}
				}
				if i%5000 == 0 {
					c.check(t)
				}
			}
			c.check(t)
			st := c.Stats()
			if st.Forgotten == 0 {
				t.Errorf("nothing was forgotten: %+v", st)
			}
			c.Review(t.Context(), 1, func(string, Entry) bool { return false })
			c.Sweep(now)
			c.check(t)
			if st := c.Stats(); st.Entries != 0 {
				t.Errorf("%d entries after all were deleted", st.Entries)
			}
		})
	}
}

func TestCache_forgetsOldestFirst(t *testing.T) {
	c := New(Config{CapacityBytes: minCapacity})
	now := c.base
	n := 0
	for c.Stats().Forgotten == 0 {
		c.Put(fmt.Sprintf("http://h/%08d", n), nobody, gone("h", "b", now, time.Hour), now)
		n++
	}
	first := n
	for i := range n {
		if _, ok := c.Get(fmt.Sprintf("http://h/%08d", i), now); ok {
			first = min(first, i)
		} else if i > first {
			t.Fatalf("%d is forgotten, the older %d is not", i, first)
		}
	}
	// A segment holds 4 KiB of records of 27 bytes.
	if want := 4096 / 27; first > want {
		t.Errorf("%d entries were forgotten at once: want at most %d", first, want)
	}
}

// What can never fit is refused, and leaves nothing behind.
func TestCache_bodyAboveCapacity(t *testing.T) {
	c := New(Config{CapacityBytes: minCapacity, MaxBodyBytes: 1 << 20})
	now := c.base
	c.Put("small", nobody, gone("h", "b", now, time.Hour), now)
	if _, reason := c.Put("large", nobody, gone("another h", strings.Repeat("b", 100_000), now, time.Hour), now); reason != ReasonCapacity {
		t.Errorf("reason %q: want capacity", reason)
	}
	c.check(t)
}

// One page for a thousand URLs is kept once.
func TestCache_sharesContent(t *testing.T) {
	c := New(Config{CapacityBytes: 64 << 20})
	now := c.base
	page := strings.Repeat("<p>not here</p>", 1000)
	for i := range 1000 {
		c.Put(fmt.Sprint(i), nobody, gone(fmt.Sprintf("X-Id: %d\r\n", i), page, now, time.Hour), now)
	}
	if c.bodies.live != 1 || c.pages.live != 1000 {
		t.Errorf("%d bodies, %d pages: want 1, 1000", c.bodies.live, c.pages.live)
	}
	body := []byte("mine")
	c.Put("copied", nobody, Entry{Status: 404, Body: body, Expires: now.Add(time.Hour)}, now)
	body[0] = 'X'
	if e, _ := c.Get("copied", now); string(e.Body) != "mine" {
		t.Errorf("body %q is the caller's memory", e.Body)
	}
	c.check(t)
}

// In a full cache an entry under a URL of 48 bytes takes 64 or less, where the
// same answer is given to many.
func TestCache_bytesOfAnEntry(t *testing.T) {
	c := New(Config{CapacityBytes: 8 << 20})
	now := c.base
	for i := range 200_000 {
		c.Put(fmt.Sprintf("https://www.example.com/item/%08d/index.html?v", i), nobody, gone("Content-Type: text/html\r\n", "<h1>Not Found</h1>", now, time.Hour), now)
		if i%1000 != 0 {
			continue
		}
		if st := c.Stats(); st.Forgotten > 0 && st.Bytes > 64*st.Entries {
			t.Errorf("%d entries take %d bytes, %.1f each", st.Entries, st.Bytes, float64(st.Bytes)/float64(st.Entries))
		}
	}
	if c.Stats().Forgotten == 0 {
		t.Error("the cache was never full")
	}
}

// Keys of one site take their origin once. Who asks for as many hosts as he
// likes fills no more than the places for origins, and costs the others nothing.
func TestCache_sharesOrigins(t *testing.T) {
	c := New(Config{CapacityBytes: 64 << 20})
	now := c.base
	const hosts = maxOrigins + 1000
	key := func(host, path int) string { return fmt.Sprintf("https://%04d.example/%d?u=http://h/", host, path) }
	put := func(k string) {
		if ok, reason := c.Put(k, nobody, gone("h", "b", now, time.Hour), now); !ok {
			t.Fatalf("%s: %s", k, reason)
		}
	}
	for i := range hosts {
		put(key(i, i%2))
	}
	if c.origins.live != maxOrigins {
		t.Errorf("%d origins are held, want %d", c.origins.live, maxOrigins)
	}
	for i := range hosts {
		if _, ok := c.Get(key(i, i%2), now); !ok {
			t.Errorf("%s is not found", key(i, i%2))
		}
		if _, ok := c.Get(key(i, 1-i%2), now); ok {
			t.Errorf("%s was never put", key(i, 1-i%2))
		}
	}
	c.check(t)
	for i := range hosts {
		c.Delete(key(i, i%2), now)
	}
	if c.origins.live != 0 {
		t.Errorf("%d origins are held for nothing", c.origins.live)
	}
	for _, k := range []string{"", "/", "://", ":///", "a://b", "a://b/", "a://b//", "http://h/\nvariant", "http://h"} {
		put(k)
		if _, ok := c.Get(k, now); !ok {
			t.Errorf("%q is not found", k)
		}
	}
	c.check(t)
}

// What is put while a review looks at an older entry of its key stays, as it
// was put.
func TestCache_reviewMeetsNewerEntry(t *testing.T) {
	for _, keep := range []bool{true, false} {
		c := New(Config{CapacityBytes: 1 << 20})
		now := c.base
		put := func(gen uint64) {
			e := gone("h", "b", now, time.Hour)
			e.Generation = gen
			c.Put("http://h/a", nobody, e, now)
		}
		put(3)
		n := c.Review(t.Context(), 7, func(string, Entry) bool {
			put(9)
			return keep
		})
		if e, ok := c.Get("http://h/a", now); n != 0 || !ok || e.Generation != 9 {
			t.Errorf("kept %t: %d forgotten, then %+v, %t", keep, n, e, ok)
		}
		c.check(t)
	}
}

func TestCache_deletionBeatsOlderFill(t *testing.T) {
	c := New(Config{CapacityBytes: 1 << 20})
	at := func(ms int) time.Time { return c.base.Add(time.Duration(ms) * time.Millisecond) }
	put := func(key string, asked, arrived int) Reason {
		e := gone("", "", at(arrived), time.Minute)
		e.Asked = at(asked)
		_, reason := c.Put(key, nobody, e, at(arrived))
		return reason
	}
	c.Delete("a", at(100))
	for _, tt := range []struct {
		name  string
		key   string
		asked int
		want  Reason
	}{
		{"asked before the deletion", "a", 99, ReasonSuperseded},
		{"asked at that moment", "a", 100, ReasonSuperseded},
		{"asked after it", "a", 101, ""},
		{"another key", "b", 99, ""},
	} {
		if got := put(tt.key, tt.asked, 200); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// However many keys are deleted, an older fill of none of them gets in.
func TestCache_deletionIsNeverForgotten(t *testing.T) {
	c := New(Config{CapacityBytes: 1 << 20})
	at := func(i int) time.Time { return c.base.Add(time.Duration(i) * time.Millisecond) }
	const n = 5000
	for i := range n {
		c.Delete(fmt.Sprint(i), at(i))
	}
	for i := range n {
		e := gone("", "", at(n), time.Minute)
		e.Asked = at(i)
		if ok, _ := c.Put(fmt.Sprint(i), nobody, e, at(n)); ok {
			t.Fatalf("an absence of %d from before its deletion was stored", i)
		}
	}
	e := gone("", "", at(n), time.Minute)
	e.Asked = at(n)
	if ok, reason := c.Put("7", nobody, e, at(n)); !ok {
		t.Errorf("an absence from after all deletions was refused: %s", reason)
	}
}

func TestCache_concurrently(t *testing.T) {
	for _, capacity := range []int64{minCapacity, 4 << 20} {
		c := New(Config{CapacityBytes: capacity, MaxCreateRate: 1 << 20})
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 2))
				for i := range 10_000 {
					now := c.base.Add(time.Duration(i) * time.Millisecond)
					key := fmt.Sprintf("http://h/%d", rng.IntN(5000))
					switch rng.IntN(10) {
					default:
						want := "body of " + key
						if e, ok := c.Get(key, now); ok && string(e.Body) != want {
							t.Errorf("%s has %q", key, e.Body)
						}
					case 0, 1, 2, 3:
						c.Put(key, netip.AddrFrom4([4]byte{10, 0, byte(g), 1}), gone(fmt.Sprint("h", rng.IntN(9)), "body of "+key, now, time.Second), now)
					case 4:
						c.Delete(key, now)
					case 5:
						switch rng.IntN(100) {
						case 0:
							c.Sweep(now)
						case 1:
							c.Review(t.Context(), uint64(i), func(k string, e Entry) bool {
								if string(e.Body) != "body of "+k {
									t.Errorf("%s has %q", k, e.Body)
								}
								return !strings.HasSuffix(k, "7")
							})
						case 2:
							if st := c.Stats(); st.Bytes > st.LimitBytes {
								t.Errorf("%d bytes of %d", st.Bytes, st.LimitBytes)
							}
						}
					}
				}
			})
		}
		wg.Wait()
		c.check(t)
	}
}

func TestCache_getDoesNotAllocate(t *testing.T) {
	c := New(Config{CapacityBytes: 1 << 20})
	now := time.Now()
	c.Put("http://h/a", nobody, gone("h", "b", now, time.Hour), now)
	if n := testing.AllocsPerRun(100, func() {
		c.Get("http://h/a", now)
		c.Get("http://h/b", now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
