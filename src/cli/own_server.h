// OwnServer: `headrace serve MODEL` as a child process on a free port, for a command that measures
// it. Ends with the object.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"

namespace headrace {

class OwnServer {
 public:
  // arguments: after `headrace serve`. Waits until it listens. kUnavailable with what it printed
  // last where it ends before.
  static Result<OwnServer> start(const std::vector<std::string>& arguments);
  ~OwnServer();
  OwnServer(OwnServer&& other) noexcept;
  OwnServer& operator=(OwnServer&&) = delete;

  const std::string& url() const { return url_; }

 private:
  OwnServer(pid_t process, Descriptor output) : process_(process), output_(std::move(output)) {}
  Status wait_until_it_listens();

  pid_t process_;
  Descriptor output_;
  std::string url_;
};

}  // namespace headrace
