// Store: the laboratory's folder: one SQLite file, and artifacts of its runs.
//
// Every change is one transaction with its line of the log, which is only ever appended to. Several
// processes may read and write; who runs experiments holds the lock of lab/runner.h besides. Input
// that is wrong is kInvalidArgument and names the field. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/database.h"
#include "lab/records.h"

namespace headrace::lab {

inline constexpr size_t kMaxTextBytes = 65536;  // of one field

class Store {
 public:
  // Makes folder and file where there are none. kFast: what was committed survives the end of the
  // process, not that of the machine; for tests.
  enum class Durability : uint8_t { kFull, kFast };
  static Result<std::unique_ptr<Store>> open(const std::string& folder,
                                             Durability durability = Durability::kFull);

  Result<int64_t> add(const Hypothesis& hypothesis, std::string_view author);
  Result<int64_t> add(const Experiment& experiment, std::string_view author);
  Result<int64_t> add(const Learning& learning, std::string_view author);

  Result<std::vector<Hypothesis>> hypotheses();
  Result<Hypothesis> hypothesis(int64_t id);  // kNotFound
  Result<std::vector<Experiment>> experiments();
  Result<Experiment> experiment(int64_t id);  // kNotFound
  Result<std::vector<Run>> runs(int64_t experiment_id);
  // Of each experiment, how many of its runs are done; none are left out.
  Result<std::map<int64_t, int64_t>> num_runs_done();
  Result<std::vector<Learning>> learnings();
  // Later than this entry, oldest first.
  Result<std::vector<LogEntry>> log(int64_t after_id, int64_t max_entries);
  // The newest, oldest first. subject: "experiment:3", or empty: all.
  Result<std::vector<LogEntry>> newest_log(int64_t max_entries, std::string_view subject = {});
  Result<int64_t> last_log_id();  // 0: nothing happened yet

  // state: "validated", "ruled out" or "open".
  Status conclude(int64_t hypothesis_id, std::string_view state, std::string_view verdict,
                  std::string_view author);
  Status set_state(int64_t experiment_id, std::string_view state, std::string_view reason,
                   std::string_view author);
  // It ran and is done, with what it found in words. Hypotheses that a finding decides, and that
  // are open, are concluded, and what is queued, not pinned and asks about nothing else that is
  // open is dropped. All or nothing: a runner that is killed leaves no experiment that is done and
  // decided nothing.
  Status finish(int64_t experiment_id, std::string_view found, std::span<const Finding> findings,
                std::string_view author);
  Status set_pinned(int64_t experiment_id, bool pinned, std::string_view author);
  Status set_paused(int64_t experiment_id, bool paused, std::string_view author);
  // Where the experiment stands among those that a person moved.
  Status set_place(int64_t experiment_id, double place, std::string_view author);
  // What a run was found to cost.
  Status set_cost(int64_t experiment_id, double seconds, std::string_view author);
  // A line of the log without a change.
  Status note(std::string_view subject, std::string_view text, std::string_view author);

  // A run is on record before its process starts.
  Result<int64_t> begin_run(const Run& run, std::string_view author);
  Status end_run(const Run& run, std::string_view author);
  // After a crash: what ran becomes interrupted, its experiment is queued again. Returns how many
  // experiments.
  Result<int64_t> recover(std::string_view author);

  const std::string& folder() const { return folder_; }
  // Of a run; made when asked for.
  Result<std::string> artifacts(int64_t run_id) const;

 private:
  Store(std::unique_ptr<Database> database, std::string folder)
      : database_(std::move(database)), folder_(std::move(folder)) {}
  // Within a transaction.
  Status write_conclusion(int64_t hypothesis_id, std::string_view state, std::string_view verdict,
                          std::string_view author);
  Status write_state(int64_t experiment_id, std::string_view state, std::string_view reason,
                     std::string_view author);
  Status drop_pointless(int64_t hypothesis_id, std::string_view author);
  Status append_log(std::string_view subject, std::string_view text, std::string_view author);
  Status change_experiment(int64_t id, std::string_view column, Value value, std::string_view text,
                           std::string_view author);

  std::unique_ptr<Database> database_;
  const std::string folder_;
};

}  // namespace headrace::lab
