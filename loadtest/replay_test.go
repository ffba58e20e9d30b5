package loadtest

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const combinedSample = `10.0.0.1 - - [10/Oct/2025:13:55:36 +0000] "GET /a?x=1 HTTP/1.1" 200 2326 "-" "curl \"8\""
10.0.0.2 - bob [10/Oct/2025:13:55:36 +0000] "GET /gone HTTP/1.1" 404 10
10.0.0.3 - - [10/Oct/2025:13:55:38 +0000] "POST /a HTTP/1.1" 200 5 "-" "x"
10.0.0.3 - - [10/Oct/2025:13:55:38 +0000] "\x16\x03\x01" 400 0 "-" "-"

10.0.0.1 - - [10/Oct/2025:13:55:40 +0200] "GET /early HTTP/1.1" 304 -
`

func TestReadLog(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name, text string
		format     LogFormat
		want       []logEntry
		skipped    int
		timed      bool
	}{
		{"Combined Log Format", combinedSample, FormatAuto, []logEntry{
			{0, keyHash("", "/early"), -1, false}, // by its zone two hours before the others
			{2*time.Hour - 4*s, keyHash("", "/a?x=1"), 2326, false},
			{2*time.Hour - 4*s + s/2, keyHash("", "/gone"), -1, true},
		}, 2, true},
		{"a quote in the path", `h - - [10/Oct/2025:13:55:36 +0000] "GET /\"quoted\" HTTP/1.1" 200 5 "-" "-"`, FormatAuto, []logEntry{{0, keyHash("", `/\"quoted\"`), 5, false}}, 0, true},
		{"nginx as JSON", `{"time":"2025-10-10T13:55:36Z","request":"GET /a HTTP/1.1","status":"200","body_bytes_sent":"7"}
{"time":"2025-10-10T13:55:36.25Z","request_method":"HEAD","request_uri":"/a","status":200}
{"time":"2025-10-10T13:55:37Z","request_uri":"/a","status":206,"bytes":3}`, FormatAuto, []logEntry{
			{0, keyHash("", "/a"), 7, false}, {s, keyHash("", "/a"), 7, false},
		}, 1, true},
		{"Caddy", `{"level":"info","ts":1646861401.5,"request":{"method":"GET","host":"h","uri":"/b"},"status":404,"size":0}`, FormatAuto,
			[]logEntry{{0, keyHash("h", "/b"), -1, true}}, 0, true},
		{"milliseconds", `{"timestamp":1646861401500,"url":"/b"}` + "\n" + `{"timestamp":1646861401750,"url":"/b"}`, FormatAuto,
			[]logEntry{{0, keyHash("", "/b"), -1, false}, {s / 4, keyHash("", "/b"), -1, false}}, 0, true},
		{"key trace", "k1\nk2\n\nk1\n", FormatAuto, []logEntry{{0, keyHash("", "k1"), -1, false}, {0, keyHash("", "k2"), -1, false}, {0, keyHash("", "k1"), -1, false}}, 0, false},
		{"keys that look like JSON", "{a}\n", FormatKeys, []logEntry{{0, keyHash("", "{a}"), -1, false}}, 0, false},
	} {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		w.Write([]byte(tc.text))
		w.Close()
		for _, text := range []string{tc.text, zipped.String()} {
			got, err := readLog(strings.NewReader(text), "f", tc.format)
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
				continue
			}
			if len(got.entries) != len(tc.want) || got.skipped != tc.skipped || got.timed != tc.timed {
				t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
				continue
			}
			for i, e := range got.entries {
				if e != tc.want[i] {
					t.Errorf("%s: entry %d: %+v, want %+v", tc.name, i, e, tc.want[i])
				}
			}
		}
	}
}

