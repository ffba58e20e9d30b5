//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"edged/loadtest"
)

// comparedGroup is a part of report.json.
type comparedGroup struct {
	Requests       int64            `json:"requests"`
	Errors         int64            `json:"errors"`
	HitRatio       float64          `json:"hit_ratio"`
	PeerRPCs       int64            `json:"peer_rpcs"`
	PeerRPCsBusy   int64            `json:"peer_rpcs_busy"`
	PeerRPCResults map[string]int64 `json:"peer_rpc_results"`
	ShieldRequests int64            `json:"shield_requests"`
	OriginRequests int64            `json:"origin_requests"`
	Bloom          struct {
		Unknown int64 `json:"unknown"`
	} `json:"bloom"`
	KeySets *struct {
		Keys    int64 `json:"keys"`
		Changes int64 `json:"changes"`
		Filters struct {
			MemoryBytes int64 `json:"memory_bytes"`
			SentBytes   int64 `json:"sent_bytes"`
			WastedRPCs  int64 `json:"wasted_rpcs"`
		} `json:"filters"`
		Hashes struct {
			PlannedBytes int64 `json:"planned_bytes"`
			SentBytes    int64 `json:"sent_bytes"`
			WastedRPCs   int64 `json:"wasted_rpcs"`
		} `json:"hashes"`
	} `json:"key_sets"`
	Disagreements []string `json:"disagreements"`
}

// disturbed reports whether the machine stood still for so long that peers
// missed their budget of 30 ms, or were left alone after it: the origin was asked
// in their place, so that the groups were not asked for the same.
func (g comparedGroup) disturbed() bool {
	meant := int64(0) // requests to peers
	if g.Bloom.Unknown > 0 {
		meant = 2 * g.Bloom.Unknown
	}
	return g.PeerRPCsBusy > 0 || g.PeerRPCResults["timeout"]+g.PeerRPCResults["error"] > 0 || g.PeerRPCs < meant
}

