//go:build e2e

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Three real nodes under a flood of absent keys, with filters and without: the
// filters remove the peer requests and change nothing else.
func TestLoadtest_floodCompared(t *testing.T) {
	dir := t.TempDir()
	c := start(t, "loadtest", "flood", "--compare", "--nodes", "3", "--keys", "2000", "--rate", "250", "--duration", "6s", "--report", dir)
	if code := c.wait(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr)
	}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	type group struct {
		Requests       int64            `json:"requests"`
		Errors         int64            `json:"errors"`
		HitRatio       float64          `json:"hit_ratio"`
		PeerRPCs       int64            `json:"peer_rpcs"`
		OriginRequests int64            `json:"origin_requests"`
		Sources        map[string]int64 `json:"sources"`
		Disagreements  []string         `json:"disagreements"`
	}
	var r struct {
		Filters   group `json:"filters"`
		NoFilters group `json:"no_filters"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	with, without := r.Filters, r.NoFilters
	t.Logf("with filters %+v, without %+v", with, without)
	if with.Requests != 1500 || without.Requests != 1500 || with.Errors+without.Errors != 0 || len(with.Disagreements)+len(without.Disagreements) != 0 {
		t.Errorf("want 1500 requests in each group, no error, and counts that agree")
	}
	if float64(with.PeerRPCs) > 0.06*float64(without.PeerRPCs) {
		t.Errorf("%d peer requests with filters, %d without: want 94%% of them gone", with.PeerRPCs, without.PeerRPCs)
	}
	// On a machine that is busy with other things peers time out and are left
	// alone for a while, so that some hits become requests to the origin.
	unsent := max(2*(without.Requests-without.Sources["hit"])-without.Sources["peer"]-without.PeerRPCs, 0)
	slack := 0.01*float64(without.Requests) + float64(unsent)
	if a, b := float64(with.Sources["origin"]), float64(without.Sources["origin"]); math.Abs(a-b) > slack {
		t.Errorf("%v and %v answers from the origin: want them within %v", a, b, slack)
	}
	if math.Abs(with.HitRatio-without.HitRatio)*float64(without.Requests) > slack {
		t.Errorf("hit ratios %v and %v", with.HitRatio, without.HitRatio)
	}
	for _, g := range []group{with, without} {
		// A peer that takes longer than its budget, as on a machine that is busy,
		// has a request to the origin started beside it.
		if most := g.Sources["origin"] + g.Sources["peer"]; g.OriginRequests > most {
			t.Errorf("%d requests at the origin for %d answers from it or a peer", g.OriginRequests, most)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || len(page) > 1<<20 {
		t.Errorf("the page has %d bytes, %v", len(page), err)
	}
}

// A run in which nodes die, the last of them for good, ends as Ctrl-C wants,
// and nothing of it is left.
func TestLoadtest_interruptedAfterDeaths(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // so that its processes can be told from others
	file := filepath.Join(dir, "deaths.yaml")
	writeFile(t, file, `
nodes: 3
keys: 300
phases: [{ duration: 1m, rate: 200, absent: 50% }]
faults:
  - { at: 500ms, do: kill, node: 2, for: 500ms }
  - { at: 700ms, do: pause, node: 1, for: 30s }
  - { at: 1s, do: kill, node: 3 }
`, 0o600)
	c := start(t, "loadtest", file, "--workers", "2")
	eventually(t, func() error { return contains(c.stdout, "Fault: kill edge-c") })
	c.signal(syscall.SIGINT)
	if code := c.wait(); code != exitFailure || c.stderr.String() != "edged: interrupted\n" {
		t.Errorf("exit code %d, err %q; want %d and that it was interrupted", code, c.stderr, exitFailure)
	}
	if err := contains(c.stdout, "this is what was measured until then"); err != nil {
		t.Error(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		line, _ := os.ReadFile(p) // those that end meanwhile have none
		if text := string(line); strings.Contains(text, dir) {
			t.Errorf("%s is left: %q", p, text)
		}
	}
}
