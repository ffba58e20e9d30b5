package main

import (
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The store's policy beats LRU on a Zipf trace, and its filter's false
// positives are what its fill says.
func TestLoadtestTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(f)
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, 20_000)
	for range 60_000 {
		fmt.Fprintf(w, "/object/%d\n", z.Uint64())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := command(t, "", "loadtest", "trace", file, "--size", "1MiB")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.errOut)
	}
	var edged, lru, optimal float64
	for _, line := range strings.Split(got.out, "\n") {
		if n, _ := fmt.Sscanf(line, " 1 MiB %f%% %f%% %f%%", &edged, &lru, &optimal); n == 3 {
			break
		}
	}
	if !(lru > 10 && edged > lru && optimal > edged) {
		t.Errorf("edged %v%%, LRU %v%%, optimal %v%%: want them in this order\n%s", edged, lru, optimal, got.out)
	}
}

func TestLoadtestDiff_isWorseOnlyThen(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, p99 float64) string {
		file := filepath.Join(dir, name)
		writeFile(t, file, fmt.Sprintf(`{"requests":1000,"responses":1000,"duration_s":10,"rate":100,"latency_ms":{"p99":%v}}`, p99), 0o600)
		return file
	}
	a, b := write("a.json", 5), write("b.json", 9)
	for _, tc := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{a, a}, exitOK, "p99 ms"},
		{[]string{a, b}, exitFailure, "WORSE"},
		{[]string{b, a}, exitOK, "better"},
		{[]string{a, b, "--threshold", "90%"}, exitOK, "p99 ms"},
	} {
		got := command(t, "", append([]string{"loadtest", "diff"}, tc.args...)...)
		if got.code != tc.code || !strings.Contains(got.out, tc.out) || got.errOut != "" {
			t.Errorf("diff %q: %+v", tc.args, got)
		}
	}
}