func TestReadLog_saysWhere(t *testing.T) {
	good := `h - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	for _, tc := range []struct{ name, text, want string }{
		{"no time", good + `h - - "GET / HTTP/1.1" 200 1`, "log:2: want HOST"},
		{"a wrong time", good + `h - - [yesterday] "GET / HTTP/1.1" 200 1`, `log:2: "yesterday" is not a time`},
		{"an open quote", good + good + `h - - [10/Oct/2025:13:55:36 +0000] "GET / 200 1`, "log:3: the request has no closing quote"},
		{"no status", good + `h - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1"`, "log:2: status and size are missing"},
		{"a wrong status", good + `h - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" ok 1`, `log:2: "ok" is not a status`},
		{"a negative size", good + `h - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 -1`, `log:2: "-1" is not a size`},
		{"not JSON", `{"ts":1,"uri":"/"}` + "\n{", "log:2: want a JSON object"},
		{"JSON without a time", `{"uri":"/"}`, `log:1: time ""`},
		{"JSON without a path", `{"ts":1}`, "log:1: want one of uri"},
		{"JSON with a wrong status", `{"ts":1,"uri":"/","status":"x"}`, `log:1: status "x"`},
		{"a long line", good + strings.Repeat("x", maxLogLine+1), "log:2: the line is longer than 64KiB"},
		{"nothing", "\n\n", "log: there is no GET request in it"},
		{"a broken archive", "\x1f\x8b\x08", "log: "},
	} {
		if _, err := readLog(strings.NewReader(tc.text), "log", FormatAuto); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add([]byte(combinedSample))
	f.Add([]byte(`{"ts":1646861401.5,"request":{"method":"GET","host":"h","uri":"/b"},"status":404,"size":0}`))
	f.Add([]byte(`{"ts":1e308,"uri":"/"}`))
	f.Add([]byte("a\nb\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := readLog(bytes.NewReader(data), "f", FormatAuto)
		if err != nil {
			return
		}
		for i, e := range log.entries {
			if e.at < 0 || i > 0 && e.at < log.entries[i-1].at || e.size > MaxBodyBytes {
				t.Fatalf("entry %d: %+v", i, e)
			}
		}
	})
}

func writeLog(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReplay_times(t *testing.T) {
	file := writeLog(t, `{"ts":100,"uri":"/a","bytes":10}
{"ts":102,"uri":"/b","status":404}
{"ts":110,"uri":"/a"}`)
	for _, tc := range []struct {
		name   string
		o      Options
		at     []time.Duration
		length time.Duration
	}{
		{"as it was", Options{}, []time.Duration{0, 2 * time.Second, 10 * time.Second}, 10 * time.Second},
		{"faster", Options{Replay: ReplaySpec{Speed: 4}}, []time.Duration{0, time.Second / 2, 2500 * time.Millisecond}, 2500 * time.Millisecond},
		{"a part", Options{Duration: 5 * time.Second}, []time.Duration{0, 2 * time.Second}, 5 * time.Second},
		{"at a rate", Options{Rate: 10}, []time.Duration{time.Second / 10, time.Second / 5, 3 * time.Second / 10}, 3 * time.Second / 10},
	} {
		tc.o.Replay.File = file
		s, err := scenarioOf(tc.o)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		all, length, err := arrivalsOf(s, 1)
		if err != nil || length != tc.length || s.Prefill {
			t.Errorf("%s: %v, %v long, want %v; prefill %v", tc.name, err, length, tc.length, s.Prefill)
		}
		for i := 0; ; i++ {
			a, ok := all.next()
			if ok != (i < len(tc.at)) {
				t.Errorf("%s: %d requests, want %d", tc.name, i, len(tc.at))
			}
			if !ok || i >= len(tc.at) {
				break
			}
			if d := a.at - tc.at[i]; d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("%s: request %d at %v, want %v", tc.name, i, a.at, tc.at[i])
			}
			if wantSize := []int64{10, 0, 10}[i]; a.exists != (i != 1) || a.size != wantSize {
				t.Errorf("%s: request %d: %+v", tc.name, i, a)
			}
		}
	}
	for _, o := range []Options{
		{Replay: ReplaySpec{File: file + "x"}},
		{Replay: ReplaySpec{File: file, Format: FormatCombined}},
		{Replay: ReplaySpec{File: file, Speed: -1}},
		{Replay: ReplaySpec{File: file}, Scenario: "hot"},
		{Replay: ReplaySpec{File: writeLog(t, "a key\n"), Speed: 2}},
		{Replay: ReplaySpec{File: writeLog(t, "{\"ts\":1,\"uri\":\"/\"}\n{\"ts\":1e9,\"uri\":\"/\"}")}},
	} {
		if s, err := scenarioOf(o); err == nil {
			t.Errorf("%+v is taken: %+v", o, s)
		}
	}
}

func TestRun_replays(t *testing.T) {
	t.Parallel()
	o, out := quick(t, "ok")
	o.Scenario, o.Rate, o.Keys, o.Duration = "", 0, 0, 0
	o.Replay = ReplaySpec{File: writeLog(t, strings.Repeat(combinedSample, 20)), Speed: 7200}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Requests != 60 || r.Errors != 0 || r.Scenario.Name != "replay" || len(r.Disagreements) != 0 {
		t.Errorf("%d requests, %d errors, scenario %s, %q: want 60, none", r.Requests, r.Errors, r.Scenario.Name, r.Disagreements)
	}
}
