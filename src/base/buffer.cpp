#include "base/buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kLargePageThreshold = size_t{4} << 20;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Maps num_bytes at a kLargePage boundary by mapping more and giving the ends back.
void* map_aligned(size_t num_bytes) {
  const size_t padded = num_bytes + kLargePage;
  void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, kLargePage);
  if (aligned > start) munmap(raw, aligned - start);
  const size_t tail = start + padded - (aligned + num_bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + num_bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, num_bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

Result<Buffer> Buffer::allocate(size_t num_bytes) {
  Buffer buffer;
  if (num_bytes == 0) return buffer;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (num_bytes > SIZE_MAX - 2 * kLargePage) {
    return make_error(ErrorCode::kExhausted, "cannot allocate {} bytes", num_bytes);
  }
  const size_t rounded = round_up(num_bytes, page);
  const bool large = rounded >= kLargePageThreshold;
  void* memory =
      large ? map_aligned(rounded)
            : mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == nullptr || memory == MAP_FAILED) {
    return make_error(ErrorCode::kExhausted, "cannot allocate {} bytes: {}", num_bytes,
                      std::strerror(errno));
  }
  if (large) madvise(memory, rounded, MADV_HUGEPAGE);  // advice only: small pages also work
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.num_bytes_ = rounded;
  return buffer;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), num_bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)),
      path_(std::move(other.path_)),
      stamp_(other.stamp_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  std::swap(path_, other.path_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, "cannot open '{}': {}", path, std::strerror(errno));
  }
  struct stat info{};
  const bool regular = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) {
    ::close(descriptor);
    return make_error(ErrorCode::kIo, "cannot read '{}': it is not a regular file", path);
  }
  MappedFile file;
  file.path_ = path;
  file.num_bytes_ = static_cast<size_t>(info.st_size);
  file.stamp_ = {info.st_dev, info.st_ino, file.num_bytes_, nanoseconds(info.st_mtim),
                 nanoseconds(info.st_ctim)};
  if (file.num_bytes_ > 0) {
    void* memory = mmap(nullptr, file.num_bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory == MAP_FAILED) {
      const int reason = errno;
      ::close(descriptor);
      file.num_bytes_ = 0;
      return make_error(ErrorCode::kIo, "cannot map '{}': {}", path, std::strerror(reason));
    }
    file.data_ = static_cast<const std::byte*>(memory);
  }
  ::close(descriptor);
  return file;
}

void MappedFile::release_pages(size_t offset, size_t num_bytes) const {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = round_up(offset, page);
  const size_t end = (offset + num_bytes) / page * page;
  if (end <= begin || end > num_bytes_) return;
  madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace headrace
