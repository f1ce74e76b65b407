// RenderProcess: a process of its own in which one chat template is compiled and rendered.
//
// Template code comes from a model file, and what one of its steps costs has no bound that the
// template engine could keep (docs/adr/0009). The process keeps them: it has a budget of memory and
// of wall time for each render and ends when one is exceeded. The system then takes back
// everything, and the next call starts another. Runs this same program (/proc/self/exe) under
// another name; code in render_process.cpp that runs before main sees the name and never returns.
// A library that others load names a program that has this code too (set_program).
//
// Thread-safe: calls go one after another.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

class RenderProcess {
 public:
  // See ChatTemplate::create.
  RenderProcess(std::string_view source, std::string_view special_tokens_json,
                std::string_view plain_json)
      : source_(source), special_tokens_json_(special_tokens_json), plain_json_(plain_json) {}
  ~RenderProcess() { end(); }
  RenderProcess(const RenderProcess&) = delete;
  RenderProcess& operator=(const RenderProcess&) = delete;

  // The program that the processes run from now on; before the first one starts.
  static void set_program(std::string path);

  // Starts the process and compiles the template there.
  Status start();
  // kInvalidArgument: the template's own words, or the limit that the render went over; the next
  // call works. kExhausted: too large for any render, memory is short, or another render takes
  // long.
  Result<std::string> render(std::string_view options_json, std::string_view now);

 private:
  // One caller at a time has what follows the turn. A timed mutex would say the same, but the
  // thread sanitizer does not see its timed lock.
  class Turn;

  Status start_in_turn();
  Result<std::string> call(std::string_view first, std::string_view second, std::string_view third);
  Error ended();  // why the process is gone; leaves none
  void end();

  const std::string source_;
  const std::string special_tokens_json_;
  const std::string plain_json_;
  std::mutex mutex_;  // guards is_taken_
  std::condition_variable is_free_;
  bool is_taken_ = false;
  pid_t pid_ = -1;    // none if negative
  int channel_ = -1;  // a stream socket
};

}  // namespace headrace
