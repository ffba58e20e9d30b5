//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"

	"edged/edge/admin"
)

// TestCluster_stoppedProcessMissesPurges: a process is stopped (SIGSTOP, as a
// paused machine would be) while something is purged, and so long that nobody's
// log tells what. Membership never told it that the others were out of reach.
// The first answer that it gives is validated already, and everything that it
// has stored is, once.
func TestCluster_stoppedProcessMissesPurges(t *testing.T) {
	o := &versionedOrigin{}
	c := newCluster(t)
	c.origin.Close()
	c.origin = &testOrigin{Server: httptest.NewServer(o)}
	t.Cleanup(c.origin.Close)
	a, b, stopped := c.three()
	client := newClient(t)
	ask := func(key int) (body, status string) {
		t.Helper()
		r, err := stopped.ask(client, fmt.Sprintf("/k%d", key))
		if err != nil || r.status != 200 {
			t.Fatalf("key %d: %+v, %v", key, r, err)
		}
		return r.body, r.header.Get("Cache-Status")
	}
	for key := range o.versions {
		eventually(t, func() error {
			if _, cs := ask(key); !strings.Contains(cs, "; hit; ttl=") {
				return fmt.Errorf("key %d is not stored: %s", key, cs)
			}
			return nil
		})
	}

	stopped.signal(syscall.SIGSTOP)
	for _, n := range []*child{a, b} {
		eventually(t, func() error {
			if f := n.sum("edged_members", `state="failed"`); f != 1 {
				return fmt.Errorf("%s knows of %v failed members", n.ready.Name, f)
			}
			return nil
		})
	}
	o.versions[0].Add(1)
	if got := command(t, "", "purge", "--admin", a.ready.Admin, "--tag", "key-0"); got.code != exitFailure || !strings.Contains(got.out, "  b: applied") || !strings.Contains(got.out, "  c: unreachable\n") {
		t.Errorf("purge: %+v", got)
	}
	overflow(t, 1, func(body string) (res admin.PurgeResult) {
		resp, err := client.Post("http://"+a.ready.Admin+"/v1/purge", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&res); err != nil {
			t.Fatal(err)
		}
		return res
	})
	for _, n := range []*child{a, b} {
		eventually(t, func() error { return overflowed(n.sum("edged_purge_log_bytes", `place="memory"`)) })
	}

	// A request that waits for the process when it goes on.
	sent := make(chan struct{})
	first := make(chan *http.Response, 1)
	req, err := http.NewRequest(http.MethodGet, "http://"+stopped.ready.Client+"/k0", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "www.test"
	req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }}))
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
		}
		first <- resp
	}()
	<-sent
	stopped.signal(syscall.SIGCONT)
	if resp := <-first; resp != nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "1" {
			t.Errorf("the first answer is %q (%s), %v: want what has been there since the purge", body, resp.Header.Get("Cache-Status"), err)
		}
	}
	eventually(t, func() error {
		if lost, synced := stopped.sum("edged_purge_lost_total"), stopped.sum("edged_purge_log_state", `state="synced"`); lost != 1 || synced != 1 {
			return fmt.Errorf("purges were lost %v times, in step: %v", lost, synced)
		}
		return nil
	})
	full := o.full.Load()
	for key := range o.versions {
		want := fmt.Sprint(o.versions[key].Load())
		body, cs := ask(key)
		if body != want || key > 0 && !strings.Contains(cs, "fwd=stale; fwd-status=304") {
			t.Errorf("key %d, version %s: %q, %s", key, want, body, cs)
		}
		if body, cs = ask(key); body != want || !strings.Contains(cs, "; hit; ttl=") {
			t.Errorf("key %d, once more: %q, %s", key, body, cs)
		}
	}
	if n := o.full.Load() - full; n != 0 {
		t.Errorf("%d keys were fetched whole, want all validated", n)
	}
}
