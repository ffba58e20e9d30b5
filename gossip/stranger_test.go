package gossip

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// asked returns the addresses that a wants to exchange states with.
func (p *pair) asked() (addrs []string) {
	for _, e := range p.a.take() {
		if x, ok := e.(exchangeEffect); ok {
			addrs = append(addrs, x.addr)
		}
	}
	return addrs
}

// TestCore_asksForStrangers: a hears b, of which membership says nothing, or
// that it has failed.
func TestCore_asksForStrangers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*pair)
		want   []string
	}{
		{"a live member", func(p *pair) {}, nil},
		{"one that membership has found dead", func(p *pair) { p.a.memberDown(p.now, "b") }, []string{"127.0.0.1:2"}},
		{"a new process of it, the old one is dead", func(p *pair) {
			p.a.memberDown(p.now, "b")
			p.b.cfg.boot++
		}, []string{"127.0.0.1:3"}},
		{"a new process of it, the old one is not yet", func(p *pair) {
			p.a.memberDown(p.now, "c")
			p.b.cfg.boot++
		}, []string{"127.0.0.1:2"}},
		{"one that membership has never heard of", func(p *pair) {
			p.a.forget(p.a.bySender[nameKey("b")])
			p.a.peers = slices.DeleteFunc(p.a.peers, func(x *peer) bool { return x.name == "b" })
		}, []string{"127.0.0.1:3"}},
		{"the same and nobody to ask", func(p *pair) {
			p.a.memberDown(p.now, "c")
			p.a.forget(p.a.bySender[nameKey("b")])
			p.a.peers = slices.DeleteFunc(p.a.peers, func(x *peer) bool { return x.name == "b" })
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t)
			meta := p.b.nodeMeta()
			meta.boot = 300
			p.a.memberUp(p.now, "c", "127.0.0.1:3", meta)
			tc.change(p)
			p.a.take()
			p.deliver(p.flush()...)
			if got := p.asked(); got != nil {
				t.Errorf("asked %v with the first message: the news may be on their way", got)
			}
			var got []string
			for start := p.now; p.now < start+newsWait+headInterval; {
				p.store(1)
				p.deliver(p.flush()...)
				got = append(got, p.asked()...)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("asked %q, want %q", got, tc.want)
			}
			if n := p.a.counts.exchanges; n != uint64(len(tc.want)) {
				t.Errorf("%d are counted", n)
			}
		})
	}
}

// TestCore_asksEverMoreRarely: a node that membership refuses for ever is not
// asked for every second, and many strangers are a bounded memory.
func TestCore_asksEverMoreRarely(t *testing.T) {
	p := newPair(t)
	for range 300 {
		p.now += time.Second
		p.a.strange(p.now, nil, 9)
	}
	if n := p.a.counts.exchanges; n < 5 || n > 12 {
		t.Errorf("asked %d times in five minutes", n)
	}
	for i := range uint64(10 * maxMembers) {
		p.a.strange(p.now, nil, 1000+i)
	}
	if n := len(p.a.strangers); n > maxMembers {
		t.Errorf("%d strangers are remembered", n)
	}
	p.now += strangerTime
	p.a.strange(p.now, nil, 7)
	if n := len(p.a.strangers); n != 1 {
		t.Errorf("%d strangers are remembered, one was heard lately", n)
	}
}

// TestCore_farewellIsFinal: b says that it has left. Its last words may come
// before or after what membership has to say of it.
func TestCore_farewellIsFinal(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*pair)
	}{
		{"first news", func(p *pair) {}},
		{"membership was faster", func(p *pair) { p.a.memberDown(p.now, "b") }},
		{"it is suspected", func(p *pair) { p.a.suspect(p.now, "b") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t)
			meta := p.b.nodeMeta()
			tc.before(p)
			words, to := p.b.leave()
			if !slices.Equal(to, []string{"a"}) {
				t.Fatalf("told %v", to)
			}
			p.deliver(sendEffect{payload: words})
			left := func(when string) {
				t.Helper()
				if m := p.a.members(); len(m) != 1 || m[0].State != StateLeft {
					t.Errorf("%s: %+v", when, m)
				}
			}
			left("after its last words")
			p.a.memberUp(p.now, "b", "127.0.0.1:2", meta)
			left("after late news of the same process")
			p.a.memberDown(p.now, "b")
			left("after membership has found it dead")
			if p.store(1); len(p.flush()) > 0 {
				t.Error("it speaks on")
			}
			p.now += time.Second
			meta.boot++
			p.a.memberUp(p.now, "b", "127.0.0.1:2", meta)
			if m := p.a.members(); m[0].State != StateAlive {
				t.Errorf("a new process of it is %s", m[0].State)
			}
			p.deliver(sendEffect{payload: words})
			if m := p.a.members(); m[0].State != StateAlive {
				t.Errorf("its predecessor's last words make it %s", m[0].State)
			}
		})
	}
}

