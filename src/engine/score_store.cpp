#include "engine/score_store.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

constexpr size_t kEntryBytes = 256;  // of list, map and heap for an entry, beside its values

}  // namespace

size_t ScoreStore::bytes_of(const Entry& entry) {
  return kEntryBytes + entry.tokens.capacity() * sizeof(Token) +
         entry.top.capacity() * sizeof(entry.top.front());
}

void ScoreStore::erase(List::iterator entry) {
  num_bytes_ -= bytes_of(*entry);
  by_name_.erase(entry->name);
  entries_.erase(entry);
}

void ScoreStore::put(const Digest& name, int num_top,
                     std::span<const std::optional<TokenLogprobs>> scores) {
  CHECK(scores.size() == kBlockTokens, "scores of {} tokens", scores.size());
  const auto same = by_name_.find(name);
  if (same != by_name_.end()) {
    if (same->second->num_top >= num_top) return;
    erase(same->second);
  }
  Entry entry;
  entry.name = name;
  entry.num_top = num_top;
  entry.tokens.reserve(scores.size());
  size_t num_pairs = 0;
  for (const auto& score : scores) num_pairs += score ? score->top.size() : 0;
  entry.top.reserve(num_pairs);
  for (const auto& score : scores) {
    Token token;
    if (score) {
      token = {score->logprob, score->rank, static_cast<int32_t>(score->top.size())};
      entry.top.insert(entry.top.end(), score->top.begin(), score->top.end());
    }
    entry.tokens.push_back(token);
  }
  const size_t bytes = bytes_of(entry);
  if (bytes > max_bytes_) return;
  while (num_bytes_ + bytes > max_bytes_) erase(entries_.begin());
  num_bytes_ += bytes;
  entries_.push_back(std::move(entry));
  by_name_.emplace(name, std::prev(entries_.end()));
}

bool ScoreStore::contains(const Digest& name, int num_top) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() && found->second->num_top >= num_top;
}

bool ScoreStore::read(const Digest& name, int num_top, Scores scores) {
  if (!contains(name, num_top)) return false;
  CHECK(scores.size() == kBlockTokens, "room for {} scores", scores.size());
  const auto entry = by_name_.find(name)->second;
  entries_.splice(entries_.end(), entries_, entry);
  auto top = entry->top.begin();
  for (size_t i = 0; i < scores.size(); ++i) {
    const Token& token = entry->tokens[i];
    scores[i].reset();
    if (token.num_top < 0) continue;
    const auto end = top + std::min(token.num_top, num_top);
    scores[i] = TokenLogprobs{token.logprob, token.rank, {top, end}};
    top += token.num_top;
  }
  return true;
}

void ScoreStore::clear() {
  entries_.clear();
  by_name_.clear();
  num_bytes_ = 0;
}

}  // namespace headrace