// Three real nodes under a flood of absent keys, with filters, without, and with
// the ring alone: the filters remove the peer requests and change nothing else.
func TestLoadtest_floodCompared(t *testing.T) {
	var r struct {
		Filters    comparedGroup `json:"filters"`
		NoFilters  comparedGroup `json:"no_filters"`
		RingOnly   comparedGroup `json:"ring_only"`
		Comparison struct {
			OriginRequestsEqual bool `json:"origin_requests_equal"`
			AnswersEqual        bool `json:"answers_equal"`
		} `json:"comparison"`
	}
	dir := t.TempDir()
	var c *child
	// The bound of 1 % is for groups that were asked for the same. A machine that
	// stood still meanwhile says nothing, so the run is repeated, not the bound
	// widened.
	for try := 1; ; try++ {
		c = start(t, "loadtest", "flood", "--compare", "--nodes", "3", "--keys", "2000", "--rate", "200", "--duration", "5s", "--report", dir)
		if code := c.wait(); code != exitOK {
			t.Fatalf("exit code %d: %s", code, c.stderr)
		}
		data, err := os.ReadFile(filepath.Join(dir, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		if r.Comparison.OriginRequestsEqual && r.Comparison.AnswersEqual || try == 4 || !r.Filters.disturbed() && !r.NoFilters.disturbed() {
			break
		}
		t.Logf("run %d was disturbed: %+v, without %+v", try, r.Filters, r.NoFilters)
	}
	with, without, ring := r.Filters, r.NoFilters, r.RingOnly
	t.Logf("with filters %+v, without %+v, with the ring only %+v", with, without, ring)
	for _, g := range []comparedGroup{with, without, ring} {
		if g.Requests != 1000 || g.Errors != 0 || len(g.Disagreements) != 0 {
			t.Errorf("want 1000 requests in each group, no error, and counts that agree: %+v", g)
		}
	}
	if float64(with.PeerRPCs) > 0.06*float64(without.PeerRPCs) {
		t.Errorf("%d peer requests with filters, %d without: want 94%% of them gone", with.PeerRPCs, without.PeerRPCs)
	}
	if a, b := float64(with.OriginRequests), float64(without.OriginRequests); math.Abs(a-b) > 0.01*max(a, b) {
		t.Errorf("%v and %v requests at the origin: want them within 1%%", a, b)
	}
	if math.Abs(with.HitRatio-without.HitRatio) > 0.01 {
		t.Errorf("hit ratios %v and %v", with.HitRatio, without.HitRatio)
	}
	// Two of three look-ups are for keys of another owner.
	if ring.PeerRPCs != 0 || ring.ShieldRequests < 400 {
		t.Errorf("with the ring only %d requests to peers and %d to owners", ring.PeerRPCs, ring.ShieldRequests)
	}
	if k := with.KeySets; k == nil || k.Keys < 2000 || k.Changes == 0 || k.Filters.MemoryBytes == 0 || k.Filters.SentBytes == 0 || k.Hashes.SentBytes == 0 || k.Hashes.WastedRPCs > k.Filters.WastedRPCs || k.Hashes.PlannedBytes != 2*300_000*16 {
		t.Errorf("filters beside exact key sets: %+v", k)
	}
	for _, want := range []string{"Origin requests: ", "exact hashes, calculated"} {
		if err := contains(c.stdout, want); err != nil {
			t.Error(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || len(page) > 1_000_000 {
		t.Errorf("the page has %d bytes, %v", len(page), err)
	}
}

// A run in which nodes die, the last of them for good, ends as Ctrl-C wants,
// and nothing of it is left.
func TestLoadtest_interruptedAfterDeaths(t *testing.T) {
	edgedBinary(t) // built for all tests, so not into this one's directory
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
	if left := leftOf(t, dir); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
}

// childrenOf are the processes that a process has started and that are not gone.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		data, _ := os.ReadFile(file) // those that end meanwhile have none
		text := string(data)
		// PID (NAME) STATE PARENT, and a name may have anything in it.
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			pid, _, _ := strings.Cut(text, " ")
			if n, err := strconv.Atoi(pid); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// Every scenario comes to its end, and ends everything that it has started: by
// itself, and by Ctrl-C after a node has died.
func TestLoadtest_everyScenarioStopsWhatItStarted(t *testing.T) {
	edgedBinary(t) // built for all tests, so not into this one's directory
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // of all files
	t.Run("runs", func(t *testing.T) {
		for _, s := range loadtest.Scenarios() {
			args := []string{"loadtest", s.Name, "--keys", "300", "--rate", "200"}
			run := func(t *testing.T, duration string) (c *child, nodes []int) {
				t.Parallel()
				c = start(t, append(args, "--duration", duration)...)
				eventually(t, func() error {
					if nodes = childrenOf(t, c.cmd.Process.Pid); len(nodes) != 3 {
						return fmt.Errorf("processes %v, want 3 nodes", nodes)
					}
					return nil
				})
				eventually(t, func() error { return contains(c.stdout, "Measuring ") })
				return c, nodes
			}
			gone := func(t *testing.T, nodes []int) {
				for _, pid := range nodes {
					line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
					if strings.Contains(string(line), dir) {
						t.Errorf("node %d is left", pid)
					}
				}
			}
			t.Run(s.Name, func(t *testing.T) {
				c, nodes := run(t, "1s")
				if code := c.wait(); code != exitOK {
					t.Errorf("exit code %d: %s\n%s", code, c.stderr, c.stdout)
				}
				gone(t, nodes)
			})
			t.Run(s.Name+", a death and Ctrl-C", func(t *testing.T) {
				c, nodes := run(t, "1m")
				if err := syscall.Kill(nodes[1], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				eventually(t, func() error { return contains(c.stdout, " died: signal: killed") })
				c.signal(syscall.SIGINT)
				if code := c.wait(); code != exitFailure || c.stderr.String() != "edged: interrupted\n" {
					t.Errorf("exit code %d, err %q; want %d and that it was interrupted", code, c.stderr, exitFailure)
				}
				gone(t, nodes)
			})
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}
