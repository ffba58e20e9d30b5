package peerfilter

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
)

// golden is testdata/golden.json, made by an implementation of its own in
// Python (testdata/golden.py).
type golden struct {
	Mix64  map[string]string
	Hashes []struct {
		Seed, Hash [2]string
		Key        string
		Positions  map[string][]uint32
	}
	Seed   [2]string
	Blocks uint32
	States []struct {
		First, Last      int
		SetHash          string `json:"set_hash"`
		Count            int
		Record, Snapshot string
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func hex64(t *testing.T, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSum_golden(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Hashes {
		seed := Seed{hex64(t, c.Seed[0]), hex64(t, c.Seed[1])}
		want := Hash{hex64(t, c.Hash[0]), hex64(t, c.Hash[1])}
		got := Sum(seed, c.Key)
		if got != want {
			t.Errorf("Sum(%x, %q) = %x, want %x", seed, c.Key, got, want)
		}
		for blocks, pos := range c.Positions {
			n, err := strconv.ParseUint(blocks, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			if got := positionsOf(want, uint32(n)); !slices.Equal(got[:], pos) {
				t.Errorf("positions of %q among %s blocks: %d, want %d", c.Key, blocks, got, pos)
			}
		}
	}
	for x, want := range g.Mix64 {
		n, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := mix64(n); got != hex64(t, want) {
			t.Errorf("mix64(%s) = %016x, want %s", x, got, want)
		}
	}
}

// TestWire_golden follows one filter through seven published states and compares
// every record and snapshot byte by byte, encoded and decoded.
func TestWire_golden(t *testing.T) {
	g := readGolden(t)
	p := Params{Layout: LayoutSectors, Blocks: g.Blocks}
	seed := Seed{hex64(t, g.Seed[0]), hex64(t, g.Seed[1])}
	c, err := NewCounting(p)
	if err != nil {
		t.Fatal(err)
	}
	shadow := NewShadow(c)
	var tr Transitions
	first, last := 0, 0
	for i, s := range g.States {
		key := func(i int) Hash { return Sum(seed, fmt.Sprintf("http://example.com/%d", i)) }
		for ; last < s.Last; last++ {
			c.Add(key(last))
		}
		for ; last > s.Last; last-- {
			c.Remove(key(last - 1))
		}
		for ; first < s.First; first++ {
			c.Remove(key(first))
		}
		shadow.Diff(&tr)
		if shadow.Count() != s.Count || shadow.SetHash() != hex64(t, s.SetHash) {
			t.Fatalf("state %d: %d bits, set-hash %016x; want %d, %s", i, shadow.Count(), shadow.SetHash(), s.Count, s.SetHash)
		}
		rec, err := AppendRecord(nil, p, Record{Seq: uint64(i + 1), SetHash: shadow.SetHash(), Transitions: tr})
		if err != nil {
			t.Fatal(err)
		}
		if want := unhex(t, s.Record); !bytes.Equal(rec, want) {
			t.Errorf("state %d: record\n%x, want\n%x", i, rec, want)
		}
		snap := AppendSnapshot(nil, shadow.Snapshot())
		if want := unhex(t, s.Snapshot); !bytes.Equal(snap, want) {
			t.Errorf("state %d: snapshot\n%x, want\n%x", i, snap, want)
		}

		var got Record
		rest, err := DecodeRecord(&got, rec, p)
		if err != nil || len(rest) != 0 {
			t.Fatalf("state %d: decode record: %d bytes left, %v", i, len(rest), err)
		}
		if got.Seq != uint64(i+1) || got.SetHash != shadow.SetHash() || !slices.Equal(got.Set, tr.Set) || !slices.Equal(got.Clear, tr.Clear) {
			t.Errorf("state %d: decoded record differs", i)
		}
		back, err := DecodeSnapshot(snap, p)
		if err != nil {
			t.Fatalf("state %d: decode snapshot: %v", i, err)
		}
		if back.SetHash() != shadow.SetHash() || back.Count() != s.Count || !slices.Equal(back.bitmap(), shadow.words) {
			t.Errorf("state %d: decoded snapshot differs", i)
		}
	}
}
