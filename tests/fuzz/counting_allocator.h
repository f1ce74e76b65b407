// Counts the bytes that operator new holds in this process. Linked into a test, it replaces the
// global operators. Single-threaded counting; other threads' allocations count too.
#pragma once

#include <cstddef>

namespace headrace::fuzz {

// Sets the peak to what is held now, and returns that.
size_t reset_allocation_peak();
// The most bytes held at once since then.
size_t allocation_peak();

}  // namespace headrace::fuzz
