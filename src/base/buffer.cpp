#include "base/buffer.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/file_fault.h"
#include "base/strings.h"
#include "base/system_memory.h"

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

constexpr int64_t kTickNs = 20'000'000;  // longer than the system's ticks, which stamp writes

FileStamp stamp_from(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size), nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

Error out_of_memory(std::string_view what, size_t num_bytes) {
  const MemorySupply supply = memory_supply();
  Error error = make_error(ErrorCode::kExhausted, "not enough memory to {} {}: {} leaves {}", what,
                           format_bytes(num_bytes), supply.bound_by, format_bytes(supply.bytes));
  error.hint = fmt::format("{}, or take a smaller model", supply.remedy);
  return error;
}

Error irregular(const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot read '{}': it is not a regular file", path);
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
    return out_of_memory("allocate", num_bytes);
  }
  const size_t rounded = round_up(num_bytes, page);
  const bool large = rounded >= kLargePageThreshold;
  void* memory =
      large ? map_aligned(rounded)
            : mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == nullptr || memory == MAP_FAILED) {
    return out_of_memory("allocate", num_bytes);
  }
  if (large) madvise(memory, rounded, MADV_HUGEPAGE);  // advice only: small pages also work
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.num_bytes_ = rounded;
  return buffer;
}

void touch_pages(std::span<std::byte> bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = start / page * page;
  const uintptr_t end = round_up(start + bytes.size(), page);
  if (bytes.empty()) return;
  // Not by madvise(), which holds the lock of the address space while a page is cleared, and who
  // then asks for memory waits. Adds nothing to a byte, also where another thread writes it.
  for (uintptr_t at = first; at < end; at += page) {
    __asm__ volatile("lock orb $0, %0" : "+m"(*reinterpret_cast<uint8_t*>(at)));
  }
}

Result<FileStamp> FileStamp::of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return open_error(path);
  if (!S_ISREG(info.st_mode)) return irregular(path);
  return stamp_from(info);
}

Result<FileStamp> FileStamp::of(int descriptor, const std::string& path) {
  struct stat info{};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return irregular(path);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age =
      nanoseconds(now) - std::max(nanoseconds(info.st_mtim), nanoseconds(info.st_ctim));
  if (age >= 0 && age < kTickNs) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kTickNs - age));
    if (fstat(descriptor, &info) != 0) return irregular(path);
  }
  return stamp_from(info);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  munmap(const_cast<std::byte*>(data_), num_bytes_);
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
  const Descriptor descriptor = TRY(open_file(path));
  const FileStamp stamp = TRY(FileStamp::of(descriptor.get(), path));
  MappedFile file;
  if (stamp.num_bytes > 0) {
    void* memory = mmap(nullptr, stamp.num_bytes, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
    if (memory == MAP_FAILED) {
      if (errno == ENOMEM) return out_of_memory("map '" + path + "',", stamp.num_bytes);
      return make_error(ErrorCode::kIo, "cannot map '{}': {}", path, std::strerror(errno));
    }
    file.data_ = static_cast<const std::byte*>(memory);
    file.num_bytes_ = stamp.num_bytes;
    watch_mapping(memory, file.num_bytes_, path);
  }
  file.path_ = path;
  file.stamp_ = stamp;
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
