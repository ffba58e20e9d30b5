package gossip

import (
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// maxHeadsLen bounds a member's heads.
const maxHeadsLen = 8 + maxHeads*headLen

// delegate is what memberlist calls. Its callbacks run under locks of the
// library or block its reading of packets, so they do nothing but copy into
// the inbox and hand out what was prepared.
type delegate struct {
	in    *inbox
	log   *inbox                 // messages of the log of changes
	meta  atomic.Pointer[[]byte] // nodeMeta in its wire form
	heads atomic.Pointer[[]byte] // heads in their wire form

	name  string
	taken atomic.Pointer[conflict] // the last one about our own name
}

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
	_ memberlist.AliveDelegate    = (*delegate)(nil)
)

// NodeMeta returns what this member tells about itself. The limit is 512
// bytes and nodeMeta stays below it.
func (d *delegate) NodeMeta(limit int) []byte {
	if m := *d.meta.Load(); len(m) <= limit {
		return m
	}
	return nil
}

// NotifyMsg takes a frame. The library reuses b.
func (d *delegate) NotifyMsg(b []byte) {
	in := d.in
	if isLogMessage(b) {
		in = d.log
	}
	in.putBytes(b, maxFrameLen, func(b []byte) event { return event{message: b} })
}

// GetBroadcasts returns nothing: what is gossiped here is membership itself.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte { return nil }

// LocalState returns everyone's heads.
func (d *delegate) LocalState(join bool) []byte { return *d.heads.Load() }

// MergeRemoteState takes another member's heads.
func (d *delegate) MergeRemoteState(b []byte, join bool) {
	d.in.putBytes(b, maxHeadsLen, func(b []byte) event { return event{heads: b} })
}

// NotifyAlive refuses what is not an edged node, or a later one that this one
// cannot work with.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	_, err := decodeMeta(n.Meta)
	if err != nil {
		d.in.drop(dropMeta)
	}
	return err
}

func (d *delegate) NotifyJoin(n *memberlist.Node)   { d.in.put(event{up: copyNode(n)}) }
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.in.put(event{up: copyNode(n)}) }
func (d *delegate) NotifyLeave(n *memberlist.Node)  { d.in.put(event{down: n.Name}) }

// NotifyConflict is told when news of a live member come from another address.
func (d *delegate) NotifyConflict(known, news *memberlist.Node) {
	c := &conflict{known.Name, known.Address(), news.Address()}
	if c.name == d.name {
		d.taken.Store(c)
	}
	d.in.put(event{conflict: c})
}

// copyNode copies a node that the library goes on changing.
func copyNode(n *memberlist.Node) *memberlist.Node {
	c := *n
	c.Addr = append([]byte(nil), n.Addr...)
	c.Meta = append([]byte(nil), n.Meta...)
	return &c
}
