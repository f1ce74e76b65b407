// Buffer: owning memory for weights, KV and activations. MappedFile: a file as read-only bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace headrace {

// 64-byte aligned (2 MiB aligned and advised to large pages above 4 MiB), zero-filled, move-only.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // kExhausted with the size asked for when the system refuses.
  static Result<Buffer> allocate(size_t num_bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return num_bytes_; }
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), num_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), num_bytes_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t num_bytes_ = 0;
};

// Has the system give memory for these bytes of a buffer, where it has not yet: their contents
// stay, also while others write them. From any thread.
void touch_pages(std::span<std::byte> bytes);

// What the system says of a file's state: any write, replacement or copy changes it (ctime cannot
// be set), but for writes through a mapping that were begun earlier, and for a second write within
// one tick of the file system's clock.
struct FileStamp {
  uint64_t device = 0, inode = 0, num_bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  bool operator==(const FileStamp&) const = default;

  // kNotFound, or kIo: no regular file, or the system's reason.
  static Result<FileStamp> of(const std::string& path);
  // Of an open file. Waits for the end of the tick in which it was written last, so that a later
  // write shows.
  static Result<FileStamp> of(int descriptor, const std::string& path);
};

// A regular file mapped read-only for the life of the object. The size is taken once, when opened;
// a file that is truncated later ends the process at the next access (base/file_fault.h), and one
// that is overwritten shows other bytes: who reads it looks at its stamp again afterwards, and
// nothing stays mapped once a model is loaded.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // kNotFound, or kIo with the system's reason. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const { return {data_, num_bytes_}; }
  const std::string& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }  // when opened
  // Tells the system that a range will not be read again soon (after packing).
  void release_pages(size_t offset, size_t num_bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t num_bytes_ = 0;
  std::string path_;
  FileStamp stamp_;
};

}  // namespace headrace
