// The boundaries of every sampling field: the last value that is taken, and the first that is not.

#include <gtest/gtest.h>

#include <cstdint>

#include "server/api/json.h"
#include "server/api/sampling_fields.h"
#include "server/api/test_support.h"

namespace headrace {
namespace sampling_bounds_test {

constexpr SamplingName kBoundNames[] = {
    {"temperature", SamplingField::kTemperature},
    {"top_p", SamplingField::kTopP},
    {"min_p", SamplingField::kMinP},
    {"repetition_penalty", SamplingField::kRepetitionPenalty},
    {"repeat_penalty", SamplingField::kRepetitionPenalty},
    {"presence_penalty", SamplingField::kPresencePenalty},
    {"frequency_penalty", SamplingField::kFrequencyPenalty},
    {"top_k", SamplingField::kTopK},
    {"seed", SamplingField::kSeed},
    {"any_seed", SamplingField::kSeedOrRandom},
    {"logit_bias", SamplingField::kLogitBias},
    {"bias_pairs", SamplingField::kLogitBiasPairs},
    {"max_tokens", SamplingField::kMaxTokens},
    {"n_predict", SamplingField::kMaxTokensOrAll},
    {"min_tokens", SamplingField::kMinTokens},
    {"ignore_eos", SamplingField::kIgnoreEos},
    {"stop_token_ids", SamplingField::kStopIds},
    {"stop", SamplingField::kStop},
};

// "[item,item,...]".
std::string list_of(size_t count, std::string_view item) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) list.append(i == 0 ? "" : ",").append(item);
  return list + "]";
}

std::string member(std::string_view name, std::string_view json) {
  return fmt::format(R"({{"{}":{}}})", name, json);
}

class SamplingBounds : public testing::Test {
 protected:
  Status read(std::string_view body) {
    request_ = {};
    request_.prototype.max_tokens = 50;
    request_.prototype.sampling = fresh_sampling(model_);
    const auto value = parse_body(body).value();
    return read_sampling(Fields(value.get_object()), kBoundNames, model_, request_);
  }
  void expect_taken(std::string_view body) {
    const Status status = read(body);
    EXPECT_TRUE(status.ok()) << body << (status.ok() ? "" : status.error().message);
  }
  // The message is "PARAM is FOUND, but it must be NEEDED".
  void expect_refused(std::string_view name, std::string_view json, std::string_view needed) {
    const Status status = read(member(name, json));
    ASSERT_FALSE(status.ok()) << name << " " << json;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(status.error().param, name) << json;
    EXPECT_TRUE(status.error().message.starts_with(fmt::format("{} is ", name)))
        << status.error().message;
    EXPECT_TRUE(status.error().message.ends_with(fmt::format("must be {}", needed)))
        << status.error().message;
  }
  const SamplingParams& sampling() const { return request_.prototype.sampling; }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 100};
  GenerationRequest request_;
};

TEST_F(SamplingBounds, NumbersHaveTwoEnds) {
  struct Row {
    std::string_view name, low, high, below, above;
    float SamplingParams::* value;
  };
  const Row kRows[] = {
      {"temperature", "0", "100", "-1e-9", "100.0001", &SamplingParams::temperature},
      {"min_p", "0", "1", "-0.0001", "1.0001", &SamplingParams::min_p},
      {"repetition_penalty", "0.01", "100", "0.0099", "100.1", &SamplingParams::repetition_penalty},
      {"presence_penalty", "-2", "2", "-2.0001", "2.0001", &SamplingParams::presence_penalty},
      {"frequency_penalty", "-2", "2", "-2.0001", "2.0001", &SamplingParams::frequency_penalty},
  };
  for (const Row& row : kRows) {
    const std::string needed = fmt::format("a number from {} to {}", row.low, row.high);
    for (const std::string_view end : {row.low, row.high}) {
      expect_taken(member(row.name, end));
      EXPECT_EQ(sampling().*row.value, std::stof(std::string(end))) << row.name;
    }
    for (const std::string_view wrong :
         {row.below, row.above, std::string_view("\"1\""), std::string_view("true"),
          std::string_view("[1]"), std::string_view("1e300")}) {
      expect_refused(row.name, wrong, needed);
    }
  }
}

TEST_F(SamplingBounds, TopPIsAboveZero) {
  expect_taken(member("top_p", "1"));
  EXPECT_EQ(sampling().top_p, 1.0f);
  expect_taken(member("top_p", "1e-6"));
  EXPECT_GT(sampling().top_p, 0.0f);
  expect_refused("top_p", "0", "a number above 0 and at most 1");
  // As a float it is 0.
  expect_refused("top_p", "1e-300", "a number above 0 and at most 1");
  expect_refused("top_p", "1.01", "a number from 0 to 1");
  expect_refused("top_p", "-0.1", "a number from 0 to 1");
}

