// Token ids and rendered prompts against recorded ones: what passes, what differs, what is no
// record.
#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"
#include "verify/testing/byte_tokenizer.h"
#include "verify/verify.h"

namespace headrace {
namespace text_rows_test {

using testing::ByteTokenizer;
using testing::TempFolder;

TEST(TokenizerRows, EveryCaseIsARowThatSaysWhatDiffers) {
  struct Case {
    std::string recorded;
    bool passed;
    std::string details;
  };
  const Case cases[] = {
      {R"({"text": "ab", "ids": [97, 98]})", true, ""},
      {R"({"text": "ab", "ids": [97, 98], "ids_with_special": [256, 97, 98], "decoded": "ab"})",
       true, ""},
      {R"({"text": "", "ids": []})", true, ""},
      {R"({"text": "ab", "ids": [97]})", false, "ids differ"},
      {R"({"text": "ab", "ids": [97, 98], "ids_with_special": [97, 98]})", false,
       "ids with special tokens differ"},
      {R"({"text": "ab", "ids": [97, 98], "decoded": "abc"})", false, "decoded differ"},
      {R"({"text": "ab!", "ids": [97]})", false, "no '!' here"},
  };
  std::string list;
  for (const Case& c : cases) list += (list.empty() ? "" : ", ") + c.recorded;
  const auto rows = tokenizer_rows(ByteTokenizer(), {"expect.json", "{\"cases\": [" + list + "]}"});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), std::size(cases));
  for (size_t i = 0; i < rows->size(); ++i) {
    EXPECT_EQ((*rows)[i].passed, cases[i].passed) << cases[i].recorded;
    EXPECT_EQ((*rows)[i].details, cases[i].details) << cases[i].recorded;
  }
  EXPECT_EQ((*rows)[0].item, "\"ab\"");
}

TEST(TokenizerRows, LongTextsAreShownCut) {
  const std::string text(200, 'x');
  const auto rows = tokenizer_rows(
      ByteTokenizer(), {"e.json", R"({"cases": [{"text": ")" + text + R"(", "ids": []}]})"});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->front().item, "\"" + std::string(59, 'x') + "...");
}

TEST(TokenizerRows, WhatIsNoRecordIsNamed) {
  struct Case {
    std::string text, message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", "'e.json' is not valid JSON"},
           {"{\"cases\": [", "'e.json' is not valid JSON"},
           {"[]", "'e.json' is not a file of recorded token ids"},
           {"{}", "'e.json' is not a file of recorded token ids"},
           {R"({"cases": 5})", "'e.json' is not a file of recorded token ids"},
           {R"({"cases": [1]})", "'e.json' is not a file of recorded token ids"},
           {R"({"cases": [{"ids": [1]}]})", "'e.json' is not a file of recorded token ids"},
           {R"({"cases": [{"text": "a", "ids": "b"}]})",
            "'e.json' is not a file of recorded token ids"},
       }) {
    const auto rows = tokenizer_rows(ByteTokenizer(), {"e.json", c.text});
    ASSERT_FALSE(rows.ok()) << c.text;
    EXPECT_EQ(rows.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(rows.error().message.starts_with(c.message)) << rows.error().message;
  }
}

class TemplateRows : public ::testing::Test {
 protected:
  // Rows of a record of `rendered` prompts of one conversation, {"role": "user", "content": "hi"}.
  Result<VerifyRows> rows_of(const std::string& source, const std::string& rendered) {
    folder_.write("conversations.json", R"({
        "plain": {"messages": [{"role": "user", "content": "hi"}], "options": {}},
        "more": {"messages": [{"role": "user", "content": "hi"}],
                 "options": {"add_generation_prompt": true}}})");
    const std::string text = R"({"template": ")" + source +
                             R"(", "special_tokens": {"bos_token": "<s>"},
                             "now": "2026-01-02T03:04:05", "rendered": )" +
                             rendered + "}";
    return template_rows({folder_.file("model.json"), text});
  }

  TempFolder folder_;
};

TEST_F(TemplateRows, EveryConversationIsARow) {
  const auto rows = rows_of(
      "{{ bos_token }}{{ messages[0].content }}"
      "{% if add_generation_prompt %}>{% endif %}",
      R"({"plain": {"text": "<s>hi"}, "more": {"text": "<s>hi?"},
                                "unknown": {"text": "left out"}})");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].item, "model / plain");
  EXPECT_TRUE((*rows)[0].passed) << (*rows)[0].details;
  EXPECT_EQ((*rows)[1].item, "model / more");
  EXPECT_FALSE((*rows)[1].passed);
  EXPECT_EQ((*rows)[1].details, "text differs");
}

TEST_F(TemplateRows, WhatTheReferenceRefusesMustBeRefused) {
  const auto refused = rows_of("{{ raise_exception('roles must alternate') }}", R"({"plain": {}})");
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(refused->front().passed);
  EXPECT_NE(refused->front().details.find("roles must alternate"), std::string::npos);
  const auto rendered = rows_of("{{ bos_token }}", R"({"plain": {}})");
  EXPECT_FALSE(rendered->front().passed);
  EXPECT_EQ(rendered->front().details, "the reference raises, this rendered");
}

TEST_F(TemplateRows, ATemplateThatDoesNotParseFailsEveryRow) {
  const auto rows = rows_of("{% if %}", R"({"plain": {"text": "a"}, "more": {}})");
  ASSERT_TRUE(rows.ok());
  EXPECT_FALSE((*rows)[0].passed);
  EXPECT_FALSE((*rows)[0].details.empty());
  EXPECT_TRUE((*rows)[1].passed) << "the reference refuses it too";
}

TEST_F(TemplateRows, WhatIsNoRecordIsNamed) {
  EXPECT_EQ(template_rows({folder_.file("m.json"), "{}"}).error().code, ErrorCode::kNotFound)
      << "conversations.json is missing";
  folder_.write("conversations.json", "[]");
  const auto broken = template_rows({folder_.file("m.json"), "nonsense"});
  EXPECT_NE(broken.error().message.find("m.json' is not valid JSON"), std::string::npos);
  const auto other = template_rows({folder_.file("m.json"), "{}"});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("m.json' is not a file of recorded prompts"),
            std::string::npos)
      << other.error().message;
}

}  // namespace text_rows_test
}  // namespace headrace
