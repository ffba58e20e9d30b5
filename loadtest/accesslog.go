package loadtest

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLogLine bounds a line; servers refuse heads that would make a longer one.
	maxLogLine = 64 << 10

	// maxLogEntries bounds what is kept of a log, at 32 bytes each.
	maxLogEntries = 20_000_000

	// latestLogTime is the year 2200 in seconds since 1970: between two times
	// before it there is always a time.Duration.
	latestLogTime = 7_258_118_400
)

// LogFormat is how the lines of a file are written.
type LogFormat string

// The formats. Combined is Combined Log Format; the fields after the size may
// be missing (Common Log Format). JSON is an object a line, with the names that
// nginx, Caddy and others use. Keys is a key trace: a key a line and no times.
const (
	FormatAuto     LogFormat = "auto" // by the first line
	FormatCombined LogFormat = "combined"
	FormatJSON     LogFormat = "json"
	FormatKeys     LogFormat = "keys"
)

// logEntry is one request of a log.
type logEntry struct {
	at     time.Duration // since the first one; 0 in a key trace
	key    uint64        // of host, path and query
	size   int64         // of the body; negative: not known
	absent bool          // the answer was 404 or 410
}

// accessLog is a log as it is replayed.
type accessLog struct {
	entries []logEntry // by time
	timed   bool
	skipped int // lines that are no GET, or no request at all
}

// readLog reads a whole log, which may be compressed with gzip. An error names
// the line: "name:17: want ...".
func readLog(r io.Reader, name string, format LogFormat) (*accessLog, error) {
	br := bufio.NewReader(r)
	var src io.Reader = br
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		gz, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer gz.Close()
		src = gz
	}
	lines := bufio.NewScanner(src)
	lines.Buffer(make([]byte, 0, 4<<10), maxLogLine)
	log := &accessLog{}
	sizes := map[uint64]int64{} // of keys whose whole body was once sent
	var first time.Time
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if format == "" || format == FormatAuto {
			format = formatOf(line)
		}
		l, err := parseLine(line, format)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if format != FormatKeys && !(l.at.Unix() >= 0 && l.at.Unix() < latestLogTime) {
			return nil, fmt.Errorf("%s:%d: the year %d: want 1970 to 2199", name, n, l.at.UTC().Year())
		}
		if !l.ok {
			log.skipped++
			continue
		}
		if len(log.entries) == maxLogEntries {
			return nil, fmt.Errorf("%s:%d: more than %d requests: want a part of it", name, n, maxLogEntries)
		}
		e := logEntry{key: l.key, size: -1, absent: l.status == http.StatusNotFound || l.status == http.StatusGone}
		if format != FormatKeys {
			if log.timed = true; first.IsZero() {
				first = l.at
			}
			e.at = l.at.Sub(first)
		}
		if _, known := sizes[l.key]; l.status == http.StatusOK && !known && l.size >= 0 {
			sizes[l.key] = min(l.size, MaxBodyBytes)
		}
		log.entries = append(log.entries, e)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%s:%d: the line is longer than %v", name, n+1, Bytes(maxLogLine))
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	case len(log.entries) == 0:
		return nil, fmt.Errorf("%s: there is no GET request in it (%d lines skipped)", name, log.skipped)
	}
	for i := range log.entries {
		e := &log.entries[i]
		if size, known := sizes[e.key]; known && !e.absent {
			e.size = size
		}
	}
	log.order(format == FormatCombined)
	return log, nil
}

// order sorts by time, as a server writes a line when the answer has ended, and
// counts times from the earliest. Times in whole seconds are spread evenly over
// their second, or else everyone would come at its beginning.
func (l *accessLog) order(wholeSeconds bool) {
	if !l.timed {
		return
	}
	es := l.entries
	slices.SortStableFunc(es, func(a, b logEntry) int { return cmp.Compare(a.at, b.at) })
	earliest := es[0].at
	for i := range es {
		es[i].at -= earliest
	}
	for i := 0; wholeSeconds && i < len(es); {
		j := i
		for j < len(es) && es[j].at == es[i].at {
			j++
		}
		for k := i; k < j; k++ {
			es[k].at += time.Second * time.Duration(k-i) / time.Duration(j-i)
		}
		i = j
	}
}

// logLine is what a line says.
type logLine struct {
	ok     bool // a GET that can be replayed
	at     time.Time
	key    uint64
	status int
	size   int64 // negative: not said
}

// formatOf guesses by one line.
func formatOf(line []byte) LogFormat {
	switch {
	case line[0] == '{':
		return FormatJSON
	case bytes.Contains(line, []byte(" [")) && bytes.Contains(line, []byte("] \"")):
		return FormatCombined
	}
	return FormatKeys
}

func parseLine(line []byte, format LogFormat) (logLine, error) {
	switch format {
	case FormatCombined:
		return parseCombined(string(line))
	case FormatJSON:
		return parseJSONLine(line)
	case FormatKeys:
		return logLine{ok: true, key: keyHash("", string(line)), status: http.StatusOK, size: -1}, nil
	}
	return logLine{}, fmt.Errorf("%q is not a format: want auto, combined, json or keys", format)
}

