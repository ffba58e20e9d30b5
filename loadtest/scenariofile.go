package loadtest

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// maxScenarioBytes bounds a scenario file; a long one has some hundred lines.
	maxScenarioBytes = 1 << 20

	// maxComplaints is as many as anyone reads.
	maxComplaints = 50

	// maxMerges bounds how deep merge keys (<<) follow each other, and
	// maxValues how many values there are once all aliases are followed.
	maxMerges = 8
	maxValues = 100_000
)

// ReadScenario parses a scenario file. Unknown and duplicate keys are errors.
// It goes on after a mistake: the error has a line for everything that is
// wrong, each with its line and column.
func ReadScenario(r io.Reader) (Scenario, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxScenarioBytes+1))
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario: %w", err)
	}
	if len(data) > maxScenarioBytes {
		return Scenario{}, fmt.Errorf("read scenario: more than %v", Bytes(maxScenarioBytes))
	}
	s := steady()
	s.Name, s.Description, s.FailIf = "", "", nil
	phase := s.Phases[0]
	s.Phases = nil
	f := scenarioFile{at: map[string]place{"": {1, 1}}, anchors: map[string]ast.Node{}}
	f.read(data, &s)
	if len(s.Phases) == 0 {
		s.Phases = []Phase{phase}
	}
	for i := range s.Phases {
		if p := &s.Phases[i]; p.Arrivals == "" {
			p.Arrivals = Constant
		}
	}
	for _, c := range s.complaints() {
		if !f.told(c.path) {
			c.place = f.find(c.path)
			f.found = append(f.found, c)
		}
	}
	return s, scenarioErr(f.found)
}

// place is a line and column of a file, both from 1.
type place struct{ line, column int }

// complaint is one thing that is wrong with a scenario.
type complaint struct {
	place        // zero: not from a file
	path  string // "phases[0].rate"; empty: the whole
	text  string
}

// scenarioError is all that is wrong with a scenario, a line each.
type scenarioError struct {
	file  string // empty: not from a file with a name
	found []complaint
}

// scenarioErr is nil when nothing is wrong.
func scenarioErr(found []complaint) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b complaint) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	return scenarioError{found: found}
}

func (e scenarioError) Error() string {
	var lines []string
	for _, c := range e.found {
		var at string
		if e.file != "" {
			at = e.file + ":"
		}
		if c.line > 0 {
			at += fmt.Sprintf("%d:%d:", c.line, c.column)
		}
		if c.path != "" {
			at += " " + c.path + ":"
		}
		lines = append(lines, strings.TrimSpace(at+" "+c.text))
	}
	return strings.Join(lines, "\n")
}

// scenarioFile is a file while it is read into a [Scenario].
type scenarioFile struct {
	at      map[string]place // where each path's value stands
	found   []complaint
	anchors map[string]ast.Node
	values  int // looked at so far
}

func (f *scenarioFile) bad(n ast.Node, path, format string, args ...any) {
	c := complaint{placeOf(n), path, fmt.Sprintf(format, args...)}
	if len(f.found) < maxComplaints && !slices.Contains(f.found, c) { // what is aliased is met again
		f.found = append(f.found, c)
	}
}

