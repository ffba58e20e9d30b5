package loadtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestFault_complaints(t *testing.T) {
	for _, tc := range []struct {
		f    Fault
		want string // "" for none
	}{
		{Fault{Do: FaultKill, Node: 1}, ""},
		{Fault{Do: FaultKill, Node: 3, For: time.Second}, ""},
		{Fault{Do: FaultRestart, Node: 1, At: 10 * time.Second}, ""},
		{Fault{Do: FaultSlowOrigin, Latency: time.Second, For: time.Second}, ""},
		{Fault{Do: FaultPartition, Node: 2, For: time.Second}, ""},
		{Fault{Do: FaultPartition, Node: 2}, ".for"},
		{Fault{Do: FaultPartition, For: time.Second}, ".node"},
		{Fault{}, ".do"},
		{Fault{Do: "explode", Node: 1}, ".do"},
		{Fault{Do: FaultKill}, ".node"},
		{Fault{Do: FaultKill, Node: 4}, ".node"},
		{Fault{Do: FaultKill, Node: 1, At: 11 * time.Second}, ".at"},
		{Fault{Do: FaultKill, Node: 1, For: -1}, ".for"},
		{Fault{Do: FaultPause, Node: 1}, ".for"},
		{Fault{Do: FaultSlowOrigin, For: time.Second}, ".latency"},
		{Fault{Do: FaultFailingOrigin, For: time.Second}, ".errors"},
		{Fault{Do: FaultFailingOrigin, For: time.Second, Errors: 1, Node: 1}, ".node"},
	} {
		var got []string
		tc.f.complaints(3, 10*time.Second, func(field, format string, args ...any) { got = append(got, field) })
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%+v: complaints about %q, want %q", tc.f, got, tc.want)
		}
	}
}

func TestReadScenario_faultsThatOverlap(t *testing.T) {
	const head = "phases: [{ duration: 60s, rate: 10 }]\nfaults:\n"
	for _, tc := range []struct {
		name, faults string
		want         string // "" for none
	}{
		{"one after the other", `
  - { at: 10s, do: kill, node: 2, for: 5s }
  - { at: 15s, do: restart, node: 2 }
  - { at: 16s, do: pause, node: 2, for: 1s }
  - { at: 17s, do: kill, node: 2 }`, ""},
		{"of several nodes, and of the origin", `
  - { at: 10s, do: kill, node: 2, for: 5s }
  - { at: 11s, do: pause, node: 1, for: 5s }
  - { at: 11s, do: slow_origin, latency: 1s, for: 5s }
  - { at: 12s, do: slow_origin, latency: 2s, for: 5s }`, ""},
		{"a restart of a node that is dead", `
  - { at: 10s, do: kill, node: 2, for: 5s }
  - { at: 12s, do: restart, node: 2 }`, `4:11: faults[1].at: 12s: kill edge-b for 5s of faults[0] lasts until 15s: want that time or a later one, or another node`},
		{"in whichever order they stand", `
  - { at: 12s, do: pause, node: 2, for: 1s }
  - { at: 10s, do: kill, node: 2, for: 5s }`, `3:11: faults[0].at: 12s: kill edge-b for 5s of faults[1] lasts until 15s: want that time or a later one, or another node`},
		{"a short one in a long one", `
  - { at: 10s, do: pause, node: 1, for: 30s }
  - { at: 40s, do: pause, node: 1, for: 1s }
  - { at: 39s, do: kill, node: 1, for: 1s }`, `5:11: faults[2].at: 39s: pause edge-a for 30s of faults[0] lasts until 40s: want that time or a later one, or another node`},
		{"after a death for good", `
  - { at: 10s, do: kill, node: 1 }
  - { at: 50s, do: pause, node: 1, for: 1s }`, `4:11: faults[1].at: 50s: edge-a is dead since 10s, by faults[0]: want it before that, or a "for" there, after which it is started again`},
		{"at the same time", `
  - { at: 10s, do: restart, node: 1 }
  - { at: 10s, do: restart, node: 1 }`, `4:11: faults[1].at: 10s: restart edge-a of faults[0] is at the same time: want a later one, or another node`},
	} {
		_, err := ReadScenario(strings.NewReader(head + strings.TrimPrefix(tc.faults, "\n")))
		if got := fmt.Sprint(err); tc.want == "" && err != nil || tc.want != "" && got != tc.want {
			t.Errorf("%s: got\n%v\nwant\n%s", tc.name, err, tc.want)
		}
	}
}

func TestFault_partitionNeedsOthersAndANetwork(t *testing.T) {
	_, err := ReadScenario(strings.NewReader("nodes: 1\nphases: [{ duration: 60s, rate: 10 }]\nfaults: [{ at: 1s, do: partition, node: 1, for: 1s }]"))
	if want := "3:24: faults[0].do: a node alone has nobody to be cut off from: want 2 nodes or more"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	o, out := quick(t, "ok")
	o.Scenario, o.Rate, o.Duration = writeLog(t, "phases: [{ duration: 60s, rate: 10 }]\nfaults: [{ at: 1s, do: partition, node: 1, for: 1s }]"), 0, 0
	_, err = Run(t.Context(), o)
	if want := "faults[0]: edge-a cut off from the others for 1s needs network namespaces: want Linux, root"; !errors.Is(err, ErrUsage) || !strings.Contains(fmt.Sprint(err), want) || out.String() != "" {
		t.Errorf("got %v, want %s, and nothing started:\n%s", err, want, out)
	}
}

