package main

import (
	"fmt"
	"reflect"
	"strings"
)

// suggestKey says what may have been meant by a key that the section does not
// have: a key spelt nearly so, a section that has it, else all that there are.
func suggestKey(section reflect.Type, path, key string) string {
	keys := keysOf(section)
	if near, ok := nearest(key, keys); ok {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	for _, p := range allPaths(reflect.TypeFor[document](), "") {
		if _, last := cutLast(p); last == key && p != join(path, key) {
			return fmt.Sprintf(": did you mean %s? Here, want one of %s", p, strings.Join(keys, ", "))
		}
	}
	return ": want one of " + strings.Join(keys, ", ")
}

// nearest is the word with the fewest edits from w, if they are few for its length.
func nearest(w string, words []string) (string, bool) {
	best, least := "", 1+len(w)/3
	for _, c := range words {
		if n := edits(strings.ToLower(w), c); n <= least && (best == "" || n < least) {
			best, least = c, n
		}
	}
	return best, best != ""
}

// edits is the number of bytes to insert, delete, change or swap with their
// neighbour to make b of a (optimal string alignment). Words longer than any
// key differ wholly.
func edits(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	var d [65][65]int
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], 1+d[i-2][j-2])
			}
		}
	}
	return d[len(a)][len(b)]
}

// allPaths are the paths of all keys below a section, lists without their
// index: "sites.origin.urls".
func allPaths(t reflect.Type, path string) []string {
	var ps []string
	for _, f := range keyFields(t) {
		p := join(path, f.key)
		ps = append(ps, p)
		ft := f.Type
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			ps = append(ps, allPaths(ft, p)...)
		}
	}
	return ps
}

func cutLast(path string) (parent, key string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}
