package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
)

// One request across two nodes is one trace: the origin sees it, and each step
// stands under the one that it belongs to.
func TestTrace_acrossTheCluster(t *testing.T) {
	var mu sync.Mutex
	byID, trace := map[string]*otlp.Span{}, ""
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var data otlp.TracesData
		if err := proto.Unmarshal(b, &data); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range data.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					byID[string(s.SpanId)] = s
				}
			}
		}
	}))
	t.Cleanup(collector.Close)
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, "x")
	})
	nodes := startCluster(t, 2, origin.URL, func(c *Config) { c.Tracing = Tracing{Endpoint: collector.URL} })

	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	nodes[0].get(t, "/x?token=s3cr3t", "Traceparent: "+parent).want(t, 200, "x", "detail=origin")
	origin.mu.Lock()
	sent := origin.heads[0].Get("Traceparent")
	origin.mu.Unlock()
	if !strings.HasPrefix(sent, parent[:36]) || sent == parent {
		t.Errorf("the origin is sent %q", sent)
	}
	eventually(t, "edge-b knows of it", func() bool {
		e, err := nodes[1].explain(t.Context(), "GET", "http://www.example.com/x?token=s3cr3t", http.Header{})
		return err == nil && len(e.Filters) == 1 && e.Filters[0].Says == "yes"
	})
	nodes[1].get(t, "/x?token=s3cr3t", "Traceparent: "+parent).want(t, 200, "x", "detail=peer")
	for _, n := range nodes {
		n.Close() // sends what waits
	}

	mu.Lock()
	defer mu.Unlock()
	var paths []string
	for _, s := range byID {
		path := s.Name
		for p := byID[string(s.ParentSpanId)]; p != nil; p = byID[string(p.ParentSpanId)] {
			path = p.Name + " > " + path
		}
		paths = append(paths, path)
		if trace == "" {
			trace = string(s.TraceId)
		}
		if string(s.TraceId) != trace {
			t.Errorf("%s is of another trace", path)
		}
		for _, kv := range s.Attributes {
			if strings.Contains(kv.Value.GetStringValue(), "s3cr3t") {
				t.Errorf("%s tells the query: %v", path, kv)
			}
		}
	}
	for _, want := range []string{"GET", "GET > lookup", "GET > filters", "GET > origin", "GET > peer", "GET > peer > GET", "GET > peer > GET > lookup"} {
		if !slices.Contains(paths, want) {
			t.Errorf("there is no step %q in %q", want, paths)
		}
	}
}
