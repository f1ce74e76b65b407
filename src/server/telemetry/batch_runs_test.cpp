// Which events of the prefix cache are told as one, and which requests a trace tells what of.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/api/json_writer.h"
#include "server/telemetry/kv_batch.h"
#include "server/telemetry/trace.h"

namespace headrace {
namespace batch_runs_test {

using OrderedJson = nlohmann::ordered_json;

KvEvent event_stored(uint64_t name, std::optional<uint64_t> parent) {
  KvEvent event{KvEvent::Kind::kStored, name, parent, {}};
  event.tokens.fill(static_cast<int32_t>(name));
  return event;
}
KvEvent event_removed(uint64_t name) { return {KvEvent::Kind::kRemoved, name, {}, {}}; }
KvEvent event_cleared() { return {KvEvent::Kind::kCleared, 0, {}, {}}; }

// "+1,2<0 -3 *": stored 1 and 2 behind 0, removed 3, cleared.
std::string batch_runs(const std::vector<KvEvent>& events, KvBatchForm form) {
  const bool arrays = form == KvBatchForm::kArrays;
  const auto batch = OrderedJson::from_msgpack(pack_kv_batch(events, 1, form));
  std::string text;
  for (const OrderedJson& event :
       batch.at(arrays ? OrderedJson::json_pointer("/1") : OrderedJson::json_pointer("/events"))) {
    const std::string type = arrays ? event[0] : event.at("type");
    if (!text.empty()) text += ' ';
    if (type == "AllBlocksCleared") {
      text += '*';
      continue;
    }
    const OrderedJson& names = arrays ? event[1] : event.at("block_hashes");
    for (size_t i = 0; i < names.size(); ++i) {
      text += fmt::format("{}{}",
                          i > 0                   ? ","
                          : type == "BlockStored" ? "+"
                                                  : "-",
                          names[i].get<uint64_t>());
    }
    if (type != "BlockStored") continue;
    const OrderedJson& parent = arrays ? event[2] : event.at("parent_block_hash");
    if (!parent.is_null()) text += fmt::format("<{}", parent.get<uint64_t>());
    const OrderedJson& tokens = arrays ? event[3] : event.at("token_ids");
    EXPECT_EQ(tokens.size(), names.size() * kBlockTokens);
    EXPECT_EQ(tokens.back(), names.back());  // each block's tokens stand where its name does
  }
  return text;
}

TEST(KvBatchRuns, AreBlocksThatFollowEachOther) {
  struct Case {
    std::vector<KvEvent> events;
    std::string_view runs;
  };
  const Case cases[] = {
      {{}, ""},
      {{event_stored(1, {}), event_stored(2, 1), event_stored(3, 2)}, "+1,2,3"},
      {{event_stored(5, 4), event_stored(6, 5)}, "+5,6<4"},
      {{event_stored(1, {}), event_stored(2, {})}, "+1 +2"},
      {{event_stored(1, {}), event_stored(2, 1), event_stored(3, 1)}, "+1,2 +3<1"},
      {{event_stored(2, 1), event_stored(1, {})}, "+2<1 +1"},
      {{event_removed(1), event_removed(9), event_removed(1)}, "-1,9,1"},
      {{event_removed(1), event_stored(1, {}), event_removed(1)}, "-1 +1 -1"},
      {{event_cleared(), event_cleared()}, "* *"},
      {{event_stored(1, {}), event_cleared(), event_stored(2, 1)}, "+1 * +2<1"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(batch_runs(c.events, KvBatchForm::kMaps), c.runs);
    EXPECT_EQ(batch_runs(c.events, KvBatchForm::kArrays), c.runs);
  }
}

// The attributes of a span as "name=value" by their OTLP kinds: s text, i whole, d fraction.
std::map<std::string, std::string> span_attributes(const RequestRecord& record) {
  JsonWriter writer;
  write_span(writer, span_of(record, 5'000'000'000).value());
  const OrderedJson json = OrderedJson::parse(writer.take());
  std::map<std::string, std::string> attributes;
  for (const auto& each : json.at("attributes")) {
    const auto value = each.at("value").begin();
    attributes[each.at("key")] = value.key().substr(0, 1) + ":" + value.value().dump();
  }
  return attributes;
}

TEST(TraceAttributes, WhatIsNotKnownIsNotSaid) {
  RequestRecord record;
  record.method = "GET";
  record.status = 404;
  record.peer = "10.0.0.1";
  EXPECT_EQ(span_attributes(record),
            (std::map<std::string, std::string>{{"client.address", R"(s:"10.0.0.1")"},
                                                {"http.request.body.size", R"(i:"0")"},
                                                {"http.request.method", R"(s:"GET")"},
                                                {"http.response.status_code", R"(i:"404")"}}));
}

TEST(TraceAttributes, NumbersAreOfTheirKinds) {
  RequestRecord record;
  record.method = "POST";
  record.route = "/v1/completions";
  record.key_name = "ann";
  record.note.prompt_tokens = 0;
  record.note.cached_tokens = 16;
  record.note.queue_us = 0;
  record.note.first_token_us = 1'500'000;
  const auto attributes = span_attributes(record);
  EXPECT_EQ(attributes.at("headrace.key.name"), R"(s:"ann")");
  EXPECT_EQ(attributes.at("gen_ai.usage.input_tokens"), R"(i:"0")");  // known to be none
  EXPECT_EQ(attributes.at("gen_ai.usage.cached_tokens"), R"(i:"16")");
  EXPECT_EQ(attributes.at("gen_ai.latency.time_to_first_token").substr(0, 5), "d:1.5");
  EXPECT_TRUE(attributes.contains("gen_ai.latency.time_in_queue"));
  EXPECT_FALSE(attributes.contains("gen_ai.usage.output_tokens"));
}

TEST(TraceAttributes, TheOperationIsThatOfTheRoute) {
  struct Case {
    std::string_view route, operation;
  };
  const Case cases[] = {{"/v1/chat/completions", R"(s:"chat")"},
                        {"/v1/messages", R"(s:"chat")"},
                        {"/v1/responses", R"(s:"chat")"},
                        {"/api/chat", R"(s:"chat")"},
                        {"/v1/completions", R"(s:"text_completion")"},
                        {"/api/generate", R"(s:"text_completion")"},
                        {"/v1/embeddings", R"(s:"embeddings")"}};
  RequestRecord record;
  record.method = "POST";
  for (const Case& c : cases) {
    record.route = c.route;
    EXPECT_EQ(span_attributes(record).at("gen_ai.operation.name"), c.operation) << c.route;
  }
  record.route = "/v1/models";
  EXPECT_FALSE(span_attributes(record).contains("gen_ai.operation.name"));
}

}  // namespace batch_runs_test
}  // namespace headrace
