#include "server/api/sampling_fields.h"

#include <gtest/gtest.h>

#include <boost/json/object.hpp>

#include "server/api/json.h"
#include "server/api/test_support.h"

namespace headrace {
namespace sampling_fields_test {

// What another dialect might call them.
constexpr SamplingName kOther[] = {
    {"heat", SamplingField::kTemperature},
    {"nucleus", SamplingField::kTopP},
    {"repeat_penalty", SamplingField::kRepetitionPenalty},
    {"top_k", SamplingField::kTopK},
    {"seed", SamplingField::kSeedOrRandom},
    {"logit_bias", SamplingField::kLogitBiasPairs},
    {"num_predict", SamplingField::kMaxTokensOrAll},
    {"least", SamplingField::kMinTokens},
    {"stop_sequences", SamplingField::kStop},
    {"ends", SamplingField::kStopIds},
};

class SamplingFieldsTest : public testing::Test {
 protected:
  // "" or "param: message".
  std::string read(std::string_view body) { return read(body, kOther); }
  std::string read_further(std::string_view body) { return read(body, kFurtherSamplingNames); }
  std::string read(std::string_view body, std::span<const SamplingName> names) {
    request_ = {};
    request_.prototype.sampling = fresh_sampling(model_);
    first_seed_ = request_.prototype.sampling.seed;
    const auto value = parse_body(body).value();
    const Status status =
        read_sampling(Fields(value.get_object(), "options."), names, model_, request_);
    return status.ok() ? "" : status.error().param + ": " + status.error().to_string();
  }
  const SamplingParams& sampling() const { return request_.prototype.sampling; }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 100};
  GenerationRequest request_;
  uint64_t first_seed_ = 0;
};

TEST(ReadLogprobs, AlternativesAreOfATokenThatIsScored) {
  const auto read = [](std::string_view body) -> Result<std::optional<int>> {
    const auto value = parse_body(body).value();
    Request request;
    TRY(read_logprobs(Fields(value.get_object()), request));
    return request.num_logprobs;
  };
  EXPECT_EQ(read("{}").value(), std::nullopt);
  EXPECT_EQ(read(R"({"logprobs":false,"top_logprobs":0})").value(), std::nullopt);
  EXPECT_EQ(read(R"({"logprobs":true})").value(), 0);
  EXPECT_EQ(read(R"({"logprobs":true,"top_logprobs":20})").value(), 20);
  EXPECT_EQ(read(R"({"logprobs":true,"top_logprobs":21})").error().param, "top_logprobs");
  EXPECT_EQ(read(R"({"top_logprobs":1})").error().param, "logprobs");
}

TEST(ReadSchedule, TimesAreInMillisecondsAndBounded) {
  Request request;
  const auto read = [&](std::string_view body) -> std::string {
    request = {};
    const auto value = parse_body(body).value();
    const Status status = read_schedule(Fields(value.get_object()), request);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(read("{}"), "");
  EXPECT_EQ(request.priority, 0);
  EXPECT_EQ(request.max_queue_us, 0);
  EXPECT_EQ(request.deadline_us, 0);
  EXPECT_EQ(read(R"({"priority":-3,"max_queue_ms":250,"deadline_ms":86400000})"), "");
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.max_queue_us, 250'000);
  EXPECT_EQ(request.deadline_us, 86'400'000'000);
  EXPECT_EQ(read(R"({"priority":101})"),
            "priority is 101, but it must be a whole number from -100 to 100");
  EXPECT_EQ(read(R"({"max_queue_ms":0})"),
            "max_queue_ms is 0, but it must be a whole number from 1 to 86400000");
  EXPECT_EQ(read(R"({"deadline_ms":0.5})"),
            "deadline_ms is 0.5, but it must be a whole number from 1 to 86400000");
}

TEST_F(SamplingFieldsTest, ReadsTheNamesOfTheTable) {
  EXPECT_EQ(read(R"({"heat":0.5,"nucleus":0.25,"repeat_penalty":1.5,"top_k":7,"seed":42,
                     "num_predict":9,"least":3,"stop_sequences":["a","b"],"ends":[1,2],
                     "temperature":3})"),
            "");
  EXPECT_EQ(sampling().temperature, 0.5f);  // "temperature" is no name of this table
  EXPECT_EQ(sampling().top_p, 0.25f);
  EXPECT_EQ(sampling().repetition_penalty, 1.5f);
  EXPECT_EQ(sampling().top_k, 7);
  EXPECT_EQ(sampling().seed, 42u);
  EXPECT_EQ(request_.prototype.max_tokens, 9);
  EXPECT_TRUE(request_.has_max_tokens);
  EXPECT_EQ(request_.prototype.min_tokens, 3);
  EXPECT_EQ(request_.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request_.prototype.stop_ids, (std::vector<int32_t>{1, 2}));
}

TEST_F(SamplingFieldsTest, WhatIsAbsentStaysAsTheCheckpointHasIt) {
  EXPECT_EQ(read(R"({"heat":null,"stop_sequences":null})"), "");
  EXPECT_EQ(sampling().temperature, 0.7f);
  EXPECT_EQ(sampling().top_p, 0.95f);
  EXPECT_EQ(sampling().seed, first_seed_);
  EXPECT_FALSE(request_.has_max_tokens);
  const uint64_t earlier = first_seed_;
  EXPECT_EQ(read("{}"), "");
  EXPECT_NE(first_seed_, earlier);
}

TEST_F(SamplingFieldsTest, ValuesBelowZeroMeanNoChoiceWhereADialectHasThem) {
  EXPECT_EQ(read(R"({"seed":-1,"num_predict":-1})"), "");
  EXPECT_EQ(sampling().seed, first_seed_);
  EXPECT_EQ(request_.prototype.max_tokens, 100);
  EXPECT_FALSE(request_.has_max_tokens);
}

TEST_F(SamplingFieldsTest, BiasesComeAsObjectsOrPairs) {
  EXPECT_EQ(read(R"({"logit_bias":{"5":1.5}})"), "");
  EXPECT_EQ(sampling().logit_bias, (std::vector<std::pair<int32_t, float>>{{5, 1.5f}}));
  EXPECT_EQ(read(R"({"logit_bias":[[5,-100],[6,false]]})"), "");
  ASSERT_EQ(sampling().logit_bias.size(), 2u);
  EXPECT_EQ(sampling().logit_bias[0].second, -100.0f);
  EXPECT_EQ(sampling().logit_bias[1].second, -1e6f);
}

TEST_F(SamplingFieldsTest, FurtherNamesAreTheSameForAll) {
  EXPECT_EQ(read_further(R"({"typical_p":0.9,"top_n_sigma":1.5,"xtc_probability":0.5,
                             "xtc_threshold":0.2,"mirostat":2,"mirostat_tau":4,"mirostat_eta":0.2,
                             "dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,
                             "dry_penalty_last_n":100,"dry_sequence_breakers":["b","a"],
                             "bad_words":["xy"],
                             "repetition_detection":{"max_pattern_size":20,"min_count":4}})"),
            "");
  EXPECT_EQ(sampling().typical_p, 0.9f);
  EXPECT_EQ(sampling().top_n_sigma, 1.5f);
  EXPECT_EQ(sampling().xtc_probability, 0.5f);
  EXPECT_EQ(sampling().xtc_threshold, 0.2f);
  EXPECT_TRUE(sampling().mirostat);
  EXPECT_EQ(sampling().mirostat_tau, 4.0f);
  EXPECT_EQ(sampling().mirostat_eta, 0.2f);
  EXPECT_EQ(sampling().dry.multiplier, 0.8f);
  EXPECT_EQ(sampling().dry.base, 2.0f);
  EXPECT_EQ(sampling().dry.allowed_length, 3);
  EXPECT_EQ(sampling().dry.window, 100);
  EXPECT_EQ(*sampling().dry.breakers, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(sampling().bad_words, (std::vector<std::vector<int32_t>>{{'x', 'y'}, {' ', 'x', 'y'}}));
  const RepetitionStop& stop = request_.prototype.repetition_stop;
  EXPECT_EQ(stop.max_block, 20);
  EXPECT_EQ(stop.min_block, 1);
  EXPECT_EQ(stop.min_count, 4);
}

TEST_F(SamplingFieldsTest, WhatOthersSendForOffIsOff) {
  EXPECT_EQ(read_further(R"({"typical_p":0,"top_n_sigma":-1,"mirostat":0,"dry_multiplier":0,
                             "dry_base":0,"repetition_detection":{"max_pattern_size":0}})"),
            "");
  EXPECT_EQ(sampling().typical_p, 1.0f);
  EXPECT_EQ(sampling().top_n_sigma, 0.0f);
  EXPECT_FALSE(sampling().mirostat);
  EXPECT_EQ(sampling().dry.multiplier, 0.0f);
  EXPECT_EQ(request_.prototype.repetition_stop.max_block, 0);
  for (const std::string_view off : {R"("dry_base":0.5)", R"("dry_penalty_last_n":0)"}) {
    EXPECT_EQ(read_further(fmt::format(R"({{"dry_multiplier":0.8,{}}})", off)), "");
    EXPECT_EQ(sampling().dry.multiplier, 0.0f) << off;
  }
}

// A line, a colon, a quote, an asterisk; a text that no token holds breaks where it ends.
TEST_F(SamplingFieldsTest, RepetitionsBreakAtTheUsualPlaces) {
  EXPECT_EQ(read_further(R"({"dry_multiplier":1})"), "");
  EXPECT_EQ(*sampling().dry.breakers, (std::vector<int32_t>{'\n', '"', '*', ':'}));
  EXPECT_EQ(read_further(R"({"dry_multiplier":1,"dry_sequence_breakers":[]})"), "");
  EXPECT_TRUE(sampling().dry.breakers->empty());
  EXPECT_EQ(read_further(R"({"dry_multiplier":1,"dry_sequence_breakers":["You:"]})"), "");
  EXPECT_EQ(*sampling().dry.breakers, (std::vector<int32_t>{':'}));
}

TEST_F(SamplingFieldsTest, FaultsOfFurtherFieldsNameThem) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"typical_p":1.1})", "options.typical_p is 1.1, but it must be a number from 0 to 1"},
      {R"({"top_n_sigma":-2})",
       "options.top_n_sigma is -2, but it must be a number from -1 to "
       "100"},
      {R"({"xtc_probability":2})",
       "options.xtc_probability is 2, but it must be a number from 0 to 1"},
      {R"({"xtc_threshold":-1})",
       "options.xtc_threshold is -1, but it must be a number from 0 to 1"},
      {R"({"mirostat":1})", "options.mirostat is 1, but it must be 0 or 2"},
      {R"({"mirostat_tau":101})",
       "options.mirostat_tau is 101, but it must be a number from 0 to 100"},
      {R"({"mirostat_eta":2})", "options.mirostat_eta is 2, but it must be a number from 0 to 1"},
      {R"({"dry_multiplier":-1})",
       "options.dry_multiplier is -1, but it must be a number from 0 to 100"},
      {R"({"dry_allowed_length":0})",
       "options.dry_allowed_length is 0, but it must be a whole number from 1 to 64"},
      {R"({"dry_penalty_last_n":-2})",
       "options.dry_penalty_last_n is -2, but it must be a whole number from -1 to 2147483647"},
      {R"({"dry_sequence_breakers":[""]})",
       "options.dry_sequence_breakers is a list that holds \"\", but it must be strings of 1 to 64 "
       "bytes"},
      {R"({"bad_words":["a",7]})",
       "options.bad_words is a list that holds 7, but it must be strings of 1 to 256 bytes"},
      {R"({"repetition_detection":{"size":3}})",
       "options.repetition_detection is an object with \"size\", but it must be an object of "
       "max_pattern_size, min_pattern_size and min_count"},
      {R"({"repetition_detection":{"max_pattern_size":3}})",
       "options.repetition_detection.min_count is missing, but it must be a whole number of at "
       "least 2"},
      {R"({"repetition_detection":{"max_pattern_size":3,"min_pattern_size":4,"min_count":2}})",
       "options.repetition_detection.min_pattern_size is 4, but it must be a whole number from 0 "
       "to 3"},
  };
  for (const auto& [body, message] : kCases) {
    const std::string found = read_further(body);
    EXPECT_TRUE(found.ends_with(message)) << found;
  }
}

