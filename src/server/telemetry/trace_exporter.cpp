#include "server/telemetry/trace_exporter.h"

#include <curl/curl.h>

#include <chrono>

#include "base/log.h"

namespace headrace {
namespace {

constexpr size_t kMaxBatch = 512;
constexpr std::chrono::seconds kPeriod{1};
constexpr long kTimeoutMs = 5000;
constexpr std::string_view kPath = "/v1/traces";

int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void write_text_attribute(JsonWriter& json, std::string_view key, std::string_view value) {
  json.open_object().text("key", key).key("value").open_object();
  json.text("stringValue", value).close_object().close_object();
}

size_t ignore_answer(char* /*data*/, size_t size, size_t count, void* /*user*/) {
  return size * count;
}

}  // namespace

std::string trace_request(const std::vector<TraceSpan>& spans, std::string_view version) {
  JsonWriter json;
  json.open_object().key("resourceSpans").open_array().open_object();
  json.key("resource").open_object().key("attributes").open_array();
  write_text_attribute(json, "service.name", "headrace");
  write_text_attribute(json, "service.version", version);
  json.close_array().close_object().key("scopeSpans").open_array().open_object();
  json.key("scope").open_object().text("name", "headrace").close_object();
  json.key("spans").open_array();
  for (const TraceSpan& span : spans) write_span(json, span);
  json.close_array().close_object().close_array().close_object().close_array().close_object();
  return json.take();
}

Result<std::unique_ptr<TraceExporter>> TraceExporter::create(TraceOptions options) {
  std::string& endpoint = options.endpoint;
  if (!endpoint.starts_with("http://") && !endpoint.starts_with("https://")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the collector of traces is '{}', but it must be a URL such as "
                      "http://127.0.0.1:4318",
                      endpoint);
  }
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!endpoint.ends_with(kPath)) endpoint += kPath;
  return std::unique_ptr<TraceExporter>(new TraceExporter(std::move(options)));
}

TraceExporter::TraceExporter(TraceOptions options) : options_(std::move(options)) {
  thread_ = std::thread([this] { run(); });
}

TraceExporter::~TraceExporter() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void TraceExporter::add(const RequestRecord& record) {
  auto span = span_of(record, wall_clock_ns());
  if (!span) return;
  bool is_many = false;
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= options_.max_queued) return dropped_.add();
    queue_.push_back(std::move(*span));
    is_many = queue_.size() >= kMaxBatch;
  }
  if (is_many) ready_.notify_one();
}

void TraceExporter::run() {
  bool was_good = true;
  while (true) {
    std::vector<TraceSpan> spans;
    bool closed = false;
    {
      std::unique_lock lock(mutex_);
      ready_.wait_for(lock, kPeriod, [this] { return closed_ || queue_.size() >= kMaxBatch; });
      spans.swap(queue_);
      closed = closed_;
    }
    if (!spans.empty()) {
      const bool good = send(spans);
      if (!good) dropped_.add(spans.size());
      if (!good && was_good) LOG(kWarning, "the collector of traces takes none: they are lost");
      was_good = good;
    }
    if (closed) return;
  }
}

bool TraceExporter::send(const std::vector<TraceSpan>& spans) const {
  const std::string body = trace_request(spans, options_.version);
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), curl_slist_free_all);
  if (curl == nullptr || headers == nullptr) return false;
  curl_easy_setopt(curl.get(), CURLOPT_URL, options_.endpoint.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");  // a collector is near; no detour by surprise
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, ignore_answer);
  if (curl_easy_perform(curl.get()) != CURLE_OK) return false;
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 && status < 300;
}

}  // namespace headrace
