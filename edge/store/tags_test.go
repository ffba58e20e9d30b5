package store

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// The table beside a map, growing to some thousand tags and shrinking to none.
func TestTagTable_isAMap(t *testing.T) {
	rnd := newRand(t)
	seed := maphash.MakeSeed()
	var table tagTable
	model := map[string]*tag{}
	for step := range 60_000 {
		name := fmt.Sprint(rnd.IntN(8000))
		hash := maphash.String(seed, name)
		if got := table.find(hash, name); got != model[name] {
			t.Fatalf("step %d: find(%s) = %v, want %v", step, name, got, model[name])
		}
		grows := step/10_000%2 == 0 // and so often shrinks
		switch g := model[name]; {
		case g == nil && (grows || rnd.IntN(4) == 0):
			want := table.bytes() + table.growth(1)
			g = &tag{hash: hash, name: name}
			model[name] = g
			table.add(g)
			if table.bytes() != want {
				t.Fatalf("step %d: %d bytes with one more, foretold were %d", step, table.bytes(), want)
			}
		case g != nil && (!grows || rnd.IntN(4) == 0):
			delete(model, name)
			table.remove(g)
		}
		if step%500 != 0 {
			continue
		}
		if n := segments(table.buckets); table.n != len(model) || table.buckets < table.n || table.buckets > 2*table.n || len(table.dir) != n || cap(table.dir) < n || cap(table.dir) > max(4*n, 1) {
			t.Fatalf("step %d: %d tags in %d buckets, %d segments of %d; want %d", step, table.n, table.buckets, len(table.dir), cap(table.dir), len(model))
		}
		far, want := table.growth(1000), table.bytes()
		for i := range 1000 {
			name := fmt.Sprint("more-", i)
			model[name] = &tag{hash: maphash.String(seed, name), name: name}
			table.add(model[name])
		}
		if table.bytes() != want+far {
			t.Fatalf("step %d: a thousand more take %d bytes, foretold were %d", step, table.bytes()-want, far)
		}
		for i := range 1000 {
			name := fmt.Sprint("more-", i)
			table.remove(model[name])
			delete(model, name)
		}
	}
	for name, g := range model {
		if table.find(g.hash, name) != g {
			t.Fatalf("%s is lost", name)
		}
		table.remove(g)
	}
	if table.n != 0 || table.bytes() != 0 {
		t.Errorf("an empty table has %d tags and takes %d bytes", table.n, table.bytes())
	}
}

func tagged(n int, tags ...string) *Response {
	r := sized("", n)
	for _, name := range tags {
		r.Tags = append(r.Tags, strings.Clone(name))
	}
	return r
}

func TestTags_standOnceAndLeaveWithTheLast(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	k1, k2 := keyOf("http://h/1"), keyOf("http://h/2")
	shared := []string{"b", "a", "b"}
	r1, r2 := sized("", 1), tagged(1, "a", "c")
	r1.Tags = shared
	mustPut(t, s, k1, r1)
	mustPut(t, s, k2, r2)
	mustAudit(t, s)
	if !slices.Equal(shared, []string{"b", "a", "b"}) || !slices.Equal(r1.Tags, []string{"a", "b"}) {
		t.Errorf("the caller's tags became %q, the response's %q", shared, r1.Tags)
	}
	if unsafe.StringData(r1.Tags[0]) != unsafe.StringData(r2.Tags[0]) {
		t.Error("two responses hold two strings for one tag")
	}
	counts := func() map[string]int {
		m := map[string]int{}
		for _, name := range []string{"a", "b", "c"} {
			n, all := s.Tagged(name)
			if m[name] = n; !all {
				t.Error("not all are in the index")
			}
		}
		maps.DeleteFunc(m, func(_ string, n int) bool { return n == 0 })
		return m
	}
	if got := counts(); !maps.Equal(got, map[string]int{"a": 2, "b": 1, "c": 1}) {
		t.Errorf("counts %v", got)
	}
	s.Replace(0, k1, r1, tagged(1, "c"))
	if got := counts(); !maps.Equal(got, map[string]int{"a": 1, "c": 2}) {
		t.Errorf("counts %v after one was replaced", got)
	}
	s.Remove(0, k2)
	if st := s.Stats(0); !maps.Equal(counts(), map[string]int{"c": 1}) || st.Tags != 1 || st.TagRefs != 1 {
		t.Errorf("counts %v after one was removed, %+v", counts(), st)
	}
	s.Clear(0, newTally(t))
	if st := s.Stats(0); len(counts()) != 0 || st.Tags != 0 || st.TagRefs != 0 || st.TagBytes != 0 || s.Bytes(0) != s.parts[0].base {
		t.Errorf("counts %v after everything was cleared, %+v", counts(), st)
	}
	mustAudit(t, s)
}

