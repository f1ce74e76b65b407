// Every row of the tables of formats, by what the row itself says of how calls and reasoning are
// written: whole, with nothing between the marks, broken off at every byte, and inside a text.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cctype>

#include "server/api/parts/call_ids.h"
#include "server/api/parts/part_parser.h"

namespace headrace {
namespace format_rows_test {

constexpr std::string_view kTown = R"({"type":"object","properties":{"town":{"type":"string"},)"
                                   R"("days":{"type":"integer"},"deep":{"type":"boolean"}}})";

// A call to be written in a format, and the JSON of its arguments.
struct RowCall {
  std::string_view name, town;
  int days;  // below 0: without arguments

  bool is_empty() const { return days < 0; }
  std::string json() const {
    return is_empty() ? "{}" : fmt::format(R"({{"town":"{}","days":{},"deep":true}})", town, days);
  }
};

constexpr RowCall kFirstCall{"look_up", "Paris", 3}, kSecondCall{"stop", "", -1};

std::string param_text(const ToolFormat& format, std::string_view key, std::string_view value,
                       bool is_text) {
  const std::string_view pad = format.pads_values ? "\n" : "";
  const size_t key_end = format.says_type && !is_text ? 1 : 0;
  return fmt::format("{}{}{}{}{}{}{}{}\n", format.param_open, key, format.key_ends[key_end],
                     format.value_open, pad, value, pad, format.value_close);
}

// The arguments as the format's style has them.
std::string arguments_text(const ToolFormat& format, const RowCall& call) {
  switch (format.style) {
    case CallStyle::kParams:
      if (call.is_empty()) return "";
      return param_text(format, "town", call.town, true) +
             param_text(format, "days", std::to_string(call.days), false) +
             param_text(format, "deep", "true", false);
    case CallStyle::kPython:
      if (call.is_empty()) return "";
      return fmt::format("town='{}', days={}, deep=True", call.town, call.days);
    case CallStyle::kBraces:
      if (call.is_empty()) return "{}";
      return fmt::format("{{town:{}{}{},days:{},deep:true}}", format.quote, call.town, format.quote,
                         call.days);
    default:
      return call.json();
  }
}

std::string call_text(const ToolFormat& format, const RowCall& call, int call_idx) {
  const CallWriting& writing = format.writing;
  const std::string count = format.counts_calls ? fmt::format(":{}", call_idx) : "";
  return fmt::format("{}{}{}{}{}{}", writing.head, call.name, count, writing.middle,
                     arguments_text(format, call), writing.tail);
}

std::string calls_text(const ToolFormat& format, std::initializer_list<RowCall> calls) {
  std::string text(format.writing.begin);
  int call_idx = 0;
  for (const RowCall& call : calls) {
    if (call_idx > 0) text += format.writing.between;
    text += call_text(format, call, call_idx++);
  }
  return text + std::string(format.writing.end);
}

// Formats whose calls begin with no mark of their own.
bool is_without_marks(const ToolFormat& format) {
  return format.bare != 0 && format.writing.begin.find(format.opens[0]) == std::string_view::npos &&
         format.writing.head.find(format.opens[0]) == std::string_view::npos;
}

PartOptions options_of_row(const ToolFormat* format, const ReasoningFormat* reasoning) {
  PartOptions made;
  made.format = format;
  made.reasoning = reasoning;
  made.tools = std::make_shared<const CallableTools>(
      std::vector<CallableTools::Declared>{{"look_up", std::string(kTown)}, {"stop", ""}});
  made.make_call_id = [n = std::make_shared<int>(0)] { return fmt::format("id{}", (*n)++); };
  return made;
}

// Where calls have channels, the channels' marks are the reasoning's.
PartOptions options_of_row(const ToolFormat& format) {
  for (const ReasoningFormat& reasoning : reasoning_formats()) {
    if (reasoning.name == format.name && reasoning.anywhere) {
      return options_of_row(&format, &reasoning);
    }
  }
  return options_of_row(&format, nullptr);
}

// An answer, with the pieces of each kind joined.
struct RowAnswer {
  std::string text, reasoning;
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls;

