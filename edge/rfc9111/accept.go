package rfc9111

// maxPreferences is how many members an Accept-Encoding or Accept-Language may
// have to be read as a set. Real ones have up to a dozen.
const maxPreferences = 16

// preferences is an Accept-Encoding or Accept-Language: a set of members with
// a weight, RFC 9110 §12.4.2, sorted. It lives on the stack.
type preferences struct {
	n       int
	members [maxPreferences]preference
}

type preference struct {
	name   string // as sent; compared and written in lower case
	weight int    // thousandths, 0 to 1000
}

// parse reads the lines of the field and reports whether it could. With
// codings, x-gzip and x-compress are the names without "x-", RFC 9110 §8.4.1.
func (p *preferences) parse(lines []string, codings bool) bool {
	for m := range members(lines) {
		e, ok := parsePreference(m)
		if !ok {
			return false
		}
		if codings && (equalFold(e.name, "x-gzip") || equalFold(e.name, "x-compress")) {
			e.name = e.name[len("x-"):]
		}
		if !p.insert(e) {
			return false
		}
	}
	return true
}

// insert puts e in its place unless it is there; false when there is no room.
func (p *preferences) insert(e preference) bool {
	i := p.n
	for i > 0 {
		order := p.members[i-1].compare(e)
		if order == 0 {
			return true
		}
		if order < 0 {
			break
		}
		i--
	}
	if p.n == maxPreferences {
		return false
	}
	copy(p.members[i+1:p.n+1], p.members[i:p.n])
	p.members[i] = e
	p.n++
	return true
}

// compare orders by name, then by weight.
func (e preference) compare(o preference) int {
	for i := range min(len(e.name), len(o.name)) {
		if d := int(lower(e.name[i])) - int(lower(o.name[i])); d != 0 {
			return d
		}
	}
	if d := len(e.name) - len(o.name); d != 0 {
		return d
	}
	return e.weight - o.weight
}

func (p *preferences) append(dst []byte, separator string) []byte {
	for i, e := range p.members[:p.n] {
		if i > 0 {
			dst = append(dst, separator...)
		}
		for j := range len(e.name) {
			dst = append(dst, lower(e.name[j]))
		}
		if e.weight < 1000 {
			dst = appendWeight(append(dst, ";q="...), e.weight)
		}
	}
	return dst
}

// appendWeight appends a qvalue below 1 in its shortest form.
func appendWeight(dst []byte, weight int) []byte {
	dst = append(dst, '0')
	if weight == 0 {
		return dst
	}
	dst = append(dst, '.')
	for digit := 100; weight > 0; digit /= 10 {
		dst = append(dst, byte('0'+weight/digit))
		weight %= digit
	}
	return dst
}

// parsePreference reads "name" or "name;q=0.5".
func parsePreference(s string) (preference, bool) {
	n := tokenLen(s)
	if n == 0 {
		return preference{}, false
	}
	e := preference{s[:n], 1000}
	s = trim(s[n:])
	if s == "" {
		return e, true
	}
	if s[0] != ';' {
		return preference{}, false
	}
	s = trim(s[1:])
	if len(s) < 3 || lower(s[0]) != 'q' || s[1] != '=' {
		return preference{}, false
	}
	w, ok := parseWeight(s[2:])
	e.weight = w
	return e, ok
}

// parseWeight reads a qvalue: 0 to 1 with at most three decimals.
func parseWeight(s string) (int, bool) {
	if s == "" || len(s) > len("0.123") || s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0, false
	}
	w := int(s[0]-'0') * 1000
	unit := 100
	for i := 2; i < len(s); i++ {
		if !isDigit(s[i]) {
			return 0, false
		}
		w += int(s[i]-'0') * unit
		unit /= 10
	}
	return w, w <= 1000
}

// NormaliseAcceptEncoding is the value of an Accept-Encoding field in its one
// form: codings in lower case and order, each once, with their weights where
// those aren't 1. Requests that mean the same get the same response from an
// origin that answers to this form. A field that can't be read comes back
// joined, as it is. Absent and empty differ; look before calling.
func NormaliseAcceptEncoding(lines []string) string {
	var set preferences
	if set.parse(lines, true) {
		return string(set.append(nil, ", "))
	}
	var joined []byte
	for m := range members(lines) {
		if len(joined) > 0 {
			joined = append(joined, ", "...)
		}
		joined = append(joined, m...)
	}
	return string(joined)
}
