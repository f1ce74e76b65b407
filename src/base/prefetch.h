// Asks for memory that is needed soon, so that what lies in many places comes side by side and not
// one line after the other. A hint: reads nothing, and no address is wrong.
#pragma once

#include <cstddef>

namespace headrace {

inline constexpr size_t kCacheLineBytes = 64;

enum class PrefetchFor { kRead, kWrite };

template <PrefetchFor kUse = PrefetchFor::kRead>
inline void prefetch(const void* first, size_t num_bytes) {
  const char* const bytes = static_cast<const char*>(first);
  for (size_t at = 0; at < num_bytes; at += kCacheLineBytes) {
    __builtin_prefetch(bytes + at, kUse == PrefetchFor::kWrite);
  }
}

}  // namespace headrace
