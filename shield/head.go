package shield

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// maxFields bounds the field lines of one head. Servers in use send fewer than
// a hundred; net/http pays some hundred bytes of memory for each.
const maxFields = 1000

// answerHead is the head of an answer, read from the connection and written
// anew in the one form that net/http understands as we do:
//
//   - one way to the end of the body: Content-Length once, or Transfer-Encoding:
//     chunked, or Connection: close, or nothing where there can be no body;
//   - a Transfer-Encoding that we don't know is taken away and the body read to
//     the close; Content-Length beside a Transfer-Encoding is taken away;
//   - Connection holds nothing but close, keep-alive (HTTP/1.0) or, in a 101,
//     what stood there, and the fields that it listed are gone. (net/http
//     removes a Connection that holds close, and with it the list.)
//   - obs-fold is spaces, and no space stands before a colon.
type answerHead struct {
	status int
	body   framing
	length int64 // of the body, with toLength
	out    []byte
}

// headEnd returns the length of the head that b begins with, its empty line
// included, or -1 while that has not come. from is where to go on looking.
// Lines may end in LF alone (RFC 9112 section 2.2).
func headEnd(b []byte, from int) int {
	for i := max(from, 0); ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return -1
		}
		i += j + 1
		switch rest := b[i:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 2
		}
	}
}

// plausible reports whether b may be the beginning of an answer's head.
func plausible(b []byte) bool {
	const want = "HTTP/1."
	n := min(len(b), len(want))
	return string(b[:n]) == want[:n]
}

type fieldLine struct{ name, value []byte }

