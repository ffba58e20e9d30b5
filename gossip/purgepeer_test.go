package gossip

import (
	"fmt"
	"testing"
	"time"
)

// A peer's answer to a pull may hold changes of a third that lie beyond a gap of
// its own: it is not taken for one that has all before them. (It was, so that
// requests to it did not tell what it lacked, and it could answer from before.)
func TestLog_tellsAPeerWhatLiesInItsGap(t *testing.T) {
	third := origin{"c", 3}
	var records []record
	for seq := range uint64(3) {
		records = append(records, record{third, seq + 1, appendChange(nil, &Change{Kind: KindPurge, URLs: []string{fmt.Sprint(seq + 1)}, Stamp: wallStamp(time.Unix(1e9, 0))})})
	}
	a := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	a.peerUp(0, "b", 2)
	a.takeRecords(0, records[:2])
	p := a.peer("b")
	p.pulling, a.pulls = 1, 1
	a.pulled(0, pullEffect{id: 1, from: "b"}, catchUp{records: records[2:]}, nil)
	told, err := decodeCatchUp(a.carry(0, "b", func(*Change) bool { return true }))
	if err != nil || len(told.records) != 3 {
		t.Errorf("a request tells of %d changes, want 3: %v", len(told.records), err)
	}
}

// A request tells of what was applied here lately, however long ago it was made:
// its origin may have been cut off with it, and the peer not have heard yet that
// it is back. What closed a gap is told with what lay beyond, and what an earlier
// process applied just before it ended, too.
func TestLog_carriesWhatWasAppliedLately(t *testing.T) {
	base := time.Unix(1e9, 0)
	now := 10 * time.Minute
	from := origin{"a", 3}
	change := func(seq uint64, age time.Duration) record {
		return record{from, seq, appendChange(nil, &Change{Kind: KindPurge, URLs: []string{fmt.Sprint(seq)}, Stamp: wallStamp(base.Add(now - age))})}
	}
	told := func(b *logCore, now time.Duration) int {
		a := b.carry(now, "c", func(*Change) bool { return true })
		if a == nil {
			return 0
		}
		got, err := decodeCatchUp(a)
		if err != nil {
			t.Fatal(err)
		}
		return len(got.records)
	}
	for _, age := range []time.Duration{0, 50 * time.Second, 70 * time.Second, 3 * time.Minute} {
		b := newLogCore(logConfig{name: "b", boot: 1, base: base}, &clock{}, simRand())
		b.peerUp(now, "c", 2)
		b.takeRecords(now, []record{change(2, age)})
		later := now + decodedFor/2
		b.takeRecords(later, []record{change(1, age)})
		b.expire(later)
		if n := told(b, later); n != 2 {
			t.Errorf("taken %v ago and applied just now: %d are told, want 2", age, n)
		}
		b.expire(now + decodedFor)
		if n := told(b, now+decodedFor); n != 2 {
			t.Errorf("taken %v ago: %d are told while the gap has been closed for %v, want 2", age, n, decodedFor/2)
		}
		b.expire(later + decodedFor)
		if n := told(b, later+decodedFor); n != 0 {
			t.Errorf("taken %v ago: %d are told %v after they were applied, want none", age, n, decodedFor)
		}
	}
	b := newLogCore(logConfig{name: "b", boot: 2, base: base.Add(now)}, &clock{}, simRand())
	for seq, age := range []time.Duration{2 * time.Minute, 5 * time.Second} {
		r := change(uint64(seq)+1, age)
		b.restore(r, wallStamp(base.Add(now-age)))
	}
	b.expire(0)
	if n := told(b, time.Second); n != 1 {
		t.Errorf("started again: %d are told, want the one that is recent", n)
	}
}

// An answer to a pull that promises more, and of which nothing can be taken, is
// not asked for again at once, and less and less often.
func TestLog_pullsWithoutProgress(t *testing.T) {
	a := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	now := time.Second
	a.peerUp(now, "b", 2)
	p := a.peer("b")
	garbage := catchUp{records: []record{{origin{"c", 3}, 1, []byte{0xff}}}, more: true}
	var waits []time.Duration
	for range 3 {
		p.pulling, p.pullAt, a.pulls = 1, 0, 1
		a.pulled(now, pullEffect{id: 1, from: "b"}, garbage, nil)
		waits = append(waits, p.pullAt-now)
		now = p.pullAt
	}
	if waits[0] < pullRetry/2 || waits[1] < pullRetry || waits[2] < 2*pullRetry {
		t.Errorf("it asks again after %v", waits)
	}
	good := catchUp{records: []record{{origin{"c", 3}, 1, appendChange(nil, &Change{Kind: KindPurge, All: true, Stamp: wallStamp(time.Unix(1e9, 0))})}}, more: true}
	p.pulling, p.pullAt, a.pulls = 1, 0, 1
	if a.pulled(now, pullEffect{id: 1, from: "b"}, good, nil); p.pullAt > now || p.retry != pullRetry {
		t.Errorf("after progress it waits %v, then %v", p.pullAt-now, p.retry)
	}
}

// A process that did not run for a while asks every member that it holds for
// reachable, and believes neither what was sent before nor what it had asked
// before.
func TestLog_sleep(t *testing.T) {
	c := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	pulls := func() (list []pullEffect) {
		for _, e := range c.take() {
			if e, ok := e.(pullEffect); ok {
				list = append(list, e)
			}
		}
		return list
	}
	state := func(when string, want SyncState) {
		t.Helper()
		if c.state != want {
			t.Errorf("%s it is %s, want %s", when, c.state, want)
		}
	}
	now := time.Second
	c.peerUp(now, "b", 2)
	c.peerUp(now, "d", 3)
	_, hash := c.vector(now)
	digest := func(from string, boot uint64, hash uint64) {
		c.receive(now, logMessage{kind: frameDigest, from: from, boot: boot, hash: hash, entries: 1, heads: []seqHead{{origin{"x", 9}, 4, c.oldest(now, 0)}}})
	}
	digest("b", 2, hash+1) // shows something that is to be asked for
	now += pullWait
	c.tick(now)
	early := pulls()
	if len(early) != 1 {
		t.Fatalf("%d pulls before", len(early))
	}
	now += asleepAfter
	c.tick(now)
	state("after "+asleepAfter.String(), SyncSynced)
	now += asleepAfter + time.Millisecond
	c.receive(now, logMessage{kind: frameDigest, from: "d", boot: 3, hash: hash}) // from before
	state("after more than that", SyncSyncing)
	now += time.Millisecond
	c.pulled(now, early[0], catchUp{}, nil)
	c.receive(now, logMessage{kind: frameDigest, from: "b", boot: 2, hash: hash})
	c.receive(now, logMessage{kind: frameDigest, from: "d", boot: 3, hash: hash})
	state("after what was sent before", SyncSyncing)
	asked := pulls()
	if len(asked) != 2 {
		t.Fatalf("%d pulls after it, want one of each member", len(asked))
	}
	c.pulled(now, asked[0], catchUp{}, nil)
	state("after one answer", SyncSyncing)
	c.pulled(now, asked[1], catchUp{}, nil)
	state("after both", SyncSynced)
}
