// run_process: a program of an experiment, within limits of time, memory and output.
//
// The program gets a process group of its own, which ends with it: nobody outlives a run. Memory is
// that of the group's processes together, looked at twenty times a second.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/records.h"

namespace headrace::lab {

struct ProcessResult {
  std::string output;   // what it printed
  std::string problem;  // not empty: why the run does not count ("exceeded 10 s", "exit status 3")
  double seconds = 0;
  bool was_stopped = false;  // that is its problem
};

// folder: where it runs, which exists. environment: added to the caller's. errors_path: a file for
// what it writes to standard error, which may be as much as it may print. An error only when no
// process could be started. stops: asked twenty times a second whether to end it; may be empty.
Result<ProcessResult> run_process(const std::vector<std::string>& command,
                                  const std::string& folder,
                                  const std::map<std::string, std::string>& environment,
                                  const std::string& errors_path, const Limits& limits,
                                  const std::function<bool()>& stops = {});

}  // namespace headrace::lab
