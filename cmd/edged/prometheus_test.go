//go:build prometheus

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests need Prometheus and its promtool (Debian's package prometheus).

func TestPrometheus_toolPassesTheRules(t *testing.T) {
	for _, args := range [][]string{
		{"check", "config", "prometheus.yaml"}, // and the rules that it names
		{"test", "rules", "tests.yaml"},
	} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = filepath.Join(ops, "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// scraper is a running Prometheus.
type scraper struct {
	t    *testing.T
	base string
}

// startPrometheus scrapes the nodes each second and applies the rules of ops/.
// It tries another port when its own has been taken meanwhile.
func startPrometheus(t *testing.T, nodes []*child) *scraper {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(ops, "prometheus"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var targets []string
	for _, n := range nodes {
		targets = append(targets, strconv.Quote(n.ready.Admin))
	}
	config := filepath.Join(dir, "prometheus.yaml")
	writeFile(t, config, fmt.Sprintf(`global: { scrape_interval: 500ms, evaluation_interval: 500ms }
rule_files: [%q, %q]
scrape_configs: [{ job_name: edged, static_configs: [{ targets: [%s] }] }]
`, filepath.Join(rules, "recording.yaml"), filepath.Join(rules, "alerts.yaml"), strings.Join(targets, ", ")), 0o600)

	for range 5 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		ln.Close()
		log := newLines()
		cmd := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exited := make(chan struct{})
		go func() {
			cmd.Wait()
			close(exited)
		}()
		stop := func() {
			cmd.Process.Kill()
			<-exited
		}
		p := &scraper{t, "http://" + addr}
		if p.ready(exited) {
			t.Cleanup(func() {
				stop()
				if t.Failed() {
					t.Logf("prometheus wrote\n%s", log)
				}
			})
			return p
		}
		stop()
		if !strings.Contains(log.String(), "address already in use") {
			t.Fatalf("prometheus does not start:\n%s", log)
		}
	}
	t.Fatal("prometheus found its port taken five times")
	return nil
}

// ready reports whether it answers before it ends.
func (p *scraper) ready(exited <-chan struct{}) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for {
		if r, err := tryGet(p.base + "/-/ready"); err == nil && r.status == http.StatusOK {
			return true
		}
		select {
		case <-exited:
			return false
		case <-end:
			return false
		case <-tick.C:
		}
	}
}

// query returns the values of an instant query.
func (p *scraper) query(expr string) ([]float64, error) {
	r, err := tryGet(p.base + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", r.body, err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	var values []float64
	for _, s := range answer.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// number returns nil once the expression has a value that is a number.
func (p *scraper) number(expr string) error {
	values, err := p.query(expr)
	if err != nil {
		return err
	}
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return nil
		}
	}
	return fmt.Errorf("%d series, none with a number", len(values))
}

// TestPrometheus_showsACluster lets Prometheus scrape three nodes with
// traffic: every recording rule and every query of the dashboard has data,
// every alert can be evaluated, and in health none fires.
func TestPrometheus_showsACluster(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		if strings.HasPrefix(r.URL.Path, "/absent/") {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, r.URL.Path)
	}))
	defer origin.Close()
	// More pages than are asked for before the test ends.
	var catalog strings.Builder
	catalog.WriteString("/hot\n")
	for i := range 50_000 {
		fmt.Fprintf(&catalog, "/page/%d\n", i)
	}
	var nodes []*child
	for _, name := range []string{"a", "b", "c"} {
		join := "127.0.0.1:1"
		if len(nodes) > 0 {
			join = nodes[0].ready.Gossip
		}
		nodes = append(nodes, startWithCatalog(t, name, origin.URL, catalog.String(), join))
	}
	for _, n := range nodes {
		eventually(t, func() error {
			if m := n.metrics(); m[`edged_members{state="alive"}`] != "3" {
				return fmt.Errorf("%s counts %s members", n.ready.Name, m[`edged_members{state="alive"}`])
			}
			return nil
		})
	}
	p := startPrometheus(t, nodes)

	// Traffic of every kind until the test ends: a hit, something from a peer,
	// something absent; and now and then a purge.
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		client := &http.Client{Timeout: deadline}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// What one node stored a second ago, another one asks for: 100 is
			// no multiple of three.
			for j, path := range []string{"/hot", fmt.Sprintf("/page/%d", i), fmt.Sprintf("/page/%d", max(0, i-100)), fmt.Sprintf("/absent/%d", i/8)} {
				resp, err := client.Get("http://" + nodes[(i+j)%3].ready.Client + path)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
			if i%50 == 0 {
				purge := fmt.Sprintf(`{"tags":["purged-%d"]}`, i)
				resp, err := client.Post("http://"+nodes[i/50%3].ready.Admin+"/v1/purge", "application/json", strings.NewReader(purge))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
		}
	}()
	defer func() {
		cancel()
		<-stopped
	}()

	for _, name := range recorded(t) {
		eventually(t, func() error {
			if err := p.number(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", "edged", "$instance", ".*")
	for _, panel := range readDashboard(t) {
		for _, target := range panel.Targets {
			eventually(t, func() error {
				if err := p.number(variables.Replace(target.Expr)); err != nil {
					return fmt.Errorf("panel %q, %s: %w", panel.Title, target.Expr, err)
				}
				return nil
			})
		}
	}

	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Type, Health, LastError, State string }
			}
		}
	}
	eventually(t, func() error {
		if err := json.Unmarshal([]byte(get(t, p.base+"/api/v1/rules").body), &rules); err != nil {
			return err
		}
		var seen int
		for _, g := range rules.Data.Groups {
			for _, r := range g.Rules {
				seen++
				if r.Health != "ok" {
					return fmt.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
				}
				if r.Type == "alerting" && r.State != "inactive" {
					return fmt.Errorf("%s is %s in a healthy cluster", r.Name, r.State)
				}
			}
		}
		if seen == 0 {
			return fmt.Errorf("there are no rules")
		}
		return nil
	})
}
