// What bodies of /v1/embeddings, /v1/rerank and /v1/score become.
#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/test_support.h"

namespace headrace {
namespace vectors_parse_test {

class YesNoTokenizer : public test::ByteTokenizer {
 public:
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (token == "yes") return 'y';
    if (token == "no") return 'n';
    return ByteTokenizer::token_to_id(token);
  }
};

class VectorsParseTest : public testing::Test {
 protected:
  VectorsParseTest() { bundle_.tokenizer = std::make_unique<YesNoTokenizer>(); }

  // The body lives as long as what is parsed of it.
  Result<ParsedPooled> parse(decltype(parse_embedding)& parser, const std::string& body) {
    body_ = parse_body(body).value().get_object();
    return parser(body_, model_);
  }
  std::string refused(decltype(parse_embedding)& parser, const std::string& body) {
    const auto parsed = parse(parser, body);
    EXPECT_FALSE(parsed.ok()) << body;
    return parsed.ok() ? "" : parsed.error().to_string();
  }

  TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  boost::json::object body_;
};

TEST_F(VectorsParseTest, PoolingIsTheCheckpoints) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kFirst, Pooling::kLast}) {
    bundle_.pooling.pooling = pooling;
    const auto parsed = parse(parse_embedding, R"({"input":["a","b"]})");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->request.prototype.pooling, pooling);
    EXPECT_EQ(parsed->request.prototype.max_tokens, 0);
    EXPECT_EQ(parsed->prompts.items.size(), 2u);
    EXPECT_EQ(parsed->prompts.param, "input");
    EXPECT_TRUE(parsed->prompts.add_special);
  }
  bundle_.pooling.unsupported = "the module Dense";
  EXPECT_EQ(refused(parse_embedding, R"({"input":"a"})"),
            "scripted makes its vectors with the module Dense, which this server does not have");
}

// Ids of the clients' vocabulary, in which id 0 is "a".
TEST_F(VectorsParseTest, ForeignIdsAreReadAsTheirText) {
  class Letters : public test::ByteTokenizer {
   public:
    Result<std::string> decode(std::span<const int32_t> ids, bool) const override {
      std::string text;
      for (const int32_t id : ids) text += static_cast<char>('a' + id);
      return text;
    }
    int32_t vocab_size() const override { return 1000; }
  };
  bundle_.input_tokenizer = std::make_unique<Letters>();
  const auto parsed = parse(parse_embedding, R"({"input":[[0,1,2],[25]]})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(std::get<PromptIds>(parsed->prompts.items[0]), (PromptIds{test::kBos, 'a', 'b', 'c'}));
  EXPECT_EQ(std::get<PromptIds>(parsed->prompts.items[1]), (PromptIds{test::kBos, 'z'}));
  EXPECT_NE(refused(parse_embedding, R"({"input":[1000]})").find("input"), std::string::npos);
  const auto text = parse(parse_embedding, R"({"input":"a"})");
  EXPECT_EQ(std::get<PromptText>(text->prompts.items[0]), "a");  // text is text
}

TEST_F(VectorsParseTest, FieldsReachTheRequest) {
  const auto parsed = parse(parse_embedding,
                            R"({"input":[1,2,3],"cache_salt":"s","truncate_prompt_tokens":2,
                                "add_special_tokens":false,"user":"u","zebra":1})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->request.cache_salt, "s");
  EXPECT_EQ(parsed->prompts.truncate_to, 2);
  EXPECT_FALSE(parsed->prompts.add_special);
  EXPECT_EQ(std::get<PromptIds>(parsed->prompts.items[0]), (PromptIds{1, 2, 3}));
  ASSERT_EQ(parsed->request.headers.size(), 1u);
  EXPECT_EQ(parsed->request.headers[0].second, "zebra");
  EXPECT_EQ(
      parse(parse_embedding, R"({"input":"a","truncate_prompt_tokens":-1})")->prompts.truncate_to,
      1000);
  EXPECT_EQ(parse(parse_embedding, R"({"input":"a"})")->prompts.truncate_to, 0);
}

