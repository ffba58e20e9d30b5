package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"edged/edge"
)

// sourceOf is a file with the text, in a folder of its own.
func sourceOf(t *testing.T, text string) source {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edged.yaml")
	writeFile(t, file, text, 0o600)
	return source{file: file, env: noEnv, host: func() (string, error) { return "host-1", nil }}
}

func writeFile(t *testing.T, file, text string, perm os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), perm); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func noEnv(string) (string, bool) { return "", false }

const minimal = "sites: [{name: www, origin: {urls: [\"http://127.0.0.1:9000\"]}}]\n"

// contractSample is the contract's sample with the one thing that it leaves to
// the operator, the key.
func contractSample(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "cluster.key")
	writeFile(t, key, base64.StdEncoding.EncodeToString(make([]byte, 32)), 0o600)
	sample := readFile(t, "testdata/contract.yaml")
	out := strings.Replace(sample, `key_file: ""`, fmt.Sprintf("key_file: %q", key), 1)
	if out == sample {
		t.Fatal("the sample has no key_file")
	}
	return out
}

func TestDocument_hasEveryKeyOfTheContract(t *testing.T) {
	var tree any
	if err := yaml.Unmarshal([]byte(readFile(t, "testdata/contract.yaml")), &tree); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				want[join(path, k)] = true
				walk(e, join(path, k))
			}
		case []any:
			for _, e := range v {
				walk(e, path)
			}
		}
	}
	walk(tree, "")
	got := allPaths(reflect.TypeFor[document](), "")
	for _, p := range got {
		if !want[p] {
			t.Errorf("key %s is not in testdata/contract.yaml", p)
		}
		delete(want, p)
	}
	for p := range want {
		t.Errorf("the contract's key %s is not in the document", p)
	}
}

func TestLoad_contractSample(t *testing.T) {
	l, err := sourceOf(t, contractSample(t)).load()
	if err != nil {
		t.Fatal(err)
	}
	c := l.config
	want := edge.Config{
		Name:   "edge-a",
		Listen: edge.Listen{Address: ":8080", MaxConnections: 10000},
		Admin:  edge.Admin{Address: "127.0.0.1:9901"},
		Cluster: edge.Cluster{
			Role: edge.RoleEdge, Gossip: "0.0.0.0:7946", Peer: "0.0.0.0:7947",
			Keys: [][]byte{make([]byte, 32)},
		},
		Cache: edge.Cache{Memory: 512 << 20, MaxObject: 64 << 20, Partitions: []edge.Partition{
			{Name: "hot", Paths: []string{"/static/*"}, Share: 0.7, FalsePositiveRate: 0.005},
			{Name: "tail", Share: 0.3, FalsePositiveRate: 0.02},
		}},
		Negative: edge.Negative{Capacity: 64 << 20, TTL: 5e9, MaxCreateRate: 10000},
		Filter:   edge.Filter{Keys: 1e6, FalsePositiveRate: 0.01, Peers: 16, Ask: "all"},
		Purge:    edge.Purge{Isolated: "revalidate"},
		Sites: []edge.Site{{
			Name: "www", Hosts: []string{"www.example.com", "*.img.example.com"},
			Origin: edge.Origin{URLs: []string{"http://127.0.0.1:9000"}, Timeout: edge.OriginTimeout{Connect: 2e9, FirstByte: 30e9, Idle: 30e9},
				MaxConcurrent: 200, Queue: 1000, KnownShare: 0.25, MaxWait: 1e9},
			Shield: "auto", SetCookie: "pass", RequestDirectives: "ignore", Bypass: []string{},
			Catalog: edge.Catalog{Mode: "off", Refresh: 60e9},
		}},
		Drain:  30e9,
		Log:    edge.Log{Format: "text", Level: "info", Access: edge.AccessLog{Slow: 5e9}},
		Logger: c.Logger,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the sample is read as\n%+v\nwant\n%+v", c, want)
	}
}

