package tracing

import (
	"encoding/binary"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The message, by field numbers (opentelemetry-proto, trace/v1/trace.proto);
// fields that are not named are not sent:
//
//	ExportTraceServiceRequest
//	└ 1 ResourceSpans
//	  ├ 1 Resource ─ 1 KeyValue...
//	  └ 2 ScopeSpans
//	    ├ 1 InstrumentationScope ─ 1 name
//	    └ 2 Span...
//	        1 trace_id  bytes, 16      7 start_time_unix_nano  fixed64
//	        2 span_id   bytes, 8       8 end_time_unix_nano    fixed64
//	        4 parent    bytes, 8       9 KeyValue...
//	        5 name      text          15 Status ─ 2 message, 3 code (2: error)
//	        6 kind      enum          16 flags                 fixed32
//
//	KeyValue ─ 1 key, 2 AnyValue ─ 1 text or 3 int
//
// Decoders skip fields that they do not know, so that the form only grows.

func encodeResource(cfg Config) []byte {
	var b []byte
	for _, kv := range [][2]string{{"service.name", cfg.Service}, {"service.instance.id", cfg.Instance}, {"service.version", cfg.Version}} {
		if kv[1] != "" {
			b = message(b, 1, encodeAttr(attr{key: kv[0], text: kv[1]}))
		}
	}
	return b
}

func encode(resource []byte, batch []*record) []byte {
	scope := message(nil, 1, text(nil, 1, "edged"))
	for _, r := range batch {
		scope = message(scope, 2, encodeSpan(r))
	}
	spans := message(nil, 1, resource)
	spans = message(spans, 2, scope)
	return message(nil, 1, spans)
}

func encodeSpan(r *record) []byte {
	b := message(nil, 1, r.trace[:])
	b = message(b, 2, r.id[:])
	if r.parent != [8]byte{} {
		b = message(b, 4, r.parent[:])
	}
	b = text(b, 5, r.name)
	b = number(b, 6, uint64(r.kind))
	b = moment(b, 7, r.begin)
	b = moment(b, 8, r.end)
	for _, a := range r.attrs {
		b = message(b, 9, encodeAttr(a))
	}
	if r.failed != "" {
		b = message(b, 15, number(text(nil, 2, r.failed), 3, 2))
	}
	b = protowire.AppendTag(b, 16, protowire.Fixed32Type)
	return binary.LittleEndian.AppendUint32(b, 1) // sampled
}

func encodeAttr(a attr) []byte {
	var value []byte
	if a.isNum {
		value = number(nil, 3, uint64(a.num))
	} else {
		value = text(nil, 1, a.text)
	}
	return message(text(nil, 1, a.key), 2, value)
}

func message(b []byte, field protowire.Number, inner []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), inner)
}

// text appends what protobuf calls a string: UTF-8, whatever a client sent.
func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), strings.ToValidUTF8(s, "?"))
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func moment(b []byte, field protowire.Number, t time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(t.UnixNano()))
}