TEST_F(SamplingFieldsTest, FaultsNameTheFieldByItsPath) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"heat":-1})", "options.heat: options.heat is -1, but it must be a number from 0 to 100"},
      {R"({"nucleus":0})",
       "options.nucleus: options.nucleus is 0, but it must be a number above 0 and at most 1"},
      {R"({"seed":1.5})", "options.seed: options.seed is 1.5, but it must be a whole number"},
      {R"({"num_predict":4,"least":5})",
       "options.least: options.least is 5, but it must be a whole number from 0 to 4"},
      {R"({"logit_bias":[[258,1]]})",
       "options.logit_bias: options.logit_bias is a list with the token 258, but it must be of "
       "token ids from 0 to 257"},
      {R"({"logit_bias":[[5,true]]})",
       "options.logit_bias.5: options.logit_bias.5 is true, but it must be a number from -100 to "
       "100"},
      {R"({"logit_bias":[5]})",
       "options.logit_bias: options.logit_bias is a list that holds 5, but it must be a list of "
       "pairs, each a token id and a number"},
      {R"({"logit_bias":{"x":1}})",
       "options.logit_bias: options.logit_bias has the key \"x\", but its keys must be token ids "
       "from 0 to 257"},
      {R"({"stop_sequences":[""]})",
       "options.stop_sequences: options.stop_sequences is \"\", but it must be strings of 1 to "
       "256 bytes"},
      {R"({"ends":[258]})",
       "options.ends: options.ends holds 258, but token ids are whole numbers from 0 to 257"},
  };
  for (const auto& [body, message] : kCases) EXPECT_EQ(read(body), message);
}

}  // namespace sampling_fields_test
}  // namespace headrace
