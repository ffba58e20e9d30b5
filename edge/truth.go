package edge

import (
	"math"
	"sync"
)

// What the filters are worth is watched where it shows: of the look-ups for
// what no peer has, how many drew a request? That is compared with what the
// fill of the replicas says, and with what was planned.

// The causes of a rate that is more than twice what it should be.
const (
	causeKeys    = "keys"    // the filters hold more keys than planned
	causeReplica = "replica" // they don't, so the hash or a replica is at fault
)

var deviationCauses = []string{causeKeys, causeReplica}

const (
	// truthWindow is the number of look-ups that one judgement rests on.
	truthWindow = 10000

	// truthSigmas is how many standard deviations a count must be beyond what
	// is expected to count as more than chance.
	truthSigmas = 5
)

// truth counts the look-ups of one partition whose answer no peer had: those
// that the filters got right, and the false positives. Safe for concurrent
// use.
type truth struct {
	mu           sync.Mutex
	right, wrong int
	said         string // the cause that was last logged
}

func (t *truth) add(wrong bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wrong {
		t.wrong++
	} else {
		t.right++
	}
}

// window takes the counts of a full window and begins another one; not ok
// when it is not full yet.
func (t *truth) window() (wrong, all int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.right+t.wrong < truthWindow {
		return 0, 0, false
	}
	wrong, all = t.wrong, t.right+t.wrong
	t.right, t.wrong = 0, 0
	return wrong, all, true
}

// judgeTruth says what the cause is when wrong of all look-ups are more than
// twice what they should be; "" when they are not. expected is the rate that
// the fill of the replicas stands for, planned the target.
//
// A filter that is nearly empty expects next to nothing, and a single
// coincidence would be many times that; so nothing below a tenth of the target
// is a deviation.
func judgeTruth(wrong, all int, expected, planned float64) (cause string) {
	beyond := func(rate float64) bool {
		n := float64(all) * rate
		return float64(wrong) > 2*n && float64(wrong) > n+truthSigmas*math.Sqrt(n)
	}
	switch {
	case beyond(max(expected, planned/10)):
		return causeReplica
	case beyond(planned):
		return causeKeys
	}
	return ""
}

// watchTruth judges a partition once its window is full, and says so when the
// verdict has changed.
func (n *Node) watchTruth(part int) {
	t := &n.truths[part]
	wrong, all, ok := t.window()
	if !ok {
		return
	}
	p := n.cfg.Cache.Partitions[part]
	expected := n.expectedRate(part, n.gossip.Stats().Replicas)
	cause := judgeTruth(wrong, all, expected, p.FalsePositiveRate)
	for _, c := range deviationCauses {
		v := 0.0
		if c == cause {
			v = 1
		}
		n.metrics.deviation.WithLabelValues(p.Name, c).Set(v)
	}
	if cause == t.said {
		return
	}
	t.said = cause
	args := []any{"partition", p.Name, "observed", float64(wrong) / float64(all), "expected", expected, "planned", p.FalsePositiveRate, "samples", all}
	switch cause {
	case causeKeys:
		n.log.Warn("the filters are wrong more often than planned because they hold more keys than planned: raise filter.keys on all members", args...)
	case causeReplica:
		n.log.Error("the filters are wrong more often than their fill explains: the hash or a replica is at fault", args...)
	default:
		n.log.Info("the filters are wrong as rarely as planned again", args...)
	}
}
