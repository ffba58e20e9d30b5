package loadtest

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A partition wants nodes that each have a network of their own. On loopback
// nobody could tell whose packets are to be dropped: a connection to a peer
// begins at any port of the same address.
//
// So a run with a partition takes place in network namespaces without names.
// The load test itself goes into a fresh one first (see [EnterNetwork]), and
// each node into another, which a pair of veth connects with a bridge:
//
//	load test, origin           edge-a          edge-b
//	br0 10.77.0.254 ─┬─ p0 ──── eth0 10.77.0.1
//	                 └─ p1 ─────────────────── eth0 10.77.0.2
//
// A partition drops what the bridge would forward from or to a port; what the
// bridge itself sends and receives, the requests of clients and those to the
// origin, goes on. The machine's own network is never touched, and the kernel
// removes all of it with the last process inside, however that ends.
const (
	bridgeName    = "br0"
	bridgeAddress = "10.77.0.254"
	nodeNetwork   = "10.77.0."
)

// bridge is the network of a fleet, of which each node is in a namespace of
// its own. Its methods are safe for concurrent use.
type bridge struct {
	mu    sync.Mutex
	ports map[int]string // of each node, its end at the bridge
	made  int
}

// address returns where node i listens.
func (*bridge) address(i, port int) string {
	return net.JoinHostPort(nodeNetwork+strconv.Itoa(i+1), strconv.Itoa(port))
}

// newBridge makes the bridge. It refuses to touch a network that has anything
// but loopback: then the process is not in a namespace of its own.
func newBridge() (*bridge, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network of the nodes: %w", err)
	}
	for _, i := range all {
		// Tunnels that the kernel puts into every namespace are down.
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return nil, fmt.Errorf("network of the nodes: %s is here, so this is not a network namespace of its own", i.Name)
		}
	}
	if err := ip("link set lo up", "link add "+bridgeName+" type bridge", "addr add "+bridgeAddress+"/24 dev "+bridgeName, "link set "+bridgeName+" up"); err != nil {
		return nil, err
	}
	n := &bridge{ports: map[int]string{}}
	if err := nft(`table bridge edged {
	set cut { type ifname; }
	chain forward {
		type filter hook forward priority 0; policy accept;
		iifname @cut drop
		oifname @cut drop
	}
}`); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *bridge) close() error {
	return errors.Join(ip("link del "+bridgeName), nft("table bridge edged\ndelete table bridge edged"))
}

// attach connects node i, which is in the namespace of thread tid, in place of
// what was connected as node i before. The rest of it is done inside.
func (n *bridge) attach(i, tid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var lines []string
	if old := n.ports[i]; old != "" {
		// The end in the namespace of a process that is gone may be gone as well.
		if _, err := net.InterfaceByName(old); err == nil {
			lines = append(lines, "link del "+old)
		}
	}
	port := fmt.Sprintf("p%d-%d", i, n.made)
	n.made++
	lines = append(lines, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, tid), fmt.Sprintf("link set %s master %s up", port, bridgeName))
	n.ports[i] = port
	return ip(lines...)
}

// insideOf are the commands that finish the network of node i, in its namespace.
// Its hardware address stays the same over a restart, so that nobody sends to the
// one before.
func insideOf(i int) []string {
	return []string{
		"link set lo up",
		fmt.Sprintf("link set eth0 address 02:77:00:00:00:%02x", i+1),
		fmt.Sprintf("addr add %s%d/24 dev eth0", nodeNetwork, i+1),
		"link set eth0 up",
	}
}

// cut drops all packets between node i and the other nodes from now on, or no
// longer.
func (n *bridge) cut(i int, on bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	verb := map[bool]string{true: "add", false: "delete"}[on]
	return nft(fmt.Sprintf("%s element bridge edged cut { %q }", verb, n.ports[i]))
}

// ip gives lines to iproute2's command, in the calling thread's namespace.
func ip(lines ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	return said(cmd)
}

// nft gives rules to the packet filter, in the calling thread's namespace.
func nft(rules string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules + "\n")
	return said(cmd)
}

// said runs a command; the error has what it wrote.
func said(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.300s", cmd.Args[0], err, out)
	}
	return nil
}

// partition is the number of the first fault that cuts nodes off, or -1.
func (s Scenario) partition() int {
	return slices.IndexFunc(s.Faults, func(f Fault) bool { return f.Do == FaultPartition })
}

// errNoNetwork teaches what a partition needs.
func errNoNetwork(s Scenario, why error) error {
	i := s.partition()
	return fmt.Errorf("%w: faults[%d]: %v needs network namespaces: want Linux, root, and the programs ip and nft (Debian's iproute2 and nftables), or a scenario without it: %w",
		ErrUsage, i, s.Faults[i], why)
}

// EnterNetwork is for a program before it calls [Run]. When the scenario has a
// partition it replaces the process by argv in a network namespace of its own,
// and does not return; there Options.OwnNetwork has to be set. It returns nil when
// there is nothing to do, also for options that Run will refuse, and an error
// that wraps [ErrUsage] where the machine does not allow it.
func EnterNetwork(o Options, argv, environ []string) error {
	s, err := scenarioOf(o)
	if err != nil || s.partition() < 0 || (&runner{opts: o}).checkOptions(s, true) != nil {
		return nil
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return errNoNetwork(s, err)
		}
	}
	return errNoNetwork(s, enterNetwork(argv, environ))
}

// started runs cmd's process, when n is not nil as node i of the network.
func (n *bridge) started(cmd *exec.Cmd, i int, ended func(error)) error {
	if n == nil {
		return spawn(cmd, nil, ended)
	}
	return spawn(cmd, func() error { return n.join(i) }, ended)
}
