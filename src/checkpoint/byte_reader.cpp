#include "checkpoint/byte_reader.h"

namespace headrace {

Result<std::span<const std::byte>> ByteReader::take(uint64_t num_bytes, std::string_view what) {
  if (num_bytes > bytes_left()) {
    Error error = corrupt("{} at byte {} needs {} bytes, the file has {} left", what, offset_,
                          num_bytes, bytes_left());
    error.hint = "the file may be truncated: compare its size with the original and fetch it again";
    return error;
  }
  const auto taken = bytes_.subspan(offset_, num_bytes);
  offset_ += num_bytes;
  return taken;
}

Result<std::string_view> ByteReader::read_text(uint64_t max_bytes, std::string_view what) {
  const size_t start = offset_;
  const auto num_bytes = TRY(read<uint64_t>(what));
  if (num_bytes > max_bytes) {
    return corrupt("{} at byte {} is {} bytes long, at most {} are allowed", what, start, num_bytes,
                   max_bytes);
  }
  const auto bytes = TRY(take(num_bytes, what));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace headrace