func TestPrint_readsBack(t *testing.T) {
	for name, text := range map[string]string{
		"minimal":                          minimal,
		"contract":                         contractSample(t),
		"no negative entries, filters off": minimal + "negative: {ttl: 0s}\nfilter: {enabled: false, ask: none}\n",
		"texts that look like other things": `name: "123"
sites:
  - name: "yes"
    hosts: ["null", "a-b.example"]
    bypass: ["/a$${b}*", "/q\"uote\\*", "/ü\u0085*", "/# no comment", "/tab\t*"]
    origin: { urls: ["http://[::1]:9000"], host: "true" }
`,
		"two partitions": minimal + "cache: {partitions: [{name: a, match: {path: [\"/x: y*\"]}, share: 33.3%}, {name: b, share: 0.1}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			first, err := sourceOf(t, text).load()
			if err != nil {
				t.Fatal(err)
			}
			var printed bytes.Buffer
			if err := printDocument(&printed, first.document); err != nil {
				t.Fatal(err)
			}
			second, err := sourceOf(t, printed.String()).load()
			if err != nil {
				t.Fatalf("what is printed is not valid:\n%v\n%s", err, &printed)
			}
			var again bytes.Buffer
			if err := printDocument(&again, second.document); err != nil {
				t.Fatal(err)
			}
			if printed.String() != again.String() {
				t.Errorf("printed twice:\n%s\nthen\n%s", &printed, &again)
			}
			a, b := first.config, second.config
			a.Logger, b.Logger = nil, nil
			if got, want := fmt.Sprintf("%+v", b), fmt.Sprintf("%+v", a); got != want {
				t.Errorf("read back as\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestLoad_negativeTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 5 * time.Second, "negative: {ttl: 0s}\n": -1, "negative: {ttl: 0}\n": -1, "negative: {ttl:}\n": 5 * time.Second, "negative: {ttl: 1m}\n": time.Minute} {
		l, err := sourceOf(t, minimal+text).load()
		if err != nil {
			t.Fatal(err)
		}
		if got := l.config.Negative.TTL; got != want {
			t.Errorf("%q is read as %v; want %v", text, got, want)
		}
	}
}

func TestPrint_hasEveryKeyAndNoSecret(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	writeFile(t, token, "s3cret-token\n", 0o600)
	s := sourceOf(t, contractSample(t))
	s.flags.TokenFile = token
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	if l.config.Admin.Token != "s3cret-token" {
		t.Fatalf("the token is read as %q", l.config.Admin.Token)
	}
	var b bytes.Buffer
	if err := printDocument(&b, l.document); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "s3cret-token") || strings.Contains(b.String(), base64.StdEncoding.EncodeToString(make([]byte, 32))) {
		t.Errorf("a secret is printed:\n%s", &b)
	}
	_, at, _ := decode(b.Bytes(), noEnv)
	for _, p := range allPaths(reflect.TypeFor[document](), "") {
		p = strings.Replace(p, "partitions.", "partitions[0].", 1)
		p = strings.Replace(p, "sites.", "sites[0].", 1)
		if _, ok := at[p]; !ok {
			t.Errorf("key %s is not printed:\n%s", p, &b)
		}
	}
}

// TestLoad_mistakes has one line of what is said for each mistake; "FILE" stands for its name.
func TestLoad_mistakes(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key, spelt nearly right", "lisen: {}\n" + minimal,
			[]string{`FILE:1:1: lisen: unknown key, did you mean "listen"?`}},
		{"unknown key of another section", "cluster:\n  memory: 5MiB\n" + minimal,
			[]string{`FILE:2:3: cluster.memory: unknown key: did you mean cache.memory? Here, want one of role, gossip, peer, advertise, join, key_file, tls`}},
		{"unknown key", "listen: {xyzzy: 1}\n" + minimal,
			[]string{`FILE:1:10: listen.xyzzy: unknown key: want one of address, max_connections`}},
		{"unknown key in a list", "sites:\n  - name: a\n    orgin: {}\n    origin: {urls: [\"http://h\"]}\n",
			[]string{`FILE:3:5: sites[0].orgin: unknown key, did you mean "origin"?`}},
		{"duplicate key", "name: a\n" + minimal + "name: b\n",
			[]string{`FILE:3:1: name: duplicate key: it stands on line 1 already`}},
		{"number for text", "name: 17\n" + minimal,
			[]string{`FILE:1:7: name: "17" is a number: want text, in quotes`}},
		{"text for a number", "filter: {keys: \"17\"}\n" + minimal,
			[]string{`FILE:1:16: filter.keys: "17" is text: want it without quotes`}},
		{"list for a value", "drain: [1s]\n" + minimal,
			[]string{`FILE:1:8: drain: is a list: want a single value`}},
		{"value for a list", "cluster:\n  join: a:1\n" + minimal,
			[]string{`FILE:2:9: cluster.join: "a:1" is text: want a list, such as [a, b]`}},
		{"value for a section", "listen: :8080\n" + minimal,
			[]string{`FILE:1:9: listen: ":8080" is text: want a section with the keys address, max_connections`}},
		{"empty list item", "cluster:\n  join:\n    - a:1\n    -\n" + minimal,
			[]string{`FILE:3:5: cluster.join[1]: the list has an empty item: want a value behind the dash`}},
		{"no size", "cache: {memory: lots}\n" + minimal,
			[]string{`FILE:1:17: cache.memory: "lots" is not a size: want a size, such as 512MiB, 1.5GB or 1048576 (bytes)`}},
		{"no duration", "drain: 30\n" + minimal,
			[]string{`FILE:1:8: drain: "30" is not a duration: want a duration with its unit, such as 500ms, 5s or 1m30s`}},
		{"no rate", "filter: {false_positive_rate: few}\n" + minimal,
			[]string{`FILE:1:31: filter.false_positive_rate: "few" is not a rate: want a rate, such as 0.5% or 0.005`}},
		{"no switch", "filter: {enabled: on}\n" + minimal,
			[]string{`FILE:1:19: filter.enabled: "on" is not a switch: want true or false`}},
		{"whom to ask", "filter: {enabled: false, ask: some}\n" + minimal,
			[]string{`FILE:1:31: filter.ask: "some": want all or none`}},
		{"nobody to ask although there are filters", "filter: {ask: none}\n" + minimal,
			[]string{`FILE:1:15: filter.ask: none is for comparison without filters: want enabled: false beside it, or no ask`}},
		{"zero where it would mean the default", "filter: {peers: 0}\n" + minimal,
			[]string{`FILE:1:17: filter.peers: is zero: want more, or leave the key out for the default`}},
		{"variable that is not set", "name: ${NOWHERE}\n" + minimal,
			[]string{`FILE:1:7: name: the environment has no NOWHERE: set it, or write the value`}},
		{"variable without quotes in braces", "admin: {address: ${A}}\n" + minimal,
			[]string{`FILE:1:19: this is not YAML: ',' or '}' must be specified; inside { } and [ ] a value with ${NAME} needs quotes: "${NAME}"`}},
		{"tab", "listen:\n\taddress: \":1\"\n",
			[]string{"FILE:2:1: this is not YAML: found character '\t' that cannot start any token; indent with spaces, YAML takes no tabs"}},
		{"two documents", minimal + "---\nname: a\n",
			[]string{`FILE:3:1: a second YAML document begins here: want one in a file`}},
		{"merge key", "x: &a {}\nlisten:\n  <<: *a\n" + minimal,
			[]string{
				`FILE:1:1: x: unknown key: want one of name, listen, admin, cluster, cache, negative, filter, purge, drain, log, tracing, sites`,
				`FILE:3:3: listen: merge keys (<<) are not supported: write the keys out, or alias a whole section`,
			}},
		{"alias of nothing", "name: *a\n" + minimal,
			[]string{`FILE:1:7: name: *a refers to nothing: want &a on a value above`}},
		{"alias of itself", "cluster: {join: &a [*a]}\n" + minimal,
			[]string{`FILE:1:20: cluster.join[0]: is a list: want a single value`}},
		{"tag", "name: !!str 5\n" + minimal,
			[]string{`FILE:1:7: name: !!str is a YAML tag: want the plain value`}},
		{"colon in braces", "sites: [{name: a, origin: {urls: [http://h:1]}}]\n",
			[]string{`FILE:1:35: sites[0].origin.urls[0]: is a section: want a single value; text with a colon in it may need quotes`}},
		{"nothing", "# empty\n",
			[]string{`FILE:1:1: sites: there is no site, so nothing to serve: give one with an origin, or start with --origin URL`}},
		{"edge's complaint at the value", "cluster:\n  role: egde\n" + minimal,
			[]string{`FILE:2:9: cluster.role: "egde" is not a role: want edge or shield`}},
		{"edge's complaint at the section when the key is absent", "sites:\n  - name: a\n    origin:\n      host: b\n",
			[]string{`FILE:3:5: sites[0].origin.urls: there is no origin: want at least one URL, such as http://127.0.0.1:9000`}},
		{"a rate that partitions inherit", "filter: {false_positive_rate: 70%}\ncache:\n  partitions: [{name: a, share: 50%, match: {path: [\"/a\"]}}, {name: b, share: 50%, false_positive_rate: 80%}]\n" + minimal,
			[]string{
				`FILE:1:31: filter.false_positive_rate: 70% is not a usable rate: want 0.0001% to 50%`,
				`FILE:3:105: cache.partitions[1].false_positive_rate: 80% is not a usable rate: want 0.0001% to 50%`,
			}},
		{"a rate that the only partition inherits", "filter: {false_positive_rate: 70%}\n" + minimal,
			[]string{`FILE:1:31: filter.false_positive_rate: 70% is not a usable rate: want 0.0001% to 50%`}},
		{"origins without a scheme", "sites:\n  - name: a\n    origin: {urls: [\"127.0.0.1:9000\", localhost, \"mailto:me\"]}\n",
			[]string{
				`FILE:3:21: sites[0].origin.urls[0]: "127.0.0.1:9000" has no scheme: write http://127.0.0.1:9000`,
				`FILE:3:39: sites[0].origin.urls[1]: "localhost" has no scheme: write http://localhost`,
				`FILE:3:50: sites[0].origin.urls[2]: "mailto:me" is not an origin: want http://host[:port] or https://host[:port]`,
			}},
		{"what only the node's making would find", "cluster: {advertise: 0.0.0.0}\nfilter: {peers: 300}\npurge: {state_dir: /dev/null}\nsites:\n" +
			"  - {name: a, origin: {urls: [\"http://h:99999\"], host: \"a b\"}, catalog: {url: x, mode: enforce}}\n",
			[]string{
				`FILE:1:22: cluster.advertise: "0.0.0.0" is no address that others can reach: want one of this machine's`,
				`FILE:2:17: filter.peers: 300: want 1 to 256`,
				`FILE:3:20: purge.state_dir: /dev/null is not a directory`,
				`FILE:5:31: sites[0].origin.urls[0]: "http://h:99999" is not an origin: "h:99999" is no host and port`,
				`FILE:5:56: sites[0].origin.host: "a b" is not a host: want a name, or name:port`,
				`FILE:5:79: sites[0].catalog.url: "x" is not an http or https URL`,
			}},
		{"an address for others without a key", "cluster: {advertise: 192.0.2.1}\n" + minimal,
			[]string{"FILE:1:22: cluster.advertise: \"192.0.2.1\" can be reached from other machines, so cluster.key_file is required: make a key with `edged keygen`"}},
		{"a filter that can't be", "filter: {keys: 400000000}\n" + minimal,
			[]string{`FILE:1:1: cache.partitions[0]: size filter: 400000000 keys at a rate of 0.000628 need 6841257472 bits: at most 2^32 are possible`}},
		{"missing secrets", "admin: {token_file: /nowhere/token}\ncluster: {key_file: /nowhere/key, gossip: \"0.0.0.0:1\"}\n" + minimal,
			[]string{
				`FILE:1:21: admin.token_file: /nowhere/token cannot be read: no such file or directory`,
				`FILE:2:21: cluster.key_file: /nowhere/key cannot be read: no such file or directory`,
			}},
		{"certificates in part", "cluster: {tls: {cert_file: /nowhere/cert, ca_file: /dev/null}}\n" + minimal,
			[]string{
				`FILE:1:11: cluster.tls.key_file: is missing: TLS between members needs cert_file, key_file and ca_file`,
				`FILE:1:28: cluster.tls.cert_file: /nowhere/cert cannot be read: no such file or directory`,
			}},
		{"certificates that are none", "cluster:\n  tls: {cert_file: /dev/null, key_file: /dev/null, ca_file: /dev/null}\n" + minimal,
			[]string{
				`FILE:2:61: cluster.tls.ca_file: there is no certificate in it: want PEM, "-----BEGIN CERTIFICATE-----"`,
			}},
		{"many at once, in the order of the lines", "name: -\nlisten: {address: nowhere}\ncache:\n  memory: 5XB\n  shards: 3\n" + minimal + "drain: soon\n",
			[]string{
				`FILE:1:7: this is not YAML: block sequence entries are not allowed in this context`,
			}},
		{"many at once", "name: \"-\"\nlisten: {address: nowhere}\ncache:\n  memory: 5XB\n  shards: 3\n" + minimal + "drain: soon\n",
			[]string{
				`FILE:1:7: name: "-" is not a node name: 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit`,
				`FILE:2:19: listen.address: "nowhere" is not an address to listen on: want host:port, such as 127.0.0.1:8080 or :8080`,
				`FILE:4:11: cache.memory: "5XB" is not a size: want a size, such as 512MiB, 1.5GB or 1048576 (bytes)`,
				`FILE:5:3: cache.shards: unknown key: want one of memory, max_object, partitions`,
				`FILE:7:8: drain: "soon" is not a duration: want a duration with its unit, such as 500ms, 5s or 1m30s`,
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sourceOf(t, tc.text)
			_, err := s.load()
			var config configError
			if !errors.As(err, &config) {
				t.Fatalf("load: %v; want a configError", err)
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), s.file, "FILE"), "\n")
			if !slices.Equal(got, tc.want) {
				t.Errorf("it says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestLoad_expandsValuesOnly(t *testing.T) {
	s := sourceOf(t, "name: ${NAME}\nfilter: {keys: \"${KEYS}\", enabled: \"${ON}\"}\ncache: {memory: \"${SIZE}MiB\"}\n"+
		"sites:\n  - name: www\n    hosts: [\"${HOST}.example\"]\n    bypass: [\"/$${HOST}\"]\n    origin: {urls: [\"http://${ADDR}\"]}\n")
	env := map[string]string{"NAME": "a1", "KEYS": "500", "ON": "false", "SIZE": "64", "HOST": "x", "ADDR": "h:1"}
	s.env = func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	c := l.config
	if c.Name != "a1" || c.Filter.Keys != 500 || !c.Filter.Off || c.Cache.Memory != 64<<20 || c.Sites[0].Hosts[0] != "x.example" || c.Sites[0].Origin.URLs[0] != "http://h:1" || c.Sites[0].Bypass[0] != "/${HOST}" {
		t.Errorf("read as %+v", c)
	}

	// What the environment brings is one value, whatever it looks like.
	env["HOST"] = "a\", \"b\"]\n    bypass: [\"/*"
	if _, err = s.load(); err == nil || !strings.Contains(err.Error(), "sites[0].hosts[0]") {
		t.Errorf("a variable with YAML in it: %v", err)
	}
	env["HOST"], env["NAME"] = "x", "${SIZE}"
	if _, err = s.load(); err == nil || !strings.Contains(err.Error(), `"${SIZE}" is not a node name`) {
		t.Errorf("a variable with a variable in it: %v", err)
	}

	s = sourceOf(t, "${NAME}: a\n"+minimal)
	s.env = func(string) (string, bool) { return "name", true }
	if _, err = s.load(); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("a variable as key: %v", err)
	}
}

func TestExpand_mistakes(t *testing.T) {
	for _, s := range []string{"${", "a${B", "${}", "${1A}", "${A-B}", "${A:-x}", "${ A }"} {
		if got, err := expand(s, func(string) (string, bool) { return "v", true }); err == nil {
			t.Errorf("expand(%q) = %q; want an error", s, got)
		}
	}
	for _, s := range []string{"", "$", "$A", "a$", "{}", "${{", "x${y}$${z}$"} {
		if got, err := expand(escape(s), noEnv); err != nil || got != s {
			t.Errorf("expand(%q) = %q, %v; want %q", escape(s), got, err, s)
		}
	}
}

func TestLoad_aliases(t *testing.T) {
	l, err := sourceOf(t, `
sites:
  - name: a
    hosts: [a.example]
    origin: &o { urls: ["http://h:1"], timeout: { connect: &t 1s, idle: *t } }
  - { name: b, hosts: [b.example], origin: *o }
`).load()
	if err != nil {
		t.Fatal(err)
	}
	if got := l.config.Sites[1].Origin; got.URLs[0] != "http://h:1" || got.Timeout.Idle != 1e9 {
		t.Errorf("the aliased origin is %+v", got)
	}
}

func TestLoad_flagsOverrideTheFile(t *testing.T) {
	s := sourceOf(t, "name: file\nlisten: {address: \":1\"}\ncluster: {join: [\"a:1\", \"b:1\"]}\n"+minimal)
	s.flags = overrides{Name: "flag", Listen: ":2", Admin: ":3", Gossip: "127.0.0.1:4", Peer: "127.0.0.1:5", Join: []string{"c:1"}, Origin: []string{"http://o:1", "http://o:2"}}
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	c := l.config
	if c.Name != "flag" || c.Listen.Address != ":2" || c.Admin.Address != ":3" || c.Cluster.Gossip != "127.0.0.1:4" || c.Cluster.Peer != "127.0.0.1:5" ||
		!slices.Equal(c.Cluster.Join, []string{"c:1"}) || !slices.Equal(c.Sites[0].Origin.URLs, s.flags.Origin) || c.Sites[0].Name != "www" {
		t.Errorf("read as %+v", c)
	}
}

func TestLoad_flagsAlone(t *testing.T) {
	s := source{env: noEnv, host: func() (string, error) { return "host-1", nil }, flags: overrides{Origin: []string{"http://o:1"}}}
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	if c := l.config; c.Name != "host-1" || len(c.Sites) != 1 || c.Sites[0].Name != "default" || c.Sites[0].Hosts != nil {
		t.Errorf("read as %+v", l.config)
	}

	s.flags = overrides{Origin: []string{"ftp://o"}, Gossip: "x"}
	_, err = s.load()
	want := "--gossip: \"x\" is not an address to listen on: want host:port, such as 127.0.0.1:8080 or :8080"
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "\n--origin: \"ftp://o\" is not an origin") {
		t.Errorf("it says\n%v", err)
	}
}

