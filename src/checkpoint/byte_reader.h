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

// What a read reads, for the message of one that fails: put into words only then, since a file may
// hold a hundred thousand tensors and none that is wrong.
struct ReadWhat {
  std::string_view kind;  // "the key count", "tensor"
  std::string_view name;  // as the file spells it; empty: it has none

  ReadWhat(const char* words) : kind(words) {}  // NOLINT: implicit
  ReadWhat(std::string_view what, std::string_view spelled) : kind(what), name(spelled) {}
  std::string to_string() const;  // "tensor 'a.weight'"
};

class ByteReader {
 public:
  // `name` is the file's, for messages; it must outlive the reader.
  ByteReader(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), name_(name) {}

  size_t offset() const { return offset_; }
  size_t bytes_left() const { return bytes_.size() - offset_; }

  template <typename T>
  Result<T> read(const ReadWhat& what) {
    if (sizeof(T) > bytes_left()) [[unlikely]]
      return too_short(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  Result<std::span<const std::byte>> take(uint64_t num_bytes, const ReadWhat& what) {
    if (num_bytes > bytes_left()) [[unlikely]]
      return too_short(num_bytes, what);
    const auto taken = bytes_.subspan(offset_, num_bytes);
    offset_ += num_bytes;
    return taken;
  }

  // A GGUF string: u64 length, then the bytes. Refused when longer than max_bytes.
  Result<std::string_view> read_text(uint64_t max_bytes, const ReadWhat& what);

  // kCorrupt, prefixed with the file's name.
  template <typename... Args>
  Error corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kCorrupt, "{}: {}", name_,
                      fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  Error too_short(uint64_t num_bytes, const ReadWhat& what) const;

  std::span<const std::byte> bytes_;
  std::string_view name_;
  size_t offset_ = 0;
};

}  // namespace headrace
