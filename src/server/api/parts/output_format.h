// output_format: the marks that models write around their reasoning and their calls of tools. A
// format is a row; which one a model has is found in its chat template and vocabulary.
//
// Sources: the published chat templates of the models that the rows name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// Texts; the empty ones at the end are none.
using Marks = std::array<std::string_view, 4>;
std::span<const std::string_view> given(const Marks& marks);

struct ReasoningFormat {
  std::string_view name;  // --reasoning-format
  Marks signs;            // all of them stand in the template
  std::string_view open, close;
  // Where reasoning may begin: at the start of an answer only, or after text too (channels).
  bool anywhere = false;
  std::array<std::string_view, 8> silent = {};  // marks of the answer that say nothing
};

enum class CallStyle : uint8_t {
  kJson,    // objects with name and arguments, alone, in a row or in a list
  kKeyed,   // a list of objects, each with the name as its key and the arguments as its value
  kTagged,  // the name, then the arguments as a JSON object
  kParams,  // the name, then each argument between marks
  kPython,  // name(key=value, ...), alone, in a row or in a list
  kBraces,  // the name, then {key:value, ...} with marks for quotes
};

// How a call is written, for answers that are held to it: begin, calls with `between` in between,
// end. A call: head, name, middle, arguments, tail.
struct CallWriting {
  std::string_view begin, head, middle, tail, between, end;
  std::string_view lead = {};  // what opens another message, where one came before
};

struct ToolFormat {
  std::string_view name;  // --tool-format
  Marks signs;            // all of them stand in the template
  CallStyle style = CallStyle::kJson;
  CallWriting writing;
  Marks opens = {};   // what calls begin with
  Marks closes = {};  // after the last call

  // Calls without `opens`, at the start of an answer or behind a call, and only with a name that
  // was declared: the byte that they begin with (0: there are none), and what may stand around
  // each.
  char bare = 0;
  // How such a call may be written, where answers are held to it as to one behind a mark (only
  // head, middle and tail); none: in any way, and nothing holds it.
  std::array<CallWriting, 2> bare_writings = {};
  std::string_view fence_open = {}, fence_close = {};

  // kTagged, kParams, kBraces. One of `opens` may be call_open itself.
  std::string_view call_open = {};   // before each name; empty: the name follows `opens` at once
  bool skips_to_call = false;        // anything may stand before call_open
  Marks name_ends = {};              // one of them ends the name
  std::string_view call_close = {};  // after the arguments; what stands before it is left out
  bool counts_calls = false;         // the name is written "functions.NAME:3"
  bool one_text = false;             // before a call: its template refuses reasoning and content

  // kParams
  std::string_view param_open = {};   // before each key
  Marks key_ends = {};                // one of them ends the key
  bool says_type = false;             // the first of key_ends: a string; the second: JSON
  std::string_view value_open = {};   // before the value; empty: it follows the key at once
  std::string_view value_close = {};  // after it
  bool pads_values = false;           // with a newline on either side

  std::string_view quote = {};  // kBraces: of strings
};

std::span<const CallWriting> bare_writings(const ToolFormat& format);
// All before the arguments of a call.
std::string begin_of_call(const CallWriting& writing, std::string_view name);

std::span<const ReasoningFormat> reasoning_formats();
std::span<const ToolFormat> tool_formats();

// The format whose signs stand in the template's source, or, for calls, are tokens of the
// vocabulary; null: none does. `tokens`: the added tokens, each on a line.
const ReasoningFormat* find_reasoning_format(std::string_view source);
const ToolFormat* find_tool_format(std::string_view source, std::string_view tokens);

// By name; "none" is null. kInvalidArgument lists the names that there are.
Result<const ReasoningFormat*> reasoning_format_named(std::string_view name);
Result<const ToolFormat*> tool_format_named(std::string_view name);

// What a model has.
struct OutputFormats {
  const ReasoningFormat* reasoning = nullptr;
  const ToolFormat* tools = nullptr;
};

// All texts of the formats that can stand in an answer.
std::string mark_texts(const OutputFormats& formats);

}  // namespace headrace
