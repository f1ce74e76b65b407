#include "server/api/bundle.h"

#include <gtest/gtest.h>

#include "server/api/test_checkpoint.h"

namespace headrace {
namespace bundle_test {

using test::TextCheckpoint;

// Single letters, and the special tokens <s> and </s>.
constexpr const char* kTokenizer = R"({"version":"1.0","added_tokens":[
  {"id":0,"content":"<s>","special":true,
   "single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
  {"id":1,"content":"</s>","special":true,
   "single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
  {"id":2,"content":"<end>","special":true,
   "single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
  "normalizer":null,
  "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,
   "trim_offsets":true,"use_regex":false},
  "post_processor":{"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
    "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
    "special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
  "decoder":{"type":"ByteLevel","add_prefix_space":false,
   "trim_offsets":true,"use_regex":false},
  "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
    "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
    "vocab":{"<s>":0,"</s>":1,"<end>":2,"a":3,"b":4,"c":5},"merges":[]}})";

TextCheckpoint safetensors() {
  TextCheckpoint checkpoint(CheckpointKind::kSafetensors);
  checkpoint.at("models/tiny-chat");
  checkpoint.file("tokenizer.json", kTokenizer);
  checkpoint.file(
      "tokenizer_config.json",
      R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","chat_template":"{{ bos_token }}x"})");
  checkpoint.file("config.json", R"({"eos_token_id":1})");
  return checkpoint;
}

// A byte-level GGUF vocabulary: the letters a to c, then special tokens and one ordinary word.
TextCheckpoint gguf(const std::vector<std::pair<std::string_view, int64_t>>& specials) {
  TextCheckpoint checkpoint(CheckpointKind::kGguf);
  checkpoint.at("models/tiny.gguf");
  std::vector<std::string_view> tokens = {"a", "b", "c"};
  std::vector<int64_t> types = {1, 1, 1};
  for (const auto& [text, type] : specials) {
    tokens.push_back(text);
    types.push_back(type);
  }
  checkpoint.key("tokenizer.ggml.model", std::string_view("gpt2"));
  checkpoint.key("tokenizer.ggml.pre", std::string_view("gpt-2"));
  checkpoint.key("tokenizer.ggml.tokens", MetadataValue::Array(tokens));
  checkpoint.key("tokenizer.ggml.token_type", MetadataValue::Array(types));
  checkpoint.key("tokenizer.ggml.merges", MetadataValue::Array(std::vector<std::string_view>{}));
  return checkpoint;
}

TEST(TextBundle, ReadsASafetensorsFolder) {
  TextCheckpoint checkpoint = safetensors();
  checkpoint.file(
      "generation_config.json",
      R"({"eos_token_id":[2,1,99],"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":7})");
  const auto bundle = TextBundle::load(checkpoint);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  EXPECT_EQ(bundle->bos_token, "<s>");
  EXPECT_EQ(bundle->eos_token, "</s>");
  EXPECT_EQ(bundle->end_ids, (std::vector<int32_t>{1, 2}));  // 99 is no token
  EXPECT_EQ(bundle->sampling.temperature, 0.6f);
  EXPECT_EQ(bundle->sampling.top_k, 20);
  EXPECT_EQ(bundle->sampling.top_p, 0.95f);
  EXPECT_FALSE(bundle->sampling.min_p.has_value());  // out of range
  EXPECT_EQ(bundle->display_name, "tiny-chat");
  ASSERT_NE(bundle->chat_template, nullptr);
  EXPECT_EQ(bundle->chat_template->render(R"({"messages":[]})").value(), "<s>x");
}

TEST(TextBundle, FindsTheTemplateWhereverItIs) {
  TextCheckpoint checkpoint = safetensors();
  checkpoint.file("tokenizer_config.json",
                  R"({"bos_token":"<s>","chat_template":[{"name":"tool_use","template":"T"},)"
                  R"({"name":"default","template":"D{{ 1 }}"}]})");
  EXPECT_EQ(TextBundle::load(checkpoint)->chat_template->source(), "D{{ 1 }}");
  checkpoint.file("chat_template.jinja", "J{{ 1 }}");
  EXPECT_EQ(TextBundle::load(checkpoint)->chat_template->source(), "J{{ 1 }}");
  checkpoint.erase("chat_template.jinja");
  checkpoint.file("tokenizer_config.json",
                  R"({"chat_template":[{"name":"tool_use","template":"T"}]})");
  EXPECT_EQ(TextBundle::load(checkpoint)->chat_template, nullptr);
  checkpoint.erase("tokenizer_config.json");
  EXPECT_EQ(TextBundle::load(checkpoint)->chat_template, nullptr);
}

TEST(TextBundle, FindsTheTemplateForTools) {
  const auto sources = [](const TextCheckpoint& checkpoint) {
    const auto bundle = TextBundle::load(checkpoint);
    CHECK(bundle.ok(), "{}", bundle.error().message);
    return std::pair(bundle->template_for(false)->source(), bundle->template_for(true)->source());
  };
  using Sources = std::pair<std::string, std::string>;
  TextCheckpoint checkpoint = safetensors();
  EXPECT_EQ(sources(checkpoint), (Sources{"{{ bos_token }}x", "{{ bos_token }}x"}));
  checkpoint.file("tokenizer_config.json",
                  R"({"chat_template":[{"name":"tool_use","template":"T{{ 1 }}"},)"
                  R"({"name":"default","template":"D{{ 1 }}"}]})");
  EXPECT_EQ(sources(checkpoint), (Sources{"D{{ 1 }}", "T{{ 1 }}"}));
  checkpoint.file("tokenizer_config.json",
                  R"({"chat_template":{"default":"E{{ 1 }}","tool_use":"U{{ 1 }}"}})");
  EXPECT_EQ(sources(checkpoint), (Sources{"E{{ 1 }}", "U{{ 1 }}"}));
  checkpoint.file("chat_template.jinja", "J{{ 1 }}");
  EXPECT_EQ(sources(checkpoint), (Sources{"J{{ 1 }}", "J{{ 1 }}"}));
  checkpoint.file("additional_chat_templates/tool_use.jinja", "K{{ 1 }}");
  EXPECT_EQ(sources(checkpoint), (Sources{"J{{ 1 }}", "K{{ 1 }}"}));
  checkpoint.file("additional_chat_templates/tool_use.jinja", "{% if %}");  // costs the tools alone
  EXPECT_EQ(sources(checkpoint), (Sources{"J{{ 1 }}", "J{{ 1 }}"}));
  TextCheckpoint file = gguf({});
  file.key("tokenizer.chat_template", std::string_view("G{{ 1 }}"));
  file.key("tokenizer.chat_template.tool_use", std::string_view("H{{ 1 }}"));
  EXPECT_EQ(sources(file), (Sources{"G{{ 1 }}", "H{{ 1 }}"}));
}

TEST(TextBundle, SaysWhatIsWrongWithAFolder) {
  TextCheckpoint checkpoint = safetensors();
  checkpoint.file("chat_template.jinja", "{% if %}");
  EXPECT_FALSE(TextBundle::load(checkpoint).ok());
  checkpoint = safetensors();
  checkpoint.file("generation_config.json", "{");
  const auto broken = TextBundle::load(checkpoint);
  ASSERT_FALSE(broken.ok());
  EXPECT_TRUE(broken.error().message.starts_with("generation_config.json is not valid JSON"));
  checkpoint = safetensors();
  checkpoint.erase("tokenizer.json");
  const auto none = TextBundle::load(checkpoint);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(none.error().message, "models/tiny-chat has no tokenizer.json beside the weights");
}

TEST(TextBundle, EncodesWithExactlyOneBos) {
  const auto bundle = TextBundle::load(safetensors());
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(bundle->encode_prompt("ab", true).value(), (Ids{0, 3, 4}));
  EXPECT_EQ(bundle->encode_prompt("<s>ab", true).value(), (Ids{0, 3, 4}));
  EXPECT_EQ(bundle->encode_prompt("ab", false).value(), (Ids{3, 4}));
  EXPECT_EQ(bundle->encode_chat("<s>ab").value(), (Ids{0, 3, 4}));
  EXPECT_EQ(bundle->encode_chat("ab").value(), (Ids{0, 3, 4}));
}

TEST(TextBundle, ReadsAGgufVocabulary) {
  TextCheckpoint checkpoint = gguf({{"<|bos|>", 3}, {"<|im_end|>", 3}, {"</s>", 1}, {"<eos>", 4}});
  checkpoint.key("tokenizer.ggml.bos_token_id", int64_t{3});
  checkpoint.key("tokenizer.ggml.eos_token_id", int64_t{2});
  checkpoint.key("tokenizer.ggml.eot_token_id", int64_t{700});  // out of range: ignored
  checkpoint.key("tokenizer.ggml.add_bos_token", true);
  checkpoint.key("tokenizer.chat_template", std::string_view("{{ bos_token }}{{ eos_token }}"));
  checkpoint.key("general.name", std::string_view("Tiny Model"));
  checkpoint.key("general.sampling.temp", 0.3);
  const auto bundle = TextBundle::load(checkpoint);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  // The control token counts by its text; the ordinary word </s> and the user-defined <eos> do not.
  EXPECT_EQ(bundle->end_ids, (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(bundle->bos_token, "<|bos|>");
  EXPECT_EQ(bundle->display_name, "Tiny Model");
  EXPECT_EQ(bundle->sampling.temperature, 0.3f);
  EXPECT_EQ(bundle->chat_template->render(R"({"messages":[]})").value(), "<|bos|>c");
  EXPECT_EQ(bundle->encode_prompt("ab", true).value(), (std::vector<int32_t>{3, 0, 1}));
}

TEST(TextBundle, AMessageEndIsNoTurnEndWhereTurnsHaveTheirOwn) {
  const auto turns = TextBundle::load(gguf({{"<|end|>", 3}, {"<|return|>", 3}, {"<|call|>", 3}}));
  ASSERT_TRUE(turns.ok()) << turns.error().message;
  EXPECT_EQ(turns->end_ids, (std::vector<int32_t>{4, 5}));
  const auto plain = TextBundle::load(gguf({{"<|end|>", 3}}));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->end_ids, (std::vector<int32_t>{3}));
}

TEST(TextBundle, AGgufFileWithoutVocabularyOrWithATemplateNameOnly) {
  TextCheckpoint checkpoint(CheckpointKind::kGguf);
  const auto none = TextBundle::load(checkpoint);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "the file has no tokenizer (tokenizer.ggml.tokens)");
  TextCheckpoint named = gguf({{"<s>", 3}});
  named.key("tokenizer.chat_template", std::string_view("mistral-v7-tekken"));
  const auto bundle = TextBundle::load(named);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  EXPECT_EQ(bundle->chat_template, nullptr);
}

}  // namespace bundle_test
}  // namespace headrace
