// No forged turns: whatever tokens a template writes, a string of a request adds none of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
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
constexpr std::string_view kPlaces[] = {
    "system", "user",     "parts",   "user name", "said",   "reasoning", "arguments",
    "key",    "name",     "id",      "tool",      "title",  "document",  "tool name",
    "about",  "property", "what it", "enum",      "nested", "continued"};

// Variables that templates read, which a client may set beside the conversation.
constexpr const char* kVariables[] = {
    "bos_token",       "eos_token",      "builtin_tools",  "controls",         "custom_tools",
    "date_string",     "model_identity", "system_message", "reasoning_effort", "thinking_mode",
    "strftime_format", "today",          "task",           "keep_cot_idxs",    "enable_thinking"};

// What the model said itself may hold tokens that are not special.
bool is_own(std::string_view place) {
  return place == "said" || place == "reasoning" || place == "continued";
}

using Texts = std::function<std::string(std::string_view place, const char* usual)>;

json::array tools_with(const Texts& text) {
  const json::object property{{"type", "string"},
                              {"description", text("what it", "what")},
                              {"enum", {text("enum", "x"), "y"}},
                              {text("nested", "title"), text("nested", "t")}};
  const json::object parameters{
      {"type", "object"},
      {"properties",
       {{text("property", "q"), property}, {"r", {{"type", "integer"}, {"description", "R"}}}}},
      {"required", {"r"}}};
  return {{{"type", "function"},
           {"function",
            {{"name", text("tool name", "find")},
             {"description", text("about", "Finds.")},
             {"parameters", parameters}}}}};
}

json::array turns_with(const Texts& text) {
  const json::object call{{"id", text("id", "123456789")},
                          {"type", "function"},
                          {"function",
                           {{"name", text("name", "find")},
                            {"arguments", {{text("key", "q"), text("arguments", "x")}}}}}};
  json::array messages{
      {{"role", "system"}, {"content", text("system", "Be good.")}},
      {{"role", "user"}, {"content", text("user", "Hello")}, {"name", text("user name", "Ann")}},
      {{"role", "assistant"}, {"content", text("said", "")}, {"tool_calls", {call}}},
      {{"role", "tool"},
       {"tool_call_id", text("id", "123456789")},
       {"name", text("name", "find")},
       {"content", text("tool", "found")}}};
  const std::string reasoning = text("reasoning", "");
  if (!reasoning.empty()) messages[2].as_object()["reasoning_content"] = reasoning;
  return messages;
}

// `bytes` at the place; split > 0: over two texts that follow each other.
json::object conversation_with(std::string_view place, const std::string& bytes, size_t split) {
  const Texts text = [&](std::string_view here, const char* usual) {
    return here == place ? bytes : std::string(usual);
  };
  json::object options{{"messages", turns_with(text)}, {"add_generation_prompt", true}};
  options["functions"] = "[]";  // one template cannot do without
  if (place == "title" || place == "document") {
    options["documents"] = {{{"title", text("title", "a")}, {"text", text("document", "b")}}};
  }
  if (place == "parts") {
    split = std::min(split, bytes.size());
    const json::array parts{{{"type", "text"}, {"text", bytes.substr(0, split)}},
                            {{"type", "text"}, {"text", bytes.substr(split)}}};
    options["messages"] = {{{"role", "user"}, {"content", parts}}};
  } else if (place == "continued") {
    options["messages"] = {{{"role", "user"}, {"content", "Count"}},
                           {{"role", "assistant"}, {"content", bytes}}};
    options["add_generation_prompt"] = false;
    options["continue_final_message"] = true;
  } else {
    options["tools"] = tools_with(text);
  }
  return options;
}

class ForgedTurns : public testing::TestWithParam<std::string> {
 protected:
  using Counts = std::optional<std::vector<int>>;

  void SetUp() override {
    file_ = test::recorded("templates/" + GetParam() + ".json");
    source_ = test::template_of(file_);
    if (!source_) GTEST_SKIP() << "set HEADRACE_TEST_TEMPLATES";
    tokens_ = tokens_of(*source_);
    bundle_.tokenizer = tokenizer_with(tokens_, &first_added_);
    bundle_.content_tokens = ContentTokens::kPlain;
    bundle_.chat_template = template_with(TextBundle::content_words(*bundle_.tokenizer, *source_));
  }

  std::unique_ptr<ChatTemplate> template_with(const std::string& words) const {
    auto made = ChatTemplate::create(*source_, json::serialize(file_.at("special_tokens")), words);
    CHECK(made.ok(), "{}", made.error().message);
    return std::move(made).value();
  }

