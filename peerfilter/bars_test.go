package peerfilter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
	"unsafe"
)

// BenchmarkBars measures this package against others and against the machine,
// and prints one table:
//
//	go test ./peerfilter -run '^$' -bench Bars -benchtime 1x -timeout 30m
//
// Every bar is a ratio, or a figure that no machine changes. Candidates of a
// ratio run in turn, round after round, each warmed first; a ratio is the median
// over the rounds, with that of the fastest rounds beside it. What runs on one
// goroutine is timed by its thread's processor time, so a busy machine blurs the figures and
// does not multiply them. With -short, filters of 10 M keys are left out.
//
// Part of a table: -bench 'Bars/^(03|05)'.
func BenchmarkBars(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	t := &bars{short: testing.Short()}
	for _, bar := range []struct {
		name string
		run  func(b *testing.B, t *bars)
	}{
		{"01_rate_and_02_bytes", barRateAndBytes},
		{"03_key_against_bits-and-blooms", barKey},
		{"04_hash_given_against_xxhash", barHashGiven},
		{"05_against_double_hashing_in_block", barBlocked},
		{"06_against_tylertreat", barTylertreat},
		{"07_serial_against_memory", barSerial},
		{"08_beside_a_writer", barBesideWriter},
		{"09_against_contested_caches", barCaches},
		{"10_all_peers", barPeers},
		{"11_all_peers_serial", barPeersSerial},
		{"12_two_writers", barWriters},
		{"13_rebuild", barRebuild},
		{"14_bytes_of_a_change", barDeltaBytes},
		{"15_diff", barDiff},
		{"16_truth", barTruth},
		{"17_load_a_column", barColumn},
		{"18_apply_a_record", barApply},
	} {
		b.Run(bar.name, func(b *testing.B) {
			runtime.LockOSThread() // threadTime is of one thread
			defer runtime.UnlockOSThread()
			runtime.GC()
			for b.Loop() {
				bar.run(b, t)
			}
		})
	}
	t.print()
}

const barRounds = 7

// bars is the table.
type bars struct {
	short bool
	rows  []barRow
}

type barRow struct {
	number, what, bar, measured, fastest, verdict, detail string
}

func (t *bars) print() {
	if len(t.rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s, %s, GOMAXPROCS %d\n\n", runtime.Version(), cpuModel(), runtime.GOMAXPROCS(0))
	fmt.Fprintln(w, "#\twhat\tbar\tmeasured\tfastest\t\tdetail")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.number, r.what, r.bar, r.measured, r.fastest, r.verdict, r.detail)
	}
	w.Flush()
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// atMost adds a row whose ratio must not be above limit.
func (t *bars) atMost(number, what string, limit float64, r ratio, detail string) {
	t.row(number, what, fmt.Sprintf("<= %.4g", limit), r, r.median <= limit, detail)
}

// atLeast adds a row whose ratio must not be below limit.
func (t *bars) atLeast(number, what string, limit float64, r ratio, detail string) {
	t.row(number, what, fmt.Sprintf(">= %.4g", limit), r, r.median >= limit, detail)
}

func (t *bars) row(number, what, bar string, r ratio, ok bool, detail string) {
	verdict := "ok"
	if !ok {
		verdict = "MISSED"
	}
	fastest := ""
	if r.fastest != 0 {
		fastest = fmt.Sprintf("%.3g", r.fastest)
	}
	t.rows = append(t.rows, barRow{number, what, bar, fmt.Sprintf("%.4g", r.median), fastest, verdict, detail})
}

// candidate does n operations.
type candidate struct {
	name string
	run  func(n int)
}

// timing is ns an operation, by round.
type timing []float64

func (t timing) median() float64 {
	s := slices.Sorted(slices.Values(t))
	return s[len(s)/2]
}

func (t timing) String() string { return fmt.Sprintf("%.3g (%.3g)", t.median(), slices.Min(t)) }

type ratio struct{ median, fastest float64 }

// exactly is a figure that is not measured by time.
func exactly(v float64) ratio { return ratio{median: v} }