func TestLoad_originFlagWithManySites(t *testing.T) {
	s := sourceOf(t, `sites: [{name: a, hosts: [a.b], origin: {urls: ["http://h"]}}, {name: b, origin: {urls: ["http://h"]}}]`)
	s.flags.Origin = []string{"http://o"}
	_, err := s.load()
	if err == nil || err.Error() != "--origin: the file has 2 sites: want the flag with a file of one site or none" {
		t.Errorf("it says %v", err)
	}
}

func TestLoaded_explainsATakenPort(t *testing.T) {
	s := sourceOf(t, "listen:\n  address: \":1\"\n"+minimal)
	s.flags.Peer = "127.0.0.1:2"
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	err = l.explain(fmt.Errorf("start: %w", edge.Problem{Path: "listen.address", Text: "taken"}))
	if want := s.file + ":2:12: listen.address: taken"; err.Error() != want {
		t.Errorf("it says %q; want %q", err, want)
	}
	if err = l.explain(edge.Problem{Path: "cluster.peer", Text: "taken"}); err.Error() != "--peer: taken" {
		t.Errorf("it says %q; want the flag", err)
	}
	if err = l.explain(edge.Problem{Path: "admin.address", Text: "taken"}); err.Error() != s.file+":1:1: admin.address: taken" {
		t.Errorf("it says %q; want the key, although the file has it not", err)
	}
}

