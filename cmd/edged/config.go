package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"edged/edge"
)

// A source is where a node's configuration comes from: a file, flags that
// override it, and the environment that ${NAME} in the file refers to.
type source struct {
	file  string // "": flags alone; "-": standard input
	stdin io.Reader
	flags overrides
	env   func(string) (string, bool)
	host  func() (string, error) // the host's name, for a node without one
}

// A loaded configuration is checked and complete: the node, the document as
// it stands with all defaults, and what the operator should know.
type loaded struct {
	config   edge.Config
	document *document
	warnings []string

	file  string
	at    positions
	flags map[string]string // path to the flag that set it
}

// load reads and checks a configuration. Its error is a [configError] with
// everything that is wrong, except when the file can't be read at all.
func (s source) load() (*loaded, error) {
	l := &loaded{document: new(document), file: s.file, at: positions{}, flags: map[string]string{}}
	var found []problem
	if s.file != "" {
		data, err := s.read()
		if err != nil {
			return nil, err
		}
		l.document, l.at, found = decode(data, s.env)
		for i := range found {
			found[i].file = s.file
		}
		l.document.resolvePaths(s.dir())
	}
	found = append(found, s.flags.apply(l.document, l.flags)...)
	if l.document.Name == "" {
		// Without a name Problems says what to do.
		l.document.Name, _ = s.host()
	}

	c := l.document.config()
	unread := map[string]bool{} // keys with a problem already: one is enough
	for _, p := range found {
		unread[p.path] = true
	}
	var errs []edge.Problem
	l.warnings, errs = loadSecrets(l.document, &c)
	if c.Cluster.Keys == nil && l.document.Cluster.KeyFile != "" {
		// An unreadable key is one problem; that the addresses would need
		// one is none of its own.
		c.Cluster.Keys = [][]byte{make([]byte, 32)}
	}
	for _, p := range l.document.bareOrigins() {
		if !covered(unread, p.Path) {
			found, unread[p.Path] = append(found, l.locate(p)), true
		}
	}
	errs = append(errs, c.Problems()...)
	for _, p := range errs {
		if !covered(unread, p.Path) && !l.document.inherits(p.Path) {
			found = append(found, l.locate(p))
		}
	}
	if len(found) > 0 {
		sortProblems(found)
		return nil, configError(found)
	}
	l.config = c.WithDefaults()
	if a := l.config.Admin; a.Token == "" && !onLoopback(a.Address) {
		l.warnings = append(l.warnings, fmt.Sprintf("admin.address: %q can be reached from other machines, and whoever reaches it may purge and drain: set admin.token_file, or bind to 127.0.0.1", a.Address))
	}
	l.document = documentOf(l.config, l.document.secretFiles())
	return l, nil
}

// again loads the configuration once more.
func (s source) again() (*loaded, error) {
	if s.file == "-" {
		return nil, errors.New("it came from standard input, which can't be read again")
	}
	if info, err := os.Stat(s.file); err == nil && s.file != "" && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read the configuration: %s is not a regular file, so it can't be read again", s.file)
	}
	return s.load()
}

// covered reports whether the path, something below it, or a section that it
// is in could not be read: a complaint about what it defaults to misleads.
func covered(unread map[string]bool, path string) bool {
	if unread[""] {
		return true
	}
	for p := range unread {
		if p == path || inside(p, path) || inside(path, p) {
			return true
		}
	}
	return false
}

// onLoopback reports whether only this machine reaches the address.
func onLoopback(address string) bool {
	a, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && a.IP.IsLoopback()
}

// inside reports whether path is below section.
func inside(path, section string) bool {
	rest, ok := strings.CutPrefix(path, section)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

// locate gives what edge found wrong its place in the file, or the flag that brought it.
func (l *loaded) locate(p edge.Problem) problem {
	out := problem{file: l.file, path: p.Path, text: p.Text}
	for path, flag := range l.flags {
		if path == p.Path || inside(p.Path, path) {
			return problem{flag: flag, path: p.Path, text: p.Text}
		}
	}
	out.position, _ = l.at.find(p.Path)
	return out
}

// explain gives an error of edge that names a key, such as a port that is
// taken, its place in the file or its flag.
func (l *loaded) explain(err error) error {
	var all *edge.ConfigError
	if errors.As(err, &all) {
		var e configError
		for _, p := range all.Problems {
			e = append(e, l.locate(p))
		}
		sortProblems(e)
		return e
	}
	var p edge.Problem
	if !errors.As(err, &p) {
		// The parts of a node that know nothing of edge begin with the key.
		path, text, _ := strings.Cut(err.Error(), ": ")
		if !slices.Contains(allPaths(reflect.TypeFor[document](), ""), path) {
			return err
		}
		p = edge.Problem{Path: path, Text: text}
	}
	return errors.New(l.locate(p).String())
}

func (s source) read() ([]byte, error) {
	var r io.Reader = s.stdin
	if s.file != "-" {
		f, err := openNow(s.file)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		defer f.Close()
		r = f
	}
	// One byte more than is allowed, so that decode sees it is too long.
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// dir is what relative paths in the file start from: its own folder.
func (s source) dir() string {
	if s.file == "-" {
		return "."
	}
	return filepath.Dir(s.file)
}

// resolvePaths makes the paths of files absolute, so that the printed
// configuration means the same wherever it is put.
func (d *document) resolvePaths(dir string) {
	paths := []*string{&d.Admin.TokenFile, &d.Cluster.KeyFile, &d.Cluster.TLS.CertFile, &d.Cluster.TLS.KeyFile, &d.Cluster.TLS.CAFile}
	for i := range d.Sites {
		paths = append(paths, &d.Sites[i].Catalog.File)
	}
	for _, p := range paths {
		if *p == "" || filepath.IsAbs(*p) {
			continue
		}
		if abs, err := filepath.Abs(filepath.Join(dir, *p)); err == nil {
			*p = abs
		}
	}
}

// warn logs what the operator should know of the configuration.
func (l *loaded) warn(log *slog.Logger) {
	for _, w := range l.warnings {
		log.Warn(w)
	}
}