TEST_F(SamplingBounds, TopKIsAWholeNumber) {
  for (const auto& [json, value] : {std::pair<std::string_view, int32_t>{"-1", -1},
                                    {"0", 0},
                                    {"40.0", 40},
                                    {"2147483647", INT32_MAX}}) {
    expect_taken(member("top_k", json));
    EXPECT_EQ(sampling().top_k, value) << json;
  }
  for (const std::string_view wrong : {"-2", "2147483648", "1.5", "\"4\"", "1e300", "false"}) {
    expect_refused("top_k", wrong, "a whole number from -1 to 2147483647");
  }
}

TEST_F(SamplingBounds, SeedsAreAnyWholeNumber) {
  struct Row {
    std::string_view json;
    uint64_t seed;
  };
  const Row kRows[] = {{"0", 0},
                       {"18446744073709551615", UINT64_MAX},
                       {"9223372036854775808", uint64_t{1} << 63},
                       {"3.0", 3},
                       {"-1", UINT64_MAX}};
  for (const Row& row : kRows) {
    expect_taken(member("seed", row.json));
    EXPECT_EQ(sampling().seed, row.seed) << row.json;
  }
  expect_taken(member("any_seed", "18446744073709551615"));
  EXPECT_EQ(sampling().seed, UINT64_MAX);
  for (const std::string_view name : {"seed", "any_seed"}) {
    for (const std::string_view wrong : {"0.5", "\"1\"", "1e300", "{}", "true"}) {
      expect_refused(name, wrong, "a whole number");
    }
  }
}

TEST_F(SamplingBounds, BelowZeroIsASeedOfItsOwnOnlyWhereTheDialectSaysSo) {
  expect_taken(R"({"seed":5,"any_seed":-7})");
  EXPECT_EQ(sampling().seed, 5u) << "the seed of before stays";
}

TEST_F(SamplingBounds, MaxTokensMayBeNone) {
  expect_taken(member("max_tokens", "0"));
  EXPECT_EQ(request_.prototype.max_tokens, 0);
  EXPECT_TRUE(request_.has_max_tokens);
  expect_taken(member("max_tokens", "2147483647"));
  EXPECT_EQ(request_.prototype.max_tokens, INT32_MAX);
  expect_taken(member("n_predict", "-2147483648"));
  EXPECT_EQ(request_.prototype.max_tokens, 100) << "what the context leaves";
  EXPECT_FALSE(request_.has_max_tokens);
  expect_refused("max_tokens", "-1", "a whole number from 0 to 2147483647");
  expect_refused("max_tokens", "2147483648", "a whole number from 0 to 2147483647");
  expect_refused("n_predict", "-2147483649", "a whole number from -2147483648 to 2147483647");
}

TEST_F(SamplingBounds, MinTokensAreAtMostMaxTokensAndTheContext) {
  expect_taken(R"({"max_tokens":7,"min_tokens":7})");
  EXPECT_EQ(request_.prototype.min_tokens, 7);
  expect_taken(R"({"min_tokens":50})");
  expect_refused("min_tokens", "51", "a whole number from 0 to 50");
  EXPECT_TRUE(read(R"({"max_tokens":1000,"min_tokens":100})").ok());
  const Status status = read(R"({"max_tokens":1000,"min_tokens":101})");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "min_tokens is 101, but it must be a whole number from 0 to 100");
  expect_refused("min_tokens", "-1", "a whole number from 0 to 50");
}

TEST_F(SamplingBounds, BiasesAreBoundedInNumberSizeAndKey) {
  expect_taken(R"({"logit_bias":{}})");
  EXPECT_TRUE(sampling().logit_bias.empty());
  expect_taken(R"({"logit_bias":{"0":-100,"257":100,"007":0.5}})");
  ASSERT_EQ(sampling().logit_bias.size(), 3u);
  EXPECT_EQ(sampling().logit_bias[2], (std::pair<int32_t, float>{7, 0.5f}));
  for (const std::string_view wrong : {"100.001", "-101", "\"1\"", "null", "false", "[1]"}) {
    const Status status = read(fmt::format(R"({{"logit_bias":{{"5":{}}}}})", wrong));
    ASSERT_FALSE(status.ok()) << wrong;
    EXPECT_EQ(status.error().param, "logit_bias.5");
  }
  for (const std::string_view key : {"", "-1", "258", "5.0", " 5", "4294967301", "1e1"}) {
    const Status status = read(fmt::format(R"({{"logit_bias":{{"{}":1}}}})", key));
    ASSERT_FALSE(status.ok()) << key;
    EXPECT_EQ(status.error().message,
              fmt::format("logit_bias has the key \"{}\", but its keys must be token ids from 0 to "
                          "257",
                          key));
  }
  expect_refused("logit_bias", "[[1,2]]", "an object");
}

