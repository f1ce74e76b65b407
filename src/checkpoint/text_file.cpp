#include "checkpoint/text_file.h"

#include "base/buffer.h"

namespace headrace {

Result<std::string> read_text_file(const std::string& path, size_t max_bytes) {
  const MappedFile file = TRY(MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > max_bytes) {
    return make_error(ErrorCode::kExhausted, "'{}' has {} bytes, at most {} are read", path,
                      bytes.size(), max_bytes);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace headrace
