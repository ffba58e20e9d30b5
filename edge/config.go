package edge

import (
	"log/slog"
	"net"
	"strings"
	"time"
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
