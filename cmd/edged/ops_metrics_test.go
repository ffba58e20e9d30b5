package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// Rules of Prometheus, as far as these tests read them.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

func readRules(t *testing.T, name string) ruleFile {
	t.Helper()
	var f ruleFile
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(ops, "prometheus", name))), &f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// recorded are the names that recording.yaml makes.
func recorded(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, g := range readRules(t, "recording.yaml").Groups {
		for _, r := range g.Rules {
			names = append(names, r.Record)
		}
	}
	if len(names) == 0 {
		t.Fatal("recording.yaml records nothing")
	}
	return names
}

// A panel of the dashboard, as far as these tests read it.
type panel struct {
	Type, Title string
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr string }
}

func readDashboard(t *testing.T) []panel {
	t.Helper()
	var d struct{ Panels []panel }
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(ops, "grafana", "edged.json"))), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(d.Panels))
	}
	return d.Panels
}

// exposition is what a node of a cluster of two exposes: the values of each
// label of each metric.
type exposition map[string]map[string]map[string]bool

var sampleRE, labelRE = regexp.MustCompile(`(?m)^([a-z0-9_]+)(?:\{(.*)\})? \S+$`), regexp.MustCompile(`([a-z]+)="((?:[^"\\]|\\.)*)"`)

func (e exposition) add(text string) {
	for _, m := range sampleRE.FindAllStringSubmatch(text, -1) {
		if e[m[1]] == nil {
			e[m[1]] = map[string]map[string]bool{}
		}
		for _, l := range labelRE.FindAllStringSubmatch(m[2], -1) {
			if e[m[1]][l[1]] == nil {
				e[m[1]][l[1]] = map[string]bool{}
			}
			e[m[1]][l[1]][l[2]] = true
		}
	}
}

// exposed starts two nodes that know each other, so that what is there once
// for each peer is there, too; one has a site with a catalog.
func exposed(t *testing.T) exposition {
	t.Helper()
	a := startNode(t, alone("http://127.0.0.1:1")...)
	b := startWithCatalog(t, "b", "http://127.0.0.1:1", "/a\n", a.ready.Gossip)
	e := exposition{}
	eventually(t, func() error {
		text := get(t, "http://"+b.ready.Admin+"/metrics").body
		// Gossip and the node learn of a peer one after the other.
		for _, name := range []string{"edged_replica_age_seconds", "edged_replica_resyncs_total", "edged_peer_rpcs_total", "edged_peer_busy_total", "edged_peer_backed_off_total"} {
			if !strings.Contains(text, "\n"+name+"{") {
				return fmt.Errorf("b has no %s of a", name)
			}
		}
		e.add(text)
		return nil
	})
	return e
}

// startWithCatalog starts a node whose site has a catalog that observes. join
// may be an address where nobody is.
func startWithCatalog(t *testing.T, name, origin, list, join string) *child {
	t.Helper()
	dir := t.TempDir()
	file, catalog := filepath.Join(dir, "edged.yaml"), filepath.Join(dir, "catalog")
	writeFile(t, catalog, list, 0o600)
	writeFile(t, file, fmt.Sprintf(`name: %s
listen: { address: "127.0.0.1:0" }
admin: { address: "127.0.0.1:0" }
cluster: { gossip: "127.0.0.1:0", peer: "127.0.0.1:0", join: [%q] }
sites: [{ name: www, origin: { urls: [%q] }, catalog: { file: %q, mode: observe } }]
`, name, join, origin, catalog), 0o600)
	return startNode(t, "-c", file)
}

var (
	// A name of ours, with what makes it a recorded one around it.
	nameRE = regexp.MustCompile(`[a-z0-9_:]*\bedged_[a-z0-9_:]+`)
	// A metric with its selector.
	selectorRE = regexp.MustCompile(`\b(edged_[a-z0-9_]+)\{([^}]*)\}`)
	matcherRE  = regexp.MustCompile(`([a-z]+)(=~|!~|!=|=)"([^"]*)"`)
)

// byPrometheus are the labels that a scrape adds.
var byPrometheus = []string{"job", "instance"}

