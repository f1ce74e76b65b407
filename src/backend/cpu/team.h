// Team: the pinned threads that share each op's work.
//
// The caller is member 0 and takes part; the others spin for a while after a job, then sleep, so
// that joins are cheap within a step and an idle server uses no processor time. One caller at a
// time. Which member runs what never decides a result bit.
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

  // Calls work(member) once on every member; returns when all have finished.
  template <typename F>
  void run(const F& work) {
    run_erased([](const void* context, int member) { (*static_cast<const F*>(context))(member); },
               &work);
  }

 private:
  using Job = void (*)(const void* context, int member);

  void run_erased(Job job, const void* context);
  void worker(int member, int core);
  uint32_t wait_for_job(uint32_t seen);

  const int num_threads_;
  const bool crowded_;  // more threads than cores
  Job job_ = nullptr;   // written by the caller before epoch_ moves
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // a new value is a new job; kStop ends the workers
  alignas(64) std::atomic<int32_t> remaining_{0};  // workers that have not finished the job
  alignas(64) std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace headrace::cpu
