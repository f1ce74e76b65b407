// What a laboratory holds: hypotheses, experiments with their runs, learnings and a log. Plain
// values; lab/store.h keeps them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headrace::lab {

// A statement about the metric of two configurations, and what was found of it.
struct Hypothesis {
  int64_t id = 0;
  std::string statement;  // "int8 activations make prefill faster"
  std::string metric;     // a name in the JSON that runs print: "tokens_per_s", or "prefill.512"
  bool more_is_better = true;
  double predicted = 0.1;  // relative improvement of the second side over the first: 0.1 = 10 %
  std::string reason;      // why that much
  double worth = 1;        // to whoever asks; orders the queue
  std::string state;       // "open", "validated", "ruled out"
  std::string verdict;     // the evidence that decided it, in words
  std::string author;
  int64_t made_ms = 0;  // since 1970
};

struct Side {
  std::string name;
  std::vector<std::string> command;  // program and arguments; prints JSON with the metrics
  int64_t hypothesis_id = 0;         // of its own, beside the first side; 0: none
};

struct Limits {
  double seconds = 600;            // of one run
  int64_t memory_bytes = 0;        // of its processes together; 0: none
  int64_t output_bytes = 1 << 20;  // that it may print
};

struct Experiment {
  int64_t id = 0;
  int64_t hypothesis_id = 0;  // of the second side, or the first of the sides' own; 0: none;
                              // then it only measures
  std::string title;
  std::string rationale;
  std::string metric;       // the hypothesis's, if it has one
  std::vector<Side> sides;  // two or more; the first is what the others are compared with
  double cost_s = 60;       // one run, estimated; measured once there are runs
  int max_rounds = 20;      // runs of each side at most
  Limits limits;
  std::string folder;        // below the laboratory, where commands run; empty: artifacts
  std::string state;         // "queued", "running", "done", "failed", "cancelled"
  std::string state_reason;  // of the last change, one line
  bool pinned = false;       // goes before all that are not
  bool paused = false;
  std::optional<double> place;  // where a person moved it; smaller first, before the unmoved
  std::string author;
  int64_t made_ms = 0;
};

// A hypothesis that an experiment decides, and the side that does beside the first.
struct Question {
  int64_t side_idx = 1;
  int64_t hypothesis_id = 0;
};
// Those of the sides that have one of their own, else the experiment's, if it has one.
std::vector<Question> questions_of(const Experiment& experiment);
bool asks_about(const Experiment& experiment, int64_t hypothesis_id);
// Which hypothesis says what is better of a side, and by how much; 0: none.
int64_t hypothesis_of_side(const Experiment& experiment, int64_t side_idx);

struct Run {
  int64_t id = 0;
  int64_t experiment_id = 0;
  int64_t side_idx = 0;
  int64_t round = 0;
  std::string state;    // "running", "done", "failed", "interrupted", "noisy"
  std::string metrics;  // JSON as it was printed
  std::string machine;  // JSON: processor, commit, load of others
  std::string error;
  double seconds = 0;
  int64_t started_ms = 0;
};

// What an experiment found about a hypothesis, in words.
struct Finding {
  std::string text;
  int64_t hypothesis_id = 0;  // 0: it was about none
  std::string decides;        // "validated", "ruled out"; empty: nothing
};

struct Learning {
  int64_t id = 0;
  std::string text;
  std::vector<std::string> links;  // "experiment:3", "hypothesis:1", "file:…", "option:--threads"
  std::string author;
  int64_t made_ms = 0;
};

struct LogEntry {
  int64_t id = 0;
  int64_t at_ms = 0;
  std::string author;
  std::string subject;  // "experiment:3"
  std::string text;
};

}  // namespace headrace::lab