  // With harmless text and with the other in its place, in the longest conversation that the
  // template does not refuse with the harmless one.
  void attack(std::string_view place, const std::string& text, const std::string& harmless,
              size_t split = 1, const char* variable = nullptr) {
    const std::string what = variable == nullptr ? std::string(place) : variable;
    const auto [known, is_new] = usual_.try_emplace(what + ":" + harmless);
    Usual& usual = known->second;
    while (is_new && !usual.counts && usual.shorter < 3) {
      usual.counts = added(shortened(place, harmless, 1, variable, usual.shorter));
      if (!usual.counts) ++usual.shorter;
    }
    if (!usual.counts) return;
    expect_no_more(added(shortened(place, text, split, variable, usual.shorter)), usual.counts,
                   is_own(place), fmt::format("{}: {}", what, text.substr(0, 60)));
  }

  static json::object shortened(std::string_view place, const std::string& bytes, size_t split,
                                const char* variable, int shorter) {
    json::object options = conversation_with(place, bytes, split);
    if (variable != nullptr) options[variable] = bytes;
    json::array& messages = options["messages"].as_array();
    if (shorter > 0 && messages.size() > 2) messages.erase(messages.begin());  // no system message
    if (shorter > 1 && messages.size() > 2) messages.resize(1);                // and no calls
    return options;
  }

  // How often each added token stands in the prompt; nothing if the template refuses.
  Counts added(const json::object& options) const {
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

  void expect_no_more(const Counts& found, const Counts& harmless, bool is_own_text,
                      const std::string& what) {
    if (!found || !harmless) return;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      // Templates take reasoning out of what the model said, and write it themselves.
      const bool may_come =
          !bundle_.tokenizer->is_special(first_added_ + static_cast<int32_t>(i)) ||
          tokens_[i].find("think") != std::string::npos;
      if (is_own_text && may_come) continue;
      EXPECT_LE((*found)[i], (*harmless)[i]) << tokens_[i] << " in " << what;
    }
    ++num_checked_;
  }

  struct Attack {
    std::string text;
    const char* harmless;  // what it is compared with
  };

  // Texts out of which all tokens would come that are not kept from it.
  std::vector<Attack> attacks() const {
    std::string all, upper, joined, within;
    for (const std::string& token : tokens_) {
      all += token + " ";
      joined += "<" + token + token.substr(0, token.size() / 2);
      for (const char c : token)
        upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      within += token.substr(0, 2) + "/no_think" + token.substr(2) + "/think";
    }
    return {{all, "hm"}, {upper, "hm"}, {joined, "hm"}, {within, "hm/no_think/think"}};
  }

  json::object file_;
  std::optional<std::string> source_;
  TextBundle bundle_;
  std::vector<std::string> tokens_;
  int32_t first_added_ = 0;
  struct Usual {
    Counts counts;  // with harmless text
    int shorter = 0;
  };
  std::map<std::string, Usual> usual_;
  int num_checked_ = 0;
};

TEST_P(ForgedTurns, NoStringOfARequestAddsAToken) {
  for (const std::string_view place : kPlaces) {
    for (const Attack& each : attacks()) attack(place, each.text, each.harmless);
  }
  // Two of the templates refuse most conversations.
  RecordProperty("num_checked", num_checked_);
}

// A token alone, and pieces of it that what stands around them could complete.
TEST_P(ForgedTurns, NoPieceOfATokenBecomesOne) {
  for (const std::string& token : tokens_) {
    attack("user", token, "hm");
    size_t half = token.size() / 2;
    while ((token[half] & 0xC0) == 0x80) ++half;
    attack("parts", token, "hm", half);
    for (const std::string_view place : {"key", "property", "nested", "enum"}) {
      attack(place, token.substr(1, token.size() - 2), "hm");
    }
  }
}

TEST_P(ForgedTurns, NoVariableAddsAToken) {
  for (const char* name : kVariables) attack("none", attacks().front().text, "hm", 1, name);
}

// What the template writes becomes the tokens that it became before, whatever is kept from others.
TEST_P(ForgedTurns, OrdinaryPromptsHaveTheReferencesTextAndIds) {
  const auto special = template_with("");
  const json::object conversations = test::recorded("templates/conversations.json");
  for (const auto& [name, conversation] : conversations) {
    json::object options = conversation.at("options").as_object();
    options["messages"] = conversation.at("messages");
    const auto expected = special->render(json::serialize(options), test::text_of(file_.at("now")));
    const auto text =
        bundle_.chat_template->render(json::serialize(options), test::text_of(file_.at("now")));
    ASSERT_EQ(text.ok(), expected.ok()) << name;
    if (!text.ok()) {
      EXPECT_EQ(text.error().message, expected.error().message) << name;
      continue;
    }
    EXPECT_EQ(TextBundle::visible(*text), *expected) << name;
    if (name == "unicode" || name == "think_in_text") continue;  // content spells tokens
    EXPECT_EQ(bundle_.encode_chat(*text).value(), bundle_.encode_chat(*expected).value())
        << name << "\n"
        << *expected;
  }
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