TEST_F(VectorsParseTest, MemoryIsEstimatedFromAbove) {
  const auto as_text = parse(parse_embedding, R"({"input":"a"})")->bytes_per_prompt;
  const auto as_base64 =
      parse(parse_embedding, R"({"input":"a","encoding_format":"base64"})")->bytes_per_prompt;
  EXPECT_GE(as_base64, 4 * sizeof(float) + 4 * sizeof(float) * 4 / 3);
  EXPECT_GT(as_text, as_base64);
}

TEST_F(VectorsParseTest, LimitsAreNamed) {
  for (const auto& [body, word] :
       {std::pair{R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
        std::pair{R"({"input":"a","truncate_prompt_tokens":1001})", "truncate_prompt_tokens"},
        std::pair{R"({"input":"a","dimensions":5})", "dimensions"},
        std::pair{R"({"input":"a","cache_salt":""})", "cache_salt"},
        std::pair{R"({"input":"a","normalize":1})", "normalize"},
        std::pair{R"({"input":"a","late_chunking":true})", "late_chunking"},
        std::pair{R"({"input":[[]]})", ""}}) {
    if (*word != '\0') {
      EXPECT_NE(refused(parse_embedding, body).find(word), std::string::npos) << body;
    }
  }
}

TEST_F(VectorsParseTest, JudgesAreAskedInTheirOwnWords) {
  bundle_.pooling.is_reranker = true;
  const auto parsed =
      parse(parse_rerank, R"({"query":"Q","documents":["D1",{"text":"D2"}],"instruction":"I"})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Request& prototype = parsed->request.prototype;
  EXPECT_EQ(prototype.pooling, Pooling::kNone);
  EXPECT_EQ(prototype.max_tokens, 1);
  EXPECT_TRUE(prototype.ignore_eos);
  EXPECT_EQ(prototype.label_ids, (std::vector<int32_t>{'y', 'n'}));
  ASSERT_EQ(parsed->prompts.items.size(), 2u);
  const auto& prompt = std::get<ChatPrompt>(parsed->prompts.items[1]);
  const auto& messages = prompt.variables.at("messages").as_array();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].at("role").as_string(), "system");
  EXPECT_EQ(messages[1].at("content").as_string(), "<Instruct>: I\n<Query>: Q\n<Document>: D2");
  EXPECT_EQ(prompt.variables.at("enable_thinking"), false);
  EXPECT_EQ(prompt.variables.at("add_generation_prompt"), true);
}

TEST_F(VectorsParseTest, TheMethodMayBeChosen) {
  const auto pooling_of = [&](const std::string& method) {
    return parse(parse_score, fmt::format(R"({{"text_1":"a","text_2":["b","c"]{}}})", method))
        ->request.prototype.pooling;
  };
  EXPECT_EQ(pooling_of(""), Pooling::kLast);
  EXPECT_EQ(pooling_of(R"(,"method":"yes_no")"), Pooling::kNone);
  bundle_.pooling.is_reranker = true;
  EXPECT_EQ(pooling_of(""), Pooling::kNone);
  EXPECT_EQ(pooling_of(R"(,"method":"embedding")"), Pooling::kLast);
  bundle_.chat_template.reset();
  EXPECT_EQ(pooling_of(""), Pooling::kLast);  // nothing to ask it with
  EXPECT_NE(refused(parse_score, R"({"text_1":"a","text_2":"b","method":"yes_no"})")
                .find("no chat template"),
            std::string::npos);
}

TEST_F(VectorsParseTest, OneQueryIsReadOnceForAllDocuments) {
  const auto parsed = parse(parse_rerank, R"({"query":"Q","documents":["a","b","c"]})");
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->prompts.items.size(), 4u);
  EXPECT_EQ(std::get<PromptText>(parsed->prompts.items[0]), "Q");
  EXPECT_EQ(std::get<PromptText>(parsed->prompts.items[3]), "c");
}

}  // namespace vectors_parse_test
}  // namespace headrace
