package edge

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestPhrase(t *testing.T) {
	for _, c := range []struct {
		name, text, in, want string
	}{
		{"another", "Fine", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", "HTTP/1.1 200 Fine\r\nA: b\r\n\r\nbody"},
		{"longer, bytes beyond ASCII", "Très bien, \xe9", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.0 200 Très bien, \xe9\r\n\r\n"},
		{"an interim answer goes before", "Fine", "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"},
		{"of another status", "Fine", "HTTP/1.1 206 Partial Content\r\n\r\n", "HTTP/1.1 206 Partial Content\r\n\r\n"},
		{"no head", "Fine", "HTTP/1.1 20", "HTTP/1.1 20"},
		{"the usual one", "OK", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
		{"none", "", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
		{"one that would end the line", "a\r\nSet-Cookie: b", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
		{"too long", strings.Repeat("x", maxPhraseLen+1), "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			conn := &framedConn{Conn: far}
			conn.say(unusual(http.StatusOK, c.text))
			go func() {
				if n, err := conn.Write([]byte(c.in)); n != len(c.in) || err != nil {
					t.Errorf("%d of %d bytes are written, %v", n, len(c.in), err)
				}
				far.Close()
			}()
			buf := make([]byte, 1<<10)
			n, _ := near.Read(buf)
			if got := string(buf[:n]); got != c.want {
				t.Errorf("%q is sent, want %q", got, c.want)
			}
		})
	}
}
