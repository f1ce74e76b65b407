// /v1/embeddings, /v1/rerank and /v1/score over a scripted engine, whose vectors count the bytes of
// a prompt by their last two bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "server/api/json.h"
#include "server/api/pooled.h"
#include "server/test_support.h"

namespace headrace {
namespace server_vectors_test {

using test::Client;
using test::RunningServer;

class VectorsTest : public ::testing::Test {
 protected:
  boost::json::value ok(const std::string& path, const std::string& body) {
    const auto response = Client(server_.port()).post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_json(response.body, "body").value();
  }
  std::string refused(const std::string& path, const std::string& body, int status = 400) {
    const auto response = Client(server_.port()).post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    const auto json = parse_json(response.body, "body").value();
    return json.at("error").at("message").as_string().c_str();
  }
  static std::vector<float> vector_of(const boost::json::value& entry) {
    std::vector<float> vector;
    for (const auto& value : entry.at("embedding").as_array()) {
      vector.push_back(static_cast<float>(value.to_number<double>()));
    }
    return vector;
  }

  RunningServer server_;
};

TEST_F(VectorsTest, AllFormsOfInputHaveVectors) {
  struct Case {
    const char* input;
    size_t count;
    int64_t tokens;
  };
  for (const Case& each : {Case{R"("abc")", 1, 4}, Case{R"(["abc","d"])", 2, 6},
                           Case{"[1,2,3]", 1, 3}, Case{"[[1,2],[3]]", 2, 3}}) {
    const auto json = ok("/v1/embeddings", fmt::format(R"({{"input":{}}})", each.input));
    EXPECT_EQ(json.at("object").as_string(), "list");
    EXPECT_EQ(json.at("model").as_string(), "scripted");
    EXPECT_EQ(json.at("data").as_array().size(), each.count) << each.input;
    EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int64(), each.tokens) << each.input;
    EXPECT_EQ(json.at("usage").at("total_tokens").as_int64(), each.tokens) << each.input;
    for (size_t i = 0; i < each.count; ++i) {
      const auto& entry = json.at("data").at(i);
      EXPECT_EQ(entry.at("object").as_string(), "embedding");
      EXPECT_EQ(entry.at("index").as_int64(), static_cast<int64_t>(i));
      EXPECT_EQ(vector_of(entry).size(), 4u);
    }
  }
  EXPECT_EQ(server_.engine().last_request().pooling, Pooling::kLast);
}

TEST_F(VectorsTest, TheyHaveLengthOneUnlessNot) {
  const auto unit = ok("/v1/embeddings", R"({"input":[1,1,1,2,2,2,2]})");
  EXPECT_EQ(vector_of(unit.at("data").at(0)), (std::vector<float>{0, 0.6f, 0.8f, 0}));
  const auto raw = ok("/v1/embeddings", R"({"input":[1,1,1,2,2,2,2],"normalize":false})");
  EXPECT_EQ(vector_of(raw.at("data").at(0)), (std::vector<float>{0, 3, 4, 0}));
  const auto cut = ok("/v1/embeddings", R"({"input":[0,1,1,2,2],"dimensions":2})");
  const auto vector = vector_of(cut.at("data").at(0));
  ASSERT_EQ(vector.size(), 2u);
  EXPECT_NEAR(vector[0], 1 / std::sqrt(5.0), 1e-7);
  EXPECT_NEAR(vector[1], 2 / std::sqrt(5.0), 1e-7);
}

TEST_F(VectorsTest, Base64HoldsTheSameNumbers) {
  const auto json = ok("/v1/embeddings", R"({"input":[1,1,1,2,2,2,2],"encoding_format":"base64"})");
  const std::vector<float> expected = {0, 0.6f, 0.8f, 0};
  EXPECT_EQ(json.at("data").at(0).at("embedding").as_string(), base64_of(expected));
}

TEST_F(VectorsTest, ManyInputsKeepTheirOrder) {
  std::string input;
  for (int i = 0; i < 2048; ++i) input += fmt::format("{}[{}]", i == 0 ? "" : ",", i % 4);
  const auto json = ok("/v1/embeddings", "{\"input\":[" + input + "]}");
  const auto& data = json.at("data").as_array();
  ASSERT_EQ(data.size(), 2048u);
  for (size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(vector_of(data[i])[i % 4], 1) << i;
    EXPECT_EQ(data[i].at("index").as_int64(), static_cast<int64_t>(i));
  }
  EXPECT_EQ(refused("/v1/embeddings", "{\"input\":[" + input + ",[1]]}"),
            "input is a list of 2049, but it must be one of at most 2048");
}

TEST_F(VectorsTest, BadFieldsAreNamed) {
  for (const auto& [body, word] :
       {std::pair{R"({})", "input"}, std::pair{R"({"input":[]})", "input"},
        std::pair{R"({"input":7})", "input"}, std::pair{R"({"input":["a",[1]]})", "input"},
        std::pair{R"({"input":[999]})", "input"}, std::pair{R"({"input":""})", ""},
        std::pair{R"({"input":"a","encoding_format":"hex"})", "encoding_format"},
        std::pair{R"({"input":"a","dimensions":5})", "dimensions"},
        std::pair{R"({"input":"a","dimensions":0})", "dimensions"},
        std::pair{R"({"input":"a","messages":[1]})", "messages"}}) {
    if (*word == '\0') continue;
    EXPECT_NE(refused("/v1/embeddings", body).find(word), std::string::npos) << body;
  }
  EXPECT_EQ(Client(server_.port()).post("/v1/embeddings", R"({"input":"a","model":"x"})").status,
            404);
}

TEST_F(VectorsTest, LongInputsAreRefusedOrCut) {
  const std::string text(5000, 'a');
  EXPECT_NE(refused("/v1/embeddings", fmt::format(R"({{"input":"{}"}})", text)).find("4096"),
            std::string::npos);
  const auto json =
      ok("/v1/embeddings", fmt::format(R"({{"input":"{}","truncate_prompt_tokens":-1}})", text));
  EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int64(), 4096);
  const auto some = ok("/v1/embeddings", R"({"input":"abcdef</s>","truncate_prompt_tokens":3})");
  EXPECT_EQ(some.at("usage").at("prompt_tokens").as_int64(), 3);
  EXPECT_EQ(server_.engine().last_request().prompt_ids,
            (std::vector<int32_t>{test::kBos, 'a', test::kEos}));
}

