package edge

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/edge/store"
)

func TestLeftovers(t *testing.T) {
	now := time.Unix(1000, 0)
	carried := func(tag string) (int, bool) { return strings.Count(tag, "+"), !strings.HasSuffix(tag, "?") }
	for _, c := range []struct {
		name  string
		p     store.Purge
		after time.Duration
		tags  []string
		walk  bool
	}{
		{"a URL", store.Purge{URLs: []string{"http://h/"}}, 0, nil, false},
		{"a URL softly", store.Purge{URLs: []string{"http://h/"}, Soft: true}, 0, nil, false},
		{"a URL that exists now", store.Purge{URLs: []string{"http://h/"}, Absences: true}, 0, nil, false},
		{"a URL, long ago", store.Purge{URLs: []string{"http://h/"}}, forgetAfter, nil, true},
		{"a tag of something", store.Purge{Tags: []string{"+", "a"}}, forgetAfter - 1, []string{"+"}, false},
		{"a tag of nothing", store.Purge{Tags: []string{"a"}}, 0, nil, false},
		{"a tag of something, when not all are in the index", store.Purge{Tags: []string{"+?"}}, 0, nil, true},
		{"a tag of nothing, when not all are in the index", store.Purge{Tags: []string{"?"}}, 0, nil, true},
		{"a tag, long ago", store.Purge{Tags: []string{"+"}}, forgetAfter, []string{"+"}, true},
		{"a prefix", store.Purge{Prefixes: []string{"http://h/"}}, 0, nil, true},
		{"a host", store.Purge{Hosts: []string{"h"}}, 0, nil, true},
		{"everything softly", store.Purge{All: true, Soft: true}, 0, nil, true},
		{"so many that they would be forgotten", store.Purge{URLs: make([]string, forgetMarks)}, 0, nil, true},
		{"more tags than are listed", store.Purge{Tags: slices.Collect(func(yield func(string) bool) {
			for i := range pendingTags + 1 {
				yield(fmt.Sprint("+", i))
			}
		})}, 0, make([]string, pendingTags), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := leftovers{wake: make(chan struct{}, 1), tags: map[string]struct{}{}}
			l.add(&c.p, carried, now)
			l.add(&store.Purge{Tags: []string{"later"}}, func(string) (int, bool) { return 0, true }, now.Add(time.Minute))
			if len(l.wake) != 1 {
				t.Error("nobody is woken")
			}
			tags, walk, rest := l.take(now.Add(c.after))
			if len(c.tags) == pendingTags {
				if len(tags) != pendingTags {
					t.Errorf("%d tags, want %d", len(tags), pendingTags)
				}
				tags, c.tags = nil, nil
			}
			if !slices.Equal(tags, c.tags) || walk != c.walk {
				t.Errorf("%q, walk %v; want %q, %v", tags, walk, c.tags, c.walk)
			}
			if want := forgetAfter - c.after; !walk && rest != want || walk && rest != 0 {
				t.Errorf("rest %v, want %v", rest, want)
			}
			if tags, again, _ := l.take(now.Add(c.after)); len(tags) > 0 || again {
				t.Errorf("there is still %q to do, walk %v", tags, again)
			}
		})
	}
}

// originWithTags tags /NAME with what tags says.
func originWithTags(t *testing.T, tags func(path string) []string) *testOrigin {
	return newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		for _, line := range tags(r.URL.Path) {
			w.Header().Add("Cache-Tag", line)
		}
		io.WriteString(w, "x")
	})
}

// What a tag names leaves the store without anybody asking for it, and without
// a walk over the rest; and a soft purge marks it.
func TestReclaim_byTag(t *testing.T) {
	o := originWithTags(t, func(path string) []string { return []string{"all", "half-" + path[len(path)-1:], path} })
	n := startNode(t, testConfig("edge-a", o.URL))
	for i := range 100 {
		n.get(t, fmt.Sprint("/", i, "/", i%2)).want(t, 200, "x", "stored")
	}
	n.apply(&store.Purge{Tags: []string{"half-1", "unknown"}})
	eventually(t, "half of it has left", func() bool { return n.store.Stats(0).Objects == 50 })
	n.apply(&store.Purge{Tags: []string{"half-0"}, Soft: true})
	eventually(t, "the rest is marked", func() bool { return n.store.Stats(0).Marked == 50 })
	if by := counted(n.metrics.reclaims.WithLabelValues("walk")); by != 0 {
		t.Errorf("%v walks", by)
	}
	if by := counted(n.metrics.reclaims.WithLabelValues("tag")); by != 2 {
		t.Errorf("%v tags were taken out, want 2", by)
	}
	// Their marks are still there for fills that began before.
	if n.epochs.Marks() != 3 {
		t.Errorf("%d marks, want 3", n.epochs.Marks())
	}
}

