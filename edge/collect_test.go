package edge

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestCollect_replication: what is to be seen of the filters' way between
// members is there from the start.
func TestCollect_replication(t *testing.T) {
	o := newOrigin(t, content)
	nodes := startCluster(t, 2, o.URL, nil)
	resp, err := http.Get("http://" + nodes[0].Addrs().Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`edged_replica_seq_lag{peer="edge-b"} 0`, `edged_replica_gaps_total{peer="edge-b"} `,
		"edged_replica_apply_lag_seconds_bucket{le=\"0.005\"} ", "edged_replica_apply_lag_seconds_count ",
		`edged_gossip_messages_total{path="udp"} `, `edged_gossip_messages_total{path="tcp"} `, `edged_gossip_messages_total{path="http"} `,
		"edged_gossip_send_queue ", "edged_gossip_handoff_drops_total 0", `edged_gossip_refused_total{reason="not_tls"} 0`,
		`edged_probe_missed_total{class="diverged"} 0`, `edged_probe_missed_total{class="late"} 0`, "edged_missed_peer_hits_estimate_high 1",
		"edged_probe_samples_total{result=\"absent\"} 0",
	} {
		if !strings.Contains(string(b), "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
}