func TestOrigin_disturbed(t *testing.T) {
	o, err := NewOrigin(OriginConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	failures := func() (n int) {
		for i := range 40 {
			resp, err := http.Get(o.URL() + KeyPath(uint64(i), 10))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusServiceUnavailable {
				n++
			}
		}
		return n
	}
	o.Disturb(Disturbance{Errors: 0.25})
	if n := failures(); n != 10 || o.Counts()[ClassFailed] != 10 || o.Counts()[ClassKey] != 30 {
		t.Errorf("%d of 40 failed, want 10; %v", n, o.Counts())
	}
	o.Disturb(Disturbance{})
	if n := failures(); n != 0 {
		t.Errorf("%d failed afterwards", n)
	}
}

func TestRun_faultsOfTheOrigin(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	file := writeLog(t, `
nodes: 2
keys: 100
phases: [{ duration: 1s, rate: 400, absent: 80% }]
faults:
  - { at: 300ms, do: slow_origin, latency: 50ms, for: 300ms }
  - { at: 600ms, do: failing_origin, errors: 50%, for: 300ms }
  - { at: 300ms, do: pause, node: 1, for: 200ms }
`)
	o.Scenario, o.Rate, o.Duration = file, 0, 0
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.ErrorKinds[errServer] == 0 || r.Errors != r.ErrorKinds[errServer] || r.WrongAnswers != 0 || r.OriginCounts[ClassFailed] == 0 {
		t.Errorf("errors %v, %d wrong answers, origin %v: want server errors alone", r.ErrorKinds, r.WrongAnswers, r.OriginCounts)
	}
	if len(r.Disagreements) != 0 || r.LatencyMS.P99 < 50 {
		t.Errorf("%q; p99 %v", r.Disagreements, r.LatencyMS.P99)
	}
	want := []string{"pause edge-a for 200ms", "origin slow by 50ms for 300ms", "origin fails 50% for 300ms"}
	for _, w := range want {
		if !strings.Contains(fmt.Sprint(r.Events), w) {
			t.Errorf("the events lack %q: %v", w, r.Events)
		}
	}
}

// An origin may fail all along, from when the keys are stored; a fault that is
// worse prevails for its time.
func TestRun_originThatFails(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Scenario = writeLog(t, `
nodes: 2
keys: 100
origin: { errors: 25% }
phases: [{ duration: 1s, rate: 400, absent: 80% }]
faults:
  - { at: 400ms, do: failing_origin, errors: 100%, for: 100ms }
  - { at: 600ms, do: failing_origin, errors: 1%, for: 100ms }
`)
	o.Rate, o.Duration = 0, 0
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A quarter, and of 100 of the 1000 ms three quarters more.
	failed, asked := r.OriginCounts[ClassFailed], total(r.OriginCounts)
	if share := float64(failed) / float64(asked); share < 0.26 || share > 0.45 || r.Errors == 0 || r.WrongAnswers != 0 || len(r.Disagreements) != 0 {
		t.Errorf("%d of %d answers failed; errors %v, %d wrong answers, %q", failed, asked, r.ErrorKinds, r.WrongAnswers, r.Disagreements)
	}
	if want := fmt.Sprintf("The origin failed on purpose: %d answers with 503.", failed); !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out)
	}
	o.Targets, o.Nodes = []string{"http://127.0.0.1:1"}, 0
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "origin.errors") {
		t.Errorf("with targets: %v", err)
	}
}

// A node that is killed and comes back keeps what it had counted before. A fault
// that comes while it still starts waits.
func TestRun_faultsOfNodes(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Scenario = writeLog(t, `
nodes: 2
keys: 100
phases: [{ duration: 3s, rate: 200, absent: 50% }]
faults:
  - { at: 1200ms, do: kill, node: 2, for: 200ms }
  - { at: 1400ms, do: restart, node: 2 }
  - { at: 500ms, do: restart, node: 1 }
`)
	o.Rate, o.Duration = 0, 0
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Unchecked == "" || len(r.Disagreements) != 0 || r.WrongAnswers != 0 {
		t.Errorf("unchecked %q, %q, errors %v", r.Unchecked, r.Disagreements, r.ErrorKinds)
	}
	for _, n := range r.Nodes {
		if n.Died || n.Requests < 50 || n.Requests > 600 {
			t.Errorf("node %s: died %v, %d requests", n.Name, n.Died, n.Requests)
		}
	}
	if text := out.String(); strings.Contains(text, "died") || !strings.Contains(text, "Fault: kill edge-b for 200ms") || !strings.Contains(text, "The counts were not compared") {
		t.Errorf("the output:\n%s", text)
	}
}
