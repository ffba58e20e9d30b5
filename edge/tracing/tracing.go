// Package tracing records what a request did as OpenTelemetry spans, and sends
// them to a collector over OTLP/HTTP.
//
// A [Tracer] makes spans and owns the queue behind which they are sent; a
// [Span] is one step of one request. A nil *Tracer makes nil spans, and a nil
// *Span does nothing: who is not traced pays a comparison.
//
// Caveats. Of OpenTelemetry's SDK this is the small part that a node needs:
// spans with attributes of text and numbers, no links, no events. The SDK with
// its exporter would bring gRPC, its gateway and some thirty packages into a
// binary that has one message to encode; the wire form is protobuf and frozen
// (opentelemetry-proto 1.x, trace/v1), drawn above the encoder.
//
// Nothing waits for the collector: a span for which the queue has no room, or
// whose batch could not be sent, is dropped and counted.
package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueLen    = 4096 // spans that wait, some 2 MiB
	batchLen    = 512  // spans in a request
	batchEvery  = 2 * time.Second
	sendTimeout = 5 * time.Second
	lastTimeout = time.Second // of the last batch: a stopping node waits for it
	maxAttrs    = 16          // of a span; more are dropped
	maxText     = 512         // bytes of a text; the rest is cut
)

// Config says where spans go.
type Config struct {
	// Endpoint is the collector's base URL, such as http://127.0.0.1:4318;
	// "/v1/traces" is added to it unless it has a path.
	Endpoint string
	// Sample is the share of the traces that begin here which are recorded, 0
	// to 1. A request that brings a trace is recorded as its caller says.
	Sample float64

	Service, Instance, Version string // service.name, .instance.id and .version

	Logger *slog.Logger // nil discards
}

// Stats is what a tracer has counted.
type Stats struct {
	Sent    uint64 // spans that the collector has taken
	Dropped uint64 // spans lost for want of room or of a collector
}

// Tracer makes spans and sends them. Its methods are safe for concurrent use,
// and on nil.
type Tracer struct {
	cfg      Config
	url      string
	client   *http.Client
	queue    chan *record
	sent     atomic.Uint64
	dropped  atomic.Uint64
	cancel   context.CancelFunc
	ended    chan struct{}
	resource []byte // encoded
}

// New checks cfg and starts to send. An empty endpoint gives nil: no tracing.
func New(cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a collector's URL: want such as http://127.0.0.1:4318", cfg.Endpoint)
	}
	if !(cfg.Sample >= 0 && cfg.Sample <= 1) {
		return nil, fmt.Errorf("%v is not a share: want 0 to 1", cfg.Sample)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tracer{
		cfg: cfg, url: u.String(), queue: make(chan *record, queueLen), cancel: cancel, ended: make(chan struct{}),
		client: &http.Client{
			Timeout: sendTimeout, Transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		resource: encodeResource(cfg),
	}
	go t.run(ctx)
	return t, nil
}

// Close sends what waits, once, and stops. It may be called twice.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.ended
}

// Stats returns what has been counted.
func (t *Tracer) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	return Stats{t.sent.Load(), t.dropped.Load()}
}

// Kind is a span's kind, as its number in OTLP.
type Kind int

// The kinds.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
)

// record is a span as it is sent.
type record struct {
	trace      [16]byte
	id, parent [8]byte
	name       string
	kind       Kind
	begin, end time.Time
	attrs      []attr
	failed     string // what went wrong; "" nothing
}

type attr struct {
	key   string
	text  string
	num   int64
	isNum bool // num is the value, not text
}

// Span is one step of a request, by one goroutine at a time, but its children
// may be made from several. A nil span does nothing.
type Span struct {
	t *Tracer
	r record

	once sync.Once
}

// Start begins the span of a request. parent is the traceparent that came with
// it, valid or "".
func (t *Tracer) Start(parent, name string, kind Kind) *Span {
	if t == nil {
		return nil
	}
	s := &Span{t: t, r: record{name: name, kind: kind, begin: time.Now()}}
	if len(parent) >= 55 {
		var flags [1]byte
		_, err1 := hex.Decode(s.r.trace[:], []byte(parent[3:35]))
		_, err2 := hex.Decode(s.r.parent[:], []byte(parent[36:52]))
		_, err3 := hex.Decode(flags[:], []byte(parent[53:55]))
		if err1 != nil || err2 != nil || err3 != nil || flags[0]&1 == 0 {
			return nil
		}
	} else {
		if t.cfg.Sample < 1 && rand.Float64() >= t.cfg.Sample {
			return nil
		}
		putRandom(s.r.trace[:8])
		putRandom(s.r.trace[8:])
	}
	putRandom(s.r.id[:])
	return s
}

