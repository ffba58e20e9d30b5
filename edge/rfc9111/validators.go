package rfc9111

import (
	"iter"
	"net/http"
	"strings"
	"time"
)

// etagOf is the entity tag of a response, as sent; "" when there is none, or
// several.
func etagOf(h http.Header) string {
	lines := h["Etag"]
	if len(lines) != 1 {
		return ""
	}
	return trim(lines[0])
}

func isWeak(tag string) bool { return strings.HasPrefix(tag, "W/") }

// weakMatch and strongMatch compare two entity tags, RFC 9110 §8.8.3.2. Tags
// that lack their quotes match only byte by byte.
func weakMatch(a, b string) bool {
	return a != "" && strings.TrimPrefix(a, "W/") == strings.TrimPrefix(b, "W/")
}

func strongMatch(a, b string) bool { return a != "" && a == b && !isWeak(a) }

// etags yields the members of a list of entity tags. They have their own
// grammar, RFC 9110 §8.8.3: a backslash between the quotes is a plain byte.
func etags(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for line = strings.TrimLeft(line, " \t,"); line != ""; line = strings.TrimLeft(line, " \t,") {
				n := etagLen(line)
				if !yield(trim(line[:n])) {
					return
				}
				line = line[n:]
			}
		}
	}
}

// etagLen is the length of the entity tag that s begins with, up to the next
// comma when it isn't well formed.
func etagLen(s string) int {
	n := 0
	if isWeak(s) {
		n = len("W/")
	}
	if n < len(s) && s[n] == '"' {
		if end := strings.IndexByte(s[n+1:], '"'); end >= 0 {
			n += end + 2
			if rest := strings.TrimLeft(s[n:], " \t"); rest == "" || rest[0] == ',' {
				return n
			}
		}
	}
	if comma := strings.IndexByte(s, ','); comma >= 0 {
		return comma
	}
	return len(s)
}

// isSendable reports whether the tag can stand in a list with others. One
// without quotes can: its origin knows it.
func isSendable(tag string) bool {
	for i := range len(tag) {
		if c := tag[i]; c < ' ' || c == 0x7f {
			return false
		}
	}
	return tag != "" && tag != "*" && etagLen(tag) == len(tag)
}

func hasValidator(h http.Header) bool {
	return etagOf(h) != "" || len(h["Last-Modified"]) == 1
}

// sameDate compares a date field of two header sections: as text, else by the
// dates that they mean.
func sameDate(a, b http.Header, field string) bool {
	la, lb := a[field], b[field]
	if len(la) != 1 || len(lb) != 1 {
		return false
	}
	if trim(la[0]) == trim(lb[0]) {
		return true
	}
	// Without a now, a two-digit year is only equal to a two-digit year.
	ta, ok1 := ParseDate(la[0], time.Time{})
	tb, ok2 := ParseDate(lb[0], time.Time{})
	return ok1 && ok2 && ta.Equal(tb)
}

// maxValidatorsLen bounds the If-None-Match that we send.
const maxValidatorsLen = 4 << 10

// Validators replaces the preconditions of req, the header of a GET that is
// about to be forwarded, by those that validate stored responses, §4.3.1. It
// reports whether there are any; when not, the request is a plain one.
//
// selected is the stored response that the request would be answered with if
// it were fresh; nil when none of the stored variants matches the request.
// others are the further variants under the same key. With an ETag (weak ones
// too) the selected one's and the others' are listed in If-None-Match; its
// Last-Modified goes into If-Modified-Since. A selected response without ETag
// is validated by its Last-Modified alone, as an If-None-Match would override
// that.
func Validators(req, selected http.Header, others ...http.Header) bool {
	for _, name := range [...]string{"If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "If-Range"} {
		delete(req, name)
	}
	dated := false
	if modified := selected["Last-Modified"]; len(modified) == 1 {
		if _, ok := ParseDate(modified[0], time.Time{}); ok {
			req["If-Modified-Since"] = []string{modified[0]}
			dated = true
		}
	}
	tag := etagOf(selected)
	if selected != nil && !isSendable(tag) {
		return dated
	}
	list := tag
	for _, h := range others {
		t := etagOf(h)
		if !isSendable(t) || len(list)+len(t) > maxValidatorsLen || containsTag(list, t) {
			continue
		}
		if list != "" {
			list += ", "
		}
		list += t
	}
	if list == "" {
		return dated
	}
	req["If-None-Match"] = []string{list}
	return true
}

func containsTag(list, tag string) bool {
	for t := range etags([]string{list}) {
		if t == tag {
			return true
		}
	}
	return false
}
