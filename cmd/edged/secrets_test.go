package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edged/edge"
)

func TestParseKeys(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	enc := base64.StdEncoding.EncodeToString
	keys, err := parseKeys("# primary\n" + enc(a) + "\n\n  " + enc(b) + "  # old\r\n")
	if err != nil || len(keys) != 2 || !bytes.Equal(keys[0], a) || !bytes.Equal(keys[1], b) {
		t.Fatalf("parseKeys: %v, %v", keys, err)
	}
	for text, want := range map[string]string{
		"":                            ": the file has no key: write one with `edged keygen`",
		"# only a comment\n":          ": the file has no key: write one with `edged keygen`",
		enc(a) + "\n\nhush!":          ":3: this is not base64: want a key as `edged keygen` prints it",
		"# x\n" + enc([]byte("hush")): ":2: the key has 4 bytes: want 32, as `edged keygen` prints them",
	} {
		_, err := parseKeys(text)
		if err == nil || err.Error() != want {
			t.Errorf("parseKeys(%q): %v; want %s", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "aHVzaA")) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestParseToken(t *testing.T) {
	if tok, err := parseToken(" abc\n"); err != nil || tok != "abc" {
		t.Errorf("parseToken = %q, %v", tok, err)
	}
	for _, s := range []string{"", " \n", "a b", "a\nb", "ü", "a\x00"} {
		if tok, err := parseToken(s); err == nil {
			t.Errorf("parseToken(%q) = %q; want an error", s, tok)
		}
	}
}

func TestReadSecret_warnsOfLoosePermissions(t *testing.T) {
	for perm, want := range map[uint32]bool{0o600: false, 0o640: false, 0o400: false, 0o644: true, 0o660: true, 0o604: true} {
		file := filepath.Join(t.TempDir(), "secret")
		writeFile(t, file, "x", 0o600)
		chmod(t, file, perm)
		_, warning, err := readSecret(file)
		if err != nil {
			t.Fatal(err)
		}
		if (warning != "") != want {
			t.Errorf("mode %04o: warning %q; want one: %v", perm, warning, want)
		}
	}
}

func chmod(t *testing.T, file string, perm uint32) {
	t.Helper()
	if err := os.Chmod(file, os.FileMode(perm)); err != nil {
		t.Fatal(err)
	}
}

func TestReadSecret_isBounded(t *testing.T) {
	if _, _, err := readSecret("/dev/zero"); err == nil || !strings.Contains(err.Error(), "more than 64KiB") {
		t.Errorf("readSecret(/dev/zero): %v", err)
	}
	if _, _, err := readSecret(t.TempDir()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("readSecret of a folder: %v", err)
	}
}

// TestLoadSecrets_certificates: the files are read, the printed configuration
// names them, and only the private key must be kept from others.
func TestLoadSecrets_certificates(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"cert.pem": 0o644, "key.pem": 0o644, "ca.pem": 0o644} {
		writeFile(t, filepath.Join(dir, name), name, 0o600)
		chmod(t, filepath.Join(dir, name), uint32(mode))
	}
	var d document
	d.Cluster.TLS = clusterTLSSection{CertFile: "cert.pem", KeyFile: "key.pem", CAFile: "ca.pem"}
	d.resolvePaths(dir)
	var c edge.Config
	warnings, errs := loadSecrets(&d, &c)
	if len(errs) > 0 || c.Cluster.TLS == nil {
		t.Fatalf("%v", errs)
	}
	if tls := c.Cluster.TLS; string(tls.Cert) != "cert.pem" || string(tls.Key) != "key.pem" || string(tls.CA) != "ca.pem" {
		t.Errorf("it holds %s, %s, %s", tls.Cert, tls.Key, tls.CA)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "cluster.tls.key_file: ") {
		t.Errorf("warnings %q", warnings)
	}
	if got := documentOf(c, d.secretFiles()).Cluster.TLS.KeyFile; got != filepath.Join(dir, "key.pem") {
		t.Errorf("the document names %q", got)
	}
}