// Child begins a step of s.
func (s *Span) Child(name string, kind Kind) *Span {
	if s == nil {
		return nil
	}
	c := &Span{t: s.t, r: record{trace: s.r.trace, parent: s.r.id, name: name, kind: kind, begin: time.Now()}}
	putRandom(c.r.id[:])
	return c
}

// putRandom fills b, of 8 bytes, with what is not zero.
func putRandom(b []byte) {
	v := rand.Uint64() | 1
	for i := range 8 {
		b[i] = byte(v >> (8 * i))
	}
}

// Text adds an attribute.
func (s *Span) Text(key, value string) {
	if s == nil || len(s.r.attrs) >= maxAttrs {
		return
	}
	s.r.attrs = append(s.r.attrs, attr{key: key, text: value[:min(len(value), maxText)]})
}

// Int adds an attribute.
func (s *Span) Int(key string, value int64) {
	if s == nil || len(s.r.attrs) >= maxAttrs {
		return
	}
	s.r.attrs = append(s.r.attrs, attr{key: key, num: value, isNum: true})
}

// Fail says that the step failed, and how.
func (s *Span) Fail(how string) {
	if s != nil {
		s.r.failed = how[:min(len(how), maxText)]
	}
}

// TraceParent is what goes to the next hop (W3C Trace Context §3.2); "" for nil.
func (s *Span) TraceParent() string {
	if s == nil {
		return ""
	}
	return "00-" + hex.EncodeToString(s.r.trace[:]) + "-" + hex.EncodeToString(s.r.id[:]) + "-01"
}

// End ends the step, once; what follows is not part of it.
func (s *Span) End() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.r.end = time.Now()
		r := s.r
		select {
		case s.t.queue <- &r:
		default:
			s.t.dropped.Add(1)
		}
	})
}

// run sends batches until ctx ends, and then what is left.
func (t *Tracer) run(ctx context.Context) {
	defer close(t.ended)
	tick := time.NewTicker(batchEvery)
	defer tick.Stop()
	var batch []*record
	flush := func(ctx context.Context) {
		if len(batch) > 0 {
			t.send(ctx, batch)
			batch = batch[:0]
		}
	}
	for {
		select {
		case r := <-t.queue:
			if batch = append(batch, r); len(batch) == batchLen {
				flush(ctx)
			}
		case <-tick.C:
			flush(ctx)
		case <-ctx.Done():
			for len(t.queue) > 0 && len(batch) < batchLen {
				batch = append(batch, <-t.queue)
			}
			t.dropped.Add(uint64(len(t.queue)))
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			flush(last)
			t.client.CloseIdleConnections()
			return
		}
	}
}

// send posts a batch (OTLP/HTTP, binary protobuf).
func (t *Tracer) send(ctx context.Context, batch []*record) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(encode(t.resource, batch)))
	if err != nil {
		panic(err) // the URL has been parsed
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := t.client.Do(req)
	if err == nil {
		io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			t.sent.Add(uint64(len(batch)))
			return
		}
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	t.dropped.Add(uint64(len(batch)))
	t.cfg.Logger.Debug("the collector did not take spans", "spans", len(batch), "err", err)
}

// Hop ends with the answer's head: it says what came of asking somebody.
func (s *Span) Hop(resp *http.Response, err error) {
	switch {
	case s == nil:
		return
	case err != nil:
		s.Fail(err.Error())
	default:
		s.Int("http.response.status_code", int64(resp.StatusCode))
	}
	s.End()
}

// Inject puts the span into the head of an outgoing request, instead of the
// parent that it came with. The trace's state stays.
func (s *Span) Inject(h http.Header) {
	if s != nil {
		h["Traceparent"] = []string{s.TraceParent()}
	}
}

type spanKey struct{}

// With returns a context that carries s; ctx itself when s is nil.
func With(ctx context.Context, s *Span) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, s)
}

// From returns the span that ctx carries, else nil.
func From(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}
