package edge

import (
	"net/http"
	"slices"
	"strings"
	"unsafe"

	"edged/edge/rfc9111"
	"edged/edge/store"
)

// meta is what a stored response needs to be reused, computed once when it is
// stored. It is immutable.
type meta struct {
	rfc9111.Stored
	phrase    *phrase  // the status line's; nil: the usual one
	nominated []string // request fields that Vary names
	vary      string   // the value of those in the request that fetched it
	soft      bool     // a soft purge asks for validation before the next use
	parts     parts    // which bytes of the representation are there; nil: all
	size      int64    // of the representation, when there are parts
}

// metaBytes is what a meta costs beside the store's own share.
func (m *meta) metaBytes() int {
	n := int(unsafe.Sizeof(*m)) + len(m.vary) + 16*len(m.parts)
	if m.phrase != nil {
		n += int(unsafe.Sizeof(*m.phrase)) + len(m.phrase.text)
	}
	for _, f := range m.nominated {
		n += len(f) + 16
	}
	return n
}

func metaOf(r *store.Response) *meta { return r.Meta.(*meta) }

// serialiseHead writes fields as HTTP/1.1 lines, sorted by name, without those
// that belong to one message only.
func serialiseHead(h http.Header) string {
	names := make([]string, 0, len(h))
	size := 0
	for name, vs := range h {
		switch name {
		case "Age", "Content-Length", "Cache-Status":
			continue
		}
		names = append(names, name)
		for _, v := range vs {
			size += len(name) + len(v) + 4
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.Grow(size)
	for _, name := range names {
		for _, v := range h[name] {
			b.WriteString(name)
			b.WriteString(": ")
			b.WriteString(v)
			b.WriteString("\r\n")
		}
	}
	return b.String()
}

// applyHead puts the fields of a serialised head into h. Names and values
// stay parts of head: the only memory it takes is one slice for all values.
func applyHead(h http.Header, head string) {
	values := make([]string, 0, strings.Count(head, "\n"))
	last := ""
	for len(head) > 0 {
		end := strings.IndexByte(head, '\r')
		line := head[:end]
		head = head[end+2:]
		colon := strings.IndexByte(line, ':')
		name, value := line[:colon], line[colon+2:]
		values = append(values, value)
		if n := len(values); name == last {
			h[name] = append(h[name], value)
		} else {
			h[name] = values[n-1 : n : n]
		}
		last = name
	}
}

// headerOf is the header of a stored response, as it was stored.
func headerOf(r *store.Response) http.Header {
	h := http.Header{}
	applyHead(h, r.Head)
	return h
}

const (
	maxTags     = 256  // of one response
	maxTagBytes = 1024 // of one tag
)

// tagsOf reads the purge tags of a response: Surrogate-Key and xkey separate
// them by spaces, Cache-Tag by commas, Cache-Groups (RFC 9875) is a list of
// strings. In place of those that are too many or too long stands
// store.AnyTag, so that a purge does not miss the response.
func tagsOf(h http.Header) (tags []string, dropped droppedTags) {
	add := func(t string) {
		switch t = strings.TrimSpace(t); {
		case t == "":
		case len(t) > maxTagBytes:
			dropped.long++
		case len(tags) == maxTags:
			dropped.many++
		default:
			tags = append(tags, strings.Clone(t))
		}
	}
	for _, name := range []string{"Surrogate-Key", "Xkey"} {
		for _, line := range h[name] {
			for t := range strings.FieldsSeq(line) {
				add(t)
			}
		}
	}
	for _, line := range h["Cache-Tag"] {
		for t := range strings.SplitSeq(line, ",") {
			add(t)
		}
	}
	for _, line := range h["Cache-Groups"] {
		for t := range strings.SplitSeq(line, ",") {
			add(strings.Trim(strings.TrimSpace(t), `"`))
		}
	}
	if dropped != (droppedTags{}) {
		tags = append(tags, store.AnyTag)
	}
	slices.Sort(tags)
	return slices.Compact(tags), dropped
}

// droppedTags counts tags of a response that were not kept.
type droppedTags struct{ many, long int }

// tagsOf is tagsOf of a response that is to be stored.
func (n *Node) tagsOf(h http.Header) []string {
	tags, dropped := tagsOf(h)
	if dropped != (droppedTags{}) {
		n.metrics.droppedTags.WithLabelValues("many").Add(float64(dropped.many))
		n.metrics.droppedTags.WithLabelValues("long").Add(float64(dropped.long))
	}
	return tags
}
