package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/peerfilter"
)

// maxPartitions is how many streams a member may have; their keys, sizes and
// epochs have to fit into the 512 bytes of a member's metadata.
const maxPartitions = 16

// Partition is one stream of filter records. Members with the same partition
// name compare and replicate that partition's filters.
type Partition struct {
	Name string // 1 to 63 bytes, the same on all members

	// Params is the size of the node's own filter. A peer's filter may have
	// another size.
	Params peerfilter.Params
}

// Config is what one member needs to know. [New] copies it, fills the defaults
// and refuses what is wrong, all complaints at once, each naming the key of the
// configuration file.
type Config struct {
	Name string // the member's identity, unique in the cluster
	Role string // free text of up to 16 bytes, told to the others

	// Bind is the host:port for membership, UDP and TCP alike. Port 0 picks a
	// free one.
	Bind string

	// Advertise is the IP address that others should use for Bind's port when
	// it differs from the bound one. Empty: the bound one, or for an
	// unspecified one an address of this machine.
	Advertise string

	// PeerAddr is the host:port at which others reach [Gossip.Handler]. With
	// an unspecified host they use the address that membership uses.
	PeerAddr string

	// Join lists host:port of any members. Names are looked up again at every
	// try. The member itself may be among them.
	Join []string

	// Known are host:port of members that are tried once, at the start, besides
	// those of Join: for a process that takes another one's place.
	Known []string

	// Keys are the cluster's keys, 32 bytes each: the first one encrypts, all
	// decrypt. None is accepted only where every address is loopback.
	Keys [][]byte

	// TLS is this member's certificate, with which it makes requests of the
	// others and takes none but over TLS; whoever serves [Gossip.Handler] has
	// put [Identity.Listener] under it. nil: requests are in clear, signed by
	// the cluster's key.
	TLS *Identity

	// Cluster is told apart from other clusters by the label of every packet
	// and stream. Empty: "edged".
	Cluster string

	// Seed is the secret seed of the filters' hash. Members with another seed
	// are members, but their filters are never looked up.
	Seed peerfilter.Seed

	Partitions []Partition // at most 16
	Logger     *slog.Logger

	// Boot identifies this process among all that ever bore the name. Zero
	// draws a random one.
	Boot uint64

	// OnMembers is called with the whole new list after each change, this
	// member included, sorted by name. Calls never overlap, come from one
	// goroutine of gossip's own and are not made under a lock; changes that
	// happen during a call are reported together after it.
	OnMembers func([]Member)

	// StateDir is where the log of changes is kept, so that a restart forgets
	// none. Empty: in memory alone; the other members' logs are then all there
	// is of the changes that this one took.
	StateDir string

	// OnChange applies a change, this member's own ones too, and must have done
	// so when it returns. Calls never overlap. It must not call Spread or
	// Carried.
	OnChange func(Change)

	// OnLost is called like OnChange when changes were missed that nobody can
	// tell any more: whatever is stored may be what one of them was about.
	OnLost func()

	// OnSync is called like OnChange when the state of the log changes. It
	// begins as syncing with other members in Join, else as synced.
	OnSync func(SyncState)

	// OnConflict is called once, from a goroutine of gossip's own, when
	// another live member has this member's name and was there first. The
	// caller should stop this node. [New] itself returns the error when it
	// learns of it in time.
	OnConflict func(error)

	// FlushInterval is how often changes of the filters are sent: shorter
	// makes peers see a stored response sooner, longer costs fewer messages.
	// Zero: 250 ms; never below 50 ms, and at least 8 ms for each member, so
	// that no cluster makes a member send more than 125 messages a second.
	FlushInterval time.Duration

	// RateLimit bounds the bytes a second of filter records sent by this
	// member to all others together; the flush interval stretches to keep it.
	// Zero: 2 MB/s.
	RateLimit int

	// ProbeInterval and ProbeTimeout drive failure detection; see the package
	// comment for what they lead to. Zero: 500 ms and 300 ms.
	ProbeInterval time.Duration
	ProbeTimeout  time.Duration

	// RejoinInterval is how often a seed or a failed member that is not alive
	// is tried again, +-50 %. Zero: 15 s. A member that is alone tries all
	// its seeds after one second first, and less and less often up to this.
	RejoinInterval time.Duration

	// transport, dial and lookup stand in for the network in tests.
	transport memberlist.Transport
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	lookup    func(ctx context.Context, host string) ([]string, error)
	noRejoin  bool
}

