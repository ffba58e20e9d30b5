package edge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/edge/rfc9111"
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

// world is the nodes and the origin that all conversations share. Each
// conversation has hosts of its own.
type world struct {
	a, b, shield *Node
	origin       net.Listener

	mu    sync.Mutex
	calls map[string]chan *call // by host
}

// call is one request that reached the origin.
type call struct {
	conn   net.Conn
	start  string
	fields [][2]string
	body   chan string   // the content when it is complete; closed without when it broke off
	raw    io.Reader     // what follows, for who switches protocols
	gone   chan struct{} // closed when the connection is

	trailers [][2]string   // of the request; read after body
	over     chan struct{} // closed at the end of the conversation
}

func newWorld(t *testing.T) *world {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{origin: ln, calls: map[string]chan *call{}}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go w.hear(c)
		}
	}()
	change := func(c *Config) {
		c.Sites = nil
		for name, s := range map[string]Site{
			"plain":  {},
			"honour": {SetCookie: "store", RequestDirectives: "honour"},
			"grace":  {StaleGrace: time.Hour},
			"bypass": {Bypass: []string{"/api/*"}},
			"slow":   {},
			"dead":   {},
		} {
			for _, shield := range []string{"off", "auto"} {
				s := s
				s.Name, s.Shield = name+"-"+shield, shield
				s.Hosts = []string{"*." + name + "." + shield + ".test"}
				s.Origin.URLs = []string{"http://" + ln.Addr().String()}
				switch name {
				case "slow":
					s.Origin.Timeout.FirstByte = 100 * time.Millisecond
				case "dead":
					s.Origin.URLs = []string{"http://127.0.0.1:1"}
				}
				c.Sites = append(c.Sites, s)
			}
		}
		if c.Name == "edge-c" {
			c.Name, c.Cluster.Role = "shield", RoleShield
		}
		c.Admin.Token = "secret"
	}
	nodes := startCluster(t, 3, "http://"+ln.Addr().String(), change)
	w.a, w.b, w.shield = nodes[0], nodes[1], nodes[2]
	return w
}

// calling is where the requests for a host arrive.
func (w *world) calling(host string) chan *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[host] == nil {
		w.calls[host] = make(chan *call, 64)
	}
	return w.calls[host]
}

// hear reads the requests of one connection to the origin.
func (w *world) hear(conn net.Conn) {
	defer conn.Close()
	gone := make(chan struct{})
	defer close(gone)
	r := bufio.NewReader(conn)
	for {
		start, fields, err := readHead(r)
		if err != nil {
			return
		}
		c := &call{gone: gone, over: make(chan struct{}), conn: conn, start: start, fields: fields, body: make(chan string, 1), raw: r}
		w.calling(strings.Join(fieldLines(fields, "Host"), ",")) <- c
		if len(fieldLines(fields, "Upgrade")) > 0 {
			<-c.over // the script reads on
			return
		}
		var body string
		if body, c.trailers, err = readBody(r, fields, false); err != nil {
			close(c.body)
			return
		}
		c.body <- body
	}
}

func readHead(r *bufio.Reader) (start string, fields [][2]string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return start, fields, err
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		switch {
		case start == "":
			start = line
		case line == "":
			return start, fields, nil
		default:
			name, value, _ := strings.Cut(line, ":")
			fields = append(fields, [2]string{name, strings.TrimSpace(value)})
		}
	}
}

func fieldLines(fields [][2]string, name string) (lines []string) {
	for _, f := range fields {
		if strings.EqualFold(f[0], name) {
			lines = append(lines, f[1])
		}
	}
	return lines
}

