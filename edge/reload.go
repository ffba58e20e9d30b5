package edge

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"edged/edge/admin"
)

// retireAfter is how long the connections of an origin that is no longer
// configured may finish what they carry.
const retireAfter = 5 * time.Minute

// Reload takes over what can change while the node runs: the sites, and the
// cluster's keys and certificates. Anything else that differs is refused as a
// whole: the error is a *[ConfigError] with a [Problem] for each key that needs a
// restart, and nothing changes. Requests in flight keep the site that they began
// with.
func (n *Node) Reload(cfg Config) (err error) {
	n.reloadMu.Lock()
	defer n.reloadMu.Unlock()
	defer func() {
		if err != nil {
			n.metrics.reloadOK.Set(0)
		} else {
			n.metrics.reloadOK.Set(1)
		}
	}()
	cfg = cfg.WithDefaults()
	if ps := cfg.Problems(); len(ps) > 0 {
		return &ConfigError{ps}
	}
	if fixed := n.cfg.fixedDifferences(cfg); len(fixed) > 0 {
		return &ConfigError{fixed}
	}
	old := n.sites.Load()
	next, err := n.buildSites(cfg.Sites, old.all)
	if err != nil {
		return err
	}
	without := func(all, others []*site) (left []*site) {
		for _, s := range all {
			if !slices.Contains(others, s) {
				left = append(left, s)
			}
		}
		return left
	}
	if len(cfg.Cluster.Keys) > 0 {
		if err := n.gossip.SetKeys(cfg.Cluster.Keys); err != nil {
			for _, s := range without(next.all, old.all) {
				s.retire()
			}
			return Problem{"cluster.key_file", err.Error()}
		}
		n.summaries.setKeys(cfg.Cluster.Keys)
	}
	if t := cfg.Cluster.TLS; t != nil {
		if err := n.identity.Use(t.Cert, t.Key, t.CA); err != nil {
			for _, s := range without(next.all, old.all) {
				s.retire()
			}
			return Problem{"cluster.tls", err.Error()}
		}
		n.peerClient.CloseIdleConnections() // the next ones are made with it
	}
	for _, s := range next.all {
		n.metrics.declareSite(s.Name)
	}
	for _, s := range without(next.all, old.all) {
		s.inherit(old)
	}
	n.sites.Store(next)
	gone := without(old.all, next.all)
	for _, s := range gone {
		s.retired()
	}
	n.loop(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(retireAfter):
		}
		for _, s := range gone {
			s.retire()
		}
	})
	n.log.Info("configuration reloaded", "sites", len(next.all), "unchanged", len(next.all)-len(without(next.all, old.all)))
	return nil
}

// reread is POST /v1/reload.
func (n *Node) reread(context.Context) error {
	if err := n.cfg.Reread(); err != nil {
		// The whole text: what is wrong with the operator's own file is no secret from
		// who may change it.
		return &admin.Error{Status: http.StatusUnprocessableEntity, Text: strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return nil
}

// ReloadFailed notes that there was a new configuration that could not even be
// read.
func (n *Node) ReloadFailed() { n.metrics.reloadOK.Set(0) }

const restartNeeded = "a restart is needed to change this; the running configuration stays"

// fixedDifferences names the keys of the file that differ in o and can't
// change while the node runs.
func (c Config) fixedDifferences(o Config) (ps []Problem) {
	if (len(c.Cluster.Keys) > 0) == (len(o.Cluster.Keys) > 0) {
		c.Cluster.Keys, o.Cluster.Keys = nil, nil // they can be exchanged, not given up
	}
	if (c.Cluster.TLS != nil) == (o.Cluster.TLS != nil) {
		c.Cluster.TLS, o.Cluster.TLS = nil, nil
	}
	if !reflect.DeepEqual(c.Cluster.Join, o.Cluster.Join) && len(c.Cluster.Join)+len(o.Cluster.Join) == 0 {
		c.Cluster.Join, o.Cluster.Join = nil, nil // absent and empty are the same
	}
	for _, d := range []struct {
		key  string
		a, b any
	}{
		{"name", c.Name, o.Name},
		{"listen.address", c.Listen.Address, o.Listen.Address},
		{"listen.max_connections", c.Listen.MaxConnections, o.Listen.MaxConnections},
		{"admin.address", c.Admin.Address, o.Admin.Address},
		{"admin.token_file", c.Admin.Token, o.Admin.Token},
		{"cluster.role", c.Cluster.Role, o.Cluster.Role},
		{"cluster.gossip", c.Cluster.Gossip, o.Cluster.Gossip},
		{"cluster.peer", c.Cluster.Peer, o.Cluster.Peer},
		{"cluster.advertise", c.Cluster.Advertise, o.Cluster.Advertise},
		{"cluster.join", c.Cluster.Join, o.Cluster.Join},
		{"cluster.key_file", c.Cluster.Keys, o.Cluster.Keys},
		{"cluster.tls", c.Cluster.TLS, o.Cluster.TLS},
		{"cache.memory", c.Cache.Memory, o.Cache.Memory},
		{"cache.max_object", c.Cache.MaxObject, o.Cache.MaxObject},
		{"cache.partitions", c.Cache.Partitions, o.Cache.Partitions},
		{"negative.capacity", c.Negative.Capacity, o.Negative.Capacity},
		{"negative.ttl", c.Negative.TTL, o.Negative.TTL},
		{"negative.statuses", c.Negative.Statuses, o.Negative.Statuses},
		{"negative.max_create_rate", c.Negative.MaxCreateRate, o.Negative.MaxCreateRate},
		{"filter.enabled", c.Filter.Off, o.Filter.Off},
		{"filter.ask", c.Filter.Ask, o.Filter.Ask},
		{"filter.local", c.Filter.NoLocal, o.Filter.NoLocal},
		{"filter.keys", c.Filter.Keys, o.Filter.Keys},
		{"filter.false_positive_rate", c.Filter.FalsePositiveRate, o.Filter.FalsePositiveRate},
		{"filter.peers", c.Filter.Peers, o.Filter.Peers},
		{"drain", c.Drain, o.Drain},
		{"log", c.Log, o.Log},
		{"tracing", c.Tracing, o.Tracing},
	} {
		if !reflect.DeepEqual(d.a, d.b) {
			ps = append(ps, Problem{d.key, restartNeeded})
		}
	}
	// What has no line above has its section's.
	for _, d := range []struct {
		section string
		a, b    any
	}{
		{"listen", c.Listen, o.Listen}, {"admin", c.Admin, o.Admin}, {"cluster", c.Cluster, o.Cluster},
		{"cache", c.Cache, o.Cache}, {"negative", c.Negative, o.Negative}, {"filter", c.Filter, o.Filter},
	} {
		named := slices.ContainsFunc(ps, func(p Problem) bool { return strings.HasPrefix(p.Path, d.section+".") })
		if !named && !reflect.DeepEqual(d.a, d.b) {
			ps = append(ps, Problem{d.section, restartNeeded})
		}
	}
	return ps
}
