package edge

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// What nobody has, each key once: look-ups, the origin's 404 over a kept
// connection, and the absence remembered, or not.
func BenchmarkAbsent(b *testing.B) {
	b.Run("remembered", func(b *testing.B) { benchmarkAbsent(b, "") })
	b.Run("no-store", func(b *testing.B) { benchmarkAbsent(b, "Cache-Control: no-store\r\n") })
}

// benchmarkAbsent has an origin that reads no more of a request than its end.
func benchmarkAbsent(b *testing.B, field string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	answer := []byte("HTTP/1.1 404 Not Found\r\n" + field + "Content-Type: text/plain\r\nContent-Length: 10\r\n\r\nNot found\n")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if bytes.Equal(line, []byte("\r\n")) {
						c.Write(answer)
					}
				}
			}()
		}
	}()
	cfg := testConfig("edge-a", "http://"+ln.Addr().String())
	cfg.Negative = Negative{Capacity: 64 << 20, TTL: time.Minute, MaxCreateRate: 1 << 30}
	n, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.Close() })
	w := &discard{h: http.Header{}}
	first := benchRequest()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := *first
		r.RequestURI = "/absent/" + strconv.Itoa(i)
		clear(w.h)
		n.serveClient(w, &r)
		if w.status != 404 {
			b.Fatal(w.status)
		}
	}
	if got := n.negative.Stats().Entries; (got > 0) != (field == "") {
		b.Fatalf("%d absences are remembered", got)
	}
}
