package edge

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"edged/gossip"
	"edged/shield"
)

// With certificates, members are asked by name: the host of a request's URL is
// the member's name, which is what its certificate is checked for and what
// connections are kept under, and its address is looked up when one is dialled.
// (The other design, to dial the address and to remember who is to be there,
// would let a connection to one member be used for the next one at its address.)

// buildPeerClient makes the client of requests to other members.
func (n *Node) buildPeerClient() error {
	cfg := shield.TransportConfig{
		Connect: time.Second, FirstByte: 30 * time.Second, Idle: 30 * time.Second, MaxIdlePerHost: peerConcurrency,
	}
	if t := n.cfg.Cluster.TLS; t != nil {
		id, err := gossip.NewIdentity(n.cfg.Name, t.Cert, t.Key, t.CA, n.log.With("part", "gossip"))
		if err != nil {
			return Problem{"cluster.tls", err.Error()}
		}
		n.identity = id
		cfg.TLS = id.ClientConfig()
		cfg.DialContext = n.dialMember
	}
	n.peerClient = shield.NewTransport(cfg)
	return nil
}

// memberURL is the scheme and host under which a member is asked.
func (n *Node) memberURL(p *peer) (scheme, host string) {
	if n.identity == nil {
		return "http", p.addr
	}
	_, port, _ := net.SplitHostPort(p.addr)
	return "https", net.JoinHostPort(p.name, port)
}

// dialMember connects to the member whose name stands for a host.
func (n *Node) dialMember(ctx context.Context, network, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p := n.topo.Load().peers[name]
	if p == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errNotMember}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, p.addr)
}

// showTLS gives a request of a member the state of its connection. The server
// itself does not see that it speaks TLS, for the framing is between them.
func showTLS(r *http.Request) {
	c := connOf(r)
	if c == nil {
		return
	}
	if t, ok := c.Conn.(*tls.Conn); ok {
		s := t.ConnectionState()
		r.TLS = &s
	}
}
