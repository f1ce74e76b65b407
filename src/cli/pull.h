// Getting a model with progress on standard error: a bar on a terminal, lines otherwise.
#pragma once

#include <string>

#include "base/result.h"

namespace headrace {

struct PullArgs {
  std::string spec;       // a name that checkpoint/hub.h knows
  std::string store_dir;  // empty: the default store
  bool quiet = false;
};

// The path of the model in the store; returns at once if it is there.
Result<std::string> pull_with_progress(const PullArgs& args);

}  // namespace headrace
