package edge

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"edged/edge/rfc9111"
	"edged/gossip"
)

// Config is everything one node needs to know. [New] copies it, fills the
// defaults that [Config.WithDefaults] names and refuses what
// [Config.Problems] finds. Nothing writes to it afterwards.
//
// The field names follow the configuration file; a [Problem] names its place
// by the file's path, so that a front end can point at the line.
type Config struct {
	Name    string // the member's identity in the cluster; empty: the host's name
	Version string // shown in edged_build_info and in the status

	Listen   Listen
	Admin    Admin
	Cluster  Cluster
	Cache    Cache
	Negative Negative
	Filter   Filter
	Purge    Purge
	Sites    []Site

	// Drain bounds a graceful stop: requests still running after it are cut.
	// Zero means 30 s.
	Drain time.Duration

	// Inherited are listeners that are open already, from systemd or from the
	// process that this one takes over from; a nil one is opened here. They
	// replace the addresses, and the node closes them.
	Inherited Inherited

	// BeforeJoin, when set, is called once everything is built and bound but
	// membership: the process that this one takes over from gives the name and
	// the gossip address free there. Its error ends New.
	BeforeJoin func() error

	// Reread is POST /v1/reload: it reads the configuration anew, calls
	// [Node.Reload], and returns what is wrong. It may be called concurrently.
	// Nil: the node has nothing to read.
	Reread func() error

	Log     Log
	Tracing Tracing

	// LogDropped tells how many lines of the log were lost; nil: none are.
	LogDropped func() uint64

	// Logger receives everything the node has to say; nil discards it.
	Logger *slog.Logger
}

// Listen is the address that clients speak to.
type Listen struct {
	Address string // host:port, port 0 picks a free one; empty: ":8080"

	// MaxConnections bounds the open connections of clients, and those of other
	// members likewise. At the bound the one that is idle longest is closed for a
	// new one. Each takes some 20 KB. Zero means 10 000.
	MaxConnections int
}

// Inherited is what the node gets from the process that it takes over from.
type Inherited struct {
	Client, Peer, Admin net.Listener // nil ones are opened by the node

	// Members are gossip addresses of members, tried once, beside cluster.join.
	// The members that join lists may be no others than the node itself.
	Members []string
}

// Admin is the address of the admin API, the metrics and the status page.
type Admin struct {
	Address string // host:port; empty: "127.0.0.1:9901"
	Token   string // guards everything but health; empty: no token, and PURGE on the client address is refused
}

// Role is what a member is for.
type Role string

// The roles.
const (
	RoleEdge   Role = "edge"   // serves clients
	RoleShield Role = "shield" // stands between the edges and the origins
)

// Cluster is how the node finds and talks to its peers.
type Cluster struct {
	Role Role // empty: RoleEdge

	// Gossip and Peer are host:port to bind. Empty means port 7946 and 7947
	// on every interface when there is a key, on 127.0.0.1 when there is none.
	Gossip string
	Peer   string

	// Advertise is the host that others should use when it differs from the
	// bound one. Empty: the bound one.
	Advertise string

	Join []string // host:port of any members; names are looked up again at every try
	Keys [][]byte // 32 bytes each, the first one encrypts; none: plain, and only on loopback

	// TLS makes the members speak TLS with each other, each with a certificate
	// of its own. nil: HTTP in clear between nodes, signed by the key where it
	// changes anything.
	TLS *ClusterTLS
}

// ClusterTLS is what a member proves its name with: the contents of PEM files.
type ClusterTLS struct {
	Cert []byte // this node's, with those between it and the authority; its name is among the DNS names
	Key  []byte
	CA   []byte // of the authorities that sign the members' certificates
}

// Cache is the store of responses.
type Cache struct {
	Memory     int64 // bytes for bodies, heads and index together, a hard limit; 0: 512 MiB
	MaxObject  int64 // bytes of the largest body that is stored; 0: 64 MiB, never above a partition's share
	Partitions []Partition
}

