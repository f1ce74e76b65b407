// 50 published templates on 27 conversations, against what transformers renders.

#include <gtest/gtest.h>

#include "text/chat_template.h"
#include "text/test_support.h"

namespace headrace {
namespace template_golden_test {

namespace json = boost::json;
using test::text_of;

// Refusals the template itself words ("TemplateError: ...") reach the user as they are.
constexpr std::string_view kRaised = "TemplateError: ";

struct Counts {
  int rendered = 0;
  int refused = 0;
};

// The conversation as a request gives it, options and messages in one object.
std::string options_of(const json::object& conversation) {
  json::object options = conversation.at("options").as_object();
  options["messages"] = conversation.at("messages");
  return json::serialize(options);
}

void check_one(const ChatTemplate& chat_template, std::string_view now,
               const json::object& expected, const json::object& conversation, Counts* counts) {
  const auto text = chat_template.render(options_of(conversation), now);
  if (const json::value* reference = expected.if_contains("text")) {
    ++counts->rendered;
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, text_of(*reference));
    return;
  }
  ++counts->refused;
  ASSERT_FALSE(text.ok()) << "the reference refuses: " << expected.at("error") << "\nwe render\n"
                          << *text;
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  const std::string reason = text_of(expected.at("error"));
  if (reason.starts_with(kRaised)) {
    EXPECT_EQ(text.error().message, reason.substr(kRaised.size()));
  }
}

TEST(TemplateGolden, EqualsTransformersByteForByte) {
  const json::object conversations = test::recorded("templates/conversations.json");
  Counts counts;
  int num_templates = 0;
  const auto folder = test::golden_root() / "templates";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().stem() == "conversations") continue;
    ++num_templates;
    const json::object file = test::recorded("templates/" + entry.path().filename().string());
    const auto source = test::template_of(file);
    if (!source) GTEST_SKIP() << "set HEADRACE_TEST_TEMPLATES: tools/fetch_templates.py";
    const auto chat_template =
        ChatTemplate::create(*source, json::serialize(file.at("special_tokens")));
    ASSERT_TRUE(chat_template.ok()) << entry.path() << ": " << chat_template.error().message;
    for (const auto& [name, expected] : file.at("rendered").as_object()) {
      SCOPED_TRACE(entry.path().stem().string() + " / " + std::string(name));
      check_one(**chat_template, text_of(file.at("now")), expected.as_object(),
                conversations.at(name).as_object(), &counts);
    }
  }
  std::cout << num_templates << " templates, " << counts.rendered << " texts, " << counts.refused
            << " refusals\n";
  EXPECT_GT(num_templates, 0);
  EXPECT_GT(counts.rendered, 0);
  EXPECT_GT(counts.refused, 0);
}

}  // namespace template_golden_test
}  // namespace headrace
