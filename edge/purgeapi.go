package edge

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"edged/edge/admin"
	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/gossip"
)

// purgeWait is how long a purge waits for the members' acknowledgements.
const purgeWait = 10 * time.Second

// reasonDeleted is the reason of a purge of what is gone at the origin.
const reasonDeleted = "deleted"

// purgeKinds are the label values of edged_purges_total.
var purgeKinds = []string{"url", "tag", "prefix", "host", "all", "created", "method", "catalog"}

// spread has a change applied here (by applyChange) and on every member, and
// returns when all have, or ctx has ended. Nil when it could not be entered in
// the log, as this node's own log says. kind is its label in edged_purges_total,
// watch (may be nil) is told how it goes on.
func (n *Node) spread(ctx context.Context, kind string, watch *admin.PurgeWatch, changes ...gossip.Change) *gossip.Spreading {
	began := time.Now()
	n.purging.Add(1)
	defer n.purging.Add(-1)
	s, err := n.enter(kind, changes)
	if s == nil {
		n.metrics.purges.WithLabelValues(kind, "incomplete").Inc()
		return nil
	}
	follow(ctx, s, watch)
	if _, missing := outcomeOf(s); err != nil || len(missing) > 0 {
		n.metrics.purges.WithLabelValues(kind, "incomplete").Inc()
	} else {
		n.metrics.purges.WithLabelValues(kind, "complete").Inc()
		n.metrics.purgeTime.Observe(time.Since(began).Seconds())
	}
	return s
}

// enter enters changes in the cluster's log, which applies them here. An error
// is logged; with one, the changes may have been entered all the same.
func (n *Node) enter(kind string, changes []gossip.Change) (*gossip.Spreading, error) {
	var split []gossip.Change
	for _, c := range changes {
		split = append(split, splitChange(c)...)
	}
	s, err := n.gossip.Spread(split...)
	if err != nil {
		n.log.Error("a purge did not go as it should", "kind", kind, "err", err)
	}
	return s, err
}

// follow waits for the members, and tells watch of each.
func follow(ctx context.Context, s *gossip.Spreading, watch *admin.PurgeWatch) {
	if watch == nil {
		s.Wait(ctx)
		return
	}
	watch.Begun(resultOf(s))
	s.Follow(ctx, func(m gossip.MemberProgress) { watch.Changed(purgeNode(m)) })
}

// outcomeOf lists the other members that have applied a change, and those that
// have not.
func outcomeOf(s *gossip.Spreading) (acked, missing []string) {
	for _, m := range s.Members() {
		if m.Applied {
			acked = append(acked, m.Name)
		} else {
			missing = append(missing, m.Name)
		}
	}
	return acked, missing
}

// purgeRequested is POST /v1/purge.
func (n *Node) purgeRequested(ctx context.Context, req admin.PurgeRequest, watch *admin.PurgeWatch) (admin.PurgeResult, error) {
	if n.released.Load() {
		return admin.PurgeResult{}, errReleased()
	}
	keys, err := n.canonicalKeys(req.URLs)
	if err != nil {
		return admin.PurgeResult{}, err
	}
	prefixes, err := n.canonicalKeys(req.Prefixes)
	if err != nil {
		return admin.PurgeResult{}, err
	}
	g := gossip.Change{Kind: gossip.KindPurge, URLs: keys, Tags: req.Tags, Prefixes: prefixes, All: req.All, Soft: req.Soft}
	for _, h := range req.Hosts {
		host, ok := rfc9111.CanonicalHost(h, "http")
		if !ok {
			return admin.PurgeResult{}, &admin.Error{Status: http.StatusBadRequest, Text: "not a valid host: " + h}
		}
		g.Hosts = append(g.Hosts, n.withoutOwnPort(host))
	}
	kind := "url"
	switch req.Reason {
	case "":
	case reasonDeleted:
		if g.Soft {
			return admin.PurgeResult{}, &admin.Error{Status: http.StatusBadRequest, Text: "what was deleted is not there to be validated: want reason deleted or soft, not both"}
		}
		if len(keys) == 0 || len(g.Tags)+len(g.Prefixes)+len(g.Hosts) > 0 || g.All {
			return admin.PurgeResult{}, &admin.Error{Status: http.StatusBadRequest, Text: "reason deleted is for URLs alone: what else was deleted is not known one by one"}
		}
		g.Kind = gossip.KindTombstone
	default:
		return admin.PurgeResult{}, &admin.Error{Status: http.StatusBadRequest, Text: "reason " + strconv.Quote(req.Reason) + ": want deleted, or none"}
	}
	switch {
	case req.All:
		kind = "all"
	case len(req.Hosts) > 0:
		kind = "host"
	case len(req.Prefixes) > 0:
		kind = "prefix"
	case len(req.Tags) > 0:
		kind = "tag"
	}
	return n.spreadAnswer(ctx, kind, req.By, g, req.Wait == "none", watch)
}