// Partition is a share of the cache with a filter of its own. The first one
// that matches a request holds its response.
type Partition struct {
	Name string
	// Paths are path patterns ("/static/*"); empty matches everything.
	// "*" matches any run of bytes, "/" among them.
	Paths []string
	// Share is this partition's part of Cache.Memory and Filter.Keys, 0 to 1.
	Share float64
	// FalsePositiveRate over all peers; 0: Filter.FalsePositiveRate.
	FalsePositiveRate float64
}

// Negative is the store of remembered absences.
type Negative struct {
	Capacity      int64         // bytes; 0: 64 MiB
	TTL           time.Duration // lifetime of an absence without explicit freshness; 0: 5 s, below 0: such are not remembered
	MaxCreateRate int           // new entries of a site a second; 0: 10 000
	Statuses      []int         // by which an origin says that there is nothing, beside 404 and 410: 403, say
}

// Purge is how this node takes part in the cluster's log of purges.
type Purge struct {
	// StateDir is a directory of this node's own for the log, so that a restart
	// forgets none. Empty: the log is in memory alone, and what only this node
	// knew is lost with it.
	StateDir string

	// Isolated is what the node does while it may have missed purges, because it
	// can't reach most of the members or has not caught up yet: "revalidate" asks the
	// origin before each use of what is stored, "serve" serves it nevertheless.
	// Empty: "revalidate".
	Isolated string
}

// Filter sizes the node's own filters and the replicas of its peers'. Keys,
// rate and peers must be the same on all members.
type Filter struct {
	Keys              int     // planned stored responses per node; 0: 1 000 000
	FalsePositiveRate float64 // over all peers together; 0: 1 %
	Peers             int     // planned number of peers; 0: 16

	// Off makes every local miss ask every peer: the control group of a load
	// test, never what one wants in production.
	Off bool

	// Ask is whom a local miss asks when the filters are Off: "all" peers, or
	// "none", so that only a site's shield is between a miss and the origin, the
	// ring alone with shield: ring. Empty: "all".
	Ask string

	// NoLocal looks into the store without asking the own filter first. The
	// filter answers for an absent key in a third of the time that the store
	// takes, and adds half as much to a hit: see BenchmarkLocalFilter.
	NoLocal bool
}

// Site is a set of hosts with one origin and one policy.
type Site struct {
	Name   string
	Hosts  []string // exact, or "*.example.com"; empty: every host
	Origin Origin
	Shield string // "auto", "off" or "ring"; empty: "auto"

	SetCookie         string        // "pass" or "store"; empty: "pass"
	RequestDirectives string        // "ignore" or "honour"; empty: "ignore"
	StaleGrace        time.Duration // serve stale on origin failure without stale-if-error, up to this
	Bypass            []string      // path patterns that skip the cache
	Catalog           Catalog
}

// Origin is where a site's responses come from.
type Origin struct {
	URLs    []string // scheme://host:port, tried in order of health
	Host    string   // the Host sent to the origin; empty: the client's
	Timeout OriginTimeout

	// MaxConcurrent bounds the requests at the origin at once, over all its
	// servers; 0: as many as there are clients. Beyond it up to Queue requests
	// wait, each for MaxWait at most, and others are answered 503. KnownShare
	// of both is for content that has been stored before, so that a flood of
	// what does not exist leaves it room.
	MaxConcurrent int
	Queue         int           // 0: 1000
	KnownShare    float64       // 0: 25 %
	MaxWait       time.Duration // 0: 1 s
}

// OriginTimeout bounds each phase of a request to the origin.
type OriginTimeout struct {
	Connect   time.Duration // 0: 2 s
	FirstByte time.Duration // 0: 30 s
	Idle      time.Duration // between two reads of a body; 0: 30 s
}

// Catalog is a list of all that exists on a site.
type Catalog struct {
	File    string
	URL     string
	Mode    string        // "off", "observe" or "enforce"; empty: "off"
	Refresh time.Duration // 0: 60 s
}

