package tracing

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
)

// A collector takes OTLP/HTTP, decodes it with OpenTelemetry's own types, and
// keeps the spans by name.
type collector struct {
	*httptest.Server
	mu        sync.Mutex
	spans     map[string]*trace.Span
	resources map[string]string
	status    int
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{spans: map[string]*trace.Span{}, resources: map[string]string{}, status: 200}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req trace.TracesData // the same form as ExportTraceServiceRequest
		if err == nil {
			err = proto.UnmarshalOptions{}.Unmarshal(body, &req)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || len(req.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		for _, rs := range req.ResourceSpans {
			for _, kv := range rs.Resource.Attributes {
				c.resources[kv.Key] = kv.Value.GetStringValue()
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					c.spans[s.Name] = s
				}
			}
		}
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	return c
}

func newTracer(t *testing.T, cfg Config) *Tracer {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

func TestTracer_spansArrive(t *testing.T) {
	c := startCollector(t)
	tr := newTracer(t, Config{Endpoint: c.URL, Sample: 1, Service: "edged", Instance: "edge-a", Version: "v1"})
	root := tr.Start("", "GET", Server)
	root.Text("url.path", "/a\xffb")
	root.Int("http.response.status_code", 502)
	root.Fail("uri-miss")
	child := root.Child("origin", Client)
	child.Hop(&http.Response{StatusCode: 200}, nil)
	failed := root.Child("peer", Client)
	failed.Hop(nil, fmt.Errorf("refused"))
	root.End()
	root.End()
	tr.Close()
	tr.Close()

	c.mu.Lock()
	defer c.mu.Unlock()
	get, origin, peer := c.spans["GET"], c.spans["origin"], c.spans["peer"]
	if get == nil || origin == nil || peer == nil || len(c.spans) != 3 {
		t.Fatalf("the collector has %v", c.spans)
	}
	if c.resources["service.name"] != "edged" || c.resources["service.instance.id"] != "edge-a" || c.resources["service.version"] != "v1" {
		t.Errorf("they are from %v", c.resources)
	}
	if len(get.TraceId) != 16 || len(get.SpanId) != 8 || len(get.ParentSpanId) != 0 || get.Kind != trace.Span_SPAN_KIND_SERVER {
		t.Errorf("the request's span is %v", get)
	}
	if string(origin.TraceId) != string(get.TraceId) || string(origin.ParentSpanId) != string(get.SpanId) || origin.Kind != trace.Span_SPAN_KIND_CLIENT {
		t.Errorf("the step's span is %v", origin)
	}
	if get.StartTimeUnixNano == 0 || get.EndTimeUnixNano < get.StartTimeUnixNano {
		t.Errorf("it took from %d to %d", get.StartTimeUnixNano, get.EndTimeUnixNano)
	}
	if len(get.Attributes) != 2 || get.Attributes[0].Value.GetStringValue() != "/a?b" || get.Attributes[1].Value.GetIntValue() != 502 {
		t.Errorf("its attributes are %v", get.Attributes)
	}
	if get.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || get.Status.GetMessage() != "uri-miss" || origin.Status != nil || peer.Status.GetMessage() != "refused" {
		t.Errorf("the outcomes are %v, %v, %v", get.Status, origin.Status, peer.Status)
	}
	if s := tr.Stats(); s != (Stats{Sent: 3}) {
		t.Errorf("counted %+v", s)
	}
}

// What the caller decided holds (W3C Trace Context §3.2.2.5), and the next hop
// sees the trace with a new parent.
func TestTracer_continuesATrace(t *testing.T) {
	c := startCollector(t)
	tr := newTracer(t, Config{Endpoint: c.URL})
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	if s := tr.Start("", "x", Server); s != nil {
		t.Error("a trace begins although none is sampled")
	}
	if s := tr.Start("00-"+id+"-00f067aa0ba902b7-00", "x", Server); s != nil {
		t.Error("a trace is recorded that its caller does not record")
	}
	s := tr.Start("00-"+id+"-00f067aa0ba902b7-01", "x", Server)
	h := http.Header{}
	s.Inject(h)
	if p := h.Get("Traceparent"); len(p) != 55 || p[:36] != "00-"+id+"-" || p[36:52] == "00f067aa0ba902b7" {
		t.Errorf("the next hop sees %q", p)
	}
	s.End()
	tr.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.spans["x"]; got == nil || hex.EncodeToString(got.TraceId) != id || hex.EncodeToString(got.ParentSpanId) != "00f067aa0ba902b7" {
		t.Errorf("the span is %v", got)
	}
}

// Off, nothing happens; who uses it need not ask.
func TestTracer_off(t *testing.T) {
	tr, err := New(Config{})
	if tr != nil || err != nil {
		t.Fatal(tr, err)
	}
	s := tr.Start("", "x", Server)
	s.Text("a", "b")
	s.Int("a", 1)
	s.Fail("x")
	s.Child("y", Client).Hop(nil, nil)
	s.Inject(nil)
	s.End()
	tr.Close()
	if s != nil || s.TraceParent() != "" || tr.Stats() != (Stats{}) {
		t.Error("something was recorded")
	}
	for _, cfg := range []Config{{Endpoint: "localhost:4318"}, {Endpoint: "ftp://h"}, {Endpoint: "http://h", Sample: 2}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// A collector that refuses, or is not there, costs spans, counted, and no time.
func TestTracer_losesRatherThanWaits(t *testing.T) {
	refuses := startCollector(t)
	refuses.status = 503
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, url := range map[string]string{"refuses": refuses.URL, "is gone": gone.URL} {
		t.Run(name, func(t *testing.T) {
			tr := newTracer(t, Config{Endpoint: url, Sample: 1})
			for range 3 {
				tr.Start("", "x", Server).End()
			}
			tr.Close()
			if s := tr.Stats(); s != (Stats{Dropped: 3}) {
				t.Errorf("counted %+v", s)
			}
		})
	}
	t.Run("is silent", func(t *testing.T) {
		tr := newTracer(t, Config{Endpoint: silent.URL, Sample: 1})
		const n = 2*queueLen + batchLen
		for range n {
			tr.Start("", "x", Server).End()
		}
		tr.Close()
		if s := tr.Stats(); s != (Stats{Dropped: n}) {
			t.Errorf("counted %+v, want all %d dropped", s, n)
		}
	})
}

func TestSpan_isBounded(t *testing.T) {
	tr := newTracer(t, Config{Endpoint: "http://127.0.0.1:9", Sample: 1})
	s := tr.Start("", "x", Server)
	for i := range 100 {
		s.Text(fmt.Sprint(i), string(make([]byte, 10000)))
		s.Int(fmt.Sprint(i), 1)
	}
	if len(s.r.attrs) != maxAttrs || len(s.r.attrs[0].text) != maxText {
		t.Errorf("%d attributes, the first of %d bytes", len(s.r.attrs), len(s.r.attrs[0].text))
	}
}

func BenchmarkSpan(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("on=%v", on), func(b *testing.B) {
			var tr *Tracer
			if on {
				var err error
				if tr, err = New(Config{Endpoint: "http://127.0.0.1:9", Sample: 1}); err != nil {
					b.Fatal(err)
				}
				defer tr.Close()
			}
			b.ReportAllocs()
			for b.Loop() {
				s := tr.Start("", "GET", Server)
				c := s.Child("lookup", Internal)
				c.End()
				s.Text("url.path", "/x")
				s.End()
			}
		})
	}
}