// More tags than the index may hold: the rest is stored without, and said so.
func TestTags_haveALimit(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	for i := range 600 {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), tagged(10, "all", fmt.Sprintf("%01000d", i)))
		if i%50 == 0 {
			mustAudit(t, s)
		}
	}
	mustAudit(t, s)
	st := s.Stats(0)
	n, all := s.Tagged("all")
	if st.Objects != 600 || st.Untagged == 0 || st.TagBytes < 200<<10 || st.TagBytes > 256<<10 || n != 600-st.Untagged || all {
		t.Fatalf("%+v; %d carry the tag, all %v", st, n, all)
	}
	if got := s.PurgeTag("all", func(string, *Response) *Response { return nil }); got != (Purged{Dropped: n}) {
		t.Errorf("%+v, want %d dropped", got, n)
	}
	// What takes the place of one without finds room again.
	for i := range 600 {
		if k := keyOf(fmt.Sprint("http://h/", i)); s.Get(0, k) != nil {
			s.Replace(0, k, s.Get(0, k)[0], s.Get(0, k)[0].With("fresh", 8))
		}
	}
	mustAudit(t, s)
	if after := s.Stats(0); after.Untagged >= st.Untagged || after.Untagged+after.TagRefs/2 != after.Objects {
		t.Errorf("%+v", after)
	}
	s.Purge(func(string, *Response) *Response { return nil })
	if n := s.Bytes(0); n != s.parts[0].base || s.Stats(0).Untagged != 0 {
		t.Errorf("%d bytes remain in the empty store, want %d", n, s.parts[0].base)
	}
}

// A response that fits only when the tags of the one in whose place it comes
// are gone.
func TestTags_makeRoomForWhatTakesTheirPlace(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 10, Shards: 1})
	p, k := s.parts[0], keyOf("http://h/a")
	old := tagged(10, strings.Repeat("x", 1000), strings.Repeat("y", 1000), strings.Repeat("z", 1000))
	mustPut(t, s, k, old)
	r := &Response{}
	r.MetaBytes = int(p.limit - p.base - entryBytes(k.URL) - r.bytes())
	if !s.Replace(0, k, old, r) {
		t.Fatal("it did not fit")
	}
	mustAudit(t, s)
	if st := s.Stats(0); st.Bytes != st.LimitBytes || st.Objects != 1 || st.Replaced != 1 || st.Tags != 0 {
		t.Errorf("%+v", st)
	}
	// With a byte for one tag more it can't.
	if r := r.With(nil, r.MetaBytes); true {
		r.Tags = []string{"t"}
		if ok, why := s.Put(0, k, r); ok || why != TooLarge {
			t.Errorf("stored %v, %q", ok, why)
		}
	}
	mustAudit(t, s)
}

func TestPurgeTag_judgesWhatTookAPlaceMeanwhile(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 4 << 20})
	const n = 10 * tagStep
	keys := make([]*Key, n)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint("http://h/", i))
		mustPut(t, s, keys[i], tagged(10, "a", "t", fmt.Sprint(i)))
	}
	later := keyOf("http://h/later")
	asked := 0
	got := s.PurgeTag("t", func(url string, r *Response) *Response {
		if url == later.URL {
			t.Error("asked for what came later")
		}
		if asked++; asked == 1 {
			mustPut(t, s, later, tagged(10, "t"))
			for _, k := range keys[:n-tagStep] { // not reached yet: the newest come first
				old := s.Get(0, k)[0]
				if !s.Replace(0, k, old, old.With("again", 8)) {
					t.Fatal("not replaced")
				}
			}
			s.Remove(0, keys[n-tagStep-1]) // the next in turn
			s.Remove(0, keys[0])           // the last
		}
		return nil
	})
	if got.Dropped != n-2 || s.Stats(0).Objects != 1 {
		t.Errorf("%+v, %d are left", got, s.Stats(0).Objects)
	}
	mustAudit(t, s)
}