// "yes" and "no" are no tokens of the scripted model, so it compares vectors.
TEST_F(VectorsTest, DocumentsAreOrderedByTheirCosine) {
  const auto json =
      ok("/v1/rerank", R"({"query":"aaaa","documents":["bbbb",{"text":"aaab"},"aaaa"]})");
  EXPECT_EQ(json.at("method").as_string(), "embedding");
  const auto& results = json.at("results").as_array();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].at("index").as_int64(), 2);
  EXPECT_NEAR(results[0].at("relevance_score").to_number<double>(), 1, 1e-6);
  EXPECT_EQ(results[0].at("document").at("text").as_string(), "aaaa");
  EXPECT_EQ(results[1].at("index").as_int64(), 1);
  EXPECT_EQ(results[2].at("index").as_int64(), 0);
  EXPECT_EQ(json.at("usage").at("total_tokens").as_int64(), 4 * 5);
  const auto best = ok("/v2/rerank", R"({"query":"a","documents":["b","a"],"top_n":1,
                                         "return_documents":false})");
  ASSERT_EQ(best.at("results").as_array().size(), 1u);
  EXPECT_EQ(best.at("results").at(0).at("index").as_int64(), 1);
  EXPECT_FALSE(best.at("results").at(0).as_object().contains("document"));
}

TEST_F(VectorsTest, PairsAreScoredInTheirOrder) {
  const auto one = ok("/v1/score", R"({"text_1":"a","text_2":["a","b"]})");
  ASSERT_EQ(one.at("data").as_array().size(), 2u);
  EXPECT_NEAR(one.at("data").at(0).at("score").to_number<double>(), 1, 1e-6);
  EXPECT_LT(one.at("data").at(1).at("score").to_number<double>(), 0.9);
  const auto pairs = ok("/score", R"({"queries":["a","b"],"documents":["b","b"]})");
  EXPECT_LT(pairs.at("data").at(0).at("score").to_number<double>(), 0.9);
  EXPECT_NEAR(pairs.at("data").at(1).at("score").to_number<double>(), 1, 1e-6);
  EXPECT_NE(refused("/v1/score", R"({"text_1":["a","b"],"text_2":["a"]})").find("text_1"),
            std::string::npos);
}

