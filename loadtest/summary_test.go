package loadtest

import (
	"strings"
	"testing"
)

func TestSmallRate(t *testing.T) {
	for want, r := range map[string]float64{"0%": 0, "<0.0001%": 3e-9, "0.0003%": 3e-6, "0.0627%": 0.000627, "1.23%": 0.01234} {
		if got := smallRate(r); got != want {
			t.Errorf("%v is written as %s, want %s", r, got, want)
		}
	}
}

// A late driver spoils the latencies, so the row beside them says so, for each
// group of a comparison.
func TestSummary_tellsOfLateStartsBesideTheLatencies(t *testing.T) {
	with := Group{Requests: 100, Driver: DriverReport{LateStarts: 20, LateWakeups: 20, MaxLateMS: 12}}
	with.Driver.Bottleneck = with.Driver.bottleneck(with.Requests)
	var out strings.Builder
	(&Report{Group: with, NoFilters: &Group{Requests: 100}}).summarise(&out)
	lines := strings.Split(out.String(), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "latency max") {
			continue
		}
		if next := lines[i+1]; !strings.HasPrefix(next, "late starts") || !strings.Contains(next, "20 (20.0%), at most by 12.0ms: see the warning") || !strings.HasSuffix(next, "none") {
			t.Errorf("below the latencies: %q", next)
		}
		return
	}
	t.Errorf("no latencies:\n%s", &out)
}

// A control group that could not send all its peer requests makes the filters
// look worse than they are, whatever held them back.
func TestSummary_tellsOfUnsentRPCs(t *testing.T) {
	without := Group{Nodes: make([]NodeReport, 3), Bloom: Bloom{Unknown: 100}, PeerRPCs: 150, PeerRPCsBusy: 10}
	r := Report{Group: Group{Nodes: make([]NodeReport, 3)}, NoFilters: &without, Comparison: &Comparison{}}
	var out strings.Builder
	r.summarise(&out)
	if want := "Without filters 50 more were meant to be sent: 10 found too many in flight"; !strings.Contains(out.String(), want) {
		t.Errorf("the summary lacks %q:\n%s", want, &out)
	}
	without.PeerRPCs, without.PeerRPCsBusy = 200, 0
	out.Reset()
	if r.summarise(&out); strings.Contains(out.String(), "meant to be sent") {
		t.Errorf("all were sent:\n%s", &out)
	}
}

// What is above the expected rate is no fault of the filters', and the line
// says so.
func TestSummary_saysWhyMoreThanExpected(t *testing.T) {
	for want, observed := range map[string]float64{
		"0.4% observed, 0.01% expected (peers had just dropped the others)": 0.004,
		"0.015% observed, 0.01% expected\n":                                 0.00015,
	} {
		expected := 0.0001
		var out strings.Builder
		(&Report{Group: Group{ObservedFalsePositiveRate: &observed, ExpectedFalsePositiveRate: &expected}}).summarise(&out)
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &out)
		}
	}
}