TEST_F(SamplingBounds, PairsOfBiasesAreBoundedToo) {
  expect_taken(member("bias_pairs", list_of(1024, "[1,0]")));
  EXPECT_EQ(sampling().logit_bias.size(), 1024u);
  expect_refused("bias_pairs", list_of(1025, "[1,0]"), "at most 1024");
  expect_taken(member("bias_pairs", "[]"));
  EXPECT_TRUE(sampling().logit_bias.empty());
  for (const std::string_view wrong : {"[[]]", "[[1]]", "[[1,2,3]]", "[{}]", "[null]", "[\"1\"]"}) {
    expect_refused("bias_pairs", wrong, "a list of pairs, each a token id and a number");
  }
  for (const std::string_view wrong : {"[[-1,1]]", "[[\"a\",1]]", "[[1.5,1]]", "[[null,1]]"}) {
    expect_refused("bias_pairs", wrong, "of token ids from 0 to 257");
  }
  expect_refused("bias_pairs", "7", "an object");
}

TEST_F(SamplingBounds, TheLaterNameReplacesWhatTheEarlierSaid) {
  expect_taken(R"({"logit_bias":{"1":1},"bias_pairs":[[2,2]]})");
  EXPECT_EQ(sampling().logit_bias, (std::vector<std::pair<int32_t, float>>{{2, 2.0f}}));
  expect_taken(R"({"repeat_penalty":1.5,"repetition_penalty":1.1})");
  EXPECT_EQ(sampling().repetition_penalty, 1.5f) << "in the order of the names";
  expect_taken(R"({"repeat_penalty":null,"repetition_penalty":1.1})");
  EXPECT_EQ(sampling().repetition_penalty, 1.1f);
}

TEST_F(SamplingBounds, StopsAreAtMost32OfAtMost256Bytes) {
  const std::string longest = fmt::format("\"{}\"", std::string(256, 'x'));
  expect_taken(member("stop", longest));
  ASSERT_EQ(request_.stop.size(), 1u);
  EXPECT_EQ(request_.stop[0].size(), 256u);
  expect_taken(member("stop", list_of(32, "\"x\"")));
  EXPECT_EQ(request_.stop.size(), 32u);
  expect_taken(member("stop", "[]"));
  EXPECT_TRUE(request_.stop.empty());
  expect_refused("stop", list_of(33, "\"x\""), "at most 32 strings");
  for (const std::string& wrong :
       {std::string("\"\""), fmt::format("\"{}\"", std::string(257, 'x')), std::string("7"),
        std::string("[\"a\",\"\"]"), std::string("[null]"), std::string("[[\"a\"]]"),
        std::string("{}"), std::string("true")}) {
    expect_refused("stop", wrong, "strings of 1 to 256 bytes");
  }
  // The limit counts bytes, not letters.
  std::string letters = "\"";
  for (int i = 0; i < 129; ++i) letters += "\xC3\xBC";
  expect_refused("stop", letters + "\"", "strings of 1 to 256 bytes");
}

TEST_F(SamplingBounds, StopIdsAreTokensOfTheVocabulary) {
  expect_taken(member("stop_token_ids", "[0,257]"));
  EXPECT_EQ(request_.prototype.stop_ids, (std::vector<int32_t>{0, 257}));
  expect_taken(member("stop_token_ids", list_of(128, "1")));
  expect_refused("stop_token_ids", list_of(129, "1"), "at most 128 ids");
  expect_refused("stop_token_ids", "7", "a list");
  for (const std::string_view wrong : {"[-1]", "[258]", "[0.5]", "[\"a\"]", "[[1]]"}) {
    const Status status = read(member("stop_token_ids", wrong));
    ASSERT_FALSE(status.ok()) << wrong;
    EXPECT_EQ(status.error().param, "stop_token_ids");
  }
}

TEST_F(SamplingBounds, IgnoreEosIsAFlag) {
  expect_taken(member("ignore_eos", "true"));
  EXPECT_TRUE(request_.prototype.ignore_eos);
  expect_taken(member("ignore_eos", "null"));
  EXPECT_FALSE(request_.prototype.ignore_eos);
  for (const std::string_view wrong : {"1", "0", "\"true\"", "[]"}) {
    expect_refused("ignore_eos", wrong, "true or false");
  }
}

TEST_F(SamplingBounds, ThePenaltyLooksAtTheWholeText) {
  const auto window = [](std::string_view json, float penalty) {
    SamplingParams sampling;
    sampling.repetition_penalty = penalty;
    const auto value = parse_body(member("repeat_last_n", json)).value();
    const Status status = read_penalty_window(Fields(value.get_object()), sampling);
    return std::pair(status, sampling.repetition_penalty);
  };
  for (const std::string_view whole : {"-1", "64", "null"}) {
    const auto [status, penalty] = window(whole, 1.5f);
    EXPECT_TRUE(status.ok()) << whole;
    EXPECT_EQ(penalty, 1.5f) << whole;
  }
  const auto [none, no_penalty] = window("0", 1.5f);
  EXPECT_TRUE(none.ok());
  EXPECT_EQ(no_penalty, 1.0f);
  EXPECT_TRUE(window("63", 1.0f).first.ok()) << "no penalty has no window";
  const auto other = window("63", 1.5f).first;
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(other.error().param, "repeat_last_n");
  EXPECT_EQ(other.error().hint, "penalties look at the whole text");
  EXPECT_EQ(window("-2", 1.5f).first.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace sampling_bounds_test
}  // namespace headrace
