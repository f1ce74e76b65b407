#include "backend/cpu/team.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include "base/check.h"
#include "base/clock.h"

namespace headrace::cpu {
namespace {

// Longer than the gaps between the ops of a step and than sampling; short for an idle server.
constexpr TimeUs kSpinUs = 200;
constexpr int kPausesPerLook = 64;
// Looks of the caller at workers that are still inside, before it lets others run.
constexpr int kLooksBeforeYield = 2000;
constexpr uint32_t kOpen = 1u << 31;

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) return;
  CPU_SET(core, &set);
  // Refused in some sandboxes: then the scheduler places the thread, results stay the same.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

Team::Team(int num_threads, const std::vector<int>& cores)
    : num_threads_(num_threads), crowded_(static_cast<size_t>(num_threads) > cores.size()) {
  CHECK(num_threads >= 1 && !cores.empty(), "num_threads = {}", num_threads);
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  for (int member = 1; member < num_threads; ++member) {
    const int core = crowded_ ? -1 : cores[static_cast<size_t>(member)];
    workers_.emplace_back([this, member, core] { worker(member, core); });
  }
}

Team::~Team() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void Team::work_on_items(int member) {
  while (true) {
    const int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= num_items_) return;
    job_(context_, item, member);
  }
}

void Team::run_erased(int64_t num_items, Job job, const void* context) {
  if (num_threads_ == 1 || num_items <= 1) {
    for (int64_t item = 0; item < num_items; ++item) job(context, item, 0);
    return;
  }
  job_ = job;
  context_ = context;
  num_items_ = num_items;
  next_item_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  // Sequentially consistent with sleepers_: either the sleeper is seen here, or it sees the epoch.
  epoch_.fetch_add(1);
  if (sleepers_.load() > 0) epoch_.notify_all();
  work_on_items(0);
  gate_.fetch_and(~kOpen, std::memory_order_relaxed);
  for (int looks = 0; gate_.load(std::memory_order_acquire) != 0; ++looks) {
    if (crowded_ || looks > kLooksBeforeYield) {
      sched_yield();
    } else {
      _mm_pause();
    }
  }
}

bool Team::enter() {
  uint32_t gate = gate_.load(std::memory_order_relaxed);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

uint32_t Team::wait_for_job(uint32_t seen) {
  TimeUs deadline = 0;
  while (true) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      const uint32_t now = epoch_.load(std::memory_order_acquire);
      if (now != seen) return now;
      if (crowded_) break;
      _mm_pause();
    }
    const TimeUs now = now_us();
    if (deadline == 0) deadline = now + (crowded_ ? 0 : kSpinUs);
    if (now < deadline) continue;
    sleepers_.fetch_add(1);
    epoch_.wait(seen);
    sleepers_.fetch_sub(1);
    deadline = 0;
  }
}

void Team::worker(int member, int core) {
  if (core >= 0) pin_to(core);
  uint32_t seen = 0;
  while (true) {
    seen = wait_for_job(seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    // A shut gate: the others were done before this worker came.
    if (!enter()) continue;
    work_on_items(member);
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace headrace::cpu
