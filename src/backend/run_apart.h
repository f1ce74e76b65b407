// Calls of a back end from a thread of their own, as an engine makes them: for what times ops.
#pragma once

#include <thread>

#include "backend/backend.h"

namespace headrace {

// Calls work() on a thread that keeps apart (Backend::keep_apart); returns when that has ended. The
// calling thread, and what it starts, may go on to run anywhere.
template <typename F>
void run_apart(Backend& backend, const F& work) {
  std::thread thread([&] {
    backend.keep_apart();
    work();
  });
  thread.join();
}

}  // namespace headrace
