#include "server/api/answer_id.h"

#include <fmt/format.h>

#include <random>

namespace headrace {

std::string fresh_answer_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), random() & 0xFFFFFFFFu);
}

}  // namespace headrace
