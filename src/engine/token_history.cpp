#include "engine/token_history.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

uint64_t mix(uint64_t key) {
  key = (key ^ (key >> 32)) * 0xD6E8FEB86659FD93u;
  key = (key ^ (key >> 32)) * 0xD6E8FEB86659FD93u;
  return key ^ (key >> 32);
}

uint64_t key_of_run(std::span<const int32_t> run) {
  uint64_t key = run.size();
  for (const int32_t id : run) key = mix(key ^ static_cast<uint32_t>(id)) + 0x9E3779B97F4A7C15u;
  return key;
}

float limited(float logit) { return std::clamp(logit, -kLargestLogit, kLargestLogit); }

}  // namespace

size_t KeyIndex::slot_of(uint64_t key) const {
  size_t slot = mix(key) & (slots_.size() - 1);
  while (slots_[slot].used && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

int32_t KeyIndex::find(uint64_t key) const {
  return slots_.empty() ? -1 : slots_[slot_of(key)].value;
}

int32_t& KeyIndex::at(uint64_t key) {
  if (2 * (num_used_ + 1) > slots_.size()) {
    std::vector<Slot> before(std::max<size_t>(64, 2 * slots_.size()));
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.used) slots_[slot_of(slot.key)] = slot;
    }
  }
  Slot& slot = slots_[slot_of(key)];
  if (!slot.used) {
    slot = {key, -1, true};
    ++num_used_;
  }
  return slot.value;
}

bool TokenHistory::is_needed(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0 || sampling.dry.multiplier != 0;
}

TokenHistory::TokenHistory(const SamplingParams& sampling, int32_t num_prompt)
    : sampling_(sampling), num_prompt_(static_cast<size_t>(num_prompt)) {}

bool TokenHistory::counts() const {
  return sampling_.repetition_penalty != 1 || sampling_.presence_penalty != 0 ||
         sampling_.frequency_penalty != 0;
}

bool TokenHistory::is_breaker(int32_t id) const {
  const auto& breakers = sampling_.dry.breakers;
  return breakers != nullptr && std::binary_search(breakers->begin(), breakers->end(), id);
}

void TokenHistory::extend(std::span<const int32_t> tokens) {
  for (; size_ < tokens.size(); ++size_) {
    if (counts()) {
      int32_t& place = seen_index_.at(static_cast<uint32_t>(tokens[size_]));
      if (place < 0) {
        place = static_cast<int32_t>(seen_.size());
        seen_.push_back({tokens[size_], 0});
      }
      seen_[static_cast<size_t>(place)].num_output += size_ >= num_prompt_ ? 1 : 0;
    }
    if (sampling_.dry.multiplier != 0) index_run(tokens.first(size_ + 1));
  }
}

// The run that ends with the last token. One that holds a breaker is no repetition.
void TokenHistory::index_run(std::span<const int32_t> tokens) {
  previous_.push_back(-1);
  const auto length = static_cast<size_t>(sampling_.dry.allowed_length);
  if (tokens.size() < length) return;
  const auto run = tokens.last(length);
  if (std::any_of(run.begin(), run.end(), [this](int32_t id) { return is_breaker(id); })) return;
  int32_t& last = runs_.at(key_of_run(run));
  previous_.back() = last;
  last = static_cast<int32_t>(tokens.size()) - 1;
}

void TokenHistory::penalise(std::span<const int32_t> tokens, float* logits) const {
  if (counts()) add_penalties(tokens, logits);
  if (sampling_.dry.multiplier != 0) add_dry(tokens, logits);
}

