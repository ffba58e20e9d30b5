package edge

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edged/edge/negative"
	"edged/edge/rfc9111"
	"edged/edge/store"
)

// maxAbsenceBytes is the largest body that a negative entry keeps.
const maxAbsenceBytes = 32 << 10

// absence is a negative entry as the rules see it.
type absence struct {
	negative.Entry
	head string // its fields, without the node's own line
}

// The head of an entry whose response names request fields in Vary, or has
// tags, begins with a line of the node's own, which no field can be: a colon and
// its secondary key (rfc9111.VariantKey). So the head of any other, which is
// nearly each, need not be read to know that it has neither.
func noteOf(variant string) string { return ":" + variant + "\r\n" }

// cutNote takes that line from a head; noted says whether there was one.
func cutNote(head string) (variant, fields string, noted bool) {
	if !strings.HasPrefix(head, ":") {
		return "", head, false
	}
	variant, fields, noted = strings.Cut(head[1:], "\r\n")
	return variant, fields, noted
}

// variantAbsence is where an absence is kept whose URL's own place is taken by
// another variant. No URL has a line feed.
func variantAbsence(url, variant string) string { return url + "\n" + variant }

// rememberAbsence makes a negative entry of an absence. What was stored under
// the key is not there any more. key is that of absenceKey, gen the newest
// purge's number.
func (n *Node) rememberAbsence(fw *forward, key string, out *outcome, chunks [][]byte, tags []string, gen uint64) {
	var content []byte
	for _, c := range chunks {
		content = append(content, c...)
	}
	now := time.Now()
	m := out.meta
	fields := out.kept.Clone()
	fields.Del("Date")
	e := negative.Entry{
		Status: out.status, Head: serialiseHead(fields), Body: content,
		// Its age is kept in whole seconds: what is left over is made up for here.
		Stored: m.ResponseTime.Add(-(m.InitialAge % time.Second)), InitialAge: m.InitialAge.Truncate(time.Second),
		Expires: m.ResponseTime.Add(m.Lifetime - m.InitialAge), Keep: m.StaleUse(fw.site.policy),
		Asked: fw.asked, Generation: gen, Site: fw.site.Name,
	}
	if m.Lifetime <= m.InitialAge {
		e.Keep = 0 // stale where it comes from: for how long, an entry can't tell
	}
	if out.detail == "shield" {
		e.From = negative.FromShield
	}
	if len(out.nominated) > 0 || len(tags) > 0 {
		e.Head = noteOf(out.variant) + e.Head
	}
	if fw.stale != nil || fw.held != nil {
		n.store.Remove(fw.part, &fw.key)
	}
	if stored, _ := n.negative.Put(key, fw.client, e, now); !stored {
		n.metrics.unstored.WithLabelValues(unstoredRefused).Inc()
	}
}

// bury purges URLs that were deleted at their origin, and remembers that they
// are absent, for negative.ttl: the next requests need not reach the origin to
// learn it. What was on its way before is not stored, as with any purge; what
// was created since, on whatever member, stays.
func (n *Node) bury(urls []string, at time.Time) {
	now := time.Now()
	gen := n.epochs.Add(&store.Purge{URLs: urls}, now)
	for _, u := range urls {
		k := n.keyOf(u)
		n.store.Remove(n.partitionOf(pathOfKey(u)), &k)
		s := n.sites.Load().find(store.HostOf(u))
		if s == nil || s.policy.NegativeTTL == 0 {
			n.negative.Delete(u, now)
			continue
		}
		// In place of an older absence, which may be stale or one of several
		// variants. It is refused when the URL was created, or stored here, after
		// it was deleted, though the news came before; and when that can't be
		// told, within a millisecond or what the members' clocks differ by. Then
		// the origin is asked.
		n.negative.Put(u, netip.Addr{}, negative.Entry{
			Status: http.StatusNotFound, Head: "Content-Type: text/plain; charset=utf-8\r\n", Body: []byte("404 Not Found: this was deleted\n"),
			From: negative.FromPurge, Stored: now, Expires: now.Add(s.policy.NegativeTTL), Asked: at, Generation: gen, Site: s.Name,
		}, now)
	}
}

// absenceKey is where an absence is to be kept. The variants of a URL are
// entries of their own: the first one under the URL, the others beside it for
// as long as that one is there. So a URL that is asked for once, as in a flood,
// takes one entry, whatever its Vary.
func (n *Node) absenceKey(url string, out *outcome) string {
	if len(out.nominated) == 0 {
		return url
	}
	now := time.Now()
	first, ok := n.absenceAt(url, url, now)
	if !ok || !now.Before(first.Expires) {
		return url
	}
	if variant, _, _ := cutNote(first.Head); variant == out.variant || !slices.Equal(nominatedOf(first.head), out.nominated) {
		return url
	}
	return variantAbsence(url, out.variant)
}

// nominatedOf are the request fields that the Vary of a head names.
func nominatedOf(head string) []string {
	names, _ := rfc9111.NominatedFields(fieldsOf(head))
	return names
}

