// IoPlace: the I/O threads of a server as a place for work that other threads hand over. Inside
// this folder only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "base/handover.h"

namespace headrace {

// One thread is woken for all. It does some, then goes to the end of the queue with the others, so
// that connections get their turn. The context outlives whatever is handed over.
class IoPlace final : public HandoverPlace, public std::enable_shared_from_this<IoPlace> {
 public:
  explicit IoPlace(boost::asio::io_context& io) : io_(io) {}
  void take(std::vector<std::function<void()>> tasks) override;

 private:
  void post(std::vector<std::function<void()>> tasks, size_t first);

  boost::asio::io_context& io_;
};

}  // namespace headrace
