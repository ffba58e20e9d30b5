package edge

import "testing"

func TestJudgeTruth(t *testing.T) {
	for _, c := range []struct {
		name              string
		wrong, all        int
		expected, planned float64
		want              string
	}{
		{"as planned", 100, 10000, 0.01, 0.01, ""},
		{"none", 0, 10000, 0, 0.01, ""},
		{"a few with empty filters", 15, 10000, 0, 0.01, ""},
		{"many with empty filters", 200, 10000, 0, 0.01, causeReplica},
		{"three times what the fill says", 300, 10000, 0.01, 0.01, causeReplica},
		{"what the fill says, but too full", 500, 10000, 0.05, 0.01, causeKeys},
		{"not quite twice", 190, 10000, 0.01, 0.01, ""},
		{"twice, but of too few to tell", 3, 10000, 0.0001, 0.0001, ""},
	} {
		if got := judgeTruth(c.wrong, c.all, c.expected, c.planned); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTruth_oneJudgementAWindow(t *testing.T) {
	var tr truth
	for i := range truthWindow {
		if _, _, ok := tr.window(); ok {
			t.Fatalf("a window of %d look-ups", i)
		}
		tr.add(i%10 == 0)
	}
	if wrong, all, ok := tr.window(); !ok || wrong != truthWindow/10 || all != truthWindow {
		t.Errorf("got %d of %d, %v", wrong, all, ok)
	}
	if _, _, ok := tr.window(); ok {
		t.Error("a second window of the same look-ups")
	}
}
