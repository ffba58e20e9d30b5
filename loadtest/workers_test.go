package loadtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// Three driver processes are one: the same requests, counted once.
func TestRun_mergesItsWorkers(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Workers = 3
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Requests != 400 || r.Responses != 400 || r.Errors != 0 || len(r.Disagreements) != 0 || r.Driver.Processes != 3 {
		t.Errorf("%d requests, %d responses, %d errors, %q, %d processes: want 400, 400, none, none, 3", r.Requests, r.Responses, r.Errors, r.Disagreements, r.Driver.Processes)
	}
	if r.LatencyMS.P50 <= 0 || r.LatencyMS.Max < r.LatencyMS.P50 || len(r.Series) == 0 || r.Sources[fromOrigin] == 0 {
		t.Errorf("latency %+v, %d points, sources %v", r.LatencyMS, len(r.Series), r.Sources)
	}
}

func TestRun_withWorkersStopsOnInterrupt(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Workers, o.Duration = 2, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out.text, out.then = "/s  p99", cancel
	r, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || !r.Interrupted || r.Requests == 0 || len(r.Disagreements) != 0 {
		t.Errorf("%v, interrupted %v, %d requests, %q", err, r.Interrupted, r.Requests, r.Disagreements)
	}
}

func TestRun_workersThatFail(t *testing.T) {
	t.Parallel()
	o, _ := quick(t, "workerless")
	o.Workers = 2
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), ": exit status 1: ") || !strings.Contains(err.Error(), "no worker here") {
		t.Errorf("got %v, want the process's exit and words", err)
	}
}

func TestWork_refusesWrongJobs(t *testing.T) {
	for _, in := range []string{"", "{", "[]", `{"of":1}`, `{"scenario":{},"index":1,"of":1}`} {
		if err := Work(t.Context(), strings.NewReader(in), io.Discard); err == nil {
			t.Errorf("%q is a job", in)
		}
	}
}

// What recorders have cut from themselves adds up to what one would have seen.
func TestRecorder_cutsAndMerges(t *testing.T) {
	whole, merged := newRecorder(), newRecorder()
	parts := []*recorder{newRecorder(), newRecorder()}
	at := time.Unix(0, 0)
	for i := range 1000 {
		for _, r := range []*recorder{whole, parts[i%2]} {
			r.sent(time.Duration(i)*20*time.Microsecond, i%3 == 0)
			o := outcome{from: fromHit}
			if i%10 == 0 {
				o = outcome{kind: errTimeout, err: errors.New("x"), resent: true}
			}
			r.done(o, at.Add(time.Duration(i)*time.Millisecond), at)
		}
		if i%100 == 99 {
			for _, p := range parts {
				s, err := p.cut()
				if err != nil {
					t.Fatal(err)
				}
				if err := merged.merge(s); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want, got := whole.tally(), merged.tally()
	if got.latency != want.latency || got.Sent != want.Sent || got.Answered != want.Answered || got.late != want.late || got.Worst != want.Worst ||
		got.Resent != 100 || got.Kinds[errTimeout] != 100 || len(got.samples) != maxErrorSamples {
		t.Errorf("merged %+v, want %+v", got, want)
	}
}
