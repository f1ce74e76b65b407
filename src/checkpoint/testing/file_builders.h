// Builds GGUF and safetensors files in memory, valid or broken on purpose. For tests only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"

namespace headrace::testing {

class ByteWriter {
 public:
  template <typename T>
  ByteWriter& put(T value) {
    const size_t offset = bytes_.size();
    bytes_.resize(offset + sizeof(T));
    std::memcpy(bytes_.data() + offset, &value, sizeof(T));
    return *this;
  }
  ByteWriter& raw(std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), data, data + text.size());
    return *this;
  }
  // u64 length, then the bytes.
  ByteWriter& text(std::string_view text) { return put(uint64_t{text.size()}).raw(text); }
  ByteWriter& zeros(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  // Finite values of any type, the same again every 61 bytes.
  ByteWriter& pattern(size_t count) {
    static const std::string kBytes = [] {
      std::string bytes(61 * 64, 0);
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 % 61);
      return bytes;
    }();
    bytes_.reserve(bytes_.size() + count);
    for (size_t size; count > 0; count -= size) {
      size = std::min(count, kBytes.size());
      raw(std::string_view(kBytes).substr(0, size));
    }
    return *this;
  }
  ByteWriter& pad_to(size_t multiple) {
    return zeros((multiple - bytes_.size() % multiple) % multiple);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

// GGUF value type ids.
enum GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Keys and tensors are collected and counted; build() lays the file out.
class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& key(std::string_view name, GgufType type, T value) {
    begin_key(name, type).put(value);
    return *this;
  }
  GgufBuilder& text_key(std::string_view name, std::string_view value) {
    begin_key(name, kString).text(value);
    return *this;
  }
  template <typename T>
  GgufBuilder& array_key(std::string_view name, GgufType type, const std::vector<T>& values) {
    begin_key(name, kArray).put(uint32_t{type}).put(uint64_t{values.size()});
    for (const T value : values) keys_.put(value);
    return *this;
  }
  GgufBuilder& texts_key(std::string_view name, const std::vector<std::string>& values) {
    begin_key(name, kArray).put(uint32_t{kString}).put(uint64_t{values.size()});
    for (const std::string& value : values) keys_.text(value);
    return *this;
  }
  // A key whose type and value bytes the caller writes to the result.
  ByteWriter& raw_key(std::string_view name) {
    ++num_keys_;
    return keys_.text(name);
  }

  // Sizes fastest first, as in the file; data is a repeating pattern of finite values.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& sizes, DType dtype) {
    const DTypeRow& row = dtype_row(dtype);
    uint64_t num_elements = 1;
    for (const uint64_t size : sizes) num_elements *= size;
    const size_t num_bytes = num_elements / row.block_elements * row.block_bytes;
    raw_tensor(name, sizes, static_cast<uint32_t>(row.gguf_id), data_.size());
    data_.pattern(num_bytes).pad_to(alignment_);
    return *this;
  }
  // A tensor info only.
  GgufBuilder& raw_tensor(std::string_view name, const std::vector<uint64_t>& sizes,
                          uint32_t type_id, uint64_t offset) {
    ++num_tensors_;
    infos_.text(name).put(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) infos_.put(size);
    infos_.put(type_id).put(offset);
    return *this;
  }
  GgufBuilder& data(size_t num_bytes) {
    data_.zeros(num_bytes);
    return *this;
  }
  GgufBuilder& alignment(uint32_t alignment) {
    alignment_ = alignment;
    return key("general.alignment", kU32, alignment);
  }

  std::vector<std::byte> build(uint32_t version = 3) const {
    ByteWriter file;
    file.raw("GGUF").put(version).put(num_tensors_).put(num_keys_);
    file.raw(view(keys_)).raw(view(infos_));
    if (data_.size() > 0) file.pad_to(alignment_).raw(view(data_));
    return file.bytes();
  }

 private:
  ByteWriter& begin_key(std::string_view name, GgufType type) {
    return raw_key(name).put(uint32_t{type});
  }
  static std::string_view view(const ByteWriter& writer) {
    return {reinterpret_cast<const char*>(writer.bytes().data()), writer.size()};
  }

  ByteWriter keys_;
  ByteWriter infos_;
  ByteWriter data_;
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  uint32_t alignment_ = 32;
};

// The length, the header text as given, then num_data_bytes of a pattern.
inline std::vector<std::byte> safetensors_file(std::string_view header, size_t num_data_bytes) {
  return ByteWriter().text(header).pattern(num_data_bytes).bytes();
}

// One entry of a safetensors header: "NAME":{"dtype":...}.
inline std::string safetensors_entry(std::string_view name, std::string_view dtype,
                                     std::string_view shape, size_t begin, size_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
                     shape, begin, end);
}

inline void write_file(const std::string& path, std::span<const std::byte> bytes) {
  FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file != nullptr, "{}", path);
  CHECK(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size(), "{}", path);
  CHECK(std::fclose(file) == 0, "{}", path);
}

}  // namespace headrace::testing