// created is POST /v1/created.
func (n *Node) created(ctx context.Context, urls []string) (admin.PurgeResult, error) {
	if n.released.Load() {
		return admin.PurgeResult{}, errReleased()
	}
	keys, err := n.canonicalKeys(urls)
	if err != nil {
		return admin.PurgeResult{}, err
	}
	return n.spreadAnswer(ctx, "created", "", gossip.Change{Kind: gossip.KindCreated, URLs: keys}, false, nil)
}

// spreadAnswer is spread for the admin API: what is asked for is bounded, and
// goes to the log with who asked. It waits whether the client does or not, so
// that the log says how far the purge came; behind does not wait.
func (n *Node) spreadAnswer(ctx context.Context, kind, by string, g gossip.Change, behind bool, watch *admin.PurgeWatch) (admin.PurgeResult, error) {
	if err := n.admitPurge(&g); err != nil {
		return admin.PurgeResult{}, err
	}
	stored, more := n.storedUnder(&g)
	counted := func(res admin.PurgeResult) admin.PurgeResult {
		res.Stored, res.StoredMore = stored, more
		return res
	}
	follower := watch
	if watch != nil {
		follower = &admin.PurgeWatch{Begun: func(res admin.PurgeResult) { watch.Begun(counted(res)) }, Changed: watch.Changed}
	}
	if behind {
		s, err := n.enter(kind, []gossip.Change{g})
		if s == nil {
			return admin.PurgeResult{}, err
		}
		n.metrics.purges.WithLabelValues(kind, "accepted").Inc()
		n.audit(kind, by, &g, s)
		res := counted(n.resultOf(s))
		if watch != nil {
			watch.Begun(res)
		}
		res.Missing = nil // nobody was waited for
		return res, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeWait)
	defer cancel()
	s := n.spread(ctx, kind, follower, g)
	if s == nil {
		return admin.PurgeResult{}, errNotTaken()
	}
	n.audit(kind, by, &g, s)
	return counted(n.resultOf(s)), nil
}

// storedUnder returns how many stored responses a change names at the moment,
// each counted for each URL and tag that does; nil when only a walk can tell. more
// is set when there may be others.
func (n *Node) storedUnder(c *gossip.Change) (stored *int, more bool) {
	if c.Kind != gossip.KindPurge || len(c.Prefixes)+len(c.Hosts) > 0 && !c.All {
		return nil, false
	}
	sum := 0
	if c.All {
		for i := range n.cfg.Cache.Partitions {
			sum += n.store.Stats(i).Objects
		}
		return &sum, false
	}
	for _, u := range c.URLs {
		k := n.keyOf(u)
		sum += len(n.store.Get(n.partitionOf(pathOfKey(u)), &k))
	}
	for _, t := range c.Tags {
		m, _ := n.store.Tagged(t)
		sum += m
	}
	if len(c.Tags) > 0 {
		// Those that have more tags than are kept, or are not in the index.
		m, all := n.store.Tagged(store.AnyTag)
		more = m > 0 || !all
	}
	return &sum, more
}

// resultOf is how far a purge of this node has come.
func (n *Node) resultOf(s *gossip.Spreading) admin.PurgeResult {
	res := resultOf(s)
	switch {
	case n.gossip.LogFailed():
		res.Warning = "the log of purges can't be written to disk, as this node's log says: after a restart others may have to tell it of this purge"
	case res.Members == 1 && len(n.cfg.Cluster.Join) > 0:
		res.Warning = "this node knows of no other member: those in cluster.join that are cut off, or that it has not met since it started, learn of this purge when they meet"
	}
	return res
}

// errNotTaken is the answer when a change could not be entered in the log, as
// the node's own log says why: nothing was purged.
func errNotTaken() error {
	return &admin.Error{Status: http.StatusInternalServerError, Text: "nothing was changed: the node's log says why"}
}

// purgeProgress tells how far a purge that this node took has come. With watch
// it waits like the purge itself.
func (n *Node) purgeProgress(ctx context.Context, id string, watch *admin.PurgeWatch) (admin.PurgeResult, error) {
	s := n.gossip.Find(id)
	if s == nil {
		return admin.PurgeResult{}, &admin.Error{Status: http.StatusNotFound, Text: "no purge of this node's last 4096 has the id " + id}
	}
	if watch != nil {
		ctx, cancel := context.WithTimeout(ctx, purgeWait)
		defer cancel()
		follow(ctx, s, watch)
	}
	return resultOf(s), nil
}

