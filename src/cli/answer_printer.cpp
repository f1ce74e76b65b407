#include "cli/answer_printer.h"

#include <unistd.h>

#include <string>

#include "cli/output.h"
#include "cli/terminal.h"

namespace headrace {

AnswerPrinter::AnswerPrinter() {
  if (is_terminal(STDOUT_FILENO)) wrap_.emplace(terminal_columns(STDOUT_FILENO));
}

bool AnswerPrinter::print(std::string_view piece) {
  return wrap_ ? write_output(wrap_->feed(piece)) : write_output(piece);
}

bool AnswerPrinter::finish(std::string_view end) {
  const std::string held = wrap_ ? wrap_->finish() : std::string();
  return write_output(held + std::string(end));
}

}  // namespace headrace