// TestOps_namesOnlyWhatExists holds every name in ops/ against a running node,
// with the labels and values that are asked for: a dashboard of a metric that is not
// there shows nothing, and an alert on it never fires, silently.
func TestOps_namesOnlyWhatExists(t *testing.T) {
	node, recorded := exposed(t), recorded(t)
	walk(t, func(path, text string) {
		for _, name := range nameRE.FindAllString(text, -1) {
			if strings.Contains(name, ":") {
				if !slices.Contains(recorded, name) {
					t.Errorf("%s names %s, which recording.yaml does not make", path, name)
				}
			} else if node[name] == nil && node[name+"_count"] == nil {
				t.Errorf("%s names %s, which a node does not expose", path, name)
			}
		}
		if filepath.Base(path) == "tests.yaml" {
			return // its series are made up
		}
		// In JSON the quotes of an expression are escaped.
		for _, s := range selectorRE.FindAllStringSubmatch(strings.ReplaceAll(text, `\"`, `"`), -1) {
			for _, m := range matcherRE.FindAllStringSubmatch(s[2], -1) {
				if slices.Contains(byPrometheus, m[1]) {
					continue
				}
				for _, value := range strings.Split(m[3], "|") {
					if regexp.QuoteMeta(value) == value && !node[s[1]][m[1]][value] && value == strings.ToLower(value) {
						t.Errorf("%s asks for %s with %s %q; there are %q", path, s[1], m[1], value, slices.Sorted(maps.Keys(node[s[1]][m[1]])))
					}
				}
			}
		}
	})
}

// walk calls f with each file of ops/.
func walk(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(ops, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			f(path, readFile(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOps_alertsHaveTheirPage: who is woken finds what to do, and no page
// speaks of an alert that is no more.
func TestOps_alertsHaveTheirPage(t *testing.T) {
	alerts := map[string]bool{}
	tests := readFile(t, filepath.Join(ops, "prometheus", "tests.yaml"))
	for _, g := range readRules(t, "alerts.yaml").Groups {
		for _, r := range g.Rules {
			alerts[r.Alert] = true
			want := "ops/runbook/" + r.Alert + ".md"
			if r.Annotations["runbook"] != want {
				t.Errorf("%s names the page %q; want %s", r.Alert, r.Annotations["runbook"], want)
			}
			if r.Annotations["summary"] == "" || r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
				t.Errorf("%s lacks a summary, or a severity of page or ticket", r.Alert)
			}
			if !strings.Contains(tests, "alertname: "+r.Alert+"\n") {
				t.Errorf("%s has no test in tests.yaml", r.Alert)
			}
			page, err := os.ReadFile(filepath.Join("../..", want))
			if err != nil {
				t.Error(err)
			} else if !strings.HasPrefix(string(page), "# "+r.Alert+"\n") || !strings.Contains(string(page), "**Do.**") {
				t.Errorf("%s does not begin with its alert, or says nothing to do", want)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(ops, "runbook", "*.md"))
	if err != nil || len(pages) != len(alerts) {
		t.Errorf("%d pages for %d alerts, %v", len(pages), len(alerts), err)
	}
	for _, p := range pages {
		name := strings.TrimSuffix(filepath.Base(p), ".md")
		if !alerts[name] {
			t.Errorf("%s is the page of no alert", p)
		}
		for _, other := range regexp.MustCompile(`\bEdged[A-Z]\w+`).FindAllString(readFile(t, p), -1) {
			if !alerts[other] {
				t.Errorf("%s sends its reader to %s, which is no alert", p, other)
			}
		}
	}
}

// TestOps_dashboardUnits: a share of one is shown in per cent, bytes as bytes.
func TestOps_dashboardUnits(t *testing.T) {
	for _, p := range readDashboard(t) {
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%q asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			var want []string
			switch e := target.Expr; {
			case strings.Contains(e, "_seconds"):
				want = []string{"s"}
			case strings.Contains(e, "_bytes_total") && strings.Contains(e, "rate("):
				want = []string{"Bps"}
			case strings.Contains(e, "_bytes"):
				want = []string{"bytes"}
			case strings.Contains(e, "ratio") || strings.Contains(e, "_rate{") || strings.Contains(e, "estimate") || strings.Contains(e, ") / sum("):
				want = []string{"percentunit"}
			case strings.Contains(e, "rate("):
				want = []string{"reqps", "ops"}
			default:
				want = []string{"short"}
			}
			if got := p.FieldConfig.Defaults.Unit; !slices.Contains(want, got) {
				t.Errorf("%q shows %s in %q; want %q", p.Title, target.Expr, got, want)
			}
		}
	}
}
