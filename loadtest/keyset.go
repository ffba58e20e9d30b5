package loadtest

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// hashBytes is what a key's hash takes: 128 bits, of which no two keys that a
// cluster will ever see have the same. Of 64 bits some will, and a set of them
// is a filter itself, with a rate of keys by 2^64.
const hashBytes = 16

// KeySets sets the filters beside what the nodes would have had to hold and to
// send, had they told each other their exact keys in the same messages.
//
// The filters' numbers are what the nodes measured. Those of the exact sets are
// calculated, from the nodes' own counts of the keys that they store and of
// those that came and went. A mode of the node that really does it would be
// heavier by a second wire form and a second look-up, and could not show less
// than this: calculated as here, an exact set has no tables, no free room and no
// coding, and its changes are in the filters' frames.
type KeySets struct {
	Keys    int64 `json:"keys"`    // stored at the end, all nodes together
	Planned int64 `json:"planned"` // that the filters have room for
	Changes int64 `json:"changes"` // keys that came or went during the run

	Filters KeySet `json:"filters"` // measured
	Hashes  KeySet `json:"hashes"`  // exact, calculated: 16 bytes of each key
	Whole   KeySet `json:"whole"`   // exact, calculated: the keys themselves
}

// KeySet is one form in which nodes can know each other's keys. All numbers are
// those of all nodes together.
type KeySet struct {
	// MemoryBytes is what holding the others' keys takes, and of filters the own
	// counters, too: an exact set of the own keys is in the store already.
	MemoryBytes int64 `json:"memory_bytes"`
	// PlannedBytes is the same with as many keys as the filters are planned for.
	PlannedBytes int64 `json:"planned_bytes"`
	// SentBytes are the messages with changes, as they came up during the run.
	SentBytes int64 `json:"sent_bytes"`
	// WastedRPCs were answered by a peer that had nothing, or nothing usable.
	// What remains of them with an exact set comes from replicas that are late.
	WastedRPCs int64 `json:"wasted_rpcs"`
}

// keySetsOf returns nil when the nodes do not say, or have nobody to tell.
func keySetsOf(counts []counters) *KeySets {
	peers := int64(len(counts) - 1)
	if peers < 1 {
		return nil
	}
	k := &KeySets{}
	var keyBytes, changeBytes, frames, falsePositives int64
	for _, c := range counts {
		if !c.hasKeys {
			return nil
		}
		k.Keys += c.stored
		k.Planned += c.capacity
		k.Changes += c.changes
		keyBytes += c.keyBytes
		changeBytes += c.changeBytes
		frames += c.delta - c.records
		falsePositives += c.falsePositives
		k.Filters.MemoryBytes += c.filterBytes + c.replicaBytes
		k.Filters.SentBytes += c.delta
		k.Filters.WastedRPCs += c.rpcs["miss"] + c.rpcs["stale"]
	}
	k.Filters.PlannedBytes = k.Filters.MemoryBytes // made for them from the start
	length := 0.0
	if k.Keys > 0 {
		length = float64(keyBytes) / float64(k.Keys)
	}
	// What is probed of the negatives is no RPC, and few of it false positives.
	wasted := max(k.Filters.WastedRPCs-falsePositives, 0)
	k.Hashes = KeySet{
		MemoryBytes:  peers * k.Keys * hashBytes,
		PlannedBytes: peers * k.Planned * hashBytes,
		SentBytes:    frames + peers*k.Changes*hashBytes,
		WastedRPCs:   wasted,
	}
	k.Whole = KeySet{
		MemoryBytes:  peers * keyBytes,
		PlannedBytes: int64(float64(peers*k.Planned) * length),
		SentBytes:    frames + peers*changeBytes,
		WastedRPCs:   wasted,
	}
	return k
}

// keySetRow is one line of the comparison: a name and the three values.
type keySetRow struct {
	Name   string
	Values [3]string
}

// keySetColumns name the three values of a row.
var keySetColumns = [3]string{"filters, measured", "exact hashes, calculated", "exact keys, calculated"}

// Rows are the comparison as it is shown.
func (k *KeySets) Rows() []keySetRow {
	row := func(name string, value func(KeySet) string) keySetRow {
		return keySetRow{name, [3]string{value(k.Filters), value(k.Hashes), value(k.Whole)}}
	}
	return []keySetRow{
		row(fmt.Sprintf("memory, %d keys stored", k.Keys), func(s KeySet) string { return kib(s.MemoryBytes) }),
		row(fmt.Sprintf("memory, %d as planned", k.Planned), func(s KeySet) string { return kib(s.PlannedBytes) }),
		row(fmt.Sprintf("sent for %d changes", k.Changes), func(s KeySet) string { return kib(s.SentBytes) }),
		row("wasted RPCs", func(s KeySet) string { return fmt.Sprint(s.WastedRPCs) }),
	}
}

// KeySetsNote says where the numbers come from.
const keySetsNote = "The exact sets are calculated from the nodes' own counts of key changes and sent in the filters' frames: 16 bytes of hash or the whole key a change, without tables, so they would take more. Their wasted RPCs come from replicas that are late, or from what is stored and unusable."

// Note says where the numbers come from.
func (k *KeySets) Note() string { return keySetsNote }

// Columns name the values of a row.
func (k *KeySets) Columns() [3]string { return keySetColumns }

func (k *KeySets) summarise(w io.Writer) {
	fmt.Fprintln(w, "\nFilters beside exact key sets, replicated the same way, all nodes together:")
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "\t%s\t%s\t%s\n", keySetColumns[0], keySetColumns[1], keySetColumns[2])
	for _, r := range k.Rows() {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.Name, r.Values[0], r.Values[1], r.Values[2])
	}
	tw.Flush()
	fmt.Fprintln(w, keySetsNote)
}

// kib writes a number of bytes with a unit.
func kib(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 10<<10:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
