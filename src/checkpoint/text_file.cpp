#include "checkpoint/text_file.h"

#include <span>

#include "base/descriptor.h"

namespace headrace {

Result<std::string> read_text_file(const std::string& path, size_t max_bytes, FileStamp* stamp) {
  const Descriptor file = TRY(open_file(path));
  const FileStamp found = TRY(FileStamp::of(file.get(), path));
  if (stamp != nullptr) *stamp = found;
  if (found.num_bytes > max_bytes) {
    return make_error(ErrorCode::kExhausted, "'{}' has {} bytes, at most {} are read", path,
                      found.num_bytes, max_bytes);
  }
  std::string text(found.num_bytes, 0);
  TRY(read_at(file.get(), 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace headrace
