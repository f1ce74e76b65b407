// Descriptor: an open file, closed when the object goes. open_file(), read_at(): files for reading,
// or why not.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace headrace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}  // -1: none
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return value_; }
  bool ok() const { return value_ >= 0; }

 private:
  int value_;
};

// For reading; does not wait for the other end of a FIFO. kNotFound, or kIo with the system's
// reason.
Result<Descriptor> open_file(const std::string& path);
// What errno says of a path that could not be opened.
Error open_error(const std::string& path);
// Fills `bytes` from the file's bytes at `offset`. kIo with the system's reason, or when the file
// ends before; `path` is for the message.
Status read_at(int descriptor, size_t offset, std::span<std::byte> bytes, const std::string& path);

}  // namespace headrace
