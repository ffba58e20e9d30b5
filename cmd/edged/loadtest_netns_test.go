//go:build netns && linux

package main

import (
	"encoding/json"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// links are the names of this machine's network interfaces.
func links(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// A load test cuts a node off in network namespaces of its own: clients and the
// origin still reach it, the other nodes do not; one that is killed there comes
// back. This machine's network is what it was, and nothing is left.
func TestNetns_loadtestPartition(t *testing.T) {
	edgedBinary(t) // built for all tests, so not into this one's directory
	before := links(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // so that its processes can be told from others
	file, out := filepath.Join(dir, "cut.yaml"), filepath.Join(dir, "out")
	writeFile(t, file, `
nodes: 3
keys: 300
phases: [{ duration: 6s, rate: 100, absent: 30%, zipf: 0 }]
faults:
  - { at: 1s, do: partition, node: 2, for: 3s }
  - { at: 4500ms, do: kill, node: 3, for: 200ms }
`, 0o600)
	c := start(t, "loadtest", file, "--report", out)
	if code := c.wait(); code != exitOK {
		t.Fatalf("exit code %d: %s\n%s", code, c.stderr, c.stdout)
	}
	data, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Requests     int64            `json:"requests"`
		WrongAnswers int64            `json:"wrong_answers"`
		RPCResults   map[string]int64 `json:"peer_rpc_results"`
		Events       []struct {
			S     float64 `json:"s"`
			Until float64 `json:"until_s"`
			Text  string  `json:"text"`
			Fault bool    `json:"fault"`
		} `json:"events"`
		Nodes []struct {
			Client         string `json:"client"`
			Requests       int64  `json:"requests"`
			OriginRequests int64  `json:"origin_requests"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if r.Requests < 590 || r.WrongAnswers != 0 || len(r.Nodes) != 3 || r.Nodes[1].OriginRequests == 0 || !strings.HasPrefix(r.Nodes[1].Client, "10.77.0.2:") {
		t.Errorf("%+v\n%s", r, c.stdout)
	}
	// What the filters say the others have can't be fetched.
	if r.RPCResults["timeout"]+r.RPCResults["error"] == 0 || r.RPCResults["hit"] == 0 {
		t.Errorf("peer requests %v: want some that failed", r.RPCResults)
	}
	if len(r.Events) != 2 || !r.Events[0].Fault || r.Events[0].Text != "edge-b cut off from the others for 3s" || math.Abs(r.Events[0].Until-r.Events[0].S-3) > 1e-6 {
		t.Errorf("events %+v", r.Events)
	}
	if page, err := os.ReadFile(filepath.Join(out, "report.html")); err != nil || !strings.Contains(string(page), `<rect class="band"`) || !strings.Contains(string(page), "edge-b cut off") {
		t.Errorf("the page does not mark it: %v", err)
	}

	// Interrupted in a partition, and killed in one.
	c = start(t, "loadtest", file)
	eventually(t, func() error { return contains(c.stdout, "Fault: edge-b cut off") })
	c.signal(syscall.SIGINT)
	if code := c.wait(); code != exitFailure || c.stderr.String() != "edged: interrupted\n" {
		t.Errorf("exit code %d, err %q; want %d and that it was interrupted", code, c.stderr, exitFailure)
	}
	if left := leftOf(t, dir); len(left) > 0 {
		t.Errorf("left after an interrupt: %q", left)
	}
	c = start(t, "loadtest", file)
	eventually(t, func() error { return contains(c.stdout, "Fault: edge-b cut off") })
	c.signal(syscall.SIGKILL)
	c.wait()
	eventually(t, func() error {
		if left := leftOf(t, dir); len(left) > 0 {
			return errLeft(left)
		}
		return nil
	})
	if now := links(t); now != before {
		t.Errorf("interfaces %q, before %q", now, before)
	}
}

type errLeft []string

func (e errLeft) Error() string { return "left after a kill: " + strings.Join(e, " ") }

// Who may not make namespaces learns what is missing, and nothing is started.
func TestNetns_loadtestPartitionWithoutLeave(t *testing.T) {
	edgedBinary(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "cut.yaml")
	writeFile(t, file, "phases: [{ duration: 6s, rate: 100 }]\nfaults: [{ at: 1s, do: partition, node: 2, for: 3s }]\n", 0o600)
	t.Setenv("PATH", dir) // neither ip nor nft
	c := start(t, "loadtest", file)
	if code := c.wait(); code != exitUsage || !strings.Contains(c.stderr.String(), "faults[0]: edge-b cut off from the others for 3s needs network namespaces: want Linux, root, and the programs ip and nft (Debian's iproute2 and nftables)") {
		t.Errorf("exit code %d, err %q", code, c.stderr)
	}
}
