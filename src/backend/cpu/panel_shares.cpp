#include "backend/cpu/panel_shares.h"

#include <algorithm>

#include "base/check.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kMaxShareUnits = 0x7FFF;
// Taking so few from another core costs about what they do.
constexpr int64_t kUnitsLeftToOwner = 1;

}  // namespace

PanelShares::PanelShares(int num_members)
    : num_members_(num_members), shares_(new Share[static_cast<size_t>(num_members)]) {}

void PanelShares::start(const Plan& plan) {
  CHECK(plan.num_panels > 0, "{} panels", plan.num_panels);
  // Shares of more units than a word can count are counted in larger ones.
  const int64_t least_unit = divide_up(plan.num_panels, num_members_ * (kMaxShareUnits - 1));
  unit_ = std::max({plan.unit, least_unit, int64_t{1}});
  most_ = std::max<int64_t>(1, plan.most / unit_);
  num_panels_ = plan.num_panels;
  num_units_ = divide_up(num_panels_, unit_);
  if (++division_ == 0) {  // numbers come again: no word may have one
    for (int64_t i = 0; i < num_members_; ++i) {
      shares_[static_cast<size_t>(i)].word.store(0, std::memory_order_relaxed);
    }
    division_ = 1;
  }
}

Piece PanelShares::divide(const Plan& plan) {
  start(plan);
  Range range{0, share_begin(1), true};
  range.begin = piece_units(range, true);
  shares_[0].word.store(word_of(range), std::memory_order_relaxed);
  return piece_at(0, range.begin);
}

int64_t PanelShares::num_takers() const { return std::min(num_members_, num_units_); }

Piece PanelShares::take(int member) {
  for (int64_t i = 0; i < num_members_; ++i) {
    const Piece piece = take_from((member + i) % num_members_, i == 0);
    if (piece.count > 0) return piece;
  }
  return {0, 0};
}

// The words order nothing but themselves.
Piece PanelShares::take_from(int64_t owner, bool is_owner) {
  std::atomic<uint64_t>& word = shares_[static_cast<size_t>(owner)].word;
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (true) {
    Range range = range_of(owner, seen);
    const int64_t count = piece_units(range, is_owner);
    if (count == 0) return {0, 0};
    const int64_t first = is_owner ? range.begin : range.end - count;
    (is_owner ? range.begin : range.end) += is_owner ? count : -count;
    range.owned = range.owned || is_owner;
    if (word.compare_exchange_weak(seen, word_of(range), std::memory_order_relaxed)) {
      return piece_at(share_begin(owner) + first, count);
    }
  }
}

int64_t PanelShares::share_begin(int64_t member) const {
  return divide_up(member * num_units_, num_members_);
}

PanelShares::Range PanelShares::range_of(int64_t owner, uint64_t word) const {
  if (word >> 32 != division_) return {0, share_begin(owner + 1) - share_begin(owner), false};
  return {static_cast<int64_t>(word & 0xFFFF), static_cast<int64_t>(word >> 16 & 0x7FFF),
          (word >> 31 & 1) != 0};
}

uint64_t PanelShares::word_of(const Range& range) const {
  return uint64_t{division_} << 32 | uint64_t{range.owned} << 31 |
         static_cast<uint64_t>(range.end << 16 | range.begin);
}

// Most of what is left for its owner, half of it for others.
int64_t PanelShares::piece_units(const Range& range, bool is_owner) const {
  const int64_t left = range.end - range.begin;
  if (!is_owner && range.owned && left <= kUnitsLeftToOwner) return 0;
  const int64_t wanted = is_owner ? left * 3 / 4 : left / 2;
  return std::min(left, std::clamp<int64_t>(wanted, 1, most_));
}

Piece PanelShares::piece_at(int64_t first_unit, int64_t num_units) const {
  const int64_t first = first_unit * unit_;
  return {first, std::min(num_units * unit_, num_panels_ - first)};
}

}  // namespace headrace::cpu
