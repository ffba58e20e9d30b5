package gossip

import (
	"fmt"
	"testing"
	"time"
)

// A peer's answer to a pull may hold changes of a third that lie beyond a gap of
// its own: it is not taken for one that has all before them. (It was, so that
// requests to it did not tell what it lacked, and it could answer from before.)
func TestLog_tellsAPeerWhatLiesInItsGap(t *testing.T) {
	third := origin{"c", 3}
	var records []record
	for seq := range uint64(3) {
		records = append(records, record{third, seq + 1, appendChange(nil, &Change{Kind: KindPurge, URLs: []string{fmt.Sprint(seq + 1)}, Stamp: wallStamp(time.Unix(1e9, 0))})})
	}
	a := newLogCore(logConfig{name: "a", boot: 1, base: time.Unix(1e9, 0)}, &clock{}, simRand())
	a.peerUp(0, "b", 2)
	a.takeRecords(0, records[:2])
	p := a.peer("b")
	p.pulling, a.pulls = 1, 1
	a.pulled(0, pullEffect{id: 1, from: "b"}, catchUp{records: records[2:]}, nil)
	told, err := decodeCatchUp(a.carry(0, "b", func(*Change) bool { return true }))
	if err != nil || len(told.records) != 3 {
		t.Errorf("a request tells of %d changes, want 3: %v", len(told.records), err)
	}
}
