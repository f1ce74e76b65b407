// trace: a request that has ended as a span of a distributed trace. Pure functions.
//
// What is said of a request is one table of attributes (trace.cpp): the names of generative AI are
// still under development and change there alone. Never text of a prompt or an answer, never a key.
// Sources: W3C Trace Context; OTLP 1.x, JSON encoding; OpenTelemetry semantic conventions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/json_writer.h"
#include "server/http/http.h"

namespace headrace {

// Of a traceparent header: lower-case hex.
struct TraceParent {
  std::string trace_id;  // 32 digits
  std::string span_id;   // 16 digits
  bool sampled = true;
};
// Nothing: there is none, or it breaks the form.
std::optional<TraceParent> parse_trace_parent(std::string_view header);

// One that ends now; its ids are drawn where the client sent none.
struct TraceSpan {
  std::string trace_id, span_id, parent_id;  // parent_id empty: a root
  int64_t start_ns = 0, end_ns = 0;          // of the wall clock
  RequestRecord record;
};
// Nothing: the client's trace is not sampled, or anyone may ask for this route (probes, the page).
std::optional<TraceSpan> span_of(const RequestRecord& record, int64_t now_ns);

// A member of OTLP's "spans".
void write_span(JsonWriter& json, const TraceSpan& span);

}  // namespace headrace
