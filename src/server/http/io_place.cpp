#include "server/http/io_place.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kTasksOfATurn = 32;

}  // namespace

void IoPlace::take(std::vector<std::function<void()>> tasks) { post(std::move(tasks), 0); }

void IoPlace::post(std::vector<std::function<void()>> tasks, size_t first) {
  boost::asio::post(io_, [self = shared_from_this(), tasks = std::move(tasks), first]() mutable {
    const size_t end = std::min(first + kTasksOfATurn, tasks.size());
    for (size_t i = first; i < end; ++i) std::exchange(tasks[i], nullptr)();
    if (end < tasks.size()) self->post(std::move(tasks), end);
  });
}

}  // namespace headrace
