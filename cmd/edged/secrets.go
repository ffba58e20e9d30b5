package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"edged/edge"
)

// maxSecretBytes bounds a token or key file: room for more than a thousand keys.
const maxSecretBytes = 64 << 10

// secretFiles are the names of the files that a document's secrets are in.
type secretFiles struct {
	token, keys string
	tls         clusterTLSSection
}

func (d *document) secretFiles() secretFiles {
	return secretFiles{d.Admin.TokenFile, d.Cluster.KeyFile, d.Cluster.TLS}
}

// loadSecrets reads the files that the document names into c. An unset name is
// no secret.
func loadSecrets(d *document, c *edge.Config) (warnings []string, errs []edge.Problem) {
	read := func(path, file string) (string, bool) {
		if file == "" {
			return "", false
		}
		s, warning, err := readSecret(file)
		if err != nil {
			errs = append(errs, edge.Problem{Path: path, Text: err.Error()})
			return "", false
		}
		if warning != "" {
			warnings = append(warnings, path+": "+warning)
		}
		return s, true
	}
	if s, ok := read("admin.token_file", d.Admin.TokenFile); ok {
		var err error
		if c.Admin.Token, err = parseToken(s); err != nil {
			errs = append(errs, edge.Problem{Path: "admin.token_file", Text: d.Admin.TokenFile + ": " + err.Error()})
		}
	}
	if s, ok := read("cluster.key_file", d.Cluster.KeyFile); ok {
		var err error
		if c.Cluster.Keys, err = parseKeys(s); err != nil {
			errs = append(errs, edge.Problem{Path: "cluster.key_file", Text: d.Cluster.KeyFile + err.Error()})
		}
	}
	if t := d.Cluster.TLS; t != (clusterTLSSection{}) {
		whole := true
		var pem [3]string
		for i, f := range []struct{ key, file string }{{"cert_file", t.CertFile}, {"key_file", t.KeyFile}, {"ca_file", t.CAFile}} {
			path := "cluster.tls." + f.key
			var ok bool
			switch {
			case f.file == "":
				errs = append(errs, edge.Problem{Path: path, Text: "is missing: TLS between members needs cert_file, key_file and ca_file"})
			case f.key == "key_file":
				pem[i], ok = read(path, f.file)
			default: // no secret, so anyone may read it
				text, _, err := readSecret(f.file)
				if err != nil {
					errs = append(errs, edge.Problem{Path: path, Text: err.Error()})
				}
				pem[i], ok = text, err == nil
			}
			whole = whole && ok
		}
		if whole {
			c.Cluster.TLS = &edge.ClusterTLS{Cert: []byte(pem[0]), Key: []byte(pem[1]), CA: []byte(pem[2])}
		}
	}
	return warnings, errs
}

// readToken reads the token of a flag's file.
func readToken(file string) (string, error) {
	s, _, err := readSecret(file)
	if err != nil {
		return "", usageError{err}
	}
	token, err := parseToken(s)
	if err != nil {
		return "", usagef("%s: %w", file, err)
	}
	return token, nil
}

// openNow opens a file to read. A named pipe that nobody writes to is empty, rather
// than waited for.
func openNow(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// readSecret reads a small file and says when others than its owner and group can.
func readSecret(file string) (content, warning string, err error) {
	f, err := openNow(file)
	if err != nil {
		return "", "", fmt.Errorf("%s cannot be read: %w", file, errors.Unwrap(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%s cannot be read: %w", file, err)
	case len(data) > maxSecretBytes:
		return "", "", fmt.Errorf("%s has more than %s: this is hardly a secret", file, formatSize(maxSecretBytes))
	}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		if perm := st.Mode().Perm(); perm&(groupWrite|othersAny) != 0 {
			warning = fmt.Sprintf("%s can be read or written by others (mode %04o): chmod 600 it", file, perm)
		}
	}
	return string(data), warning, nil
}

// The permissions that a secret's file should not give. Reading by the group is
// how a service gets a secret that root owns.
const (
	groupWrite fs.FileMode = 0o020
	othersAny  fs.FileMode = 0o007
)

// parseToken trims the token's file and checks that it fits an Authorization field.
func parseToken(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", errors.New("the file is empty: want a token, or no token_file")
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return "", errors.New("the token has a space, a line break or a byte outside of ASCII: want one line of visible characters")
		}
	}
	return s, nil
}

// parseKeys reads a keyring: one base64 key of 32 bytes a line, the first one
// encrypts, all decrypt. Blank lines and what follows a # are skipped. The
// error begins with the line, ":3: ...".
func parseKeys(s string) ([][]byte, error) {
	var keys [][]byte
	line := 0
	for text := range strings.Lines(s) {
		line++
		text, _, _ = strings.Cut(text, "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		// The text itself is a secret, so no error may quote it.
		key, err := base64.StdEncoding.DecodeString(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf(":%d: this is not base64: want a key as `edged keygen` prints it", line)
		case len(key) != 32:
			return nil, fmt.Errorf(":%d: the key has %d bytes: want 32, as `edged keygen` prints them", line, len(key))
		}
		keys = append(keys, key)
	}
	if keys == nil {
		return nil, errors.New(": the file has no key: write one with `edged keygen`")
	}
	return keys, nil
}
