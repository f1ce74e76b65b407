// Team: the threads that share each op's work.
//
// Work is one or more phases; a phase is a number of items that members claim one by one, in order.
// Items of a phase start when all items of the phases before it have finished, so an op of several
// passes costs one fork and one join. The caller is member 0 and takes part; the others spin for a
// while after a job, then sleep. A member which the system has taken off its core delays at most
// the item it holds: nobody waits for members that hold none, and what is left is claimed by the
// others. The caller begins with the first item and does not wait until others know of the job.
// Where other processes want the cores too, members let them run between jobs, when they
// hold nothing: else the system would take a core in the middle of an item and all would wait.
// One caller at a time. Which member runs what never decides a result bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace headrace::cpu {

// work(item, member) for each item in [0, num_items). Refers to the function: use in one
// expression.
template <typename F>
struct Phase {
  int64_t num_items;
  const F& work;
};
template <typename F>
Phase(int64_t, const F&) -> Phase<F>;

// One thread's turn on its core, as far as it can tell.
class Turn {
 public:
  // Called where the thread holds nothing. Lets others run if the turn has been long.
  void give_way();

 private:
  TimeUs last_seen_ = 0;
  TimeUs start_ = 0;
};

class Team {
 public:
  // Members 1.. are pinned to cores[1..] (modulo their number); member 0 is the caller and is left
  // where it runs. num_threads >= 1. Throws std::system_error when the system refuses a thread.
  // When threads outnumber cores nobody is pinned or spins.
  Team(int num_threads, const std::vector<int>& cores);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }
  // Calls of run() that had work.
  int64_t num_joins() const { return num_joins_; }

  // Returns when all items have finished. Two items never run on the same member at the same time.
  template <typename... Fs>
  void run(const Phase<Fs>&... phases) {
    const ErasedPhase erased[] = {{phases.num_items,
                                   [](const void* context, int64_t item, int member) {
                                     (*static_cast<const Fs*>(context))(item, member);
                                   },
                                   &phases.work}...};
    static_assert(sizeof...(Fs) <= kMaxPhases);
    run_phases(erased);
  }
  template <typename F>
  void run(int64_t num_items, const F& work) {
    run(Phase{num_items, work});
  }

 private:
  static constexpr int kMaxPhases = 6;
  using Job = void (*)(const void* context, int64_t item, int member);
  struct ErasedPhase {
    int64_t num_items;
    Job job;
    const void* context;
  };

  void run_phases(std::span<const ErasedPhase> phases);
  void work_on_items(int member);
  void run_item(int64_t item, int member);
  void wait_for_finished(uint32_t num_items);
  void end_workers();
  void worker(int member, int core);
  void wait_for_work();
  void wake_sleepers();

  const int num_threads_;
  const bool crowded_;  // more threads than cores
  int64_t num_joins_ = 0;
  Turn turn_;               // of the caller
  bool has_woken_ = false;  // the caller, somebody for this job
  // What members share lies in lines by who writes it when. The job: written by the caller while
  // all items of the last one have finished; read by who holds an item that has not.
  alignas(64) ErasedPhase phases_[kMaxPhases] = {};
  uint32_t finished_before_ = 0;  // finished_ when the job began
  // Number of items << 32 | next item: one word, so that a claim tells whether it is good,
  // whichever job the claimer came for. What workers look at; the top bit: they end.
  alignas(64) std::atomic<uint64_t> claims_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};  // items, of all jobs
  alignas(64) std::atomic<int32_t> sleepers_{0};
  std::atomic<uint32_t> wakes_{0};  // what sleepers wait on
  std::vector<std::thread> workers_;
};

}  // namespace headrace::cpu
