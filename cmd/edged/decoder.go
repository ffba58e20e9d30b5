package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// The bounds of a configuration file. The largest real ones have some
// thousand lines; the bounds keep a wrong file name (a device, a log, a
// crafted list of aliases) from taking memory.
const (
	maxFileBytes = 1 << 20
	maxNesting   = 64
	maxValues    = 200_000
)

// A decoder turns YAML into a [document], strictly and to the end: it goes on
// after a mistake, so that all of them are reported at once. It remembers where
// each value stood, for complaints that come up later.
//
// YAML is read as its 1.2 core: one document of mappings, lists and scalars;
// anchors and aliases work, merge keys and tags are refused. "${NAME}" inside a
// scalar is replaced after parsing, so that the environment can only ever be
// part of a value, never structure; "$${" stands for a plain "${".
type decoder struct {
	env     func(string) (string, bool)
	at      positions
	found   []problem
	anchors map[string]ast.Node
	values  int
}

// A position is a line and column of a file, both from 1.
type position struct{ line, column int }

// positions are the places of a file by path ("cache.partitions[0].share"):
// scalars and list items stand at their value, sections and lists at their key.
type positions map[string]position

// find is the position of the path, or that of its nearest parent which is in the file.
func (ps positions) find(path string) (position, bool) {
	for {
		if p, ok := ps[path]; ok {
			return p, true
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			p, ok := ps[""]
			return p, ok
		}
		path = path[:i]
	}
}

// decode reads one document. The problems are those of the form alone:
// syntax, keys, types and units.
func decode(data []byte, env func(string) (string, bool)) (*document, positions, []problem) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // a mark that some editors begin UTF-8 with
	d := &decoder{env: env, at: positions{"": {1, 1}}, anchors: map[string]ast.Node{}}
	doc := new(document)
	if root, ok := d.parse(data); ok && root != nil {
		d.value(root, reflect.ValueOf(doc).Elem(), "")
	}
	return doc, d.at, d.found
}

func (d *decoder) bad(p position, path, format string, args ...any) {
	d.found = append(d.found, problem{position: p, path: path, text: fmt.Sprintf(format, args...)})
}

// parse is the syntax alone. It reports false, with a problem noted, when there is no tree.
func (d *decoder) parse(data []byte) (root ast.Node, ok bool) {
	if len(data) > maxFileBytes {
		d.bad(position{1, 1}, "", "the file has more than %s: this is hardly a configuration", formatSize(maxFileBytes))
		return nil, false
	}
	if p, deep := tooDeep(data); deep {
		d.bad(p, "", "brackets are nested more than %d deep: want at most 4", maxNesting)
		return nil, false
	}
	defer func() {
		// The YAML parser is not ours, and a file that breaks it must not
		// end a running node on reload.
		if r := recover(); r != nil {
			d.bad(position{1, 1}, "", "the YAML cannot be read: %v", r)
			root, ok = nil, false
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntaxError(data, err)
		return nil, false
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			d.bad(startOf(doc.Body), "", "a second YAML document begins here: want one in a file")
			return nil, false
		}
		root = doc.Body
	}
	return root, true
}

// value decodes a node into a field.
func (d *decoder) value(n ast.Node, field reflect.Value, path string) {
	if d.values++; d.values > maxValues {
		if d.values == maxValues+1 {
			d.bad(startOf(n), path, "there are more than %d values: want aliases that repeat less", maxValues)
		}
		return
	}
	n, ok := d.resolve(n, path)
	if !ok || isNull(n) {
		return // "key:" with nothing behind it is a key that was left out
	}
	if t, ok := n.(*ast.TagNode); ok {
		d.bad(startOf(n), path, "%s is a YAML tag: want the plain value", t.Start.Value)
		return
	}
	switch field.Kind() {
	case reflect.Struct:
		d.section(n, field, path)
	case reflect.Slice:
		d.list(n, field, path)
	case reflect.Pointer:
		v := reflect.New(field.Type().Elem())
		d.scalar(n, v.Interface(), path)
		field.Set(v)
	default:
		d.scalar(n, field.Addr().Interface(), path)
	}
}

// resolve follows anchors and aliases to the value behind them. What it keeps
// under an anchor is never an alias, so there is no circle to follow; a value
// that holds an alias of itself ends at the leaves of the document's types.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, bool) {
	switch n := n.(type) {
	case *ast.AnchorNode:
		v, ok := d.resolve(n.Value, path)
		if ok {
			d.anchors[n.Name.GetToken().Value] = v
		}
		return v, ok
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		v, ok := d.anchors[name]
		if !ok {
			d.bad(startOf(n), path, "*%s refers to nothing: want &%s on a value above", name, name)
		}
		return v, ok
	case nil:
		return nil, false
	}
	return n, true
}

