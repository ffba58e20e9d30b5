package edge

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// retireAfter is how long the connections of an origin that is no longer
// configured may finish what they carry.
const retireAfter = 5 * time.Minute

// Reload takes over what can change while the node runs: the sites, and the
// cluster's keys and certificates. Anything else that differs is refused as a
// whole, with the keys of the file that need a restart, and nothing changes.
// Requests in flight keep the site that they began with.
func (n *Node) Reload(cfg Config) (err error) {
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
		return fmt.Errorf("a restart is needed to change %s; the running configuration stays", strings.Join(fixed, ", "))
	}
	next, err := n.buildSites(cfg.Sites)
	if err != nil {
		return err
	}
	if len(cfg.Cluster.Keys) > 0 {
		if err := n.gossip.SetKeys(cfg.Cluster.Keys); err != nil {
			for _, s := range next.all {
				s.retire()
			}
			return Problem{"cluster.key_file", err.Error()}
		}
	}
	if t := cfg.Cluster.TLS; t != nil {
		if err := n.identity.Use(t.Cert, t.Key, t.CA); err != nil {
			for _, s := range next.all {
				s.retire()
			}
			return Problem{"cluster.tls", err.Error()}
		}
		n.peerClient.CloseIdleConnections() // the next ones are made with it
	}
	for _, s := range next.all {
		n.metrics.declareSite(s.Name)
		s.inherit(n.sites.Load())
	}
	old := n.sites.Swap(next)
	for _, s := range old.all {
		s.retired()
	}
	n.loop(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(retireAfter):
		}
		for _, s := range old.all {
			s.retire()
		}
	})
	n.log.Info("configuration reloaded", "sites", len(next.all))
	return nil
}

// ReloadFailed notes that there was a new configuration that could not even be
// read.
func (n *Node) ReloadFailed() { n.metrics.reloadOK.Set(0) }

// fixedDifferences names the keys of the file that differ in o and can't
// change while the node runs.
func (c Config) fixedDifferences(o Config) []string {
	if (len(c.Cluster.Keys) > 0) == (len(o.Cluster.Keys) > 0) {
		c.Cluster.Keys, o.Cluster.Keys = nil, nil // they can be exchanged, not given up
	}
	if (c.Cluster.TLS != nil) == (o.Cluster.TLS != nil) {
		c.Cluster.TLS, o.Cluster.TLS = nil, nil
	}
	var keys []string
	for _, d := range []struct {
		key  string
		a, b any
	}{
		{"name", c.Name, o.Name}, {"listen", c.Listen, o.Listen}, {"admin", c.Admin, o.Admin},
		{"cluster", c.Cluster, o.Cluster}, {"cache", c.Cache, o.Cache}, {"negative", c.Negative, o.Negative},
		{"filter", c.Filter, o.Filter}, {"drain", c.Drain, o.Drain},
	} {
		if !reflect.DeepEqual(d.a, d.b) {
			keys = append(keys, d.key)
		}
	}
	return keys
}
