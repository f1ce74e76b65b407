// FormatMarks: of a format, the marks that each state of its parser looks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/parts/mark_scanner.h"
#include "server/api/parts/output_format.h"

namespace headrace {

inline constexpr std::string_view kDataOpen = "<![CDATA[", kDataClose = "]]>";

struct FormatMarks {
  enum class Act : uint8_t { kReason, kEndReason, kOpen, kOpenFence, kSilent };

  // Either may be null.
  FormatMarks(const ReasoningFormat* reasons, const ToolFormat* format);

  MarkList text, reasoning, json, between, name, behind, params, key, seek_value, value, data,
      loose;
  std::vector<std::pair<Act, size_t>> text_acts;  // of `text`, and which of the opens it is
};

}  // namespace headrace
