#include "server/request_log.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace headrace {
namespace request_log_test {

RequestRecord full_record() {
  RequestRecord record;
  record.method = "POST";
  record.path = "/v1/completions";
  record.route = "/v1/completions";
  record.request_id = "abc";
  record.peer = "127.0.0.1";
  record.status = 200;
  record.body_bytes = 20;
  record.sent_bytes = 300;
  record.total_us = 12'345;
  record.key_name = "ann";
  record.note = {"tiny", "cmpl-1", "stop", 3, 2, 5, 1'000, 2'060};
  return record;
}

TEST(RequestLog, ALineNamesWhatIsKnown) {
  EXPECT_EQ(request_text(full_record()),
            "request POST /v1/completions 200 whole id=abc peer=127.0.0.1 key=ann model=tiny "
            "answer=cmpl-1 "
            "finish=stop prompt_tokens=3 cached_tokens=2 output_tokens=5 body_bytes=20 "
            "sent_bytes=300 queue_ms=1.0 first_token_ms=2.1 total_ms=12.3");
  RequestRecord record;
  record.ending = RequestRecord::Ending::kClientLeft;
  EXPECT_EQ(request_text(record),
            "request - - 0 client_left id=- peer=- body_bytes=0 sent_bytes=0 total_ms=0.0");
}

TEST(RequestLog, EachEndingHasAName) {
  RequestRecord record = full_record();
  const std::pair<RequestRecord::Ending, const char*> kEndings[] = {
      {RequestRecord::Ending::kWhole, " 200 whole "},
      {RequestRecord::Ending::kClientLeft, " 200 client_left "},
      {RequestRecord::Ending::kDropped, " 200 dropped "},
  };
  for (const auto& [ending, text] : kEndings) {
    record.ending = ending;
    EXPECT_NE(request_text(record).find(text), std::string::npos) << text;
  }
}

// A line stays one line, whatever a client chose.
TEST(RequestLog, WhatClientsChooseIsEscapedAndCut) {
  RequestRecord record = full_record();
  record.method = "G\nT";
  record.path = "/a b\"\\\r\n2026 error fake\x7F\xC3";
  record.request_id = "x=\"1\"";
  const std::string line = request_text(record);
  EXPECT_TRUE(
      line.starts_with("request G\\x0aT "
                       "/a\\x20b\\x22\\x5c\\x0d\\x0a2026\\x20error\\x20fake\\x7f\\xc3 200 "))
      << line;
  EXPECT_NE(line.find(" id=x=\\x221\\x22 "), std::string::npos);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  record.path = "/" + std::string(1000, 'p');
  EXPECT_NE(request_text(record).find("/" + std::string(199, 'p') + " 200"), std::string::npos);
}

TEST(RequestLog, TheMembersAreJson) {
  RequestRecord record = full_record();
  record.path = "/a\n\"\xFF";
  const auto value = parse_json("{" + request_json(record) + "}", "line").value();
  EXPECT_EQ(value.at("event").as_string(), "request");
  EXPECT_EQ(value.at("path").as_string(), "/a\n\"\xEF\xBF\xBD");
  EXPECT_EQ(value.at("status").as_int64(), 200);
  EXPECT_EQ(value.at("ending").as_string(), "whole");
  EXPECT_EQ(value.at("cached_tokens").as_int64(), 2);
  EXPECT_EQ(value.at("queue_ms").to_number<double>(), 1.0);
  const auto bare = parse_json("{" + request_json(RequestRecord{}) + "}", "line").value();
  for (const char* absent : {"answer_id", "finish", "prompt_tokens", "queue_ms"}) {
    EXPECT_FALSE(bare.as_object().contains(absent)) << absent;
  }
}

}  // namespace request_log_test
}  // namespace headrace
