package loadtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxExpositionBytes bounds what is read of a node's /metrics, some hundred
	// times what a node with many peers has.
	maxExpositionBytes = 8 << 20

	maxSamples = 100_000
	maxLabels  = 64
)

// sample is one line of the Prometheus text format.
type sample struct {
	name   string
	labels map[string]string // nil without labels
	value  float64
}

// samples is a scrape.
type samples []sample

// parseExposition parses the Prometheus text format, version 0.0.4, as far as
// it carries samples: comments and timestamps are skipped. A line that is not
// in the format is an error that names it. It is our own because the client
// library's parser brings protocol buffers along for what takes a page.
func parseExposition(text string) (samples, error) {
	if len(text) > maxExpositionBytes {
		return nil, fmt.Errorf("metrics: more than %v", Bytes(maxExpositionBytes))
	}
	var out samples
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, fmt.Errorf("metrics: line %d: %w", i+1, err)
		}
		if len(out) == maxSamples {
			return nil, fmt.Errorf("metrics: more than %d samples", maxSamples)
		}
		out = append(out, s)
	}
	return out, nil
}

func parseSample(line string) (sample, error) {
	end := strings.IndexFunc(line, func(r rune) bool { return !isNameRune(r) })
	if end <= 0 || line[0] >= '0' && line[0] <= '9' {
		return sample{}, errors.New("want a metric's name")
	}
	s := sample{name: line[:end]}
	rest := line[end:]
	if rest[0] == '{' {
		var err error
		if s.labels, rest, err = parseLabels(rest[1:]); err != nil {
			return sample{}, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 { // the second one is a timestamp
		return sample{}, fmt.Errorf("%s: want a value", s.name)
	}
	var err error
	if s.value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return sample{}, fmt.Errorf("%s: %q is not a number", s.name, fields[0])
	}
	return s, nil
}

func isNameRune(r rune) bool {
	return r == '_' || r == ':' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// parseLabels parses what stands after an opening brace, and returns what
// stands after the closing one.
func parseLabels(s string) (map[string]string, string, error) {
	labels := map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t")
		if rest, ok := strings.CutPrefix(s, "}"); ok {
			return labels, rest, nil
		}
		name, rest, ok := strings.Cut(s, "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) }) >= 0 {
			return nil, "", errors.New("want a label's name")
		}
		if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), `"`); !ok {
			return nil, "", fmt.Errorf("label %s: want a quoted value", name)
		}
		var value strings.Builder
		closed := false
		i := 0
		for ; i < len(rest) && !closed; i++ {
			switch c := rest[i]; c {
			case '"':
				closed = true
			case '\\':
				i++
				if i == len(rest) {
					return nil, "", fmt.Errorf("label %s: ends in an escape", name)
				}
				switch rest[i] {
				case 'n':
					value.WriteByte('\n')
				case '\\', '"':
					value.WriteByte(rest[i])
				default:
					return nil, "", fmt.Errorf("label %s: unknown escape \\%c", name, rest[i])
				}
			default:
				value.WriteByte(c)
			}
		}
		if !closed {
			return nil, "", fmt.Errorf("label %s: the value has no end", name)
		}
		if _, dup := labels[name]; dup || len(labels) == maxLabels {
			return nil, "", fmt.Errorf("label %s: twice, or too many labels", name)
		}
		labels[name] = value.String()
		s = strings.TrimLeft(rest[i:], " \t")
		if after, ok := strings.CutPrefix(s, ","); ok {
			s = after
		} else if !strings.HasPrefix(s, "}") {
			return nil, "", fmt.Errorf("label %s: want , or } after the value", name)
		}
	}
}

// sum adds up all samples of a name; ok is false when there is none.
func (ss samples) sum(name string) (v float64, ok bool) {
	for _, s := range ss {
		if s.name == name {
			v, ok = v+s.value, true
		}
	}
	return v, ok
}

// by adds up the samples of a name for each value of one label.
func (ss samples) by(name, label string) map[string]float64 {
	m := map[string]float64{}
	for _, s := range ss {
		if s.name == name {
			m[s.labels[label]] += s.value
		}
	}
	return m
}
