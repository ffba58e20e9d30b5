package edge

import (
	"context"
	"slices"
	"sync"
	"time"

	"edged/edge/store"
	"edged/gossip"
)

// What clients' unsafe requests invalidate (RFC 9111 §4.4) is bounded apart from
// what operators purge, so that a flood of POST can't use up the operators' part,
// nor fill the log of purges that members who were away catch up with.
const (
	// invalidateWait is how long an unsafe request waits for the members, so that
	// none of them answers its client from before.
	invalidateWait = 250 * time.Millisecond

	// invalidateWindow is how long requests gather, when another batch was sent
	// just before. foldWindow is the same while the limit is reached.
	invalidateWindow = 20 * time.Millisecond
	foldWindow       = 200 * time.Millisecond

	// URLs a second, and at once; one of more than 512 bytes counts for several.
	invalidateRate  = 1000
	invalidateBurst = 10_000
)

// invalidations gathers what unsafe requests invalidate into batches. The first
// request of a batch sends it, at once when none was sent just before; those that
// come until then join it, and each URL is named once, so that ten thousand
// POSTs to one URL are fifty entries of the log a second.
//
// Beyond the limit a batch does not name its URLs any more but their hosts,
// which become stale as by a soft purge: no client is answered from before its own
// request, as it would be if something were left out, and the origin is asked
// whether what is stored holds, instead of once for each of the URLs. The other
// design, to refuse the requests, would make a cache decide how often an
// application may be written to.
type invalidations struct {
	send  func(batch *invalidation) // returns when the members have it, or were waited for
	limit purgeLimit

	mu      sync.Mutex
	open    *invalidation // which may be joined; nil: none
	sent    time.Time     // the last one
	folding bool          // the last one was above the limit
}

// invalidation is a batch. Its fields are fixed once it is sent.
type invalidation struct {
	urls         []string // cache keys, none twice
	created      []string // those of them that exist now, where a site has a catalog
	hosts        []string // instead of urls: the limit is reached
	createdHosts []string // the same, instead of created
	requests     int
	merged       int    // URLs of requests that another one had named
	by           string // the first client
	folded       int    // URLs that hosts stand for

	named, knownCreated map[string]int // by how many requests
	answers             []*ownAnswer
	done                chan struct{}
}

// ownAnswer is the answer to an unsafe request whose URL the request itself
// invalidates, and which is to be stored all the same.
type ownAnswer struct {
	url  string
	tags []string

	// gen is the newest purge when it was asked for. Where none covers the answer
	// from then on but that of the request itself, it becomes the number of that.
	gen uint64
}

// apply has f enter a purge of some of the batch's URLs, and judges the answers
// under them. No other purge is entered meanwhile.
func (b *invalidation) apply(e *store.Epochs, urls []string, f func()) {
	var clean []*ownAnswer
	for _, a := range b.answers {
		if b.named[a.url] == 1 && slices.Contains(urls, a.url) && e.Check(a.gen, a.url, a.tags) == store.Valid {
			clean = append(clean, a)
		}
	}
	f()
	for _, a := range clean {
		a.gen = e.Generation()
	}
}

// invalidate has the keys invalidated, here and on every member, and returns
// when that is done, or, where a member does not acknowledge, a little later.
// answer is that of the request when it is to be stored, or nil.
func (v *invalidations) invalidate(by string, keys []string, created bool, answer *ownAnswer) {
	v.mu.Lock()
	b := v.open
	leads := b == nil
	if leads {
		b = &invalidation{by: by, named: map[string]int{}, knownCreated: map[string]int{}, done: make(chan struct{})}
		v.open = b
	}
	b.requests++
	for _, k := range keys {
		if b.named[k]++; b.named[k] > 1 {
			b.merged++
		} else {
			b.urls = append(b.urls, k)
		}
		if created {
			if b.knownCreated[k]++; b.knownCreated[k] == 1 {
				b.created = append(b.created, k)
			}
		}
	}
	if answer != nil {
		b.answers = append(b.answers, answer)
	}
	window := invalidateWindow
	if v.folding {
		window = foldWindow
	}
	wait := time.Until(v.sent.Add(window))
	v.mu.Unlock()
	if !leads {
		<-b.done
		return
	}
	defer close(b.done)
	if wait > 0 {
		time.Sleep(wait) // whoever comes now joins
	}
	v.mu.Lock()
	v.open, v.sent = nil, time.Now()
	cost := 0
	for _, u := range b.urls {
		cost += 1 + len(u)/512
	}
	v.folding = v.limit.take(cost, v.sent) > 0
	if v.folding {
		b.fold()
	}
	v.mu.Unlock()
	v.send(b)
}

// fold puts hosts in the place of URLs, of those that exist now, too: what their
// sites' catalogs do not name, they can't call absent any more.
func (b *invalidation) fold() {
	b.folded = len(b.urls)
	b.hosts, b.urls = hostsOf(b.urls), nil
	b.createdHosts, b.created = hostsOf(b.created), nil
}

// hostsOf are the hosts of cache keys, sorted, each once.
func hostsOf(urls []string) (hosts []string) {
	for _, u := range urls {
		hosts = append(hosts, store.HostOf(u))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// sendInvalidation sends a batch to every member, and tells the log.
func (n *Node) sendInvalidation(b *invalidation) {
	m := n.metrics
	m.invalidations.WithLabelValues("sent").Add(float64(len(b.urls)))
	m.invalidations.WithLabelValues("folded").Add(float64(b.folded))
	m.invalidations.WithLabelValues("merged").Add(float64(b.merged))
	change := gossip.Change{Kind: gossip.KindPurge, URLs: b.urls, Hosts: b.hosts, Soft: b.folded > 0, Note: b}
	changes := []gossip.Change{change}
	if len(b.created)+len(b.createdHosts) > 0 {
		changes = append(changes, gossip.Change{Kind: gossip.KindCreated, URLs: b.created, Hosts: b.createdHosts})
	}
	ctx, cancel := context.WithTimeout(context.Background(), invalidateWait)
	defer cancel()
	s := n.spread(ctx, "method", nil, changes...)
	if s == nil {
		return // the log says why
	}
	if b.folded > 0 {
		n.log.Warn("clients' requests invalidate more than the limit: all that is stored of their hosts is validated instead",
			"audit", true, "hosts", len(b.hosts), "first", b.hosts[0], "urls", b.folded, "requests", b.requests, "by", b.by)
	}
	n.audit("method", b.by, &change, s)
}
