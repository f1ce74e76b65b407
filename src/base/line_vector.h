// LineVector: a std::vector whose values begin at a cache line, for loops over vectors as wide as
// one: those that lie across two lines are read and written at half the speed.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace headrace {

template <typename T>
struct LineAllocator {
  static constexpr std::align_val_t kLine{64};
  using value_type = T;

  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>& /*other*/) {}

  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* values, size_t /*count*/) { ::operator delete(values, kLine); }
  bool operator==(const LineAllocator& /*other*/) const { return true; }
};

template <typename T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace headrace
