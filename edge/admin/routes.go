package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func (a *api) metrics(w http.ResponseWriter, r *http.Request) {
	if a.node.Metrics == nil {
		fail(w, http.StatusNotFound, "this node has no metrics")
		return
	}
	a.node.Metrics.ServeHTTP(w, r)
}

func (a *api) cluster(w http.ResponseWriter, r *http.Request) {
	if a.node.Cluster == nil {
		absent(w, r)
		return
	}
	c := a.node.Cluster()
	complete(&c)
	a.answer(w, c)
}

// complete leaves no null in c.
func complete(c *Cluster) {
	c.Members = list(c.Members)
	c.Partitions = list(c.Partitions)
	c.Catalogs = list(c.Catalogs)
	c.Origins = list(c.Origins)
	c.Negative.Refused = table(c.Negative.Refused)
	c.Requests = table(c.Requests)
	c.PeerRPCs = table(c.PeerRPCs)
}

func (a *api) keys(w http.ResponseWriter, r *http.Request) {
	if a.node.Keys == nil {
		absent(w, r)
		return
	}
	members := list(a.node.Keys(r.Context()))
	for i := range members {
		members[i].Decrypt = list(members[i].Decrypt)
	}
	a.answer(w, struct {
		Members []MemberKeys `json:"members"`
	}{members})
}

const (
	usualTags = 20   // that are listed when nobody says how many
	mostTags  = 1000 // that can be asked for
)

// tags lists the largest tags of what is stored here, as many as n says.
func (a *api) tags(w http.ResponseWriter, r *http.Request) {
	if a.node.Tags == nil {
		absent(w, r)
		return
	}
	n := usualTags
	if s := r.URL.Query().Get("n"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > mostTags {
			fail(w, http.StatusBadRequest, fmt.Sprintf("n %q: want a number from 1 to %d", s, mostTags))
			return
		}
	}
	t := a.node.Tags(n)
	t.Tags = list(t.Tags)
	a.answer(w, t)
}

// list and table keep null out of answers: a client need not tell apart what
// is empty and what is missing.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func table(m map[string]uint64) map[string]uint64 {
	if m == nil {
		return map[string]uint64{}
	}
	return m
}

// maxExplainFields bounds the header fields of one question.
const maxExplainFields = 64

func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	if a.node.Explain == nil {
		absent(w, r)
		return
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, "the query can't be read: "+err.Error())
		return
	}
	for name := range q {
		if name != "url" && name != "method" && name != "header" {
			fail(w, http.StatusBadRequest, fmt.Sprintf("unknown parameter %q: want url, method or header", name))
			return
		}
	}
	if err := checkURL(q.Get("url")); err != nil {
		fail(w, http.StatusBadRequest, "url: "+err.Error())
		return
	}
	method := cmp.Or(q.Get("method"), http.MethodGet)
	if !isToken(method) {
		fail(w, http.StatusBadRequest, fmt.Sprintf("method %q is not a method", method))
		return
	}
	if len(q["header"]) > maxExplainFields {
		fail(w, http.StatusBadRequest, fmt.Sprintf("there are more than %d header fields", maxExplainFields))
		return
	}
	header := http.Header{}
	for _, line := range q["header"] {
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !isToken(name) || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			fail(w, http.StatusBadRequest, fmt.Sprintf("header %q is not a field: want Name:Value", line))
			return
		}
		header.Add(name, value)
	}
	e, err := a.node.Explain(r.Context(), method, q.Get("url"), header)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	e.Steps = list(e.Steps)
	e.Stored = list(e.Stored)
	e.Filters = list(e.Filters)
	for i := range e.Stored {
		e.Stored[i].Tags = list(e.Stored[i].Tags)
	}
	a.answer(w, e)
}

func (a *api) purge(w http.ResponseWriter, r *http.Request) {
	if a.node.Purge == nil {
		absent(w, r)
		return
	}
	var req PurgeRequest
	if !decode(w, r, &req) {
		return
	}
	if !req.All && len(req.URLs)+len(req.Tags)+len(req.Prefixes)+len(req.Hosts) == 0 {
		fail(w, http.StatusBadRequest, `there is nothing to purge: want urls, tags, prefixes or hosts, or "all": true`)
		return
	}
	if !urlsOf(w, req.URLs, true) || !named(w, "tags", req.Tags) || !named(w, "prefixes", req.Prefixes) || !named(w, "hosts", req.Hosts) {
		return
	}
	switch req.Wait {
	case "":
		req.Wait = "all"
	case "all", "none":
	default:
		fail(w, http.StatusBadRequest, fmt.Sprintf("wait %q: want all or none", req.Wait))
		return
	}
	req.By = r.RemoteAddr
	a.watched(w, r, func(watch *PurgeWatch) (PurgeResult, error) { return a.node.Purge(r.Context(), req, watch) })
}

// progress tells how far a purge has come.
func (a *api) progress(w http.ResponseWriter, r *http.Request) {
	if a.node.PurgeProgress == nil {
		absent(w, r)
		return
	}
	a.watched(w, r, func(watch *PurgeWatch) (PurgeResult, error) {
		return a.node.PurgeProgress(r.Context(), r.PathValue("id"), watch)
	})
}

