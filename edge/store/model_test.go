package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// model is the plain store: a map of lists, the newest first, that never evicts.
type model map[string][]*Response

func (m model) put(url string, old, r *Response, maxVariants int) {
	rs := slices.DeleteFunc(slices.Clone(m[url]), func(v *Response) bool { return v == old || v.Variant == r.Variant })
	rs = slices.Insert(rs, 0, r)
	m[url] = rs[:min(len(rs), maxVariants)]
}

func (m model) drop(url string, r *Response) {
	m[url] = slices.DeleteFunc(slices.Clone(m[url]), func(v *Response) bool { return v == r })
	if len(m[url]) == 0 {
		delete(m, url)
	}
}

// tagged returns what carries a tag, with its URL.
func (m model) tagged(name string) map[*Response]string {
	found := map[*Response]string{}
	for url, rs := range m {
		for _, r := range rs {
			if slices.Contains(r.Tags, name) {
				found[r] = url
			}
		}
	}
	return found
}

// someTag is one of few tags that are popular, or of many that are not.
func someTag(rnd *rand.Rand) string {
	if rnd.IntN(2) == 0 {
		return fmt.Sprint("section-", rnd.IntN(5))
	}
	return fmt.Sprint("a-tag-of-its-own-", rnd.IntN(2000))
}

// someTags is up to 20 of them, unsorted, some of them twice.
func someTags(rnd *rand.Rand) []string {
	var tags []string
	for range rnd.IntN(21) * rnd.IntN(2) {
		tags = append(tags, someTag(rnd))
	}
	return tags
}

