//go:build e2e

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var createRounds = flag.Int("create.rounds", 24, "rounds of TestAbsence_createAfterAbsence")

// An absentOrigin knows the paths that were PUT to it, and says of every other
// that it is absent, for a minute. A path below /slow/ is answered a little
// later than it was looked up.
type absentOrigin struct {
	*httptest.Server
	paths    sync.Map
	requests atomic.Int64
}

func startAbsentOrigin(t *testing.T) *absentOrigin {
	t.Helper()
	o := &absentOrigin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.requests.Add(1)
		if r.Method == http.MethodPut {
			io.Copy(io.Discard, r.Body)
			o.paths.Store(r.URL.Path, true)
			w.WriteHeader(http.StatusCreated)
			return
		}
		_, ok := o.paths.Load(r.URL.Path)
		if strings.HasPrefix(r.URL.Path, "/slow/") {
			<-time.After(5 * time.Millisecond)
		}
		w.Header().Set("Cache-Control", "max-age=60")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, "here")
	}))
	t.Cleanup(o.Close)
	return o
}

// threeFor starts a, b and c in front of an origin; more is YAML of the only
// site, and top of the whole.
func (c *cluster) threeFor(origin, more, top string) []*child {
	c.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		var join []string
		if len(c.nodes) > 0 {
			join = []string{c.nodes[0].ready.Gossip}
		}
		file := c.config(name, c.key, join...)
		text := readFile(c.t, file)
		at := strings.Index(text, "sites:")
		writeFile(c.t, file, text[:at]+fmt.Sprintf("sites:\n  - name: www\n    origin: { urls: [%q] }\n%s%s", origin, more, top), 0o600)
		c.nodes = append(c.nodes, startNode(c.t, "-c", file))
	}
	for _, x := range c.nodes {
		eventually(c.t, func() error {
			live := 0
			for _, m := range x.status().Members {
				if !m.Self && m.State == "alive" && m.Replica.State == "live" {
					live++
				}
			}
			if live != 2 {
				return fmt.Errorf("%s holds %d live replicas", x.ready.Name, live)
			}
			return nil
		})
	}
	return c.nodes
}

// What is created through one node, while clients ask all three for it, is
// absent nowhere from then on: at the node that took the write at once, at the
// others 250 ms later at the latest. Every third one is created behind the
// cluster's back, which then is told.
func TestAbsence_createAfterAbsence(t *testing.T) {
	const (
		lanes = 4
		grace = 250 * time.Millisecond
		watch = 300 * time.Millisecond
	)
	c := newCluster(t)
	o := startAbsentOrigin(t)
	nodes := c.threeFor(o.URL, "", "")
	client := newClient(t)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64

	var late, own, asked atomic.Int64
	var mu sync.Mutex
	var worst time.Duration // from the 201 to the last 404
	round := func(i int) error {
		path := fmt.Sprintf("/fast/%d", i)
		if i%2 == 1 {
			path = fmt.Sprintf("/slow/%d", i)
		}
		for _, n := range nodes {
			for range 2 {
				if r, err := n.ask(client, path); err != nil || r.status != 404 {
					return fmt.Errorf("%s before it is created: %d, %v", path, r.status, err)
				}
			}
		}
		writer := i % len(nodes)
		var created atomic.Int64 // when the client knew, in nanoseconds of began
		began := time.Now()
		stop := make(chan struct{})
		errs := make(chan error, len(nodes))
		var wg sync.WaitGroup
		for k, n := range nodes {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					// A request sent once the client knows must not be told
					// otherwise by the node that told it.
					knew, sent := created.Load(), time.Since(began)
					r, err := n.ask(client, path)
					at := int64(time.Since(began))
					asked.Add(1)
					if err != nil || r.status != 404 && r.body != "here" {
						errs <- fmt.Errorf("%s asked for %s: %d %q, %v", n.ready.Name, path, r.status, r.body, err)
						return
					}
					if r.status != 404 {
						continue
					}
					if now := created.Load(); now > 0 && at > now {
						mu.Lock()
						worst = max(worst, time.Duration(at-now))
						mu.Unlock()
						if after := sent - time.Duration(now); after > grace {
							late.Add(1)
							t.Logf("%s says 404 of %s, asked %v after: %s", n.ready.Name, path, after, r.header.Get("Cache-Status"))
						}
					}
					if knew > 0 && k == writer {
						own.Add(1)
						t.Logf("%s itself says 404 of %s: %s", n.ready.Name, path, r.header.Get("Cache-Status"))
					}
				}
			})
		}
		err := nodes[writer].create(client, o, path, i%3 == 2)
		created.Store(int64(time.Since(began)))
		select {
		case <-time.After(watch):
		case err = <-errs:
		}
		close(stop)
		wg.Wait()
		return err
	}

	var next atomic.Int64
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < *createRounds && !t.Failed(); i = int(next.Add(1)) - 1 {
				if err := round(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d rounds, %d requests: the last 404 came %v after a 201", *createRounds, asked.Load(), worst)
	// Where a member could not be told in time, the network is not healthy, and
	// the node that took the write has said so.
	untold := 0.0
	for _, n := range nodes {
		untold += n.sum("edged_purges_total", "incomplete")
	}
	if own.Load() > 0 || late.Load() > 0 && untold == 0 {
		t.Errorf("404 to those who asked later than %v: %d; at the node that took the write: %d; %v members were not told in time", grace, late.Load(), own.Load(), untold)
	}
}

// create makes a path exist: through the node, or at the origin and then by
// telling the node.
func (c *child) create(client *http.Client, o *absentOrigin, path string, told bool) error {
	url, method, body := "http://"+c.ready.Client+path, http.MethodPut, "x"
	if told {
		o.paths.Store(path, true)
		url, method, body = "http://"+c.ready.Admin+"/v1/created", http.MethodPost, `{"urls":["http://www.test`+path+`"]}`
	}
	req, err := http.NewRequest(method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	if !told {
		req.Host = "www.test"
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 || told && !bytes.Contains(text, []byte(`"missing": []`)) {
		return fmt.Errorf("create %s: %d %s, %v", path, resp.StatusCode, text, err)
	}
	return nil
}
