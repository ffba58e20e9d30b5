//go:build wrk

package loadtest

import (
	"bufio"
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The driver beside wrk (https://github.com/wg/wrk), both against a bare server
// in a process of its own, one after the other. It prints what each reached;
// what it wants is that the driver's schedule was kept.
func TestDriver_besideWrk(t *testing.T) {
	server := exec.Command(fake(t, "bare"))
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		server.Wait()
	}()
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = strings.TrimSpace(addr)
	const connections = 64
	out, err := exec.Command("wrk", "-t2", "-c"+strconv.Itoa(connections), "-d5s", "http://"+addr+"/").CombinedOutput()
	if err != nil {
		t.Fatalf("wrk: %v\n%s", err, out)
	}
	m := regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("wrk says no rate:\n%s", out)
	}
	wrk, _ := strconv.ParseFloat(string(m[1]), 64)
	t.Logf("wrk: %.0f/s", wrk)
	for _, share := range []float64{0.6, 0.7, 0.8, 0.9} {
		const length = 4 * time.Second
		got := driveBare(t.Context(), addr, share*wrk, length, connections)
		took := got.end.Sub(got.start).Seconds()
		scheduled := share * wrk * length.Seconds()
		t.Logf("driver at %.0f%% of that: %d of %.0f scheduled sent in %.3f s (%.0f/s), %d errors, p50 %.2f ms, p99 %.2f ms, %d late starts, %d of them without CPU",
			100*share, got.Sent, scheduled, took, float64(got.Sent)/took, got.errors, got.latency.P50, got.latency.P99, got.late, got.Asleep)
		if got.errors != 0 || float64(got.Sent) < 0.99*scheduled || float64(got.Sent) > 1.01*scheduled {
			t.Errorf("%d sent with %d errors: want %.0f and none", got.Sent, got.errors, scheduled)
		}
	}
}

// driveBare sends so many requests a second to a bare server.
func driveBare(ctx context.Context, addr string, rate float64, d time.Duration, workers int) tally {
	s := onePhase(Phase{Duration: d, Rate: rate, Absent: 1})
	rec := newRecorder()
	newDriver([]string{addr}, "host.test", workers, rec).run(ctx, newSchedule(s, 1), time.Now(), d, requestTimeout)
	return rec.tally()
}
