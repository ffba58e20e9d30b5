package store

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var epochsSeed = flag.Uint64("epochs.seed", 0, "replay this seed of the model of epochs only")

func TestEpochs_verdicts(t *testing.T) {
	const url = "http://h/a"
	tags := []string{"red"}
	for _, c := range []struct {
		name    string
		p       Purge
		want    Verdict // on a response that began before it
		absence Verdict // on an absence
		joins   bool    // may a request that comes after it join a fetch from before
	}{
		{"another URL", Purge{URLs: []string{"http://h/b"}}, Valid, Valid, true},
		{"its URL", Purge{URLs: []string{url}}, Gone, Gone, false},
		{"its tag", Purge{Tags: []string{"red"}}, Gone, Gone, false},
		{"another tag", Purge{Tags: []string{"blue"}}, Valid, Valid, false},
		{"its prefix", Purge{Prefixes: []string{"http://h/"}}, Gone, Gone, false},
		{"all of it as a prefix", Purge{Prefixes: []string{url}}, Gone, Gone, false},
		{"a longer prefix", Purge{Prefixes: []string{url + "b"}}, Valid, Valid, true},
		{"its host", Purge{Hosts: []string{"h"}}, Gone, Gone, false},
		{"another host", Purge{Hosts: []string{"g"}}, Valid, Valid, true},
		{"everything", Purge{All: true}, Gone, Gone, false},
		{"softly", Purge{URLs: []string{url}, Soft: true}, Stale, Gone, false},
		{"everything softly", Purge{All: true, Soft: true}, Stale, Gone, false},
		{"created", Purge{URLs: []string{url}, Absences: true}, Valid, Gone, false},
	} {
		var e Epochs
		now := time.Unix(1000, 0)
		e.Add(&Purge{URLs: []string{"http://h/earlier"}}, now)
		before := e.Generation()
		e.Add(&c.p, now)
		after := e.Generation()
		if v := e.Check(before, url, tags); v != c.want {
			t.Errorf("%s: verdict %v, want %v", c.name, v, c.want)
		}
		if v := e.Check(after, url, tags); v != Valid {
			t.Errorf("%s: verdict %v on what began after it", c.name, v)
		}
		if v := e.CheckAbsence(before, url, tags); v != c.absence {
			t.Errorf("%s: verdict %v on an absence, want %v", c.name, v, c.absence)
		}
		if joins := e.CheckFlight(before, url); joins != c.joins {
			t.Errorf("%s: a fetch from before is joined: %v, want %v", c.name, joins, c.joins)
		}
		if !e.CheckFlight(after, url) {
			t.Errorf("%s: a fetch that began after it is not joined", c.name)
		}
		stale := false
		if ok := e.Commit(before, url, tags, false, func(gen uint64, s bool) { stale = s }); ok != (c.want != Gone) || stale != (c.want == Stale) {
			t.Errorf("%s: committed %v, stale %v", c.name, ok, stale)
		}
		if ok := e.Commit(before, url, tags, true, func(uint64, bool) {}); ok != (c.absence == Valid) {
			t.Errorf("%s: an absence was committed: %v", c.name, ok)
		}
	}
}

