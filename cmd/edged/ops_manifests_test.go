package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestOps_manifestsConfigureANode takes the configurations that the manifests
// carry at their word, with the environment and the secrets that they give.
func TestOps_manifestsConfigureANode(t *testing.T) {
	var configMap struct {
		Data map[string]string
	}
	first, _, _ := strings.Cut(readFile(t, filepath.Join(ops, "kubernetes", "edged.yaml")), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &configMap); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "cluster.key"), command(t, "", "keygen").out, 0o400)
	writeFile(t, filepath.Join(dir, "token"), "secret\n", 0o400)
	env := map[string]string{"POD_NAME": "edged-0", "POD_IP": "10.0.0.1", "NAME": "edge-a", "IP": "10.0.0.2"}
	for from, text := range map[string]string{
		"kubernetes": configMap.Data["edged.yaml"],
		"compose":    readFile(t, filepath.Join(ops, "compose", "edged.yaml")),
	} {
		text = regexp.MustCompile(`/etc/edged/secret|/run/secrets`).ReplaceAllString(text, dir)
		s := sourceOf(t, text)
		s.env = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		l, err := s.load()
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if len(l.warnings) > 0 || l.config.Admin.Token != "secret" || len(l.config.Cluster.Keys) != 1 || l.config.Cluster.Advertise == "" {
			t.Errorf("%s: warnings %q, token %q, %d keys, advertised %q", from, l.warnings, l.config.Admin.Token, len(l.config.Cluster.Keys), l.config.Cluster.Advertise)
		}
	}
}

// TestOps_manifestsAreYAML: each document can be read.
func TestOps_manifestsAreYAML(t *testing.T) {
	walk(t, func(path, text string) {
		if filepath.Ext(path) != ".yaml" || filepath.Base(path) == "edged.yaml" && filepath.Dir(path) == ops {
			return
		}
		for _, doc := range strings.Split(text, "\n---\n") {
			var v map[string]any
			if err := yaml.Unmarshal([]byte(doc), &v); err != nil || len(v) == 0 {
				t.Errorf("%s: %d keys, %v", path, len(v), err)
			}
		}
	})
}
