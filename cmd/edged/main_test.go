package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A ran command's outcome.
type ran struct {
	code        int
	out, errOut string
}

// command runs a command line in this process.
func command(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	var out, errOut bytes.Buffer
	code := execute(&process{
		args: args, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut, env: noEnv,
		host: func() (string, error) { return "host-1", nil },
	})
	return ran{code, out.String(), errOut.String()}
}

func TestCommands_exitCodes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		stdin  string
		code   int
		out    string // part of standard output
		errOut string // part of standard error
	}{
		{"no command", nil, "", exitUsage, "", `expected one of "run"`},
		{"unknown command", []string{"rum"}, "", exitUsage, "", `did you mean "run"?`},
		{"unknown flag", []string{"run", "--orgin", "x"}, "", exitUsage, "", "did you mean \"--origin\"?\nSee edged run --help"},
		{"help", []string{"--help"}, "", exitOK, "Try: edged demo", ""},
		{"run without anything", []string{"run"}, "", exitUsage, "", "sites: there is no site"},
		{"run with a wrong flag value", []string{"run", "--origin", "ftp://x"}, "", exitUsage, "", "--origin: \"ftp://x\""},
		{"run with a wrong file", []string{"run", "-c", "-"}, "x: 1", exitUsage, "", "-:1:1: x: unknown key"},
		{"run without the file", []string{"run", "-c", "/nowhere/edged.yaml"}, "", exitUsage, "", "no such file"},
		{"run with a wrong log format", []string{"run", "--log-format", "xml"}, "", exitUsage, "", "--log-format"},
		{"validate a wrong file", []string{"validate", "-c", "-"}, "x: 1", exitFailure, "", "-:1:1: x: unknown key"},
		{"validate without the file", []string{"validate", "-c", "/nowhere/edged.yaml"}, "", exitFailure, "", "no such file"},
		{"validate nothing", []string{"validate"}, "", exitUsage, "", "--config"},
		{"validate a right file", []string{"validate", "-c", "-"}, minimal, exitOK, "-: the configuration is valid", ""},
		{"print", []string{"validate", "-c", "-", "--print"}, minimal, exitOK, "\nname: \"host-1\"\n", ""},
		{"size", []string{"size", "--keys", "1000000", "--rate", "1%"}, "", exitOK, "17.1 a key", ""},
		{"size as JSON", []string{"size", "--keys", "1000000", "--rate", "0.01", "--json"}, "", exitOK, `"k": 8`, ""},
		{"size in millions", []string{"size", "--keys", "10M", "--rate", "1%"}, "", exitOK, "10000000", ""},
		{"size of no whole number", []string{"size", "--keys", "1.5", "--rate", "1%"}, "", exitUsage, "", "1000000, 1e6 or 1M"},
		{"size at a share of all", []string{"size", "--keys", "1", "--rate", "1"}, "", exitUsage, "", "without the sign, 1% is 0.01"},
		{"size of nothing", []string{"size", "--keys", "0", "--rate", "1%"}, "", exitUsage, "", "want at least 1"},
		{"size with a wrong rate", []string{"size", "--keys", "1", "--rate", "often"}, "", exitUsage, "", "want a rate, such as 0.5% or 0.005"},
		{"version", []string{"version"}, "", exitOK, "HTTP/1.1", ""},
		{"version as JSON", []string{"version", "--json"}, "", exitOK, `"protocols": [`, ""},
		{"purge nothing", []string{"purge"}, "", exitUsage, "", "nothing to purge"},
		{"purge with a wrong wait", []string{"purge", "--all", "--wait", "some"}, "", exitUsage, "", "--wait"},
		{"a node that is not there", []string{"status", "--admin", "127.0.0.1:1"}, "", exitFailure, "", "no node answers at 127.0.0.1:1"},
		{"a wrong admin address", []string{"status", "--admin", "ftp://x"}, "", exitUsage, "", "want HOST:PORT or http://HOST:PORT"},
		{"a wrong field", []string{"explain", "-H", "x", "http://h/"}, "", exitUsage, "", "want 'NAME: VALUE'"},
		{"demo of no nodes", []string{"demo", "--nodes", "0"}, "", exitUsage, "", "--nodes 0"},
		{"demo above the last port", []string{"demo", "--base-port", "65534"}, "", exitUsage, "", "--base-port 65534"},
		{"loadtest of an unknown scenario", []string{"loadtest", "stedy"}, "", exitUsage, "", "stedy"},
		{"loadtest at no rate", []string{"loadtest", "--rate", "0"}, "", exitUsage, "", "--rate 0: want"},
		{"loadtest at no number", []string{"loadtest", "--rate", "NaN"}, "", exitUsage, "", "--rate NaN: want"},
		{"loadtest at an endless rate", []string{"loadtest", "--rate", "Inf"}, "", exitUsage, "", "--rate +Inf: want"},
		{"loadtest of no nodes", []string{"loadtest", "--nodes", "0"}, "", exitUsage, "", "--nodes 0: want"},
		{"loadtest of less than no nodes", []string{"loadtest", "--nodes=-1"}, "", exitUsage, "", "--nodes -1: want"},
		{"loadtest of no time", []string{"loadtest", "--duration", "0s"}, "", exitUsage, "", "--duration 0s: want"},
		{"loadtest of no keys", []string{"loadtest", "--keys", "0"}, "", exitUsage, "", "--keys 0: want"},
		{"loadtest with no connection", []string{"loadtest", "--connections", "0"}, "", exitUsage, "", "--connections 0: want"},
		{"loadtest of too much at once", []string{"loadtest", "--rate", "0", "--nodes", "0"}, "", exitUsage, "", "--nodes 0: want"},
		{"loadtest diff without reports", []string{"loadtest", "diff", "/nowhere/a.json", "/nowhere/b.json"}, "", exitUsage, "", "/nowhere/a.json"},
		{"loadtest trace without a trace", []string{"loadtest", "trace", "/nowhere/keys"}, "", exitUsage, "", "/nowhere/keys"},
		{"loadtest trace with no cache", []string{"loadtest", "trace", "/nowhere/keys", "--size", "small"}, "", exitUsage, "", "is not a size"},
		{"loadtest speed without a replay", []string{"loadtest", "--speed", "2"}, "", exitUsage, "", "--replay FILE"},
		{"loadtest of both and one group", []string{"loadtest", "--compare", "--no-filters"}, "", exitUsage, "", "can't be used together"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := command(t, tc.stdin, tc.args...)
			if got.code != tc.code || !strings.Contains("\n"+got.out, tc.out) || !strings.Contains(got.errOut, tc.errOut) {
				t.Errorf("edged %s: exit code %d, out %q, err %q; want %d, out with %q, err with %q",
					strings.Join(tc.args, " "), got.code, got.out, got.errOut, tc.code, tc.out, tc.errOut)
			}
			if tc.errOut == "" && got.errOut != "" {
				t.Errorf("standard error has %q", got.errOut)
			}
		})
	}
}