// TestEpochs_model compares verdicts with a list of all purges, while marks are
// walked over and forgotten.
func TestEpochs_model(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5}
	if *epochsSeed != 0 {
		seeds = []uint64{*epochsSeed}
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		pick := func(n int, f string) string { return fmt.Sprintf(f, rng.IntN(n)) }
		var e Epochs
		var all []Purge
		now := time.Unix(1000, 0)
		forgotten := uint64(0)
		for step := range 4000 {
			now = now.Add(time.Duration(rng.IntN(4000)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				p := Purge{Soft: rng.IntN(3) == 0}
				switch rng.IntN(40) {
				case 0:
					p.All = true
				case 1, 2, 3, 4:
					p.Hosts = []string{pick(4, "h%d")}
				case 5, 6, 7, 8, 9, 10:
					p.Prefixes = []string{"http://h1/" + pick(3, "%d")}
				case 11, 12, 13, 14, 15, 16, 17, 18:
					p.Tags = []string{pick(9, "t%d"), pick(9, "t%d")}
				case 19, 20, 21, 22, 23:
					p.URLs, p.Absences = []string{"http://" + pick(4, "h%d") + "/" + pick(30, "%d")}, true
				default:
					p.URLs = []string{"http://" + pick(4, "h%d") + "/" + pick(30, "%d")}
				}
				e.Add(&p, now)
				all = append(all, p)
				if rng.IntN(8) == 0 {
					e.Walked(e.Generation()-uint64(rng.IntN(3)), now)
				}
				forgotten = e.horizon
			}
			if len(all) == 0 {
				continue
			}
			since := uint64(rng.IntN(len(all) + 1))
			url := "http://" + pick(4, "h%d") + "/" + pick(30, "%d")
			tags := []string{pick(9, "t%d"), pick(9, "t%d")}
			want, absence := Valid, Valid
			if since < forgotten && since < uint64(len(all)) {
				want, absence = Gone, Gone
			}
			for _, p := range all[since:] {
				covers := p.All || slices.Contains(p.URLs, url) || slices.Contains(p.Hosts, HostOf(url)) ||
					slices.ContainsFunc(p.Tags, func(t string) bool { return slices.Contains(tags, t) }) ||
					slices.ContainsFunc(p.Prefixes, func(pre string) bool { return strings.HasPrefix(url, pre) })
				if covers {
					absence = Gone
				}
				switch {
				case p.Absences:
				case covers && !p.Soft:
					want = Gone
				case covers && want == Valid:
					want = Stale
				}
			}
			if got := e.Check(since, url, tags); got != want {
				t.Fatalf("seed %d, step %d: %v, want %v: %s %v since %d of %d, forgotten %d", seed, step, got, want, url, tags, since, len(all), forgotten)
			}
			if got := e.CheckAbsence(since, url, tags); got != absence {
				t.Fatalf("seed %d, step %d: an absence: %v, want %v: %s %v since %d of %d, forgotten %d", seed, step, got, absence, url, tags, since, len(all), forgotten)
			}
		}
		if forgotten == 0 {
			t.Errorf("seed %d: nothing was forgotten", seed)
		}
	}
}

// Marks are bounded; what is older than the oldest counts as covered.
func TestEpochs_forgetsSafely(t *testing.T) {
	var e Epochs
	now := time.Unix(1000, 0)
	for i := range maxMarks + 10 {
		e.Add(&Purge{URLs: []string{fmt.Sprint("http://h/", i)}}, now)
	}
	if n := e.Marks(); n > maxMarks || len(e.urls) > maxMarks {
		t.Errorf("%d marks, %d URLs", n, len(e.urls))
	}
	if v := e.Check(0, "http://h/x", nil); v != Gone {
		t.Errorf("verdict %v across marks that are forgotten", v)
	}
	if v := e.Check(20, "http://h/x", nil); v != Valid {
		t.Errorf("verdict %v on what is newer", v)
	}
	gen := e.Generation()
	e.Walked(gen, now)
	if e.Marks() == 0 {
		t.Error("marks are forgotten before fills that began earlier can have ended")
	}
	e.Walked(gen, now.Add(2*markFor))
	if n := e.Marks(); n != 0 || len(e.urls) != 0 {
		t.Errorf("%d marks are left after their time", n)
	}
	if v := e.Check(gen, "http://h/1", nil); v != Valid {
		t.Errorf("verdict %v on what is newer than all marks", v)
	}
}

// Marks of long names are fewer.
func TestEpochs_bytesOfMarks(t *testing.T) {
	var e Epochs
	now := time.Unix(1000, 0)
	long := strings.Repeat("x", 8<<10)
	const n = 2 * maxMarkBytes / (8 << 10)
	for i := range n {
		e.Add(&Purge{URLs: []string{fmt.Sprint("http://h/", i, long)}}, now)
	}
	if e.Marks() > n/2 || len(e.urls) > n/2 || e.Marks() < n/3 {
		t.Errorf("%d marks, %d URLs", e.Marks(), len(e.urls))
	}
	if v := e.Check(0, "http://h/x", nil); v != Gone {
		t.Errorf("verdict %v across marks that are forgotten", v)
	}
	e.Walked(e.Generation(), now.Add(2*markFor))
	if e.markBytes != 0 {
		t.Errorf("%d bytes without a mark", e.markBytes)
	}
}