// The tokens behind those that are known are few.
void TokenHistory::add_penalties(std::span<const int32_t> tokens, float* logits) const {
  const auto later = tokens.subspan(size_);
  const auto output = tokens.subspan(std::max(size_, std::min(num_prompt_, tokens.size())));
  const auto count_later = [&](int32_t id) {
    return static_cast<int32_t>(std::count(output.begin(), output.end(), id));
  };
  for (const Seen& seen : seen_) {
    penalise_token({seen.id, seen.num_output + count_later(seen.id)}, logits);
  }
  for (size_t i = 0; i < later.size(); ++i) {
    const auto before = later.first(i);
    const bool is_first = std::find(before.begin(), before.end(), later[i]) == before.end() &&
                          seen_index_.find(static_cast<uint32_t>(later[i])) < 0;
    if (is_first) penalise_token({later[i], count_later(later[i])}, logits);
  }
}

void TokenHistory::penalise_token(const Seen& seen, float* logits) const {
  const bool repetition = sampling_.repetition_penalty != 1;
  if (!repetition && seen.num_output == 0) return;
  float logit = logits[seen.id];
  if (repetition) {
    logit = logit > 0 ? logit / sampling_.repetition_penalty : logit * sampling_.repetition_penalty;
  }
  if (seen.num_output > 0) {
    logit -= sampling_.presence_penalty +
             sampling_.frequency_penalty * static_cast<float>(seen.num_output);
  }
  logits[seen.id] = limited(logit);
}

// How many tokens up to this place equal the last ones.
int32_t TokenHistory::repeated_length(std::span<const int32_t> tokens, size_t last) const {
  const auto window = static_cast<size_t>(sampling_.dry.window);
  const bool whole = sampling_.dry.window < 0 || window >= tokens.size();
  const size_t first = whole ? 0 : tokens.size() - window;
  size_t length = 0;
  while (length < size_t{kMaxDryLength} && first + length <= last) {
    const int32_t id = tokens[last - length];
    if (id != tokens[tokens.size() - 1 - length] || is_breaker(id)) break;
    ++length;
  }
  return static_cast<int32_t>(length);
}

// Of the latest earlier places: what came next, and how much was equal before it.
std::vector<TokenHistory::Repeat> TokenHistory::find_repeats(
    std::span<const int32_t> tokens) const {
  const auto allowed = static_cast<size_t>(sampling_.dry.allowed_length);
  std::vector<Repeat> repeats;
  if (tokens.size() <= allowed) return repeats;
  const auto is_full = [&] { return repeats.size() == size_t{kMaxDryPlaces}; };
  const auto add = [&](size_t last) {
    const int32_t length = repeated_length(tokens, last);
    if (length < sampling_.dry.allowed_length) return false;
    repeats.push_back({tokens[last + 1], length});
    return true;
  };
  // Behind the index, then in it, where the first that is too short is beyond the window. The place
  // of the last tokens themselves is none.
  for (size_t last = tokens.size() - 1; last-- > size_ && !is_full();) add(last);
  int32_t place = runs_.find(key_of_run(tokens.last(allowed)));
  for (; place >= 0 && !is_full(); place = previous_[static_cast<size_t>(place)]) {
    const bool is_itself = static_cast<size_t>(place) + 1 == tokens.size();
    if (!is_itself && !add(static_cast<size_t>(place))) break;
  }
  return repeats;
}

void TokenHistory::add_dry(std::span<const int32_t> tokens, float* logits) const {
  std::vector<Repeat> repeats = find_repeats(tokens);
  std::sort(repeats.begin(), repeats.end(), [](const Repeat& a, const Repeat& b) {
    return a.next_id != b.next_id ? a.next_id < b.next_id : a.length > b.length;
  });
  for (size_t i = 0; i < repeats.size(); ++i) {
    const auto [id, length] = repeats[i];
    if ((i > 0 && repeats[i - 1].next_id == id) || is_breaker(id)) continue;
    const double power = std::pow(double{sampling_.dry.base},
                                  static_cast<double>(length - sampling_.dry.allowed_length));
    const double loss = std::min(double{sampling_.dry.multiplier} * power, double{kLargestLogit});
    logits[id] = limited(logits[id] - static_cast<float>(loss));
  }
}

}  // namespace headrace
