package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// FuzzDecode feeds the configuration decoder anything: it must neither panic
// nor take long, each problem has its place, and what is accepted is printed
// and read back the same.
func FuzzDecode(f *testing.F) {
	sample, err := os.ReadFile("testdata/contract.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	for _, s := range []string{
		"", minimal, "a: &x [*x, *x]", "a: &a *a\nb: *a", "sites: &s [*s]", "? [a]\n: b", "- a", "a: |\n  b", "a: !!x {}", "<<: {a: b}",
		"name: ${A}${", "name: \"$${A}\"", "\x00", "%YAML 1.2\n---\n", "a:\r\n b", "'", "sites:\n-\n-", "name: &a", "name: *", "cache: {partitions: [{match: {path: [a, ]}}]}",
		strings.Repeat("[", 100), strings.Repeat("a:\n ", 100), strings.Repeat("- ", 200), "negative: {ttl: 0}", "name: >\n\n x\n", "&a a: *a", "{}", "[]", "~",
	} {
		f.Add([]byte(s))
	}
	env := func(name string) (string, bool) { return "v", name == "A" }
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, _, found := decode(data, env)
		for _, p := range found {
			if p.line < 1 || p.column < 0 || p.text == "" {
				t.Errorf("a problem without a place: %+v", p)
			}
		}
		if len(found) > 0 {
			return
		}
		var first, second bytes.Buffer
		if err := printDocument(&first, doc); err != nil {
			t.Fatal(err)
		}
		again, _, found := decode(first.Bytes(), env)
		for _, p := range found {
			// Only a key that was left out is printed as a zero that a
			// file may not have.
			if !strings.Contains(p.text, "is zero") {
				t.Errorf("what is printed is not valid: %v\n%s", p, &first)
			}
		}
		if err := printDocument(&second, again); err != nil {
			t.Fatal(err)
		}
		if first.String() != second.String() {
			t.Errorf("printed\n%s\nthen\n%s", &first, &second)
		}
	})
}

func TestDecode_boundsAliases(t *testing.T) {
	// Each site costs a hundred values: a few bytes that stand for a million.
	item := "{hosts: *h}"
	text := "cluster: {join: &h [" + strings.Repeat("a, ", 5000) + "]}\nsites: [" + strings.Repeat(item+", ", 5000) + item + "]\n"
	_, _, found := decode([]byte(text), noEnv)
	if len(found) != 1 || !strings.Contains(found[0].text, "more than 200000 values") {
		t.Errorf("found %d problems, first %v", len(found), found[:min(len(found), 1)])
	}
}

func TestDecode_boundsNesting(t *testing.T) {
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", maxFileBytes),
		"braces":   strings.Repeat("{a: ", maxFileBytes/4),
		"dashes":   strings.Repeat("- ", maxFileBytes/2),
		"keys":     strings.Repeat("? ", maxFileBytes/2),
	} {
		if _, _, found := decode([]byte(text), noEnv); len(found) != 1 || found[0].line != 1 {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
