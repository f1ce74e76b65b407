#include "backend/cpu/team/team.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/team/topology.h"
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
// More items than a job has, all of them claimed: late claims, which count up, change neither.
constexpr uint64_t kStop = uint64_t{0x80000000u} << 32 | 0xC0000000u;

bool has_items(uint64_t claims) { return (claims & kNextMask) < claims >> 32; }
bool is_stop(uint64_t claims) { return claims >> 63 != 0; }

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
    : num_threads_(num_threads),
      crowded_(static_cast<size_t>(num_threads) > cores.size()),
      cores_(cores),
      shares_(std::make_unique<Share[]>(kMaxPhases * static_cast<size_t>(num_threads))) {
  CHECK(num_threads >= 1 && !cores.empty(), "num_threads = {}", num_threads);
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int member = 1; member < num_threads; ++member) {
      workers_.emplace_back([this, member] { worker(member); });
    }
  } catch (...) {  // the system refused one: those that run end first
    end_workers();
    throw;
  }
}

Team::~Team() { end_workers(); }

void Team::end_workers() {
  claims_.store(kStop);
  wake_sleepers();
  for (std::thread& thread : workers_) thread.join();
}

void Team::run_phases(std::span<const ErasedPhase> phases, std::span<const ErasedCount> counts) {
  num_phases_ = 0;
  for (size_t i = 0; i < phases.size(); ++i) {
    if (phases[i].num_items <= 0 && counts[i].count == nullptr) continue;
    counts_[num_phases_] = counts[i];
    phases_[num_phases_++] = phases[i];
  }
  num_open_ = 0;
  const int64_t num_items = open_group();
  if (num_items == 0) return;
  num_joins_.store(num_joins_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const bool is_whole = num_open_ == num_phases_;
  if (num_threads_ == 1 || (num_items == 1 && is_whole)) {
    begin_beside();
    near_end_ = nullptr;
    return run_alone();
  }
  finished_before_ = finished_.load(std::memory_order_relaxed);
  ++job_;
  if (!is_whole) groups_to_come_.store(true, std::memory_order_relaxed);
  // The caller has an item already. Nothing here waits for a line that a worker has: the stores go
  // their way while the item runs.
  const uint64_t claims = static_cast<uint64_t>(num_items) << 32;
  claims_.store(claims | 1, std::memory_order_release);
  has_woken_ = sleepers_.load(std::memory_order_relaxed) > 0;
  if (has_woken_) wake_sleepers();
  begin_beside();
  run_item(claims, 0);
  work_on_items(0);
  if (is_whole) {
    wait_for_finished(static_cast<uint32_t>(num_items));
  } else {
    wait_for_end();
  }
  near_end_ = nullptr;
  turn_.give_way();
}

void Team::begin_beside() {
  if (beside_) std::exchange(beside_, nullptr)();
}

// Few items are left, and others hold some or will.
bool Team::is_near_end(uint64_t claims) const {
  const uint64_t num_items = claims >> 32, next = std::min(claims & kNextMask, num_items);
  const uint32_t num_finished = finished_.load(std::memory_order_relaxed) - finished_before_;
  return num_open_ == num_phases_ && num_items - next <= static_cast<uint64_t>(num_threads_) &&
         num_finished < num_items;
}

// All by the caller.
void Team::run_alone() {
  int next = 0;
  do {
    for (; next < num_open_; ++next) {
      const ErasedPhase& phase = phases_[next];
      for (int64_t item = 0; item < phase.num_items; ++item) phase.job(phase.context, item, 0);
    }
  } while (open_group() > 0);
  if (num_threads_ > 1) turn_.give_way();
}

// Counts the items of the phases from the next one up to another that must be counted later, and
// passes over phases that have none. Returns how many there are; 0: the job has no more.
int64_t Team::open_group() {
  int64_t num_items = 0;
  while (num_open_ < num_phases_) {
    const ErasedCount& count = counts_[num_open_];
    if (count.count != nullptr) {
      if (num_items > 0) break;
      phases_[num_open_].num_items = std::max<int64_t>(count.count(count.context), 0);
    }
    num_items += phases_[num_open_++].num_items;
    CHECK(num_items < INT32_MAX, "{} items", num_items);
  }
  return num_items;
}

// After the last of num_before items, by the member that has finished it: there is nobody else who
// holds an item. Members that look for one meanwhile count claims up, as late ones do; claims of
// the group are good only from the exchange on.
void Team::publish_group(uint32_t num_before) {
  const int64_t num_items = open_group();
  if (num_items > 0) {
    const bool is_last = num_open_ == num_phases_;
    const uint64_t end = num_before + static_cast<uint64_t>(num_items);
    CHECK(end < INT32_MAX, "{} items", end);
    claims_.exchange(end << 32 | num_before);
    // Not before the exchange: the caller takes the claims for all there will be.
    if (is_last) groups_to_come_.store(false, std::memory_order_release);
    if (sleepers_.load() > 0) wake_sleepers();
  } else {
    groups_to_come_.store(false, std::memory_order_release);
  }
}

void Team::wake_sleepers() {
  wakes_.fetch_add(1);
  wakes_.notify_all();
}

void Team::work_on_items(int member) {
  while (true) {
    const uint64_t seen = claims_.load(std::memory_order_relaxed);
    if (member == 0 && near_end_ && is_near_end(seen)) std::exchange(near_end_, nullptr)();
    // Without this look, late members would count claims up for nothing.
    if (!has_items(seen)) return;
    // Sequentially consistent with sleepers_: either the caller sees the sleeper here, or the
    // sleeper sees the items that are left.
    const uint64_t claim = claims_.fetch_add(1);
    if (!has_items(claim)) return;
    if (member == 0 && !has_woken_ && has_items(claim + 1) && sleepers_.load() > 0) {
      has_woken_ = true;
      wake_sleepers();
    }
    run_item(claim, member);
  }
}

void Team::run_item(uint64_t claim, int member) {
  auto item = static_cast<int64_t>(claim & kNextMask);
  uint32_t before = 0;  // items of the phases before
  const ErasedPhase* phase = phases_;
  while (item >= phase->num_items) {
    item -= phase->num_items;
    before += static_cast<uint32_t>(phase->num_items);
    ++phase;
  }
  if (before > 0) wait_for_finished(before);
  phase->job(phase->context, take_item(*phase, item, member), member);
  // Read before the item is finished: after it the job may be over.
  const bool is_whole = num_open_ == num_phases_;
  const uint32_t finished_before = finished_before_;
  const uint32_t finished = finished_.fetch_add(1, std::memory_order_acq_rel) + 1;
  const auto num_claimable = static_cast<uint32_t>(claim >> 32);
  if (!is_whole && finished - finished_before == num_claimable) publish_group(num_claimable);
}

// The item that a member has for a claim. There are as many claims as items, and each takes one, so
// one is left in some share.
int64_t Team::take_item(const ErasedPhase& phase, int64_t claimed, int member) {
  const int64_t num_items = phase.num_items;
  if (num_items < num_threads_ || num_items >> kTakenBits != 0) return claimed;
  for (int64_t share = member;; share = (share + 1) % num_threads_) {
    const int64_t first = num_items * share / num_threads_;
    const int64_t end = num_items * (share + 1) / num_threads_;
    int64_t taken = 0;
    if (take_of_share(phase, share, end - first, &taken)) return first + taken;
  }
}

// Whether there was an item left: *taken is its place in the share.
bool Team::take_of_share(const ErasedPhase& phase, int64_t share, int64_t num_items,
                         int64_t* taken) {
  const int64_t at = (&phase - phases_) * num_threads_ + share;
  std::atomic<uint64_t>& word = shares_[static_cast<size_t>(at)].word;
  uint64_t seen = word.load(std::memory_order_relaxed);
  uint64_t next;
  do {
    const bool is_touched = seen >> kTakenBits == job_;
    *taken = is_touched ? static_cast<int64_t>(seen & kTakenMask) : 0;
    if (*taken == num_items) return false;
    next = job_ << kTakenBits | static_cast<uint64_t>(*taken + 1);
  } while (!word.compare_exchange_weak(seen, next, std::memory_order_relaxed));
  return true;
}

// Items finish phase by phase, so a count is enough. Those waited for are all claimed.
void Team::wait_for_finished(uint32_t num_items) {
  for (int looks = 0; finished_.load(std::memory_order_acquire) - finished_before_ < num_items;
       ++looks) {
    pause(looks);
  }
}

// The caller of a job whose items become known as it goes.
void Team::wait_for_end() {
  const uint32_t finished_before = finished_before_;
  for (int looks = 0;; ++looks) {
    const bool are_known = !groups_to_come_.load(std::memory_order_acquire);
    const uint64_t claims = claims_.load(std::memory_order_acquire);
    if (has_items(claims)) {
      work_on_items(0);
      looks = 0;
    } else if (are_known && finished_.load(std::memory_order_acquire) - finished_before ==
                                static_cast<uint32_t>(claims >> 32)) {
      return;
    }
    pause(looks);
  }
}

void Team::pause(int looks) const {
  if (crowded_ || looks > kLooksBeforeYield) {
    sched_yield();
  } else {
    _mm_pause();
  }
}

void Team::wait_for_work() {
  TimeUs deadline = 0;
  while (true) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      const uint64_t claims = claims_.load(std::memory_order_relaxed);
      if (has_items(claims) || is_stop(claims)) {
        __builtin_prefetch(phases_);
        return;
      }
      if (crowded_) break;
      _mm_pause();
    }
    const TimeUs now = now_us();
    if (deadline == 0) deadline = now + (crowded_ ? 0 : kSpinUs);
    if (now < deadline) continue;
    const uint32_t seen = wakes_.load();
    sleepers_.fetch_add(1);
    const uint64_t claims = claims_.load();
    if (!has_items(claims) && !is_stop(claims)) wakes_.wait(seen);
    sleepers_.fetch_sub(1);
    deadline = 0;
  }
}

void Team::keep_apart() const {
  if (crowded_ || num_threads_ == 1) return;
  std::vector<int> left(cores_.begin() + num_threads_, cores_.end());
  left.push_back(cores_.front());
  pin_to(left);
}

void Team::worker(int member) {
  if (!crowded_) pin_to({&cores_[static_cast<size_t>(member)], 1});
  Turn turn;
  while (true) {
    wait_for_work();
    if (is_stop(claims_.load(std::memory_order_relaxed))) return;
    work_on_items(member);
    turn.give_way();
  }
}

}  // namespace headrace::cpu
