#include "backend/cpu/team.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include "base/check.h"

namespace headrace::cpu {
namespace {

// Longer than the gaps between the ops of a step and than sampling; short for an idle server.
constexpr TimeUs kSpinUs = 200;
constexpr int kPausesPerLook = 64;
// Looks at items that others still hold, before the system may run something else here.
constexpr int kLooksBeforeYield = 2000;
// A turn ends before a system with 250 ticks a second would end it. Who was not seen for longer
// than most jobs last was off its core, or in no hurry: a new turn.
constexpr TimeUs kTurnUs = 2500;
constexpr TimeUs kAwayUs = 800;
constexpr uint64_t kNextMask = 0xFFFFFFFFu;

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) return;
  CPU_SET(core, &set);
  // Refused in some sandboxes: then the scheduler places the thread, results stay the same.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

void Turn::give_way() {
  TimeUs now = now_us();
  if (now - last_seen_ > kAwayUs) {
    start_ = now;
  } else if (now - start_ > kTurnUs) {
    sched_yield();  // returns at once where nobody waits for the core
    start_ = now = now_us();
  }
  last_seen_ = now;
}

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

void Team::run_phases(std::span<const ErasedPhase> phases) {
  int64_t num_items = 0;
  num_phases_ = 0;
  for (const ErasedPhase& phase : phases) {
    if (phase.num_items <= 0) continue;
    num_items += phase.num_items;
    phases_[num_phases_++] = phase;
  }
  if (num_items == 0) return;
  CHECK(num_items < INT32_MAX, "{} items", num_items);
  ++num_joins_;
  finished_.store(0, std::memory_order_relaxed);
  claims_.store(static_cast<uint64_t>(num_items) << 32, std::memory_order_release);
  if (num_threads_ > 1 && num_items > 1) {
    // Sequentially consistent with sleepers_: either the sleeper is seen here, or it sees the
    // epoch.
    epoch_.fetch_add(1);
    if (sleepers_.load() > 0) epoch_.notify_all();
  }
  work_on_items(0);
  wait_for_finished(static_cast<uint32_t>(num_items));
  if (num_threads_ > 1) turn_.give_way();
}

void Team::work_on_items(int member) {
  while (true) {
    // Without this look, late members would count claims up for nothing.
    const uint64_t seen = claims_.load(std::memory_order_relaxed);
    if ((seen & kNextMask) >= seen >> 32) return;
    const uint64_t claim = claims_.fetch_add(1, std::memory_order_acquire);
    if ((claim & kNextMask) >= claim >> 32) return;
    run_item(static_cast<int64_t>(claim & kNextMask), member);
  }
}

void Team::run_item(int64_t item, int member) {
  uint32_t before = 0;  // items of the phases before
  const ErasedPhase* phase = phases_;
  while (item >= phase->num_items) {
    item -= phase->num_items;
    before += static_cast<uint32_t>(phase->num_items);
    ++phase;
  }
  if (before > 0) wait_for_finished(before);
  phase->job(phase->context, item, member);
  finished_.fetch_add(1, std::memory_order_release);
}

// Items finish phase by phase, so a count is enough. Those waited for are all claimed.
void Team::wait_for_finished(uint32_t num_items) {
  for (int looks = 0; finished_.load(std::memory_order_acquire) < num_items; ++looks) {
    if (crowded_ || looks > kLooksBeforeYield) {
      sched_yield();
    } else {
      _mm_pause();
    }
  }
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
  Turn turn;
  while (true) {
    seen = wait_for_job(seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    work_on_items(member);
    turn.give_way();
  }
}

}  // namespace headrace::cpu