// watched answers with the result of a purge; to who accepts
// application/x-ndjson with a line of JSON for each step, as it comes: a
// [PurgeResult] when the node itself has applied the purge, a [PurgeNode] for each
// other member that has, or can't be reached, and the PurgeResult at the end.
func (a *api) watched(w http.ResponseWriter, r *http.Request, purge func(*PurgeWatch) (PurgeResult, error)) {
	if !accepts(r, "application/x-ndjson") {
		res, err := purge(nil)
		a.purged(w, r, res, err)
		return
	}
	lines := &lineWriter{w: w}
	result := func(res PurgeResult) {
		res.Missing, res.Nodes = list(res.Missing), list(res.Nodes)
		lines.write(res)
	}
	res, err := purge(&PurgeWatch{Begun: result, Changed: func(n PurgeNode) { lines.write(n) }})
	switch {
	case err == nil:
		result(res)
	case lines.begun: // it is too late for a status
		lines.fail(err)
	default:
		a.refuse(w, r, err)
	}
}

// accepts reports whether the request names a media type among those that it
// accepts (RFC 9110 §12.5.1); a wildcard names none.
func accepts(r *http.Request, media string) bool {
	for _, line := range r.Header["Accept"] {
		for part := range strings.SplitSeq(line, ",") {
			t, params, err := mime.ParseMediaType(part)
			if q, _ := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64); err == nil && t == media && q > 0 {
				return true
			}
		}
	}
	return false
}

func (a *api) purged(w http.ResponseWriter, r *http.Request, res PurgeResult, err error) {
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	res.Missing = list(res.Missing)
	res.Nodes = list(res.Nodes)
	a.answer(w, res)
}

// urlsRequest is the body of created.
type urlsRequest struct {
	URLs []string `json:"urls"`
}

func (a *api) created(w http.ResponseWriter, r *http.Request) {
	if a.node.Created == nil {
		absent(w, r)
		return
	}
	var req urlsRequest
	if !decode(w, r, &req) || !urlsOf(w, req.URLs, false) {
		return
	}
	res, err := a.node.Created(r.Context(), req.URLs)
	a.purged(w, r, res, err)
}

func (a *api) warm(w http.ResponseWriter, r *http.Request) {
	if a.node.Warm == nil {
		absent(w, r)
		return
	}
	var req WarmRequest
	if !decode(w, r, &req) || !urlsOf(w, req.URLs, false) {
		return
	}
	if req.Rate < 0 {
		fail(w, http.StatusBadRequest, fmt.Sprintf("rate %d: want fetches a second, or 0", req.Rate))
		return
	}
	if !req.Progress {
		res, err := a.node.Warm(r.Context(), req, func(WarmResult) {})
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		a.answer(w, res)
		return
	}
	lines := &lineWriter{w: w}
	res, err := a.node.Warm(r.Context(), req, func(res WarmResult) { lines.write(res) })
	switch {
	case err == nil:
		lines.write(res)
	case lines.begun: // it is too late for a status
		lines.fail(err)
	default:
		a.refuse(w, r, err)
	}
}

// lineWriter answers with one line of JSON after the other, as they come.
type lineWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (l *lineWriter) write(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return // only for types that JSON does not have
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
		l.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	ctl := http.NewResponseController(l.w)
	_ = ctl.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer in a test has none
	l.w.Write(append(b, '\n'))
	ctl.Flush()
}

// fail ends the answer with what went wrong.
func (l *lineWriter) fail(err error) {
	l.write(struct {
		Error string `json:"error"`
	}{err.Error()})
}

func (a *api) catalog(w http.ResponseWriter, r *http.Request) {
	if a.node.CatalogUpdate == nil {
		absent(w, r)
		return
	}
	var req struct {
		Add    []string `json:"add"`
		Remove []string `json:"remove"`
	}
	if !decode(w, r, &req) {
		return
	}
	if len(req.Add)+len(req.Remove) == 0 {
		fail(w, http.StatusBadRequest, "there is nothing to change: want add or remove")
		return
	}
	for _, p := range append(req.Add[:len(req.Add):len(req.Add)], req.Remove...) {
		if !strings.HasPrefix(p, "/") {
			fail(w, http.StatusBadRequest, fmt.Sprintf("%.200q is not a path: want one that begins with /", p))
			return
		}
	}
	res, err := a.node.CatalogUpdate(r.Context(), r.PathValue("site"), req.Add, req.Remove)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	res.Missing = list(res.Missing)
	a.answer(w, res)
}

func (a *api) reload(w http.ResponseWriter, r *http.Request) {
	if a.node.Reload == nil {
		absent(w, r)
		return
	}
	if !decode(w, r, &struct{}{}) {
		return
	}
	if err := a.node.Reload(r.Context()); err != nil {
		a.refuse(w, r, err)
		return
	}
	a.answer(w, struct {
		Reloaded bool `json:"reloaded"`
	}{true})
}

func (a *api) drain(w http.ResponseWriter, r *http.Request) {
	if a.node.Drain == nil {
		absent(w, r)
		return
	}
	if !decode(w, r, &struct{}{}) {
		return
	}
	if err := a.node.Drain(r.Context()); err != nil {
		a.refuse(w, r, err)
		return
	}
	a.answer(w, struct {
		Draining bool `json:"draining"`
	}{true})
}

// urlsOf reports whether all are URLs; else it has answered.
func urlsOf(w http.ResponseWriter, urls []string, optional bool) bool {
	if len(urls) == 0 && !optional {
		fail(w, http.StatusBadRequest, "there is no URL: want urls")
		return false
	}
	for i, u := range urls {
		if err := checkURL(u); err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("urls[%d]: %v", i, err))
			return false
		}
	}
	return true
}

// named reports whether none is empty, which would match everything; else it
// has answered.
func named(w http.ResponseWriter, field string, values []string) bool {
	for i, v := range values {
		if v == "" {
			fail(w, http.StatusBadRequest, fmt.Sprintf("%s[%d] is empty", field, i))
			return false
		}
	}
	return true
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fmt.Errorf("%.200q is not an absolute http or https URL", s)
	}
	return nil
}

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
