#include "checkpoint/byte_reader.h"

#include "base/quote.h"

namespace headrace {

std::string ReadWhat::to_string() const {
  return name.empty() ? std::string(kind) : fmt::format("{} {}", kind, quote(name));
}

Error ByteReader::too_short(uint64_t num_bytes, const ReadWhat& what) const {
  Error error = corrupt("{} at byte {} needs {} bytes, the file has {} left", what.to_string(),
                        offset_, num_bytes, bytes_left());
  error.hint = "the file may be truncated: compare its size with the original and fetch it again";
  return error;
}

Result<std::string_view> ByteReader::read_text(uint64_t max_bytes, const ReadWhat& what) {
  const size_t start = offset_;
  const auto num_bytes = TRY(read<uint64_t>(what));
  if (num_bytes > max_bytes) {
    return corrupt("{} at byte {} is {} bytes long, at most {} are allowed", what.to_string(),
                   start, num_bytes, max_bytes);
  }
  const auto bytes = TRY(take(num_bytes, what));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace headrace
