package loadtest

import "testing"

func TestKeySets_ofTheNodesOwnCounts(t *testing.T) {
	node := counters{
		hasKeys: true, stored: 100, keyBytes: 3000, capacity: 1000, changes: 10, changeBytes: 320,
		filterBytes: 5000, replicaBytes: 2000, delta: 900, records: 600, falsePositives: 2,
		rpcs: map[string]int64{"hit": 50, "miss": 4, "stale": 3, "timeout": 9},
	}
	got := keySetsOf([]counters{node, node, node})
	want := KeySets{
		Keys: 300, Planned: 3000, Changes: 30,
		Filters: KeySet{MemoryBytes: 21000, PlannedBytes: 21000, SentBytes: 2700, WastedRPCs: 21},
		// Each of the three holds 200 keys of others, and sends each change to two.
		Hashes: KeySet{MemoryBytes: 600 * 16, PlannedBytes: 6000 * 16, SentBytes: 900 + 60*16, WastedRPCs: 15},
		Whole:  KeySet{MemoryBytes: 600 * 30, PlannedBytes: 6000 * 30, SentBytes: 900 + 60*32, WastedRPCs: 15},
	}
	if got == nil || *got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := keySetsOf([]counters{node}); got != nil {
		t.Errorf("a node alone has key sets: %+v", got)
	}
	if got := keySetsOf([]counters{node, {}}); got != nil {
		t.Errorf("a node that does not say has key sets: %+v", got)
	}
}

func TestComparison_saysWhatIsEqual(t *testing.T) {
	group := func(origin, wrong int64, hits float64) *Group {
		return &Group{Requests: 2000, OriginRequests: origin, WrongAnswers: wrong, HitRatio: hits, counted: true}
	}
	for _, tc := range []struct {
		name            string
		with, without   *Group
		origin, answers bool
	}{
		{"the same", group(1000, 0, 0.5), group(1000, 0, 0.5), true, true},
		{"just within", group(1000, 0, 0.5), group(990, 0, 0.491), true, true},
		{"just beyond", group(1000, 0, 0.5), group(989, 0, 0.489), false, false},
		{"more with filters", group(1012, 0, 0.5), group(1000, 0, 0.5), false, true},
		{"a wrong answer", group(1000, 0, 0.5), group(1000, 1, 0.5), true, false},
		{"nothing at the origin", group(0, 0, 1), group(0, 0, 1), true, true},
	} {
		c := compare(tc.with, tc.without, nil)
		if c.OriginRequestsEqual != tc.origin || c.AnswersEqual != tc.answers {
			t.Errorf("%s: origin requests equal %v, answers %v", tc.name, c.OriginRequestsEqual, c.AnswersEqual)
		}
		lines := c.lines(&Report{Group: *tc.with, NoFilters: tc.without})
		if len(lines) != 2 || lines[0].Bad == tc.origin || lines[1].Bad == tc.answers {
			t.Errorf("%s: %+v", tc.name, lines)
		}
	}
}
