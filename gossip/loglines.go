package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// lineInterval is how often a line of one class is logged.
const lineInterval = 10 * time.Second

// maxLine bounds what is logged of one line.
const maxLine = 400

// Classes of lines of the membership library; also the label of a counter.
const (
	lineStreamKey = "stream_key" // a stream that our keys do not open, or that is not encrypted
	linePacketKey = "packet_key" // the same of a packet
	lineLabel     = "label"      // another cluster's
	lineQueue     = "queue_full" // more packets than were looked at
	lineProbe     = "probe"      // a member did not answer
	lineRefute    = "refute"     // somebody thought us dead
	lineConflict  = "conflict"   // two nodes with one name; never logged, see tellConflict
	lineOther     = "other"
)

// LineClasses lists all classes in Stats.LogDropped.
func LineClasses() []string {
	return []string{lineStreamKey, linePacketKey, lineLabel, lineQueue, lineProbe, lineRefute, lineOther}
}

// lines takes the log of the membership library, which writes a line for each
// packet that it cannot read: anybody can make it write. A line of each class
// is logged every lineInterval at most, with the number of those before it.
type lines struct {
	log     *slog.Logger
	suspect func(name string) // told of a member that did not answer our probe

	mu      sync.Mutex
	last    map[string]time.Time
	skipped map[string]uint64 // since last
	dropped map[string]uint64 // since the start
	handoff uint64            // packets that the library dropped, since the start
}

func newLines(log *slog.Logger, suspect func(string)) *lines {
	l := &lines{log: log, suspect: suspect, last: map[string]time.Time{}, skipped: map[string]uint64{}, dropped: map[string]uint64{}}
	for _, c := range LineClasses() {
		l.dropped[c] = 0
	}
	return l
}

// Write takes one line, "[LEVEL] memberlist: text".
func (l *lines) Write(b []byte) (int, error) {
	level, text := parseLine(b[:min(len(b), maxLine)])
	if level == slog.LevelDebug {
		return len(b), nil
	}
	class, msg := classify(text)
	if class == lineQueue {
		l.mu.Lock()
		l.handoff++
		l.mu.Unlock()
	}
	if class == lineProbe {
		if name, ok := strings.CutPrefix(text, "Suspect "); ok {
			if name, _, ok = strings.Cut(name, " has failed"); ok {
				l.suspect(name)
			}
		}
	}
	if level < slog.LevelWarn || class == lineConflict { // of a conflict tellConflict says more
		l.log.Debug("membership", "line", text)
		return len(b), nil
	}
	if skipped, ok := l.allow(class); ok {
		args := []any{"line", text}
		if _, from, ok := strings.Cut(text, "from="); ok {
			args = append(args, "remote", from)
		}
		if skipped > 0 {
			args = append(args, "skipped", skipped)
		}
		l.log.Log(context.Background(), level, msg, args...)
	}
	return len(b), nil
}

// allow reports whether a line of the class may be logged now, and how many
// were not since the last one.
func (l *lines) allow(class string) (skipped uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, ok := l.last[class]; ok && now.Sub(last) < lineInterval {
		l.skipped[class]++
		if _, known := l.dropped[class]; known {
			l.dropped[class]++
		}
		return 0, false
	}
	skipped = l.skipped[class]
	l.last[class], l.skipped[class] = now, 0
	return skipped, true
}

// counts returns how many lines of each class were not logged.
func (l *lines) counts() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := map[string]uint64{}
	for k, v := range l.dropped {
		m[k] = v
	}
	return m
}

// handoffDrops returns how many packets the library said that it dropped.
func (l *lines) handoffDrops() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handoff
}

func parseLine(b []byte) (slog.Level, string) {
	text := strings.TrimSpace(string(b))
	level := slog.LevelWarn
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if tag, rest, ok := strings.Cut(rest, "] "); ok {
			switch tag {
			case "DEBUG":
				level = slog.LevelDebug
			case "INFO":
				level = slog.LevelInfo
			case "ERR", "ERROR":
				level = slog.LevelError
			}
			text = rest
		}
	}
	return level, strings.TrimPrefix(text, "memberlist: ")
}

// classify returns the class of a line and what we say in its place.
func classify(text string) (class, msg string) {
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("Decrypt packet failed"):
		return linePacketKey, "a packet was not encrypted with our cluster key and is ignored: garbage, or a node with another cluster.key_file"
	case keyMismatch(text):
		return lineStreamKey, "a node with another cluster key was refused: give all members the same cluster.key_file"
	case has("unacceptable label"), has("label header"):
		return lineLabel, "a node of another cluster, or something else, was refused"
	case has("handler queue full"):
		return lineQueue, "messages of other members are dropped: more arrive than this node can look at"
	case has("Suspect "), has("ping"), has("Was able to connect"):
		return lineProbe, "a member did not answer a probe"
	case has("Refuting"):
		return lineRefute, "another member thought this node dead"
	case has("Conflicting address"):
		return lineConflict, "two nodes have one name"
	}
	return lineOther, "membership"
}

// keyMismatch reports whether an error of the membership library comes from
// two nodes with different keys, or one with and one without.
func keyMismatch(text string) bool {
	for _, s := range []string{"could decrypt the message", "encryption is not configured", "remote state is not encrypted"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}
