#include "server/api/parts/output_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

using enum CallStyle;

constexpr ReasoningFormat kReasoningFormats[] = {
    {.name = "harmony",
     .signs = {"<|channel|>", "<|message|>"},
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .anywhere = true,
     .silent = {"<|start|>assistant", "<|channel|>final<|message|>",
                "<|channel|>commentary<|message|>", "<|channel|>final <|constrain|>json<|message|>",
                "<|end|>", "<|return|>", "<|call|>"}},
    {.name = "solar",
     .signs = {"<|think|>", "<|begin|>"},
     .open = "<|think|>",
     .close = "<|end|>",
     .anywhere = true,
     .silent = {"<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>", "<|calls|>"}},
    {.name = "gemma4",
     .signs = {"<|channel>thought"},
     .open = "<|channel>thought\n",
     .close = "<channel|>",
     .anywhere = true},
    {.name = "command_r7b",
     .signs = {"<|START_THINKING|>"},
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {.name = "apriel",
     .signs = {"[BEGIN FINAL RESPONSE]"},
     .open = "Here are my reasoning steps:\n",
     .close = "[BEGIN FINAL RESPONSE]",
     .silent = {"[END FINAL RESPONSE]"}},
    {.name = "apertus",
     .signs = {"<|inner_prefix|>"},
     .open = "<|inner_prefix|>",
     .close = "<|inner_suffix|>",
     .anywhere = true},
    {.name = "seed", .signs = {"</seed:think>"}, .open = "<seed:think>", .close = "</seed:think>"},
    {.name = "mistral", .signs = {"[/THINK]"}, .open = "[THINK]", .close = "[/THINK]"},
    {.name = "kimi_vl", .signs = {"◁/think▷"}, .open = "◁think▷", .close = "◁/think▷"},
    {.name = "thought", .signs = {"</thought>"}, .open = "<thought>", .close = "</thought>"},
    {.name = "granite",
     .signs = {"</think>", "</response>", "<|start_of_role|>"},
     .open = "<think>",
     .close = "</think>",
     .silent = {"<response>", "</response>"}},
    {.name = "think", .signs = {"</think>"}, .open = "<think>", .close = "</think>"},
};

// Of JSON objects with name and arguments.
constexpr CallWriting objects(std::string_view begin, std::string_view between,
                              std::string_view end) {
  return {begin, "{\"name\": \"", "\", \"arguments\": ", "}", between, end};
}

// Those with more signs come before those with fewer of them.
constexpr ToolFormat kTools[] = {
    {.name = "harmony",
     .signs = {"<|channel|>", "<|message|>"},
     .style = kTagged,
     .writing = {"", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>",
                 "<|call|>", "<|start|>assistant", "", "<|start|>assistant"},
     .opens = {"<|channel|>commentary to=functions.", "<|channel|>analysis to=functions.",
               "<|start|>assistant to=functions.", " to=functions."},
     .name_ends = {" ", "<|channel|>", "<|constrain|>", "<|message|>"},
     .one_text = true},
    {.name = "solar",
     .signs = {"<|tool_call:begin|>"},
     .style = kTagged,
     .writing = {"<|tool_calls|>", "<|tool_call:begin|>call<|tool_call:name|>",
                 "<|tool_call:args|>", "<|tool_call:end|>", "", "", "<|begin|>assistant"},
     .opens = {"<|tool_calls|>"},
     .call_open = "<|tool_call:name|>",
     .skips_to_call = true,
     .name_ends = {"<|tool_call:args|>"},
     .call_close = "<|tool_call:end|>"},
    {.name = "deepseek_v32",
     .signs = {"｜DSML｜", "function_calls"},
     .style = kParams,
     .writing = {"<｜DSML｜function_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
                 "</｜DSML｜invoke>\n", "", "</｜DSML｜function_calls>"},
     .opens = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
     .closes = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
     .call_open = "<｜DSML｜invoke name=\"",
     .name_ends = {"\">"},
     .call_close = "</｜DSML｜invoke>",
     .param_open = "<｜DSML｜parameter name=\"",
     .key_ends = {"\" string=\"true\">", "\" string=\"false\">", "\">"},
     .says_type = true,
     .value_close = "</｜DSML｜parameter>"},
    {.name = "deepseek_v4",
     .signs = {"｜DSML｜"},
     .style = kParams,
     .writing = {"<｜DSML｜tool_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
                 "</｜DSML｜invoke>\n", "", "</｜DSML｜tool_calls>"},
     .opens = {"<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"},
     .closes = {"</｜DSML｜tool_calls>", "</｜DSML｜function_calls>"},
     .call_open = "<｜DSML｜invoke name=\"",
     .name_ends = {"\">"},
     .call_close = "</｜DSML｜invoke>",
     .param_open = "<｜DSML｜parameter name=\"",
     .key_ends = {"\" string=\"true\">", "\" string=\"false\">", "\">"},
     .says_type = true,
     .value_close = "</｜DSML｜parameter>"},
    {.name = "minimax_m2",
     .signs = {"<minimax:tool_call>"},
     .style = kParams,
     .writing = {"<minimax:tool_call>\n", "<invoke name=\"", "\">\n", "</invoke>\n", "",
                 "</minimax:tool_call>"},
     .opens = {"<minimax:tool_call>"},
     .closes = {"</minimax:tool_call>"},
     .call_open = "<invoke name=\"",
     .name_ends = {"\">"},
     .call_close = "</invoke>",
     .param_open = "<parameter name=\"",
     .key_ends = {"\">"},
     .value_close = "</parameter>"},
    {.name = "seed_oss",
     .signs = {"<seed:tool_call>"},
     .style = kParams,
     .writing = {"", "<seed:tool_call>\n<function=", ">\n", "</function>\n</seed:tool_call>", "\n",
                 ""},
     .opens = {"<seed:tool_call>"},
     .closes = {"</seed:tool_call>"},
     .call_open = "<function=",
     .name_ends = {">"},
     .call_close = "</function>",
     .param_open = "<parameter=",
     .key_ends = {">"},
     .value_close = "</parameter>"},
    {.name = "kimi_k2",
     .signs = {"<|tool_call_argument_begin|>"},
     .style = kTagged,
     .writing = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
                 "<|tool_call_argument_begin|>", "<|tool_call_end|>", "",
                 "<|tool_calls_section_end|>"},
     .opens = {"<|tool_calls_section_begin|>"},
     .closes = {"<|tool_calls_section_end|>"},
     .call_open = "<|tool_call_begin|>",
     .name_ends = {"<|tool_call_argument_begin|>"},
     .call_close = "<|tool_call_end|>",
     .counts_calls = true},
    {.name = "deepseek_v3",
     .signs = {"<｜tool▁call▁begin｜>", "```json"},
     .style = kTagged,
     .writing = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                 "\n```json\n", "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
     .opens = {"<｜tool▁calls▁begin｜>"},
     .closes = {"<｜tool▁calls▁end｜>"},
     .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .name_ends = {"\n"},
     .call_close = "<｜tool▁call▁end｜>"},
    {.name = "deepseek_v31",
     .signs = {"<｜tool▁call▁begin｜>"},
     .style = kTagged,
     .writing = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                 "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
     .opens = {"<｜tool▁calls▁begin｜>"},
     .closes = {"<｜tool▁calls▁end｜>"},
     .call_open = "<｜tool▁call▁begin｜>",
     .name_ends = {"<｜tool▁sep｜>"},
     .call_close = "<｜tool▁call▁end｜>"},
    {.name = "gemma4",
     .signs = {"<|tool_call>call:"},
     .style = kBraces,
     .writing = {"", "<|tool_call>call:", "", "<tool_call|>", "", ""},
     .opens = {"<|tool_call>"},
     .closes = {"<tool_call|>"},
     .call_open = "call:",
     .name_ends = {"{"},
     .quote = "<|\"|>"},
    {.name = "glm",
     .signs = {"<arg_key>"},
     .style = kParams,
     .writing = {"", "<tool_call>", "\n", "</tool_call>", "\n", ""},
     .opens = {"<tool_call>"},
     .name_ends = {"\n", "<arg_key>", "</tool_call>"},
     .call_close = "</tool_call>",
     .param_open = "<arg_key>",
     .key_ends = {"</arg_key>"},
     .value_open = "<arg_value>",
     .value_close = "</arg_value>"},
    {.name = "qwen3_coder",
     .signs = {"<tool_call>", "<function="},
     .style = kParams,
     .writing = {"", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>", "\n", ""},
     .opens = {"<tool_call>", "<function="},
     .closes = {"</tool_call>"},
     .call_open = "<function=",
     .name_ends = {">"},
     .call_close = "</function>",
     .param_open = "<parameter=",
     .key_ends = {">"},
     .value_close = "</parameter>",
     .pads_values = true},
    {.name = "minicpm5",
     .signs = {"<function name=", "<param name="},
     .style = kParams,
     .writing = {"", "<function name=\"", "\">", "</function>", "\n", ""},
     .opens = {"<function name=\""},
     .name_ends = {"\">"},
     .call_close = "</function>",
     .param_open = "<param name=\"",
     .key_ends = {"\">"},
     .value_close = "</param>"},
    {.name = "functionary",
     .signs = {"<function=", "</function>"},
     .style = kTagged,
     .writing = {"", "<function=", ">", "</function>", "", ""},
     .opens = {"<function="},
     .name_ends = {">"},
     .call_close = "</function>"},
    {.name = "mistral",
     .signs = {"[TOOL_CALLS]", "[ARGS]"},
     .style = kTagged,
     .writing = {"", "[TOOL_CALLS]", "[ARGS]", "", "", ""},
     .opens = {"[TOOL_CALLS]"},
     .name_ends = {"[ARGS]", "[CALL_ID]"}},
    {.name = "mistral_json",
     .signs = {"[TOOL_CALLS]"},
     .writing = objects("[TOOL_CALLS][", ", ", "]"),
     .opens = {"[TOOL_CALLS]"}},
    {.name = "command_r7b",
     .signs = {"<|START_ACTION|>"},
     .writing = {"<|START_ACTION|>[\n", "    {\"tool_call_id\": \"0\", \"tool_name\": \"",
                 "\", \"parameters\": ", "}", ",\n", "\n]<|END_ACTION|>"},
     .opens = {"<|START_ACTION|>"},
     .closes = {"<|END_ACTION|>"}},
    {.name = "nemotron",
     .signs = {"<TOOLCALL>"},
     .writing = objects("<TOOLCALL>[", ", ", "]</TOOLCALL>"),
     .opens = {"<TOOLCALL>"},
     .closes = {"</TOOLCALL>"}},
    {.name = "apriel",
     .signs = {"<tool_calls>["},
     .writing = objects("<tool_calls>[", ", ", "]</tool_calls>"),
     .opens = {"<tool_calls>"},
     .closes = {"</tool_calls>"}},
    {.name = "minimax_m1",
     .signs = {"<tool_calls>"},
     .writing = objects("<tool_calls>\n", "\n", "\n</tool_calls>"),
     .opens = {"<tool_calls>"},
     .closes = {"</tool_calls>"}},
    {.name = "apertus",
     .signs = {"<|tools_prefix|>"},
     .style = kKeyed,
     .writing = {"<|tools_prefix|>[", "{\"", "\": ", "}", ", ", "]<|tools_suffix|>"},
     .opens = {"<|tools_prefix|>"},
     .closes = {"<|tools_suffix|>"}},
    {.name = "phi4",
     .signs = {"<|/tool_call|>"},
     .writing = objects("<|tool_call|>[", ", ", "]<|/tool_call|>"),
     .opens = {"<|tool_call|>"},
     .closes = {"<|/tool_call|>"}},
    {.name = "granite",
     .signs = {"<|tool_call|>"},
     .writing = objects("<|tool_call|>[", ", ", "]"),
     .opens = {"<|tool_call|>", "<tool_call>"},
     .closes = {"</tool_call>"}},
    {.name = "gigachat",
     .signs = {"function call", "<|role_sep|>"},
     .writing = {"", "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"",
                 "\", \"arguments\": ", "}", "", ""},
     .opens = {"<|message_sep|>\n\nfunction call<|role_sep|>\n", "function call<|role_sep|>\n"}},
    {.name = "firefunction",
     .signs = {"functools["},
     .writing = objects("functools[", ", ", "]"),
     .opens = {"functools"}},
    {.name = "internlm",
     .signs = {"<|action_start|>", "<|plugin|>"},
     .writing = {"", "<|action_start|><|plugin|>\n{\"name\": \"",
                 "\", \"parameters\": ", "}<|action_end|>", "\n", ""},
     .opens = {"<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"},
     .closes = {"<|action_end|>"}},
    {.name = "olmo3",
     .signs = {"<function_calls>"},
     .style = kPython,
     .writing = {"<function_calls>\n", "", "(", ")", "\n", "\n</function_calls>"},
     .opens = {"<function_calls>"},
     .closes = {"</function_calls>"}},
    {.name = "hermes",
     .signs = {"<tool_call>"},
     .writing = {"", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n",
                 ""},
     .opens = {"<tool_call>"},
     .closes = {"</tool_call>"},
     // Qwen2.5-Coder leaves the marks away, or writes a block of code.
     .bare = '{',
     .bare_writings = {objects("", "", ""),
                       {"", "{\n  \"name\": \"", "\",\n  \"arguments\": ", "\n}", "", ""}},
     .fence_open = "```json",
     .fence_close = "```"},
    {.name = "command_r",
     .signs = {"Action:", "```json"},
     .writing = {"Action: ```json\n[\n", "    {\n        \"tool_name\": \"",
                 "\",\n        \"parameters\": ", "\n    }", ",\n", "\n]```"},
     .opens = {"Action: ```json", "Action:```json"},
     .closes = {"```"}},
    {.name = "pythonic",
     .signs = {"func_name1("},
     .style = kPython,
     .writing = {"[", "", "(", ")", ", ", "]"},
     .opens = {"<|python_start|>"},
     .closes = {"<|python_end|>"},
     .bare = '['},
    {.name = "llama3",
     .signs = {"ipython"},
     .writing = {"", "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""},
     .opens = {"<|python_tag|>"},
     .bare = '{'},
    {.name = "lfm2",
     .signs = {"<|tool_call_start|>"},
     .style = kPython,
     .writing = {"<|tool_call_start|>[", "", "(", ")", ", ", "]<|tool_call_end|>"},
     .opens = {"<|tool_call_start|>"},
     .closes = {"<|tool_call_end|>"}},
};

bool has_all(std::string_view text, const Marks& signs) {
  const auto each = given(signs);
  return !each.empty() && std::all_of(each.begin(), each.end(), [&](std::string_view sign) {
    return text.find(sign) != std::string_view::npos;
  });
}

template <class Row>
const Row* find_row(std::span<const Row> rows, std::string_view text) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const Row& row) { return has_all(text, row.signs); });
  return found == rows.end() ? nullptr : &*found;
}

