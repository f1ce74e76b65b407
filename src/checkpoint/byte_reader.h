// ByteReader: reads a file front to back without ever leaving it.
//
// A value type over borrowed bytes. Every read names what it reads, so that an error can say what
// the file lacks and where. Little-endian, as GGUF and safetensors are; so is every target.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

static_assert(std::endian::native == std::endian::little);

class ByteReader {
 public:
  // `name` is the file's, for messages; it must outlive the reader.
  ByteReader(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), name_(name) {}

  size_t offset() const { return offset_; }
  size_t bytes_left() const { return bytes_.size() - offset_; }

  template <typename T>
  Result<T> read(std::string_view what) {
    T value;
    const auto source = TRY(take(sizeof(T), what));
    std::memcpy(&value, source.data(), sizeof(T));
    return value;
  }

  Result<std::span<const std::byte>> take(uint64_t num_bytes, std::string_view what);

  // A GGUF string: u64 length, then the bytes. Refused when longer than max_bytes.
  Result<std::string_view> read_text(uint64_t max_bytes, std::string_view what);

  // kCorrupt, prefixed with the file's name.
  template <typename... Args>
  Error corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kCorrupt, "{}: {}", name_,
                      fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view name_;
  size_t offset_ = 0;
};

}  // namespace headrace
