package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// testFeed counts how often it asks for the cluster; each sample tells its
// number.
func testFeed(asked *int) *Feed {
	n := 0.0
	return NewFeed(FeedConfig{
		Sample:  func(now time.Time) Sample { n++; return Sample{At: now.Unix(), RPS: n} },
		Cluster: func() Cluster { *asked++; return Cluster{Name: "edge-a"} },
	})
}

// However many pages watch, the cluster is asked for once a second, and not at
// all while none does; the samples are kept meanwhile.
func TestFeed_asksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := testFeed(&asked)
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if asked != 0 {
			t.Errorf("the cluster was asked for %d times with nobody watching", asked)
		}
		var streams []<-chan []byte
		for range 5 {
			h, events, leave, err := f.watch()
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			if len(h.Samples) != 10 || h.Samples[9].RPS != 10 || h.SpanSeconds != 900 {
				t.Errorf("the history is %+v", h)
			}
			streams = append(streams, events)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if asked != 3 {
			t.Errorf("the cluster was asked for %d times in 3 s, want 3", asked)
		}
		for _, s := range streams {
			// One that does not read gets the newest, and nobody waits for it.
			var c Cluster
			if err := json.Unmarshal(<-s, &c); err != nil || c.Name != "edge-a" || c.Now.RPS != 13 {
				t.Errorf("the event is %+v, %v", c, err)
			}
		}
		cancel()
		for _, s := range streams {
			if _, open := <-s; open {
				t.Error("a stream goes on after the feed's end")
			}
		}
		if _, events, leave, err := f.watch(); err != nil {
			t.Error(err)
		} else if leave(); true {
			if _, open := <-events; open {
				t.Error("an ended feed has events")
			}
		}
	})
}

// The ring holds 15 minutes, in order.
func TestFeed_isBounded(t *testing.T) {
	asked := 0
	f := testFeed(&asked)
	now := time.Unix(1e9, 0)
	for i := range 2000 {
		f.turn(now.Add(time.Duration(i) * time.Second))
	}
	h, _, leave, _ := f.watch()
	leave()
	if len(h.Samples) != 900 || cap(f.ring) > 900 {
		t.Fatalf("%d samples in room for %d", len(h.Samples), cap(f.ring))
	}
	for i, s := range h.Samples {
		if want := float64(1101 + i); s.RPS != want {
			t.Fatalf("sample %d is %v, want %v", i, s.RPS, want)
		}
	}
	var leaves []func()
	for range maxWatchers {
		_, _, leave, err := f.watch()
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	r := do(New(Config{Node: Node{Feed: f}}), "GET", "/v1/stream", "")
	if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(text(t, r), "too many status pages") {
		t.Errorf("one watcher too many: %s", r.Status)
	}
	leaves[0]()
	if _, _, leave, err := f.watch(); err != nil {
		t.Errorf("after one has left: %v", err)
	} else {
		leave()
	}
}

// What goes over the wire, beyond the time that the listener gives a request;
// and a page that closes leaves.
func TestStream_events(t *testing.T) {
	asked := 0
	f := testFeed(&asked)
	f.turn(time.Unix(1, 0))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: New(Config{Node: Node{Feed: f}}), ReadTimeout: 50 * time.Millisecond}
	go s.Serve(ln)
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+ln.Addr().String()+"/v1/stream", nil)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream" || r.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	in := bufio.NewReader(r.Body)
	event := func() (name, data string) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			line = strings.TrimSuffix(line, "\n")
			if n, ok := strings.CutPrefix(line, "event: "); ok {
				name = n
			} else if d, ok := strings.CutPrefix(line, "data: "); ok {
				data = d
			} else if line == "" {
				return name, data
			}
		}
	}
	name, data := event()
	var h History
	if err := json.Unmarshal([]byte(data), &h); err != nil || name != "history" || len(h.Samples) != 1 {
		t.Errorf("first comes %s %s, %v", name, data, err)
	}
	past := time.After(100 * time.Millisecond) // of the listener's limit
	for i, done := 2, false; !done; i++ {
		f.turn(time.Unix(int64(i), 0))
		var c Cluster
		if name, data = event(); name != "state" || json.Unmarshal([]byte(data), &c) != nil || c.Now.At != int64(i) || c.Members == nil {
			t.Fatalf("then comes %s %s", name, data)
		}
		select {
		case <-past:
			done = true
		default:
		}
	}
	cancel()
	for end := time.Now().Add(20 * time.Second); ; {
		f.mu.Lock()
		n := len(f.watchers)
		f.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a page that is closed still watches")
		}
	}
}

// One event of a full feed, for the largest cluster: what a second costs.
func BenchmarkFeed(b *testing.B) {
	for _, members := range []int{3, 64} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			var c Cluster
			for i := range members {
				m := Member{Name: fmt.Sprintf("edge-%d", i), State: "alive", Summary: &Summary{}}
				for j := range members {
					m.Summary.Holds = append(m.Summary.Holds, Held{Member: fmt.Sprintf("edge-%d", j), State: "live", AgeSeconds: 0.4})
				}
				c.Members = append(c.Members, m)
			}
			f := NewFeed(FeedConfig{Sample: func(now time.Time) Sample { return Sample{At: now.Unix()} }, Cluster: func() Cluster { return c }})
			_, events, leave, err := f.watch()
			if err != nil {
				b.Fatal(err)
			}
			defer leave()
			b.ReportAllocs()
			for b.Loop() {
				f.turn(time.Unix(1, 0))
			}
			b.ReportMetric(float64(len(<-events)), "bytes/event")
		})
	}
}
