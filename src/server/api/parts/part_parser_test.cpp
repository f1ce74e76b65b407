// Every format: calls that are written in it are read, however the text is cut.

#include "server/api/parts/part_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <ctime>
#include <random>

namespace headrace {
namespace part_parser_test {

constexpr std::string_view kWeather =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
    R"("tags":{"type":"array"},"deep":{"type":"boolean"},"note":{"type":["string","null"]}}})";

std::vector<CallableTools::Declared> tools() {
  return {{"get_weather", std::string(kWeather)}, {"search", ""}};
}

// The pieces of one kind in a row, and of one call, are one.
struct Whole {
  std::vector<OutputPart> parts;

  void add(OutputPart part) {
    const bool goes_on =
        !parts.empty() && parts.back().kind == part.kind && parts.back().call_idx == part.call_idx;
    if (!goes_on) return parts.push_back(std::move(part));
    parts.back().text += part.text;
  }
};

PartOptions options(std::string_view tool_format, std::string_view reasoning_format = "none") {
  PartOptions made;
  made.format = tool_format_named(tool_format).value();
  made.reasoning = reasoning_format_named(reasoning_format).value();
  made.tools = std::make_shared<const CallableTools>(tools());
  made.make_call_id = [n = std::make_shared<int>(0)] { return fmt::format("id{}", (*n)++); };
  return made;
}

// What came of an answer, one line for each part: "t:text", "r:reasoning", "c0:id0:name:arguments".
class Reader {
 public:
  explicit Reader(PartOptions made) : parser_(make_part_parser(std::move(made))) {}

  void push(std::string_view text) { add(parser_->push(text)); }
  std::string finish(bool is_cut = false) {
    add(parser_->finish(is_cut));
    std::string lines;
    for (const OutputPart& part : whole_.parts) lines += line(part);
    return lines;
  }
  bool is_reasoning() const { return parser_->is_reasoning(); }
  bool is_text() const { return parser_->is_text(); }

 private:
  void add(std::vector<OutputPart> parts) {
    for (OutputPart& part : parts) {
      EXPECT_FALSE(part.text.empty() && part.call_name.empty());
      whole_.add(std::move(part));
    }
  }
  static std::string line(const OutputPart& part) {
    switch (part.kind) {
      case OutputPart::Kind::kReasoning:
        return "r:" + part.text + "\n";
      case OutputPart::Kind::kToolCall:
        return fmt::format("c{}:{}:{}:{}\n", part.call_idx, part.call_id, part.call_name,
                           part.text);
      default:
        return "t:" + part.text + "\n";
    }
  }

