#include "engine/evictor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {

Evictor::Evictor(int64_t num_blocks, const EvictionRule& rule)
    : rule_(rule),
      most_kept_(num_blocks * rule.kept_percent / 100),
      most_of_owner_(num_blocks * rule.owner_kept_percent / 100),
      blocks_(static_cast<size_t>(num_blocks)) {}

void Evictor::raise(int32_t block_id, BlockWorth worth) {
  Block& block = at(block_id);
  CHECK(!block.listed && worth != BlockWorth::kKept, "block {} is not held", block_id);
  block.worth = std::max(block.worth, worth);
}

bool Evictor::keep(int32_t block_id, TimeUs until, uint64_t owner) {
  Block& block = at(block_id);
  CHECK(!block.listed, "block {} is not held", block_id);
  if (block.worth != BlockWorth::kKept) {
    const auto slot = static_cast<uint8_t>(owner % kNumOwners);
    if (num_kept_[slot] >= most_of_owner_) return false;
    ++num_kept_[slot];
    block.worth = BlockWorth::kKept;
    block.owner = slot;
  }
  block.keep_until = std::max(block.keep_until, until);
  return true;
}

void Evictor::clear(int32_t block_id) {
  Block& block = at(block_id);
  CHECK(!block.listed, "block {} is not held", block_id);
  if (block.worth == BlockWorth::kKept) --num_kept_[block.owner];
  block.keep_until = 0;
  block.worth = BlockWorth::kSpare;
}

void Evictor::push(int32_t block_id) {
  Block& block = at(block_id);
  CHECK(!block.listed, "block {} is left twice", block_id);
  Queue& to = queue(block.worth);
  block.listed = true;
  block.left = ++num_left_;
  block.older = to.newest;
  block.newer = -1;
  (to.newest >= 0 ? at(to.newest).newer : to.oldest) = block_id;
  to.newest = block_id;
  ++to.size;
  ++num_listed_;
}

void Evictor::remove(int32_t block_id) {
  Block& block = at(block_id);
  CHECK(std::exchange(block.listed, false), "block {} is not cached", block_id);
  Queue& from = queue(block.worth);
  (block.older >= 0 ? at(block.older).newer : from.oldest) = block.newer;
  (block.newer >= 0 ? at(block.newer).older : from.newest) = block.older;
  block.older = block.newer = -1;
  --from.size;
  --num_listed_;
}

int32_t Evictor::left_first(int32_t a, int32_t b) const {
  if (a < 0 || b < 0) return std::max(a, b);
  return at(a).left < at(b).left ? a : b;
}

bool Evictor::is_protected(int32_t block_id) const {
  return at(block_id).keep_until > now_ && queue(BlockWorth::kKept).size <= most_kept_;
}

int32_t Evictor::next() const {
  if (queue(BlockWorth::kSpare).size > 0) return queue(BlockWorth::kSpare).oldest;
  const Queue& fresh = queue(BlockWorth::kNew);
  if (fresh.size * 100 > num_listed_ * rule_.new_percent) return fresh.oldest;
  const int32_t first = left_first(fresh.oldest, queue(BlockWorth::kReused).oldest);
  const int32_t kept = queue(BlockWorth::kKept).oldest;
  if (kept < 0 || (first >= 0 && is_protected(kept))) return first;
  return left_first(first, kept);
}

std::vector<int32_t> Evictor::listed() const {
  std::vector<int32_t> all;
  for (const Queue& from : queues_) {
    for (int32_t i = from.oldest; i >= 0 && all.size() <= blocks_.size(); i = at(i).newer) {
      all.push_back(i);
    }
  }
  return all;
}

}  // namespace headrace
