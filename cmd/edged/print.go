package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// printDocument writes the document as YAML that decodes to the same
// document. Texts are always quoted, so that none is taken for a number.
func printDocument(w io.Writer, d *document) error {
	var b strings.Builder
	printSection(&b, reflect.ValueOf(d).Elem(), "", "")
	_, err := io.WriteString(w, b.String())
	return err
}

// printSection writes the section's keys, the first one behind first, the others behind indent.
func printSection(b *strings.Builder, v reflect.Value, first, indent string) {
	for _, f := range keyFields(v.Type()) {
		fv := v.FieldByIndex(f.Index)
		if strings.Contains(f.options, "omitempty") && isEmpty(fv) {
			continue
		}
		b.WriteString(first + f.key + ":")
		first = indent
		switch {
		case fv.Kind() == reflect.Struct:
			b.WriteString("\n")
			printSection(b, fv, indent+"  ", indent+"  ")
		case fv.Kind() == reflect.Slice && fv.Len() == 0:
			b.WriteString(" []\n")
		case fv.Kind() == reflect.Slice:
			b.WriteString("\n")
			for i := range fv.Len() {
				if e := fv.Index(i); e.Kind() == reflect.Struct {
					printSection(b, e, indent+"  - ", indent+"    ")
				} else {
					b.WriteString(indent + "  - " + scalarYAML(e) + "\n")
				}
			}
		case fv.Kind() == reflect.Pointer && fv.IsNil():
			b.WriteString("\n")
		case fv.Kind() == reflect.Pointer:
			b.WriteString(" " + scalarYAML(fv.Elem()) + "\n")
		default:
			b.WriteString(" " + scalarYAML(fv) + "\n")
		}
	}
}

// isEmpty reports whether a section has no key worth printing.
func isEmpty(v reflect.Value) bool {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() > 0 || f.Kind() != reflect.Slice && !f.IsZero() {
			return false
		}
	}
	return true
}

func scalarYAML(v reflect.Value) string {
	s := text(v.Interface())
	if v.Kind() == reflect.String {
		return quoteYAML(escape(s))
	}
	return s
}

// quoteYAML is s as a double-quoted scalar (YAML 1.2 section 7.3.1).
func quoteYAML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f || r == 0x85 || r == 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
