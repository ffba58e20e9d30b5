package gossip

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// transport is the library's own transport, except that dialling ends when
// the member is closed.
type transport struct {
	*memberlist.NetTransport
	ctx context.Context
}

func (t transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(t.ctx, "tcp", a.Addr)
}