template <class Row>
Result<const Row*> row_named(std::span<const Row> rows, std::string_view name,
                             std::string_view option) {
  if (name == "none") return static_cast<const Row*>(nullptr);
  std::vector<std::string_view> names;
  for (const Row& row : rows) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is '{}', but it must be auto, none or one of {}", option, name,
                           fmt::join(names, ", ")),
               {},
               std::string(option)};
}

}  // namespace

std::span<const std::string_view> given(const Marks& marks) {
  const auto end = std::find(marks.begin(), marks.end(), std::string_view());
  return {marks.data(), static_cast<size_t>(end - marks.begin())};
}

std::span<const CallWriting> bare_writings(const ToolFormat& format) {
  const auto& all = format.bare_writings;
  const auto end = std::ranges::find(all, std::string_view(), &CallWriting::head);
  return {all.data(), static_cast<size_t>(end - all.begin())};
}

std::string begin_of_call(const CallWriting& writing, std::string_view name) {
  return fmt::format("{}{}{}", writing.head, name, writing.middle);
}

std::span<const ReasoningFormat> reasoning_formats() { return kReasoningFormats; }
std::span<const ToolFormat> tool_formats() { return kTools; }

const ReasoningFormat* find_reasoning_format(std::string_view source) {
  return find_row(reasoning_formats(), source);
}

