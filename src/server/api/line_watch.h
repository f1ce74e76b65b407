// line_watch: what ends an answer at its lines, for editors that complete text as it is typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"

namespace headrace {

// 0: no rule.
struct LineRules {
  int32_t indent = 0;  // a line behind the first that is indented less ends the answer before its
                       // text: spaces and tabs count one each
  TimeUs time = 0;     // the answer ends with the line in which so much time is over
  bool any() const { return indent > 0 || time > 0; }
};

// Of one answer. One thread at a time.
class LineWatch {
 public:
  explicit LineWatch(const LineRules& rules) : rules_(rules) {}

  // Text that comes so long after the first token. How much of it belongs to the answer, which ends
  // there; nothing: all of it, and the answer goes on.
  std::optional<size_t> push(std::string_view text, TimeUs elapsed);

 private:
  LineRules rules_;
  std::optional<int32_t> indent_;  // of the line so far, while it has nothing else
};

}  // namespace headrace
