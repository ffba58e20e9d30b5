package edge

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/edge/rfc9111"
	"edged/edge/store"
)

// hearWithin bounds every wait of a conversation for the other side.
const hearWithin = 5 * time.Second

// TestConversations plays testdata/conversations over real sockets, through
// real nodes: one alone, one that fills from a peer, one behind a shield.
func TestConversations(t *testing.T) {
	script := readScripts(t, "testdata/conversations/*.txt")
	w := newWorld(t)
	type play struct {
		c        conversation
		over, id string
	}
	plays := make(chan play)
	var players sync.WaitGroup
	at := 16 // they mostly wait, more than t.Parallel allows for
	if raceEnabled {
		at = 6 // or peers miss their budget
	}
	for range at {
		players.Go(func() {
			for p := range plays {
				file, _, _ := strings.Cut(p.c.at, ".txt:")
				t.Run(file+"/"+p.c.title+"/"+p.over, func(t *testing.T) { w.play(t, p.c, p.over, p.id) })
			}
		})
	}
	covered := map[int]bool{}
	for i, c := range script {
		for _, r := range c.rules {
			covered[r] = true
		}
		for _, over := range c.over {
			plays <- play{c, over, fmt.Sprintf("c%d", i)}
		}
	}
	close(plays)
	players.Wait()
	for r := 1; r <= 33; r++ {
		if !covered[r] {
			t.Errorf("no conversation about rule %d", r)
		}
	}
}

// Every conversation that HTTP.md names exists.
func TestConversations_areInHTTPmd(t *testing.T) {
	text, err := os.ReadFile("HTTP.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, c := range readScripts(t, "testdata/conversations/*.txt") {
		file, _, _ := strings.Cut(c.at, ".txt:")
		have[file+"/"+c.title] = true
	}
	for _, m := range regexp.MustCompile("`([a-z]+/[^`]+)`").FindAllStringSubmatch(string(text), -1) {
		if !have[m[1]] {
			t.Errorf("HTTP.md names %q, which is no conversation", m[1])
		}
	}
}

// player plays one conversation.
type player struct {
	*testing.T
	w       *world
	c       conversation
	over    string
	host    string
	began   time.Time
	calls   chan *call
	clients map[string]*speaker
	origins map[string]*call
	met     []*call
	asked   int // by clients
}

// speaker is a client's connection.
type speaker struct {
	net.Conn
	r      *bufio.Reader
	method []string // of the requests that are not answered yet
	node   *Node
}

func (w *world) play(t *testing.T, c conversation, over, id string) {
	mode := "off"
	if over == "shield" {
		mode = "auto"
	}
	p := &player{
		T: t, w: w, c: c, over: over, began: time.Now(), host: id + over + "." + c.site + "." + mode + ".test",
		clients: map[string]*speaker{}, origins: map[string]*call{},
	}
	p.calls = w.calling(p.host)
	defer func() {
		for _, s := range p.clients {
			s.Close()
		}
		for _, o := range p.met {
			close(o.over)
		}
	}()
	for _, b := range c.talk {
		if !p.block(b) {
			return
		}
	}
	p.settled()
	select {
	case extra := <-p.calls:
		if p.givenUp(extra, time.After(hearWithin)) {
			return
		}
		extra.conn.Close()
		p.Errorf("%s: the origin got one request more than the script says: %s %v", c.at, extra.start, extra.fields)
	default:
	}
}

// givenUp reports whether a request that the origin got was given up by the
// node, which it is when a busy machine lets a peer answer after its budget,
// while the origin is being asked beside it.
func (p *player) givenUp(c *call, wait <-chan time.Time) bool {
	if p.over != "peer" {
		return false
	}
	select {
	case <-c.gone:
		return true
	case <-wait:
		return false
	}
}

// block plays one block, and reports whether it makes sense to go on.
func (p *player) block(b talkBlock) bool {
	fail := func(format string, args ...any) bool {
		p.Errorf("%s:%d: "+format, append([]any{strings.Split(p.c.at, ":")[0], b.line}, args...)...)
		return false
	}
	origin := strings.HasPrefix(b.actor, "origin")
	switch {
	case b.actor == "-":
		return p.barrier(b.head[0], fail)
	case origin && !b.out:
		return p.originHears(b, fail)
	case origin:
		return p.originSays(b, fail)
	case b.out:
		return p.clientSays(b, fail)
	}
	return p.clientHears(b, fail)
}

func (p *player) barrier(what string, fail func(string, ...any) bool) bool {
	n := 0
	switch {
	case what == "settled":
		p.settled()
	case scan(what, "%d waiting", &n):
		eventually(p.T, what, func() bool {
			waiting := 0
			for _, node := range []*Node{p.w.a, p.w.b} {
				waiting += node.waitersOf(p.host)
			}
			return waiting == n
		})
	case strings.HasPrefix(what, "soft purge "):
		keys, err := p.w.a.canonicalKeys([]string{"http://" + p.host + what[len("soft purge "):]})
		if err != nil {
			return fail("%v", err)
		}
		nodes := []*Node{p.w.a}
		if p.over == "shield" {
			nodes = []*Node{p.w.a, p.w.b, p.w.shield}
		}
		for _, n := range nodes {
			n.apply(&store.Purge{URLs: keys, Soft: true})
		}
	default:
		return fail("unknown barrier %q", what)
	}
	return true
}

func scan(s, format string, v *int) bool {
	n, err := fmt.Sscanf(s, format, v)
	return n == 1 && err == nil
}

// waitersOf counts who waits for forwards of this host.
func (n *Node) waitersOf(host string) int {
	n.flights.mu.Lock()
	defer n.flights.mu.Unlock()
	waiting := 0
	for key, f := range n.flights.tab {
		if strings.HasPrefix(key, "http://"+host+"/") {
			waiting += f.waiters
		}
	}
	return waiting
}

// settled waits until no forward of the conversation is under way.
func (p *player) settled() {
	eventually(p.T, "forwards ended", func() bool {
		for _, n := range []*Node{p.w.a, p.w.b, p.w.shield} {
			n.flights.mu.Lock()
			for key := range n.flights.tab {
				if strings.HasPrefix(key, "http://"+p.host+"/") {
					n.flights.mu.Unlock()
					return len(p.calls) > 0
				}
			}
			n.flights.mu.Unlock()
		}
		return true
	})
}

// target chooses the node for a client's next request. Over a peer, requests
// go to the two nodes in turn, once the one knows what the other has stored.
func (p *player) target(b talkBlock) *Node {
	n := p.w.a
	switch {
	case b.node == "b" || b.node == "" && p.over == "peer" && p.asked%2 == 1:
		n = p.w.b
	}
	return n
}

// knows waits until n's replica of other shows what other holds of the host.
func (p *player) knows(n *Node, target string) {
	other := p.w.a
	if n == other {
		other = p.w.b
	}
	path, query, has := strings.Cut(target, "?")
	if has && query == "" {
		query = "?"
	}
	k := n.keyOf("http://" + p.host + rfc9111.NormaliseTarget(path, query))
	part := n.partitionOf(path)
	if len(other.store.Get(part, &k)) == 0 {
		return
	}
	eventually(p.T, "the peer's filter has arrived, and it may be asked", func() bool {
		peer := n.topo.Load().peers[other.cfg.Name]
		return n.gossip.Lookup(part, k.Filter).Contains(other.cfg.Name) && peer != nil && peer.usable(time.Now())
	})
}