// resultOf is how far a purge has come, as the admin API tells it.
func resultOf(s *gossip.Spreading) admin.PurgeResult {
	members := s.Members()
	res := admin.PurgeResult{ID: s.ID(), Members: len(members) + 1, Acked: 1}
	for _, m := range members {
		if m.Applied {
			res.Acked++
		} else {
			res.Missing = append(res.Missing, m.Name)
		}
		res.Nodes = append(res.Nodes, purgeNode(m))
	}
	return res
}

func purgeNode(m gossip.MemberProgress) admin.PurgeNode {
	node := admin.PurgeNode{Name: m.Name, State: "waiting", After: m.After.Seconds()}
	switch {
	case m.Applied:
		node.State = "applied"
	case m.Gone:
		node.State = "unreachable"
	}
	return node
}

// servePurge is the PURGE method on the client address.
func (n *Node) servePurge(rq *request) {
	if n.cfg.Admin.Token == "" {
		n.fail(rq, http.StatusForbidden, "method", "PURGE is off: it needs a token, and admin.token_file is not set")
		return
	}
	auth, token, _ := strings.Cut(rq.r.Header.Get("Authorization"), " ")
	if key := rq.r.Header.Get("Fastly-Key"); key != "" {
		auth, token = "Bearer", key
	}
	if auth == "" {
		n.fail(rq, http.StatusForbidden, "method", "PURGE needs the admin token (Authorization: Bearer)")
		return
	}
	if !strings.EqualFold(auth, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(n.cfg.Admin.Token)) != 1 {
		n.fail(rq, http.StatusForbidden, "method", "this is not the admin token (Authorization: Bearer)")
		return
	}
	if n.released.Load() {
		rq.hangUp, rq.retryAfter = true, "1"
		n.fail(rq, http.StatusServiceUnavailable, "method", "this process hands over to another one: try again in a moment")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rq.r.Context()), purgeWait)
	defer cancel()
	c := gossip.Change{Kind: gossip.KindPurge, URLs: []string{rq.key.URL}, Soft: rq.r.Header.Get("Fastly-Soft-Purge") == "1"}
	var refused *admin.Error
	if errors.As(n.admitPurge(&c), &refused) {
		n.fail(rq, refused.Status, "method", refused.Text)
		return
	}
	s := n.spread(ctx, "url", nil, c)
	if s == nil {
		n.fail(rq, http.StatusInternalServerError, "method", "nothing was purged: the node's log says why")
		return
	}
	n.audit("url", rq.r.RemoteAddr, &c, s)
	acked, missing := outcomeOf(s)
	h := rq.w.Header()
	h["Content-Type"] = []string{"application/json"}
	n.finishHead(rq, rfc9111.CacheStatus{Fwd: "method"}, "")
	n.writeHead(rq, http.StatusOK)
	n.write(rq, []byte(`{"status":"ok","id":"`+s.ID()+`","acked":`+itoa(int64(len(acked)+1))+`,"members":`+itoa(int64(len(acked)+len(missing)+1))+"}\n"))
	n.count(rq, resBypass)
}

// canonicalKeys makes cache keys of URLs as an operator writes them.
func (n *Node) canonicalKeys(urls []string) ([]string, error) {
	keys := make([]string, 0, len(urls))
	for _, raw := range urls {
		scheme, host, target, err := n.canonicalURL(raw, "")
		if err != nil {
			return nil, err
		}
		keys = append(keys, scheme+"://"+host+target)
	}
	return keys, nil
}

// canonicalURL takes a URL apart and brings its parts into the form that keys
// have: byte for byte what a client's request for it would come to. A host
// given extra stands in for the URL's own. The TLS of clients ends in front of the
// node, which they reach by plain HTTP, so what is https to them has http in its
// key.
func (n *Node) canonicalURL(raw, instead string) (scheme, host, target string, err error) {
	bad := func(what string) error {
		return &admin.Error{Status: http.StatusBadRequest, Text: what + ": " + raw}
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme != "http" && scheme != "https" {
		return "", "", "", bad("not an absolute http or https URL")
	}
	host, path := rest, "/"
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	path, _, _ = strings.Cut(path, "#")
	path, query, _ := strings.Cut(path, "?")
	if path == "" {
		path = "/"
	}
	if instead != "" {
		host = instead
	}
	if host, ok = rfc9111.CanonicalHost(host, scheme); !ok {
		return "", "", "", bad("not a valid host in a URL")
	}
	return "http", n.withoutOwnPort(host), rfc9111.NormaliseTarget(path, query), nil
}
