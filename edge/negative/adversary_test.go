package negative

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// collide returns n keys of 64 bytes after the prefix, which is of a multiple
// of 32 bytes, that all have one xxhash. After a stripe of 32 bytes each of its
// four lanes is rotl(lane + word*p2, 31)*p1; so whatever a stripe did to a lane,
// one word of the next stripe undoes.
func collide(prefix string, n int) []string {
	const p1, p2 uint64 = 11400714785074694791, 14029467366897019727
	inverse := p2 // Newton's iteration, modulo 2^64
	for range 6 {
		inverse *= 2 - p2*inverse
	}
	round := func(lane, word uint64) uint64 { return bits.RotateLeft64(lane+word*p2, 31) * p1 }
	var lane uint64 = p1
	lane += p2 // the first of the four, without a seed
	for i := 0; i < len(prefix); i += 32 {
		lane = round(lane, binary.LittleEndian.Uint64([]byte(prefix[i:])))
	}
	base := round(lane, 0)
	keys := make([]string, n)
	for i := range keys {
		var b [64]byte
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		binary.LittleEndian.PutUint64(b[32:], (base-round(lane, uint64(i)))*inverse)
		keys[i] = prefix + string(b[:])
	}
	return keys
}

// longest is the most places of a table that a look-up of a present key passes.
func (c *Cache) longest() (most int) {
	for i := range c.shards {
		s := &c.shards[i]
		n := len(s.table)
		for at, slot := range s.table {
			if slot != 0 {
				most = max(most, (at-home(uint32(slot), n)+n)%n)
			}
		}
	}
	return most
}

// Keys made by somebody who knows the code, but not this process's seed, are
// found, told apart, spread and forgotten like any others.
func TestCache_adversarialKeys(t *testing.T) {
	const n = 5000
	prefix := "http://www.example.com/search?q="
	random, colliding, near, long, control := make([]string, n), collide(prefix, n), make([]string, n), make([]string, n), make([]string, n)
	rnd := newRand(t)
	for i := range n {
		random[i] = fmt.Sprintf("%s%016x%016x", prefix, rnd.Uint64(), rnd.Uint64())
		near[i] = prefix + strings.Repeat("a", i%997) + fmt.Sprint(i/997)
		long[i] = prefix + strings.Repeat("/", 6000) + fmt.Sprint(i)
		control[i] = prefix + string([]byte{byte(i), byte(i >> 8), 0, '\r', '\n', 0x7f, 0xff})
	}
	if len(prefix)%32 != 0 {
		t.Fatalf("the prefix has %d bytes", len(prefix))
	}
	for _, k := range colliding {
		if xxhash.Sum64String(k) != xxhash.Sum64String(colliding[0]) {
			t.Fatalf("%q does not collide", k)
		}
	}
	for name, keys := range map[string][]string{"random": random, "colliding": colliding, "near": near, "long": long, "control": control} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{CapacityBytes: 64 << 20})
			now := c.base
			for i, k := range keys {
				e := gone("h", "b", now, time.Hour)
				e.Status = 400 + i%100
				if ok, reason := c.Put(k, nobody, e, now); !ok {
					t.Fatalf("%.80q: %s", k, reason)
				}
			}
			for i, k := range keys {
				if e, ok := c.Get(k, now); !ok || e.Status != 400+i%100 {
					t.Fatalf("%.80q: %d, %t", k, e.Status, ok)
				}
				if _, ok := c.Get(k+"\x00", now); ok {
					t.Fatalf("%.80q with a byte more is found", k)
				}
			}
			// Linear probing at four fifths: for 5000 keys in 256 tables of some
			// 20 to 30, well below a table's length.
			if m := c.longest(); m > 30 {
				t.Errorf("a look-up passes %d places", m)
			}
			c.check(t)
			for i, k := range keys {
				if i%2 == 0 && !c.Delete(k, now) {
					t.Fatalf("%.80q was not there", k)
				}
			}
			for i, k := range keys {
				if _, ok := c.Get(k, now); ok != (i%2 == 1) {
					t.Fatalf("%.80q: %t after every other one was deleted", k, ok)
				}
			}
			c.check(t)
		})
	}
}

// The catalog and the estimate of distinct keys are no different.
func TestCatalog_adversarialKeys(t *testing.T) {
	c := newCatalog(t, CatalogConfig{})
	now := c.base
	if err := c.Load(strings.NewReader("/a\n"), now); err != nil {
		t.Fatal(err)
	}
	keys := collide("/"+strings.Repeat("x", 31), 20_000)
	if err := c.Add(keys[:10_000], now); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for i, k := range keys {
		switch in := c.Contains(k); {
		case i < 10_000 && !in:
			t.Fatalf("%q is not found", k)
		case i >= 10_000 && in:
			wrong++
		}
	}
	if wrong > 40 { // 1 in 1000 of 10 000, and 9 standard deviations
		t.Errorf("%d of 10000 absent ones are taken for existing", wrong)
	}
}
