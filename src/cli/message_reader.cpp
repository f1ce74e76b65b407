#include "cli/message_reader.h"

#include <string_view>
#include <utility>

namespace headrace {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char* kPrompt = ">>> ";
constexpr const char* kBlockPrompt = "... ";

bool drop_end_quotes(std::string* text) {
  const size_t end = text->find_last_not_of(" \t");
  if (end == std::string::npos || !std::string_view(*text).substr(0, end + 1).ends_with(kQuotes)) {
    return false;
  }
  text->resize(end + 1 - kQuotes.size());
  if (text->ends_with('\n')) text->pop_back();
  return true;
}

}  // namespace

ReadLine MessageReader::read() {
  ReadLine message = read_line_(kPrompt);
  if (message.end != ReadEnd::kLine || !message.text.starts_with(kQuotes)) return message;
  message.text.erase(0, kQuotes.size());
  bool first = true;
  while (!drop_end_quotes(&message.text)) {
    ReadLine next = read_line_(kBlockPrompt);
    if (next.end == ReadEnd::kInterrupted) return next;
    if (next.end == ReadEnd::kEndOfInput) break;
    if (!first || !message.text.empty()) message.text += '\n';
    message.text += next.text;
    first = false;
  }
  return message;
}

}  // namespace headrace
