package gossip

import "time"

// newsWait is how long news of a member may be on their way. Membership passes
// them on twelve times in 0.4 s and its members once more; in bubbles of 64
// they are everywhere within 0.6 s.
const newsWait = time.Second

// strangerTime is how long a sender that is heard no more is remembered.
const strangerTime = 10 * time.Second

// stranger is a process that sends to us and that is no live member to us.
type stranger struct {
	last time.Duration // when it was heard
	ask  time.Duration // when we ask for it
	wait time.Duration // before we ask again
}

// exchangeEffect says that an exchange of states with a live member, or with
// one that is wrongly held for failed, would bring news that have got lost.
type exchangeEffect struct{ addr string }

func (exchangeEffect) isEffect() {}

// strange takes a message of a process that is no live member to us. p is the
// member of that name, if there is one.
//
// Membership spreads its news by chance. Each of N members passes them on
// RetransmitMult * ceil(log10(N+1)) times to members drawn at random, which
// is 12 times from 10 to 99 members, so that one of them hears nothing with
// e^-12, and at 64 members and 1 % loss some member hears nothing of
// 63 * e^(-12 * 0.99) = one piece of news in 2 300; when a quarter of the
// receivers has just died, one in 80. One that missed that a member is new
// does not know it. One that missed that a suspicion was refuted finds it dead:
// it is told with the number of the old accusation, which nobody refutes
// twice. Both would last until membership's exchange of states, 15 to 30 s.
//
// But the member itself sends to us every second. If membership does not know
// it after newsWait, its news have got lost, and we ask: it, where we know its
// address and it is the process that we knew, else any other member. Once a
// second at most, for a start of many members makes many strangers, and ever
// more rarely for the same one: it may be a node that membership refuses.
func (c *core) strange(now time.Duration, p *peer, boot uint64) {
	s, ok := c.strangers[boot]
	if !ok || now >= s.last+strangerTime {
		if len(c.strangers) >= maxMembers {
			for k, old := range c.strangers {
				if now >= old.last+strangerTime {
					delete(c.strangers, k)
				}
			}
		}
		if len(c.strangers) >= maxMembers {
			return
		}
		s = stranger{ask: now + newsWait, wait: newsWait}
	}
	s.last = now
	defer func() { c.strangers[boot] = s }()
	if now < s.ask || now < c.nextExchange {
		return
	}
	addr := ""
	if p != nil && p.state == StateFailed && p.meta.boot == boot {
		addr = p.addr
	} else {
		addr = c.anyAddr()
	}
	s.ask = now + s.wait
	s.wait = min(2*s.wait, maxRetry)
	c.nextExchange = now + newsWait
	c.ask(addr)
}

// ask wants an exchange of states with the member at addr. Any live one will
// know what has become of another that is silent.
func (c *core) ask(addr string) {
	if addr != "" {
		c.counts.exchanges++
		c.emit(exchangeEffect{addr})
	}
}

// anyAddr is the membership address of a live member drawn at random, or empty
// if there is none.
func (c *core) anyAddr() string {
	addr, n := "", 0
	for _, p := range c.peers {
		if p.state == StateAlive {
			if n++; c.rng.IntN(n) == 0 {
				addr = p.addr
			}
		}
	}
	return addr
}
