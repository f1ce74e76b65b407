#include "server/api/cache_miss.h"

#include <gtest/gtest.h>

namespace headrace {
namespace cache_miss_test {

GenerationRequest request_of(std::initializer_list<size_t> lengths) {
  GenerationRequest request;
  for (const size_t length : lengths) {
    request.prompts.push_back({std::vector<int32_t>(length, 7), {}, false});
  }
  return request;
}

std::string_view miss(std::initializer_list<size_t> lengths, int32_t cached_tokens) {
  Usage usage;
  usage.cached_tokens = cached_tokens;
  return cache_miss(request_of(lengths), usage);
}

TEST(CacheMiss, AllThatCouldBeFoundIsNoMiss) {
  EXPECT_EQ(miss({33}, 32), "");
  EXPECT_EQ(miss({40}, 32), "");
  EXPECT_EQ(miss({40}, 39), "");  // the end of a kept prompt, too
  EXPECT_EQ(miss({10}, 9), "");
  EXPECT_EQ(miss({33, 33}, 64), "");
}

TEST(CacheMiss, SaysWhyTokensWereComputed) {
  EXPECT_EQ(miss({16}, 0), "short");
  EXPECT_EQ(miss({17}, 0), "new");
  EXPECT_EQ(miss({40}, 16), "differs");
  EXPECT_EQ(miss({33, 33}, 32), "differs");
}

TEST(CacheMiss, AScoredPromptIsComputedWhateverIsKept) {
  GenerationRequest request = request_of({40});
  request.prototype.num_prompt_logprobs = 0;
  EXPECT_EQ(cache_miss(request, {}), "scored");
  request = request_of({40});
  request.prototype.pooling = Pooling::kMean;
  EXPECT_EQ(cache_miss(request, {}), "scored");
  request.prototype.pooling = Pooling::kLast;
  EXPECT_EQ(cache_miss(request, {}), "new");
}

TEST(CacheMiss, WhatTheEngineKnowsGoesBeforeGuesses) {
  using Reason = CacheMiss::Reason;
  const std::pair<Reason, std::string_view> rows[] = {{Reason::kEvicted, "evicted"},
                                                      {Reason::kEdited, "edited"},
                                                      {Reason::kAdapter, "adapter"},
                                                      {Reason::kRope, "rope"}};
  for (const auto& [reason, name] : rows) {
    Usage usage;
    usage.cached_tokens = 16;
    usage.miss = {reason, 16};
    EXPECT_EQ(cache_miss(request_of({40}), usage), name);
  }
}

std::string written(const CacheMiss& miss) {
  JsonWriter json;
  json.open_object();
  write_cache_miss(json, miss);
  return json.close_object().str();
}

TEST(CacheMiss, TheUsageSaysWhereAndWhichTokensDiffer) {
  EXPECT_EQ(written({}), "{}");
  EXPECT_EQ(written({CacheMiss::Reason::kEvicted, 32}),
            R"({"cache_miss":{"reason":"evicted","offset":32}})");
  EXPECT_EQ(written({CacheMiss::Reason::kEdited, 35, 7, 9}),
            R"({"cache_miss":{"reason":"edited","offset":35,"was_token":7,"is_token":9}})");
}

TEST(CacheMiss, ScoresThatWereFoundAreNoMiss) {
  GenerationRequest request = request_of({40});
  request.prototype.num_prompt_logprobs = 0;
  Usage usage;
  usage.cached_tokens = 31;
  EXPECT_EQ(cache_miss(request, usage), "");
  usage.cached_tokens = 15;
  EXPECT_EQ(cache_miss(request, usage), "differs");
}

}  // namespace cache_miss_test
}  // namespace headrace
