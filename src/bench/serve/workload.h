// What is asked: prompts and lengths of answers, made of a seed or read from a recording.
//
// A prompt is of common English words, about a token each; what the server counted is reported.
// Profiles: `plain`, every prompt its own; `prefix`, all begin with the same text; `agent`, each of
// several conversations grows by the answers it got, turn by turn. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/serve/draws.h"

namespace headrace::loads {

// Tokens of a prompt or an answer.
struct Lengths {
  enum class Kind : uint8_t { kFixed, kLogNormal };
  Kind kind = Kind::kFixed;
  double median = 128;
  double sigma = 0;  // of the logarithm
  int64_t most = 1 << 20;

  int64_t draw(Draws& draws) const;  // at least 1
};

// "128" and "fixed:128"; "lognormal:MEDIAN,SIGMA"; "sharegpt": log-normal lengths whose medians
// and spread are like those of recorded conversations. `option` is named in errors.
Result<Lengths> parse_lengths(std::string_view text, std::string_view option, bool is_answer);

struct Message {
  std::string role, text;
};

struct Ask {
  std::vector<Message> messages;
  int64_t output_tokens = 1;
  std::optional<double> due;  // seconds from the start, of a recording
  int64_t session = -1;       // of a conversation
};

enum class Profile : uint8_t { kPlain, kPrefix, kAgent };

struct WorkloadOptions {
  Lengths prompts, answers;
  Profile profile = Profile::kPlain;
  int64_t prefix_tokens = 512;  // of the text that all begin with, or of an agent's instructions
  int turns = 8;                // of a conversation
  uint64_t seed = 0;
};

Result<Profile> parse_profile(std::string_view text);

// Lines of JSON: {"time": 1.5, "prompt": "..." or "prompt_tokens": 100, "output_tokens": 20}, times
// ascending in seconds. kCorrupt names the line and what is wrong with it.
Result<std::vector<Ask>> parse_trace(std::string_view text, std::string_view file, uint64_t seed);

class Workload {
 public:
  explicit Workload(const WorkloadOptions& options);
  // Of a recording, over and over again for every stage.
  explicit Workload(std::vector<Ask> trace);
  // Requests of a recording: then there are no more; 0: it is none.
  int64_t num_recorded() const { return std::ssize(trace_); }

  // Empty: the recording is at its end.
  std::optional<Ask> next();
  // The answer to an Ask of a conversation; empty `text`: it failed, and the conversation ends.
  void answered(int64_t session, std::string text);
  // Begins again with other texts, so that no stage finds what another has left in a cache.
  void begin_stage(uint64_t stage);

 private:
  struct Session {
    std::vector<Message> messages;
    int turn = 0;
    bool waiting = false;  // for an answer
  };
  Ask next_turn();

  WorkloadOptions options_;
  std::vector<Ask> trace_;
  bool is_trace_ = false;
  size_t position_ = 0;
  Draws draws_;
  std::string prefix_;
  std::deque<Session> sessions_;
};

// About that many tokens of text.
std::string words(Draws& draws, int64_t num_tokens);

// The body of a request that streams. model: empty, the server's own.
struct RequestForm {
  bool chat = true;
  std::string model;
  bool ignore_eos = true;  // answers are as long as they are asked for
};
std::string request_body(const Ask& ask, const RequestForm& form);

}  // namespace headrace::loads
