// Memory or threads that the system refuses while a program starts: one line, and exit status 1.
//
// Sizes that are known beforehand are checked and refused as a Result; this is for the rest, on any
// thread: an allocation or a thread that fails, in our code or in a library's. Once a server
// answers requests, shortage is theirs to end with.
#pragma once

#include <cstddef>

namespace headrace {

// From here on shortage ends the process. Called once, by main().
void exit_on_memory_shortage();
// What the start is known to need, for the line.
void note_memory_needed(size_t num_bytes);
// From here on shortage is an exception as usual.
void end_of_start();

}  // namespace headrace
