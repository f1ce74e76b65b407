// How much memory this process can still get, and what stands in the way of more.
//
// The least of: what the system calls available; what each control group above the process leaves
// (memory.max and memory.high, or version 1's limit, less what is used and cannot be reclaimed);
// RLIMIT_AS and RLIMIT_DATA less what is mapped, and of the former less what stacks and allocators
// will reserve. A moment's figure: others take memory too.
// Thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace headrace {

struct MemorySupply {
  size_t bytes = SIZE_MAX;  // SIZE_MAX: nothing tells a limit
  std::string bound_by;     // "free memory", "the control group '/...'", "the address space limit"
  std::string remedy;       // what gives more
};

// `root` is the file system root, for tests.
MemorySupply memory_supply(const std::string& root = "");
size_t available_memory_bytes(const std::string& root = "");

}  // namespace headrace
