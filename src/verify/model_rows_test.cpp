// A record of a model: what agrees, what differs, and records that cannot be of it.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/testing/golden.h"
#include "verify/golden.h"
#include "verify/testing/byte_tokenizer.h"
#include "verify/verify.h"

namespace headrace {
namespace model_rows_test {

namespace json = boost::json;

// A small checkpoint of 256 ids and 512 positions, with what its folder records.
class ModelRows : public ::testing::Test {
 protected:
  ModelRows() {
    const std::string folder = (test::archive_root() / "tiny" / "llama").string();
    golden_ = std::make_unique<Golden>(read_golden(folder).value());
    backend_ = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
    model_ =
        Model::load(*open_folder(folder).value(), *backend_, {.kv_type = KvType::kF32}).value();
  }

  Result<VerifyRows> rows_of(const json::value& prompts, const json::value& perplexity = {}) {
    json::object expect{{"prompts", prompts}};
    if (!perplexity.is_null()) expect["perplexity"] = perplexity;
    const ModelRecord record{{"expect.json", json::serialize(expect)}, std::string(64, 'x'), 0};
    return model_rows(*model_, *backend_, testing::ByteTokenizer(), record);
  }

  // Why a record is refused; nothing of it was computed.
  Error refusal_of(const json::value& prompts, const json::value& perplexity = {}) {
    const auto rows = rows_of(prompts, perplexity);
    EXPECT_FALSE(rows.ok()) << prompts;
    return rows.ok() ? Error{} : rows.error();
  }

  std::unique_ptr<Golden> golden_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

json::object prompt_of(const json::value& ids, const json::value& greedy = json::array{1}) {
  return {{"text", "some"}, {"ids", ids}, {"greedy", greedy}};
}

TEST_F(ModelRows, EachPromptIsARowWithWhatAgrees) {
  json::array prompts;
  for (const GoldenPrompt& prompt : golden_->prompts) {
    prompts.push_back(prompt_of(json::value_from(prompt.ids), json::value_from(prompt.greedy)));
  }
  auto& wrong = prompts.emplace_back(prompts.front()).as_object().at("greedy").as_array();
  wrong.back() = (wrong.back().to_number<int>() + 1) % 256;
  const auto rows = rows_of(prompts);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), golden_->prompts.size() + 1);
  for (const VerifyRow& row : *rows) EXPECT_EQ(row.passed, &row != &rows->back()) << row.details;
  EXPECT_EQ(rows->back().details,
            fmt::format("{} of {} greedy ids equal", wrong.size() - 1, wrong.size()));
}

TEST_F(ModelRows, RecordsThatFillTheContextAreRun) {
  const json::array ids(511, 7);
  const auto rows = rows_of(json::array{prompt_of(ids)});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->size(), 1u);
}

TEST_F(ModelRows, TheRecordOfAnotherModelIsRefused) {
  json::object listed = prompt_of(json::array{1});
  listed["top10"] = {{{5, -0.5}, {256, -1.5}}};
  struct Case {
    json::object prompt;
    std::string reason;
  };
  const Case cases[] = {
      {prompt_of(json::array{1, 256}),
       "prompt 1 has id 256, but ids of its vocabulary are 0 to 255"},
      {prompt_of(json::array{-1}), "prompt 1 has id -1, but ids of its vocabulary are 0 to 255"},
      {prompt_of(json::array(512, 7)),
       "prompt 1 takes 513 tokens, but it was made for at most 512"},
      {listed, "top10 of prompt 1 has id 256, but ids of its vocabulary are 0 to 255"},
  };
  for (const Case& c : cases) {
    const Error error = refusal_of(json::array{prompt_of(json::array{1}), c.prompt});
    EXPECT_EQ(error.code, ErrorCode::kUnprocessable);
    EXPECT_EQ(error.message, "'expect.json' was not recorded of this model: " + c.reason);
    EXPECT_FALSE(error.hint.empty());
  }
}

TEST_F(ModelRows, WhatIsNoRecordIsNamed) {
  json::object listed = prompt_of(json::array{1, 2});
  listed["top10"] = {{{5, -0.5}}};
  struct Case {
    json::value prompts;
    std::string message;
  };
  const Case cases[] = {
      {json::array{prompt_of(json::array())},
       "'expect.json': prompt 0 has no ids, but at least one is needed"},
      {json::array{listed}, "'expect.json': prompt 0 has 2 ids, but 1 lists in top10"},
      {json::array{prompt_of("ids")}, "'expect.json' is not a file of recorded results: "},
      {json::array{7}, "'expect.json' is not a file of recorded results: "},
      {7, "'expect.json' is not a file of recorded results: "},
  };
  for (const Case& c : cases) {
    const Error error = refusal_of(c.prompts);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_TRUE(error.message.starts_with(c.message)) << error.message;
  }
}

TEST_F(ModelRows, WindowsOfThePerplexityAreOfThisModel) {
  const auto perplexity = [](int64_t window_tokens, const json::value& bos) {
    return json::object{{"windows", 1},
                        {"window_tokens", window_tokens},
                        {"bos", bos},
                        {"mean_nll_per_window", {5.5}}};
  };
  const json::array prompts{prompt_of(json::array{1})};
  const auto rows = rows_of(prompts, perplexity(32, nullptr));
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->back().item, "perplexity over 1 windows");
  EXPECT_EQ(refusal_of(prompts, perplexity(32, 256)).message,
            "'expect.json' was not recorded of this model: bos of the perplexity has id 256, but "
            "ids of its vocabulary are 0 to 255");
  EXPECT_EQ(refusal_of(prompts, perplexity(513, nullptr)).message,
            "'expect.json' was not recorded of this model: a window of the perplexity takes 513 "
            "tokens, but it was made for at most 512");
  EXPECT_EQ(refusal_of(prompts, perplexity(0, nullptr)).message,
            "'expect.json': window_tokens is 0, but at least 2 are needed");
}

}  // namespace model_rows_test
}  // namespace headrace
