package main

import (
	"fmt"
	"strings"
)

// expand replaces every ${NAME} of s by its value in env; "$${" stands for
// "${" itself, and any other $ for itself. A name that is not set is an
// error: an empty value would go unnoticed.
func expand(s string, env func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		name, rest, closed := strings.Cut(s[i+2:], "}")
		if !closed || !isVariable(name) {
			return "", fmt.Errorf("%q has a ${ that names no variable: want ${NAME}, or $${ for a plain ${", s)
		}
		v, ok := env(name)
		if !ok {
			return "", fmt.Errorf("the environment has no %s: set it, or write the value", name)
		}
		b.WriteString(v)
		s = rest
	}
}

// escape is the text that expand turns into s.
func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// isVariable reports whether s can name an environment variable.
func isVariable(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
