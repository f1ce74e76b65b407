// Counts the memory that this process holds from malloc and its relatives and from mmap, Rust's
// included. A program that links it wraps those symbols (CMakeLists.txt); with
// counting_allocator.cpp operator new goes through them too. Mapped memory counts as its size,
// touched or not. Memory that a shared library takes and this program gives back, or the reverse,
// makes the absolute number drift: only differences over a short time mean something.
#pragma once

#include <cstdint>

namespace headrace::fuzz {

// Sets the peak to what is held now, and returns that.
int64_t reset_memory_peak();
// The most bytes held at once since then.
int64_t memory_peak();

}  // namespace headrace::fuzz