// readBody reads content by its framing; toClose says that without any it ends
// with the connection.
func readBody(r *bufio.Reader, fields [][2]string, toClose bool) (body string, trailers [][2]string, err error) {
	if te := fieldLines(fields, "Transfer-Encoding"); len(te) > 0 {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return body, nil, io.ErrUnexpectedEOF
			}
			size, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
			if err != nil {
				return body, nil, fmt.Errorf("chunk size %q", line)
			}
			if size == 0 {
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return body, nil, io.ErrUnexpectedEOF
					}
					if line = strings.TrimSpace(line); line == "" {
						return body, trailers, nil
					}
					name, value, _ := strings.Cut(line, ":")
					trailers = append(trailers, [2]string{name, strings.TrimSpace(value)})
				}
			}
			chunk := make([]byte, size+2)
			n, err := io.ReadFull(r, chunk)
			body += string(chunk[:min(n, int(size))])
			if err != nil {
				return body, nil, io.ErrUnexpectedEOF
			}
		}
	}
	if cl := fieldLines(fields, "Content-Length"); len(cl) > 0 {
		size, err := strconv.Atoi(cl[0])
		if err != nil {
			return "", nil, err
		}
		b := make([]byte, size)
		n, err := io.ReadFull(r, b)
		if err != nil {
			err = io.ErrUnexpectedEOF
		}
		return string(b[:n]), nil, err
	}
	if toClose {
		b, err := io.ReadAll(r)
		return string(b), nil, err
	}
	return "", nil, nil
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
			n.apply(&purge{urls: map[string]bool{keys[0]: true}, soft: true})
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

func (p *player) clientSays(b talkBlock, fail func(string, ...any) bool) bool {
	s := p.clients[b.actor]
	if s == nil && (len(b.head) == 0 || b.head[0] == "(close)") {
		return fail("%s is not connected", b.actor)
	}
	if len(b.head) > 0 && b.head[0] == "(close)" {
		s.Close()
		delete(p.clients, b.actor)
		return true
	}
	if len(b.head) == 0 {
		_, err := io.WriteString(s, strings.ReplaceAll(b.body, "{host}", p.host))
		return err == nil || fail("%v", err)
	}
	n := p.target(b)
	p.asked++
	method, rest, _ := strings.Cut(b.head[0], " ")
	uri, version, whole := strings.Cut(rest, " ")
	if p.over == "peer" {
		p.knows(n, uri)
	}
	if s == nil || s.node != n {
		if s != nil {
			s.Close()
		}
		c, err := net.Dial("tcp", n.Addrs().Client)
		if err != nil {
			return fail("%v", err)
		}
		s = &speaker{Conn: c, r: bufio.NewReader(c), node: n}
		p.clients[b.actor] = s
	}
	s.method = append(s.method, method)
	var msg strings.Builder
	if whole {
		msg.WriteString(method + " " + uri + " " + version + "\r\n")
	} else {
		msg.WriteString(b.head[0] + " HTTP/1.1\r\n")
	}
	fields := b.head[1:]
	has := func(name string) bool {
		return slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(strings.ToLower(f), strings.ToLower(name)) })
	}
	if !has("host:") && !has("(no host)") {
		msg.WriteString("Host: " + p.host + "\r\n")
	}
	for _, f := range fields {
		if !strings.HasPrefix(f, "(") {
			msg.WriteString(dated(strings.ReplaceAll(f, "{host}", p.host), p.began) + "\r\n")
		}
	}
	if b.has && !has("content-length") && !has("transfer-encoding") {
		fmt.Fprintf(&msg, "Content-Length: %d\r\n", len(b.body))
	}
	msg.WriteString("\r\n" + b.body)
	text := strings.ReplaceAll(msg.String(), "{host}", p.host)
	if _, err := io.WriteString(s, text); err != nil {
		return fail("%v", err)
	}
	return true
}

