#include "base/memory_shortage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

namespace headrace {
namespace {

std::atomic<size_t> needed_bytes = 0;
std::terminate_handler previous_terminate = nullptr;

// Nothing here may allocate.
class Line {
 public:
  void add(const char* text) {
    const size_t count = std::min(std::strlen(text), sizeof(text_) - size_);
    std::memcpy(text_ + size_, text, count);
    size_ += count;
  }
  void add_mib(size_t num_bytes) {
    char number[32];
    std::snprintf(number, sizeof(number), "%zu MiB", num_bytes >> 20);
    add(number);
  }
  [[noreturn]] void exit() {
    if (::write(STDERR_FILENO, text_, size_) < 0) _exit(1);
    _exit(1);
  }

 private:
  char text_[512];
  size_t size_ = 0;
};

void add_limit(Line* line, int resource, const char* what) {
  struct rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  line->add("; ");
  line->add(what);
  line->add(" is limited to ");
  line->add_mib(limit.rlim_cur);
}

[[noreturn]] void end_for_memory() {
  Line line;
  line.add("headrace: not enough memory to start");
  if (const size_t needed = needed_bytes.load(); needed > 0) {
    line.add(": about ");
    line.add_mib(needed);
    line.add(" are needed");
  }
  add_limit(&line, RLIMIT_AS, "address space");
  add_limit(&line, RLIMIT_DATA, "data");
  line.add(" (raise the limit, end other programs, or take a smaller model)\n");
  line.exit();
}

[[noreturn]] void end_for_threads(const char* reason) {
  Line line;
  line.add("headrace: the system refused a thread: ");
  line.add(reason);
  add_limit(&line, RLIMIT_AS, "address space");
  line.add(" (raise the limits of threads and memory, or give a smaller --threads)\n");
  line.exit();
}

// An exception that nobody catches, or a thread object left behind by one.
void on_terminate() {
  try {
    if (const std::exception_ptr current = std::current_exception()) {
      std::rethrow_exception(current);
    }
  } catch (const std::bad_alloc&) {
    end_for_memory();
  } catch (const std::system_error& error) {
    end_for_threads(std::strerror(error.code().value()));
  } catch (...) {  // a bug: reported as always
  }
  previous_terminate();
}

}  // namespace

void exit_on_memory_shortage() {
  std::set_new_handler(end_for_memory);
  previous_terminate = std::set_terminate(on_terminate);
}

void note_memory_needed(size_t num_bytes) { needed_bytes.store(num_bytes); }

void end_of_start() {
  std::set_new_handler(nullptr);
  if (previous_terminate != nullptr) std::set_terminate(previous_terminate);
}

}  // namespace headrace
