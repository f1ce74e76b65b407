#include "server/telemetry/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "server/api/json.h"
#include "server/http/http_server.h"
#include "server/http/test_support.h"
#include "server/telemetry/trace_exporter.h"

namespace headrace {
namespace trace_test {

using test::eventually;

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

RequestRecord record_of_an_answer() {
  RequestRecord record;
  record.method = "POST";
  record.path = "/v1/chat/completions?secret";
  record.route = "/v1/chat/completions";
  record.status = 200;
  record.peer = "127.0.0.1";
  record.request_id = "r-1";
  record.total_us = 2'000'000;
  record.note.model = "tiny";
  record.note.answer_id = "chatcmpl-1";
  record.note.finish = "stop";
  record.note.prompt_tokens = 7;
  record.note.output_tokens = 3;
  record.note.first_token_us = 250'000;
  return record;
}

boost::json::value json_of(const TraceSpan& span) {
  JsonWriter json;
  write_span(json, span);
  return parse_json(json.take(), "span").value();
}

std::string attribute(const boost::json::value& span, std::string_view key) {
  for (const auto& each : span.at("attributes").as_array()) {
    if (each.at("key").as_string() != key) continue;
    return boost::json::serialize(each.at("value").as_object().begin()->value());
  }
  return "absent";
}

TEST(TraceParent, IsReadAsTheStandardSays) {
  const auto good = parse_trace_parent(kParent);
  ASSERT_TRUE(good);
  EXPECT_EQ(good->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(good->span_id, "b7ad6b7169203331");
  EXPECT_TRUE(good->sampled);
  const std::string text = kParent;
  EXPECT_FALSE(parse_trace_parent(text.substr(0, 53) + "00")->sampled);
  EXPECT_TRUE(parse_trace_parent(text.substr(0, 53) + "0b")->sampled);
  EXPECT_TRUE(parse_trace_parent("01" + text.substr(2) + "-more"));
  for (const std::string& bad :
       {std::string(), text.substr(1), text + "-more", text + "x", "ff" + text.substr(2),
        "0G" + text.substr(2), "00_" + text.substr(3),
        "00-" + std::string(32, '0') + text.substr(35),
        text.substr(0, 36) + std::string(16, '0') + text.substr(52),
        "00-0AF7651916CD43DD8448EB211C80319C" + text.substr(35)}) {
    EXPECT_FALSE(parse_trace_parent(bad)) << bad;
  }
}

TEST(TraceSpan, GoesOnWithTheClientsTrace) {
  RequestRecord record = record_of_an_answer();
  record.trace_parent = kParent;
  const auto span = span_of(record, 5'000'000'000);
  ASSERT_TRUE(span);
  const auto json = json_of(*span);
  EXPECT_EQ(json.at("traceId").as_string(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(json.at("parentSpanId").as_string(), "b7ad6b7169203331");
  EXPECT_EQ(json.at("spanId").as_string().size(), 16u);
  EXPECT_EQ(json.at("name").as_string(), "POST /v1/chat/completions");
  EXPECT_EQ(json.at("startTimeUnixNano").as_string(), "3000000000");
  EXPECT_EQ(json.at("endTimeUnixNano").as_string(), "5000000000");
  EXPECT_EQ(attribute(json, "gen_ai.operation.name"), "\"chat\"");
  EXPECT_EQ(attribute(json, "gen_ai.request.model"), "\"tiny\"");
  EXPECT_EQ(attribute(json, "gen_ai.usage.input_tokens"), "\"7\"");
  EXPECT_EQ(attribute(json, "gen_ai.usage.output_tokens"), "\"3\"");
  EXPECT_EQ(attribute(json, "gen_ai.usage.cached_tokens"), "absent");  // not known
  EXPECT_EQ(attribute(json, "gen_ai.latency.time_to_first_token"), "2.5E-1");
  EXPECT_EQ(attribute(json, "http.response.status_code"), "\"200\"");
  EXPECT_EQ(boost::json::serialize(json).find("secret"), std::string::npos);
}

TEST(TraceSpan, WithoutATraceItBeginsOneAndUnsampledOnesAreLeftOut) {
  RequestRecord record = record_of_an_answer();
  const auto one = span_of(record, 1), two = span_of(record, 1);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->trace_id.size(), 32u);
  EXPECT_NE(one->trace_id, two->trace_id);
  EXPECT_FALSE(json_of(*one).as_object().contains("parentSpanId"));
  record.trace_parent = std::string(kParent).substr(0, 53) + "00";
  EXPECT_FALSE(span_of(record, 1));
  record.trace_parent.clear();
  record.is_public = true;
  EXPECT_FALSE(span_of(record, 1));
}

TEST(TraceSpan, FailuresAreMarked) {
  RequestRecord record = record_of_an_answer();
  EXPECT_FALSE(json_of(*span_of(record, 1)).as_object().contains("status"));
  record.status = 503;
  EXPECT_EQ(json_of(*span_of(record, 1)).at("status").at("code").as_int64(), 2);
  record.status = 200;
  record.ending = RequestRecord::Ending::kClientLeft;
  EXPECT_EQ(json_of(*span_of(record, 1)).at("status").at("code").as_int64(), 2);
}

// What a collector gets; answers with a status.
class Collector {
 public:
  explicit Collector(int status) {
    HttpService service;
    service.handle = [this, status](HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
      {
        std::lock_guard lock(mutex_);
        bodies_.push_back(request.path + " " + request.body);
      }
      writer->send(HttpResponse{status, "{}"});
    };
    server_ = HttpServer::listen({}, std::move(service)).value();
    server_->start();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/", server_->port()); }
  std::vector<std::string> bodies() {
    std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::unique_ptr<HttpServer> server_;
};

TEST(TraceExporter, SendsSpansToACollector) {
  Collector collector(200);
  {
    auto exporter = TraceExporter::create({collector.url(), "1"});
    ASSERT_TRUE(exporter.ok());
    for (int i = 0; i < 3; ++i) (*exporter)->add(record_of_an_answer());
  }  // what waits is sent at the end
  const auto bodies = collector.bodies();
  ASSERT_EQ(bodies.size(), 1u);
  EXPECT_TRUE(bodies[0].starts_with("/v1/traces {\"resourceSpans\":[")) << bodies[0];
  const auto json = parse_json(bodies[0].substr(11), "body").value();
  const auto& resource = json.at("resourceSpans").at(0);
  EXPECT_EQ(resource.at("scopeSpans").at(0).at("spans").as_array().size(), 3u);
  EXPECT_EQ(attribute(resource.at("resource"), "service.name"), "\"headrace\"");
}

TEST(TraceExporter, ACollectorThatIsAwayOrRefusesCostsSpansAlone) {
  Collector collector(500);
  for (const std::string& url : {collector.url(), std::string("http://127.0.0.1:1")}) {
    auto exporter = TraceExporter::create({url, "1"});
    ASSERT_TRUE(exporter.ok());
    (*exporter)->add(record_of_an_answer());
    EXPECT_TRUE(eventually([&] { return (*exporter)->num_dropped() == 1; })) << url;
  }
}

TEST(TraceExporter, TheQueueIsBounded) {
  auto exporter = TraceExporter::create({"http://127.0.0.1:1", "1", 2});
  ASSERT_TRUE(exporter.ok());
  for (int i = 0; i < 1000; ++i) (*exporter)->add(record_of_an_answer());
  EXPECT_GE((*exporter)->num_dropped(), 900u);
  EXPECT_EQ(TraceExporter::create({"collector:4318", "1"}).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace trace_test
}  // namespace headrace