// told reports whether the path, or what it is part of, has a complaint.
func (f *scenarioFile) told(path string) bool {
	return slices.ContainsFunc(f.found, func(c complaint) bool {
		rest, ok := strings.CutPrefix(path, c.path)
		return ok && (c.path == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// find is where the path stands, or its nearest parent that is in the file.
func (f *scenarioFile) find(path string) place {
	for {
		if p, ok := f.at[path]; ok {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

func (f *scenarioFile) read(data []byte, s *Scenario) {
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		c := complaint{place{1, 1}, "", "this is not YAML: " + err.Error()}
		var ye yaml.Error
		if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
			p := ye.GetToken().Position
			c = complaint{place{p.Line, p.Column}, "", "this is not YAML: " + ye.GetMessage()}
		}
		f.found = append(f.found, c)
		return
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			f.bad(doc.Body, "", "a second YAML document begins here: want one")
		default:
			root = doc.Body
		}
	}
	if root != nil {
		f.value(root, reflect.ValueOf(s).Elem(), "")
	}
}

// spent counts a value, and reports whether there have been too many.
func (f *scenarioFile) spent(n ast.Node, path string) bool {
	if f.values++; f.values == maxValues+1 {
		f.bad(n, path, "there are more than %d values: want aliases and merge keys that repeat less", maxValues)
	}
	return f.values > maxValues
}

// value decodes a node into a field of a scenario.
func (f *scenarioFile) value(n ast.Node, field reflect.Value, path string) {
	n, ok := f.resolve(n, path)
	if !ok || f.spent(n, path) {
		return
	}
	if _, null := n.(*ast.NullNode); null {
		return // a key with nothing behind it is one that was left out
	}
	f.at[path] = placeOf(n)
	_, isText := field.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case !isText && field.Kind() == reflect.Struct:
		f.section(n, field, path, 0)
	case field.Kind() == reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			f.bad(n, path, "want a list")
			return
		}
		out := reflect.MakeSlice(field.Type(), len(list.Values), len(list.Values))
		for i, v := range list.Values {
			f.value(v, out.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		field.Set(out)
	default:
		sc, ok := n.(ast.ScalarNode)
		if !ok {
			f.bad(n, path, "want a single value")
			return
		}
		if err := setValue(field.Addr().Interface(), scalarText(sc)); err != nil {
			f.bad(n, path, "%v", err)
		}
	}
}

// resolve follows anchors and aliases to the value behind them. What it keeps
// under an anchor is never an alias, so there is no circle to follow.
func (f *scenarioFile) resolve(n ast.Node, path string) (ast.Node, bool) {
	switch n := n.(type) {
	case *ast.AnchorNode:
		v, ok := f.resolve(n.Value, path)
		if ok {
			f.anchors[n.Name.GetToken().Value] = v
		}
		return v, ok
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		v, ok := f.anchors[name]
		if !ok {
			f.bad(n, path, "*%s refers to nothing: want &%s on a value above", name, name)
		}
		return v, ok
	case nil:
		return nil, false
	}
	return n, true
}

// section decodes a mapping into a struct; what it merges comes first, as its
// own keys stand above that.
func (f *scenarioFile) section(n ast.Node, field reflect.Value, path string, merges int) {
	m, ok := n.(ast.MapNode)
	if !ok {
		f.bad(n, path, "want a section with the keys %s", strings.Join(keysOf(field.Type()), ", "))
		return
	}
	if merges > maxMerges {
		f.bad(n, path, "merge keys (<<) follow each other more than %d deep", maxMerges)
		return
	}
	for it := m.MapRange(); it.Next(); {
		if !it.Key().IsMergeKey() {
			continue
		}
		if v, ok := f.resolve(it.Value(), path); ok && !f.spent(v, path) {
			f.section(v, field, path, merges+1)
		}
	}
	seen := map[string]bool{}
	for it := m.MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			continue
		}
		key := it.Key().GetToken().Value
		sub := strings.TrimPrefix(path+"."+key, ".")
		i := slices.Index(keysOf(field.Type()), key)
		switch {
		case seen[key]:
			f.bad(it.Key(), sub, "duplicate key")
		case i < 0:
			f.bad(it.Key(), sub, "unknown key: want one of %s", strings.Join(keysOf(field.Type()), ", "))
		default:
			f.value(it.Value(), field.Field(i), sub)
		}
		seen[key] = true
	}
}

// keysOf returns the YAML keys of a struct, one for each field.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		keys = append(keys, t.Field(i).Tag.Get("yaml"))
	}
	return keys
}

// placeOf is where a node begins; for YAML's block mappings that is their
// first key, as the parser gives them the place of its colon.
func placeOf(n ast.Node) place {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return placeOf(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(m.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return place{t.Position.Line, t.Position.Column}
	}
	return place{1, 1}
}

func scalarText(n ast.ScalarNode) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	}
	return n.GetToken().Value
}

// setValue gives a value written as text to one field; the errors say what was
// expected.
func setValue(field any, s string) (err error) {
	number := strings.ReplaceAll(s, "_", "")
	switch v := field.(type) {
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(s))
	case *string:
		*v = s
	case *Arrivals:
		*v = Arrivals(s)
	case *FaultKind:
		*v = FaultKind(s)
	case *LogFormat:
		*v = LogFormat(s)
	case *Affinity:
		*v = Affinity(s)
	case *bool:
		if *v, err = strconv.ParseBool(s); err != nil {
			return fmt.Errorf("%q is not a switch: want true or false", s)
		}
	case *int:
		if *v, err = strconv.Atoi(number); err != nil {
			return fmt.Errorf("%q is not a number: want a whole number, such as 50000", s)
		}
	case *uint64:
		if *v, err = strconv.ParseUint(number, 10, 64); err != nil {
			return fmt.Errorf("%q is not a number: want a whole number from 0", s)
		}
	case *float64:
		if *v, err = strconv.ParseFloat(number, 64); err != nil {
			return fmt.Errorf("%q is not a number: want one such as 2000 or 0.9", s)
		}
	case *time.Duration:
		if *v, err = time.ParseDuration(s); err != nil {
			return fmt.Errorf("%q is not a duration: want one with its unit, such as 5ms or 1m30s", s)
		}
	default:
		panic(fmt.Sprintf("a scenario has no fields of type %T", field))
	}
	return nil
}
