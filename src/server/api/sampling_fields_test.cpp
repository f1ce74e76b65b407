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
  std::string read(std::string_view body) {
    request_ = {};
    request_.prototype.sampling = fresh_sampling(model_);
    first_seed_ = request_.prototype.sampling.seed;
    const auto value = parse_body(body).value();
    const Status status =
        read_sampling(Fields(value.get_object(), "options."), kOther, model_, request_);
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
