package loadtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
)

// bareAnswer is what a bare server says to everything.
const bareAnswer = "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nabsent"

// serveBare answers each request with the same bytes and does nothing else: as
// little as a server can do with Go's network.
func serveBare(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf, n := make([]byte, 8<<10), 0
			for {
				m, err := c.Read(buf[n:])
				if err != nil || n+m == len(buf) {
					return
				}
				n += m
				for {
					end := bytes.Index(buf[:n], []byte("\r\n\r\n"))
					if end < 0 {
						break
					}
					n = copy(buf, buf[end+4:n])
					if _, err := io.WriteString(c, bareAnswer); err != nil {
						return
					}
				}
			}
		}()
	}
}

// runBareServer is a bare server in a process of its own; it prints its address
// and ends with its standard input.
func runBareServer() {
	ln := listen("127.0.0.1:0")
	go serveBare(ln)
	fmt.Println(ln.Addr())
	var end [1]byte
	os.Stdin.Read(end[:])
}

// BenchmarkDriver_bare is one request of a schedule that is always late,
// against a bare server in the same process: driver and server share the cores.
func BenchmarkDriver_bare(b *testing.B) {
	ln := listen("127.0.0.1:0")
	defer ln.Close()
	go serveBare(ln)
	d := newDriver([]string{ln.Addr().String()}, "host.test", 64, newRecorder())
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		w := d.newWorker(b.Context())
		defer w.close()
		for pb.Next() {
			if o := w.send(arrival{path: AbsentPath(1)}); o.kind != "" {
				b.Error(o.err)
			}
		}
	})
}