// Log is how the node logs. Who makes the Logger reads Format and Level.
type Log struct {
	Format string // "text" or "json"; empty: "text"
	Level  string // "debug", "info", "warn" or "error"; empty: "info"
	Access AccessLog
}

// Problem is one thing wrong with a Config: Path is the place in the
// configuration file ("cache.partitions[0].share"), Text what is wrong and
// what was expected instead.
type Problem struct {
	Path string
	Text string
}

func (p Problem) Error() string { return p.Path + ": " + p.Text }

// WithDefaults returns a copy in which every value that was left empty has
// its default.
func (c Config) WithDefaults() Config {
	def(&c.Listen.Address, ":8080")
	def(&c.Listen.MaxConnections, 10_000)
	def(&c.Admin.Address, "127.0.0.1:9901")
	def(&c.Cluster.Role, RoleEdge)
	host := "127.0.0.1"
	if len(c.Cluster.Keys) > 0 {
		host = "0.0.0.0"
	}
	def(&c.Cluster.Gossip, host+":7946")
	def(&c.Cluster.Peer, host+":7947")
	def(&c.Cache.Memory, 512<<20)
	def(&c.Cache.MaxObject, 64<<20)
	if len(c.Cache.Partitions) == 0 {
		c.Cache.Partitions = []Partition{{Name: "default", Share: 1}}
	}
	def(&c.Negative.Capacity, 64<<20)
	def(&c.Negative.TTL, 5*time.Second)
	def(&c.Negative.MaxCreateRate, 10000)
	def(&c.Purge.Isolated, "revalidate")
	def(&c.Filter.Keys, 1_000_000)
	def(&c.Filter.Ask, "all")
	def(&c.Filter.FalsePositiveRate, 0.01)
	def(&c.Filter.Peers, 16)
	c.Cache.Partitions = append([]Partition(nil), c.Cache.Partitions...)
	for i := range c.Cache.Partitions {
		def(&c.Cache.Partitions[i].FalsePositiveRate, c.Filter.FalsePositiveRate)
	}
	c.Sites = append([]Site(nil), c.Sites...)
	for i := range c.Sites {
		s := &c.Sites[i]
		def(&s.Shield, "auto")
		def(&s.SetCookie, "pass")
		def(&s.RequestDirectives, "ignore")
		def(&s.Origin.Timeout.Connect, 2*time.Second)
		def(&s.Origin.Timeout.FirstByte, 30*time.Second)
		def(&s.Origin.Timeout.Idle, 30*time.Second)
		def(&s.Origin.Queue, 1000)
		def(&s.Origin.KnownShare, 0.25)
		def(&s.Origin.MaxWait, time.Second)
		def(&s.Catalog.Mode, "off")
		def(&s.Catalog.Refresh, time.Minute)
	}
	def(&c.Drain, 30*time.Second)
	def(&c.Log.Format, "text")
	def(&c.Log.Level, "info")
	def(&c.Log.Access.Slow, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Problems returns everything that is wrong with the configuration, after
// defaults; none when the node can be built.
func (c Config) Problems() []Problem {
	c = c.WithDefaults()
	var ps []Problem
	bad := func(path, format string, args ...any) {
		ps = append(ps, Problem{path, fmt.Sprintf(format, args...)})
	}

	if !nameRE.MatchString(c.Name) {
		bad("name", "%q is not a node name: 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", c.Name)
	}
	address := func(path, addr string) {
		if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
			bad(path, "%q is not an address to listen on: want host:port, such as 127.0.0.1:8080 or :8080", addr)
		}
	}
	address("listen.address", c.Listen.Address)
	if c.Listen.MaxConnections < 1 {
		bad("listen.max_connections", "is negative")
	}
	address("admin.address", c.Admin.Address)
	address("cluster.gossip", c.Cluster.Gossip)
	address("cluster.peer", c.Cluster.Peer)
	used := map[string]string{}
	for _, l := range []struct{ path, addr string }{
		{"listen.address", c.Listen.Address}, {"admin.address", c.Admin.Address}, {"cluster.peer", c.Cluster.Peer}, {"cluster.gossip", c.Cluster.Gossip},
	} {
		if _, port, err := net.SplitHostPort(l.addr); err != nil || port == "0" {
			continue
		}
		if other := used[l.addr]; other != "" {
			bad(l.path, "%s is the address of %s too: want another port", l.addr, other)
		}
		used[l.addr] = l.path
	}
	if c.Cluster.Role != RoleEdge && c.Cluster.Role != RoleShield {
		bad("cluster.role", "%q is not a role: want edge or shield", c.Cluster.Role)
	}
	if len(c.Cluster.Keys) == 0 {
		for _, a := range []struct{ path, addr string }{{"cluster.gossip", c.Cluster.Gossip}, {"cluster.peer", c.Cluster.Peer}} {
			if !isLoopback(a.addr) {
				bad(a.path, "%q can be reached from other machines, so cluster.key_file is required: make a key with `edged keygen`, or bind to 127.0.0.1", a.addr)
			}
		}
	}
	for i, k := range c.Cluster.Keys {
		if len(k) != 32 {
			bad("cluster.key_file", "key %d has %d bytes: want 32, as `edged keygen` prints them", i+1, len(k))
		}
	}
	if t := c.Cluster.TLS; t != nil {
		if _, err := gossip.NewIdentity(c.Name, t.Cert, t.Key, t.CA, nil); err != nil {
			key, text, _ := strings.Cut(err.Error(), ": ")
			bad("cluster.tls."+key, "%s", text)
		}
	}
	for i, j := range c.Cluster.Join {
		if _, port, err := net.SplitHostPort(j); err != nil || port == "" {
			bad(fmt.Sprintf("cluster.join[%d]", i), "%q is not a member's address: want host:port", j)
		}
	}
	if a := c.Cluster.Advertise; a != "" {
		if _, err := netip.ParseAddr(a); err != nil {
			bad("cluster.advertise", "%q is not an IP address", a)
		}
	}

	if c.Cache.Memory < 1<<20 {
		bad("cache.memory", "%d bytes are too few: want at least 1MiB", c.Cache.Memory)
	}
	if c.Cache.MaxObject < 0 {
		bad("cache.max_object", "is negative")
	}
	share := 0.0
	names := map[string]bool{}
	for i, p := range c.Cache.Partitions {
		at := fmt.Sprintf("cache.partitions[%d]", i)
		if !nameRE.MatchString(p.Name) {
			bad(at+".name", "%q is not a partition name", p.Name)
		} else if names[p.Name] {
			bad(at+".name", "%q is used twice", p.Name)
		}
		names[p.Name] = true
		if !(p.Share > 0 && p.Share <= 1) {
			bad(at+".share", "%s is not a share: want above 0%% and up to 100%%", percent(p.Share))
		}
		share += p.Share
		rate(bad, at+".false_positive_rate", p.FalsePositiveRate)
		for j, pat := range p.Paths {
			if !strings.HasPrefix(pat, "/") && !strings.HasPrefix(pat, "*") {
				bad(fmt.Sprintf("%s.match.path[%d]", at, j), "%q matches nothing: a path pattern begins with / or *", pat)
			}
		}
		if len(p.Paths) == 0 && i < len(c.Cache.Partitions)-1 {
			bad(at, "%q matches every request, so the partitions after it are never used: give it a match, or move it to the end", p.Name)
		}
	}
	if last := len(c.Cache.Partitions) - 1; len(c.Cache.Partitions[last].Paths) > 0 {
		bad(fmt.Sprintf("cache.partitions[%d]", last), "the last partition must match every request: take its match away, or add one without a match")
	}
	if share > 1.0001 {
		bad("cache.partitions", "the shares add up to %s: want 100%% at most", percent(share))
	}
	if len(c.Cache.Partitions) > 16 {
		bad("cache.partitions", "%d partitions: want 16 at most", len(c.Cache.Partitions))
	}

	if c.Negative.Capacity < 0 {
		bad("negative.capacity", "is negative")
	}
	if c.Negative.MaxCreateRate < 0 {
		bad("negative.max_create_rate", "is negative")
	}
	for i, s := range c.Negative.Statuses {
		if !rfc9111.CanMeanAbsence(s) {
			bad(fmt.Sprintf("negative.statuses[%d]", i), "%d: want a status that says of the URL alone that there is nothing, such as 403", s)
		}
	}
	if c.Filter.Keys < 1 || c.Filter.Keys > 400_000_000 {
		bad("filter.keys", "%d: want 1 to 400000000", c.Filter.Keys)
	}
	rate(bad, "filter.false_positive_rate", c.Filter.FalsePositiveRate)
	if c.Purge.Isolated != "revalidate" && c.Purge.Isolated != isolatedServe {
		bad("purge.isolated", "%q: want revalidate or serve", c.Purge.Isolated)
	}
	switch {
	case c.Filter.Ask != "all" && c.Filter.Ask != askNone:
		bad("filter.ask", "%q: want all or none", c.Filter.Ask)
	case c.Filter.Ask == askNone && !c.Filter.Off:
		bad("filter.ask", "none is for comparison without filters: want enabled: false beside it, or no ask")
	}
	if c.Filter.Peers < 1 || c.Filter.Peers > 1024 {
		bad("filter.peers", "%d: want 1 to 1024", c.Filter.Peers)
	}

	if len(c.Sites) == 0 {
		bad("sites", "there is no site, so nothing to serve: give one with an origin, or start with --origin URL")
	}
	hosts := map[string]string{}
	siteNames := map[string]bool{}
	for i, s := range c.Sites {
		at := fmt.Sprintf("sites[%d]", i)
		if !nameRE.MatchString(s.Name) {
			bad(at+".name", "%q is not a site name", s.Name)
		} else if siteNames[s.Name] {
			bad(at+".name", "%q is used twice", s.Name)
		}
		siteNames[s.Name] = true
		hs := s.Hosts
		if len(hs) == 0 {
			hs = []string{"*"}
		}
		for j, h := range hs {
			hp := fmt.Sprintf("%s.hosts[%d]", at, j)
			if len(s.Hosts) == 0 {
				hp = at
			}
			h = strings.ToLower(h)
			if h != "*" && (strings.Contains(strings.TrimPrefix(h, "*."), "*") || strings.ContainsAny(h, "/ :") || h == "") {
				bad(hp, "%q is not a host: want a name without port, or *.name", h)
			}
			if other, dup := hosts[h]; dup {
				bad(hp, "host %q belongs to site %q already", h, other)
			}
			hosts[h] = s.Name
		}
		if len(s.Origin.URLs) == 0 {
			bad(at+".origin.urls", "there is no origin: want at least one URL, such as http://127.0.0.1:9000")
		}
		for j, raw := range s.Origin.URLs {
			u, err := url.Parse(raw)
			switch op := fmt.Sprintf("%s.origin.urls[%d]", at, j); {
			case err != nil:
				bad(op, "%q is not a URL: %v", raw, err)
			case u.Scheme != "http" && u.Scheme != "https":
				bad(op, "%q is not an origin: want http://host[:port] or https://host[:port]", raw)
			case u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
				bad(op, "%q is not an origin: want scheme, host and port only", raw)
			}
		}
		for _, t := range []struct {
			key string
			d   time.Duration
		}{{"connect", s.Origin.Timeout.Connect}, {"first_byte", s.Origin.Timeout.FirstByte}, {"idle", s.Origin.Timeout.Idle}} {
			if t.d < 0 {
				bad(at+".origin.timeout."+t.key, "%v is negative", t.d)
			}
		}
		if s.Origin.MaxConcurrent < 0 {
			bad(at+".origin.max_concurrent", "is negative")
		}
		if s.Origin.Queue < 0 {
			bad(at+".origin.queue", "is negative")
		}
		if !(s.Origin.KnownShare > 0 && s.Origin.KnownShare <= 1) {
			bad(at+".origin.known_share", "%s is not a share: want above 0%% and up to 100%%", percent(s.Origin.KnownShare))
		}
		if s.Origin.MaxWait < 0 {
			bad(at+".origin.max_wait", "%v is negative", s.Origin.MaxWait)
		}
		oneOf(bad, at+".shield", s.Shield, "auto", "off", "ring")
		oneOf(bad, at+".set_cookie", s.SetCookie, "pass", "store")
		oneOf(bad, at+".request_directives", s.RequestDirectives, "ignore", "honour")
		if s.StaleGrace < 0 {
			bad(at+".stale_grace", "%v is negative", s.StaleGrace)
		}
		for j, b := range s.Bypass {
			if !strings.HasPrefix(b, "/") && !strings.HasPrefix(b, "*") {
				bad(fmt.Sprintf("%s.bypass[%d]", at, j), "%q matches nothing: a path pattern begins with / or *", b)
			}
		}
		oneOf(bad, at+".catalog.mode", s.Catalog.Mode, "off", "observe", "enforce")
		if s.Catalog.Mode != "off" && s.Catalog.File == "" && s.Catalog.URL == "" {
			bad(at+".catalog", "mode %s needs a file or a url to read the catalog from", s.Catalog.Mode)
		}
		if s.Catalog.File != "" && s.Catalog.URL != "" {
			bad(at+".catalog", "has a file and a url: want one of them")
		}
	}
	oneOf(bad, "log.format", c.Log.Format, "text", "json")
	oneOf(bad, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	if s := c.Log.Access.Sample; !(s >= 0 && s <= 1) {
		bad("log.access.sample", "%s is not a share: want 0%% to 100%%", percent(s))
	}
	if e := c.Tracing.Endpoint; e != "" {
		if u, err := url.Parse(e); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			bad("tracing.endpoint", "%q is not a collector's URL: want such as http://127.0.0.1:4318", e)
		}
	}
	if s := c.Tracing.Sample; !(s >= 0 && s <= 1) {
		bad("tracing.sample", "%s is not a share: want 0%% to 100%%", percent(s))
	}
	if c.Drain < 0 {
		bad("drain", "%v is negative", c.Drain)
	}
	return ps
}

func rate(bad func(string, string, ...any), path string, r float64) {
	if !(r >= 1e-6 && r <= 0.5) {
		bad(path, "%s is not a usable rate: want 0.0001%% to 50%%", percent(r))
	}
}

func oneOf(bad func(string, string, ...any), path, v string, want ...string) {
	for _, w := range want {
		if v == w {
			return
		}
	}
	bad(path, "%q: want %s", v, strings.Join(want[:len(want)-1], ", ")+" or "+want[len(want)-1])
}

func percent(f float64) string { return fmt.Sprintf("%.4g%%", f*100) }

// isLoopback reports whether a host:port can only be reached from this machine.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// matchPath reports whether the pattern, in which "*" stands for any run of
// bytes, matches the whole path.
func matchPath(pattern, p string) bool {
	for {
		star := strings.IndexByte(pattern, '*')
		if star < 0 {
			return pattern == p
		}
		if !strings.HasPrefix(p, pattern[:star]) {
			return false
		}
		p, pattern = p[star:], pattern[star+1:]
		if pattern == "" {
			return true
		}
		next := pattern
		if i := strings.IndexByte(pattern, '*'); i >= 0 {
			next = pattern[:i]
		} else {
			// The last literal must end the path.
			return strings.HasSuffix(p, pattern)
		}
		i := strings.Index(p, next)
		if i < 0 {
			return false
		}
		p = p[i:]
	}
}
