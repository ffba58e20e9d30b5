package loadtest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

// maxNodes is the largest fleet: more do not fit on one machine.
const maxNodes = 64

// adminPortOffset is between the client port of a node and its admin port,
// when the ports are fixed. It leaves room for maxNodes clients.
const adminPortOffset = 100

// readyTimeout bounds the start of a whole fleet, on a machine that is busy.
const readyTimeout = time.Minute

// FleetConfig is what the nodes of a [Fleet] are started with.
type FleetConfig struct {
	Binary string // edged
	Nodes  int    // 1 to 64
	Origin string // URL that every node's only site has as its origin

	// BasePort is the client port of the first node; the others follow, and the
	// admin addresses are 100 above. Gossip and peer ports are always free ones.
	// 0: free ports everywhere.
	BasePort int

	Memory     Bytes // of each node's cache; 0: the node's default
	FilterKeys int   // planned keys of each node; 0: the node's default
	FiltersOff bool  // every local miss asks every peer
	RingOnly   bool  // without filters, the owner of the key on the ring is asked, who asks the origin

	net     *bridge // each node is in a namespace of its own; nil: loopback
	keyFile string  // of the cluster's key, where its addresses are no loopback
}

// PortError says that a port is in use by someone else.
type PortError struct {
	Port int
	For  string // whose address it should be
	Err  error
}

func (e *PortError) Error() string {
	return fmt.Sprintf("port %d for %s cannot be used: %v", e.Port, e.For, e.Err)
}

func (e *PortError) Unwrap() error { return e.Err }

// Fleet is a number of edged processes on loopback, with a directory for their
// configuration files. Close ends all of them.
type Fleet struct {
	Members []*Member

	cfg   FleetConfig
	dir   string
	close sync.Once
	mu    sync.Mutex // of Members' elements, once the fleet is started
	err   error
}

// StartFleet starts the nodes and waits until each is ready; the cluster may
// still be forming, see [Fleet.WaitFormed]. On an error, and a [PortError] is
// one, nothing is left running.
func StartFleet(ctx context.Context, cfg FleetConfig) (_ *Fleet, err error) {
	if cfg.Nodes < 1 || cfg.Nodes > maxNodes {
		return nil, fmt.Errorf("start %d nodes: want 1 to %d", cfg.Nodes, maxNodes)
	}
	if err := checkPorts(cfg); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "edged-fleet-")
	if err != nil {
		return nil, fmt.Errorf("start a fleet: %w", err)
	}
	f := &Fleet{cfg: cfg, dir: dir}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if cfg.net != nil {
		if f.cfg.keyFile, err = clusterKey(dir); err != nil {
			return nil, err
		}
		cfg = f.cfg
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	var join []string
	for i := range cfg.Nodes {
		m, err := f.start(i, nodeConfig(cfg, i, join))
		if err != nil {
			return nil, err
		}
		f.Members = append(f.Members, m)
		if i > 0 {
			continue
		}
		// The others join the first one, so its address must be known.
		if err := m.waitReady(ctx.Done()); err != nil {
			return nil, f.startError(ctx, err)
		}
		join = []string{m.Gossip}
	}
	for _, m := range f.Members[1:] {
		if err := m.waitReady(ctx.Done()); err != nil {
			return nil, f.startError(ctx, err)
		}
	}
	return f, nil
}

// startError says that the start was interrupted when that is why it failed.
func (f *Fleet) startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// start writes the configuration of a node and starts its process.
func (f *Fleet) start(i int, n nodeFile) (*Member, error) {
	data, err := yaml.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("write configuration of node %s: %w", n.Name, err)
	}
	file := filepath.Join(f.dir, n.Name+".yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of node %s: %w", n.Name, err)
	}
	return startMember(n.Name, f.cfg.Binary, []string{"run", "-c", file}, f.cfg.net, i)
}

// member returns the present process of node i.
func (f *Fleet) member(i int) *Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Members[i]
}

// restart starts node i again, whose process is gone, at the addresses that it
// had, and waits until it is ready.
func (f *Fleet) restart(ctx context.Context, i int) error {
	old := f.member(i)
	var join []string
	for j := range f.Members {
		if m := f.member(j); j != i {
			join = append(join, m.Gossip)
		}
	}
	n := nodeConfig(f.cfg, i, join)
	n.Listen.Address, n.Admin.Address = old.Client, old.Admin
	n.Cluster.Gossip, n.Cluster.Peer = old.Gossip, old.Peer
	m, err := f.start(i, n)
	if err != nil {
		return err
	}
	m.Client, m.Peer, m.Gossip, m.Admin = old.Client, old.Peer, old.Gossip, old.Admin
	f.mu.Lock()
	f.Members[i] = m
	f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	if err := m.waitReady(ctx.Done()); err != nil {
		return f.startError(ctx, err)
	}
	return nil
}

// nodeName returns edge-a to edge-z, then edge-27 and on.
func nodeName(i int) string {
	if i < 26 {
		return "edge-" + string(rune('a'+i))
	}
	return "edge-" + strconv.Itoa(i+1)
}