func TestPurgeTag_endsWhenEverythingGoes(t *testing.T) {
	for _, how := range []string{"cleared", "removed", "removed, and the tag comes again"} {
		t.Run(how, func(t *testing.T) {
			s, _ := newStore(t, PartitionConfig{MaxBytes: 4 << 20})
			for i := range 3 * tagStep {
				mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), tagged(10, "t"))
			}
			asked := 0
			s.PurgeTag("t", func(string, *Response) *Response {
				if asked++; asked > 1 {
					return nil
				}
				if how == "cleared" {
					s.Clear(0, newTally(t))
				}
				for i := range 3 * tagStep {
					s.Remove(0, keyOf(fmt.Sprint("http://h/", i)))
				}
				if how != "removed" {
					mustPut(t, s, keyOf("http://h/again"), tagged(10, "t"))
				}
				return nil
			})
			if asked != 1 && (how != "cleared" || asked > tagStep) { // what it has in hand it asks for
				t.Errorf("asked %d times", asked)
			}
			mustAudit(t, s)
		})
	}
}

func TestLargestTags(t *testing.T) {
	s, err := New(Config{Partitions: []PartitionConfig{{MaxBytes: 16 << 20}, {MaxBytes: 16 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	rnd := newRand(t)
	want := map[string]int{}
	for i := range 4000 {
		// Tag i stands on about 1/i of them, in both partitions.
		var tags []string
		for j := range 200 {
			if name := fmt.Sprint("tag-", j); rnd.IntN(j+1) == 0 {
				tags = append(tags, name)
				want[name]++
			}
		}
		if ok, why := s.Put(i%2, keyOf(fmt.Sprint("http://h/", i)), tagged(1, tags...)); !ok {
			t.Fatal(why)
		}
	}
	got := s.LargestTags(10)
	if len(got) != 10 || got[0] != (TagCount{"tag-0", 4000}) {
		t.Fatalf("%v", got)
	}
	for i, c := range got {
		if c.Responses != want[c.Tag] || i > 0 && c.Responses > got[i-1].Responses {
			t.Errorf("%v, want %d", c, want[c.Tag])
		}
		delete(want, c.Tag)
	}
	for name, n := range want {
		if n > got[9].Responses+20 {
			t.Errorf("%s on %d is not among %v", name, n, got)
		}
	}
	if got := s.LargestTags(1000); len(got) != 200 {
		t.Errorf("%d of 200", len(got))
	}
	if got := s.LargestTags(0); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// A full partition, popular and rare tags, long ones too, everything at random:
// bytes, lists and counts agree at every step.
func TestTags_followTheStore(t *testing.T) {
	rnd := newRand(t)
	s, _ := newStore(t, PartitionConfig{MaxBytes: 96 << 10, Shards: 2})
	for step := range 6000 {
		k := keyOf(fmt.Sprint("http://h/", rnd.IntN(200)))
		r := sized(fmt.Sprint("v", rnd.IntN(3)), rnd.IntN(3000))
		r.Tags = someTags(rnd)
		if rnd.IntN(10) == 0 {
			r.Tags = append(r.Tags, randomText(rand.New(rand.NewPCG(rnd.Uint64(), 1)), rnd.IntN(4000)))
		}
		switch rs := s.Get(0, k); rnd.IntN(4) {
		case 0:
			s.PurgeTag(someTag(rnd), func(_ string, r *Response) *Response {
				if rnd.IntN(2) == 0 {
					return nil
				}
				return r.With("marked", rnd.IntN(100))
			})
		case 1:
			if len(rs) > 0 {
				s.Replace(0, k, rs[rnd.IntN(len(rs))], r)
			}
		default:
			s.Put(0, k, r)
		}
		if step%20 == 0 {
			mustAudit(t, s)
		}
	}
	st := s.Stats(0)
	if st.Evicted.Small == 0 || st.Replaced == 0 || st.Purged == 0 || st.Marked == 0 || st.Tags == 0 {
		t.Errorf("the run left something untried: %+v", st)
	}
}
