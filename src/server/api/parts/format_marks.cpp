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
  const auto append = [](MarkList& list, std::span<const std::string_view> marks) {
    list.insert(list.end(), marks.begin(), marks.end());
  };
  const auto closes = given(format->closes);
  const auto with_closes = [&](MarkList list) {
    std::erase(list, std::string_view());
    append(list, closes);
    return list;
  };
  json = with_closes({});
  append(json, opens);
  between = with_closes({format->call_open});
  behind = with_closes({format->call_close});
  params = with_closes({format->param_open, format->call_close});
  append(name, given(format->name_ends));
  append(key, given(format->key_ends));
  seek_value = {format->value_open};
  value = {format->value_close, kDataOpen};
  data = {kDataClose};
  loose = {format->quote};
}

}  // namespace headrace
