// What is said of a model to Ollama's clients.

#include <gtest/gtest.h>

#include <set>

#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/test_support.h"

namespace headrace {
namespace show_test {

// Known by its source alone.
class NamedTemplate : public ChatTemplate {
 public:
  explicit NamedTemplate(std::string source) : source_(std::move(source)) {}
  Result<std::string> render(std::string_view, std::optional<std::string_view>) const override {
    return std::string();
  }
  const std::string& source() const override { return source_; }

 private:
  const std::string source_;
};

class OllamaShow : public testing::Test {
 protected:
  boost::json::value details() const {
    JsonWriter json;
    json.open_object();
    write_ollama_details(json, info_);
    json.close_object();
    return parse_body(json.str()).value().at("details");
  }

  TextBundle bundle_ = test::make_bundle();
  ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
};

TEST_F(OllamaShow, TheTemplateSaysWhatTheModelCan) {
  using Names = std::vector<std::string_view>;
  const std::pair<const char*, Names> cases[] = {
      {"{{ messages }}", {"completion"}},
      {"{% if tools %}", {"completion", "tools"}},
      {"{{ message.tool_calls }}", {"completion"}},  // past calls alone: it is told of no tool
      {"<think>", {"completion", "thinking"}},
      {"{{ reasoning_content }}", {"completion", "thinking"}},
      {"{% if tools and enable_thinking %}", {"completion", "tools", "thinking"}},
  };
  for (const auto& [source, names] : cases) {
    bundle_.chat_template = std::make_unique<NamedTemplate>(source);
    EXPECT_EQ(ollama_capabilities(model_), names) << source;
  }
  bundle_.infill = InfillMarks{1, 2, 3, false, {}};
  EXPECT_EQ(ollama_capabilities(model_), (Names{"completion", "tools", "insert", "thinking"}));
  bundle_.chat_template.reset();
  EXPECT_EQ(ollama_capabilities(model_), (Names{"completion", "insert"}));
  bundle_.pooling.is_embedding = true;  // it answers nothing
  EXPECT_EQ(ollama_capabilities(model_), Names{"embedding"});
}

TEST_F(OllamaShow, SizesAreShort) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0"},
      {999'999, "999999"},
      {1'000'000, "1M"},
      {134'515'008, "135M"},
      {1'000'000'000, "1.0B"},
      {7'615'616'512, "7.6B"},
      {671'026'419'200, "671.0B"},
  };
  for (const auto& [count, shown] : cases) {
    info_.num_parameters = count;
    EXPECT_EQ(details().at("parameter_size").as_string(), shown);
  }
}

TEST_F(OllamaShow, DetailsAreOfTheFiles) {
  info_.family = "llama";
  info_.quantisation = "Q4_K_M";
  EXPECT_EQ(to_text(details()),
            R"({"parent_model":"","format":"gguf","family":"llama","families":["llama"],)"
            R"("parameter_size":"0","quantization_level":"Q4_K_M"})");
  info_.file = "SmolLM2";  // a folder
  EXPECT_EQ(details().at("format").as_string(), "safetensors");
}

TEST_F(OllamaShow, ADigestIsOfFileAndWeights) {
  std::set<std::string> digests = {ollama_digest(info_)};
  EXPECT_EQ(digests.begin()->size(), 64u);
  EXPECT_EQ(digests.begin()->find_first_not_of("0123456789abcdef"), std::string::npos);
  info_.name = "another";  // an alias is the same model
  EXPECT_FALSE(digests.insert(ollama_digest(info_)).second);
  info_.system_fingerprint = "fp-others";
  EXPECT_TRUE(digests.insert(ollama_digest(info_)).second);
  info_.file = "other.gguf";
  EXPECT_TRUE(digests.insert(ollama_digest(info_)).second);
}

TEST_F(OllamaShow, AModelIsShown) {
  info_.family = "llama";
  info_.num_parameters = 12;
  const auto shown = parse_body(ollama_show(model_, 86'400)).value();
  EXPECT_EQ(shown.at("modelfile").as_string(), "FROM scripted\n");
  EXPECT_EQ(shown.at("template").as_string(), bundle_.chat_template->source());
  EXPECT_EQ(shown.at("modified_at").as_string(), "1970-01-02T00:00:00Z");
  EXPECT_EQ(to_text(shown.at("model_info")),
            R"({"general.architecture":"llama","general.basename":"scripted",)"
            R"("general.parameter_count":12,"llama.context_length":1000,"llama.vocab_size":258})");
  EXPECT_EQ(to_text(shown.at("capabilities")), R"(["completion","thinking"])");
  bundle_.chat_template.reset();
  EXPECT_EQ(parse_body(ollama_show(model_, 0)).value().at("template").as_string(), "");
}

}  // namespace show_test
}  // namespace headrace
