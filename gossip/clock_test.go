package gossip

import (
	"testing"
	"time"
)

// Stamps grow whatever the wall clock does, and follow another member's up to a
// minute ahead.
func TestClock(t *testing.T) {
	var c clock
	now := time.UnixMilli(1_000_000)
	a := c.next(now)
	if want := uint64(1_000_000) << 16; a != want {
		t.Fatalf("the first stamp is %x, want %x", a, want)
	}
	if b := c.next(now.Add(-time.Hour)); b <= a {
		t.Errorf("%x after %x, for the clock was set back", b, a)
	}
	ahead := wallStamp(now.Add(30 * time.Second))
	if !c.merge(ahead, now) || c.next(now) <= ahead {
		t.Error("another member's stamp is not followed")
	}
	if c.merge(wallStamp(now.Add(time.Hour)), now) || c.next(now) > wallStamp(now.Add(time.Minute)) {
		t.Error("a stamp far ahead takes the clock along")
	}
}
