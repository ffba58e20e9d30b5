package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edged/edge/admin"
	"edged/edge/negative"
	"edged/edge/store"
	"edged/gossip"
)

// catalogChange is the payload of a change of kind KindCatalog, in JSON.
type catalogChange struct {
	Add    []string `json:"add,omitempty"`    // paths that exist
	Remove []string `json:"remove,omitempty"` // and that don't
}

// catalogUpdate is POST /v1/catalog/{site}: it changes what the site's catalog
// says exists, on every member.
func (n *Node) catalogUpdate(ctx context.Context, name string, add, remove []string) (admin.CatalogResult, error) {
	c, err := n.catalogOf(name)
	if err != nil {
		return admin.CatalogResult{}, err
	}
	if err := c.Room(len(add), len(remove)); err != nil {
		return admin.CatalogResult{}, &admin.Error{Status: http.StatusConflict, Text: err.Error()}
	}
	if n.released.Load() {
		return admin.CatalogResult{}, errReleased()
	}
	changes, err := catalogChanges(name, add, remove)
	if err != nil {
		return admin.CatalogResult{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeWait)
	defer cancel()
	s := n.spread(ctx, "catalog", nil, changes...)
	if s == nil {
		return admin.CatalogResult{}, errNotTaken()
	}
	acked, missing := outcomeOf(s)
	return admin.CatalogResult{
		Added: len(add), Removed: len(remove), ID: s.ID(),
		Members: len(acked) + len(missing) + 1, Acked: len(acked) + 1, Missing: missing,
	}, nil
}

// catalogChanges makes as many changes of an update as the log takes one by one.
func catalogChanges(site string, add, remove []string) ([]gossip.Change, error) {
	var changes []gossip.Change
	var part catalogChange
	size := 0
	flush := func() error {
		payload, err := json.Marshal(part)
		changes = append(changes, gossip.Change{Kind: gossip.KindCatalog, Site: site, Payload: payload})
		part, size = catalogChange{}, 0
		return err
	}
	for i, path := range slices.Concat(add, remove) {
		if len(path) > maxPurgeName {
			return nil, &admin.Error{Status: http.StatusRequestEntityTooLarge, Text: "a path of " + itoa(int64(len(path))) + " bytes: want up to 8 KiB"}
		}
		if size+len(path) > catalogChangeBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if i < len(add) {
			part.Add = append(part.Add, path)
		} else {
			part.Remove = append(part.Remove, path)
		}
		size += len(path) + len(`"",`)
	}
	return changes, flush()
}

// catalogChangeBytes bounds the paths of one change. JSON makes six bytes of one
// at the worst, which the log's 128 KiB have room for.
const catalogChangeBytes = 20 << 10

// catalogOf returns the catalog of a site, or what to tell who asks for it.
func (n *Node) catalogOf(name string) (*negative.Catalog, error) {
	sites := n.sites.Load().all
	i := slices.IndexFunc(sites, func(s *site) bool { return s.Name == name })
	switch {
	case i < 0:
		return nil, &admin.Error{Status: http.StatusNotFound, Text: "there is no site " + name}
	case sites[i].catalog == nil:
		return nil, &admin.Error{Status: http.StatusConflict, Text: "site " + name + " has no catalog: set its catalog.mode"}
	}
	return sites[i].catalog, nil
}

// applyCatalog applies a change of a site's catalog, from this node or another.
// Members without that site or its catalog pass it over.
func (n *Node) applyCatalog(g gossip.Change) {
	c, err := n.catalogOf(g.Site)
	if err != nil {
		return
	}
	var change catalogChange
	if err := json.Unmarshal(g.Payload, &change); err != nil {
		n.log.Error("a member's change of a catalog can't be read", "site", g.Site, "id", g.ID, "err", err)
		return
	}
	if err := c.Change(change.Add, change.Remove, stampTime(g.Stamp)); err != nil {
		n.log.Error("a change of a catalog was dropped", "site", g.Site, "id", g.ID, "err", err)
	}
}

// catalogCreated tells the catalogs of URLs, as they stand in keys, that exist
// since a moment. A catalog that has no room for it can't be believed any more.
func (n *Node) catalogCreated(urls []string, at time.Time) {
	paths := map[*site][]string{}
	for _, u := range urls {
		if s := n.sites.Load().find(store.HostOf(u)); s != nil && s.catalog != nil {
			paths[s] = append(paths[s], pathOfKey(u))
		}
	}
	for s, created := range paths {
		if err := s.catalog.Change(created, nil, at); err != nil {
			n.log.Error("what was created is not in the catalog", "site", s.Name, "err", err)
			s.catalog.Doubt()
		}
	}
}

// catalogDoubted tells the catalogs of hosts that more exists there now than was
// named.
func (n *Node) catalogDoubted(hosts []string) {
	for _, h := range hosts {
		if s := n.sites.Load().find(h); s != nil && s.catalog != nil {
			n.log.Error("more was created at once than can be named: the site's catalog only observes until it is loaded again", "site", s.Name, "host", h)
			s.catalog.Doubt()
		}
	}
}

// stampTime is when a change was made: later for every larger stamp, since the
// 65 536 ns that the counter in its low bits comes to are less than the
// millisecond above them.
func stampTime(stamp uint64) time.Time {
	return time.UnixMilli(int64(stamp >> 16)).Add(time.Duration(stamp & 0xffff))
}

// catalogMetrics describes what a site's catalog tells.
var catalogMetrics = []described{
	{"edged_catalog_paths", "Paths in the site's catalog, as last loaded.", []string{"site"}},
	{"edged_catalog_bytes", "Memory of the site's catalog.", []string{"site"}},
	{"edged_catalog_age_seconds", "Since the catalog's source was last known to say what is loaded.", []string{"site"}},
	{"edged_catalog_mode", "1 for what the catalog does now, which is less than its configured mode when it can't be trusted.", []string{"site", "mode"}},
	{"edged_catalog_loads_total", "Loads of the catalog: ok, failed (the older one stays), shrunk (failed because half of it was gone).", []string{"site", "result"}},
	{"edged_catalog_would_refuse_total", "Requests for paths that the catalog calls absent, refused or not.", []string{"site"}},
	{"edged_catalog_refused_total", "Of them, those answered 404 without a forward.", []string{"site"}},
	{"edged_catalog_wrong_total", "Of those forwarded, the ones that did exist.", []string{"site"}},
	{"edged_catalog_dropped_changes_total", "Changes of the catalog for which there was no room.", []string{"site"}},
}

func (c *collector) catalog(s *site, send func(kind prometheus.ValueType, name string, v float64, labels ...string)) {
	if s.catalog == nil {
		return
	}
	st := s.catalog.Stats(time.Now())
	gauge, count := prometheus.GaugeValue, prometheus.CounterValue
	send(gauge, "edged_catalog_paths", float64(st.Paths), s.Name)
	send(gauge, "edged_catalog_bytes", float64(st.Bytes), s.Name)
	send(gauge, "edged_catalog_age_seconds", st.Age.Seconds(), s.Name)
	for _, m := range []negative.Mode{negative.ModeObserve, negative.ModeEnforce} {
		v := 0.0
		if st.Effective == m {
			v = 1
		}
		send(gauge, "edged_catalog_mode", v, s.Name, string(m))
	}
	send(count, "edged_catalog_loads_total", float64(st.Loads), s.Name, "ok")
	send(count, "edged_catalog_loads_total", float64(st.Failures-st.Shrunk), s.Name, "failed")
	send(count, "edged_catalog_loads_total", float64(st.Shrunk), s.Name, "shrunk")
	send(count, "edged_catalog_would_refuse_total", float64(st.WouldRefuse), s.Name)
	send(count, "edged_catalog_refused_total", float64(st.Refused), s.Name)
	send(count, "edged_catalog_wrong_total", float64(st.Wrong), s.Name)
	send(count, "edged_catalog_dropped_changes_total", float64(st.Dropped), s.Name)
}
