#include "base/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace headrace {

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

Error open_error(const std::string& path) {
  const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return make_error(code, "cannot open '{}': {}", path, std::strerror(errno));
}

Result<Descriptor> open_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return open_error(path);
  return file;
}

Status read_at(int descriptor, size_t offset, std::span<std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor, bytes.data(), std::min(bytes.size(), size_t{1} << 30),
                                  static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return make_error(ErrorCode::kIo, "cannot read '{}': {}", path, std::strerror(errno));
    }
    if (count == 0) {
      return make_error(ErrorCode::kIo, "'{}' ends at byte {}, {} more were expected", path, offset,
                        bytes.size());
    }
    offset += static_cast<size_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace headrace
