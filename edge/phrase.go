package edge

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// maxPhraseLen bounds the reason phrase that is passed on and stored, in bytes;
// of a longer one the usual one takes the place.
const maxPhraseLen = 256

// A phrase is the reason phrase of the next status line on a connection (RFC
// 9112 §4).
//
// net/http writes the usual one, and has no way to be told another. But a head
// is what it hands to the connection first after it has flushed all that went
// before, interim answers included, so a status line is always at the beginning
// of a Write: that is where the phrase is put in. (The other design, to take the
// connection over with Hijack for such an answer, gives up the framing of
// the body, keep-alive and the deadlines with it.)
type phrase struct {
	status int
	text   string
}

// unusual returns the phrase of a status line, nil when it is the one that
// net/http writes by itself.
func unusual(status int, text string) *phrase {
	if text == "" || text == http.StatusText(status) || len(text) > maxPhraseLen || strings.IndexFunc(text, isControl) >= 0 {
		return nil
	}
	return &phrase{status, strings.Clone(text)} // text is a part of a whole head
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// say makes the phrase the one of the head that comes next.
func (c *framedConn) say(ph *phrase) { c.phrase.Store(ph) }

// Write puts the phrase of the head, if one was set, into its status line.
func (c *framedConn) Write(p []byte) (int, error) {
	ph := c.phrase.Load()
	if ph == nil {
		return c.Conn.Write(p)
	}
	q, ok := ph.replace(p)
	if !ok {
		return c.Conn.Write(p)
	}
	c.phrase.Store(nil)
	if _, err := c.Conn.Write(q); err != nil {
		return 0, err
	}
	return len(p), nil
}

// replace returns p with the phrase in its status line; not ok when it does
// not begin with one of the phrase's status.
func (ph *phrase) replace(p []byte) ([]byte, bool) {
	const version, status = len("HTTP/1.1 "), len("HTTP/1.1 200 ")
	end := bytes.IndexByte(p, '\r')
	if end < status || !bytes.HasPrefix(p, []byte("HTTP/1.")) || string(p[version:status]) != strconv.Itoa(ph.status)+" " {
		return nil, false
	}
	q := make([]byte, 0, len(p)+len(ph.text))
	q = append(append(q, p[:status]...), ph.text...)
	return append(q, p[end:]...), true
}
