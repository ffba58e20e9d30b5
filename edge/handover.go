package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"edged/edge/admin"
	"edged/gossip"
)

// A hand-over lets another process of this machine, a new version for
// instance, take a node's place without a refused connection. The listening
// sockets are passed on, so that one queue of connections serves both:
//
//  1. The other process gets [Node.ListenerFiles] and builds its node, with
//     them in [Config.Inherited]. If that fails, nothing has happened.
//  2. It calls [Config.BeforeJoin], upon which this node does [Node.Release]:
//     it leaves the cluster and gives the gossip address free. A member's identity
//     is its name, so the two can't be members at once. This node serves on alone.
//  3. The other one joins under the name, as a new boot, and serves.
//  4. This node does [Node.HandOver]: it accepts no more, and finishes what it has.
//
// The other design, SO_REUSEPORT, has two queues: connections that wait in the
// old one's are reset when it closes. What is stored stays with the old process:
// the new one begins empty, and fills from its peers and the origin.

// ListenerFiles returns duplicates of the listening sockets, which the caller
// closes.
func (n *Node) ListenerFiles() (client, peer, adm *os.File, err error) {
	var files [3]*os.File
	for i, ln := range n.listeners {
		t, ok := ln.(*net.TCPListener)
		if !ok {
			err = fmt.Errorf("the listener %s can't be passed on", ln.Addr())
		} else {
			files[i], err = duplicate(t)
		}
		if err != nil {
			for _, f := range files[:i] {
				f.Close()
			}
			return nil, nil, nil, err
		}
	}
	return files[lnClient], files[lnPeer], files[lnAdmin], nil
}

// maxKnown is how many members a process is told of by the one whose place it
// takes: one suffices, and some may just be going.
const maxKnown = 4

// Known returns gossip addresses of some other members that are alive.
func (n *Node) Known() (addrs []string) {
	for _, m := range n.topo.Load().members {
		if m.Name != n.cfg.Name && m.State == gossip.StateAlive && len(addrs) < maxKnown {
			addrs = append(addrs, m.GossipAddr)
		}
	}
	return addrs
}

// duplicate returns a second descriptor of the listening socket, which stays
// non-blocking when it is passed on. (One of TCPListener.File is made blocking
// then, and with it the first one, as the two are one socket: an Accept that begins
// in that moment waits in the kernel, and Close would wait for it.)
func duplicate(ln *net.TCPListener) (*os.File, error) {
	conn, err := ln.SyscallConn()
	if err != nil {
		return nil, err
	}
	second := -1
	failed := conn.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if second, err = syscall.Dup(int(fd)); err == nil {
			syscall.CloseOnExec(second)
		}
	})
	if err := errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("duplicate the listener %s: %w", ln.Addr(), err)
	}
	return os.NewFile(uintptr(second), ln.Addr().String()), nil
}

// Release leaves the cluster and frees the gossip address. The node goes on
// serving, alone, and answers 503 to what needs the others, such as a purge.
func (n *Node) Release() error {
	n.released.Store(true)
	n.gossip.Draining()
	if err := n.gossip.Leave(2 * time.Second); err != nil {
		// They take it for failed until the other process joins, a moment later.
		n.log.Info("the cluster was not told of the hand-over", "err", err)
	}
	return n.gossip.Close()
}

// HandOver ends the node, once another process serves on its listeners: it
// accepts no more, tells those who are connected with their next answer that
// their connection ends, finishes the requests in flight until ctx ends, and
// closes everything else. It returns ctx's error when requests had to be cut.
func (n *Node) HandOver(ctx context.Context) error {
	n.draining.Store(true)
	n.handedOver.Store(true)
	for i, g := range n.gates {
		// What was accepted already is served.
		if err := g.Close(); err != nil {
			n.log.Warn("close a listener that was handed over", "address", n.listeners[i].Addr(), "err", err)
		}
	}
	n.listeners[lnAdmin].Close()
	select {
	case <-time.After(lameDuck):
	case <-ctx.Done():
	case <-n.done:
	}
	time.AfterFunc(newGrace, func() {
		for _, g := range n.gates {
			g.closeFresh()
		}
	})
	var errs []error
	for _, i := range []int{lnClient, lnPeer} {
		if err := n.servers[i].Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("requests were cut: %w", err))
			break
		}
	}
	n.Close()
	return errors.Join(errs...)
}

// errReleased is the answer to what needs the cluster, while another process
// takes this one's place in it.
func errReleased() error {
	return &admin.Error{Status: http.StatusServiceUnavailable, Text: "this process hands over to another one: ask again in a moment"}
}
