package store

import (
	"hash/maphash"
	"slices"
	"strings"
	"unsafe"
)

// tagIndex finds the responses of a partition that carry a tag, for what a
// purge by tag leaves behind: taking them out one after the other, and how many
// they are. What is purged it does not decide, Epochs does; so a response may be
// left out of it, and be found by a walk (Store.Purge).
//
// Each tag stands here once, and the responses that carry it hold its one
// string. It is guarded by the partition's lock, changes with the responses in
// the same critical section, and look-ups never read it.
//
// # Two designs
//
// Postings: an array of responses for each tag, and in each response its place
// in each of them, so that the last can be moved to where one leaves. 12 bytes
// for each tag of each response and up to as many again unused; but the array of a
// tag that a million responses carry is copied when it is full, 8 MB under the
// lock, or must be cut in pieces; its bytes are a function of the past; and
// whoever works through it while others come and leave meets some twice and
// some not at all.
//
// Linked through the responses, chosen: a link for each tag of each response,
// all of one response in one allocation. 32 bytes, exactly and at once known.
// Each change takes the same few steps however popular the tag is, and a
// purge's place in the list is a link of its own: it stays right whatever leaves
// around it, what comes later is before it, and what takes another's place
// takes its place in the list.
//
// One for each shard of the keys would count a tag by adding up a thousand, and
// repeat its name as often; all writers of a partition share a lock in any case.
//
// # Measured
//
// bench_test.go, BenchmarkTags; the results are in edge/PURGE.md.
type tagIndex struct {
	seed   maphash.Seed // origins choose the tags
	table  tagTable
	limit  int64 // of bytes
	nodes  int64 // bytes of tags and their names
	refs   int   // links: responses, each as often as it has tags
	absent int   // responses that have tags and are not in the index
}

// tagLink is one tag of a response, and the response among those that carry it.
type tagLink struct {
	tag        *tag
	r          *Response // nil: a purge's place in the list
	prev, next *tagLink
}

// indexShare: the index may take 1/indexShare of its partition. The policy does
// not see these bytes, so they must not become most of it. Tags of 24 bytes
// take 96 beside the links, so at 512 MiB there is room for 1.4 million.
const indexShare = 4

var (
	tagStructBytes = allocPointerBytes(int64(unsafe.Sizeof(tag{})))
	tagLinkBytes   = int64(unsafe.Sizeof(tagLink{}))
)

func newTagIndex(limit int64) *tagIndex {
	return &tagIndex{seed: maphash.MakeSeed(), limit: limit / indexShare}
}

// ownTags gives r, which is not stored yet, tags in an array of its own, sorted
// and each once, and room for the links.
func (r *Response) ownTags() {
	if len(r.Tags) == 0 {
		r.links = nil
		return
	}
	own := append(make([]string, 0, len(r.Tags)), r.Tags...)
	slices.Sort(own)
	r.Tags = slices.Compact(own)
	r.links = &make([]tagLink, len(r.Tags))[0]
	r.marks = 0
	for _, t := range r.Tags {
		if t == AnyTag {
			r.marks = ^uint32(0)
		}
		r.marks |= 1 << tagBit(t)
	}
}

// linksOf returns r's links, one for each of its tags; none when it is not in
// the index.
func linksOf(r *Response) []tagLink {
	if r == nil || r.links == nil {
		return nil
	}
	return unsafe.Slice(r.links, len(r.Tags))
}

func tagBytes(name string) int64 { return tagStructBytes + allocBytes(int64(len(name))) }

// tagsBytes is what these tags take when nothing else carries one of them.
func tagsBytes(names []string) int64 {
	var n int64
	for _, t := range names {
		n += tagBytes(t)
	}
	return n
}

// bytes is what the index takes beside the links, which are the responses' own.
func (x *tagIndex) bytes() int64 { return x.nodes + x.table.bytes() }

// growth is what linking r adds to bytes at most: when all its tags are new.
// Nothing when it takes the place of a response with the same.
func (x *tagIndex) growth(r, heir *Response) int64 {
	if r.links == nil || heir != nil && heir.links != nil && slices.Equal(r.Tags, heir.Tags) {
		return 0
	}
	return tagsBytes(r.Tags) + x.table.growth(len(r.Tags))
}

// admit decides whether r will be in the index. What it costs follows from that.
func (x *tagIndex) admit(r *Response, heir *Response) {
	if r.links != nil && x.bytes()+x.growth(r, heir) > x.limit {
		r.links = nil
		r.cost = r.bytes()
	}
}

// link enters r, and makes its tags those strings that the index has. Where the
// response whose place it takes carries the same tag, r comes next to it, so
// that a purge that has not got there yet finds it.
func (x *tagIndex) link(r, heir *Response) {
	if r.links == nil {
		if len(r.Tags) > 0 {
			x.absent++
		}
		return
	}
	theirs := linksOf(heir)
	for i, name := range r.Tags {
		for len(theirs) > 0 && theirs[0].tag.name < name {
			theirs = theirs[1:]
		}
		l := &linksOf(r)[i]
		l.r = r
		if len(theirs) > 0 && theirs[0].tag.name == name {
			l.tag = theirs[0].tag
			l.insert(&theirs[0])
		} else {
			l.tag = x.intern(name)
			l.insert(nil)
		}
		r.Tags[i] = l.tag.name
		l.tag.n++
		x.refs++
	}
}

// intern returns the tag of that name, which it makes if there is none.
func (x *tagIndex) intern(name string) *tag {
	hash := maphash.String(x.seed, name)
	t := x.table.find(hash, name)
	if t == nil {
		t = &tag{hash: hash, name: name}
		x.table.add(t)
		x.nodes += tagBytes(name)
	}
	return t
}

