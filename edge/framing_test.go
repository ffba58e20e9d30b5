package edge

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Heads that can be read in more than one way are refused, and nothing of them
// reaches an origin (RFC 9112 §11.2).
func TestFraming(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct {
		name, in string
		status   []int // of the answers, in order
	}{
		{"plain", get + "\r\n", []int{200}},
		{"pipelined", get + "\r\n" + get + "\r\n", []int{200, 200}},
		{"empty line first (§2.2)", "\r\n" + get + "\r\n", []int{200}},
		{"with content", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc" + get + "\r\n", []int{200, 200}},
		{"chunked", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n" + get + "\r\n", []int{200, 200}},
		{"length and coding", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get + "\r\n", []int{400}},
		{"two lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", []int{400}},
		{"list of lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc", []int{400}},
		{"signed length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc", []int{400}},
		{"empty length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\n", []int{400}},
		{"coding that does not end in chunked", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", []int{400}},
		{"unknown coding", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", []int{400}},
		{"coding twice", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}},
		{"coding in HTTP/1.0", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}},
		{"bare LF", "GET / HTTP/1.1\nHost: h\n\n", []int{400}},
		{"bare LF LF within", get + "X: y\n\nGET /evil HTTP/1.1\r\n\r\n", []int{400}},
		{"bare CR", get + "X: a\rb\r\n\r\n", []int{400}},
		{"NUL", get + "X: a\x00b\r\n\r\n", []int{400}},
		{"obs-fold", get + "X: a\r\n b\r\n\r\n", []int{400}},
		{"space before the colon", get + "X : a\r\n\r\n", []int{400}},
		{"no colon", get + "Xa\r\n\r\n", []int{400}},
		{"empty name", get + ": a\r\n\r\n", []int{400}},
		{"two hosts", get + "Host: g\r\n\r\n", []int{400}},
		{"no host", "GET / HTTP/1.1\r\n\r\n", []int{400}},
		{"HTTP/1.0 without Host asks the address that it came to (§3.3)", "GET / HTTP/1.0\r\n\r\n", []int{200}},
		{"odd host", "GET / HTTP/1.1\r\nHost: h:80:80\r\n\r\n", []int{400}},
		{"HTTP/1.2 (seen to switch the framing off)", "POST / HTTP/1.2\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}},
		{"HTTP/1.2, then a smuggled one", "GET / HTTP/1.2\r\nHost: h\r\n\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400}},
		{"two spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}},
		{"tab for space", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}},
		{"chunk size with a sign", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", []int{400}},
		{"chunk longer than its size", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", []int{400}},
		{"CONNECT", "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", []int{501}},
		{"other scheme", "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}},
		{"GET *", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", []int{400}},
		{"absolute form wins over Host (RFC 9112 §3.2.2)", "GET http://h/x HTTP/1.1\r\nHost: other\r\n\r\n", []int{200}},
		{"too many fields", get + strings.Repeat("X: y\r\n", 300) + "\r\n", []int{431}},
		{"endless head", get + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 200), []int{431}},
		{"long target", "GET /" + strings.Repeat("a", 20000) + " HTTP/1.1\r\nHost: h\r\n\r\n", []int{414}},
		{"good, then bad", get + "\r\n" + get + "X : a\r\n\r\n", []int{200, 400}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if strings.Contains(r.URL.Path, "evil") {
					t.Error("a smuggled request reached the origin")
				}
				fmt.Fprint(w, r.Host)
			})
			cfg := testConfig("edge-a", o.URL)
			cfg.Sites[0].Hosts = []string{"h", "127.0.0.1"}
			n := startNode(t, cfg)
			conn, err := net.Dial("tcp", n.Addrs().Client)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(deadline))
			go io.WriteString(conn, c.in)
			r := bufio.NewReader(conn)
			good := int64(0)
			for i, want := range c.status {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("answer %d: %v", i+1, err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != want {
					// A body that breaks off may be noticed by the origin's side first.
					t.Errorf("answer %d is %d, want %d", i+1, resp.StatusCode, want)
				}
				if want == 200 {
					good++
				}
			}
			if last := c.status[len(c.status)-1]; last == 400 {
				// The connection closes: what follows could be anything.
				if _, err := http.ReadResponse(r, nil); err == nil {
					t.Error("one more answer came")
				}
			}
		})
	}
}

// However the stream is cut into portions, the same bytes are handed on, and
// they are the stream's own up to where it is refused.
func FuzzFramer(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: v\r\n\r\nGET",
		"\r\nGET / HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n", "GET / HTTP/1.1\n\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"0 0 HTTP/1.1\r\nTrAnsfer-EnCoding: Chunked\r\n\r\n2\r\n00000", // was refused earlier or later, by the portions
	} {
		f.Add([]byte(s), uint8(3))
		f.Add([]byte(s), uint8(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		run := func(step int) []byte {
			var fr framer
			var out []byte
			p := make([]byte, 7)
			for rest := in; len(rest) > 0; {
				k := min(step, len(rest))
				fr.add(rest[:k])
				rest = rest[k:]
				for n := fr.read(p); n > 0; n = fr.read(p) {
					out = append(out, p[:n]...)
				}
			}
			return out
		}
		whole, cut := run(len(in)+1), run(int(step)%64+1)
		if !bytes.Equal(whole, cut) {
			t.Fatalf("in one piece %q, in pieces %q", whole, cut)
		}
		// What it lets through, net/http reads as requests with the same ends.
		out := bytes.TrimSuffix(whole, []byte(poison))
		if len(out) > len(in) {
			t.Fatalf("%d bytes became %d", len(in), len(out))
		}
	})
}
