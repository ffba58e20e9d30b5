package edge

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"edged/edge/admin"
	"edged/edge/negative"
	"edged/edge/rfc9111"
	"edged/edge/store"
	"edged/edge/tracing"
	"edged/gossip"
	"edged/peerfilter"
	"edged/shield"
)

// Node is a running node. Its methods are safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	seed    peerfilter.Seed

	sites       atomic.Pointer[siteTable]
	topo        atomic.Pointer[topology]
	store       *store.Store
	budget      *store.Budget
	negative    *negative.Cache
	absenceHits atomic.Uint64        // answers from it
	known       *peerfilter.Rotating // keys that have been stored
	gossip      *gossip.Gossip
	metrics     *metrics
	maxObject   []int64             // by partition
	plans       []peerfilter.Sizing // by partition, as configured
	filters     []filterState       // by partition
	truths      []truth             // by partition

	flights      flights
	uncacheable  uncacheable
	epochs       store.Epochs // what was purged, against what is stored or fetched
	purgeLimit   purgeLimit
	leftovers    leftovers        // of purges, to be taken out
	unknownKinds [128]atomic.Bool // of changes, that have been logged
	sync         atomic.Pointer[syncState]
	prober       prober
	rechecks     chan struct{} // holds a token for each that is under way

	invalidations invalidations // by unsafe methods

	recheckAfter time.Duration
	peerClient   *shield.Transport
	identity     *gossip.Identity // nil: members speak in clear

	sampler   *sampler
	feed      *admin.Feed
	summaries *summaries
	tracer    *tracing.Tracer // nil: off
	purging   atomic.Int64    // purges that wait for acknowledgements

	listeners [3]net.Listener // client, peer, admin
	ownPort   string          // ":8080", of the client listener
	servers   [3]*http.Server
	gates     [2]*gate // of the first two

	memberSlots chan struct{}

	ctx        context.Context // ends when everything must
	cancel     context.CancelFunc
	background sync.WaitGroup // forwards and loops
	work       chan func()    // unbuffered: to a goroutine that waits for it
	draining   atomic.Bool
	released   atomic.Bool // another process has the name in the cluster now
	handedOver atomic.Bool // and the listeners
	reloadMu   sync.Mutex
	stop       sync.Once
	done       chan struct{}

	errMu sync.Mutex
	err   error
}

// Addrs are the addresses that a node really listens on.
type Addrs struct {
	Client, Peer, Gossip, Admin string
}

// ConfigError is everything that is wrong with a [Config].
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// The three listeners.
const (
	lnClient = iota
	lnPeer
	lnAdmin
)

// listenerNames are the labels of those that clients and members reach.
var listenerNames = [2]string{lnClient: "client", lnPeer: "peer"}

// New builds a node and starts it: when it returns, the node serves. A
// configuration that can't work is a *[ConfigError]; a listener that can't be
// opened is a [Problem] that names its key.
func New(cfg Config) (_ *Node, err error) {
	cfg = cfg.WithDefaults()
	if ps := cfg.Problems(); len(ps) > 0 {
		return nil, &ConfigError{ps}
	}
	n := &Node{cfg: cfg, log: cfg.Logger, started: time.Now(), done: make(chan struct{}), work: make(chan func()), memberSlots: make(chan struct{}, memberBodies), rechecks: make(chan struct{}, maxRechecks), recheckAfter: recheckAfter, leftovers: leftovers{wake: make(chan struct{}, 1), tags: map[string]struct{}{}},
		purgeLimit: purgeLimit{rate: purgeRate, burst: purgeBurst}}
	n.invalidations = invalidations{send: n.sendInvalidation, limit: purgeLimit{rate: invalidateRate, burst: invalidateBurst}}
	n.flights.epochs = &n.epochs
	n.syncChanged(gossip.SyncSynced)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.metrics = newMetrics(&cfg)
	n.seed = seedFrom(cfg.Cluster.Keys)
	n.tracer, err = tracing.New(tracing.Config{
		Endpoint: cfg.Tracing.Endpoint, Sample: cfg.Tracing.Sample,
		Service: "edged", Instance: cfg.Name, Version: cfg.Version, Logger: cfg.Logger.With("part", "tracing"),
	})
	if err != nil {
		return nil, Problem{"tracing", err.Error()}
	}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()

	if err := n.buildStore(); err != nil {
		return nil, err
	}
	sites, err := n.buildSites(cfg.Sites, nil)
	if err != nil {
		return nil, err
	}
	n.sites.Store(sites)
	n.topo.Store(newTopology(cfg.Name, []gossip.Member{n.self()}, nil))
	if err := n.buildPeerClient(); err != nil {
		return nil, err
	}
	if err := n.listen(); err != nil {
		return nil, err
	}
	if n.cfg.BeforeJoin != nil {
		if err := n.cfg.BeforeJoin(); err != nil {
			return nil, err
		}
	}
	if err := n.startGossip(); err != nil {
		return nil, err
	}
	n.registerCollectors()
	n.sampler, n.summaries = newSampler(n), newSummaries(cfg.Cluster.Keys)
	n.feed = admin.NewFeed(admin.FeedConfig{Sample: n.sampler.sample, Cluster: n.watchedStatus, Logger: n.log.With("part", "admin")})
	n.serveAll()
	n.loop(n.feed.Run)
	n.loop(n.watchFilters)
	n.loop(n.sweep)
	n.loop(n.reclaim)
	return n, nil
}

