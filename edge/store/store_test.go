package store

import (
	"fmt"
	"strings"
	"testing"
)

func TestNew_saysAllThatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want []string // parts of the message; none: it is right
	}{
		{"least", Config{Partitions: []PartitionConfig{{MaxBytes: MinPartitionBytes}}}, nil},
		{"no partition", Config{}, []string{"0 partitions"}},
		{"too many partitions", Config{Partitions: make([]PartitionConfig, 257)}, []string{"257 partitions"}},
		{"everything", Config{MaxVariants: -1, Partitions: []PartitionConfig{{Name: "a"}, {Name: "b", MaxBytes: 1 << 20, Shards: 3}}},
			[]string{"MaxVariants is -1", `0 ("a"): MaxBytes is 0`, `1 ("b"): Shards is 3`}},
		{"index alone fills it", Config{Partitions: []PartitionConfig{{MaxBytes: MinPartitionBytes, Shards: 4096}}}, []string{"want fewer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(c.cfg)
			if (err == nil) != (len(c.want) == 0) || (s == nil) != (err != nil) {
				t.Fatalf("New = %v, %v", s, err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
		})
	}
}

func TestDefaultShards(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		want  int
	}{{64 << 10, 1}, {1 << 20, 1}, {3 << 20, 2}, {64 << 20, 64}, {512 << 20, 512}, {1 << 40, 1024}} {
		if got := defaultShards(c.bytes); got != c.want {
			t.Errorf("%d bytes: %d shards, want %d", c.bytes, got, c.want)
		}
	}
}

func TestStore_comparesWholeKeys(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	a, b := *keyOf("http://h/a"), *keyOf("http://h/b")
	b.Hash = a.Hash // as a client may contrive
	mustPut(t, s, &a, sized("", 1))
	if s.Get(0, &b) != nil || s.Remove(0, &b) != 0 {
		t.Fatal("an equal hash is taken for an equal key")
	}
	mustPut(t, s, &b, sized("", 2))
	if s.Get(0, &a)[0].Body.Len() != 1 || s.Get(0, &b)[0].Body.Len() != 2 {
		t.Error("keys with one hash are mixed up")
	}
	mustAudit(t, s)
}

func TestStore_partitionsAreApart(t *testing.T) {
	s, err := New(Config{Partitions: []PartitionConfig{
		{Name: "hot", MaxBytes: 1 << 20, Filter: newTally(t)}, {Name: "tail", MaxBytes: 2 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	k, r := keyOf("http://h/a"), sized("", 100)
	mustPut(t, s, k, r)
	if s.Get(1, k) != nil || s.Remove(1, k) != 0 || s.RemoveResponse(1, k, r) || s.Replace(1, k, r, r.With(nil, 0)) {
		t.Error("a key of one partition is found in another")
	}
	if s.Partitions() != 2 || s.Filter(0) == nil || s.Filter(1) != nil || s.Stats(1).Name != "tail" || s.Stats(1).LimitBytes != 2<<20 {
		t.Errorf("partitions are mixed up: %+v", s.Stats(1))
	}
	if ok, why := s.Put(1, k, r); ok || why != Reused || s.Stats(1).Refused.Reused != 1 {
		t.Errorf("a response is put twice: %v %q", ok, why)
	}
	if s.Replace(0, k, r, r) {
		t.Error("a response replaces itself")
	}
	// A Rebuild gives a partition its first filter, too.
	f := newTally(t)
	s.Rebuild(1, f)
	if ok, why := s.Put(1, k, sized("", 1)); !ok || !f.MayContain(k.Filter) {
		t.Error("a first filter is not told of a new key", why)
	}
	s.Rebuild(1, f) // the present one: must not add twice
	mustAudit(t, s)
}

// One response may take the whole partition; a byte more is refused and
// changes nothing.
func TestStore_storesUpToTheWholePartition(t *testing.T) {
	for _, limit := range []int64{64 << 10, 1 << 20, 64 << 20} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s, _ := newStore(t, PartitionConfig{MaxBytes: limit})
			for i := range int(limit / 1000) {
				mustPut(t, s, keyOf(fmt.Sprint("http://h/", i)), sized("", 200))
			}
			k := keyOf("http://h/large")
			room := limit - s.parts[0].base - entryBytes(k.URL)
			r := sized("", 0)
			r.MetaBytes = int(room - r.bytes() + 1)
			n := s.Stats(0).Objects
			if ok, why := s.Put(0, k, r); ok || why != TooLarge || s.Stats(0).Objects != n || s.Stats(0).Refused.TooLarge != 1 {
				t.Fatalf("Put of more than fits = %v, %q", ok, why)
			}
			r.MetaBytes--
			mustPut(t, s, k, r)
			if st := s.Stats(0); st.Bytes != limit || st.Objects != 1 {
				t.Fatalf("%d of %d bytes, %d objects", st.Bytes, limit, st.Objects)
			}
			mustAudit(t, s)

			// Freshened in a full partition, with as much, with more, with less.
			same, more, less := r.With(nil, r.MetaBytes), r.With(nil, r.MetaBytes+1), r.With(nil, 8)
			if !s.Replace(0, k, r, same) || s.Replace(0, k, same, more) || s.Get(0, k)[0] != same || !s.Replace(0, k, same, less) {
				t.Error("freshening in a full partition fails")
			}
			mustAudit(t, s)
			mustPut(t, s, k, r.With(nil, r.MetaBytes)) // over its own predecessor
			mustAudit(t, s)
		})
	}
}

// 10 000 MB of objects of 8 to 64 MiB pass through a partition of 64 MiB.
func TestStore_largeObjectsInASmallPartition(t *testing.T) {
	rnd := newRand(t)
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 20})
	for i := range 2000 {
		k := keyOf(fmt.Sprint("http://h/", rnd.IntN(60)))
		if rs := s.Get(0, k); rs != nil {
			s.Hit(rs[0])
			continue
		}
		r := sized("", 100)
		r.MetaBytes = (8+rnd.IntN(56))<<20 - 4096 // counts like a body, without the memory
		if i%3 == 0 {
			r.MetaBytes = rnd.IntN(20000)
		}
		mustPut(t, s, k, r)
		if s.Get(0, k) == nil {
			t.Fatal("what was just put is not there")
		}
		mustAudit(t, s)
	}
}

