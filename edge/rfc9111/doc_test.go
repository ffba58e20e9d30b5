package rfc9111

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table in doc.go names a test for each rule, and the tests are there.
func TestDoc_namesTestsOfEachRule(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := ""
	files, _ := filepath.Glob("*_test.go")
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(src)
	}
	row := regexp.MustCompile(`(?m)^//\t *(\d+)  (.+)$`)
	name := regexp.MustCompile(`\bTest\w+`)
	found := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		names := name.FindAllString(m[2], -1)
		if len(names) == 0 {
			t.Errorf("rule %s has no test", m[1])
		}
		for _, n := range names {
			if !strings.Contains(tests, "func "+n+"(t *testing.T)") {
				t.Errorf("rule %s: there is no %s", m[1], n)
			}
		}
		found[m[1]] = true
	}
	for _, rule := range strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28") {
		if !found[rule] {
			t.Errorf("rule %s isn't in the table", rule)
		}
	}
}