// parseHead reads a whole head, its empty line included; b is changed and kept.
// req is what it answers.
func parseHead(b []byte, req asked) (*answerHead, *failure) {
	line, rest := cutLine(b)
	minor, status, reason, ok := parseStatusLine(line)
	if !ok {
		return nil, failf(Protocol, PhaseFirstByte, "malformed status line %q", truncate(string(line), 64))
	}
	h := &answerHead{status: status}
	fields, err := parseFields(rest)
	if err != nil {
		return nil, err
	}

	var (
		options   map[string]bool // of Connection, in lower case; nil for none
		codings   []string        // of Transfer-Encoding, in lower case
		length    = int64(-1)
		hasCoding bool
	)
	for _, f := range fields {
		switch {
		case named(f, "connection"):
			if options == nil {
				options = make(map[string]bool)
			}
			for _, o := range appendElements(nil, f.value) {
				options[o] = true
			}
		case named(f, "transfer-encoding"):
			hasCoding = true
			codings = appendElements(codings, f.value)
		case named(f, "content-length"):
			for v := range strings.SplitSeq(string(f.value), ",") {
				n, ok := parseLength(trimOWS(v))
				if !ok || length >= 0 && n != length {
					return nil, failf(Protocol, PhaseFirstByte, "Content-Length %q is not one number", truncate(string(f.value), 64))
				}
				length = n
			}
		}
	}
	if hasCoding && minor == 0 {
		return nil, failf(Protocol, PhaseFirstByte, "Transfer-Encoding in HTTP/1.0 (RFC 9112 section 6.1)")
	}
	chunked := 0
	for _, c := range codings {
		if c == "chunked" {
			chunked++
		}
	}
	if chunked > 1 {
		return nil, failf(Protocol, PhaseFirstByte, "chunked twice (RFC 9112 section 6.1)")
	}

	closes := options["close"] || minor == 0 && !options["keep-alive"]
	switch {
	case status == http.StatusSwitchingProtocols:
		if !req.upgrade || minor == 0 {
			return nil, failf(Protocol, PhaseFirstByte, "101 that no Upgrade had asked for")
		}
		h.body = forTunnel
		hasCoding, length = false, -1
	case status < 200 || status == http.StatusNoContent:
		h.body = noBody
		hasCoding, length = false, -1 // RFC 9110 section 8.6, RFC 9112 section 6.1
	case status == http.StatusNotModified || req.head:
		h.body = noBody
		if hasCoding {
			length = -1
		}
		hasCoding = false
	case hasCoding && len(codings) > 0 && codings[len(codings)-1] == "chunked":
		h.body = toLast
		closes = closes || length >= 0 // faulty framing (RFC 9112 section 6.3)
		length = -1
	case hasCoding:
		h.body = toClose
		length = -1
	case length >= 0:
		h.body, h.length = toLength, length
	default:
		h.body = toClose
	}
	closes = closes || h.body == toClose
	if h.body == toLength && h.length == 0 {
		h.body = noBody
	}

	out := make([]byte, 0, len(b)+64)
	out = append(out, "HTTP/1."...)
	out = append(out, '0'+minor, ' ')
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, reason...)
	out = append(out, "\r\n"...)
	for _, f := range fields {
		if h.body == forTunnel && (named(f, "connection") || named(f, "upgrade")) || !h.drops(f, options) {
			out = appendField(out, f.name, f.value)
		}
	}
	if length >= 0 {
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, length, 10)
		out = append(out, "\r\n"...)
	}
	if h.body == toLast {
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	switch {
	case h.body == forTunnel || status < 200:
	case closes:
		out = append(out, "Connection: close\r\n"...)
	case minor == 0:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	h.out = append(out, "\r\n"...)
	return h, nil
}

// drops reports whether a field line is not passed on as it came: because it
// frames the message, which is written anew, or because Connection lists it.
func (h *answerHead) drops(f fieldLine, options map[string]bool) bool {
	switch {
	case named(f, "connection"), named(f, "keep-alive"), named(f, "proxy-connection"),
		named(f, "content-length"), named(f, "transfer-encoding"):
		return true
	case named(f, "trailer"):
		// net/http refuses an answer that announces one of these.
		for _, t := range appendElements(nil, f.value) {
			if t == "transfer-encoding" || t == "trailer" || t == "content-length" {
				return true
			}
		}
	}
	return options != nil && options[strings.ToLower(string(f.name))] &&
		!guarded(http.CanonicalHeaderKey(string(f.name)))
}

// parseStatusLine reads HTTP/1.x SP 3DIGIT [ SP reason ] (RFC 9112 section 4).
// A version above 1.1 is taken as 1.1, which is the highest that we speak.
func parseStatusLine(line []byte) (minor byte, status int, reason []byte, ok bool) {
	const n = len("HTTP/1.1 200")
	if len(line) < n || !plausible(line) || !digit(line[7]) || line[8] != ' ' ||
		!digit(line[9]) || !digit(line[10]) || !digit(line[11]) {
		return 0, 0, nil, false
	}
	status = int(line[9]-'0')*100 + int(line[10]-'0')*10 + int(line[11]-'0')
	if status < 100 {
		return 0, 0, nil, false
	}
	if len(line) > n {
		if line[n] != ' ' {
			return 0, 0, nil, false
		}
		reason = line[n+1:]
	}
	if badText(reason) {
		return 0, 0, nil, false
	}
	return min(line[7]-'0', 1), status, reason, true
}

// parseFields reads field lines up to the empty line (RFC 9112 section 5). It
// writes spaces over obs-folds in b.
func parseFields(b []byte) ([]fieldLine, *failure) {
	if len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		return nil, failf(Protocol, PhaseFirstByte, "space before the first field (RFC 9112 section 2.2)")
	}
	for i := 0; ; i++ {
		next := bytes.IndexByte(b[i:], '\n')
		if next < 0 {
			break
		}
		i += next
		if i+1 < len(b) && (b[i+1] == ' ' || b[i+1] == '\t') {
			b[i] = ' '
			if i > 0 && b[i-1] == '\r' {
				b[i-1] = ' '
			}
		}
	}
	fields := make([]fieldLine, 0, 24)
	for {
		var line []byte
		line, b = cutLine(b)
		if len(line) == 0 {
			return fields, nil
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		name, value = trim(name), trim(value) // RFC 9112 section 5.1
		if !ok || len(name) == 0 || !isToken(name) || badText(value) {
			return nil, failf(Protocol, PhaseFirstByte, "malformed field line %q", truncate(string(line), 64))
		}
		if len(fields) == maxFields {
			return nil, failf(HeaderTooLarge, PhaseFirstByte, "more than %d fields", maxFields)
		}
		fields = append(fields, fieldLine{name, value})
	}
}

// cutLine cuts the first line off, without its CRLF or LF.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte{'\n'})
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}

// badText reports whether a value holds a byte that it can't hold on any
// account: CR, LF or NUL (RFC 9110 section 5.5).
func badText(b []byte) bool {
	return bytes.IndexByte(b, '\r') >= 0 || bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, 0) >= 0
}

// trim removes spaces and tabs from both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for n := len(b); n > 0 && (b[n-1] == ' ' || b[n-1] == '\t'); n = len(b) {
		b = b[:n-1]
	}
	return b
}

func isToken(b []byte) bool {
	for _, c := range b {
		if !isTokenByte(c) {
			return false
		}
	}
	return true
}

func appendField(out, name, value []byte) []byte {
	out = append(out, name...)
	out = append(out, ": "...)
	out = append(out, value...)
	return append(out, "\r\n"...)
}

func named(f fieldLine, lower string) bool {
	return len(f.name) == len(lower) && strings.EqualFold(string(f.name), lower)
}

// appendElements adds the elements of a list, in lower case, without empty ones.
func appendElements(dst []string, value []byte) []string {
	for e := range strings.SplitSeq(string(value), ",") {
		if e = trimOWS(e); e != "" {
			dst = append(dst, strings.ToLower(e))
		}
	}
	return dst
}

// parseLength reads 1*DIGIT below 2^63 (RFC 9110 section 8.6).
func parseLength(s string) (int64, bool) {
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
