package edge

import (
	"math"
	"net/http"
	"sync"
	"time"

	"edged/edge/admin"
	"edged/gossip"
)

// What one call may name, and how many things all calls together a second.
// Those that name one thing each are counted alike, so that a large batch is no
// way around the limit.
const (
	maxPurgeName = 8 << 10 // bytes of a URL, tag, prefix or host
	purgeRate    = 5000    // things a second
	purgeBurst   = 50_000  // at once: 1 MiB of short tags in one call
	changeNames  = 4096    // things in one change of the log
	changeBytes  = 64 << 10
)

// purgeLimit is a token bucket of things to purge. One that was not used is full.
type purgeLimit struct {
	rate  float64 // things a second
	burst float64 // things at once

	mu    sync.Mutex
	spent float64
	at    time.Time
}

// take takes n, or says how long to wait until there are as many.
func (l *purgeLimit) take(n int, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spent = max(l.spent-now.Sub(l.at).Seconds()*l.rate, 0)
	l.at = now
	if over := l.spent + float64(n) - l.burst; over > 0 {
		return time.Duration(math.Ceil(over/l.rate)) * time.Second
	}
	l.spent += float64(n)
	return 0
}

// admitPurge refuses a change that is too large, or one too many.
func (n *Node) admitPurge(c *gossip.Change) error {
	things := 0
	for _, list := range [][]string{c.URLs, c.Tags, c.Prefixes, c.Hosts} {
		things += len(list)
		for _, s := range list {
			if len(s) > maxPurgeName {
				n.metrics.purgesRefused.WithLabelValues("length").Inc()
				return &admin.Error{Status: http.StatusRequestEntityTooLarge, Text: "a name of " + itoa(int64(len(s))) + " bytes: want up to 8 KiB"}
			}
		}
	}
	if things > purgeBurst {
		n.metrics.purgesRefused.WithLabelValues("length").Inc()
		return &admin.Error{Status: http.StatusRequestEntityTooLarge, Text: itoa(int64(things)) + " names in one call: want up to " + itoa(purgeBurst)}
	}
	if wait := n.purgeLimit.take(max(things, 1), time.Now()); wait > 0 {
		n.metrics.purgesRefused.WithLabelValues("rate").Inc()
		return &admin.Error{Status: http.StatusTooManyRequests, Text: "too many purges: try again in " + wait.String()}
	}
	return nil
}

// splitChange makes of a change as many as the log takes one by one, which come
// to the same.
func splitChange(c gossip.Change) []gossip.Change {
	var out []gossip.Change
	part := gossip.Change{Kind: c.Kind, Soft: c.Soft, All: c.All, Site: c.Site, Payload: c.Payload, Note: c.Note}
	names, bytes := 0, 0
	flush := func() {
		out = append(out, part)
		part = gossip.Change{Kind: c.Kind, Soft: c.Soft, Site: c.Site, Payload: c.Payload, Note: c.Note}
		names, bytes = 0, 0
	}
	add := func(from []string, to func(*gossip.Change) *[]string) {
		for _, s := range from {
			if names == changeNames || bytes+len(s) > changeBytes {
				flush()
			}
			list := to(&part)
			*list = append(*list, s)
			names++
			bytes += len(s)
		}
	}
	add(c.URLs, func(c *gossip.Change) *[]string { return &c.URLs })
	add(c.Tags, func(c *gossip.Change) *[]string { return &c.Tags })
	add(c.Prefixes, func(c *gossip.Change) *[]string { return &c.Prefixes })
	add(c.Hosts, func(c *gossip.Change) *[]string { return &c.Hosts })
	flush()
	return out
}

// auditNames and auditName bound what a line of audit says of what was purged.
const (
	auditNames = 5   // of each sort
	auditName  = 200 // bytes
)

// audit logs who purged what, and how far it has come.
func (n *Node) audit(kind, by string, c *gossip.Change, s *gossip.Spreading) {
	acked, missing := outcomeOf(s)
	var what []string
	for _, list := range [][]string{c.URLs, c.Tags, c.Prefixes, c.Hosts} {
		for _, name := range list[:min(len(list), auditNames)] {
			if len(name) > auditName {
				name = name[:auditName] + "..."
			}
			what = append(what, name)
		}
	}
	n.log.Info("purge", "audit", true, "id", s.ID(), "kind", kind, "by", by, "soft", c.Soft, "all", c.All,
		"urls", len(c.URLs), "tags", len(c.Tags), "prefixes", len(c.Prefixes), "hosts", len(c.Hosts),
		"what", what, "acked", len(acked)+1, "missing", missing)
}
