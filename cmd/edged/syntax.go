package main

import (
	"bytes"
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
)

// syntaxError notes what the YAML parser says, with a hint where its words
// would not lead to the cause.
func (d *decoder) syntaxError(data []byte, err error) {
	at, msg := position{1, 1}, err.Error()
	var se *yaml.SyntaxError
	if errors.As(err, &se) {
		msg = se.Message
		if se.Token != nil && se.Token.Position != nil {
			at = position{se.Token.Position.Line, se.Token.Position.Column}
		}
	}
	line := lineOf(data, at.line)
	switch {
	case strings.Contains(line, "${") && strings.ContainsAny(line, "{["):
		msg += `; inside { } and [ ] a value with ${NAME} needs quotes: "${NAME}"`
	case strings.Contains(line, "\t"):
		msg += "; indent with spaces, YAML takes no tabs"
	}
	d.bad(at, "", "this is not YAML: %s", msg)
}

func lineOf(data []byte, line int) string {
	for ; line > 1; line-- {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	return string(first)
}

// tooDeep reports whether brackets, or list dashes on one line, nest deeper
// than any configuration does: the parser recurses, and its stack is not
// bounded. Brackets in quotes and comments count too, which no real file minds.
func tooDeep(data []byte) (position, bool) {
	at, open, run := position{1, 0}, 0, 0
	for i, c := range data {
		at.column++
		switch c {
		case '\n':
			at, run = position{at.line + 1, 0}, 0
		case '[', '{':
			open, run = open+1, 0
		case ']', '}':
			open, run = max(open-1, 0), 0
		case ' ', '\t':
		default:
			// "- - - a" and "? ? ? a" nest without a bracket.
			if (c == '-' || c == '?') && i+1 < len(data) && data[i+1] == ' ' {
				run++
			} else {
				run = 0
			}
		}
		if open > maxNesting || run > maxNesting {
			return at, true
		}
	}
	return at, false
}