// Responses whose tags find no room in the index are purged all the same.
func TestReclaim_whatIsNotInTheIndex(t *testing.T) {
	long := strings.Repeat("x", 1000)
	o := originWithTags(t, func(path string) []string {
		lines := []string{"all"}
		for i := range 100 {
			lines = append(lines, fmt.Sprint(path, i, long))
		}
		return lines
	})
	cfg := testConfig("edge-a", o.URL)
	cfg.Cache.Memory = 8 << 20
	n := startNode(t, cfg)
	for i := range 40 {
		n.get(t, fmt.Sprint("/", i)).want(t, 200, "x", "stored")
	}
	st := n.store.Stats(0)
	if st.Untagged == 0 || st.Untagged == st.Objects {
		t.Fatalf("%d of %d are not in the index: want some", st.Untagged, st.Objects)
	}
	n.apply(&store.Purge{Tags: []string{"all"}})
	n.get(t, "/39").want(t, 200, "x", "fwd=uri-miss")
	eventually(t, "all of it has left", func() bool { return n.store.Stats(0).Objects == 1 })
}

// A response with more tags than are kept is covered by a purge of any.
func TestReclaim_moreTagsThanAreKept(t *testing.T) {
	for _, c := range []struct {
		name       string
		tags       func() string
		many, long uint64
		purge      string
		gone       bool
	}{
		{"as many as are kept: one of them", func() string { return manyTags(maxTags) }, 0, 0, "t255", true},
		{"as many as are kept: another", func() string { return manyTags(maxTags) }, 0, 0, "other", false},
		{"too many: one that is kept", func() string { return manyTags(maxTags + 9) }, 9, 0, "t0", true},
		{"too many: one that is not", func() string { return manyTags(maxTags + 9) }, 9, 0, "t264", true},
		{"too many: another", func() string { return manyTags(maxTags + 9) }, 9, 0, "other", true},
		{"too long", func() string { return "a, " + strings.Repeat("x", maxTagBytes+1) }, 0, 1, strings.Repeat("x", maxTagBytes+1), true},
		{"as long as is kept", func() string { return strings.Repeat("x", maxTagBytes) }, 0, 0, strings.Repeat("x", maxTagBytes), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := originWithTags(t, func(string) []string { return []string{c.tags()} })
			n := startNode(t, testConfig("edge-a", o.URL))
			n.get(t, "/x").want(t, 200, "x", "stored")
			many := counted(n.metrics.droppedTags.WithLabelValues("many"))
			long := counted(n.metrics.droppedTags.WithLabelValues("long"))
			if many != c.many || long != c.long {
				t.Errorf("%v were too many and %v too long; want %v and %v", many, long, c.many, c.long)
			}
			n.apply(&store.Purge{Tags: []string{c.purge}})
			if c.gone {
				eventually(t, "it has left", func() bool { return n.store.Stats(0).Objects == 0 })
			} else {
				n.get(t, "/x").want(t, 200, "x", "hit")
			}
		})
	}
}

func manyTags(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "t%d, ", i)
	}
	return b.String()
}

// The answer to a purge says how many stored responses it names, and the list of
// tags agrees.
func TestPurge_tellsHowManyAreStored(t *testing.T) {
	o := originWithTags(t, func(path string) []string {
		return []string{"all", "half-" + path[len(path)-1:], manyTags(len(path) / 5 * maxTags)}
	})
	n := startNode(t, testConfig("edge-a", o.URL))
	for i := range 6 {
		n.get(t, fmt.Sprint("/", i%2)+strings.Repeat("x", i)+fmt.Sprint(i%2)).want(t, 200, "x", "stored")
	}
	for _, c := range []struct{ body, want string }{
		{`{"tags":["unknown"],"soft":true}`, `"nodes":[],"stored":0,"stored_more":true}`}, // four have more tags than are kept
		{`{"tags":["half-1"],"soft":true}`, `"nodes":[],"stored":3,"stored_more":true}`},
		{`{"tags":["all","half-1"],"soft":true}`, `"nodes":[],"stored":9,"stored_more":true}`},
		{`{"urls":["http://www.example.com/00","http://www.example.com/none"]}`, `"nodes":[],"stored":1}`},
		{`{"urls":["http://www.example.com/00"],"wait":"none"}`, `"nodes":[],"stored":0}`},
		{`{"hosts":["www.example.org"]}`, `"nodes":[]}`},
		{`{"prefixes":["http://www.example.org/"],"tags":["all"],"soft":true}`, `"nodes":[]}`},
		{`{"all":true}`, `"nodes":[],"stored":5}`},
		{`{"tags":["all"]}`, `"nodes":[],"stored":0}`},
	} {
		status, answer := n.adminCall(t, "POST", "/v1/purge", c.body, "Content-Type", "application/json")
		if answer = strings.Join(strings.Fields(answer), ""); status != 200 || !strings.HasSuffix(answer, c.want) {
			t.Errorf("%s: %d %s, want %s", c.body, status, answer, c.want)
		}
	}
	n.get(t, "/0")
	n.get(t, "/1")
	if _, answer := n.adminCall(t, "GET", "/v1/tags?n=1", ""); !strings.HasPrefix(strings.Join(strings.Fields(answer), ""), `{"tags":[{"tag":"all","stored":2}],"distinct":3,"references":4,"bytes":`) {
		t.Error(answer)
	}
}
