package ring

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	seedFlag = flag.Uint64("seed", 1, "seed of the random tests")
	update   = flag.Bool("update", false, "write testdata anew: only for a change that is meant to move almost all keys")
)

// random returns a generator whose seed is printed when the test fails.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	t.Logf("seed %d; repeat with -seed", *seedFlag)
	return rand.New(rand.NewPCG(*seedFlag, 0))
}

func members(n int) []Member {
	ms := make([]Member, n)
	for i := range ms {
		ms[i] = Member{Name: fmt.Sprintf("edge-%d", i)}
	}
	return ms
}

// TestRing_placementIsFrozen compares owners with those that every version
// before has computed. When it fails, a cluster that is half upgraded would
// disagree about almost every key.
func TestRing_placementIsFrozen(t *testing.T) {
	r := New([]Member{{"edge-a", 1}, {"edge-b", 0}, {"edge-c", 3}, {"shield.example", 2}, {"é", 1}})
	var b strings.Builder
	fmt.Fprintf(&b, "# owner and two successors of hashes, on the ring edge-a*1 edge-b*1 edge-c*3 shield.example*2 é*1\n")
	hashes := []uint64{0, 1, math.MaxUint64, 1 << 63, 1<<63 - 1}
	rng := rand.New(rand.NewPCG(42, 42))
	for range 250 {
		hashes = append(hashes, rng.Uint64())
	}
	for _, h := range hashes {
		fmt.Fprintf(&b, "%016x %s\n", h, strings.Join(r.Owners(nil, h, 3), " "))
	}
	for _, m := range r.Members() {
		fmt.Fprintf(&b, "point %s %016x %016x\n", m, point(nameHash(m), 0), point(nameHash(m), 255))
	}
	const file = "testdata/placement.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := strings.Split(strings.TrimSpace(b.String()), "\n")
	var want []string
	for s := bufio.NewScanner(f); s.Scan(); {
		want = append(want, s.Text())
	}
	if len(want) != len(got) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("line %d: %q, want %q", i+1, got[i], want[i])
		}
	}
}

func TestNew_orderAndRepetitionDoNotMatter(t *testing.T) {
	rng := random(t)
	ms := []Member{{"a", 1}, {"b", 2}, {"c", 1}, {"d", 7}, {"e", 1}, {"f", 0}}
	want := New(ms)
	for range 20 {
		shuffled := append(slices.Clone(ms), Member{"b", 1}, Member{"d", 7}, Member{"", 5}, Member{"gone", -1})
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		got := New(shuffled)
		if !slices.Equal(got.points, want.points) || !slices.Equal(got.owners, want.owners) || !slices.Equal(got.names, want.names) {
			t.Fatalf("another order made another ring: %v", shuffled)
		}
	}
}

func TestNew_leavesItsArgumentAlone(t *testing.T) {
	ms := []Member{{"b", 0}, {"a", 99}}
	New(ms)
	if want := []Member{{"b", 0}, {"a", 99}}; !slices.Equal(ms, want) {
		t.Errorf("members are %v now, were %v", ms, want)
	}
}

func TestRing_empty(t *testing.T) {
	for name, r := range map[string]*Ring{"nil": nil, "no members": New(nil), "left out": New([]Member{{"", 1}, {"a", -1}})} {
		t.Run(name, func(t *testing.T) {
			if got := r.Owner(7); got != "" {
				t.Errorf("Owner = %q", got)
			}
			if got := r.OwnerBounded(7, func(string) int { return 0 }, 1.25); got != "" {
				t.Errorf("OwnerBounded = %q", got)
			}
			if got := r.Owners([]string{"x"}, 7, 3); !slices.Equal(got, []string{"x"}) {
				t.Errorf("Owners = %q", got)
			}
			for m := range r.Successors(7) {
				t.Errorf("Successors yields %q", m)
			}
			if r.Len() != 0 || len(r.Members()) != 0 || r.Share("a") != 0 {
				t.Errorf("Len %d, Members %q, Share %v", r.Len(), r.Members(), r.Share("a"))
			}
		})
	}
}

func TestRing_one(t *testing.T) {
	r := New([]Member{{"a", 1}})
	for _, h := range []uint64{0, 1, math.MaxUint64} {
		if got := r.Owner(h); got != "a" {
			t.Errorf("Owner(%d) = %q", h, got)
		}
	}
	if r.Share("a") != 1 || r.Share("b") != 0 {
		t.Errorf("shares %v and %v, want 1 and 0", r.Share("a"), r.Share("b"))
	}
}