func TestHelp_hasAnExample(t *testing.T) {
	for _, c := range []string{"run", "demo", "loadtest", "validate", "size", "status", "explain", "purge", "drain", "keygen", "version"} {
		got := command(t, "", c, "--help")
		if got.code != exitOK || !strings.Contains(got.out, "\n    edged "+c) {
			t.Errorf("edged %s --help (exit code %d) shows no example:\n%s", c, got.code, got.out)
		}
	}
}

func TestSize_addsUpOverThePeers(t *testing.T) {
	got := command(t, "", "size", "--keys", "1000000", "--rate", "1%", "--peers", "16")
	for _, want := range []string{"over all 16 peers", "0.0627", "8551680 bytes", "2137920 bytes"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("size does not say %q:\n%s", want, got.out)
		}
	}
}

func TestKeygen_makesAKeyOf32Bytes(t *testing.T) {
	a, b := command(t, "", "keygen"), command(t, "", "keygen")
	if a.out == b.out {
		t.Errorf("the same key twice: %s", a.out)
	}
	keys, err := parseKeys(a.out)
	if err != nil || len(keys) != 1 {
		t.Errorf("the key %q is read as %d keys, %v", a.out, len(keys), err)
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(a.out)); err != nil || len(raw) != 32 {
		t.Errorf("the key %q is %d bytes, %v", a.out, len(raw), err)
	}
}

func TestKeygen_neverOverwrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if got := command(t, "", "keygen", "-o", file); got.code != exitOK {
		t.Fatalf("keygen: %+v", got)
	}
	first := readFile(t, file)
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", st.Mode(), err)
	}
	if got := command(t, "", "keygen", "-o", file); got.code != exitFailure || !strings.Contains(got.errOut, "exists") {
		t.Errorf("keygen again: %+v", got)
	}
	if readFile(t, file) != first {
		t.Error("the key was overwritten")
	}
}

func TestReport_codes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		text string
	}{
		{nil, exitOK, ""},
		{errReported, exitFailure, ""},
		{errors.New("x"), exitFailure, "edged: x\n"},
		{usagef("x"), exitUsage, "edged: x\n"},
		{configError{{file: "f", position: position{1, 2}, path: "a.b", text: "x"}}, exitFailure, "f:1:2: a.b: x\n"},
		{usageError{configError{{path: "a", text: "x"}, {flag: "--b", path: "b", text: "y"}}}, exitUsage, "a: x\n--b: y\n"},
	} {
		var b bytes.Buffer
		if code := report(&b, tc.err); code != tc.code || b.String() != tc.text {
			t.Errorf("report(%v) = %d, %q; want %d, %q", tc.err, code, b.String(), tc.code, tc.text)
		}
	}
}
