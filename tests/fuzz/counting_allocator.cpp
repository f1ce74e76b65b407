#include "counting_allocator.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> held_bytes{0};
std::atomic<size_t> peak_bytes{0};
std::atomic<size_t> num_calls{0};

void* counted(void* memory) {
  if (memory == nullptr) return nullptr;
  ++num_calls;
  const size_t now = held_bytes += malloc_usable_size(memory);
  if (now > peak_bytes) peak_bytes = now;
  return memory;
}

void* counted_allocate_or_null(size_t num_bytes) { return counted(std::malloc(num_bytes)); }

void* counted_allocate(size_t num_bytes, size_t alignment) {
  void* const memory = alignment > alignof(std::max_align_t)
                           ? counted(std::aligned_alloc(
                                 alignment, (num_bytes + alignment - 1) / alignment * alignment))
                           : counted_allocate_or_null(num_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void counted_free(void* memory) {
  if (memory == nullptr) return;
  held_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t num_bytes) { return counted_allocate(num_bytes, 1); }
void* operator new[](size_t num_bytes) { return counted_allocate(num_bytes, 1); }
void* operator new(size_t num_bytes, std::align_val_t alignment) {
  return counted_allocate(num_bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t num_bytes, std::align_val_t alignment) {
  return counted_allocate(num_bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept {
  return counted_allocate_or_null(num_bytes);
}
void* operator new[](size_t num_bytes, const std::nothrow_t&) noexcept {
  return counted_allocate_or_null(num_bytes);
}
void operator delete(void* memory) noexcept { counted_free(memory); }
void operator delete[](void* memory) noexcept { counted_free(memory); }
void operator delete(void* memory, size_t) noexcept { counted_free(memory); }
void operator delete[](void* memory, size_t) noexcept { counted_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { counted_free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { counted_free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { counted_free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { counted_free(memory); }

namespace headrace::fuzz {

size_t reset_allocation_peak() {
  peak_bytes = held_bytes.load();
  return peak_bytes;
}

size_t allocation_peak() { return peak_bytes; }

size_t num_allocations() { return num_calls; }

}  // namespace headrace::fuzz