func fieldsOf(head string) http.Header {
	h := http.Header{}
	applyHead(h, head)
	return h
}

// absenceAt looks under one key of the negative entries, and passes over one
// that a purge has covered since.
func (n *Node) absenceAt(key, url string, now time.Time) (absence, bool) {
	e, ok := n.negative.Get(key, now)
	if !ok || n.purged(url, &e) {
		return absence{}, false
	}
	_, head, _ := cutNote(e.Head)
	return absence{e, head}, true
}

// purged reports whether a purge has covered a negative entry since.
func (n *Node) purged(url string, e *negative.Entry) bool {
	if e.Generation == n.epochs.Generation() {
		return false
	}
	var tags []string
	if _, head, noted := cutNote(e.Head); noted {
		tags, _ = tagsOf(fieldsOf(head))
	}
	return n.epochs.CheckAbsence(e.Generation, url, tags) != store.Valid
}

// remembered returns the remembered absence that the request selects, be it
// stale.
func (n *Node) remembered(rq *request, now time.Time) (absence, bool) {
	a, ok := n.absenceAt(rq.key.URL, rq.key.URL, now)
	if !ok || len(a.head) == len(a.Head) {
		return a, ok
	}
	names := nominatedOf(a.head)
	if len(names) == 0 {
		return a, true
	}
	variant, _, _ := cutNote(a.Head)
	sent := n.nominating(rq, names)
	if rfc9111.Matches(names, variant, sent) {
		return a, true
	}
	return n.absenceAt(variantAbsence(rq.key.URL, rfc9111.VariantKey(names, sent)), rq.key.URL, now)
}

// decide is what may be done with the absence, as with any stored response.
func (a *absence) decide(dirs rfc9111.RequestDirectives, now time.Time, p rfc9111.Policy) (rfc9111.Reuse, string) {
	dirs.OnlyIfCached = false // decided elsewhere
	if dirs == (rfc9111.RequestDirectives{}) && now.Before(a.Expires) {
		return rfc9111.Fresh, "fresh, §4.2" // nearly always
	}
	s := a.stored(p)
	return s.Decide(dirs, now)
}

// stored is the entry as the rules want to see it.
func (a *absence) stored(p rfc9111.Policy) rfc9111.Stored {
	s := rfc9111.NewStored(rfc9111.Exchange{
		Method: http.MethodGet, Status: a.Status, Header: fieldsOf(a.head), RequestTime: a.Stored, ResponseTime: a.Stored,
	}, p)
	s.InitialAge, s.Lifetime = a.InitialAge, a.Expires.Sub(a.Stored)+a.InitialAge
	return s
}

// response is the entry as a response that can be served when the origin fails.
func (a *absence) response(p rfc9111.Policy) *store.Response {
	return &store.Response{
		Head: a.head + "Date: " + a.Stored.UTC().Format(http.TimeFormat) + "\r\n",
		Body: store.NewBody([][]byte{a.Body}), Meta: &meta{Stored: a.stored(p)},
	}
}

// serveAbsence answers from a remembered absence, or from the site's catalog
// of what exists; it reports whether it did.
func (n *Node) serveAbsence(rq *request) bool {
	now := time.Now()
	if a, ok := n.remembered(rq, now); ok {
		reuse, _ := a.decide(rq.dirs, now, rq.site.policy)
		if reuse != rfc9111.Fresh {
			rq.absent = a.response(rq.site.policy)
		}
		switch reuse {
		case rfc9111.StaleWhileRevalidate:
			n.validateBehind(rq, nil, nil)
			fallthrough
		case rfc9111.Fresh, rfc9111.MaxStale:
			n.writeAbsence(rq, &a, now)
			return true
		}
	}
	if rq.site.catalog == nil {
		return false
	}
	v := rq.site.catalog.Check(pathOf(rq.target), now)
	rq.report = v.Report
	if !v.Refuse {
		return false
	}
	n.answer(rq, http.StatusNotFound, rfc9111.CacheStatus{Hit: true, Detail: "catalog"}, "this site has nothing here", resCatalog)
	return true
}

// writeAbsence answers from a remembered absence.
func (n *Node) writeAbsence(rq *request, a *absence, now time.Time) {
	n.absenceHits.Add(1)
	h := rq.w.Header()
	applyHead(h, a.head)
	age := a.InitialAge + now.Sub(a.Stored)
	h["Date"] = []string{a.Stored.UTC().Format(http.TimeFormat)}
	h["Age"] = []string{itoa(rfc9111.Seconds(age))}
	h["Content-Length"] = []string{itoa(int64(len(a.Body)))}
	n.finishHead(rq, rfc9111.CacheStatus{Hit: true, HasTTL: true, TTL: a.Expires.Sub(now), Detail: "negative"}, "")
	n.writeHead(rq, a.Status)
	if rq.r.Method != http.MethodHead {
		n.write(rq, a.Body)
	}
	n.count(rq, resNegative)
}