func TestStore_isAMapOfLists(t *testing.T) {
	rnd := newRand(t)
	s, _ := newStore(t, PartitionConfig{MaxBytes: 64 << 20, Shards: 4})
	m := model{}
	var past []*Response // also such as are no longer stored
	for step := range 40000 {
		k := keyOf(fmt.Sprint("http://h/", rnd.IntN(300)))
		variant := fmt.Sprint("v", rnd.IntN(6))[:rnd.IntN(3)]
		switch op := rnd.IntN(100); {
		case op < 40:
			r := sized(variant, rnd.IntN(2000))
			r.Tags = someTags(rnd)
			mustPut(t, s, k, r)
			m.put(k.URL, nil, r, 4)
			past = append(past, r)
		case op < 60 && len(past) > 0:
			old := past[max(0, len(past)-1-rnd.IntN(400))]
			if rs := m[k.URL]; len(rs) > 0 && op%2 == 0 {
				old = rs[rnd.IntN(len(rs))]
			}
			r := old.With(step, 8)
			r.Variant = variant
			if op%4 == 1 {
				r.Tags = someTags(rnd)
			}
			want := slices.Contains(m[k.URL], old)
			if got := s.Replace(0, k, old, r); got != want {
				t.Fatalf("step %d: Replace = %v, want %v", step, got, want)
			}
			if want {
				m.put(k.URL, old, r, 4)
				past = append(past, r)
			}
		case op < 70:
			if got, want := s.Remove(0, k), len(m[k.URL]); got != want {
				t.Fatalf("step %d: Remove = %d, want %d", step, got, want)
			}
			delete(m, k.URL)
		case op < 80 && len(past) > 0:
			r := past[max(0, len(past)-1-rnd.IntN(400))]
			if rs := m[k.URL]; len(rs) > 0 && op%2 == 0 {
				r = rs[rnd.IntN(len(rs))]
			}
			want := slices.Contains(m[k.URL], r)
			if got := s.RemoveResponse(0, k, r); got != want {
				t.Fatalf("step %d: RemoveResponse = %v, want %v", step, got, want)
			}
			m.drop(k.URL, r)
		case op == 80 && rnd.IntN(10) == 0:
			want := Purged{}
			suffix := fmt.Sprint(rnd.IntN(10))
			got := s.Purge(func(url string, r *Response) *Response {
				switch {
				case !strings.HasSuffix(url, suffix):
					return r
				case r.Variant == "":
					want.Dropped++
					m.drop(url, r)
					return nil
				}
				want.Marked++
				marked := r.With("marked", 8)
				m[url] = slices.Clone(m[url])
				m[url][slices.Index(m[url], r)] = marked
				return marked
			})
			if got != want {
				t.Fatalf("step %d: Purge = %v, want %v", step, got, want)
			}
		case op == 82 || op == 83:
			name := someTag(rnd)
			want, sum, marks := m.tagged(name), Purged{}, map[*Response]bool{}
			if n, all := s.Tagged(name); n != len(want) || !all {
				t.Fatalf("step %d: Tagged(%s) = %d, %v; want %d", step, name, n, all, len(want))
			}
			got := s.PurgeTag(name, func(url string, r *Response) *Response {
				switch _, ok := want[r]; {
				case !ok:
					return r
				case op == 82 || r.Variant == "":
					sum.Dropped++
					m.drop(url, r)
					return nil
				}
				sum.Marked++
				marked := r.With("marked", 8)
				marks[marked] = true
				m[url] = slices.Clone(m[url])
				m[url][slices.Index(m[url], r)] = marked
				return marked
			})
			for _, url := range want { // each mark has become the newest
				older := func(r *Response) bool { return !marks[r] }
				newer := func(r *Response) bool { return marks[r] }
				if rs := m[url]; len(rs) > 0 {
					m[url] = append(slices.DeleteFunc(slices.Clone(rs), older), slices.DeleteFunc(slices.Clone(rs), newer)...)
				}
			}
			if got != sum || sum.Dropped+sum.Marked != len(want) {
				t.Fatalf("step %d: PurgeTag = %v, want %v: %d", step, got, sum, len(want))
			}
		case op == 81 && rnd.IntN(10) == 0:
			next := newTally(t)
			s.Filter(0).(*tally).close()
			s.Rebuild(0, next)
			if s.Filter(0) != Filter(next) {
				t.Fatal("the filter is not the rebuilt one")
			}
		}
		if got := s.Get(0, k); !slices.Equal(got, m[k.URL]) {
			t.Fatalf("step %d: Get(%s) = %v, want %v", step, k.URL, got, m[k.URL])
		}
		if step%500 == 0 {
			mustAudit(t, s)
		}
	}
	mustAudit(t, s)
	st := s.Stats(0)
	if st.Keys != len(m) || st.Evicted.Small+st.Evicted.Main != 0 || st.Evicted.Variants == 0 {
		t.Errorf("stats = %+v, the model has %d keys", st, len(m))
	}
	urls := 0
	for url := range m {
		urls += len(url)
	}
	if st.URLBytes != int64(urls) || st.Added.Bytes-st.Dropped.Bytes != uint64(urls) || st.Added.Keys-st.Dropped.Keys != uint64(len(m)) || st.Dropped.Keys == 0 {
		t.Errorf("%d bytes of keys, %+v came and %+v went: the model has %d keys of %d bytes", st.URLBytes, st.Added, st.Dropped, len(m), urls)
	}
	if r := s.Purge(func(string, *Response) *Response { return nil }); r.Dropped != st.Objects || s.Bytes(0) != s.parts[0].base {
		t.Errorf("after everything is dropped %d bytes remain, empty are %d", s.Bytes(0), s.parts[0].base)
	}
}

// lines is S3-FIFO as the paper has it, on plain slices; the ghost is the real one.
type lines struct {
	small, main []line
	ghost       ghost
}

type line struct {
	url  string
	cost int64
	freq int
}

func (l *lines) bytes(ls []line) (n int64) {
	for _, x := range ls {
		n += x.cost
	}
	return n
}

func (l *lines) use(url string) bool {
	for _, q := range [][]line{l.small, l.main} {
		for i := range q {
			if q[i].url == url {
				q[i].freq = min(q[i].freq+1, 3)
				return true
			}
		}
	}
	return false
}

func (l *lines) add(url string, cost int64) {
	if l.ghost.take(keyOf(url).Hash, (l.bytes(l.small)+l.bytes(l.main))/10*9) {
		l.main = append(l.main, line{url, cost, 0})
	} else {
		l.small = append(l.small, line{url, cost, 0})
	}
}

