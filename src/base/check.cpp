#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headrace {

void check_failed(const char* file, int line, const char* condition, const std::string& details) {
  std::fprintf(stderr, "%s:%d: bug in headrace: CHECK(%s) failed%s%s\n", file, line, condition,
               details.empty() ? "" : ": ", details.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace headrace