// scan is the model: all points in one sorted list, looked at from the front.
type scan struct {
	at     []uint64
	member []string
}

func newScan(ms []Member) *scan {
	type placed struct {
		at     uint64
		member string
	}
	var ps []placed
	for _, m := range ms {
		for i := range max(m.Weight, 1) * pointsPerWeight {
			ps = append(ps, placed{point(nameHash(m.Name), i), m.Name})
		}
	}
	slices.SortFunc(ps, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.member, b.member))
	})
	s := &scan{}
	for _, p := range ps {
		s.at, s.member = append(s.at, p.at), append(s.member, p.member)
	}
	return s
}

// successors returns all members in the order in which h meets them.
func (s *scan) successors(h uint64) []string {
	start := 0
	for start < len(s.at) && s.at[start] < h {
		start++
	}
	var found []string
	for i := range s.at {
		if m := s.member[(start+i)%len(s.at)]; !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	return found
}

func TestRing_agreesWithASortedScan(t *testing.T) {
	rng := random(t)
	for round := range 40 {
		ms := members(1 + rng.IntN(12))
		for i := range ms {
			ms[i].Weight = rng.IntN(4)
		}
		r, model := New(ms), newScan(ms)
		for range 50 {
			h := rng.Uint64()
			switch rng.IntN(4) {
			case 0: // on a point, and on either side of it
				h = model.at[rng.IntN(len(model.at))] + uint64(rng.IntN(3)) - 1
			case 1: // round the end of the circle
				h = -uint64(rng.IntN(3))
			}
			want := model.successors(h)
			if got := r.Owner(h); got != want[0] {
				t.Fatalf("round %d: Owner(%016x) = %q, want %q", round, h, got, want[0])
			}
			n := rng.IntN(len(want) + 2)
			if got := r.Owners([]string{"kept"}, h, n); !slices.Equal(got, append([]string{"kept"}, want[:min(n, len(want))]...)) {
				t.Fatalf("round %d: Owners(%016x, %d) = %q, want %q", round, h, n, got, want)
			}
			if got := slices.Collect(r.Successors(h)); !slices.Equal(got, want) {
				t.Fatalf("round %d: Successors(%016x) = %q, want %q", round, h, got, want)
			}
		}
	}
}

// TestRing_meetsMembersWhosePointsAllCollide builds what crafted names could:
// two members in the same positions. A walk for more members than it can meet
// would never end.
func TestRing_meetsMembersWhosePointsAllCollide(t *testing.T) {
	r := New([]Member{{"a", 1}, {"b", 1}})
	for i := range r.points {
		r.points[i] = r.points[i&^1]
		r.owners[i] = uint32(i & 1)
	}
	r.buildIndex()
	if got := r.Owners(nil, 12345, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("Owners = %q, want a and b", got)
	}
}

func TestRing_manyMembers(t *testing.T) {
	r := New(members(300)) // more than the walk's small set holds
	got := r.Owners(nil, 99, 1000)
	slices.Sort(got)
	if !slices.Equal(got, r.Members()) {
		t.Errorf("%d owners, want each of the %d members once", len(got), r.Len())
	}
}

// TestRing_balance compares the spread of the shares with what so many points
// must give. With N members of V points each, a share is Beta(V, (N-1)V)
// distributed: its mean is 1/N and its relative variance (N-1)/(NV+1). The mean
// of N squared deviations then varies by sqrt(2/N) of itself; five of these are
// allowed. With half the points, or points that are badly mixed, the variance
// doubles and the test fails.
func TestRing_balance(t *testing.T) {
	const n = 256
	r := New(members(n))
	sum, total := 0.0, 0.0
	for _, m := range r.Members() {
		d := r.Share(m)*n - 1
		sum += d * d
		total += r.Share(m)
	}
	if math.Abs(total-1) > 1e-9 {
		t.Errorf("the shares add up to %v", total)
	}
	got := sum / n
	want := float64(n-1) / (n*pointsPerWeight + 1)
	tolerance := 5 * math.Sqrt(2.0/n) * want
	t.Logf("relative standard deviation %.2f %%, expected %.2f %%", 100*math.Sqrt(got), 100*math.Sqrt(want))
	if math.Abs(got-want) > tolerance {
		t.Errorf("variance of the shares %.5f, want %.5f give or take %.5f", got, want, tolerance)
	}
}

// TestRing_ownsWhatItsShareSays draws hashes and compares with the binomial.
func TestRing_ownsWhatItsShareSays(t *testing.T) {
	rng := random(t)
	r := New([]Member{{"a", 1}, {"b", 2}, {"c", 4}})
	const draws = 200_000
	count := make(map[string]int)
	for range draws {
		count[r.Owner(rng.Uint64())]++
	}
	for _, m := range r.Members() {
		p := r.Share(m)
		want, tolerance := p*draws, 5*math.Sqrt(draws*p*(1-p))
		if got := float64(count[m]); math.Abs(got-want) > tolerance {
			t.Errorf("%s owns %v of %d hashes, want %.0f give or take %.0f", m, got, draws, want, tolerance)
		}
	}
}

// TestRing_weights: with w of W parts of N·V points, the share of a member is
// Beta(wV, (W-w)V) distributed, with relative variance (W-w)/(w(WV+1)).
func TestRing_weights(t *testing.T) {
	ms := []Member{{"a", 1}, {"b", 2}, {"c", 5}, {"d", MaxWeight}, {"e", MaxWeight + 1000}}
	r := New(ms)
	const total = 8 + 2*MaxWeight
	for _, m := range ms {
		w := float64(min(m.Weight, MaxWeight))
		want := w / total
		tolerance := 5 * want * math.Sqrt((total-w)/(w*(total*pointsPerWeight+1)))
		if got := r.Share(m.Name); math.Abs(got-want) > tolerance {
			t.Errorf("%s of weight %d has a share of %.4f, want %.4f give or take %.4f", m.Name, m.Weight, got, want, tolerance)
		}
	}
}

// TestRing_movesOnlyWhatItMust adds a member, then takes another away: nothing
// moves between members that stay, and about one share moves in all.
func TestRing_movesOnlyWhatItMust(t *testing.T) {
	rng := random(t)
	const n, draws = 20, 100_000
	before := New(members(n))
	joined := New(members(n + 1))
	left := New(members(n + 1)[1:])
	newcomer, leaver := fmt.Sprintf("edge-%d", n), "edge-0"
	moved, freed := 0, 0
	for range draws {
		h := rng.Uint64()
		a, b, c := before.Owner(h), joined.Owner(h), left.Owner(h)
		if a != b {
			moved++
			if b != newcomer {
				t.Fatalf("%016x moved from %s to %s when %s joined", h, a, b, newcomer)
			}
		}
		if b != c {
			freed++
			if b != leaver {
				t.Fatalf("%016x moved from %s to %s when %s left", h, b, c, leaver)
			}
			if want := joined.Owners(nil, h, 2)[1]; c != want {
				t.Fatalf("%016x went to %s, not to its successor %s", h, c, want)
			}
		}
	}
	for _, m := range []struct {
		what  string
		got   int
		share float64
	}{{"joining", moved, joined.Share(newcomer)}, {"leaving", freed, joined.Share(leaver)}} {
		want, tolerance := m.share*draws, 5*math.Sqrt(draws*m.share*(1-m.share))
		if math.Abs(float64(m.got)-want) > tolerance {
			t.Errorf("%s moved %d of %d hashes, want %.0f give or take %.0f", m.what, m.got, draws, want, tolerance)
		}
	}
}

func TestRing_lookupsAllocateNothing(t *testing.T) {
	r := New(members(64))
	load := func(string) int { return 3 }
	dst := make([]string, 0, 4)
	var h uint64
	for name, f := range map[string]func(){
		"Owner":        func() { r.Owner(h) },
		"Owners":       func() { r.Owners(dst, h, 4) },
		"OwnerBounded": func() { r.OwnerBounded(h, load, 1.25) },
		"Successors": func() {
			for range r.Successors(h) {
				break
			}
		},
	} {
		if n := testing.AllocsPerRun(100, func() { h += golden; f() }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func ExampleRing() {
	r := New([]Member{{Name: "edge-a"}, {Name: "edge-b"}, {Name: "edge-c", Weight: 2}})
	const h = 0x9ae16a3b2f90404f // xxhash64 of a cache key
	fmt.Println(r.Owner(h))
	fmt.Println(r.Owners(nil, h, 2))
	// Output:
	// edge-a
	// [edge-a edge-c]
}