// over is the ratio of t to u.
func (t timing) over(u timing) ratio {
	var all timing
	for i := range t {
		all = append(all, t[i]/u[i])
	}
	return ratio{all.median(), slices.Min(t) / slices.Min(u)}
}

// interleave times the candidates in turn, n operations each a round.
func interleave(n int, clock func() time.Duration, cs ...candidate) []timing {
	out := make([]timing, len(cs))
	for range barRounds {
		for i, c := range cs {
			c.run(n / 4) // warm
			start := clock()
			c.run(n)
			out[i] = append(out[i], float64(clock()-start)/float64(n))
		}
	}
	return out
}

var wallStart = time.Now()

func wallTime() time.Duration { return time.Since(wallStart) }

// detail names candidates and their ns an operation, median (fastest).
func detail(cs []candidate, ts []timing) string {
	var out []string
	for i, c := range cs {
		out = append(out, fmt.Sprintf("%s %v", c.name, ts[i]))
	}
	return strings.Join(out, ", ") + " ns"
}

// sink keeps results alive.
var sink uint64

func count(b bool) uint64 {
	var n uint64
	if b {
		n = 1
	}
	return n
}

// keyBuffer makes 64-byte keys, cheaply, in place.
type keyBuffer [64]byte

func newKeyBuffer() *keyBuffer {
	return (*keyBuffer)([]byte("https://www.example.com/images/catalogue/........-large-2x.webp!"))
}

// at returns the i-th key. It is valid until the next call.
func (k *keyBuffer) at(i uint64) string {
	*(*uint64)(unsafe.Pointer(&k[40])) = mix64(i)
	return unsafe.String(&k[0], len(k))
}

// givenHashes returns a power of two of hashes that lie ready, several for each
// block of a filter of n keys.
//
// A Hash is two words. Reading both at once, as a call does that passes it on,
// right after they were written one by one stalls a processor for as long as a
// look-up takes, and keeps it from overlapping reads. Who carries the hash with the request
// does not meet that; what makes and uses it in one breath does.
func givenHashes(n int) []Hash {
	switch {
	case n <= 100_000:
		return allGivenHashes()[:1<<15]
	case n <= 1_000_000:
		return allGivenHashes()[:1<<18]
	}
	return allGivenHashes()
}

var allGivenHashes = sync.OnceValue(func() []Hash { return randomHashes(fixedRand(28), 1<<20) })

// quickHash is a hash that costs next to nothing to make.
func quickHash(i uint64) Hash {
	h := i * 0x9E3779B97F4A7C15
	return Hash{h, (h ^ h>>32) * 0xD6E8FEB86659FD93}
}

var benchSeed = Seed{0x0123456789ABCDEF, 0xFEDCBA9876543210}

const absentFrom = 1 << 40 // numbers of absent keys begin here

// keyFilter returns a filter with the keys 0 to n-1.
func keyFilter(b *testing.B, p Params, n int) *Counting {
	c := newCounting(b, p)
	k := newKeyBuffer()
	hs := make([]Hash, n)
	for i := range hs {
		hs[i] = Sum(benchSeed, k.at(uint64(i)))
	}
	c.AddAll(hs)
	return c
}

// hashFilter returns a filter with n random hashes.
func hashFilter(b *testing.B, p Params, n int, seed uint64) *Counting {
	c := newCounting(b, p)
	c.AddAll(randomHashes(rand.New(rand.NewPCG(seed, 77)), n))
	return c
}

// chase is a walk through all cache lines of size bytes in random order, each
// step known only when the one before has been read.
func chase(size int) candidate {
	const line = 8
	n := size / 64
	ring := make([]uint64, n*line)
	perm := rand.New(rand.NewPCG(5, 5)).Perm(n)
	for i, at := range perm {
		ring[at*line] = uint64(perm[(i+1)%n] * line)
	}
	at := uint64(0)
	return candidate{fmt.Sprintf("%d MB read", size>>20), func(n int) {
		for range n {
			at = ring[at]
		}
		sink += at
	}}
}

func percent(v float64) string { return fmt.Sprintf("%.4f %%", 100*v) }

func relative(got, want float64) float64 { return math.Abs(got/want - 1) }