// seedFrom derives the seed of the filters' hash from the cluster's key, so
// that nobody outside can craft keys that collide (RFC 5869). Without a key
// there is no outside: every address is loopback.
func seedFrom(keys [][]byte) peerfilter.Seed {
	if len(keys) == 0 {
		return peerfilter.Seed{0x65646765642d6c6f, 0x6f706261636b2d31}
	}
	b, err := hkdf.Key(sha256.New, keys[0], nil, "edged-filter-seed-v1", 16)
	if err != nil {
		panic(err) // only for lengths that are constant here
	}
	return peerfilter.Seed{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// sizing plans the filter of a partition.
func (c *Config) sizing(p Partition) (peerfilter.Sizing, error) {
	return peerfilter.Size(max(1, int(float64(c.Filter.Keys)*p.Share)), p.FalsePositiveRate, c.Filter.Peers)
}

// buildStore makes the partitions, each with its budget and its filter.
func (n *Node) buildStore() error {
	var sc store.Config
	for i, p := range n.cfg.Cache.Partitions {
		plan, err := n.cfg.sizing(p)
		if err != nil {
			return Problem{fmt.Sprintf("cache.partitions[%d]", i), err.Error()}
		}
		f, err := peerfilter.NewCounting(plan.Params)
		if err != nil {
			return Problem{fmt.Sprintf("cache.partitions[%d]", i), err.Error()}
		}
		bytes := max(int64(float64(n.cfg.Cache.Memory)*p.Share), store.MinPartitionBytes)
		sc.Partitions = append(sc.Partitions, store.PartitionConfig{Name: p.Name, MaxBytes: bytes, Filter: f})
		n.plans = append(n.plans, plan)
		n.filters = append(n.filters, filterState{counting: f, keys: plan.Keys})
		n.maxObject = append(n.maxObject, min(n.cfg.Cache.MaxObject, bytes))
	}
	n.truths = make([]truth, len(n.plans))
	var err error
	if n.known, err = newKnown(n.cfg.Filter.Keys); err != nil {
		return Problem{"filter.keys", err.Error()}
	}
	if n.store, err = store.New(sc); err != nil {
		return err
	}
	n.budget = store.NewBudget(min(max(n.cfg.Cache.Memory/4, 32<<20), 256<<20))
	n.negative = negative.New(negative.Config{
		CapacityBytes: n.cfg.Negative.Capacity, MaxCreateRate: n.cfg.Negative.MaxCreateRate, MaxBodyBytes: maxAbsenceBytes,
	})
	return nil
}

// buildSites makes the sites, their origins' pools and their catalogs. A site
// of before whose configuration is the same goes on as it is, with its
// connections, what it knows of its origins, and its catalog.
func (n *Node) buildSites(cfgs []Site, before []*site) (*siteTable, error) {
	var sites []*site
	retire := func() {
		for _, s := range sites {
			if !slices.Contains(before, s) {
				s.retire()
			}
		}
	}
	for i, c := range cfgs {
		if j := slices.IndexFunc(before, func(s *site) bool { return reflect.DeepEqual(s.Site, c) }); j >= 0 {
			sites = append(sites, before[j])
			continue
		}
		log := n.log.With("site", c.Name)
		pool, err := shield.NewPool(shield.PoolConfig{
			URLs: c.Origin.URLs, Host: c.Origin.Host, Logger: log,
			Connect: c.Origin.Timeout.Connect, FirstByte: c.Origin.Timeout.FirstByte, Idle: c.Origin.Timeout.Idle,
		})
		if err != nil {
			retire()
			return nil, Problem{fmt.Sprintf("sites[%d].origin", i), err.Error()}
		}
		limit, err := shield.NewLimit(limitConfig(c.Origin))
		if err != nil {
			pool.Close()
			retire()
			return nil, Problem{fmt.Sprintf("sites[%d].origin", i), err.Error()}
		}
		ctx, cancel := context.WithCancel(n.ctx)
		s := &site{Site: c, pool: pool, limit: limit, absent: &absences{}, retired: cancel, policy: rfc9111.Policy{
			StoreSetCookie: c.SetCookie == "store", HonourRequest: c.RequestDirectives == "honour",
			StaleGrace: c.StaleGrace, NegativeTTL: max(n.cfg.Negative.TTL, 0), Absences: n.cfg.Negative.Statuses, StorePartial: true,
		}}
		sites = append(sites, s)
		if c.Catalog.Mode == string(negative.ModeOff) {
			continue
		}
		s.catalog, err = negative.NewCatalog(negative.CatalogConfig{
			Site: c.Name, File: c.Catalog.File, URL: c.Catalog.URL, Mode: negative.Mode(c.Catalog.Mode), Refresh: c.Catalog.Refresh,
			Normalize: func(p string) string { return rfc9111.NormaliseTarget(p, "") }, Logger: log,
		})
		if err != nil {
			retire()
			return nil, Problem{fmt.Sprintf("sites[%d].catalog", i), err.Error()}
		}
		n.loop(func(context.Context) { s.catalog.Run(ctx) })
	}
	return newSiteTable(sites), nil
}

// self is this node as a member, before the cluster says so.
func (n *Node) self() gossip.Member {
	return gossip.Member{Name: n.cfg.Name, Role: string(n.cfg.Cluster.Role), State: gossip.StateAlive}
}

// listen opens the three listeners.
func (n *Node) listen() error {
	for i, l := range [3]struct {
		path, addr string
		inherited  net.Listener
	}{
		{"listen.address", n.cfg.Listen.Address, n.cfg.Inherited.Client},
		{"cluster.peer", n.cfg.Cluster.Peer, n.cfg.Inherited.Peer},
		{"admin.address", n.cfg.Admin.Address, n.cfg.Inherited.Admin},
	} {
		if l.inherited != nil {
			if _, ok := l.inherited.Addr().(*net.TCPAddr); !ok {
				return Problem{l.path, fmt.Sprintf("the inherited listener %s is not one of TCP", l.inherited.Addr())}
			}
			n.listeners[i] = l.inherited
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return Problem{l.path, l.addr + " is in use by another process: choose another port, or 0 for any free one"}
		}
		if err != nil {
			return Problem{l.path, fmt.Sprintf("can't listen on %s: %v", l.addr, err)}
		}
		n.listeners[i] = ln
	}
	n.ownPort = ":" + itoa(int64(n.listeners[lnClient].Addr().(*net.TCPAddr).Port))
	return nil
}

// startGossip joins the cluster and publishes the filters.
func (n *Node) startGossip() error {
	var parts []gossip.Partition
	for i, p := range n.cfg.Cache.Partitions {
		parts = append(parts, gossip.Partition{Name: p.Name, Params: n.plans[i].Params})
	}
	g, err := gossip.New(gossip.Config{
		Name: n.cfg.Name, Role: string(n.cfg.Cluster.Role), Bind: n.cfg.Cluster.Gossip, Advertise: n.cfg.Cluster.Advertise,
		PeerAddr: n.peerAddr(), Join: n.cfg.Cluster.Join, Known: n.cfg.Inherited.Members, Keys: n.cfg.Cluster.Keys,
		TLS: n.identity, Seed: n.seed, Partitions: parts, Logger: n.log.With("part", "gossip"),
		OnMembers: n.membersChanged, StateDir: n.cfg.Purge.StateDir, OnChange: n.applyChange, OnLost: n.changesLost, OnSync: n.syncChanged, OnConflict: n.fatal,
	})
	if err != nil {
		return err
	}
	n.gossip = g
	for i := range n.filters {
		g.Publish(i, n.filters[i].counting)
	}
	return nil
}

// peerAddr is where the others reach this node's peer listener.
func (n *Node) peerAddr() string {
	addr := n.listeners[lnPeer].Addr().(*net.TCPAddr)
	if n.cfg.Cluster.Advertise != "" {
		return net.JoinHostPort(n.cfg.Cluster.Advertise, itoa(int64(addr.Port)))
	}
	return addr.String()
}

// membersChanged rebuilds what follows from the membership.
func (n *Node) membersChanged(members []gossip.Member) {
	old := n.topo.Load()
	if !slices.ContainsFunc(members, func(m gossip.Member) bool { return m.Name == n.cfg.Name }) {
		members = append(slices.Clone(members), n.self())
	}
	t := newTopology(n.cfg.Name, members, old)
	for name := range t.peers {
		n.metrics.addPeer(name)
	}
	n.topo.Store(t)
}

// serveAll starts the three servers.
func (n *Node) serveAll() {
	quiet := slog.NewLogLogger(n.log.With("part", "http").Handler(), slog.LevelDebug)
	handlers := [3]http.Handler{
		http.HandlerFunc(n.serveClient), http.HandlerFunc(n.servePeer),
		admin.New(admin.Config{Node: n.adminNode(), Token: n.cfg.Admin.Token, Logger: n.log.With("part", "admin")}),
	}
	for i, h := range handlers {
		n.servers[i] = &http.Server{
			Handler: h, ErrorLog: quiet, MaxHeaderBytes: maxHeaderBytes,
			ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
			DisableGeneralOptionsHandler: true,
		}
		ln := n.listeners[i]
		if i == lnAdmin {
			n.servers[i].ReadTimeout = 30 * time.Second
		} else {
			if i == lnPeer && n.identity != nil {
				ln = n.identity.Listener(ln)
			}
			n.servers[i].ConnContext = withConn
			n.gates[i] = n.newGate(ln, i)
			n.servers[i].ConnState = n.gates[i].track
			ln = n.gates[i]
		}
		n.background.Add(1)
		go func() {
			defer n.background.Done()
			if err := n.servers[i].Serve(ln); !errors.Is(err, http.ErrServerClosed) && !n.handedOver.Load() {
				n.fatal(fmt.Errorf("serve %s: %w", n.listeners[i].Addr(), err))
			}
		}()
	}
}

// newGate bounds, frames and counts the connections of one of the listeners.
func (n *Node) newGate(ln net.Listener, i int) *gate {
	g := newGate(ln, n.cfg.Listen.MaxConnections)
	name := listenerNames[i]
	g.opened = n.metrics.conns.WithLabelValues(name).Add
	g.evicted = n.metrics.evictedConns.WithLabelValues(name).Inc
	g.refused = func(reason string) {
		n.metrics.rejected.WithLabelValues(reason).Inc()
		if i == lnClient {
			n.metrics.request(noSite, resError, 0)
		}
	}
	return g
}

// loop runs f until it returns, which it does when ctx ends.
func (n *Node) loop(f func(ctx context.Context)) {
	n.background.Add(1)
	go func() {
		defer n.background.Done()
		f(n.ctx)
	}()
}

// fatal stops the node because of err. It does not wait.
func (n *Node) fatal(err error) {
	n.errMu.Lock()
	if n.err == nil {
		n.err = err
	}
	n.errMu.Unlock()
	n.log.Error("stopping", "err", err)
	go n.Close()
}

// Addrs returns the addresses that the node listens on.
func (n *Node) Addrs() Addrs {
	return Addrs{
		Client: n.listeners[lnClient].Addr().String(), Peer: n.listeners[lnPeer].Addr().String(),
		Gossip: n.gossip.Addr(), Admin: n.listeners[lnAdmin].Addr().String(),
	}
}

// Done is closed when the node has stopped, by itself or not.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node stopped by itself; nil when it was asked to.
func (n *Node) Err() error {
	n.errMu.Lock()
	defer n.errMu.Unlock()
	return n.err
}

// MemoryLimit is what the process should tell the runtime to stay below at the
// moment (debug.SetMemoryLimit): the store's budget with a quarter for
// garbage, what is in flight, the absences and filters that there are, and
// room for connections.
func (n *Node) MemoryLimit() int64 {
	limit := n.cfg.Cache.Memory*5/4 + n.budget.Used() + n.negative.Stats().Bytes*5/4 + 32<<20
	peers := len(n.topo.Load().peers)
	for i, p := range n.plans {
		c, _, _ := n.filters[i].current()
		limit += int64(c.Params().Bits()) * 6 / 8 // counters, bits and their shadow
		if peers > 0 {
			limit += int64(p.AllReplicaBytes) * int64((peers+p.Peers-1)/p.Peers)
		}
	}
	return limit
}

// stack returns the calling goroutine's stack, for the log.
func stack() string { return string(debug.Stack()) }
