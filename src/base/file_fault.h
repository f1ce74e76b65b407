// What happens when a mapped file is cut short, or its disk fails, while it is read: the system
// raises SIGBUS, and the process ends with one line that names the file, and status 1.
//
// Mappings are told here for as long as they live. The handler is installed with the first one; an
// address that is in none goes to the handler that was there before. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace headrace {

void watch_mapping(const void* begin, size_t num_bytes, const std::string& path);
void forget_mapping(const void* begin);

}  // namespace headrace