func (p *player) clientHears(b talkBlock, fail func(string, ...any) bool) bool {
	s := p.clients[b.actor]
	if s == nil {
		return fail("%s has not said anything", b.actor)
	}
	if len(b.head) > 0 && b.head[0] == "(closed)" {
		s.SetReadDeadline(time.Now().Add(hearWithin))
		if c, err := s.r.ReadByte(); err != io.EOF && !isReset(err) {
			return fail("the connection is not closed: %q, %v", c, err)
		}
		return true
	}
	if len(b.head) == 0 { // bytes, after a switch of protocols
		buf := make([]byte, len(b.body))
		s.SetReadDeadline(time.Now().Add(hearWithin))
		if _, err := io.ReadFull(s.r, buf); err != nil || string(buf) != b.body {
			return fail("got %q, %v, want %q", buf, err, b.body)
		}
		return true
	}
	// A request that the script does not foresee is the reason for most waits.
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range 20 {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		select {
		case c := <-p.calls:
			p.Logf("the origin was asked: %s %v", c.start, c.fields)
			s.SetReadDeadline(time.Now())
			c.conn.Close()
		case <-done:
		}
	}()
	s.SetReadDeadline(time.Now().Add(hearWithin))
	start, fields, err := readHead(s.r)
	if err != nil {
		return fail("no answer: %v (%q)", err, start)
	}
	proto, status, _ := strings.Cut(start, " ")
	if !strings.HasPrefix(proto, "HTTP/1.") {
		return fail("not a status line: %q", start)
	}
	ok := true
	if !strings.HasPrefix(status, b.head[0]) {
		ok = fail("got %q, want %q; %v", status, b.head[0], fields)
	}
	closed := false
	wantEnd := error(nil)
	for _, want := range b.head[1:] {
		switch {
		case want == "(truncated)":
			wantEnd = io.ErrUnexpectedEOF
		case want == "(closed)":
			closed = true
		case strings.HasPrefix(want, "(trailer) "):
		default:
			if why := p.compare(want, fields); why != "" {
				ok = fail("%s; in %v", why, fields)
			}
		}
	}
	code, _ := strconv.Atoi(status[:3])
	if code >= 100 && code < 200 {
		return ok
	}
	method := "GET"
	if len(s.method) > 0 { // none for bytes that were said without a request line
		method, s.method = s.method[0], s.method[1:]
	}
	body, trailers := "", [][2]string(nil)
	if method != "HEAD" && code != 204 && code != 304 {
		body, trailers, err = readBody(s.r, fields, true)
	}
	if !errors.Is(err, wantEnd) {
		ok = fail("the answer ended with %v, want %v; body so far %q", err, wantEnd, short(body))
	}
	for _, want := range b.head[1:] {
		if want, is := strings.CutPrefix(want, "(trailer) "); is {
			if why := p.compare(want, trailers); why != "" {
				ok = fail("trailer: %s; in %v", why, trailers)
			}
		}
	}
	if b.has {
		want := strings.ReplaceAll(b.body, "{host}", p.host)
		if bd := boundaryOf(fields); bd != "" {
			body = strings.ReplaceAll(body, bd, "BOUNDARY")
		}
		if part, is := strings.CutPrefix(want, "~"); is {
			if !strings.Contains(body, part) {
				ok = fail("body %q lacks %q", short(body), part)
			}
		} else if body != want {
			ok = fail("body %q, want %q; %s %v", short(body), short(want), status, fields)
		}
	}
	if closed {
		if c, err := s.r.ReadByte(); err != io.EOF && !isReset(err) {
			ok = fail("the connection is not closed: %q, %v", c, err)
		}
	}
	if slices.Contains(fieldLines(fields, "Connection"), "close") {
		s.Close()
		delete(p.clients, b.actor)
	}
	return ok
}

func boundaryOf(fields [][2]string) string {
	for _, v := range fieldLines(fields, "Content-Type") {
		if _, bd, ok := strings.Cut(v, "boundary="); ok {
			return bd
		}
	}
	return ""
}

func isReset(err error) bool {
	return err != nil && strings.Contains(err.Error(), "reset")
}

// compare says what is wrong with fields by one expectation: "Name: value",
// "Name: ~part", "Name: 10..20", "Name" (is there), "!Name" (is not). One for
// Cache-Status counts for a node alone; "Name@peer: value" for that way only.
func (p *player) compare(want string, fields [][2]string) string {
	if name, ok := strings.CutPrefix(want, "!"); ok {
		if lines := fieldLines(fields, name); len(lines) > 0 {
			return fmt.Sprintf("%s is there: %q", name, lines)
		}
		return ""
	}
	name, value, hasValue := strings.Cut(want, ": ")
	name, over, only := strings.Cut(name, "@")
	if only && over != p.over || !only && strings.EqualFold(name, "Cache-Status") && p.over != "node" {
		return ""
	}
	lines := fieldLines(fields, name)
	if len(lines) == 0 {
		return fmt.Sprintf("%s is missing", name)
	}
	got := strings.Join(lines, ", ")
	value = dated(strings.ReplaceAll(value, "{host}", p.host), p.began)
	low, high := 0, 0
	part, isPart := strings.CutPrefix(value, "~")
	n, _ := fmt.Sscanf(value, "%d..%d", &low, &high)
	v, err := strconv.Atoi(got)
	switch {
	case !hasValue, isPart && strings.Contains(got, part), !isPart && got == value, n == 2 && err == nil && v >= low && v <= high:
		return ""
	}
	return fmt.Sprintf("%s is %q, want %q", name, got, value)
}

