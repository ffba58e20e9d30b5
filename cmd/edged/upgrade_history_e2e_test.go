//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"edged/edge/admin"
)

// TestE2E_upgradeHistory replaces a member's process again and again while
// others change the origin and purge through its neighbour, and through itself:
// no answer that was asked for after a purge had been acknowledged by all is
// older than that purge, whichever process gives it.
func TestE2E_upgradeHistory(t *testing.T) {
	const keys = 8
	var versions, purged [keys]atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/k"))
		if err != nil || key < 0 || key >= keys {
			http.NotFound(w, r)
			return
		}
		v := versions[key].Load()
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // the origin's own time
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, v))
		w.Header().Set("Surrogate-Key", fmt.Sprintf("key-%d", key))
		fmt.Fprint(w, v)
	}))
	defer origin.Close()
	pid := os.Getpid()
	gossip := fmt.Sprintf("127.%d.%d.%d:7947", 1+pid>>16&0x7f, pid>>8&0xff, 1+pid&0x7f)
	other := startNode(t, alone(origin.URL)...)
	g := startGenerations(t, append(alone(origin.URL), "--name", "b", "--gossip", gossip, "--join", other.ready.Gossip)...)
	first := g.ready(1)
	eventually(t, func() error { return other.alive("2") })

	var wg sync.WaitGroup
	var reads, calls, refused atomic.Int64
	stop := make(chan struct{})
	defer wg.Wait()
	until := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for range 8 {
		client := &http.Client{Transport: &http.Transport{}, Timeout: deadline}
		t.Cleanup(client.CloseIdleConnections)
		until(func() {
			key := rand.IntN(keys)
			least := purged[key].Load()
			r, _ := http.NewRequest("GET", fmt.Sprintf("http://%s/k%d", first.Client, key), nil)
			r.Host = "www"
			resp, err := client.Do(r)
			if err != nil {
				t.Errorf("a reader: %v", err)
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if v, bad := strconv.ParseInt(string(b), 10, 64); err != nil || bad != nil || v < least {
				t.Errorf("key %d is answered %q, %v, and all below %d had been purged (%s)", key, b, err, least, resp.Header.Get("Cache-Status"))
			}
			reads.Add(1)
		})
	}
	for w, addr := range []string{other.ready.Admin, first.Admin} { // each has its own keys
		client := &http.Client{Transport: &http.Transport{}, Timeout: deadline}
		t.Cleanup(client.CloseIdleConnections)
		until(func() {
			key := 2*rand.IntN(keys/2) + w
			v := versions[key].Add(1)
			what := fmt.Sprintf(`{"urls":["http://www/k%d"]}`, key)
			if rand.IntN(2) == 0 {
				what = fmt.Sprintf(`{"tags":["key-%d"]}`, key)
			}
			var res admin.PurgeResult
			if err := postJSON(client, "http://"+addr+"/v1/purge", what, &res); err != nil || len(res.Missing) > 0 {
				refused.Add(1) // a process that hands over says so
			} else {
				purged[key].Store(v)
				calls.Add(1)
			}
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		})
	}
	before := first.PID
	for n, began := 2, time.Now(); n <= 3 || time.Since(began) < *trafficFor; n++ {
		if err := syscall.Kill(before, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		now := g.ready(n)
		g.gone(before)
		before = now.PID
		eventually(t, func() error { return other.alive("2") })
	}
	close(stop)
	wg.Wait()
	t.Logf("%d reads, %d purges by all, %d refused or missed", reads.Load(), calls.Load(), refused.Load())
	if reads.Load() < 100 || calls.Load() < 20 {
		t.Error("too little was read or purged")
	}
}

// postJSON posts to an admin API.
func postJSON(client *http.Client, url, body string, answer any) error {
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	if err == nil {
		err = json.Unmarshal(b, answer)
	}
	return err
}