TEST_F(VectorsTest, ATextThatIsTooLongIsNamedByItsOwnField) {
  const std::string text(5000, 'a');
  const auto param = [&](const std::string& path, const std::string& body) {
    const auto refusal = parse_body(Client(server_.port()).post(path, body).body).value();
    return std::string(refusal.at("error").at("param").as_string().c_str());
  };
  const auto with = [](std::string_view form, const std::string& value) {
    return fmt::format(fmt::runtime(form), value);
  };
  EXPECT_EQ(param("/v1/rerank", with(R"({{"query":"{}","documents":["b"]}})", text)), "query");
  EXPECT_EQ(param("/v1/rerank", with(R"({{"query":"a","documents":["b","{}"]}})", text)),
            "documents");
  EXPECT_EQ(param("/v1/score", with(R"({{"text_1":"{}","text_2":"b"}})", text)), "text_1");
  EXPECT_EQ(param("/v1/score", with(R"({{"text_1":["a","{}"],"text_2":["b","c"]}})", text)),
            "text_1");
  EXPECT_EQ(param("/v1/score", with(R"({{"text_1":["a","b"],"text_2":["b","{}"]}})", text)),
            "text_2");
  EXPECT_EQ(param("/v1/score", with(R"({{"queries":"{}","documents":"b"}})", text)), "queries");
  EXPECT_EQ(param("/v1/score", with(R"({{"queries":"a","documents":"{}"}})", text)), "documents");
}

TEST_F(VectorsTest, JudgingNeedsItsTokens) {
  EXPECT_NE(refused("/v1/rerank", R"({"query":"a","documents":["b"],"method":"yes_no"})")
                .find("no token 'yes'"),
            std::string::npos);
  for (const auto& [body, word] :
       {std::pair{R"({"documents":["b"]})", "query"}, std::pair{R"({"query":"a"})", "documents"},
        std::pair{R"({"query":["a","b"],"documents":["b"]})", "query"},
        std::pair{R"({"query":"a","documents":[]})", "documents"},
        std::pair{R"({"query":"a","documents":[7]})", "documents"},
        std::pair{R"({"query":"a","documents":["b"],"method":"x"})", "method"},
        std::pair{R"({"query":"a","documents":["b"],"top_n":-1})", "top_n"}}) {
    EXPECT_NE(refused("/v1/rerank", body).find(word), std::string::npos) << body;
  }
}

// With the tokens: the longer prompt has the better odds in the script.
TEST(Judging, IsTheOddsOfTheTwoAnswers) {
  const TextBundle bundle = [] {
    class YesNo : public test::ByteTokenizer {
     public:
      std::optional<int32_t> token_to_id(std::string_view token) const override {
        if (token == "yes") return 'y';
        if (token == "no") return 'n';
        return ByteTokenizer::token_to_id(token);
      }
    };
    TextBundle made = test::make_bundle();
    made.tokenizer = std::make_unique<YesNo>();
    made.pooling.is_reranker = true;
    return made;
  }();
  test::ScriptedEngine engine;
  auto model = std::make_shared<ServedModel>(engine, bundle, test::make_model_info());
  ServerOptions options;
  options.port = 0;
  const auto server = Server::create({std::move(model)}, options).value();
  std::thread thread([&] { server->run(); });
  const auto response =
      Client(server->port())
          .post("/v1/rerank", R"({"query":"q","documents":["a","a long document"]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const auto json = parse_json(response.body, "body").value();
  EXPECT_EQ(json.at("method").as_string(), "yes_no");
  EXPECT_EQ(json.at("results").at(0).at("index").as_int64(), 1);
  const Request asked = engine.last_request();
  EXPECT_EQ(asked.label_ids, (std::vector<int32_t>{'y', 'n'}));
  EXPECT_EQ(asked.max_tokens, 1);
  const double yes = -1.0 / static_cast<double>(asked.prompt_ids.size());
  EXPECT_NEAR(json.at("results").at(0).at("relevance_score").to_number<double>(),
              1 / (1 + std::exp(-1 - yes)), 1e-6);
  server->stop();
  thread.join();
}

}  // namespace server_vectors_test
}  // namespace headrace