func (d *decoder) section(n ast.Node, field reflect.Value, path string) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.bad(startOf(n), path, "%s: want a section with the keys %s", describe(n), strings.Join(keysOf(field.Type()), ", "))
		return
	}
	seen := map[string]position{}
	for it := m.MapRange(); it.Next(); {
		at := startOf(it.Key())
		if it.Key().IsMergeKey() {
			d.bad(at, path, "merge keys (<<) are not supported: write the keys out, or alias a whole section")
			continue
		}
		key := it.Key().GetToken().Value
		sub := join(path, key)
		if first, dup := seen[key]; dup {
			d.bad(at, sub, "duplicate key: it stands on line %d already", first.line)
			continue
		}
		seen[key] = at
		f, ok := fieldByKey(field.Type(), key)
		if !ok {
			d.bad(at, sub, "unknown key%s", suggestKey(field.Type(), path, key))
			continue
		}
		d.at[sub] = at
		if v := it.Value(); v != nil {
			before := len(d.found)
			d.value(v, field.FieldByIndex(f.Index), sub)
			if f.positive() && len(d.found) == before && !isNull(v) && field.FieldByIndex(f.Index).IsZero() {
				d.bad(startOf(v), sub, "is zero: want more, or leave the key out for the default")
			}
		}
	}
}

func (d *decoder) list(n ast.Node, field reflect.Value, path string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.bad(startOf(n), path, "%s: want a list, such as [a, b]", describe(n))
		return
	}
	out := reflect.MakeSlice(field.Type(), len(s.Values), len(s.Values))
	for i, v := range s.Values {
		sub := fmt.Sprintf("%s[%d]", path, i)
		if v == nil || isNull(v) {
			d.bad(startOf(s), sub, "the list has an empty item: want a value behind the dash")
			continue
		}
		d.at[sub] = startOf(v)
		d.value(v, out.Index(i), sub)
	}
	field.Set(out)
}

// scalar decodes a single value. Numbers and switches must be written as such,
// except where ${NAME} brings them: YAML then sees text.
func (d *decoder) scalar(n ast.Node, field any, path string) {
	at := startOf(n)
	raw, isText, ok := scalarText(n)
	if !ok {
		hint := ""
		if _, isMap := n.(ast.MapNode); isMap {
			hint = "; text with a colon in it may need quotes"
		}
		d.bad(at, path, "%s: want a single value%s", describe(n), hint)
		return
	}
	d.at[path] = at
	s := raw
	expanded := false
	if isText {
		var err error
		if s, err = expand(raw, d.env); err != nil {
			d.bad(at, path, "%v", err)
			return
		}
		expanded = s != raw
	}
	if !expanded {
		switch field.(type) {
		case *string:
			if !isText {
				d.bad(at, path, `%q is %s: want text, in quotes`, raw, kindOf(n))
				return
			}
		case *int, *bool:
			if isText && quoted(n) {
				d.bad(at, path, "%q is text: want it without quotes", raw)
				return
			}
		}
	}
	if err := setText(field, s); err != nil {
		d.bad(at, path, "%v", err)
	}
}

// scalarText is the text of a scalar as it was written, and whether YAML takes it for text.
func scalarText(n ast.Node) (s string, isText, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.BoolNode:
		return fmt.Sprint(n.Value), false, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

// startOf is where a node begins; for the mappings of YAML's block style that
// is their first key, as the parser gives them the place of its colon.
func startOf(n ast.Node) position {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return startOf(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return startOf(m.Key)
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		return position{tk.Position.Line, tk.Position.Column}
	}
	return position{1, 1}
}

func isNull(n ast.Node) bool {
	_, ok := n.(*ast.NullNode)
	return ok
}

func quoted(n ast.Node) bool {
	s, ok := n.(*ast.StringNode)
	return ok && (strings.HasPrefix(s.String(), `"`) || strings.HasPrefix(s.String(), "'"))
}

// describe is the node for a message: `"a" is text`, "is a list".
func describe(n ast.Node) string {
	if s, _, ok := scalarText(n); ok {
		return fmt.Sprintf("%q is %s", s, kindOf(n))
	}
	return "is " + kindOf(n)
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a section"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "a switch"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	}
	return "something else"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// A keyField is one key of a section.
type keyField struct {
	reflect.StructField
	key     string
	options string
}

func (f keyField) positive() bool { return strings.Contains(f.options, "positive") }

func keyFields(t reflect.Type) []keyField {
	var fs []keyField
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		fs = append(fs, keyField{f, key, options})
	}
	return fs
}

func fieldByKey(t reflect.Type, key string) (keyField, bool) {
	for _, f := range keyFields(t) {
		if f.key == key {
			return f, true
		}
	}
	return keyField{}, false
}

func keysOf(t reflect.Type) []string {
	var ks []string
	for _, f := range keyFields(t) {
		ks = append(ks, f.key)
	}
	return ks
}