func (l *lines) evict() string {
	for {
		if len(l.small) > 0 && (l.bytes(l.small) > (l.bytes(l.small)+l.bytes(l.main))/10 || len(l.main) == 0) {
			x := l.small[0]
			l.small = l.small[1:]
			if x.freq >= promoteFreq {
				l.main = append(l.main, line{x.url, x.cost, 0})
				continue
			}
			l.ghost.add(keyOf(x.url).Hash, x.cost)
			return x.url
		}
		x := l.main[0]
		l.main = l.main[1:]
		if x.freq > 0 {
			l.main = append(l.main, line{x.url, x.cost, x.freq - 1})
			continue
		}
		return x.url
	}
}

// The policy evicts just what the plain form of it would, one by one. The
// store is small enough that maxScan never ends a search.
func TestStore_evictsByS3FIFO(t *testing.T) {
	rnd := newRand(t)
	s, _ := newStore(t, PartitionConfig{MaxBytes: 128 << 10})
	zipf := rand.NewZipf(rnd, 1.1, 4, 999)
	plain := &lines{ghost: newGhost(128 << 10)}
	p := s.parts[0]
	for step := range 30000 {
		k := keyOf(fmt.Sprint("http://h/", zipf.Uint64()))
		hit := plain.use(k.URL)
		rs := s.Get(0, k)
		if (len(rs) == 1) != hit {
			t.Fatalf("step %d: found %d, the plain policy says %v", step, len(rs), hit)
		}
		if hit {
			s.Hit(rs[0])
			continue
		}
		before := s.Stats(0)
		r := sized("", 500+int(keyOf(k.URL).Hash%3000))
		mustPut(t, s, k, r)
		after := s.Stats(0)
		if after.Bytes > after.LimitBytes {
			t.Fatalf("step %d: %d bytes of %d", step, after.Bytes, after.LimitBytes)
		}
		evicted := after.Evicted.Small + after.Evicted.Main - before.Evicted.Small - before.Evicted.Main
		for range evicted {
			url := plain.evict()
			if s.Get(0, keyOf(url)) != nil {
				t.Fatalf("step %d: %s should have left", step, url)
			}
		}
		for len(plain.ghost.lines) < len(p.policy.ghost.lines) {
			plain.ghost.resize(2 * len(plain.ghost.lines))
		}
		plain.add(k.URL, r.cost)
		if after.Objects != len(plain.small)+len(plain.main) || after.SmallBytes != plain.bytes(plain.small) {
			t.Fatalf("step %d: %+v; the plain policy has %d and %d", step, after, len(plain.small), len(plain.main))
		}
	}
	st := s.Stats(0)
	if st.GhostHits == 0 || st.Evicted.Small == 0 || st.Evicted.Main == 0 {
		t.Errorf("the run left something untried: %+v", st)
	}
	mustAudit(t, s)
}

// A main queue full of popular responses must not be walked to the end.
func TestStore_boundsTheSearchForAVictim(t *testing.T) {
	s, _ := newStore(t, PartitionConfig{MaxBytes: 4 << 20})
	for i := range 3000 {
		k := keyOf(fmt.Sprint("http://h/", i))
		mustPut(t, s, k, sized("", 0))
		for range maxFreq {
			s.Hit(s.Get(0, k)[0])
		}
	}
	p := s.parts[0]
	p.policy.victim(nil) // moves maxScan of them to the main queue
	if p.policy.main.n != maxScan {
		t.Fatalf("%d were moved, want %d", p.policy.main.n, maxScan)
	}
	for i, r := 0, p.policy.main.tail; r != nil; i, r = i+1, r.prev {
		r.freq.Store(3)
		if i == 77 {
			r.freq.Store(1)
		}
	}
	p.policy.small = fifo{} // as if the small queue were empty
	want := p.policy.main.tail
	for range 77 {
		want = want.prev
	}
	if got := p.policy.victim(nil); got != want {
		t.Error("the least used of those seen did not leave")
	}
	pinned := p.policy.main.tail
	pinned.freq.Store(0)
	if got := p.policy.victim(pinned); got != want {
		t.Error("a pinned tail is not passed over")
	}
}
