package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

const ops = "../../ops"

// contractMetrics are the metrics of testdata/metrics.txt with their labels.
func contractMetrics(t *testing.T) map[string][]string {
	t.Helper()
	ms := map[string][]string{}
	for line := range strings.Lines(readFile(t, "testdata/metrics.txt")) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
			ms[f[0]] = f[1:]
		}
	}
	if len(ms) < 30 {
		t.Fatalf("testdata/metrics.txt has %d metrics", len(ms))
	}
	return ms
}

func TestOps_sampleConfigurationIsValidAndComplete(t *testing.T) {
	file := filepath.Join(ops, "edged.yaml")
	l, err := source{file: file, env: noEnv, host: func() (string, error) { return "host-1", nil }}.load()
	if err != nil {
		t.Fatal(err)
	}
	if l.config.Name != "host-1" || len(l.warnings) > 0 {
		t.Errorf("name %q, warnings %q", l.config.Name, l.warnings)
	}
	_, at, _ := decode([]byte(readFile(t, file)), noEnv)
	for _, p := range allPaths(reflect.TypeFor[document](), "") {
		p = strings.Replace(p, "partitions.", "partitions[0].", 1)
		p = strings.Replace(p, "sites.", "sites[0].", 1)
		if _, ok := at[p]; !ok && p != "name" { // the name is each machine's own
			t.Errorf("%s does not show the key %s", file, p)
		}
	}
}

func TestOps_sampleShowsTheDefaults(t *testing.T) {
	sample, err := source{file: filepath.Join(ops, "edged.yaml"), env: noEnv, host: os.Hostname}.load()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := source{flags: overrides{Origin: []string{"http://127.0.0.1:9000"}}, env: noEnv, host: os.Hostname}.load()
	if err != nil {
		t.Fatal(err)
	}
	a, b := *sample.document, *plain.document
	// What an operator chooses differs by design.
	a.Cache.Partitions, b.Cache.Partitions = nil, nil
	a.Sites[0].Name, b.Sites[0].Name = "", ""
	var got, want strings.Builder
	if err := printDocument(&got, &a); err != nil {
		t.Fatal(err)
	}
	if err := printDocument(&want, &b); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("the sample is\n%s\nthe defaults are\n%s", &got, &want)
	}
}

func TestOps_unitOutlivesTheDrain(t *testing.T) {
	unit := readFile(t, filepath.Join(ops, "edged.service"))
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
	if m == nil {
		t.Fatal("the unit has no TimeoutStopSec")
	}
	limit, err := time.ParseDuration(m[1] + "s")
	if err != nil {
		t.Fatal(err)
	}
	l, err := source{file: filepath.Join(ops, "edged.yaml"), env: noEnv, host: os.Hostname}.load()
	if err != nil {
		t.Fatal(err)
	}
	if limit <= l.config.Drain+5*time.Second {
		t.Errorf("systemd kills after %v, the node may drain for %v", limit, l.config.Drain)
	}
	for _, want := range []string{"Type=notify", "NotifyAccess=main", "WatchdogSec=30", "ExecReload=/bin/kill -HUP $MAINPID", "NoNewPrivileges=yes", "RestartPreventExitStatus=2"} {
		if !strings.Contains(unit, "\n"+want+"\n") {
			t.Errorf("the unit lacks %s", want)
		}
	}
}

// TestOps_unitShowsItsCredentials takes the lines that the unit's head shows
// for edged.yaml at their word.
func TestOps_unitShowsItsCredentials(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^#     ((?:cluster|admin): .*)$`).FindAllStringSubmatch(readFile(t, filepath.Join(ops, "edged.service")), -1)
	text := minimal
	for _, l := range lines {
		text += l[1] + "\n"
	}
	s := sourceOf(t, text)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "cluster.key"), command(t, "", "keygen").out, 0o400)
	writeFile(t, filepath.Join(dir, "token"), "secret\n", 0o400)
	s.env = func(name string) (string, bool) { return dir, name == "CREDENTIALS_DIRECTORY" }
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.config.Cluster.Keys) != 1 || l.config.Admin.Token != "secret" {
		t.Errorf("%q give %d keys and token %q", lines, len(l.config.Cluster.Keys), l.config.Admin.Token)
	}
}