  void add(const std::vector<OutputPart>& parts) {
    for (const OutputPart& part : parts) {
      if (part.kind == OutputPart::Kind::kText) text += part.text;
      if (part.kind == OutputPart::Kind::kReasoning) reasoning += part.text;
      if (part.kind != OutputPart::Kind::kToolCall) continue;
      if (!part.call_name.empty()) calls.push_back({part.call_id, part.call_name, ""});
      ASSERT_EQ(static_cast<size_t>(part.call_idx) + 1, calls.size());
      calls.back().arguments += part.text;
    }
  }
};

RowAnswer answer_of(PartOptions made, std::string_view text) {
  const auto parser = make_part_parser(std::move(made));
  RowAnswer answer;
  answer.add(parser->push(text));
  answer.add(parser->finish(false));
  return answer;
}

void expect_call(const RowAnswer& answer, size_t call_idx, const RowCall& call) {
  ASSERT_LT(call_idx, answer.calls.size());
  EXPECT_EQ(answer.calls[call_idx].id, fmt::format("id{}", call_idx));
  EXPECT_EQ(answer.calls[call_idx].name, call.name);
  boost::system::error_code failed;
  const auto arguments = boost::json::parse(answer.calls[call_idx].arguments, failed);
  ASSERT_FALSE(failed) << answer.calls[call_idx].arguments;
  EXPECT_EQ(arguments, boost::json::parse(call.json())) << answer.calls[call_idx].arguments;
}

std::string name_of_row(const testing::TestParamInfo<size_t>& info) {
  return std::string(tool_formats()[info.param].name);
}

class ToolFormatRow : public testing::TestWithParam<size_t> {
 protected:
  const ToolFormat& format_ = tool_formats()[GetParam()];
};

TEST_P(ToolFormatRow, ReadsACallAsItsWritingSays) {
  const std::string text = calls_text(format_, {kFirstCall});
  const RowAnswer answer = answer_of(options_of_row(format_), text);
  ASSERT_EQ(answer.calls.size(), 1u) << text;
  expect_call(answer, 0, kFirstCall);
  EXPECT_EQ(answer.text, "") << text;
}

TEST_P(ToolFormatRow, ReadsACallWithoutArguments) {
  const std::string text = calls_text(format_, {kSecondCall});
  const RowAnswer answer = answer_of(options_of_row(format_), text);
  ASSERT_EQ(answer.calls.size(), 1u) << text;
  expect_call(answer, 0, kSecondCall);
  EXPECT_EQ(answer.text, "") << text;
}

TEST_P(ToolFormatRow, ReadsCallsInARow) {
  const std::string text = calls_text(format_, {kFirstCall, kSecondCall, kFirstCall});
  const RowAnswer answer = answer_of(options_of_row(format_), text);
  ASSERT_EQ(answer.calls.size(), 3u) << text << "\n" << answer.text;
  expect_call(answer, 0, kFirstCall);
  expect_call(answer, 1, kSecondCall);
  expect_call(answer, 2, kFirstCall);
  EXPECT_EQ(answer.text, "") << text;
}

TEST_P(ToolFormatRow, CallsAfterTheFirstAreLeftOutWhereOnlyOneIsWanted) {
  PartOptions made = options_of_row(format_);
  made.parallel = false;
  const RowAnswer answer =
      answer_of(std::move(made), calls_text(format_, {kSecondCall, kFirstCall}));
  ASSERT_EQ(answer.calls.size(), 1u);
  expect_call(answer, 0, kSecondCall);
  EXPECT_EQ(answer.text, "");
}

// What stands before and behind a call is text, without the blanks next to the marks. Without marks
// a call is the whole answer.
TEST_P(ToolFormatRow, ReadsACallInsideAText) {
  const std::string text = "Before it.\n\n" + calls_text(format_, {kFirstCall}) + "\n\nBehind it.";
  const RowAnswer answer = answer_of(options_of_row(format_), text);
  if (is_without_marks(format_)) {
    EXPECT_TRUE(answer.calls.empty());
    EXPECT_EQ(answer.text, text);
    return;
  }
  ASSERT_EQ(answer.calls.size(), 1u) << text;
  expect_call(answer, 0, kFirstCall);
  // Where anything may stand before the next call, nothing tells a text behind the last.
  EXPECT_EQ(answer.text, format_.skips_to_call ? "Before it." : "Before it.Behind it.") << text;
}

// Marks with nothing between them are what they look like.
TEST_P(ToolFormatRow, MarksWithoutACallAreText) {
  for (const std::string_view open : given(format_.opens)) {
    std::string text = fmt::format("A mark {}", open);
    if (!given(format_.closes).empty()) text += format_.closes[0];
    const RowAnswer answer = answer_of(options_of_row(&format_, nullptr), text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.text, text);
  }
}

// Wherever an answer ends: a call has its whole name or is none, and what is none is text.
TEST_P(ToolFormatRow, AnswersMayBreakOffAnywhere) {
  const std::string lead = is_without_marks(format_) ? "" : "So: ";
  const std::string text = lead + calls_text(format_, {kFirstCall, kSecondCall});
  const std::string_view names[] = {kFirstCall.name, kSecondCall.name};
  size_t most = 0;
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::string part = text.substr(0, size);
    const RowAnswer answer = answer_of(options_of_row(&format_, nullptr), part);
    ASSERT_LE(answer.calls.size(), 2u) << part;
    ASSERT_GE(answer.calls.size(), most) << "a call went away: " << part;
    most = answer.calls.size();
    if (most == 0) {
      ASSERT_EQ(answer.text, part);
    }
    for (size_t i = 0; i < most; ++i) ASSERT_EQ(answer.calls[i].name, names[i]) << part;
    if (most > 0) {
      ASSERT_EQ(answer.calls[0].arguments.front(), '{') << part;
    }
    if (most == 2) expect_call(answer, 0, kFirstCall);
  }
  EXPECT_EQ(most, 2u);
}

// Only the end of a value ends it: a text may hold the marks of the calls around it.
TEST_P(ToolFormatRow, MarksInsideAnArgumentAreOfTheArgument) {
  for (const Marks& marks : {format_.closes, format_.opens}) {
    for (const std::string_view mark : given(marks)) {
      if (mark.find_first_of("\"\n'") != std::string_view::npos) continue;
      const RowCall call{"look_up", mark, 1};
      const std::string text = calls_text(format_, {call});
      const RowAnswer answer = answer_of(options_of_row(format_), text);
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      expect_call(answer, 0, call);
      EXPECT_EQ(answer.text, "") << text;
    }
  }
}

TEST_P(ToolFormatRow, AllItsMarksAreAmongTheTextsOfTheFormat) {
  const std::string texts = mark_texts({nullptr, &format_});
  for (const Marks& marks : {format_.opens, format_.closes, format_.name_ends, format_.key_ends}) {
    for (const std::string_view mark : given(marks)) {
      EXPECT_NE(texts.find(mark), std::string::npos) << mark;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ToolFormatRow, testing::Range(size_t{0}, tool_formats().size()),
                         name_of_row);

std::string name_of_reasoning_row(const testing::TestParamInfo<size_t>& info) {
  return std::string(reasoning_formats()[info.param].name);
}

class ReasoningFormatRow : public testing::TestWithParam<size_t> {
 protected:
  PartOptions options() const { return options_of_row(nullptr, &format_); }
  std::string wrapped(std::string_view thought) const {
    return fmt::format("{}{}{}", format_.open, thought, format_.close);
  }
  const ReasoningFormat& format_ = reasoning_formats()[GetParam()];
};

TEST_P(ReasoningFormatRow, TakesReasoningApart) {
  const RowAnswer answer = answer_of(options(), wrapped("\n One, two.\n\n") + "\n\nThree.");
  EXPECT_EQ(answer.reasoning, "One, two.");
  EXPECT_EQ(answer.text, "Three.");
}

TEST_P(ReasoningFormatRow, ReasoningOfBlanksIsNone) {
  for (const std::string_view thought : {"", "\n", "\n\n \t\r\n"}) {
    const RowAnswer answer = answer_of(options(), wrapped(thought) + "Three.");
    EXPECT_EQ(answer.reasoning, "");
    EXPECT_EQ(answer.text, "Three.");
  }
}

TEST_P(ReasoningFormatRow, AnAnswerMayEndInsideIt) {
  const std::string whole = wrapped("One, two.");
  EXPECT_EQ(answer_of(options(), std::string(format_.open)).reasoning, "");
  EXPECT_EQ(answer_of(options(), std::string(format_.open)).text, "");
  for (size_t size = format_.open.size(); size <= whole.size(); ++size) {
    const RowAnswer answer = answer_of(options(), whole.substr(0, size));
    EXPECT_EQ(answer.text, "") << size;
    const std::string read = whole.substr(format_.open.size(), size - format_.open.size());
    EXPECT_EQ(answer.reasoning, size == whole.size() ? "One, two." : read) << size;
  }
}

TEST_P(ReasoningFormatRow, AnOpeningMarkThatBreaksOffIsText) {
  for (size_t size = 1; size < format_.open.size(); ++size) {
    const std::string piece(format_.open.substr(0, size));
    const RowAnswer answer = answer_of(options(), piece);
    EXPECT_EQ(answer.reasoning, "");
    EXPECT_EQ(answer.text, piece);
  }
}

TEST_P(ReasoningFormatRow, BehindATextOnlyChannelsReason) {
  const std::string text = "Look: " + wrapped("One.") + "Two.";
  const RowAnswer answer = answer_of(options(), text);
  EXPECT_EQ(answer.reasoning, format_.anywhere ? "One." : "");
  if (format_.anywhere) {
    EXPECT_EQ(answer.text, "Look: Two.");
  } else {
    EXPECT_EQ(answer.text, text);
  }
}

TEST_P(ReasoningFormatRow, ThePromptMayHaveBegunIt) {
  PartOptions made = options();
  made.starts_reasoning = true;
  const auto parser = make_part_parser(made);
  EXPECT_TRUE(parser->is_reasoning());
  RowAnswer answer;
  answer.add(parser->push(fmt::format("One.\n{}", format_.close)));
  EXPECT_FALSE(parser->is_reasoning());
  answer.add(parser->push("\nTwo."));
  answer.add(parser->finish(false));
  EXPECT_EQ(answer.reasoning, "One.");
  EXPECT_EQ(answer.text, "Two.");
}

TEST_P(ReasoningFormatRow, StaysInTheTextWithItsMarks) {
  PartOptions made = options();
  made.reasoning_apart = false;
  const std::string text = wrapped("\nOne.\n") + "\n\nTwo.";
  const RowAnswer answer = answer_of(std::move(made), text);
  EXPECT_EQ(answer.reasoning, "");
  EXPECT_EQ(answer.text, text);
}

TEST_P(ReasoningFormatRow, SilentMarksSayNothing) {
  for (const std::string_view mark : format_.silent) {
    if (mark.empty()) continue;
    const std::string text = fmt::format("{}{}Two.{}", wrapped("One."), mark, mark);
    const RowAnswer answer = answer_of(options(), text);
    EXPECT_EQ(answer.reasoning, "One.") << mark;
    EXPECT_EQ(answer.text, "Two.") << mark;
  }
}

TEST_P(ReasoningFormatRow, IsFoundByItsNameAndItsSigns) {
  EXPECT_EQ(reasoning_format_named(format_.name).value(), &format_);
  std::string source;
  for (const std::string_view sign : given(format_.signs)) source += sign;
  ASSERT_FALSE(source.empty());
  EXPECT_EQ(find_reasoning_format(source), &format_);
  const std::string texts = mark_texts({&format_, nullptr});
  EXPECT_NE(texts.find(format_.open), std::string::npos);
  EXPECT_NE(texts.find(format_.close), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Each, ReasoningFormatRow,
                         testing::Range(size_t{0}, reasoning_formats().size()),
                         name_of_reasoning_row);

TEST(FormatRows, NamesAreTheirOwn) {
  for (const ToolFormat& format : tool_formats()) {
    EXPECT_EQ(tool_format_named(format.name).value(), &format) << format.name;
  }
  const auto wrong = reasoning_format_named("deep");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().param, "--reasoning-format");
  EXPECT_TRUE(wrong.error().message.starts_with(
      "--reasoning-format is 'deep', but it must be auto, none or one of harmony, "))
      << wrong.error().message;
  EXPECT_EQ(tool_format_named("").error().param, "--tool-format");
}

// A row whose signs are among those of a row before it would never be found.
TEST(FormatRows, EveryRowCanBeFoundByItsSigns) {
  for (const ToolFormat& format : tool_formats()) {
    std::string source;
    for (const std::string_view sign : given(format.signs)) source.append(sign).append("\n");
    const ToolFormat* found = find_tool_format(source, "");
    ASSERT_NE(found, nullptr) << format.name;
    EXPECT_EQ(found->name, format.name);
  }
}

TEST(FormatRows, TheTemplateCountsMoreThanTheVocabulary) {
  EXPECT_EQ(find_tool_format("<tool_call>", "[TOOL_CALLS]")->name, "hermes");
  EXPECT_EQ(find_tool_format("", "[TOOL_CALLS]\n[ARGS]")->name, "mistral");
  EXPECT_EQ(find_reasoning_format("<think> alone opens nothing"), nullptr);
}

TEST(FormatRows, RandomIdsOfCallsHaveOneForm) {
  const std::string id = random_call_id();
  EXPECT_EQ(id.size(), 29u);
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_TRUE(std::all_of(id.begin() + 5, id.end(), [](char c) { return std::isalnum(c) != 0; }));
  EXPECT_NE(id, random_call_id());
}

}  // namespace format_rows_test
}  // namespace headrace
