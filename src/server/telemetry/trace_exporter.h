// TraceExporter: sends the spans of requests to a collector, as OTLP over HTTP in its JSON form.
//
// Spans wait in a bounded queue for the exporter's own thread, which sends them once a second or
// when many wait. A collector that is slow or away costs spans, which are counted, and nothing
// else.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "server/telemetry/trace.h"

namespace headrace {

struct TraceOptions {
  std::string endpoint;  // "http://collector:4318"; /v1/traces is added
  std::string version;   // of this program
  size_t max_queued = 4096;
};

class TraceExporter {
 public:
  // kInvalidArgument: the endpoint is no http(s) URL.
  static Result<std::unique_ptr<TraceExporter>> create(TraceOptions options);
  ~TraceExporter();  // what waits is sent first, once

  // Any thread; returns at once.
  void add(const RequestRecord& record);
  uint64_t num_dropped() const { return dropped_.value(); }

 private:
  explicit TraceExporter(TraceOptions options);
  void run();
  bool send(const std::vector<TraceSpan>& spans) const;

  const TraceOptions options_;
  Counter dropped_;
  std::mutex mutex_;  // guards all below
  std::condition_variable ready_;
  std::vector<TraceSpan> queue_;
  bool closed_ = false;
  std::thread thread_;  // last: everything above is there when it starts
};

// The body of one request to a collector.
std::string trace_request(const std::vector<TraceSpan>& spans, std::string_view version);

}  // namespace headrace
