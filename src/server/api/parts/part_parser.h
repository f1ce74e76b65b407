// part_parser: takes an answer apart by the marks of the model's formats: reasoning, text, calls.
//
// Each byte is looked at a bounded number of times, so the parts do not depend on how the text was
// cut, and a flood of marks costs what text costs. What looks like a call and is none stays text.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/parts/call_values.h"
#include "server/api/parts/output_format.h"
#include "server/api/parts/output_part.h"

namespace headrace {

struct PartOptions {
  const ReasoningFormat* reasoning = nullptr;  // null: none is looked for
  bool reasoning_apart = true;                 // else it is text, with its marks
  bool starts_reasoning = false;               // the prompt has opened it
  const ToolFormat* format = nullptr;          // null: no calls are looked for
  std::shared_ptr<const CallableTools> tools = {};
  bool parallel = true;                       // else calls after the first are left out
  std::function<std::string()> make_call_id;  // never empty if there is a format
};

std::unique_ptr<PartParser> make_part_parser(PartOptions options);

}  // namespace headrace
