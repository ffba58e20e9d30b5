package edge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	switch p.over {
	case "peer":
		p.knows(n, uri)
	case "shield":
		// Another conversation's origin may have been too slow for it.
		eventually(p.T, "the shield may be asked", func() bool { return n.topo.Load().usable(p.w.shield.cfg.Name) })
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