// No response is committed across a purge, and none that was committed is taken
// for valid after it, whatever the timing.
func TestEpochs_concurrently(t *testing.T) {
	s, err := New(Config{Partitions: []PartitionConfig{{Name: "p", MaxBytes: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	var e Epochs
	k := &Key{URL: "http://h/a", Hash: 1 << 63}
	var mu sync.Mutex
	version := 0 // of the origin
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				since := e.Generation()
				mu.Lock()
				v := version
				mu.Unlock()
				e.Commit(since, k.URL, []string{"t"}, false, func(gen uint64, stale bool) {
					r := &Response{Meta: v, Tags: []string{"t"}}
					r.SeenAt(gen)
					s.Put(0, k, r)
				})
			}
		})
	}
	for i := range 3000 {
		mu.Lock()
		version++
		want := version
		mu.Unlock()
		e.Add(&Purge{Tags: []string{"t"}}, time.Now())
		for _, r := range s.Get(0, k) {
			if v, _ := e.Judge(k.URL, r); v == Valid && r.Meta.(int) < want {
				t.Fatalf("purge %d: version %d is valid, want %d", i, r.Meta, want)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestHostOf(t *testing.T) {
	for url, want := range map[string]string{
		"http://h/a": "h", "https://h:8443/": "h:8443", "http://h": "h", "http://h/a://b/": "h", "": "", "h": "", "http://": "",
	} {
		if got := HostOf(url); got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

// A response that has more tags than it carries is covered by a purge of any,
// as the newest of each sort says.
func TestEpochs_anyTag(t *testing.T) {
	const url = "http://h/a"
	tags := []string{AnyTag, "red"}
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		p    Purge
		want Verdict
	}{
		{"its tag", Purge{Tags: []string{"red"}}, Gone},
		{"another tag", Purge{Tags: []string{"blue"}}, Gone},
		{"another tag softly", Purge{Tags: []string{"blue"}, Soft: true}, Stale},
		{"another URL", Purge{URLs: []string{"http://h/b"}}, Valid},
		{"another host", Purge{Hosts: []string{"g"}}, Valid},
	} {
		var e Epochs
		e.Add(&Purge{Tags: []string{"green"}}, now)
		before := e.Generation()
		e.Add(&c.p, now)
		if v := e.Check(before, url, tags); v != c.want {
			t.Errorf("%s: verdict %v, want %v", c.name, v, c.want)
		}
		r := &Response{Tags: tags}
		r.SeenAt(before)
		if v, _ := e.Judge(url, r); v != c.want {
			t.Errorf("%s: judged %v, want %v", c.name, v, c.want)
		}
		if ok := e.Commit(before, url, tags, false, func(uint64, bool) {}); ok != (c.want != Gone) {
			t.Errorf("%s: committed %v", c.name, ok)
		}
	}
}

// A stored response, which carries its tags as bits, is judged as one that does
// not: by tags of its own, others, and any.
func TestEpochs_marksOfAStoredResponse(t *testing.T) {
	rnd := newRand(t)
	s, _ := newStore(t, PartitionConfig{MaxBytes: 8 << 20})
	var e Epochs
	now := time.Unix(1000, 0)
	var keys []*Key
	for i := range 300 {
		keys = append(keys, keyOf(fmt.Sprint("http://h/", i)))
		r := sized("", 1)
		if r.Tags = someTags(rnd); i%20 == 0 {
			r.Tags = append(r.Tags, AnyTag)
		}
		mustPut(t, s, keys[i], r)
	}
	covered := 0
	for range 200 {
		before := e.Generation()
		e.Add(&Purge{Tags: []string{someTag(rnd)}, Soft: rnd.IntN(2) == 0}, now)
		for _, k := range keys {
			r := s.Get(0, k)[0]
			r.SeenAt(before)
			plain := &Response{Tags: r.Tags}
			plain.SeenAt(before)
			got, _ := e.Judge(k.URL, r)
			want, _ := e.Judge(k.URL, plain)
			if got != want {
				t.Fatalf("%q: %v, want %v", r.Tags, got, want)
			}
			if want != Valid {
				covered++
			}
		}
	}
	if covered == 0 {
		t.Error("nothing was covered")
	}
}

// A list that has a prefix twice costs no look-up of its length for ever.
func TestEpochs_prefixTwice(t *testing.T) {
	var e Epochs
	now := time.Now()
	gen := e.Add(&Purge{Prefixes: []string{"http://a/b", "http://a/b"}}, now)
	if e.Check(gen-1, "http://a/bc", nil) != Gone {
		t.Error("the prefix does not match")
	}
	e.Walked(gen, now.Add(time.Hour))
	if len(e.prefixes) != 0 || len(e.lengths) != 0 {
		t.Errorf("%d prefixes, lengths %v", len(e.prefixes), e.lengths)
	}
}
