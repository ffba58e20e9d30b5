package edge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Shutdown stops the node in good order: readiness fails, the node leaves the
// cluster, stops accepting, and finishes the requests in flight until ctx
// ends; then it closes everything. It returns ctx's error when requests had to
// be cut.
func (n *Node) Shutdown(ctx context.Context) error {
	n.draining.Store(true)
	lame := time.After(lameDuck)
	if n.gossip != nil {
		n.gossip.Draining()
		switch err := n.gossip.Leave(leaveTime(ctx)); {
		case err == nil:
		case len(n.topo.Load().peers) == 0:
			// All members stop at once: the last ones speak to nobody.
			n.log.Info("no other member was there to be told that this node leaves", "err", err)
		default:
			n.log.Warn("the cluster was not told that this node leaves", "err", err)
		}
	}
	// Clients on open connections learn by their next answer that this node
	// goes; who asks nothing meanwhile loses nothing.
	select {
	case <-lame:
	case <-ctx.Done():
	case <-n.done:
	}
	time.AfterFunc(newGrace, func() {
		for _, g := range n.gates {
			if g != nil {
				g.closeFresh()
			}
		}
	})
	var errs []error
	for _, i := range []int{lnClient, lnPeer} {
		if s := n.servers[i]; s != nil {
			if err := s.Shutdown(ctx); err != nil {
				errs = append(errs, fmt.Errorf("requests were cut: %w", err))
				break
			}
		}
	}
	n.Close()
	return errors.Join(errs...)
}

// Close stops the node at once. It may be called more than once.
func (n *Node) Close() error {
	n.stop.Do(func() {
		n.draining.Store(true)
		for i, s := range n.servers {
			if s != nil {
				s.Close()
			} else if n.listeners[i] != nil {
				n.listeners[i].Close()
			}
		}
		n.cancel()
		if n.gossip != nil {
			n.gossip.Close()
		}
		if t := n.sites.Load(); t != nil {
			for _, s := range t.all {
				s.retire()
			}
		}
		if n.peerClient != nil {
			n.peerClient.Close()
		}
		n.background.Wait()
		n.tracer.Close()
		close(n.done)
	})
	<-n.done
	return nil
}

// leaveTime is how long a stopping node tries to tell the cluster: 2 s, and of
// a shorter drain a quarter, for the rest belongs to the requests in flight.
// Who has not heard finds out by itself; who is cut off does not.
func leaveTime(ctx context.Context) time.Duration {
	const most = 2 * time.Second
	if end, ok := ctx.Deadline(); ok {
		return max(min(most, time.Until(end)/4), 0)
	}
	return most
}

// lameDuck is how long a stopping node goes on accepting requests at least,
// each answer saying that the connection ends. Leaving the cluster is part of it.
const lameDuck = time.Second

// newGrace is how long a stopping node waits for the first request of a
// connection that has brought none yet.
const newGrace = 500 * time.Millisecond
