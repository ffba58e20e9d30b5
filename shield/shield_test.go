package shield

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"edged/ring"
)

func ringOf(names ...string) *ring.Ring {
	var ms []ring.Member
	for _, n := range names {
		ms = append(ms, ring.Member{Name: n})
	}
	return ring.New(ms)
}

// TestChoose compares every choice with its definition by the ring's order.
func TestChoose(t *testing.T) {
	shields, edges := ringOf("s1", "s2", "s3"), ringOf("e1", "e2", "e3", "e4")
	none := ringOf()
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		h := rng.Uint64()
		so, eo := shields.Owners(nil, h, 3), edges.Owners(nil, h, 4)
		but := func(down ...string) func(string) bool {
			return func(m string) bool { return !slices.Contains(down, m) }
		}
		for _, tc := range []struct {
			name           string
			mode           Mode
			self           string
			shields, edges *ring.Ring
			usable         func(string) bool
			want           string
		}{
			{"off", ModeOff, "e1", shields, edges, nil, ""},
			{"unknown mode", "chain", "e1", shields, edges, nil, ""},
			{"auto: the owner", ModeAuto, "e1", shields, edges, nil, so[0]},
			{"empty mode is auto", "", "e1", shields, edges, nil, so[0]},
			{"auto: the successor of a dead owner", ModeAuto, "e1", shields, edges, but(so[0]), so[1]},
			{"auto: the last one alive", ModeAuto, "e1", shields, edges, but(so[0], so[1]), so[2]},
			{"auto: all dead", ModeAuto, "e1", shields, edges, but(so...), ""},
			{"auto: no shields", ModeAuto, "e1", none, edges, nil, ""},
			{"auto: nil ring", ModeAuto, "e1", nil, edges, nil, ""},
			{"auto: self owns it", ModeAuto, so[0], shields, edges, nil, ""},
			{"auto: self owns it without the dead", ModeAuto, so[1], shields, edges, but(so[0]), ""},
			{"auto: another shield owns it", ModeAuto, so[1], shields, edges, nil, so[0]},
			{"auto: self unusable, and still not passed over", ModeAuto, so[0], shields, edges, but(so[0]), ""},
			{"ring: the owner", ModeRing, "s1", shields, edges, nil, eo[0]},
			{"ring: self owns it", ModeRing, eo[0], shields, edges, nil, ""},
			{"ring: another edge owns it", ModeRing, eo[1], shields, edges, nil, eo[0]},
			{"ring: the successor of a dead owner", ModeRing, eo[3], shields, edges, but(eo[0]), eo[1]},
			{"ring: alone", ModeRing, "e1", shields, ringOf("e1"), nil, ""},
		} {
			got, ok := Choose(tc.mode, tc.self, h, tc.shields, tc.edges, tc.usable)
			if got != tc.want || ok != (tc.want != "") {
				t.Fatalf("%s, h %016x: %q, %v; want %q", tc.name, h, got, ok, tc.want)
			}
		}
	}
}

func TestChoose_allocatesNothing(t *testing.T) {
	shields, edges := ringOf("s1", "s2", "s3"), ringOf("e1")
	usable := func(string) bool { return true }
	if n := testing.AllocsPerRun(100, func() { Choose(ModeAuto, "e1", 99, shields, edges, usable) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func ExampleChoose() {
	shields := ring.New([]ring.Member{{Name: "shield-1"}, {Name: "shield-2"}})
	edges := ring.New([]ring.Member{{Name: "edge-a"}, {Name: "edge-b"}})
	const h = 0x9ae16a3b2f90404f // xxhash64 of a cache key
	fmt.Println(Choose(ModeAuto, "edge-a", h, shields, edges, nil))
	fmt.Println(Choose(ModeOff, "edge-a", h, shields, edges, nil))
	// Output:
	// shield-1 true
	//  false
}
