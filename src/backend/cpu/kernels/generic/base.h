// Shared pieces of the sealed units: compile-time loops and small helpers without the standard
// library. Everything here has internal linkage, so that no unit's code can replace another's.
//
// The generic algorithms take a vector wrapper F. F::V holds 16 floats and F::I 16 uint32, whatever
// the registers of the instruction set; lane n of a panel is lane n of F::V. Because all units use
// the same 16 lanes and the same order of operations, their results agree bit for bit.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/layouts.h"

namespace headrace::cpu {
namespace {

template <int kValue>
struct Index {
  static constexpr int value = kValue;
};

// fn(Index<kFirst>{}), ..., fn(Index<kEnd - 1>{}).
template <int kFirst, int kEnd, typename Fn>
[[gnu::always_inline]] inline constexpr void unrolled(const Fn& fn) {
  if constexpr (kFirst < kEnd) {
    fn(Index<kFirst>{});
    unrolled<kFirst + 1, kEnd>(fn);
  }
}

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
[[gnu::always_inline]] inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace
}  // namespace headrace::cpu
