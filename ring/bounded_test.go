package ring

import (
	"math"
	"slices"
	"testing"
)

// TestOwnerBounded_keepsEveryoneBelowTheBound places keys one by one, as the
// paper does, and checks every placement beside the definition: the first
// successor below its bound.
func TestOwnerBounded_keepsEveryoneBelowTheBound(t *testing.T) {
	rng := random(t)
	for _, c := range []float64{1, 1.1, 1.25, 2} {
		ms := members(10)
		total := 0
		weight := make(map[string]int)
		for i := range ms {
			ms[i].Weight = 1 + rng.IntN(3)
			total += ms[i].Weight
			weight[ms[i].Name] = ms[i].Weight
		}
		r := New(ms)
		load := make(map[string]int)
		hot := rng.Uint64()
		for placed := range 3000 {
			h := rng.Uint64()
			if rng.IntN(2) == 0 {
				h = hot // half of all keys are one key
			}
			bound := func(m string) float64 {
				return math.Ceil(c * float64(placed+1) * float64(weight[m]) / float64(total))
			}
			want := ""
			for _, m := range r.Owners(nil, h, r.Len()) {
				if float64(load[m]) < bound(m) {
					want = m
					break
				}
			}
			got := r.OwnerBounded(h, func(m string) int { return load[m] }, c)
			if got == "" || got != want {
				t.Fatalf("c %v, key %d: OwnerBounded = %q, want %q", c, placed, got, want)
			}
			load[got]++
			if float64(load[got]) > bound(got) {
				t.Fatalf("c %v, key %d: %s has %d, above its bound %v", c, placed, got, load[got], bound(got))
			}
		}
	}
}

func TestOwnerBounded_idleRingIsTheOwner(t *testing.T) {
	rng := random(t)
	r := New(members(8))
	for range 100 {
		h := rng.Uint64()
		if got, want := r.OwnerBounded(h, func(string) int { return 0 }, 1.25), r.Owner(h); got != want {
			t.Fatalf("OwnerBounded(%016x) = %q, the owner is %q", h, got, want)
		}
	}
}

func TestOwnerBounded_oddArguments(t *testing.T) {
	r := New(members(3))
	const h = 1 << 40
	order := r.Owners(nil, h, 3)
	for name, tc := range map[string]struct {
		loads [3]int // of the owner and its successors
		c     float64
		want  int
	}{
		"equal loads, c below 1":               {[3]int{5, 5, 5}, 0.5, 0},
		"busy owner, c below 1":                {[3]int{9, 5, 5}, 0.5, 1},
		"busy owner, c negative":               {[3]int{9, 5, 5}, -3, 1},
		"busy owner, c not a number":           {[3]int{9, 5, 5}, math.NaN(), 1},
		"busy owner, c infinite":               {[3]int{1 << 40, 0, 0}, math.Inf(1), 0},
		"busy owner, the others below nothing": {[3]int{9, -1, -1 << 60}, 1, 1},
		"huge loads":                           {[3]int{math.MaxInt, math.MaxInt, math.MaxInt}, 1, 0},
		"huge loads, room at the last":         {[3]int{math.MaxInt, math.MaxInt, 0}, 1.25, 2},
	} {
		t.Run(name, func(t *testing.T) {
			load := func(m string) int { return tc.loads[slices.Index(order, m)] }
			if got := r.OwnerBounded(h, load, tc.c); got != order[tc.want] {
				t.Errorf("OwnerBounded = %q, want number %d of %q", got, tc.want, order)
			}
		})
	}
}

func TestOwnerBounded_asksForEachLoadOnceInOrder(t *testing.T) {
	r := New(members(12))
	var asked []string
	r.OwnerBounded(5, func(m string) int { asked = append(asked, m); return len(asked) }, 1.1)
	if !slices.Equal(asked, r.Members()) {
		t.Errorf("asked %q, want %q", asked, r.Members())
	}
}