// The configuration file of a node, as far as a fleet sets it.
type (
	nodeFile struct {
		Name    string      `yaml:"name"`
		Listen  addressFile `yaml:"listen"`
		Admin   addressFile `yaml:"admin"`
		Cluster clusterFile `yaml:"cluster"`
		Cache   *cacheFile  `yaml:"cache,omitempty"`
		Filter  *filterFile `yaml:"filter,omitempty"`
		Sites   []siteFile  `yaml:"sites"`
	}
	addressFile struct {
		Address string `yaml:"address"`
	}
	clusterFile struct {
		Gossip string   `yaml:"gossip"`
		Peer   string   `yaml:"peer"`
		Join   []string `yaml:"join"`

		KeyFile string `yaml:"key_file,omitempty"`
	}
	cacheFile struct {
		Memory string `yaml:"memory"`
	}
	filterFile struct {
		Enabled *bool  `yaml:"enabled,omitempty"`
		Ask     string `yaml:"ask,omitempty"`
		Keys    int    `yaml:"keys,omitempty"`
	}
	siteFile struct {
		Name   string     `yaml:"name"`
		Origin originFile `yaml:"origin"`
		Shield string     `yaml:"shield,omitempty"`
	}
	originFile struct {
		URLs []string `yaml:"urls"`
	}
)

func nodeConfig(cfg FleetConfig, i int, join []string) nodeFile {
	client, admin := cfg.ports(i)
	n := nodeFile{
		Name:    nodeName(i),
		Listen:  addressFile{cfg.address(i, client)},
		Admin:   addressFile{cfg.address(i, admin)},
		Cluster: clusterFile{Gossip: cfg.address(i, 0), Peer: cfg.address(i, 0), Join: append([]string{}, join...), KeyFile: cfg.keyFile},
		Sites:   []siteFile{{Name: "sample", Origin: originFile{URLs: []string{cfg.Origin}}}},
	}
	if cfg.Memory > 0 {
		n.Cache = &cacheFile{Memory: cfg.Memory.String()}
	}
	if cfg.FilterKeys > 0 || cfg.FiltersOff || cfg.RingOnly {
		n.Filter = &filterFile{Keys: cfg.FilterKeys}
		if cfg.FiltersOff || cfg.RingOnly {
			n.Filter.Enabled = new(bool)
		}
		if cfg.RingOnly {
			n.Filter.Ask, n.Sites[0].Shield = "none", "ring"
		}
	}
	return n
}

// ports returns the client and admin port of node i, 0 for free ones.
func (cfg FleetConfig) ports(i int) (client, admin int) {
	if cfg.BasePort == 0 {
		return 0, 0
	}
	return cfg.BasePort + i, cfg.BasePort + adminPortOffset + i
}

// address is where node i listens, at a port.
func (cfg FleetConfig) address(i, port int) string {
	if cfg.net != nil {
		return cfg.net.address(i, port)
	}
	return loopback(port)
}

// clusterKey makes a key for a cluster that others could reach, and returns the
// file that it is in.
func clusterKey(dir string) (string, error) {
	key := make([]byte, 32)
	rand.Read(key)
	file := filepath.Join(dir, "cluster.key")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("start a fleet: %w", err)
	}
	return file, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// checkPorts looks whether the fixed ports are free, so that the complaint
// comes before anything is started.
func checkPorts(cfg FleetConfig) error {
	if cfg.BasePort == 0 {
		return nil
	}
	if last := cfg.BasePort + adminPortOffset + cfg.Nodes - 1; cfg.BasePort < 0 || last > 65535 {
		return fmt.Errorf("base port %d: want 1 to %d for %d nodes", cfg.BasePort, 65535-adminPortOffset-cfg.Nodes+1, cfg.Nodes)
	}
	var errs []error
	for i := range cfg.Nodes {
		client, admin := cfg.ports(i)
		for _, p := range []struct {
			port int
			what string
		}{{client, "clients"}, {admin, "the admin API"}} {
			ln, err := net.Listen("tcp", loopback(p.port))
			if err != nil {
				errs = append(errs, &PortError{p.port, p.what + " of node " + nodeName(i), err})
				continue
			}
			ln.Close()
		}
	}
	return errors.Join(errs...)
}

// WaitFormed waits until every node sees all others alive.
func (f *Fleet) WaitFormed(ctx context.Context) error {
	admins := f.admins()
	defer closeAll(admins)
	if err := waitUntil(ctx, admins, 0, membersAre(len(f.Members))); err != nil {
		return fmt.Errorf("the cluster did not form: %w", err)
	}
	return nil
}

// ended waits for a process to be gone, at most so long, and returns the first
// that is; nil: all live.
func (f *Fleet) ended(within time.Duration) *Member {
	timer := time.NewTimer(within)
	defer timer.Stop()
	first := make(chan *Member, len(f.Members))
	stop := make(chan struct{})
	defer close(stop)
	for _, m := range f.Members {
		go func() {
			select {
			case <-m.Done():
				first <- m
			case <-stop:
			}
		}()
	}
	select {
	case m := <-first:
		return m
	case <-timer.C:
		return nil
	}
}

func (f *Fleet) admins() []*admin {
	var as []*admin
	for _, m := range f.Members {
		as = append(as, newAdmin(m.AdminURL(), ""))
	}
	return as
}

func closeAll(admins []*admin) {
	for _, a := range admins {
		a.close()
	}
}

// Close stops all nodes at once, waits until every process is gone, and
// removes their files. Nodes that died before are no error; one that had to
// be killed is. It may be called twice.
func (f *Fleet) Close() error {
	f.close.Do(func() {
		errs := make([]error, len(f.Members))
		var wg sync.WaitGroup
		for i, m := range f.Members {
			wg.Go(func() { errs[i] = m.Stop() })
		}
		wg.Wait()
		f.err = errors.Join(append(errs, os.RemoveAll(f.dir))...)
	})
	return f.err
}