func TestStore_newcomersOfAScanDoNotFlushRegulars(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	var regulars []*Key
	for i := range 300 {
		k := keyOf(fmt.Sprint("http://h/regular/", i))
		regulars = append(regulars, k)
		mustPut(t, s, k, sized("", 1000))
		s.Hit(s.Get(0, k)[0])
	}
	for i := range 20000 {
		mustPut(t, s, keyOf(fmt.Sprint("http://h/scan/", i)), sized("", 1000))
	}
	left := 0
	for _, k := range regulars {
		if s.Get(0, k) != nil {
			left++
		}
	}
	// One in maxScan may go, where a search ends among regulars alone.
	if left < len(regulars)-len(regulars)/maxScan {
		t.Errorf("%d of %d regulars survived a scan of 20000", left, len(regulars))
	}
}

func TestStore_dropsTheOldestVariant(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	k := keyOf("http://h/a")
	for i := range 6 {
		mustPut(t, s, k, sized(fmt.Sprint("gzip", i), 10))
	}
	var got []string
	for _, r := range s.Get(0, k) {
		got = append(got, r.Variant)
	}
	if fmt.Sprint(got) != "[gzip5 gzip4 gzip3 gzip2]" || s.Stats(0).Evicted.Variants != 2 || s.Stats(0).Keys != 1 {
		t.Errorf("variants %v, %+v", got, s.Stats(0))
	}
	mustAudit(t, s)
}

func TestStore_lookupsDoNotAllocate(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 1 << 20})
	k, absent := keyOf("http://h/a"), keyOf("http://h/b")
	mustPut(t, s, k, sized("", 10))
	mustPut(t, s, k, sized("gzip", 10))
	if n := testing.AllocsPerRun(100, func() {
		for _, r := range s.Get(0, k) {
			s.Hit(r)
		}
		if s.Get(0, absent) != nil {
			t.Error("an absent key is found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Bytes are taken before a response is there, and free only after it has left.
func TestStore_reservesBeforeItStores(t *testing.T) {
	s, f := newStore(t, PartitionConfig{MaxBytes: 64 << 10})
	k := keyOf("http://h/a")
	var during int64
	f.seen = func() { during = s.Bytes(0) }
	mustPut(t, s, k, sized("", 1000))
	if during != s.Bytes(0) {
		t.Errorf("%d bytes as the key is added, %d afterwards", during, s.Bytes(0))
	}
	before := s.Bytes(0)
	s.Remove(0, k)
	if during != before {
		t.Errorf("%d bytes as the key is removed, %d before", during, before)
	}
}
