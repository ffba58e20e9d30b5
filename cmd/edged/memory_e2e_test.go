//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// memory returns a field of a process's status, in bytes: VmRSS is what it
// holds now, VmHWM the most that it ever held.
func (c *child) memory(field string) int64 {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.ready.PID))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return kib << 10
		}
	}
	c.t.Fatalf("no %s in the status of process %d", field, c.ready.PID)
	return 0
}

// An origin that sends 10 MB at 5 MB/s, and 1 000 clients that ask for it at
// once: one origin request a node, the same bytes for all, each one's first
// byte soon after the origin's, and little memory.
func TestMemory_aThousandClientsOnOneColdResponse(t *testing.T) {
	const (
		size    = 10_000_000
		rate    = 5_000_000
		clients = 1000
		growth  = 64 << 20
	)
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(content)
	var requests atomic.Int64
	var firstSent atomic.Int64
	gate := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		<-gate
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Length", strconv.Itoa(size))
		const piece = 50_000
		tick := time.NewTicker(time.Second * piece / rate)
		defer tick.Stop()
		firstSent.CompareAndSwap(0, time.Now().UnixNano())
		for rest := content; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			w.Write(rest[:min(piece, len(rest))])
			w.(http.Flusher).Flush()
			<-tick.C
		}
	}))
	defer origin.Close()

	node := startNode(t, alone(origin.URL)...)
	before := node.memory("VmRSS")
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true, ReadBufferSize: 16 << 10}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: deadline}

	var wg sync.WaitGroup
	lags := make([]time.Duration, clients) // from the origin's first byte to the client's first one of the body
	since := func() time.Duration { return time.Duration(time.Now().UnixNano() - firstSent.Load()) }
	for i := range clients {
		wg.Go(func() {
			resp, err := client.Get("http://" + node.ready.Client + "/big")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			buf := make([]byte, 16<<10)
			for at := 0; ; {
				k, err := resp.Body.Read(buf)
				if at == 0 && k > 0 {
					lags[i] = since()
				}
				if at+k > size || !bytes.Equal(buf[:k], content[at:at+k]) {
					t.Errorf("client %d got other bytes after %d", i, at)
					return
				}
				at += k
				if err == io.EOF && at == size {
					return
				}
				if err != nil {
					t.Errorf("client %d got %d bytes: %v", i, at, err)
					return
				}
			}
		})
	}
	eventually(t, func() error {
		if n := node.sum("edged_collapsed_requests_total"); n != clients-1 {
			return fmt.Errorf("%v requests have joined", n)
		}
		return nil
	})
	close(gate)
	wg.Wait()

	worst := time.Duration(0)
	for _, l := range lags {
		worst = max(worst, l)
	}
	slices.Sort(lags)
	grown := node.memory("VmHWM") - before
	t.Logf("%d clients: %d origin request, first byte after the origin's: median %v, last %v; memory grew by %d MiB at most",
		clients, requests.Load(), lags[clients/2].Round(time.Millisecond), worst.Round(time.Millisecond), grown>>20)
	if requests.Load() != 1 {
		t.Errorf("%d requests reached the origin, want 1", requests.Load())
	}
	if grown > growth {
		t.Errorf("memory grew by %d MiB, want %d at most", grown>>20, growth>>20)
	}
}

// A budget of 64 MiB under 10 GB of distinct responses: the process stays
// below 1.5 times the budget and 80 MiB, and no request fails.
func TestMemory_budgetHoldsUnderTenGigabytes(t *testing.T) {
	const (
		budget = 64 << 20
		total  = 10_000_000_000
		limit  = budget*3/2 + 80<<20
	)
	block := bytes.Repeat([]byte("edged keeps its budget. "), 1<<20/24+1)
	sizes := []int{512, 4 << 10, 20 << 10, 100 << 10, 300 << 10, 1 << 20}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		size := sizes[n%len(sizes)]
		w.Header().Set("Cache-Control", "max-age=3600")
		if n%2 == 0 {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		w.Write(block[:size])
	}))
	defer origin.Close()
	file := filepath.Join(t.TempDir(), "edged.yaml")
	writeFile(t, file, fmt.Sprintf(`
name: a
listen: { address: "127.0.0.1:0" }
admin: { address: "127.0.0.1:0" }
cluster: { gossip: "127.0.0.1:0", peer: "127.0.0.1:0" }
cache: { memory: 64MiB }
sites:
  - { name: www, origin: { urls: [%q] } }
`, origin.URL), 0o600)
	node := startNode(t, "-c", file)

	transport := &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: deadline}
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for done.Load() < total && !t.Failed() {
				n := int(next.Add(1))
				resp, err := client.Get("http://" + node.ready.Client + "/" + strconv.Itoa(n))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || got != int64(sizes[n%len(sizes)]) {
					t.Errorf("response %d: status %d, %d bytes, %v", n, resp.StatusCode, got, err)
					return
				}
				done.Add(got)
			}
		})
	}
	wg.Wait()
	peak := node.memory("VmHWM")
	t.Logf("%d responses, %d MB: the process held %d MiB at most, the store %d of %d MiB",
		next.Load(), done.Load()/1e6, peak>>20, int64(node.sum("edged_store_bytes{"))>>20, int64(node.sum("edged_store_limit_bytes{"))>>20)
	if peak > limit {
		t.Errorf("the process held %d MiB, want %d at most", peak>>20, limit>>20)
	}
	if used, max := node.sum("edged_store_bytes{"), node.sum("edged_store_limit_bytes{"); used > max {
		t.Errorf("the store holds %v bytes of %v", used, max)
	}
}
