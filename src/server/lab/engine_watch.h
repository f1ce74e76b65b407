// EngineWatch: other servers' figures, for the page of a laboratory. Asked about once a second, and
// only while somebody wants to know.
//
// Thread-safe. Each server has a thread of its own, so one that hangs delays no other.
#pragma once

#include <boost/json/object.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace headrace::lab {

inline constexpr size_t kMaxWatchedEngines = 16;

class EngineWatch {
 public:
  // urls: "http://host:port" of servers of headrace; kInvalidArgument for what is none, or too
  // many.
  static Result<std::unique_ptr<EngineWatch>> create(const std::vector<std::string>& urls);
  ~EngineWatch();

  // The members of docs/lab-api.md, engines of /machine, in order of the addresses. Asks for newer
  // ones, which come later.
  std::vector<boost::json::object> look();

 private:
  struct Engine {
    std::string url;
    boost::json::object seen;
    std::thread thread;
  };
  explicit EngineWatch(const std::vector<std::string>& urls);
  void run(Engine& engine);

  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Engine>> engines_;  // constant
  TimeUs wanted_us_ = 0;                          // when somebody asked last; 0: nobody did
  bool closed_ = false;
};

}  // namespace headrace::lab
