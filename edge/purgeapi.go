package edge

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"edged/edge/admin"
	"edged/edge/rfc9111"
	"edged/gossip"
)

const (
	// purgeWait is how long a purge waits for the members' acknowledgements.
	purgeWait = 10 * time.Second

	// invalidateWait bounds the same for what an unsafe method invalidates;
	// the client waits for it, so that no member answers it from before.
	invalidateWait = 250 * time.Millisecond
)

// purgeKinds are the label values of edged_purges_total.
var purgeKinds = []string{"url", "tag", "prefix", "host", "all", "created", "method", "catalog"}

// spread has a change applied here (by applyChange) and on every member, and
// returns its id, who has applied it and who has not when ctx ends. kind is its
// label in edged_purges_total.
func (n *Node) spread(ctx context.Context, kind string, changes ...gossip.Change) (id string, acked, missing []string) {
	began := time.Now()
	n.purging.Add(1)
	defer n.purging.Add(-1)
	var split []gossip.Change
	for _, c := range changes {
		split = append(split, splitChange(c)...)
	}
	id, acked, missing, err := n.gossip.Spread(ctx, split...)
	switch {
	case err != nil:
		n.log.Error("a purge did not go as it should", "kind", kind, "id", id, "err", err)
		n.metrics.purges.WithLabelValues(kind, "incomplete").Inc()
	case len(missing) > 0:
		n.metrics.purges.WithLabelValues(kind, "incomplete").Inc()
	default:
		n.metrics.purges.WithLabelValues(kind, "complete").Inc()
		n.metrics.purgeTime.Observe(time.Since(began).Seconds())
	}
	return id, acked, missing
}

// purgeRequested is POST /v1/purge.
func (n *Node) purgeRequested(ctx context.Context, req admin.PurgeRequest) (admin.PurgeResult, error) {
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
	return n.spreadAnswer(ctx, kind, req.By, g, req.Wait == "none")
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
	return n.spreadAnswer(ctx, "created", "", gossip.Change{Kind: gossip.KindCreated, URLs: keys}, false)
}

// spreadAnswer is spread for the admin API: what is asked for is bounded, and
// goes to the log with who asked. behind does not wait for the members.
func (n *Node) spreadAnswer(ctx context.Context, kind, by string, g gossip.Change, behind bool) (admin.PurgeResult, error) {
	if err := n.admitPurge(&g); err != nil {
		return admin.PurgeResult{}, err
	}
	if behind {
		id, err := n.gossip.Start(splitChange(g)...)
		if id == "" {
			return admin.PurgeResult{}, err
		}
		if err != nil {
			n.log.Error("a purge did not go as it should", "kind", kind, "id", id, "err", err)
		}
		n.metrics.purges.WithLabelValues(kind, "complete").Inc()
		n.audit(kind, id, by, &g, nil, nil)
		res, err := n.purgeProgress(id)
		res.Missing = nil // nobody was waited for
		return res, err
	}
	ctx, cancel := context.WithTimeout(ctx, purgeWait)
	defer cancel()
	id, acked, missing := n.spread(ctx, kind, g)
	if id == "" {
		return admin.PurgeResult{}, errNotTaken()
	}
	n.audit(kind, id, by, &g, acked, missing)
	return n.purgeProgress(id)
}

// errNotTaken is the answer when a change could not be entered in the log, as
// the node's own log says why: nothing was purged.
func errNotTaken() error {
	return &admin.Error{Status: http.StatusInternalServerError, Text: "nothing was changed: the node's log says why"}
}

// purgeProgress tells how far a purge that this node took has come.
func (n *Node) purgeProgress(id string) (admin.PurgeResult, error) {
	members, ok := n.gossip.Progress(id)
	if !ok {
		return admin.PurgeResult{}, &admin.Error{Status: http.StatusNotFound, Text: "no purge of this node's last 4096 has the id " + id}
	}
	res := admin.PurgeResult{ID: id, Members: len(members) + 1, Acked: 1}
	for _, m := range members {
		node := admin.PurgeNode{Name: m.Name, State: "waiting", After: m.After.Seconds()}
		switch {
		case m.Applied:
			node.State = "applied"
			res.Acked++
		case m.Gone:
			node.State = "unreachable"
		}
		if !m.Applied {
			res.Missing = append(res.Missing, m.Name)
		}
		res.Nodes = append(res.Nodes, node)
	}
	return res, nil
}

// invalidate removes what an unsafe method made invalid (RFC 9111 §4.4), here
// and on every member.
func (n *Node) invalidate(ctx context.Context, keys []string) {
	ctx, cancel := context.WithTimeout(ctx, invalidateWait)
	defer cancel()
	n.spread(ctx, "method", gossip.Change{Kind: gossip.KindPurge, URLs: keys})
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
	if !strings.EqualFold(auth, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(n.cfg.Admin.Token)) != 1 {
		n.fail(rq, http.StatusForbidden, "method", "PURGE needs the admin token (Authorization: Bearer)")
		return
	}
	if n.released.Load() {
		rq.hangUp, rq.retryAfter = true, "1"
		n.fail(rq, http.StatusServiceUnavailable, "method", "this process hands over to another one: try again in a moment")
		return
	}
	ctx, cancel := context.WithTimeout(rq.r.Context(), purgeWait)
	defer cancel()
	c := gossip.Change{Kind: gossip.KindPurge, URLs: []string{rq.key.URL}, Soft: rq.r.Header.Get("Fastly-Soft-Purge") == "1"}
	var refused *admin.Error
	if errors.As(n.admitPurge(&c), &refused) {
		n.fail(rq, refused.Status, "method", refused.Text)
		return
	}
	id, acked, missing := n.spread(ctx, "url", c)
	if id == "" {
		n.fail(rq, http.StatusInternalServerError, "method", "nothing was purged: the node's log says why")
		return
	}
	n.audit("url", id, rq.r.RemoteAddr, &c, acked, missing)
	h := rq.w.Header()
	h["Content-Type"] = []string{"application/json"}
	n.finishHead(rq, rfc9111.CacheStatus{Fwd: "method"}, "")
	n.writeHead(rq, http.StatusOK)
	n.write(rq, []byte(`{"status":"ok","id":"`+id+`","acked":`+itoa(int64(len(acked)+1))+`,"members":`+itoa(int64(len(acked)+len(missing)+1))+"}\n"))
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
// given extra stands in for the URL's own.
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
	return scheme, n.withoutOwnPort(host), rfc9111.NormaliseTarget(path, query), nil
}