func keyHash(host, target string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, host)
	io.WriteString(h, "\x00")
	io.WriteString(h, target)
	return mix64(h.Sum64())
}

const combinedTime = "02/Jan/2006:15:04:05 -0700"

var errCombined = errors.New(`want HOST IDENT USER [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.1" 200 2326`)

// parseCombined reads a line of Combined or Common Log Format.
func parseCombined(line string) (l logLine, err error) {
	_, rest, ok := strings.Cut(line, " [")
	if !ok {
		return l, errCombined
	}
	stamp, rest, ok := strings.Cut(rest, "] \"")
	if !ok {
		return l, errCombined
	}
	if l.at, err = time.Parse(combinedTime, stamp); err != nil {
		return l, fmt.Errorf("%q is not a time: %w", clip(stamp), errCombined)
	}
	end := unescapedQuote(rest)
	if end < 0 {
		return l, fmt.Errorf("the request has no closing quote: %w", errCombined)
	}
	request := rest[:end]
	f := strings.Fields(rest[end+1:])
	if len(f) < 2 {
		return l, fmt.Errorf("status and size are missing: %w", errCombined)
	}
	if l.status, err = strconv.Atoi(f[0]); err != nil || l.status < 0 || l.status > 999 {
		return l, fmt.Errorf("%q is not a status: %w", clip(f[0]), errCombined)
	}
	l.size = -1
	if f[1] != "-" {
		if l.size, err = strconv.ParseInt(f[1], 10, 64); err != nil || l.size < 0 {
			return l, fmt.Errorf("%q is not a size: %w", clip(f[1]), errCombined)
		}
	}
	parts := strings.Split(request, " ")
	// Scanners send what is no request at all, and servers log it.
	if len(parts) < 2 || len(parts) > 3 || parts[0] != http.MethodGet || parts[1] == "" {
		return l, nil
	}
	l.ok, l.key = true, keyHash("", parts[1])
	return l, nil
}

// unescapedQuote is where a quote without a backslash before it is, or -1.
func unescapedQuote(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// clip shortens what an error quotes.
func clip(s string) string { return s[:min(len(s), 60)] }

// parseJSONLine reads an object with the fields of common servers. What is not
// said of method and status is GET and 200.
func parseJSONLine(line []byte) (l logLine, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return l, fmt.Errorf("want a JSON object: %w", err)
	}
	// Caddy has the request in an object of its own.
	if raw, ok := fields["request"]; ok && len(raw) > 0 && raw[0] == '{' {
		var request map[string]json.RawMessage
		if err := json.Unmarshal(raw, &request); err != nil {
			return l, fmt.Errorf("request: %w", err)
		}
		delete(fields, "request")
		for k, v := range request {
			fields[k] = v
		}
	}
	text := func(names ...string) string {
		for _, n := range names {
			var s string
			if raw, ok := fields[n]; ok {
				if json.Unmarshal(raw, &s) == nil {
					return s
				}
				return strings.TrimSpace(string(raw)) // a number
			}
		}
		return ""
	}
	if l.at, err = jsonTime(text("time", "ts", "timestamp", "@timestamp", "time_iso8601", "time_local", "msec")); err != nil {
		return l, err
	}
	method, target := text("method", "request_method"), text("uri", "request_uri", "url", "path")
	if request := strings.Fields(text("request")); target == "" && len(request) >= 2 {
		method, target = request[0], request[1]
	}
	if target == "" {
		return l, errors.New("want one of uri, request_uri, url, path or request")
	}
	l.status, l.size = http.StatusOK, -1
	if s := text("status"); s != "" {
		if l.status, err = strconv.Atoi(s); err != nil || l.status < 0 || l.status > 999 {
			return l, fmt.Errorf("status %q: want a number such as 200", clip(s))
		}
	}
	if s := text("size", "bytes", "body_bytes_sent", "bytes_sent"); s != "" && s != "-" && s != "null" {
		if l.size, err = strconv.ParseInt(s, 10, 64); err != nil || l.size < 0 {
			return l, fmt.Errorf("size %q: want a number of bytes", clip(s))
		}
	}
	l.ok = method == "" || method == http.MethodGet
	l.key = keyHash(text("host", "http_host"), target)
	return l, nil
}

// jsonTime reads seconds or milliseconds since 1970, RFC 3339, or the time of
// Combined Log Format.
func jsonTime(s string) (time.Time, error) {
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		if v > 1e11 {
			v /= 1e3
		}
		if !(v >= 0 && v < 1e10) {
			return time.Time{}, fmt.Errorf("time %q: want seconds since 1970", clip(s))
		}
		return time.UnixMicro(int64(v * 1e6)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, combinedTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("time %q: want a field time, ts or timestamp with RFC 3339 or seconds since 1970", clip(s))
}
