// Transport: how a load reaches a server, and whose clock it goes by. Tests have one whose server
// and time are made up, so that what a run must find is known exactly.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/serve/answer_reader.h"

namespace headrace::loads {

struct Answered {
  size_t id = 0;
  TimeUs ended = 0;
  long status = 0;         // 0: there was no answer
  bool connected = false;  // false: nobody accepted the connection
  AnswerNotes notes;       // its `error` is empty where all went well
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual TimeUs now() = 0;
  // Begins a request; never waits.
  virtual void send(size_t id, std::string body) = 0;
  // What has ended, in the order of its end. Returns at once when there is any, else at `until` or
  // somewhat before.
  virtual std::vector<Answered> wait(TimeUs until) = 0;
  // Ends all that runs; nothing more is told of it.
  virtual void drop_all() = 0;
  // Seconds of processor time that this process has used.
  virtual double cpu_seconds() = 0;
};

}  // namespace headrace::loads