func (p *player) originHears(b talkBlock, fail func(string, ...any) bool) bool {
	if len(b.head) == 0 { // bytes, after a switch of protocols
		c := p.origins[b.actor]
		if len(fieldLines(c.fields, "Upgrade")) == 0 {
			select {
			case body := <-c.body:
				return body == b.body || fail("the origin got the body %q, want %q", short(body), short(b.body))
			case <-time.After(hearWithin):
				return fail("the body has not come")
			}
		}
		buf := make([]byte, len(b.body))
		c.conn.SetReadDeadline(time.Now().Add(hearWithin))
		if _, err := io.ReadFull(c.raw, buf); err != nil || string(buf) != b.body {
			return fail("got %q, %v, want %q", buf, err, b.body)
		}
		return true
	}
	if b.head[0] == "(gone)" {
		select {
		case <-p.origins[b.actor].gone:
			return true
		case <-time.After(hearWithin):
			return fail("the node has not hung up")
		}
	}
	var c *call
	now := make(chan time.Time)
	close(now)
	for c == nil || p.givenUp(c, now) {
		select {
		case c = <-p.calls:
		case <-time.After(hearWithin):
			return fail("the origin was not asked")
		}
	}
	p.origins[b.actor] = c
	p.met = append(p.met, c)
	ok := true
	method, target, _ := strings.Cut(b.head[0], " ")
	if !strings.HasPrefix(c.start, method+" ") || target != "" && !strings.HasPrefix(c.start, method+" "+target+" ") {
		ok = fail("the origin got %q, want %q", c.start, b.head[0])
	}
	for _, want := range b.head[1:] {
		if strings.HasPrefix(want, "(trailer) ") {
			continue
		}
		if why := p.compare(want, c.fields); why != "" {
			ok = fail("%s; the origin got %v", why, c.fields)
		}
	}
	if b.has {
		select {
		case body := <-c.body:
			if body != b.body {
				ok = fail("the origin got the body %q, want %q", short(body), short(b.body))
			}
		case <-time.After(hearWithin):
			return fail("the body has not come")
		}
		for _, want := range b.head[1:] {
			if want, is := strings.CutPrefix(want, "(trailer) "); is {
				if why := p.compare(want, c.trailers); why != "" {
					ok = fail("trailer: %s; in %v", why, c.trailers)
				}
			}
		}
	}
	return ok
}

func (p *player) originSays(b talkBlock, fail func(string, ...any) bool) bool {
	c := p.origins[b.actor]
	if c == nil {
		return fail("the origin has nobody to answer")
	}
	c.conn.SetWriteDeadline(time.Now().Add(hearWithin))
	var msg bytes.Buffer
	framed, closes, resets := false, false, false
	status := ""
	for i, line := range b.head {
		line = dated(strings.ReplaceAll(line, "{host}", p.host), p.began)
		lower := strings.ToLower(line)
		switch {
		case line == "(close)":
			closes = true
		case line == "(reset)":
			resets = true
		case line == "(unframed)":
			framed = true
		case i == 0:
			status = line
			if _, text, ok := strings.Cut(line, " "); !ok && text == "" {
				if code, _ := strconv.Atoi(line); http.StatusText(code) != "" {
					line += " " + http.StatusText(code)
				} else {
					line += " Whatever"
				}
			}
			msg.WriteString("HTTP/1.1 " + line + "\r\n")
		default:
			framed = framed || strings.HasPrefix(lower, "content-length:") || strings.HasPrefix(lower, "transfer-encoding:")
			msg.WriteString(line + "\r\n")
		}
	}
	if status != "" {
		bodiless := status[0] == '1' || strings.HasPrefix(status, "204") || strings.HasPrefix(status, "304")
		if !framed && !bodiless {
			fmt.Fprintf(&msg, "Content-Length: %d\r\n", len(b.body))
		}
		msg.WriteString("\r\n")
	}
	if !strings.HasPrefix(c.start, "HEAD ") {
		msg.WriteString(b.body)
	}
	if _, err := c.conn.Write(msg.Bytes()); err != nil {
		return fail("%v", err)
	}
	switch {
	case resets:
		c.conn.(*net.TCPConn).SetLinger(0)
		c.conn.Close()
	case closes:
		c.conn.(*net.TCPConn).CloseWrite()
		c.conn.Close()
	}
	return true
}