// The floor and defaults of the timers, gossip.md's section on timers: they
// were simulated and measured with 4 to 256 members.
const (
	defaultFlush     = 250 * time.Millisecond
	minFlush         = 50 * time.Millisecond
	flushPerMember   = 8 * time.Millisecond
	defaultRateLimit = 2_000_000
	defaultProbe     = 500 * time.Millisecond
	defaultProbeWait = 300 * time.Millisecond
	defaultRejoin    = 15 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for c.Boot == 0 {
		c.Boot = rand.Uint64()
	}
	def(&c.FlushInterval, defaultFlush)
	c.FlushInterval = max(c.FlushInterval, minFlush)
	def(&c.RateLimit, defaultRateLimit)
	def(&c.ProbeInterval, defaultProbe)
	def(&c.ProbeTimeout, defaultProbeWait)
	def(&c.RejoinInterval, defaultRejoin)
	if c.lookup == nil {
		c.lookup = net.DefaultResolver.LookupHost
	}
	c.Join = append([]string(nil), c.Join...)
	c.Known = append([]string(nil), c.Known...)
	c.Partitions = append([]Partition(nil), c.Partitions...)
	keys := c.Keys
	c.Keys = nil
	for _, k := range keys {
		c.Keys = append(c.Keys, append([]byte(nil), k...))
	}
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// label is what every packet and stream begins with, in clear.
func (c Config) label() string {
	if c.Cluster == "" {
		return "edged"
	}
	return "edged/" + c.Cluster
}

// check returns everything that is wrong with a configuration whose defaults
// are filled, joined.
func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.Name == "" || len(c.Name) > 63 {
		bad("name: %q is not a member's name: want 1 to 63 bytes", c.Name)
	}
	if strings.ContainsAny(c.Name, "/\n\r\t ") {
		bad("name: %q has a slash or a space", c.Name)
	}
	if len(c.Role) > maxRoleLen {
		bad("cluster.role: %q is longer than %d bytes", c.Role, maxRoleLen)
	}
	if len(c.label()) > memberlist.LabelMaxSize {
		bad("cluster: the name %q is longer than %d bytes", c.Cluster, memberlist.LabelMaxSize-len("edged/"))
	}
	if c.Advertise != "" && net.ParseIP(c.Advertise) == nil {
		bad("cluster.advertise: %q is not an IP address", c.Advertise)
	}
	for _, a := range []struct{ key, addr string }{{"cluster.gossip", c.Bind}, {"cluster.peer", c.PeerAddr}} {
		host, _, err := net.SplitHostPort(a.addr)
		switch {
		case err != nil:
			bad("%s: %q is not an address: want host:port", a.key, a.addr)
		case len(c.Keys) == 0 && !loopback(host):
			bad("%s: %q can be reached from other machines, so cluster.key_file is required", a.key, a.addr)
		}
	}
	if len(c.PeerAddr) > maxPeerAddrLen {
		bad("cluster.peer: %q is longer than %d bytes", c.PeerAddr, maxPeerAddrLen)
	}
	if a := net.ParseIP(c.Advertise); len(c.Keys) == 0 && a != nil && !a.IsLoopback() {
		bad("cluster.advertise: %q can be reached from other machines, so cluster.key_file is required", c.Advertise)
	}
	for i, k := range c.Keys {
		if len(k) != 32 {
			bad("cluster.key_file: key %d has %d bytes: want 32", i+1, len(k))
		}
	}
	for i, j := range c.Join {
		if _, port, err := net.SplitHostPort(j); err != nil || port == "" {
			bad("cluster.join[%d]: %q is not a member's address: want host:port", i, j)
		}
	}
	if len(c.Partitions) > maxPartitions {
		bad("cache.partitions: %d partitions: want %d at most", len(c.Partitions), maxPartitions)
	}
	seen := map[uint64]string{}
	for i, p := range c.Partitions {
		if p.Name == "" || len(p.Name) > 63 {
			bad("cache.partitions[%d].name: %q: want 1 to 63 bytes", i, p.Name)
		}
		if other, dup := seen[nameKey(p.Name)]; dup {
			bad("cache.partitions[%d].name: %q and %q cannot be told apart", i, p.Name, other)
		}
		seen[nameKey(p.Name)] = p.Name
	}
	return errors.Join(errs...)
}

// loopback reports whether host can be reached from this machine only.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
