package peerfilter

import "math"

// Level is how urgent an [Advice] is.
type Level uint8

// The levels.
const (
	OK      Level = iota
	Warn          // something is not as planned; the filter still serves
	Rebuild       // build a filter of Advice.Keys keys beside this one and swap
)

// String returns the level as logs and metrics show it.
func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	case Rebuild:
		return "rebuild"
	}
	return "unknown"
}

// Reasons of an [Advice]; a fixed set, usable as a metric's label.
const (
	ReasonNone      = "none"
	ReasonLoad      = "load"      // nearly as many keys as planned, or more
	ReasonFill      = "fill"      // more bits set than planned for a full filter
	ReasonDeviation = "deviation" // more or fewer bits set than the keys account for: keys are added twice, or the hash is not uniform
	ReasonPinned    = "pinned"    // counters at their maximum: keys are added twice
	ReasonUnderflow = "underflow" // keys were removed that had not been added
)

// Advice is what to do about a filter.
type Advice struct {
	Level  Level
	Reason string // one of the Reason constants
	Keys   int    // planned keys of the filter to build; only with Rebuild
}

// Watch judges a filter by its statistics.
type Watch struct {
	// Keys is the planned number of keys.
	Keys int
	// RebuildLoad is the share of Keys at which the filter is rebuilt. Higher
	// saves rebuilds, and the rate comes closer to the target. Zero: 0.85.
	RebuildLoad float64
	// Growth is the factor by which a rebuild plans more keys. Zero: 2.
	Growth float64
}

// maxPinned is the share of counters that may be pinned before only a rebuild
// helps: their bits never clear again.
const maxPinned = 0.001

// Advise returns what to do about a filter with statistics s. It is a pure function; the gravest finding wins.
//
// Fill is judged by its formula for the layout and the plan, not by a flat
// share: half of all bits set is 87 % of the load that a filter for 1 % is made
// for, but 136 % of that of one for 0.1 %.
func (w Watch) Advise(s CountingStats) Advice {
	load, growth := w.RebuildLoad, w.Growth
	if load == 0 {
		load = 0.85
	}
	if growth == 0 {
		growth = 2
	}
	if float64(s.Keys) >= load*float64(w.Keys) {
		keys := float64(w.Keys) * growth
		for growth > 1 && float64(s.Keys) >= load*keys {
			keys *= growth
		}
		return Advice{Level: Rebuild, Reason: ReasonLoad, Keys: int(math.Ceil(keys))}
	}
	m := float64(s.Params.Bits())
	expected := Fill(s.Params, float64(s.Keys))
	// The bits of one sector number vary less than binomially. The eight of a
	// block share its keys, so all bits vary by less than sqrt(8) = 2.8 times as
	// much; eight standard deviations are not passed by chance.
	slack := 8 * math.Sqrt(expected*(1-expected)/m)
	switch {
	case float64(s.Pinned) > maxPinned*m:
		return Advice{Level: Rebuild, Reason: ReasonPinned, Keys: w.Keys}
	case s.Underflows > 0:
		return Advice{Level: Warn, Reason: ReasonUnderflow}
	case s.Pinned > 0:
		return Advice{Level: Warn, Reason: ReasonPinned}
	case s.Fill > Fill(s.Params, float64(w.Keys)):
		return Advice{Level: Warn, Reason: ReasonFill}
	case math.Abs(s.Fill-expected) > slack+K/m:
		return Advice{Level: Warn, Reason: ReasonDeviation}
	}
	return Advice{Level: OK, Reason: ReasonNone}
}
