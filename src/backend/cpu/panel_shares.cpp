#include "backend/cpu/panel_shares.h"

#include <algorithm>

#include "base/check.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kMaxShareUnits = 0xFFFF;

}  // namespace

PanelShares::PanelShares(int num_members)
    : num_members_(num_members), shares_(new Share[static_cast<size_t>(num_members)]) {}

void PanelShares::divide(const Plan& plan) {
  // Shares of more units than a word can count are counted in larger ones.
  const int64_t least_unit = divide_up(plan.num_panels, num_members_ * (kMaxShareUnits - 1));
  unit_ = std::max({plan.unit, least_unit, int64_t{1}});
  most_ = std::max<int64_t>(1, plan.most / unit_);
  num_panels_ = plan.num_panels;
  num_units_ = divide_up(num_panels_, unit_);
  if (++division_ != 0) return;
  for (int64_t i = 0; i < num_members_; ++i) {  // numbers come again: no word may have one
    shares_[static_cast<size_t>(i)].word.store(0, std::memory_order_relaxed);
  }
  division_ = 1;
}

int64_t PanelShares::num_takers() const { return std::min(num_members_, num_units_); }

Piece PanelShares::take(int member) {
  for (int64_t i = 0; i < num_members_; ++i) {
    const Piece piece = take_from((member + i) % num_members_, i == 0);
    if (piece.count > 0) return piece;
  }
  return {0, 0};
}

// Half of what the share still has, from either end. The words order nothing but themselves.
Piece PanelShares::take_from(int64_t owner, bool front) {
  std::atomic<uint64_t>& word = shares_[static_cast<size_t>(owner)].word;
  const int64_t share = share_begin(owner);
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (true) {
    const bool touched = seen >> 32 == division_;
    int64_t begin = touched ? static_cast<int64_t>(seen & 0xFFFF) : 0;
    int64_t end =
        touched ? static_cast<int64_t>(seen >> 16 & 0xFFFF) : share_begin(owner + 1) - share;
    if (begin == end) return {0, 0};
    const int64_t count = std::clamp<int64_t>((end - begin) / 2, 1, most_);
    const int64_t first = (share + (front ? begin : end - count)) * unit_;
    (front ? begin : end) += front ? count : -count;
    const uint64_t next = uint64_t{division_} << 32 | static_cast<uint64_t>(end << 16 | begin);
    if (word.compare_exchange_weak(seen, next, std::memory_order_relaxed)) {
      return {first, std::min(count * unit_, num_panels_ - first)};
    }
  }
}

}  // namespace headrace::cpu
