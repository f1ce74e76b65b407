// Asks for memory that is needed soon, so that what lies in many places comes side by side and not
// one line after the other. A hint: reads nothing, and no address is wrong.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

inline constexpr size_t kCacheLineBytes = 64;

enum class PrefetchFor { kRead, kWrite };

template <PrefetchFor kUse = PrefetchFor::kRead>
inline void prefetch(const void* first, size_t num_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(first);  // a null pointer must not be added to
  for (size_t at = 0; at < num_bytes; at += kCacheLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(address + at), kUse == PrefetchFor::kWrite);
  }
}

}  // namespace headrace
