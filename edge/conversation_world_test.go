package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

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
