#include "memory_count.h"

#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace {

std::atomic<int64_t> held_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void add(size_t num_bytes) {
  const int64_t now = held_bytes += static_cast<int64_t>(num_bytes);
  if (now > peak_bytes) peak_bytes = now;
}

void subtract(size_t num_bytes) { held_bytes -= static_cast<int64_t>(num_bytes); }

void* counted(void* memory) {
  if (memory != nullptr) add(malloc_usable_size(memory));
  return memory;
}

}  // namespace

extern "C" {

void* __real_malloc(size_t num_bytes);
void* __real_calloc(size_t count, size_t num_bytes);
void* __real_realloc(void* memory, size_t num_bytes);
void* __real_aligned_alloc(size_t alignment, size_t num_bytes);
int __real_posix_memalign(void** memory, size_t alignment, size_t num_bytes);
void __real_free(void* memory);
void* __real_mmap(void* address, size_t num_bytes, int protection, int flags, int file,
                  off_t offset);
int __real_munmap(void* address, size_t num_bytes);

void* __wrap_malloc(size_t num_bytes) { return counted(__real_malloc(num_bytes)); }

void* __wrap_calloc(size_t count, size_t num_bytes) {
  return counted(__real_calloc(count, num_bytes));
}

void* __wrap_realloc(void* memory, size_t num_bytes) {
  const size_t before = memory == nullptr ? 0 : malloc_usable_size(memory);
  void* moved = __real_realloc(memory, num_bytes);
  if (moved != nullptr || num_bytes == 0) subtract(before);
  return counted(moved);
}

void* __wrap_aligned_alloc(size_t alignment, size_t num_bytes) {
  return counted(__real_aligned_alloc(alignment, num_bytes));
}

int __wrap_posix_memalign(void** memory, size_t alignment, size_t num_bytes) {
  const int error = __real_posix_memalign(memory, alignment, num_bytes);
  if (error == 0) counted(*memory);
  return error;
}

void __wrap_free(void* memory) {
  if (memory != nullptr) subtract(malloc_usable_size(memory));
  __real_free(memory);
}

void* __wrap_mmap(void* address, size_t num_bytes, int protection, int flags, int file,
                  off_t offset) {
  void* memory = __real_mmap(address, num_bytes, protection, flags, file, offset);
  if (memory != MAP_FAILED) add(num_bytes);
  return memory;
}

int __wrap_munmap(void* address, size_t num_bytes) {
  subtract(num_bytes);
  return __real_munmap(address, num_bytes);
}

}  // extern "C"

namespace headrace::fuzz {

int64_t reset_memory_peak() {
  peak_bytes = held_bytes.load();
  return peak_bytes;
}

int64_t memory_peak() { return peak_bytes; }

}  // namespace headrace::fuzz