// unlink takes r out, and the tags that nothing else carries.
func (x *tagIndex) unlink(r *Response) {
	if r.links == nil {
		if len(r.Tags) > 0 {
			x.absent--
		}
		return
	}
	links := linksOf(r)
	for i := range links {
		l := &links[i]
		t := l.tag
		l.remove()
		x.refs--
		if t.n--; t.n == 0 {
			x.table.remove(t)
			x.nodes -= tagBytes(t.name)
		}
	}
	r.links = nil
}

// find returns the tag of that name, nil when nothing in the index carries it.
func (x *tagIndex) find(name string) *tag {
	return x.table.find(maphash.String(x.seed, name), name)
}

// insert puts l behind another link of its tag; behind none: in front of all.
func (l *tagLink) insert(at *tagLink) {
	next := &l.tag.head
	if at != nil {
		next = &at.next
	}
	l.prev, l.next = at, *next
	if *next != nil {
		(*next).prev = l
	}
	*next = l
}

func (l *tagLink) remove() {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		l.tag.head = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
}

// tagStep is how many links a purge passes in one hold of the lock: two cache
// misses each, 10 µs.
const tagStep = 64

// purgeTag is purge for those that the index has under a tag, from the newest
// to the oldest. Its place in the list is a link without a response.
func (p *partition) purgeTag(name string, judge func(url string, r *Response) *Response) (sum Purged) {
	p.mu.Lock()
	x := p.tags
	t := x.find(name)
	if t == nil {
		p.mu.Unlock()
		return sum
	}
	place := &tagLink{tag: t}
	place.insert(nil)
	p.mu.Unlock()
	es := make([]*entry, 0, tagStep)
	var fate []*Response
	for more := true; more; {
		p.mu.Lock()
		if p.tags != x { // cleared
			p.mu.Unlock()
			break
		}
		es, more = place.pass(es[:0])
		p.mu.Unlock()
		for _, e := range es {
			fate = p.purgeEntry(e, judge, fate, &sum)
		}
		clear(es)
	}
	return sum
}

// pass moves a purge's place behind the next links, and appends the keys of
// these to es. It leaves the list, and reports false, when there are no more.
func (l *tagLink) pass(es []*entry) ([]*entry, bool) {
	at := l.next
	if at == nil {
		l.remove()
		return es, false
	}
	for n := 1; ; n++ {
		if at.r != nil && (len(es) == 0 || es[len(es)-1] != at.r.entry) {
			es = append(es, at.r.entry)
		}
		if n == tagStep || at.next == nil {
			break
		}
		at = at.next
	}
	l.remove()
	l.insert(at)
	return es, true
}

// tagged returns how many responses the index has under a tag, and whether all
// are in it.
func (p *partition) tagged(name string) (n int, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tags.find(name); t != nil {
		n = t.n
	}
	return n, p.tags.absent == 0
}

// PurgeTag is Purge for the responses that carry a tag. Its time follows their
// number, not that of all that is stored. Those that are not in the index, for
// want of room, are not judged: Tagged says whether there are any.
//
// What is stored under the tag when PurgeTag is called is judged, or else what
// took its place meanwhile.
func (s *Store) PurgeTag(tag string, judge func(url string, r *Response) *Response) Purged {
	var sum Purged
	for _, p := range s.parts {
		done := p.purgeTag(tag, judge)
		sum.Dropped += done.Dropped
		sum.Marked += done.Marked
	}
	return sum
}

// Tagged returns how many stored responses carry a tag, at once; all is false
// when there are others that are not in the index and may carry it.
func (s *Store) Tagged(tag string) (n int, all bool) {
	all = true
	for _, p := range s.parts {
		m, whole := p.tagged(tag)
		n += m
		all = all && whole
	}
	return n, all
}

// TagCount is a tag, and how many stored responses carry it.
type TagCount struct {
	Tag       string
	Responses int
}

// LargestTags returns the n tags that most stored responses carry, the largest
// first. It looks at all tags, those of a segment of the table at a time under the lock:
// one that moves in the table meanwhile may be missed. Of a tag in several
// partitions all are counted, if it is among the n largest of one of them.
func (s *Store) LargestTags(n int) []TagCount {
	sum := map[string]int{}
	for _, p := range s.parts {
		for _, c := range p.largestTags(n) {
			sum[c.Tag] = 0
		}
	}
	all := make([]TagCount, 0, len(sum))
	for t := range sum {
		if k, _ := s.Tagged(t); k > 0 {
			all = append(all, TagCount{t, k})
		}
	}
	slices.SortFunc(all, func(a, b TagCount) int {
		if a.Responses != b.Responses {
			return b.Responses - a.Responses
		}
		return strings.Compare(a.Tag, b.Tag)
	})
	return all[:min(n, len(all))]
}

// largestTags collects up to twice n, and then goes on with the n largest.
func (p *partition) largestTags(n int) []TagCount {
	if n <= 0 {
		return nil
	}
	var top []TagCount
	trim := func() {
		slices.SortFunc(top, func(a, b TagCount) int { return b.Responses - a.Responses })
		top = top[:min(n, len(top))]
	}
	least := 0
	for i := 0; ; i++ {
		p.mu.Lock()
		if i >= len(p.tags.table.dir) {
			p.mu.Unlock()
			break
		}
		for _, t := range p.tags.table.dir[i] {
			for ; t != nil; t = t.next {
				if t.n > least {
					top = append(top, TagCount{t.name, t.n})
				}
			}
		}
		p.mu.Unlock()
		if len(top) >= 2*n {
			trim()
			least = top[n-1].Responses
		}
	}
	trim()
	return top
}
