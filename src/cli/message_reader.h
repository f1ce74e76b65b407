// MessageReader: what a person says in one go: a line, pasted lines, or a block of lines between
// triple double quotes.
#pragma once

#include <functional>
#include <string>

#include "cli/line_reader.h"

namespace headrace {

class MessageReader {
 public:
  // read_line(prompt): LineReader::read, or what a test puts in its place.
  explicit MessageReader(std::function<ReadLine(const std::string&)> read_line)
      : read_line_(std::move(read_line)) {}

  // kLine: a whole message. An interrupted block is dropped; one that the end of the input cuts
  // counts as it is.
  ReadLine read();

 private:
  std::function<ReadLine(const std::string&)> read_line_;
};

}  // namespace headrace
