package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A room is what a folder may import.
type room struct {
	ours   []string // packages of this module, below its name
	others []string // modules of others, for production; golang.org/x is free to all
}

// rooms is the table of who may import whom. Nothing points back, siblings do
// not know each other, and a module of others stays inside the folders that
// are named with it, so that its types do too.
func rooms() map[string]room {
	return map[string]room{
		"cmd/edged": {
			ours:   []string{"edge", "edge/admin", "edge/store", "loadtest", "peerfilter", "gossip", "ring", "shield"},
			others: []string{"github.com/alecthomas/kong", "github.com/goccy/go-yaml"},
		},
		"edge": {
			ours:   []string{"edge/rfc9111", "edge/store", "edge/negative", "edge/admin", "edge/tracing", "shield", "gossip", "ring", "peerfilter"},
			others: []string{"github.com/cespare/xxhash/v2", "github.com/prometheus/client_golang", "github.com/prometheus/client_model"},
		},
		"edge/rfc9111":  {others: []string{"github.com/dunglas/httpsfv"}},
		"edge/store":    {others: []string{"github.com/cespare/xxhash/v2"}},
		"edge/negative": {ours: []string{"peerfilter"}},
		"edge/admin":    {},
		// The wire form's primitives alone: the SDK would bring gRPC with it.
		"edge/tracing": {others: []string{"google.golang.org/protobuf/encoding/protowire"}},
		"shield":       {ours: []string{"ring"}},
		"gossip":       {ours: []string{"peerfilter"}, others: []string{"github.com/hashicorp/memberlist"}},
		"peerfilter":   {others: []string{"github.com/twmb/murmur3"}},
		"ring":         {others: []string{"github.com/cespare/xxhash/v2"}},
		"loadtest":     {others: []string{"github.com/HdrHistogram/hdrhistogram-go", "github.com/goccy/go-yaml"}},
	}
}

// testOnly are what no production build may hold: packages and modules that
// exist for tests.
func testOnly() []string {
	return []string{
		"testing", "net/http/httptest", "go.uber.org/goleak", "pgregory.net/rapid",
		"github.com/prometheus/client_golang/prometheus/testutil",
		"github.com/chromedp/chromedp", "github.com/chromedp/cdproto",
	}
}

const module = "edged"

type goPackage struct {
	ImportPath                               string
	Imports, Deps, TestImports, XTestImports []string
}

// goList describes the packages of the module.
func goList(t *testing.T) []goPackage {
	t.Helper()
	root := filepath.Join("..", "..")
	// The tests' cache knows what this process looked at, not what go list
	// did: without this a cached "ok" would outlive a new import.
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var ps []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

func TestImports_followTheTable(t *testing.T) {
	table := rooms()
	for _, p := range goList(t) {
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		r, ok := table[folder]
		if !ok {
			t.Errorf("folder %s is not in the table", folder)
			continue
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			own, ours := strings.CutPrefix(imp, module+"/")
			if ours && own != folder && !slices.Contains(r.ours, own) {
				t.Errorf("%s imports %s: the table allows %v", folder, own, r.ours)
			}
		}
		for _, imp := range p.Imports {
			if isOthers(imp) && !slices.ContainsFunc(r.others, func(m string) bool { return within(imp, m) }) {
				t.Errorf("%s imports %s: the table allows %v", folder, imp, r.others)
			}
		}
	}
}

// isOthers reports whether the path is neither ours, nor the standard
// library's, nor golang.org/x's.
func isOthers(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && !strings.HasPrefix(path, "golang.org/x/")
}

func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func TestImports_keepTestsOutOfProduction(t *testing.T) {
	for _, p := range goList(t) {
		for _, dep := range p.Deps {
			for _, no := range testOnly() {
				if within(dep, no) {
					t.Errorf("%s needs %s: that belongs into tests", p.ImportPath, dep)
				}
			}
		}
	}
}

func TestTree_topLevel(t *testing.T) {
	want := []string{"README.md", "cmd", "edge", "go.mod", "go.sum", "gossip", "loadtest", "ops", "peerfilter", "ring", "shield"}
	got, err := topLevel(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the top level has %v; want %v", got, want)
	}
}

// topLevel returns what is at the top of the tree, hidden names left out, in
// order: what git keeps when the tree is a checkout and git is there, for
// README.md has one build the program and write node0.yaml there; else
// whatever lies there.
func topLevel(root string) ([]string, error) {
	var names []string
	keep := func(name string) {
		if !strings.HasPrefix(name, ".") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	// The test's cache has to know that it depends on what git keeps.
	os.Stat(filepath.Join(root, ".git", "index"))
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		if out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output(); err == nil {
			for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
				first, _, _ := strings.Cut(file, "/")
				keep(first)
			}
			slices.Sort(names)
			return names, nil
		}
	}
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		// go test with a profile leaves its binary behind, NAME.test.
		if !strings.HasSuffix(e.Name(), ".test") {
			keep(e.Name())
		}
	}
	return names, err
}

func TestTopLevel_withoutGit(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a.test", ".hidden", "a"} {
		writeFile(t, filepath.Join(dir, name), "", 0o600)
	}
	if got, err := topLevel(dir); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v, %v; want a and b", got, err)
	}
}
