package store

import (
	"fmt"
	"strings"
	"testing"
)

func TestPurge_judgesAgainWhatChangedMeanwhile(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	k := keyOf("http://h/a")
	mustPut(t, s, k, sized("", 10))
	asked := 0
	got := s.Purge(func(url string, r *Response) *Response {
		if asked++; asked == 1 {
			// Freshened between judgement and deed, by another goroutine.
			done := make(chan bool)
			go func() { done <- s.Replace(0, k, r, r.With("fresh", 8)) }()
			if !<-done {
				t.Error("a response can't be replaced during a purge")
			}
		}
		return nil
	})
	if asked != 2 || got != (Purged{Dropped: 1}) || s.Get(0, k) != nil {
		t.Errorf("asked %d times, %+v", asked, got)
	}
	mustAudit(t, s)
}

func TestPurge_givesUpOnAKeyThatAlwaysChanges(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	k := keyOf("http://h/a")
	mustPut(t, s, k, sized("", 10))
	asked := 0
	got := s.Purge(func(url string, r *Response) *Response {
		asked++
		done := make(chan bool)
		go func() { done <- s.Replace(0, k, r, r.With("fresh", 8)) }()
		<-done
		return r.With("marked", 8)
	})
	if asked != maxJudgements || got != (Purged{}) {
		t.Errorf("asked %d times, %+v", asked, got)
	}
	mustAudit(t, s)
}

func TestPurge_marksInAFullPartition(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 10, Shards: 1})
	for i := range 200 {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/", i%100)), sized(fmt.Sprint(i%3), 300))
	}
	before := s.Stats(0)
	got := s.Purge(func(url string, r *Response) *Response {
		if strings.HasSuffix(url, "9") {
			return nil
		}
		return r.With("marked", 1000)
	})
	after := s.Stats(0)
	evicted := int(after.Evicted.Small + after.Evicted.Main - before.Evicted.Small - before.Evicted.Main)
	if got.Marked == 0 || evicted == 0 || int(after.Marked) != got.Marked || int(after.Purged) != got.Dropped {
		t.Errorf("%+v, %d evicted, %+v", got, evicted, after)
	}
	s.Purge(func(url string, r *Response) *Response {
		if r.Meta != "marked" {
			t.Errorf("%s escaped", url)
		}
		return r
	})
	mustAudit(t, s)

	// A mark that can't fit must not leave the response as it was.
	n := s.Stats(0).Objects
	if got := s.Purge(func(_ string, r *Response) *Response { return r.With("marked", 64<<10) }); got != (Purged{Dropped: n}) {
		t.Errorf("%+v, want %d dropped", got, n)
	}
	mustAudit(t, s)
}

// The mark of a key's older variant pushes out the younger, which then must
// not come back as a mark of its own.
func TestPurge_skipsWhatMadeRoomForASibling(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 10})
	k := keyOf("http://h/a")
	mustPut(t, s, k, sized("a", 25000))
	mustPut(t, s, k, sized("b", 25000))
	got := s.Purge(func(_ string, r *Response) *Response { return r.With("marked", 20000) })
	rs := s.Get(0, k)
	if got != (Purged{Marked: 1}) || len(rs) != 1 || rs[0].Variant != "a" || rs[0].Meta != "marked" {
		t.Errorf("%+v, %d stored", got, len(rs))
	}
	mustAudit(t, s)
}