func TestSource_unreadable(t *testing.T) {
	_, err := source{file: filepath.Join(t.TempDir(), "nothing.yaml"), env: noEnv}.load()
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("load: %v", err)
	}
	_, err = source{file: "-", stdin: strings.NewReader(strings.Repeat(" ", maxFileBytes+1)), env: noEnv, host: os.Hostname}.load()
	if err == nil || !strings.Contains(err.Error(), "more than 1MiB") {
		t.Errorf("load: %v", err)
	}
}

func TestLoad_byteOrderMark(t *testing.T) {
	if _, err := sourceOf(t, "\xef\xbb\xbf"+minimal).load(); err != nil {
		t.Error(err)
	}
}

// A named pipe has been read once; nobody waits for who may write to it.
func TestSource_pipe(t *testing.T) {
	s := sourceOf(t, minimal)
	if err := os.Remove(s.file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(s.file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.again(); err == nil || !strings.Contains(err.Error(), "not a regular file, so it can't be read again") {
		t.Errorf("again: %v", err)
	}
	if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "there is no site") {
		t.Errorf("load: %v", err)
	}
	if _, _, err := readSecret(s.file); err != nil {
		t.Errorf("a secret: %v", err)
	}
}

func TestSource_pathsAreOfTheFilesFolder(t *testing.T) {
	s := sourceOf(t, "admin: {token_file: token}\n"+minimal)
	writeFile(t, filepath.Join(filepath.Dir(s.file), "token"), "abc", 0o600)
	l, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	if l.config.Admin.Token != "abc" || !filepath.IsAbs(l.document.Admin.TokenFile) {
		t.Errorf("token %q from %q", l.config.Admin.Token, l.document.Admin.TokenFile)
	}
}

func TestLoad_warnsOfAnOpenAdminAddress(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, "secret\n", 0o600)
	for _, tc := range []struct {
		admin string
		warns bool
	}{
		{`{}`, false}, {`{address: "127.0.0.1:1"}`, false}, {`{address: "[::1]:1"}`, false}, {`{address: "localhost:1"}`, false},
		{`{address: ":1"}`, true}, {`{address: "0.0.0.0:1"}`, true}, {`{address: "192.0.2.1:1"}`, true},
		{`{address: ":1", token_file: "` + token + `"}`, false},
	} {
		l, err := sourceOf(t, "admin: "+tc.admin+"\n"+minimal).load()
		if err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(strings.Join(l.warnings, "\n"), "set admin.token_file"); warned != tc.warns || len(l.warnings) > 1 {
			t.Errorf("admin: %s: warnings %q; want some: %v", tc.admin, l.warnings, tc.warns)
		}
	}
}
