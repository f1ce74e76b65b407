#include "engine/session_memory.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

bool is_used_earlier(const SessionMemory::Branch& a, const SessionMemory::Branch& b) {
  return a.used < b.used;
}

}  // namespace

int64_t num_common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

void SessionMemory::erase(Branches::iterator branch) {
  num_tokens_ -= branch->tokens.capacity();
  if (branch != branches_.end() - 1) std::swap(*branch, branches_.back());
  branches_.pop_back();
}

// What the new tokens go on from is no branch of its own any more; of too many the oldest goes.
void SessionMemory::make_room_in(const Digest& session, std::span<const int32_t> tokens) {
  int count = 0;
  auto oldest = branches_.end();
  for (auto branch = branches_.begin(); branch != branches_.end(); ++branch) {
    if (branch->session != session) continue;
    if (num_common_tokens(branch->tokens, tokens) == std::ssize(branch->tokens)) {
      return erase(branch);
    }
    if (oldest == branches_.end() || is_used_earlier(*branch, *oldest)) oldest = branch;
    ++count;
  }
  if (count >= kMaxBranches) erase(oldest);
}

void SessionMemory::keep(Branch branch) {
  std::vector<int32_t>& tokens = branch.tokens;
  if (tokens.capacity() > 2 * tokens.size()) tokens.shrink_to_fit();
  const size_t size = tokens.capacity();
  if (size > max_tokens_ || max_branches_ == 0) return;
  make_room_in(branch.session, tokens);
  while (branches_.size() >= max_branches_ || num_tokens_ + size > max_tokens_) {
    erase(std::min_element(branches_.begin(), branches_.end(), is_used_earlier));
  }
  num_tokens_ += size;
  branch.used = ++clock_;
  branches_.push_back(std::move(branch));
}

const SessionMemory::Branch* SessionMemory::find(const Digest& session,
                                                 std::span<const int32_t> tokens) {
  Branch* best = nullptr;
  int64_t most = -1;
  for (Branch& branch : branches_) {
    if (branch.session != session) continue;
    const int64_t common = num_common_tokens(branch.tokens, tokens);
    if (common < most || (common == most && is_used_earlier(branch, *best))) continue;
    best = &branch;
    most = common;
  }
  if (best != nullptr) best->used = ++clock_;
  return best;
}

const SessionMemory::Branch* SessionMemory::newest(const Digest& session) const {
  const Branch* best = nullptr;
  for (const Branch& branch : branches_) {
    if (branch.session != session) continue;
    if (best == nullptr || is_used_earlier(*best, branch)) best = &branch;
  }
  return best;
}

void SessionMemory::clear() {
  branches_.clear();
  num_tokens_ = 0;
}

}  // namespace headrace
