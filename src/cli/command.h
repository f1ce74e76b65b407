// The commands of the program: one row each, one file each.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "options.h"

namespace headrace {

struct CommandRow {
  std::string_view name;             // "serve"
  std::string_view arguments;        // "[MODEL]", as the usage line prints it
  int min_arguments, max_arguments;  // max -1: any number
  std::string_view summary;          // one line of `headrace --help`
  std::string_view manual;           // what `headrace NAME --help` adds: explanation and examples
  // Runs the command. An error is printed as one line and gives exit status 1; 2 is a wrong usage.
  Result<int> (*run)(const Options& options);
};

std::span<const CommandRow> command_rows();

Result<int> run_serve(const Options& options);
Result<int> run_run(const Options& options);
Result<int> run_chat(const Options& options);
Result<int> run_pull(const Options& options);
Result<int> run_list(const Options& options);
Result<int> run_rm(const Options& options);
Result<int> run_ps(const Options& options);
Result<int> run_stop(const Options& options);
Result<int> run_doctor(const Options& options);
Result<int> run_manual(const Options& options);
Result<int> run_completion(const Options& options);
Result<int> run_inspect(const Options& options);
Result<int> run_tokenize(const Options& options);
Result<int> run_render(const Options& options);
Result<int> run_eval(const Options& options);
Result<int> run_verify(const Options& options);
Result<int> run_bench(const Options& options);
Result<int> run_plan(const Options& options);
Result<int> run_profile(const Options& options);
Result<int> run_lab(const Options& options);
Result<int> run_key(const Options& options);
Result<int> run_version(const Options& options);

}  // namespace headrace
