package admin

import (
	"encoding/json"
	"net/http"
	"time"
)

// streamWrite bounds the sending of one event: a page that takes nothing for so
// long is gone.
const streamWrite = 10 * time.Second

// stream is GET /v1/stream: server-sent events (WHATWG HTML §9.2). The first
// one, "history", is a [History]; then comes a "state" a second, a [Cluster].
// Who comes while too many watch gets 503.
func (a *api) stream(w http.ResponseWriter, r *http.Request) {
	if a.node.Feed == nil {
		absent(w, r)
		return
	}
	h := w.Header()
	if r.Method == http.MethodHead {
		h.Set("Content-Type", "text/event-stream")
		return
	}
	history, events, leave, err := a.node.Feed.watch()
	if err != nil {
		h.Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, err.Error()+": close one, or ask /v1/cluster")
		return
	}
	defer leave()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // for a reverse proxy in front

	// The listener's limit for reading a request is not one for this answer. A
	// writer without deadlines, as in a test, has none to move.
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Time{})
	send := func(name string, data []byte) bool {
		_ = ctl.SetWriteDeadline(time.Now().Add(streamWrite))
		b := make([]byte, 0, len(data)+len(name)+32)
		b = append(append(append(b, "event: "...), name...), "\ndata: "...)
		b = append(append(b, data...), "\n\n"...)
		_, err := w.Write(b)
		return err == nil && ctl.Flush() == nil
	}
	first, err := json.Marshal(history)
	if err != nil {
		a.log.Error("admin: history is no JSON", "error", err)
		return
	}
	if !send("history", first) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-events:
			if !ok || !send("state", e) {
				return
			}
		}
	}
}
