// Counts the calls of operator new and the bytes that it holds in this process. Linked into a test,
// it replaces the global operators. Single-threaded counting; other threads' allocations count too.
#pragma once

#include <cstddef>

namespace headrace::fuzz {

// Sets the peak to what is held now, and returns that.
size_t reset_allocation_peak();
// The most bytes held at once since then.
size_t allocation_peak();
// Calls of operator new since the process started.
size_t num_allocations();

}  // namespace headrace::fuzz
