package loadtest

import (
	"strings"
	"testing"
	"time"
)

func TestPhaseColumn(t *testing.T) {
	hot := []Phase{{Name: "before", Duration: 10 * time.Second}, {Duration: 10 * time.Second}, {Name: "end", Duration: time.Second}}
	for s, want := range map[float64]string{
		0: "before   ", 10: "before   ", 10.01: "before   ", 11: "phase 2  ", 20.02: "phase 2  ", 21: "end      ", 25: "end      ",
	} {
		if got := phaseColumn(hot, s); got != want {
			t.Errorf("the second up to %v: %q, want %q", s, got, want)
		}
	}
	if got := phaseColumn(hot[:1], 1); got != "" {
		t.Errorf("a single phase shows as %q", got)
	}
}

func TestRun_announces(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		want []string
	}{
		{Options{Scenario: "hot", Compare: true}, []string{
			"Scenario hot: a flash crowd",
			"Phases: before 10s at 1000/s, crowd 10s at 3000/s, after 10s at 1000/s. --rate is that of the busiest one",
			"It takes about 2m12s: 1m30s of measuring in three runs, and about 42s to prepare.",
		}},
		{Options{Scenario: "churn", Targets: []string{"http://127.0.0.1:1"}}, []string{"It takes about 31s: 30s of measuring, and about 1s to prepare."}},
	} {
		s, err := scenarioOf(tc.o)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		(&runner{opts: tc.o, out: &out}).announce(s)
		for _, want := range tc.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q lacks %q", s.Name, out.String(), want)
			}
		}
		if len(s.Phases) == 1 && strings.Contains(out.String(), "Phases") {
			t.Errorf("%s: %q tells of one phase", s.Name, out.String())
		}
	}
}
