// LoadedModels: what `headrace serve` loads, in the process of whoever loads it, behind a
// LocalServer. All such loads of a process share a team of threads.
//
// Thread-safe. Belongs to the process that made it: in a child of that process, which has none of
// its threads, it does nothing but say so.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/served_models.h"
#include "options.h"
#include "server/local_server.h"

namespace headrace::python {

struct LoadRequest {
  std::string model;                            // path or name
  OptionTexts options;                          // of `headrace serve`
  std::map<std::string, std::string> adapters;  // name -> folder
};

class LoadedModels {
 public:
  // kInvalidArgument names the option; else as open_served_models() and AdapterRegistry::load().
  // kExhausted where the system refuses memory or threads.
  static Result<std::unique_ptr<LoadedModels>> load(const LoadRequest& request);
  ~LoadedModels();

  // kUnavailable once closed, and in another process than load() was called in.
  Result<std::shared_ptr<LocalAnswer>> ask(std::string_view method, std::string_view path,
                                           std::string body);
  // Cancels what runs and gives back memory and threads.
  void close();
  bool is_own_process() const;

 private:
  explicit LoadedModels(Options options) : process_(getpid()), options_(std::move(options)) {}
  Status open(const LoadRequest& request);

  const pid_t process_;
  const Options options_;  // outlives the runtimes
  std::vector<std::unique_ptr<Runtime>> runtimes_;
  std::mutex mutex_;                     // guards what follows
  std::shared_ptr<LocalServer> server_;  // null: closed. Goes before the runtimes
};

}  // namespace headrace::python
