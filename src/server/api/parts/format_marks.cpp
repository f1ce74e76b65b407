#include "server/api/parts/format_marks.h"

#include <span>

namespace headrace {

FormatMarks::FormatMarks(const ReasoningFormat* reasons, const ToolFormat* format) {
  const auto add_text = [this](std::string_view mark, Act act, size_t open_idx) {
    text.push_back(mark);
    text_acts.emplace_back(act, open_idx);
  };
  if (reasons != nullptr) {
    add_text(reasons->open, Act::kReason, 0);
    for (const std::string_view mark : reasons->silent) {
      if (!mark.empty()) add_text(mark, Act::kSilent, 0);
    }
    if (!reasons->anywhere) add_text(reasons->close, Act::kEndReason, 0);
    reasoning = {reasons->close};
  }
  if (format == nullptr) return;
  const auto opens = given(format->opens);
  for (size_t i = 0; i < opens.size(); ++i) add_text(opens[i], Act::kOpen, i);
  if (!format->fence_open.empty()) add_text(format->fence_open, Act::kOpenFence, 0);
  const auto closes = given(format->closes);
  const auto with_closes = [&](std::initializer_list<std::string_view> marks) {
    MarkList list;
    for (const std::string_view mark : marks) {
      if (!mark.empty()) list.push_back(mark);
    }
    list.append(closes);
    return list;
  };
  json = with_closes({});
  json.append(opens);
  json.push_back(format->fence_open);
  json.push_back(format->fence_close);
  between = with_closes({format->call_open});
  behind = with_closes({format->call_close});
  params = with_closes({format->param_open, format->call_close});
  name.append(given(format->name_ends));
  key.append(given(format->key_ends));
  seek_value = {format->value_open};
  value = {format->value_close, kDataOpen};
  data = {kDataClose};
  loose = {format->quote};
}

}  // namespace headrace
