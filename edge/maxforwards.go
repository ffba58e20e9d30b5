package edge

import (
	"net/http"
	"strconv"
	"strings"

	"edged/edge/rfc9111"
)

// lastForward counts Max-Forwards of an OPTIONS or TRACE down (RFC 9110
// §7.6.2). At 0 this node is the last one: it answers, and the result is true.
// A field that is no number is passed on as it is.
func (n *Node) lastForward(rq *request) bool {
	lines := rq.r.Header["Max-Forwards"]
	if len(lines) != 1 {
		return false
	}
	left, err := strconv.ParseUint(lines[0], 10, 63)
	if err != nil {
		return false
	}
	if left > 0 {
		rq.r.Header["Max-Forwards"] = []string{strconv.FormatUint(left-1, 10)}
		return false
	}
	h := rq.w.Header()
	content := ""
	if rq.r.Method == http.MethodTrace {
		content = traced(rq)
		h["Content-Type"] = []string{"message/http"}
		h["Cache-Control"] = []string{"no-store"}
	} else {
		h["Allow"] = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE"}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(content))}
	n.finishHead(rq, rfc9111.CacheStatus{Fwd: "method"}, "")
	n.writeHead(rq, http.StatusOK)
	n.write(rq, []byte(content))
	n.count(rq, resBypass)
	return true
}

// traced is the head of a request as it arrived here, without what must not be
// reflected (RFC 9110 §9.3.8).
func traced(rq *request) string {
	var b strings.Builder
	b.WriteString("TRACE " + rq.target + " " + rq.r.Proto + "\r\nHost: " + rq.host + "\r\n")
	rq.r.Header.WriteSubset(&b, map[string]bool{
		"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "Cookie2": true,
	})
	b.WriteString("\r\n")
	return b.String()
}
