#include "server/api/cache_fields.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace headrace {
namespace cache_fields_test {

using Priority = Retention::Priority;

Result<Request> read(std::string_view body) {
  const boost::json::value value = boost::json::parse(body);
  GenerationRequest request;
  const Fields fields(value.get_object());
  TRY(read_cache_fields(fields, request));
  return request.prototype;
}

void expect_retention(std::string_view body, Priority priority, TimeUs seconds) {
  const auto request = read(body);
  ASSERT_TRUE(request.ok()) << request.error().to_string();
  EXPECT_EQ(request->retention.priority, priority) << body;
  EXPECT_EQ(request->retention.duration, seconds * 1'000'000) << body;
}

TEST(CacheFields, SayHowLongPrefixesAreKept) {
  expect_retention("{}", Priority::kNormal, 0);
  expect_retention(R"({"cache_priority": "high"})", Priority::kHigh, 300);
  expect_retention(R"({"cache_priority": "high", "cache_seconds": 20})", Priority::kHigh, 20);
  expect_retention(R"({"cache_priority": null, "cache_seconds": null})", Priority::kNormal, 0);
  expect_retention(R"({"prompt_cache_retention": "24h"})", Priority::kHigh, 86400);
  expect_retention(R"({"prompt_cache_retention": "24h", "cache_seconds": 7})", Priority::kHigh, 7);
}

TEST(CacheFields, ThePriorityGoesBeforeTheRetention) {
  const auto request = read(R"({"prompt_cache_retention": "24h", "cache_priority": "low"})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->retention.priority, Priority::kLow);
}

TEST(CacheFields, NameSessions) {
  const auto request = read(R"({"prompt_cache_key": "a", "parent_cache_key": "b"})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->session, "a");
  EXPECT_EQ(request->parent_session, "b");
  EXPECT_EQ(read("{}")->session, "");
}

TEST(CacheFields, WhatTheyMayNotBeIsNamed) {
  struct Case {
    std::string_view body, param, message;
  };
  const std::string long_key = R"({"prompt_cache_key": ")" + std::string(1025, 'k') + "\"}";
  const Case cases[] = {
      {R"({"cache_priority": "highest"})", "cache_priority", "\"low\", \"normal\" or \"high\""},
      {R"({"cache_priority": 50})", "cache_priority", "50"},
      {R"({"prompt_cache_retention": "7d"})", "prompt_cache_retention", "\"in_memory\" or \"24h\""},
      {R"({"cache_priority": "high", "cache_seconds": 0})", "cache_seconds", "0"},
      {R"({"cache_seconds": 5})", "cache_seconds", "unless cache_priority is \"high\""},
      {long_key, "prompt_cache_key", "1025 bytes"},
  };
  for (const Case& at : cases) {
    const auto request = read(at.body);
    ASSERT_FALSE(request.ok()) << at.body;
    EXPECT_EQ(request.error().param, at.param);
    EXPECT_NE(request.error().message.find(at.message), std::string::npos)
        << request.error().message;
  }
}

}  // namespace cache_fields_test
}  // namespace headrace
