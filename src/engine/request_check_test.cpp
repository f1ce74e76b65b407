#include "engine/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "engine/constraint.h"

namespace headrace {
namespace request_check_test {

const RequestLimits kLimits{100, 50, {}};

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

// Blocks for a prompt of 20 tokens and four beams.
RequestLimits beam_limits() {
  RequestLimits limits{100, 50, {}};
  limits.beams.max_width = 8;
  limits.beams.num_blocks = 1 + 4 * 1;
  return limits;
}

Request good_search() {
  Request request;
  request.prompt_ids.assign(20, 3);
  request.beams = {4, 2, 1, EarlyStopping::kYes};
  request.max_tokens = 12;
  return request;
}

class NoConstraint final : public Constraint {
 public:
  void fill_mask(std::span<uint64_t>) override {}
  void accept(int32_t) override {}
  void rollback(int32_t) override {}
};

TEST(RequestCheck, RefusesByNameWhatASearchHasNoPlaceFor) {
  EXPECT_TRUE(check_request(good_search(), beam_limits()).ok());
  struct Case {
    const char* param;
    const char* message;
    std::function<void(Request&)> spoil;
  };
  const Case cases[] = {
      {"n", "9 beams are asked for, this server runs 1 to 8 side by side",
       [](Request& r) { r.beams.width = 9; }},
      {"n", "n is 5, it must be between 1 and 4", [](Request& r) { r.beams.num_returned = 5; }},
      {"length_penalty", "length_penalty is 11, it must be between -10 and 10",
       [](Request& r) { r.beams.length_penalty = 11; }},
      {"logprobs", "logprobs cannot be combined with beam search",
       [](Request& r) { r.num_logprobs = 0; }},
      {"logprobs", "logprobs cannot be combined with beam search",
       [](Request& r) { r.label_ids = {1}; }},
      {"prompt_logprobs", "prompt_logprobs cannot be combined with beam search",
       [](Request& r) { r.num_prompt_logprobs = 0; }},
      {"mirostat", "mirostat cannot be combined with beam search",
       [](Request& r) { r.sampling.mirostat = true; }},
      {"repetition_detection", "repetition_detection cannot be combined with beam search",
       [](Request& r) { r.repetition_stop.max_block = 3; }},
      {"use_beam_search", "a beam search cannot be held to a schema, a grammar or declared tools",
       [](Request& r) { r.constraint = std::make_shared<NoConstraint>(); }},
      {"n",
       "5 beams after a prompt of 20 tokens need more than the 5 blocks that this server has for "
       "keys and values",
       [](Request& r) { r.beams.width = 5; }},
      {"max_tokens",
       "4 beams of 30 tokens after a prompt of 20 need more than the 5 blocks that this server has "
       "for keys and values, which hold 12 tokens of each",
       [](Request& r) { r.max_tokens = 1000; }},
  };
  for (const Case& entry : cases) {
    Request request = good_search();
    entry.spoil(request);
    const Status status = check_request(request, beam_limits());
    ASSERT_FALSE(status.ok()) << entry.message;
    EXPECT_EQ(status.error().param, entry.param);
    EXPECT_EQ(status.error().message, entry.message);
  }
}

}  // namespace request_check_test
}  // namespace headrace
