#include "engine/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace headrace {
namespace request_check_test {

constexpr RequestLimits kLimits{100, 50};

Request good_request() {
  Request request;
  request.prompt_ids = {1, 2, 3};
  return request;
}

TEST(RequestCheck, AcceptsDefaultsAndEdges) {
  EXPECT_TRUE(check_request(good_request(), kLimits).ok());
  Request edge = good_request();
  edge.prompt_ids.assign(49, 99);
  edge.max_tokens = INT32_MAX;
  edge.num_logprobs = 20;
  edge.sampling.top_k = -1;
  edge.sampling.min_p = 1;
  EXPECT_TRUE(check_request(edge, kLimits).ok());
  edge.prompt_ids.assign(50, 0);
  edge.max_tokens = 0;
  edge.num_prompt_logprobs = 0;
  EXPECT_TRUE(check_request(edge, kLimits).ok());
}

TEST(RequestCheck, NamesTheFieldAtFault) {
  struct Case {
    const char* param;
    std::function<void(Request&)> spoil;
  };
  const std::vector<Case> cases = {
      {"prompt", [](Request& r) { r.prompt_ids.clear(); }},
      {"prompt", [](Request& r) { r.prompt_ids.assign(50, 1); }},
      {"prompt", [](Request& r) { r.prompt_ids[1] = 100; }},
      {"prompt", [](Request& r) { r.prompt_ids[1] = -1; }},
      {"max_tokens", [](Request& r) { r.max_tokens = 0; }},
      {"max_tokens", [](Request& r) { r.max_tokens = -5; }},
      {"min_tokens", [](Request& r) { r.min_tokens = 17; }},
      {"min_tokens", [](Request& r) { r.min_tokens = -1; }},
      {"logprobs", [](Request& r) { r.num_logprobs = 21; }},
      {"logprobs", [](Request& r) { r.num_logprobs = -1; }},
      {"prompt_logprobs", [](Request& r) { r.num_prompt_logprobs = 21; }},
      {"temperature", [](Request& r) { r.sampling.temperature = -0.1f; }},
      {"temperature", [](Request& r) { r.sampling.temperature = NAN; }},
      {"temperature", [](Request& r) { r.sampling.temperature = INFINITY; }},
      {"top_k", [](Request& r) { r.sampling.top_k = -2; }},
      {"top_p", [](Request& r) { r.sampling.top_p = 0; }},
      {"top_p", [](Request& r) { r.sampling.top_p = 1.1f; }},
      {"min_p", [](Request& r) { r.sampling.min_p = -0.1f; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; }},
      {"presence_penalty", [](Request& r) { r.sampling.presence_penalty = 2.1f; }},
      {"frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = -2.1f; }},
      {"logit_bias", [](Request& r) { r.sampling.logit_bias = {{100, 1.0f}}; }},
      {"logit_bias", [](Request& r) { r.sampling.logit_bias = {{1, NAN}}; }},
      {"top_n_sigma", [](Request& r) { r.sampling.top_n_sigma = -0.1f; }},
      {"top_n_sigma", [](Request& r) { r.sampling.top_n_sigma = NAN; }},
      {"typical_p", [](Request& r) { r.sampling.typical_p = 0; }},
      {"typical_p", [](Request& r) { r.sampling.typical_p = 1.1f; }},
      {"xtc_probability", [](Request& r) { r.sampling.xtc_probability = 1.1f; }},
      {"xtc_threshold", [](Request& r) { r.sampling.xtc_threshold = -0.1f; }},
      {"mirostat_tau", [](Request& r) { r.sampling.mirostat_tau = 101; }},
      {"mirostat_eta", [](Request& r) { r.sampling.mirostat_eta = -1; }},
      {"dry_multiplier", [](Request& r) { r.sampling.dry.multiplier = 101; }},
      {"dry_base", [](Request& r) { r.sampling.dry.base = 0.5f; }},
      {"dry_allowed_length", [](Request& r) { r.sampling.dry.allowed_length = 0; }},
      {"dry_penalty_last_n", [](Request& r) { r.sampling.dry.window = -2; }},
      {"bad_words", [](Request& r) { r.sampling.bad_words = {{1}, {}}; }},
      {"bad_words", [](Request& r) { r.sampling.bad_words = {{1, 100}}; }},
      {"bad_words", [](Request& r) { r.sampling.bad_words.assign(5000, {1}); }},
      {"max_pattern_size", [](Request& r) { r.repetition_stop = {1, 1025, 2}; }},
      {"min_pattern_size", [](Request& r) { r.repetition_stop = {5, 4, 2}; }},
      {"min_count", [](Request& r) { r.repetition_stop = {1, 4, 1}; }},
      {"stop_token_ids", [](Request& r) { r.stop_ids = {100}; }},
      {"stop_token_ids", [](Request& r) { r.stop_ids.assign(5000, 1); }},
  };
  for (const Case& entry : cases) {
    Request request = good_request();
    entry.spoil(request);
    const Status status = check_request(request, kLimits);
    ASSERT_FALSE(status.ok()) << entry.param;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().param, entry.param) << status.error().message;
    EXPECT_FALSE(status.error().message.empty());
  }
}

}  // namespace request_check_test
}  // namespace headrace