  std::unique_ptr<PartParser> parser_;
  Whole whole_;
};

std::string read(const PartOptions& made, std::string_view text) {
  Reader reader(made);
  reader.push(text);
  return reader.finish();
}

PartOptions fresh(std::string_view tool_format, std::string_view reasoning_format) {
  return options(tool_format, reasoning_format);
}

struct Sample {
  std::string_view tool_format, reasoning_format, text, parts;
};

// Texts as the models write them, with what their templates write around them.
const Sample kSamples[] = {
    {"hermes", "think",
     "<think>\nLet me see.\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"Z\xC3\xBCrich\", \"days\": 3}}\n</tool_call>\n<tool_call>\n{"
     "\"name\": \"search\", \"arguments\": {\"q\": \"a</tool_call>b\"}}\n</tool_call>",
     "r:Let me see.\nt:One moment.\nc0:id0:get_weather:{\"city\": \"Z\xC3\xBCrich\", \"days\": 3}\n"
     "c1:id1:search:{\"q\": \"a</tool_call>b\"}\n"},
    {"hermes", "none", "{\"name\": \"get_weather\"} <tool_call> is a mark </tool_call>\n ",
     "t:{\"name\": \"get_weather\"} <tool_call> is a mark </tool_call>\n \n"},
    {"hermes", "none",
     "<tool_call>{\"arguments\": \"{\\\"city\\\": \\\"A\\\\nB\\\"}\", \"name\": \"get_weather\"}",
     "c0:id0:get_weather:{\"city\": \"A\\nB\"}\n"},
    {"hermes", "none", "<tool_call><tool_call>\n{\"name\":\"search\"}</tool_call>",
     "c0:id0:search:{}\n"},
    {"hermes", "think", "so <think> is a tag</think> <tool",
     "t:so <think> is a tag</think> <tool\n"},
    {"qwen3_coder", "none",
     "Ok.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew \"York\"\n\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n<parameter=tags>\n['a', True, None]\n</parameter>\n"
     "<parameter=deep>\nTrue\n</parameter>\n<parameter=note>\nnull\n</parameter>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=search>\n</function>\n</tool_call>\nDone.",
     "t:Ok.\nc0:id0:get_weather:{\"city\": \"New \\\"York\\\"\\n\", \"days\": 3, \"tags\": "
     "[\"a\",true,null], \"deep\": true, \"note\": null}\nc1:id1:search:{}\nt:Done.\n"},
    {"qwen3_coder", "none", "<function=search>\n<parameter=x>\nA\n</parameter>\n</function>",
     "c0:id0:search:{\"x\": \"A\"}\n"},
    {"glm", "think",
     "\n<think>x</think>\nYes\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>a <c>\n"
     "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>"
     "search</tool_call>",
     "r:x\nt:Yes\nc0:id0:get_weather:{\"city\": \"a <c>\\n\", \"days\": 2}\nc1:id1:search:{}\n"},
    {"minimax_m2", "think",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris"
     "</parameter>\n</invoke>\n<invoke name=\"search\">\n</invoke>\n</minimax:tool_call>",
     "c0:id0:get_weather:{\"city\": \"Paris\"}\nc1:id1:search:{}\n"},
    {"seed_oss", "seed",
     "<seed:think>hm</seed:think>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>a\n"
     "</parameter>\n</function>\n</seed:tool_call>",
     "r:hm\nc0:id0:get_weather:{\"city\": \"a\\n\"}\n"},
    {"deepseek_v32", "think",
     "a\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter "
     "name=\"q\" "
     "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">[1]"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "t:a\nc0:id0:search:{\"q\": \"12\", \"n\": [1]}\n"},
    {"minicpm5", "none",
     "<function name=\"search\"><param name=\"q\"><![CDATA[a </param> b]]></param><param "
     "name=\"tags\">['x', 'y']</param></function>",
     "c0:id0:search:{\"q\": \"a </param> b\", \"tags\": [\"x\",\"y\"]}\n"},
    {"deepseek_v3", "think",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"
     "\"city\""
     ": "
     "\"P\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{"
     "}"
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "c0:id0:get_weather:{\"city\": \"P\"}\nc1:id1:search:{}\n"},
    {"deepseek_v31", "think",
     "Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"P\"}"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "t:Hi\nc0:id0:get_weather:{\"city\": \"P\"}\n"},
    {"kimi_k2", "think",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_"
     "begin|>{\"city\": \"}\"}<|tool_call_end|><|tool_call_begin|>functions.search:1<|tool_call_"
     "argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "c0:id0:get_weather:{\"city\": \"}\"}\nc1:id1:search:{}\n"},
    {"mistral", "mistral",
     "[THINK]a[/THINK]b[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{\"city\": \"P\"}[TOOL_CALLS]"
     "search[ARGS]{\"q\": [1, {\"b\": 2}]}",
     "r:a\nt:b\nc0:id0:get_weather:{\"city\": \"P\"}\nc1:id1:search:{\"q\": [1, {\"b\": 2}]}\n"},
    {"mistral_json", "none",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"P\"}, \"id\": \"1\"}, "
     "{\"name\": \"search\", \"arguments\": {}}]",
     "c0:id0:get_weather:{\"city\": \"P\"}\nc1:id1:search:{}\n"},
    {"harmony", "harmony",
     "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"P\"}<|call|>",
     "r:Need it.\nc0:id0:get_weather:{\"city\":\"P\"}\n"},
    {"harmony", "harmony",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|"
     ">",
     "r:a\nt:b\n"},
    {"harmony", "harmony", " to=functions.search<|channel|>commentary json<|message|>{}<|call|>",
     "c0:id0:search:{}\n"},
    {"solar", "solar",
     "<|think|>a<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>"
     "search"
     "<|tool_call:args|>{\"q\": 1}<|tool_call:end|><|calls|>",
     "r:a\nc0:id0:search:{\"q\": 1}\n"},
    {"gemma4", "gemma4",
     "<|channel>thought\nhm<channel|><|tool_call>call:search{limit:3,query:<|\"|>a \"b\" <c>\n"
     "<|\"|>,tags:[<|\"|>x<|\"|>,true],o:{}}<tool_call|>",
     "r:hm\nc0:id0:search:{\"limit\":3,\"query\":\"a \\\"b\\\" <c>\\n\",\"tags\":[\"x\",true],"
     "\"o\":{}}\n"},
    {"command_r7b", "command_r7b",
     "<|START_THINKING|>p<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"search\", \"parameters\": {\"q\": 1}}\n]<|END_ACTION|>",
     "r:p\nc0:id0:search:{\"q\": 1}\n"},
    {"command_r7b", "command_r7b",
     "<|START_THINKING|>p<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>", "r:p\nt:Hi\n"},
    {"nemotron", "think", "<TOOLCALL>[{\"name\": \"search\", \"arguments\": {}}]</TOOLCALL>\n",
     "c0:id0:search:{}\n"},
    {"apriel", "apriel",
     "Hm\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{\"name\": \"search\", \"arguments\": {}}]"
     "</tool_calls>",
     "t:Hm\n[BEGIN FINAL RESPONSE]\nc0:id0:search:{}\n"},
    {"minimax_m1", "none",
     "<tool_calls>\n{\"name\": \"search\", \"arguments\": {}}\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"x\"}}\n</tool_calls>",
     "c0:id0:search:{}\nc1:id1:get_weather:{\"city\": \"x\"}\n"},
    {"apertus", "apertus",
     "<|inner_prefix|>a<|inner_suffix|>ok <|tools_prefix|>[{\"search\": {\"q\": \"x\"}}, "
     "{\"get_weather\": {}}]<|tools_suffix|>",
     "r:a\nt:ok\nc0:id0:search:{\"q\": \"x\"}\nc1:id1:get_weather:{}\n"},
    {"granite", "granite",
     "<think>a</think><response>b</response><|tool_call|>[{\"name\": \"search\", \"arguments\": "
     "{}}]",
     "r:a\nt:b\nc0:id0:search:{}\n"},
    {"phi4", "none",
     "<|tool_call|>[{\"name\": \"search\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
     "c0:id0:search:{\"a\": 1}\n"},
    {"gigachat", "none",
     "x<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"search\", \"arguments\": {}}",
     "t:x\nc0:id0:search:{}\n"},
    {"firefunction", "none", " functools[{\"name\": \"search\", \"arguments\": {}}]",
     "c0:id0:search:{}\n"},
    {"internlm", "none",
     "a<|action_start|><|plugin|>\n{\"name\": \"search\", \"parameters\": {\"q\": "
     "1}}<|action_end|>",
     "t:a\nc0:id0:search:{\"q\": 1}\n"},
    {"functionary", "none",
     "Hm.<function=get_weather>{\"city\": "
     "\"</function>\"}</function><function=search>{}</function>",
     "t:Hm.\nc0:id0:get_weather:{\"city\": \"</function>\"}\nc1:id1:search:{}\n"},
    {"command_r", "none",
     "Action: ```json\n[\n    {\n        \"tool_name\": \"search\",\n        \"parameters\": {}\n"
     "    }\n]```",
     "c0:id0:search:{}\n"},
    {"llama3", "none",
     "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"P\"}}; {\"name\": \"search\", "
     "\"parameters\": {}}",
     "c0:id0:get_weather:{\"city\": \"P\"}\nc1:id1:search:{}\n"},
    {"llama3", "none", "{\"name\": \"other\", \"parameters\": {}}",
     "t:{\"name\": \"other\", \"parameters\": {}}\n"},
    {"llama3", "none", "{\"a\": 1} and {\"name\": \"search\"}",
     "t:{\"a\": 1} and {\"name\": \"search\"}\n"},
    {"llama3", "none", "{\"type\": \"function\", \"name\": \"search\", \"parameters\": {}}",
     "c0:id0:search:{}\n"},
    {"hermes", "think", "<think>a</think>\n{\"name\": \"search\", \"arguments\": {\"q\": 1}}",
     "r:a\nc0:id0:search:{\"q\": 1}\n"},
    {"hermes", "none",
     "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"P\"\n  "
     "}\n}\n```",
     "c0:id0:get_weather:{\n    \"city\": \"P\"\n  }\n"},
    {"hermes", "none",
     "```json\n{\"name\": \"search\", \"arguments\": {}}\n```\n\n```json\n[{\"name\": "
     "\"get_weather\", \"arguments\": {\"city\": \"```\"}}]\n``` Done.",
     "c0:id0:search:{}\nc1:id1:get_weather:{\"city\": \"```\"}\nt:Done.\n"},
    {"hermes", "none",
     "{\"name\": \"search\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
     "\"get_weather\", \"arguments\": {}}\n</tool_call>",
     "c0:id0:search:{}\nc1:id1:get_weather:{}\n"},
    // Not declared, no call, not where an answer begins.
    {"hermes", "none", "```json\n{\"name\": \"Fido\", \"age\": 3}\n```\nA dog.",
     "t:```json\n{\"name\": \"Fido\", \"age\": 3}\n```\nA dog.\n"},
    {"hermes", "none", "{\"city\": \"P\", \"name\": \"search\"}",
     "t:{\"city\": \"P\", \"name\": \"search\"}\n"},
    {"hermes", "none", "{\"name\": \"search\", \"price\": 3}",
     "t:{\"name\": \"search\", \"price\": 3}\n"},
    // Written in a way that nothing holds to the tool's schema.
    {"hermes", "none", "{\"arguments\": {\"q\": 1}, \"name\": \"search\"}",
     "t:{\"arguments\": {\"q\": 1}, \"name\": \"search\"}\n"},
    {"hermes", "none", "{\"name\":\"search\",\"arguments\":{}}",
     "t:{\"name\":\"search\",\"arguments\":{}}\n"},
    {"hermes", "none", "```python\nprint({})\n```", "t:```python\nprint({})\n```\n"},
    {"hermes", "none", "```json\n```", "t:```json\n```\n"},
    {"hermes", "none", "As so:\n```json\n{\"name\": \"search\", \"arguments\": {}}\n```",
     "t:As so:\n```json\n{\"name\": \"search\", \"arguments\": {}}\n```\n"},
    {"llama3", "none", "<|python_tag|>{\"name\": \"search\", \"parameters\": {}}",
     "c0:id0:search:{}\n"},
    {"llama3", "none", "<|python_tag|>print(1)", "t:<|python_tag|>print(1)\n"},
    {"pythonic", "none", "[get_weather(city='P\\'s', days=-3), search(q={\"a\": (1, 2.5,)})]",
     "c0:id0:get_weather:{\"city\":\"P's\",\"days\":-3}\nc1:id1:search:{\"q\":{\"a\":[1,2.5]}}\n"},
    {"pythonic", "none", "[1, 2] is a list", "t:[1, 2] is a list\n"},
    {"olmo3", "think",
     "<think>\na\n</think>\n<function_calls>\nget_weather(city=\"P\")\nsearch()\n</function_calls>",
     "r:a\nc0:id0:get_weather:{\"city\":\"P\"}\nc1:id1:search:{}\n"},
    {"lfm2", "none", "<|tool_call_start|>[search(q=\"\\u00e9\\x41\")]<|tool_call_end|>Sure.",
     "c0:id0:search:{\"q\":\"\\u00e9\\u0041\"}\nt:Sure.\n"},
};

std::string name_of(const Sample& sample) {
  return fmt::format("{}: {}", sample.tool_format, sample.text);
}

TEST(PartParserTest, EveryFormatReadsWhatItsModelsWrite) {
  for (const Sample& sample : kSamples) {
    EXPECT_EQ(read(fresh(sample.tool_format, sample.reasoning_format), sample.text), sample.parts)
        << name_of(sample);
  }
}

TEST(PartParserTest, EveryFormatHasASample) {
  for (const ToolFormat& format : tool_formats()) {
    if (format.name == "deepseek_v4") continue;  // other marks of deepseek_v32
    EXPECT_TRUE(std::any_of(std::begin(kSamples), std::end(kSamples), [&](const Sample& each) {
      return each.tool_format == format.name;
    })) << format.name;
  }
}

TEST(PartParserTest, CutsDoNotShow) {
  for (const Sample& sample : kSamples) {
    for (size_t first = 0; first <= sample.text.size(); ++first) {
      Reader reader(fresh(sample.tool_format, sample.reasoning_format));
      reader.push(sample.text.substr(0, first));
      reader.push(sample.text.substr(first));
      ASSERT_EQ(reader.finish(), sample.parts) << name_of(sample) << " cut at " << first;
    }
    Reader bytes(fresh(sample.tool_format, sample.reasoning_format));
    for (const char c : sample.text) bytes.push(std::string_view(&c, 1));
    ASSERT_EQ(bytes.finish(), sample.parts) << name_of(sample);
  }
}

// A short text in every way it can be cut: 2^15 of them.
TEST(PartParserTest, EveryWayToCutAShortText) {
  constexpr std::string_view kText = "a<c|><c|{\"<c|>{";
  PartOptions made = options("hermes");
  ToolFormat format = *made.format;
  format.opens = {"<c|>"};
  format.closes = {"<c|"};
  made.format = &format;
  const std::string whole = read(made, kText);
  for (uint32_t cuts = 0; cuts < 1u << (kText.size() - 1); ++cuts) {
    Reader reader(made);
    size_t begin = 0;
    for (size_t i = 1; i <= kText.size(); ++i) {
      if (i < kText.size() && (cuts >> (i - 1) & 1) == 0) continue;
      reader.push(kText.substr(begin, i - begin));
      begin = i;
    }
    ASSERT_EQ(reader.finish(), whole) << cuts;
  }
}

// Marks and pieces of marks in any order.
std::string random_text(std::mt19937& random, const Sample& sample, size_t num_pieces) {
  std::string text;
  for (size_t i = 0; i < num_pieces; ++i) {
    const size_t begin = random() % sample.text.size();
    text += sample.text.substr(begin, random() % 40);
  }
  return text;
}

TEST(PartParserTest, RandomTextsAreTheSameInRandomPieces) {
  std::mt19937 random(7);
  const int rounds = std::getenv("HEADRACE_TEST_FLOOD") == nullptr ? 20 : 500;
  for (const Sample& sample : kSamples) {
    for (int round = 0; round < rounds; ++round) {
      const std::string text = random_text(random, sample, 1 + random() % 12);
      const std::string whole = read(fresh(sample.tool_format, sample.reasoning_format), text);
      for (int cut = 0; cut < 5; ++cut) {
        Reader reader(fresh(sample.tool_format, sample.reasoning_format));
        for (size_t begin = 0; begin < text.size();) {
          const size_t size = 1 + random() % 9;
          reader.push(std::string_view(text).substr(begin, size));
          begin += size;
        }
        ASSERT_EQ(reader.finish(), whole) << name_of(sample) << "\n" << text;
      }
    }
  }
}

// Milliseconds that this thread computed.
double thread_ms() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Parses the unit, over and over. The parts are no longer than the text and what surrounds values.
double flood(const Sample& sample, std::string_view unit, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) text += unit;
  const auto parser = make_part_parser(fresh(sample.tool_format, sample.reasoning_format));
  const double start = thread_ms();
  size_t bytes = 0;
  for (const OutputPart& part : parser->push(text)) bytes += part.text.size();
  for (const OutputPart& part : parser->finish(false)) bytes += part.text.size();
  const double took = thread_ms() - start;
  EXPECT_LE(bytes, 2 * text.size());
  return took;
}

// A flood of four times the bytes takes about four times as long: here less than twelve times.
TEST(PartParserTest, FloodsOfMarksAreLinear) {
  const size_t num_bytes = std::getenv("HEADRACE_TEST_FLOOD") == nullptr ? 1 << 14 : 1 << 20;
  double slowest = 0;
  for (const Sample& sample : kSamples) {
    const std::string open(tool_format_named(sample.tool_format).value()->opens[0]);
    for (const std::string& unit :
         {open, open.substr(0, 3), open + "{\"", std::string("{\"name\":"),
          std::string(sample.text), std::string("\n")}) {
      if (unit.empty()) continue;
      const double took = flood(sample, unit, num_bytes);
      slowest = std::max(slowest, took);
      if (num_bytes > 1 << 14 && took > 20) {
        fmt::print("{:.1f} ms: {} of {}\n", took, name_of(sample), unit.substr(0, 40));
      }
      if (took < 1) continue;
      EXPECT_LT(took, 12 * std::max(1.0, flood(sample, unit, num_bytes / 4)))
          << name_of(sample) << " of " << unit.substr(0, 40);
    }
  }
  RecordProperty("slowest_us", static_cast<int>(slowest * 1000));
  if (num_bytes > 1 << 14) fmt::print("slowest flood of {} bytes: {:.1f} ms\n", num_bytes, slowest);
}

TEST(PartParserTest, ThePromptMayHaveOpenedTheReasoning) {
  PartOptions made = options("hermes", "think");
  made.starts_reasoning = true;
  EXPECT_EQ(read(made, "\nsum\n</think>\n\n2"), "r:sum\nt:2\n");
  made = options("apriel", "apriel");
  made.starts_reasoning = true;
  EXPECT_EQ(read(made, "Hm\n[BEGIN FINAL RESPONSE]\nHi\n[END FINAL RESPONSE]"), "r:Hm\nt:Hi\n");
  Reader reader(made);
  EXPECT_TRUE(reader.is_reasoning());
  reader.push("x[BEGIN FINAL RESPONSE]");
  EXPECT_FALSE(reader.is_reasoning());
}

TEST(PartParserTest, ReasoningStaysInTheTextIfTheClientWantsItThere) {
  PartOptions made = options("hermes", "think");
  made.reasoning_apart = false;
  EXPECT_EQ(read(made, "<think>\na\n</think>\n\nb"), "t:<think>\na\n</think>\n\nb\n");
}

TEST(PartParserTest, OneCallWhereNoMoreAreWanted) {
  PartOptions made = options("hermes");
  made.parallel = false;
  EXPECT_EQ(read(made,
                 "<tool_call>{\"name\":\"search\"}</tool_call><tool_call>{\"name\":"
                 "\"search\",\"arguments\":{}}</tool_call>"),
            "c0:id0:search:{}\n");
}

TEST(PartParserTest, TextWithoutMarksComesAtOnce) {
  Reader reader(options("none", "think"));
  const auto parser = make_part_parser(options("none", "think"));
  EXPECT_EQ(parser->push("Hello").size(), 1u);
  EXPECT_EQ(parser->push(" ").size(), 1u);
  EXPECT_EQ(parser->push(" \n").size(), 1u);
}

TEST(PartParserTest, ArgumentsStreamAsTheyCome) {
  for (const std::string_view format : {"hermes", "qwen3_coder"}) {
    const auto sample = std::find_if(std::begin(kSamples), std::end(kSamples),
                                     [&](const Sample& s) { return s.tool_format == format; });
    const auto parser = make_part_parser(fresh(format, "think"));
    int num_pieces = 0;
    for (const char c : sample->text) {
      for (const OutputPart& part : parser->push(std::string_view(&c, 1))) {
        num_pieces += part.kind == OutputPart::Kind::kToolCall ? 1 : 0;
      }
    }
    EXPECT_GT(num_pieces, 20) << format;
  }
}

// Unfinished calls of an answer that was too long stay as far as they came.
TEST(PartParserTest, ACallMayBeCutShort) {
  EXPECT_EQ(read(options("hermes"), "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q"),
            "c0:id0:search:{\"q\n");
  EXPECT_EQ(read(options("hermes"), "hm <tool_call>\n{\"name\": \"sea"),
            "t:hm <tool_call>\n{\"name\": \"sea\n");
}

// Arguments that did not begin are made up only where the model has ended its call, or its answer.
TEST(PartParserTest, ACallThatIsCutBeforeItsArgumentsHasNone) {
  const std::pair<std::string_view, std::string_view> kCut[] = {
      {"hermes", "<tool_call>\n{\"name\": \"search\""},
      {"hermes", "<tool_call>\n{\"name\": \"search\", \"arguments\": "},
      {"qwen3_coder", "<tool_call>\n<function=search>\n<param"},
      {"harmony", "<|channel|>commentary to=functions.search <|constrain|>json<|message|>"}};
  for (const auto& [format, text] : kCut) {
    for (const bool is_cut : {true, false}) {
      Reader reader(options(format));
      reader.push(text);
      EXPECT_EQ(reader.finish(is_cut), is_cut ? "c0:id0:search:\n" : "c0:id0:search:{}\n") << text;
    }
  }
  for (const std::string_view closed :
       {"<tool_call>\n{\"name\": \"search\"}", "<tool_call>\n{\"name\": \"search\"}\n</tool"}) {
    Reader reader(options("hermes"));
    reader.push(closed);
    EXPECT_EQ(reader.finish(true), "c0:id0:search:{}\n") << closed;
  }
}

TEST(PartParserTest, ItKnowsWhetherTextMayCome) {
  Reader reader(options("hermes", "think"));
  const std::pair<std::string_view, bool> kPieces[] = {{"<think>a", false},
                                                       {"</think>", true},
                                                       {"Hi <tool_call>", true},
                                                       {"{\"name\": \"search\"", false},
                                                       {", \"arguments\": {}", false},
                                                       {"}\n", false},
                                                       {"</tool_call>", true},
                                                       {" ok", true}};
  for (const auto& [piece, may_be_text] : kPieces) {
    reader.push(piece);
    EXPECT_EQ(reader.is_text(), may_be_text) << piece;
  }
}

TEST(PartParserTest, ArgumentsOfTheStylesWithMarksAreJson) {
  for (const Sample& sample : kSamples) {
    const auto parser = make_part_parser(fresh(sample.tool_format, sample.reasoning_format));
    Whole whole;
    for (OutputPart& part : parser->push(sample.text)) whole.add(std::move(part));
    for (OutputPart& part : parser->finish(false)) whole.add(std::move(part));
    for (const OutputPart& part : whole.parts) {
      if (part.kind != OutputPart::Kind::kToolCall) continue;
      boost::system::error_code failed;
      const auto value = boost::json::parse(part.text, failed);
      EXPECT_TRUE(!failed && value.is_object()) << part.text;
    }
  }
}

TEST(PartParserTest, NamesThatAreNoneAreRefusedWithTheNamesThatThereAre) {
  const auto wrong = tool_format_named("hermess");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("hermes"), std::string::npos);
  EXPECT_EQ(tool_format_named("none").value(), nullptr);
  EXPECT_EQ(reasoning_format_named("think").value()->open, "<think>");
}

}  // namespace part_parser_test
}  // namespace headrace
