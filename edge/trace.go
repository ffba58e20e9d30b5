package edge

import (
	"edged/edge/tracing"
)

// Tracing says whether and where requests are traced.
type Tracing struct {
	Endpoint string  // base URL of a collector that speaks OTLP/HTTP; empty: no tracing
	Sample   float64 // share of the traces that begin here that are recorded, 0 to 1
}

// trace begins the span of a request. It ends where the request is counted.
func (n *Node) trace(rq *request) {
	if n.tracer == nil {
		return
	}
	parent, _ := traceParent(rq.r.Header)
	rq.span = n.tracer.Start(parent, rq.r.Method, tracing.Server)
}

// traced ends the request's span. Like the access log it tells no query and no
// field.
func (rq *request) traced(r result) {
	s := rq.span
	if s == nil {
		return
	}
	s.Text("http.request.method", rq.r.Method)
	s.Text("url.scheme", rq.scheme)
	s.Text("server.address", rq.host)
	s.Text("url.path", pathOf(rq.target))
	s.Int("http.response.status_code", int64(rq.status))
	s.Text("edged.result", string(r))
	s.Text("edged.reason", rq.reason)
	s.Text("edged.hop", string(rq.hop))
	if rq.id != "" {
		s.Text("edged.request_id", rq.id)
	}
	if r == resError || rq.status >= 500 {
		s.Fail(rq.reason)
	}
	s.End()
}
