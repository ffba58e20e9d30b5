package edge

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A script is a list of conversations, each a list of blocks in the order of
// time. testdata/conversations/README.md describes the language.
type conversation struct {
	title string
	rules []int
	site  string
	over  []string
	at    string // file:line
	talk  []talkBlock
}

// talkBlock is one thing that one party says or hears.
type talkBlock struct {
	line  int
	actor string // client, origin, or one of several; "-" is a barrier
	node  string // client only: the node it speaks to, "" when it does not matter
	out   bool   // the actor says it; else it hears it
	head  []string
	body  string
	has   bool // there is a body to say or to compare
}

func readScripts(t *testing.T, pattern string) []conversation {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts at %s: %v", pattern, err)
	}
	var all []conversation
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		cs, err := parseScript(filepath.Base(f), string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cs...)
	}
	return all
}

func parseScript(file, text string) ([]conversation, error) {
	site, over := "plain", []string{"node"}
	var all []conversation
	fresh := true // the next line begins a block
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", file, i+1)
		bad := func(why string) error { return fmt.Errorf("%s: %s: %q", at, why, line) }
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.TrimSpace(line) == "" {
			fresh = true
			continue
		}
		if title, ok := strings.CutPrefix(line, "=== "); ok {
			c := conversation{site: site, over: over, at: at}
			open := strings.LastIndexByte(title, '[')
			if open < 0 || !strings.HasSuffix(title, "]") {
				return nil, bad("no [rules] behind the title")
			}
			c.title = strings.TrimSpace(title[:open])
			for _, f := range strings.Fields(title[open+1 : len(title)-1]) {
				n, err := strconv.Atoi(f)
				if err != nil {
					return nil, bad("a rule is a number")
				}
				c.rules = append(c.rules, n)
			}
			all = append(all, c)
			fresh = true
			continue
		}
		if v, ok := strings.CutPrefix(line, "site: "); ok {
			if len(all) > 0 {
				all[len(all)-1].site = v
			} else {
				site = v
			}
			continue
		}
		if v, ok := strings.CutPrefix(line, "over: "); ok {
			if len(all) > 0 {
				all[len(all)-1].over = strings.Fields(v)
			} else {
				over = strings.Fields(v)
			}
			continue
		}
		if len(all) == 0 {
			return nil, bad("before the first title")
		}
		c := &all[len(all)-1]
		if b, ok := strings.CutPrefix(line, "-- "); ok {
			c.talk = append(c.talk, talkBlock{line: i + 1, actor: "-", head: []string{b}})
			fresh = true
			continue
		}
		who, what, ok := strings.Cut(line, " ")
		if !ok {
			return nil, bad("not understood")
		}
		sign, what, _ := strings.Cut(what, " ")
		actor, node, _ := strings.Cut(who, "@")
		// The client says ">", hears "<"; the origin hears ">", says "<".
		isOrigin := strings.HasPrefix(actor, "origin")
		dir, isBody := sign[:1], strings.HasSuffix(sign, "|")
		if dir != ">" && dir != "<" {
			return nil, bad("no direction")
		}
		out := (dir == ">") != isOrigin
		n := len(c.talk)
		if fresh || n == 0 || c.talk[n-1].actor != actor || c.talk[n-1].out != out || !isBody && c.talk[n-1].has && !strings.HasPrefix(what, "(") {
			c.talk = append(c.talk, talkBlock{line: i + 1, actor: actor, node: node, out: out})
			n++
		}
		fresh = false
		b := &c.talk[n-1]
		if isBody {
			b.body += unescape(what)
			b.has = true
			continue
		}
		b.head = append(b.head, unescape(what))
	}
	return all, nil
}

func unescape(s string) string {
	s = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\0`, "\x00", `\\`, `\`).Replace(s)
	// \x(N) repeats the byte x N times.
	for {
		i := strings.Index(s, `\x(`)
		if i < 0 {
			return s
		}
		end := strings.IndexByte(s[i:], ')') + i
		n, _ := strconv.Atoi(s[i+3 : end])
		s = s[:i] + strings.Repeat("x", n) + s[end+1:]
	}
}

// dated replaces {now}, {now+60}, {rfc850-60}, {asctime} and {lower} by dates:
// now is when the conversation began.
func dated(s string, now time.Time) string {
	for form, layout := range map[string]string{
		"now": "Mon, 02 Jan 2006 15:04:05 GMT", "rfc850": "Monday, 02-Jan-06 15:04:05 GMT", "asctime": time.ANSIC,
		"lower": "mon, 02 jan 2006 15:04:05 gmt",
	} {
		for {
			i := strings.Index(s, "{"+form)
			if i < 0 {
				break
			}
			end := strings.IndexByte(s[i:], '}') + i
			delta, _ := strconv.Atoi(s[i+1+len(form) : end])
			at := now.UTC().Add(time.Duration(delta) * time.Second)
			text := at.Format(layout)
			if form == "lower" {
				text = strings.ToLower(at.Format("Mon, 02 Jan 2006 15:04:05 GMT"))
			}
			s = s[:i] + text + s[end+1:]
		}
	}
	return s
}
