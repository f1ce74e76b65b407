#include "backend/cpu/best_outputs.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr uint64_t kNone = UINT64_MAX;

uint64_t word_of(int32_t order, int64_t index) {
  const uint32_t rank = static_cast<uint32_t>(order) ^ 0x80000000u;
  return uint64_t{rank} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(index));
}

template <typename Better>
void replace_if(std::atomic<uint64_t>* word, uint64_t candidate, const Better& better) {
  uint64_t seen = word->load(std::memory_order_relaxed);
  while (better(candidate, seen) && !word->compare_exchange_weak(seen, candidate)) {
  }
}

}  // namespace

Status BestOutputs::reserve(int64_t max_rows) {
  if (max_rows <= num_rows_) return {};
  rows_.reset(new (std::nothrow) Row[static_cast<size_t>(max_rows)]);
  if (rows_ == nullptr) {
    num_rows_ = 0;
    return make_error(ErrorCode::kExhausted, "no memory for the best tokens of {} rows", max_rows);
  }
  num_rows_ = max_rows;
  return {};
}

void BestOutputs::clear(int64_t num_rows) {
  CHECK(num_rows <= num_rows_, "{} rows of {}", num_rows, num_rows_);
  for (int64_t row = 0; row < num_rows; ++row) {
    rows_[static_cast<size_t>(row)].best.store(0, std::memory_order_relaxed);
    rows_[static_cast<size_t>(row)].bad.store(kNone, std::memory_order_relaxed);
  }
}

void BestOutputs::add(int64_t row, const float* values, int64_t count, int64_t first) {
  // A plain loop over integers, so that compilers make vectors of it.
  int32_t best = INT32_MIN;
  int32_t largest_magnitude = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(float_to_bits(values[i]) & 0x7FFFFFFFu);
    largest_magnitude = std::max(largest_magnitude, magnitude);
    best = std::max(best, float_order(values[i]));
  }
  Row& target = rows_[static_cast<size_t>(row)];
  if (largest_magnitude >= 0x7F800000) {
    const int64_t i =
        std::find_if(values, values + count, [](float v) { return !std::isfinite(v); }) - values;
    const uint64_t word = static_cast<uint64_t>(first + i) << 32 | float_to_bits(values[i]);
    replace_if(&target.bad, word, [](uint64_t a, uint64_t b) { return a < b; });
    return;
  }
  const int64_t i =
      std::find_if(values, values + count, [best](float v) { return float_order(v) == best; }) -
      values;
  replace_if(&target.best, word_of(best, first + i), [](uint64_t a, uint64_t b) { return a > b; });
}

BestOutput BestOutputs::get(int64_t row) const {
  const Row& found = rows_[static_cast<size_t>(row)];
  const uint64_t bad = found.bad.load(std::memory_order_relaxed);
  if (bad != kNone) {
    return {static_cast<int32_t>(bad >> 32), false, bits_to_float(static_cast<uint32_t>(bad))};
  }
  const uint64_t best = found.best.load(std::memory_order_relaxed);
  const auto order = static_cast<int32_t>(static_cast<uint32_t>(best >> 32) ^ 0x80000000u);
  const uint32_t bits =
      order < 0 ? 0x80000000u | static_cast<uint32_t>(-order) : static_cast<uint32_t>(order);
  return {static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(best)), true,
          bits_to_float(bits)};
}

}  // namespace headrace::cpu