// deadPacket is membership's news, unencrypted, that a member is dead.
func deadPacket(label, name, from string, incarnation byte) []byte {
	b := append([]byte{244, byte(len(label))}, label...)
	b = append(b, 5, 0x83) // the message's type, a map of three
	str := func(s string) { b = append(append(b, 0xa0|byte(len(s))), s...) }
	str("Incarnation")
	b = append(b, incarnation)
	str("Node")
	str(name)
	str("From")
	str(from)
	return b
}

// TestBubble_refutationThatGotLost: n001 has missed the newest news of n002,
// and is told an older accusation, which n002 has refuted long ago and refutes
// no more. It was the rejoin loop that found them together again, after up to 22 s.
func TestBubble_refutationThatGotLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(5)}
		defer b.stop()
		const size = 5
		for i := range size {
			b.start(i, func(c *Config) {
				c.RejoinInterval = time.Hour
				c.Keys, c.PeerAddr = nil, "127.0.0.1:80" // nobody's: filters are not the matter
			})
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, size) })
		time.Sleep(2 * time.Second)

		victim := b.nodes[1]
		b.net.deafen(b.ip(1), true)
		b.nodes[2].Publish(0, b.nodes[2].filters[0])
		time.Sleep(time.Second)
		b.net.deafen(b.ip(1), false)
		host := b.net.hosts[b.ip(3)]
		for inc := byte(1); victim.stateOf("n002") == StateAlive; inc++ {
			if inc == 20 {
				t.Fatal("no accusation is believed")
			}
			host.WriteTo(deadPacket("edged", "n002", "n003", inc), b.ip(1)+":7946")
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		took := b.until(newsTime, "n001 holds n002 for alive", func() bool { return victim.stateOf("n002") == StateAlive })
		t.Logf("after %v", took)
		if !allAlive(b.nodes, size) {
			t.Error("another one believed it")
		}
	})
}

// TestBubble_leaveThatGotLost: n001 hears no packet while n002 leaves, be it of
// n002 or of those who pass its news on. It used to find it dead up to 50 s later.
func TestBubble_leaveThatGotLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(6)}
		defer b.stop()
		for i := range 5 {
			b.start(i, nil)
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, 5) })
		b.net.deafen(b.ip(1), true)
		leaver := b.nodes[2]
		if err := leaver.Leave(2 * time.Second); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if s := b.nodes[1].stateOf("n002"); s != StateLeft {
			t.Errorf("when Leave has returned n001 holds n002 for %s", s)
		}
		leaver.stop()
		b.net.deafen(b.ip(1), false)
		for range 120 {
			time.Sleep(time.Second)
			for _, n := range b.nodes {
				if s := n.stateOf("n002"); n != leaver && s != StateLeft {
					t.Fatalf("later %s holds n002 for %s", n.cfg.Name, s)
				}
			}
		}
	})
}

// TestBubble_leaveUnheard: n001 is cut off from n002 while that one leaves and
// hears no packet from others either. As soon as it misses n002 it asks
// somebody else.
func TestBubble_leaveUnheard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &bubble{t: t, net: newMemNet(7)}
		defer b.stop()
		for i := range 5 {
			b.start(i, nil)
		}
		b.until(10*time.Second, "all joined", func() bool { return allAlive(b.nodes, 5) })
		one, two := b.ip(1), b.ip(2)
		b.net.deafen(one, true)
		b.net.part(func(from, to string) bool { return from == one && to == two || from == two && to == one })
		leaver := b.nodes[2]
		start := time.Now()
		if err := leaver.Leave(2 * time.Second); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if !strings.Contains(leaver.logs.String(), "n001") && !strings.Contains(leaver.logs.String(), "not every member") {
			t.Errorf("it does not say who was not told:\n%s", leaver.logs)
		}
		leaver.stop()
		b.net.deafen(one, false)
		// Its own probe or silence, then suspectInterval and a half.
		took := b.until(10*time.Second, "n001 does not wait for n002 any more", func() bool {
			s := b.nodes[1].stateOf("n002")
			return s == StateFailed || s == StateLeft
		})
		t.Logf("after %v", took)
	})
}
