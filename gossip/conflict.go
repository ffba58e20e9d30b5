package gossip

import (
	"fmt"
	"net"
	"time"
)

// ConflictError says that another live member has this member's name and was
// there first.
type ConflictError struct {
	Name  string
	Addr  string // the other's membership address
	Local string // ours
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("name: another live member at %s is named %q too (this one is at %s): give each node a name of its own", e.Addr, e.Name, e.Local)
}

// conflict is two nodes with one name, as membership sees it: news of a member
// that it holds for alive came from another address. Membership ignores them.
type conflict struct {
	name        string
	known, news string // gossip addresses
}

// conflictEffect is a conflict that is to be told.
type conflictEffect conflict

func (conflictEffect) isEffect() {}

// other is the address that is not ours.
func (c conflict) other(own string) string {
	if c.known == own {
		return c.news
	}
	return c.known
}

// tellConflict logs a conflict, not too often.
func (g *Gossip) tellConflict(c conflict) {
	skipped, ok := g.lines.allow("name " + c.name)
	switch {
	case !ok:
	case c.name == g.cfg.Name:
		g.log.Error("another node has this node's name: give each node a name of its own",
			"name", c.name, "remote", c.other(g.addr), "local", g.addr, "skipped", skipped)
	default:
		g.log.Error("two nodes have one name, the second is ignored while the first lives: give each node a name of its own",
			"name", c.name, "first", c.known, "second", c.news, "skipped", skipped)
	}
}

// checkName is called when our own try to join has met another node with our
// name, and we were never part of the cluster. If the other answers, this node
// is the newcomer and gives up. If it does not, it is our predecessor at another
// address, which the others have not found dead yet.
func (g *Gossip) checkName(c conflict) {
	other := c.other(g.addr)
	addr, err := net.ResolveUDPAddr("udp", other)
	if err != nil {
		return
	}
	for range 3 {
		if _, err = g.list.Ping(g.cfg.Name, addr); err == nil {
			break
		}
		if g.ctx.Err() != nil {
			return
		}
	}
	if err != nil {
		if skipped, ok := g.lines.allow("predecessor"); ok {
			g.log.Warn("the cluster knows this node's name at another address, which does not answer: joining as soon as the others find it dead",
				"name", g.cfg.Name, "remote", other, "skipped", skipped)
		}
		return
	}
	// The other should hear of us too, so that its log names this address.
	_, _ = g.list.Join([]string{other})
	g.fail(&ConflictError{Name: g.cfg.Name, Addr: other, Local: g.addr})
}

// fail reports a conflict that this node cannot stay with: by New if it still
// runs, else by OnConflict, once.
func (g *Gossip) fail(e *ConflictError) {
	g.mu.Lock()
	first := g.fatal == nil
	if first {
		g.fatal = e
	}
	tell := first && g.started && g.cfg.OnConflict != nil
	g.mu.Unlock()
	if first {
		g.log.Error("this node cannot join the cluster", "error", e)
	}
	if tell {
		// Not one of our own goroutines: the callee may well call Close.
		go g.cfg.OnConflict(e)
	}
}

// unsureInterval is how often a node whose name is still a predecessor's
// tries to join.
const unsureInterval = 2 * time.Second
