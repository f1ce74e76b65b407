// Team: the threads that share each op's work.
//
// Work is one or more phases; a phase is a number of items that members claim one by one: each
// those of its own share, in order, then those that others have left. Shares of all phases are
// even, so where items are rows, rows stay in the caches of one core from op to op. Items of a
// phase start when all items of the phases before it have finished, so an op of several passes
// costs one fork and one join. How many items a phase has may be left open until it starts
// (routing: the phase before tells). The caller is member 0 and takes part; the others spin for a
// while after a job, then sleep. A member which the system has taken off its core delays at most
// the item it holds: nobody waits for members that hold none, and what is left is claimed by the
// others. The caller begins with the first item and does not wait until others know of the job.
// Where other processes want the cores too, members let them run between jobs, when they
// hold nothing: else the system would take a core in the middle of an item and all would wait.
// One caller at a time. Which member runs what never decides a result bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
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

// A phase whose number of items is not known before the phases before it have finished: count() is
// called once, then, by one of the members.
template <typename C, typename F>
struct CountedPhase {
  const C& count;
  const F& work;
};
template <typename C, typename F>
CountedPhase(const C&, const F&) -> CountedPhase<C, F>;

template <typename P>
concept PhaseLike = requires(const P& phase) { phase.work; };

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
  // Members 1.. are pinned to cores[1..]; member 0 is the caller and is left where it runs, but for
  // keep_apart(). num_threads >= 1. Throws std::system_error when the system refuses a thread. When
  // threads outnumber cores nobody is pinned or spins.
  Team(int num_threads, const std::vector<int>& cores);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }
  // Binds the calling thread, which calls run() from now on, to the cores that no other member is
  // bound to. Else the system may run it on one of theirs while its own rests, for tens of
  // milliseconds: they hardly ever sleep, so nothing asks for a balance. Threads that it starts
  // inherit that.
  void keep_apart() const;
  // Whether there is a core beside those of all members.
  bool has_spare_core() const { return std::ssize(cores_) > num_threads_; }
  // Calls of run() that had work. From any thread.
  int64_t num_joins() const { return num_joins_; }

  // Returns when all items have finished. Two items never run on the same member at the same time.
  // Takes Phase and CountedPhase, in the order of their running.
  template <PhaseLike... Phases>
  void run(const Phases&... phases) {
    const ErasedPhase erased[] = {erase(phases)...};
    const ErasedCount counts[] = {count_of(phases)...};
    static_assert(sizeof...(Phases) <= kMaxPhases);
    run_phases(erased, counts);
  }
  template <typename F>
  void run(int64_t num_items, const F& work) {
    run(Phase{num_items, work});
  }
  // Called once by the caller of the next run() that has work, when the others know of it. Empty:
  // takes back what was not called.
  void call_beside(std::function<void()> call) { beside_ = std::move(call); }
  // Called once by the caller of the next run() that has work, when no more items are left than
  // there are members: others go on meanwhile. Not called where the caller has all items to itself,
  // or where those of a last phase are counted late.
  void call_near_end(std::function<void()> call) { near_end_ = std::move(call); }

 private:
  static constexpr int kMaxPhases = 6;
  using Job = void (*)(const void* context, int64_t item, int member);
  struct ErasedPhase {
    int64_t num_items;
    Job job;
    const void* context;
  };
  struct ErasedCount {  // without a function: the phase says how many items it has
    int64_t (*count)(const void* context);
    const void* context;
  };

  template <typename F>
  static void run_erased(const void* context, int64_t item, int member) {
    (*static_cast<const F*>(context))(item, member);
  }
  template <typename F>
  static ErasedPhase erase(const Phase<F>& phase) {
    return {phase.num_items, run_erased<F>, &phase.work};
  }
  template <typename C, typename F>
  static ErasedPhase erase(const CountedPhase<C, F>& phase) {
    return {0, run_erased<F>, &phase.work};
  }
  template <typename F>
  static ErasedCount count_of(const Phase<F>&) {
    return {nullptr, nullptr};
  }
  template <typename C, typename F>
  static ErasedCount count_of(const CountedPhase<C, F>& phase) {
    return {[](const void* context) -> int64_t { return (*static_cast<const C*>(context))(); },
            &phase.count};
  }

  void run_phases(std::span<const ErasedPhase> phases, std::span<const ErasedCount> counts);
  void begin_beside();
  bool is_near_end(uint64_t claims) const;
  void run_alone();
  int64_t open_group();
  void publish_group(uint32_t num_before);
  void work_on_items(int member);
  void run_item(uint64_t claim, int member);
  int64_t take_item(const ErasedPhase& phase, int64_t claimed, int member);
  bool take_of_share(const ErasedPhase& phase, int64_t share, int64_t num_items, int64_t* taken);
  void wait_for_finished(uint32_t num_items);
  void wait_for_end();
  void pause(int looks) const;
  void end_workers();
  void worker(int member);
  void wait_for_work();
  void wake_sleepers();

  const int num_threads_;
  const bool crowded_;                  // more threads than cores
  const std::vector<int> cores_;        // [member], then those of nobody
  std::atomic<int64_t> num_joins_ = 0;  // written by who runs
  Turn turn_;                           // of the caller
  std::function<void()> beside_;        // of the caller, for its next job
  std::function<void()> near_end_;      // likewise
  bool has_woken_ = false;              // the caller, somebody for this job
  // What members share lies in lines by who writes it when. The job: written by the caller while
  // all items of the last one have finished; read by who holds an item that has not. Phases open in
  // groups: the first of a group, but for the job's first, is counted. A group is opened by who
  // finishes the last item before it, while nobody else holds any.
  alignas(64) ErasedPhase phases_[kMaxPhases] = {};
  uint32_t finished_before_ = 0;  // finished_ when the job began
  int num_open_ = 0;              // phases whose items can be claimed
  int num_phases_ = 0;
  ErasedCount counts_[kMaxPhases] = {};
  // Number of items << 32 | next item: one word, so that a claim tells whether it is good,
  // whichever job the claimer came for. What workers look at; the top bit: they end.
  alignas(64) std::atomic<uint64_t> claims_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};  // items, of all jobs
  std::atomic<bool> groups_to_come_{false};        // of the job; written only if it has several
  // What is taken of each member's share of a phase, [phase, member]: the job's number <<
  // kTakenBits | items. A word with another number is a share that nobody has touched.
  struct alignas(64) Share {
    std::atomic<uint64_t> word{0};
  };
  static constexpr int kTakenBits = 20;  // the rest numbers jobs for years
  static constexpr uint64_t kTakenMask = (uint64_t{1} << kTakenBits) - 1;
  const std::unique_ptr<Share[]> shares_;
  uint64_t job_ = 0;  // written as the phases are
  alignas(64) std::atomic<int32_t> sleepers_{0};
  std::atomic<uint32_t> wakes_{0};  // what sleepers wait on
  std::vector<std::thread> workers_;
};

}  // namespace headrace::cpu
