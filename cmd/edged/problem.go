package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A problem is one thing wrong with a configuration: where it stands, what is
// wrong, and what was expected.
type problem struct {
	file     string // empty: not from a file
	flag     string // the flag that brought the value, "--origin"; empty: none
	position        // zero: not in the file
	path     string // "cache.partitions[0].share"; empty: the whole file
	text     string
}

func (p problem) String() string {
	var b strings.Builder
	switch {
	case p.flag != "":
		b.WriteString(p.flag + ": ")
	case p.file != "" && p.line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.file, p.line, p.column)
	case p.file != "":
		b.WriteString(p.file + ": ")
	}
	if p.path != "" && p.flag == "" {
		b.WriteString(p.path + ": ")
	}
	b.WriteString(p.text)
	return b.String()
}

// A configError is all that is wrong with a configuration, in the order of its lines.
type configError []problem

func (e configError) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func sortProblems(ps []problem) {
	slices.SortStableFunc(ps, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
}
