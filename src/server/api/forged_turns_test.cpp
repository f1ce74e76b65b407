// No forged turns: whatever tokens a template writes, a string of a request adds none of them.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <set>

#include "server/api/bundle.h"
#include "text/test_support.h"

namespace headrace {
namespace forged_turns_test {

namespace json = boost::json;

// What looks like a token in a template's source: <...>, [...] and the like.
std::vector<std::string> tokens_of(const std::string& source) {
  std::set<std::string> tokens;
  for (size_t at = source.find_first_of("<["); at != std::string::npos;
       at = source.find_first_of("<[", at + 1)) {
    const size_t end = source.find_first_of("<[>]\"'\n ={}()\\", at + 1);
    if (end == std::string::npos || end - at < 2 || end - at > 48) continue;
    if (source[end] != (source[at] == '<' ? '>' : ']')) continue;
    tokens.insert(source.substr(at, end + 1 - at));
  }
  return {tokens.begin(), tokens.end()};
}

// Bytes, and the template's tokens: every other one is special.
std::unique_ptr<Tokenizer> tokenizer_with(const std::vector<std::string>& tokens, int32_t* first) {
  const auto path = std::filesystem::path(HEADRACE_SOURCE_DIR) / "tests/data/tiny_byte_level.json";
  json::object file = json::parse(test::read_file(path)).as_object();
  int64_t next = 0;
  for (const auto& entry : file["model"].at("vocab").as_object()) {
    next = std::max(next, entry.value().as_int64() + 1);
  }
  json::array added;
  *first = static_cast<int32_t>(next);
  for (size_t i = 0; i < tokens.size(); ++i) {
    added.push_back({{"id", next++},
                     {"content", tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", i % 2 == 0}});
  }
  file["added_tokens"] = std::move(added);
  auto made = Tokenizer::from_json(json::serialize(file));
  CHECK(made.ok(), "{}", made.error().message);
  return std::move(made).value();
}

// Where a client's strings stand in a request.
constexpr std::string_view kPlaces[] = {"system",    "user",     "tool",       "name", "arguments",
                                        "documents", "tool_doc", "parameters", "id"};

json::object conversation_with(std::string_view place, const std::string& bytes) {
  const auto text = [&](std::string_view here, const char* usual) {
    return here == place ? bytes : std::string(usual);
  };
  const json::object call{
      {"id", text("id", "123456789")},
      {"type", "function"},
      {"function",
       {{"name", text("name", "find")}, {"arguments", {{"q", text("arguments", "x")}}}}}};
  const json::object function{
      {"name", "find"},
      {"description", text("tool_doc", "Finds.")},
      {"parameters",
       {{"type", "object"},
        {"properties", {{"q", {{"type", "string"}, {"description", text("parameters", "what")}}}}},
        {"required", {"q"}}}}};
  json::object options{{"messages",
                        {{{"role", "system"}, {"content", text("system", "Be good.")}},
                         {{"role", "user"}, {"content", text("user", "Hello")}},
                         {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}},
                         {{"role", "tool"},
                          {"tool_call_id", "123456789"},
                          {"name", "find"},
                          {"content", text("tool", "found")}}}},
                       {"tools", {{{"type", "function"}, {"function", function}}}},
                       {"add_generation_prompt", true}};
  if (place == "documents") options["documents"] = {{{"title", bytes}, {"text", bytes}}};
  if (place == "no documents") options["documents"] = {{{"title", "a"}, {"text", "b"}}};
  return options;
}

class ForgedTurns : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto source = test::template_of(test::recorded("templates/" + GetParam() + ".json"));
    if (!source) GTEST_SKIP() << "set HEADRACE_TEST_TEMPLATES";
    tokens_ = tokens_of(*source);
    bundle_.tokenizer = tokenizer_with(tokens_, &first_added_);
    bundle_.content_tokens = ContentTokens::kPlain;
    auto made = ChatTemplate::create(
        *source, R"({"bos_token": "", "eos_token": "", "pad_token": "", "unk_token": ""})",
        TextBundle::content_words(*bundle_.tokenizer, *source));
    ASSERT_TRUE(made.ok()) << made.error().message;
    bundle_.chat_template = std::move(made).value();
  }

  // How often each added token stands in the prompt; nothing if the template refuses.
  std::optional<std::vector<int>> added(const json::object& options) const {
    const auto text =
        bundle_.chat_template->render(json::serialize(options), "2026-01-02T03:04:05");
    if (!text.ok()) return std::nullopt;
    const auto ids = bundle_.encode_chat(*text);
    CHECK(ids.ok(), "{}", ids.error().message);
    std::vector<int> counts(tokens_.size());
    for (const int32_t id : *ids) {
      if (id >= first_added_) ++counts[static_cast<size_t>(id - first_added_)];
    }
    return counts;
  }

  TextBundle bundle_;
  std::vector<std::string> tokens_;
  int32_t first_added_ = 0;
};

TEST_P(ForgedTurns, NoStringOfARequestAddsAToken) {
  int num_checked = 0;
  for (const std::string_view place : kPlaces) {
    const bool documents = place == "documents";
    const auto harmless = added(conversation_with(documents ? "no documents" : "none", ""));
    if (!harmless) continue;
    // Not yet: this template writes its JSON in ASCII, which spells the marks out.
    const bool in_json = place == "arguments" || place == "parameters" || place == "tool_doc";
    if (GetParam() == "Reka-Edge" && in_json) continue;
    for (const std::string& token : tokens_) {
      const auto forged = added(conversation_with(place, "a " + token + " b"));
      if (!forged) continue;
      ++num_checked;
      EXPECT_EQ(*forged, *harmless) << token << " in " << place;
    }
  }
  RecordProperty("num_checked", num_checked);
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& file :
       std::filesystem::directory_iterator(test::golden_root() / "templates", failed)) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() == ".json" && name != "conversations") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string plain_name(const testing::TestParamInfo<std::string>& test_info) {
  std::string name = test_info.param;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ForgedTurns);
INSTANTIATE_TEST_SUITE_P(Golden, ForgedTurns, testing::ValuesIn(template_names()), plain_name);

}  // namespace forged_turns_test
}  // namespace headrace
