#include "server/api/line_watch.h"

namespace headrace {

std::optional<size_t> LineWatch::push(std::string_view text, TimeUs elapsed) {
  const bool is_over = rules_.time > 0 && elapsed > rules_.time;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_blank = text[i] == ' ' || text[i] == '\t';
    if (indent_ && is_blank) ++*indent_;
    if (indent_ && !is_blank) {
      if (*indent_ < rules_.indent) return i;
      indent_.reset();
    }
    if (text[i] != '\n') continue;
    if (is_over) return i + 1;
    if (rules_.indent > 0) indent_ = 0;
  }
  return std::nullopt;
}

}  // namespace headrace
