// Bodies of /api/embed and /api/embeddings, and their answers.

#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/test_support.h"

namespace headrace {
namespace embed_test {

class OllamaEmbed : public testing::Test {
 protected:
  // What is parsed of a body views it.
  Result<ParsedPooled> parse(decltype(parse_ollama_embed)& parser, std::string_view members) {
    body_ = parse_body(fmt::format("{{{}}}", members)).value().get_object();
    return parser(body_, model_);
  }
  Result<ParsedPooled> embed(std::string_view members) {
    return parse(parse_ollama_embed, members);
  }
  Result<ParsedPooled> old(std::string_view members) {
    return parse(parse_ollama_embeddings, members);
  }
  static std::string error_of(const Result<ParsedPooled>& parsed) {
    return parsed.ok() ? "no error" : parsed.error().to_string();
  }
  static std::string answer(const Result<ParsedPooled>& parsed,
                            std::vector<std::vector<float>> vectors, const AnswerEnd& end = {}) {
    if (!parsed.ok()) return parsed.error().to_string();
    JsonWriter json;
    for (size_t i = 0; i < vectors.size(); ++i) {
      parsed->renderer->add(i, {std::move(vectors[i]), {}}, json);
    }
    parsed->renderer->end(end, json);
    return json.take();
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted", "alias"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  boost::json::object body_;
};

TEST_F(OllamaEmbed, ATextOrAListIsRead) {
  bundle_.pooling.pooling = Pooling::kMean;
  const auto one = embed(R"("input":"a","keep_alive":"5m","options":{"num_ctx":7})");
  ASSERT_TRUE(one.ok()) << one.error().to_string();
  EXPECT_EQ(one->request.prototype.pooling, Pooling::kMean);
  EXPECT_EQ(one->request.prototype.max_tokens, 0);
  EXPECT_EQ(one->prompts.param, "input");
  ASSERT_EQ(one->prompts.items.size(), 1u);
  EXPECT_TRUE(one->request.headers.empty());
  EXPECT_GE(one->bytes_per_prompt, 4 * sizeof(float));
  const auto two = embed(R"("input":["a","bc"])");
  ASSERT_EQ(two->prompts.items.size(), 2u);
  EXPECT_EQ(std::get<PromptText>(two->prompts.items[1]), "bc");
  const auto older = old(R"("prompt":"a")");
  ASSERT_TRUE(older.ok()) << older.error().to_string();
  EXPECT_EQ(older->prompts.param, "prompt");
  EXPECT_EQ(&older->renderer->dialect(), &kOllama);
}

TEST_F(OllamaEmbed, LongTextsAreCutUnlessTheClientForbids) {
  EXPECT_EQ(embed(R"("input":"a")")->prompts.truncate_to, 1000);
  EXPECT_EQ(embed(R"("input":"a","truncate":true)")->prompts.truncate_to, 1000);
  EXPECT_EQ(embed(R"("input":"a","truncate":false)")->prompts.truncate_to, 0);
  const std::string text(2000, 'x');
  for (const bool cuts : {true, false}) {
    auto parsed = embed(fmt::format(R"("input":"{}","truncate":{})", text, cuts));
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const Status read = read_prompts(std::move(parsed->prompts), model_, {}, parsed->request);
    EXPECT_EQ(read.ok(), cuts);
    if (!read.ok()) {
      EXPECT_EQ(read.error().param, "input");
    }
  }
}

TEST_F(OllamaEmbed, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("model":"scripted")", "input is missing, but it must be a string or a list of strings"},
      {R"("input":null)", "input is missing, but it must be a string or a list of strings"},
      {R"("input":7)", "input is 7, but it must be a string or a list of strings, at most 2048"},
      {R"("input":[])",
       "input is a list of 0, but it must be a string or a list of strings, at most 2048"},
      {R"("input":["a",7])",
       "input is a list that holds 7, but it must be a string or a list of strings"},
      {R"("input":["a",["b"]])",
       "input is a list that holds a list of 1, but it must be a string or a list of strings"},
      {R"("input":"a","prompt":7)", "prompt is 7, but it must be a string"},
      {R"("input":"a","dimensions":0)",
       "dimensions is 0, but it must be a whole number from 1 to 4"},
      {R"("input":"a","dimensions":5)",
       "dimensions is 5, but it must be a whole number from 1 to 4"},
      {R"("input":"a","truncate":"yes")", R"(truncate is "yes", but it must be true or false)"},
      {R"("input":"a","options":[])", "options is a list of 0, but it must be an object"},
      {R"("input":"a","options":{"tfs_z":2})",
       "options.tfs_z is 2, which is not supported by this server (leave it out)"},
      {R"("input":"a","model":"absent")",
       R"(the model "absent" does not exist here, this server has 'scripted')"},
  };
  for (const auto& [members, message] : cases) EXPECT_EQ(error_of(embed(members)), message);
  // The older form has one text, by its own name.
  const std::pair<const char*, const char*> of_old[] = {
      {R"("input":"a")", "prompt is missing, but it must be a string"},
      {R"("prompt":["a"])", "prompt is a list of 1, but it must be a string"},
      {R"("prompt":7)", "prompt is 7, but it must be a string"},
      {R"("prompt":"a","input":[7])",
       "input is a list that holds 7, but it must be a string or a list of strings"},
  };
  for (const auto& [members, message] : of_old) EXPECT_EQ(error_of(old(members)), message);
  bundle_.pooling.unsupported = "the module Dense";
  EXPECT_EQ(error_of(embed(R"("input":"a")")),
            "scripted makes its vectors with the module Dense, which this server does not have");
}

TEST_F(OllamaEmbed, AListIsBounded) {
  std::string texts = R"("a")";
  for (int i = 1; i < 2048; ++i) texts += R"(,"a")";
  EXPECT_EQ(embed(fmt::format(R"("input":[{}])", texts))->prompts.items.size(), 2048u);
  EXPECT_EQ(error_of(embed(fmt::format(R"("input":[{},"a"])", texts))),
            "input is a list of 2049, but it must be a string or a list of strings, at most 2048");
}

TEST_F(OllamaEmbed, VectorsHaveLengthOne) {
  AnswerEnd end;
  end.usage.prompt_tokens = 9;
  end.times = {1'000, 2'000, 3'000, 6'000};
  EXPECT_EQ(
      answer(embed(R"("input":["a","b"],"model":"alias")"), {{3, 0, 4, 0}, {0, 0, 0, 0}}, end),
      R"({"model":"alias","embeddings":[[0.6,0,0.8,0],[0,0,0,0]],)"
      R"("total_duration":5000000,"load_duration":0,"prompt_eval_count":9})");
  // The first of them, of length one again.
  EXPECT_EQ(answer(embed(R"("input":"a","dimensions":2)"), {{2, 0, 4, 0}}),
            R"({"model":"scripted","embeddings":[[1,0]],"total_duration":0,"load_duration":0,)"
            R"("prompt_eval_count":0})");
}

TEST_F(OllamaEmbed, TheOlderFormGivesTheVectorAsItIs) {
  EXPECT_EQ(answer(old(R"("prompt":"a")"), {{3, 0, 4, -0.5f}}), R"({"embedding":[3,0,4,-0.5]})");
}

TEST_F(OllamaEmbed, UnknownFieldsAreNamedInTheHeader) {
  const auto parsed = embed(R"("input":"a","dimension":2,"options":{"num_predcit":1})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(parsed->request.headers.size(), 1u);
  EXPECT_EQ(parsed->request.headers[0].first, kIgnoredHeader);
  EXPECT_EQ(parsed->request.headers[0].second,
            "dimension (dimensions?), options.num_predcit (num_predict?)");
}

}  // namespace embed_test
}  // namespace headrace
