// Team: the pinned threads that share each op's work.
//
// Work is a number of items that members claim one by one, so that a member which the system has
// taken off its core delays at most its own item: the caller finishes the rest and does not wait
// for members that never came. The caller is member 0 and takes part; the others spin for a while
// after a job, then sleep. One caller at a time. Which member runs what never decides a result bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace headrace::cpu {

class Team {
 public:
  // Members 1.. are pinned to cores[1..] (modulo their number); member 0 is the caller and is left
  // where it runs. num_threads >= 1. When threads outnumber cores nobody is pinned or spins.
  Team(int num_threads, const std::vector<int>& cores);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls work(item, member) once for each item in [0, num_items); returns when all have finished.
  // Two items never run on the same member at the same time.
  template <typename F>
  void run(int64_t num_items, const F& work) {
    run_erased(
        num_items,
        [](const void* context, int64_t item, int member) {
          (*static_cast<const F*>(context))(item, member);
        },
        &work);
  }

 private:
  using Job = void (*)(const void* context, int64_t item, int member);

  void run_erased(int64_t num_items, Job job, const void* context);
  void work_on_items(int member);
  void worker(int member, int core);
  uint32_t wait_for_job(uint32_t seen);
  bool enter();

  const int num_threads_;
  const bool crowded_;  // more threads than cores
  // The job; written by the caller while the gate is shut and nobody is inside.
  Job job_ = nullptr;
  const void* context_ = nullptr;
  int64_t num_items_ = 0;
  alignas(64) std::atomic<int64_t> next_item_{0};
  // kOpen while the job may be entered, plus the number of workers inside.
  alignas(64) std::atomic<uint32_t> gate_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // moves with every job; what workers wait on
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace headrace::cpu