const ToolFormat* find_tool_format(std::string_view source, std::string_view tokens) {
  const ToolFormat* found = find_row(tool_formats(), source);
  return found != nullptr ? found : find_row(tool_formats(), tokens);
}

Result<const ReasoningFormat*> reasoning_format_named(std::string_view name) {
  return row_named(reasoning_formats(), name, "--reasoning-format");
}

Result<const ToolFormat*> tool_format_named(std::string_view name) {
  return row_named(tool_formats(), name, "--tool-format");
}

std::string mark_texts(const OutputFormats& formats) {
  const auto [reasoning, tools] = formats;
  std::string texts;
  const auto add = [&](auto... each) { ((texts.append(each).append("\n")), ...); };
  if (reasoning != nullptr) {
    add(reasoning->open, reasoning->close);
    for (const std::string_view mark : reasoning->silent) add(mark);
  }
  if (tools == nullptr) return texts;
  for (const Marks& marks : {tools->opens, tools->closes, tools->name_ends, tools->key_ends}) {
    for (const std::string_view mark : marks) add(mark);
  }
  add(tools->call_open, tools->call_close, tools->param_open, tools->value_open, tools->value_close,
      tools->quote);
  const CallWriting& writing = tools->writing;
  add(writing.lead, writing.begin, writing.head, writing.middle, writing.tail, writing.between,
      writing.end);
  return texts;
}

}  // namespace headrace
