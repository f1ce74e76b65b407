// For tests: the program as a user starts it. HEADRACE_BINARY is its path (a definition of the
// test's target).
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/testing/temp_folder.h"

namespace headrace::testing {

struct Outcome {
  int status = -1;   // exit status; 128 + the signal that ended it
  std::string text;  // standard output and standard error together
};

// Runs `headrace ARGUMENTS` as a shell reads them, with a model store of its own and no input.
// `environment`: further "NAME=VALUE ..." before the program.
inline Outcome run_program(const std::string& arguments, const std::string& environment = "") {
  static const TempFolder store;  // of this process
  const std::string command = "HEADRACE_STORE='" + store.path() + "' " + environment +
                              " '" HEADRACE_BINARY "' " + arguments + " 2>&1 < /dev/null";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> chunk{};
  while (const size_t count = fread(chunk.data(), 1, chunk.size(), pipe)) {
    outcome.text.append(chunk.data(), count);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace headrace::testing
