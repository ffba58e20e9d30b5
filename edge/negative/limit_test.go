package negative

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// creator asks the limiter for ever new keys.
type creator struct {
	l    *limiter
	n    uint64
	site string
}

func (c *creator) try(client string, now int64) Reason {
	c.n++
	var a netip.Addr
	if client != "" {
		a = netip.MustParseAddr(client)
	}
	reason, _ := c.l.admit(c.n*0x9e3779b97f4a7c15, c.site, a, now)
	return reason
}

func (c *creator) admitted(client string, tries int, now int64) (n int) {
	for range tries {
		if c.try(client, now) == "" {
			n++
		}
	}
	return n
}

func newCreator(rate int) *creator {
	return &creator{l: newLimiter(rate, 4096, 1<<16, New(Config{}).seed, &budget{limit: 1 << 20})}
}

func TestLimiter_rate(t *testing.T) {
	c := newCreator(1000)
	if n := c.admitted("", 5000, 0); n < 1000 || n > 1010 {
		t.Errorf("%d created at once: want the 1000 of one second", n)
	}
	if r := c.try("", 0); r != ReasonRate {
		t.Errorf("reason %q: want rate", r)
	}
	if n := c.admitted("", 5000, 500); n < 500 || n > 510 {
		t.Errorf("%d created half a second later: want 500", n)
	}
	// Time that goes back creates nothing.
	if n := c.admitted("", 5000, 100); n > 10 {
		t.Errorf("%d created when time went back", n)
	}
	if n := c.admitted("", 5000, 1e9); n < 1000 || n > 1010 {
		t.Errorf("%d created after a long time: want no more than the 1000 of one second", n)
	}
}

func TestLimiter_none(t *testing.T) {
	c := newCreator(0)
	if n := c.admitted("192.0.2.1", 100_000, 0); n != 100_000 {
		t.Errorf("%d of 100000 created without a limit", n)
	}
}

func TestLimiter_fairShare(t *testing.T) {
	const rate = 1000
	// One network floods, twenty ask for ten new keys each second.
	c := newCreator(rate)
	refused, flooded := 0, 0
	for sec := range int64(20) {
		for slice := range int64(10) {
			now := sec*1000 + slice*100
			flooded += c.admitted(fmt.Sprintf("203.0.113.%d", slice), 2000, now)
			for n := range 20 {
				if r := c.try(fmt.Sprintf("10.0.%d.1", n), now); r != "" && sec > 0 {
					refused++
				}
			}
		}
	}
	if refused > 0 {
		t.Errorf("%d creations of well-behaved networks were refused", refused)
	}
	// 400 000 distinct keys, of which the doorkeeper may take a few for known.
	if perSec := flooded / 20; perSec > rate {
		t.Errorf("the flood created %d a second", perSec)
	}
	c.admitted("203.0.113.1", 2000, 19_950)
	if r := c.try("203.0.113.99", 19_950); r != ReasonClient {
		t.Errorf("another address of the flood's /24: %q", r)
	}
}

func TestLimiter_network(t *testing.T) {
	l := newCreator(1).l
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.254", true},
		{"192.0.2.1", "192.0.3.1", false},
		{"192.0.2.1", "::ffff:192.0.2.9", true},
		{"2001:db8:0:1200::1", "2001:db8:0:12ff:1::9", true},
		{"2001:db8:0:1200::1", "2001:db8:0:1300::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
	} {
		a, _ := l.network(netip.MustParseAddr(tt.a))
		b, _ := l.network(netip.MustParseAddr(tt.b))
		if (a == b) != tt.same {
			t.Errorf("%s and %s are one network: %t", tt.a, tt.b, a == b)
		}
	}
	if _, known := l.network(netip.Addr{}); known {
		t.Error("the zero address has a network")
	}
}

func TestLimiter_secondRequestGetsIn(t *testing.T) {
	c := newCreator(100)
	c.admitted("", 1000, 0)
	key := uint64(0xabcdef0123456789)
	if r, ok := c.l.admit(key, "", netip.Addr{}, 0); ok {
		t.Fatalf("a new key got in over the limit: %q", r)
	}
	if r, ok := c.l.admit(key, "", netip.Addr{}, 0); !ok {
		t.Errorf("a key that came before was refused: %s", r)
	}
	// Second requests have a limit, too.
	in := 0
	for i := range uint64(1000) {
		c.l.admit(i*0x9e3779b97f4a7c15+1, "", netip.Addr{}, 0)
		if _, ok := c.l.admit(i*0x9e3779b97f4a7c15+1, "", netip.Addr{}, 0); ok {
			in++
		}
	}
	if in > 100 {
		t.Errorf("%d keys got in by a second request: want at most 100 at once", in)
	}
}

// One site's flood leaves the others' limits alone, also when its clients are
// theirs; and more sites than there is memory for share one limit.
func TestLimiter_sites(t *testing.T) {
	c := newCreator(100)
	c.site = "flooded"
	if n := c.admitted("203.0.113.7", 5000, 0); n < 100 || n > 110 {
		t.Errorf("%d created of the flooded site: want 100", n)
	}
	c.site = "calm"
	if n := c.admitted("203.0.113.7", 90, 0); n != 90 {
		t.Errorf("%d of 90 created of the calm site", n)
	}
	used := c.l.budget.used.Load()
	for i := range 100_000 {
		c.site = fmt.Sprint("site-", i)
		c.admitted("", 1, 0)
	}
	if b := c.l.budget; b.used.Load() > b.limit || len(c.l.sites) < 5000 {
		t.Errorf("%d sites take %d bytes, %d before, of %d", len(c.l.sites), b.used.Load(), used, b.limit)
	}
	c.site = "site-99999"
	if n := c.admitted("", 1000, 10_000); n < 100 || n > 110 {
		t.Errorf("%d created of a site without memory of its own: want 100", n)
	}
}

// A flood of keys that never come again leaves at most the limit of entries,
// and a key that does come again gets in.
func TestCache_flood(t *testing.T) {
	c := New(Config{CapacityBytes: 4 << 20, MaxCreateRate: 1000})
	client := netip.MustParseAddr("203.0.113.7")
	now := c.base
	for i := range 50_000 { // in two seconds
		now = now.Add(40 * time.Microsecond)
		c.Put(fmt.Sprintf("http://h/%d", i), client, gone("h", "b", now, time.Minute), now)
	}
	st := c.Stats()
	if st.Entries > 3000+3000 {
		t.Errorf("%d entries: want at most the burst and two seconds of 1000, and as many by chance", st.Entries)
	}
	if st.Refused[ReasonRate]+st.Refused[ReasonClient]+uint64(st.Entries) != 50_000 {
		t.Errorf("entries and refusals do not add up: %+v", st)
	}
	var ok bool
	for range 2 {
		_, _ = c.Put("http://h/wanted", client, gone("h", "b", now, time.Minute), now)
		_, ok = c.Get("http://h/wanted", now)
	}
	if !ok {
		t.Error("a key that came twice is not remembered")
	}
	c.check(t)
}
