// A model for simulations: tokens, scores and failures as functions of what stands before them.
//
// "K and V" of a position are a hash of all tokens up to it, stored by (block, slot) as the plan's
// tables say; a wrong, stale, shared or early block is seen by whoever reads it. Some prefixes are
// poisoned: their row is not a finite number, whenever it is computed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "engine/constraint.h"
#include "engine/scheduler.h"
#include "engine/testing/beam_reference.h"
#include "model/adapter.h"
#include "sim/draft_support.h"
#include "sim/fake_model.h"

namespace headrace::sim {

inline constexpr int32_t kFirstLetter = 'A';
inline constexpr int32_t kNumLetters = 40;
inline constexpr int32_t kEndToken = 257;
inline constexpr int32_t kVocabSize = 258;

struct ModelRules {
  uint64_t poisoned_of_4096 = 0;  // prefixes
  int64_t epoch_edge = INT64_MAX;
  int64_t epoch_span = INT64_MAX;  // past the edge: tokens of one epoch

  int64_t epoch(int64_t num_tokens) const {
    return num_tokens <= epoch_edge ? 0 : 1 + (num_tokens - epoch_edge - 1) / epoch_span;
  }
  bool is_poisoned(uint64_t hash) const { return mix_bits(hash + 77) % 4096 < poisoned_of_4096; }
};

// What one request is to the model: everything beside its tokens that decides a row.
struct Identity {
  uint64_t domain = 0;  // of the cache, and which adapter
  uint64_t choice = 0;  // of the draws
  int64_t salt = -1;    // of its constraint; -1: none
};

inline constexpr uint64_t kNumAdapters = 3;  // the model alone is one of them

// The digest of an adapter here is a text of that length.
inline Identity identity_of(const Request& request, int64_t salt) {
  const uint64_t adapter = request.adapter == nullptr ? 0 : request.adapter->digest.size();
  return {request.cache_domain.size() * kNumAdapters + adapter, request.sampling.choice_idx, salt};
}

inline uint64_t hash_after(uint64_t before, const Identity& who, int32_t token, int64_t position,
                           int64_t epoch) {
  return extend_hash(before, token, position, epoch * 16 + static_cast<int64_t>(who.domain));
}

// The token drawn after a prefix; `allows` says which may come.
template <typename Allows>
int32_t token_after(uint64_t hash, const Identity& who, const Allows& allows) {
  for (uint64_t attempt = 0;; ++attempt) {
    const uint64_t bits = mix_bits(hash ^ (who.choice * 131 + attempt * 7 + 1));
    const int32_t id =
        bits % 64 == 0 ? kEndToken : kFirstLetter + static_cast<int32_t>(bits / 64 % kNumLetters);
    if (allows(id)) return id;
  }
}
inline int32_t score_after(uint64_t hash) { return static_cast<int32_t>(hash & 0xFFFF); }
inline float logprob_after(uint64_t hash) {
  return -0.01f * static_cast<float>(mix_bits(hash + 5) % 1000);
}

// Log-probs of all tokens after a prefix, as a beam search sees them.
inline std::vector<float> beam_row(uint64_t hash) {
  std::vector<float> row(kVocabSize, -std::numeric_limits<float>::infinity());
  const auto logprob = [hash](uint64_t id) {
    return -0.01f - 0.01f * static_cast<float>(mix_bits(hash + id * 977) % 1000);
  };
  for (int32_t i = 0; i < kNumLetters; ++i) {
    row[static_cast<size_t>(kFirstLetter + i)] = logprob(static_cast<uint64_t>(i));
  }
  row[kEndToken] = logprob(uint64_t{kNumLetters});
  return row;
}
inline std::set<int32_t> end_ids_of(const Request& request) {
  std::set<int32_t> ids(request.stop_ids.begin(), request.stop_ids.end());
  if (!request.ignore_eos) ids.insert(kEndToken);
  return ids;
}

// What a request gives when it is alone, computed without scheduler and cache.
struct Answer {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kLength;
  int32_t stop_id = -1;
  std::vector<float> logprobs;             // of the tokens, but for a search
  std::vector<BeamHypothesis> hypotheses;  // of a search; the rest is the best one's
};

class Oracle {
 public:
  Oracle(const ModelRules& rules, const Request& request, const Identity& who, int64_t max_context)
      : rules_(rules), request_(request), who_(who), max_context_(max_context) {}

  // longest: tokens of a beam of a search.
  Answer search(int64_t longest) {
    Answer answer;
    const auto max_length = static_cast<int32_t>(longest - std::ssize(request_.prompt_ids));
    BeamReference reference(request_.beams, max_length, end_ids_of(request_));
    bool is_poisoned = false;
    answer.hypotheses = reference.run([&](const std::vector<int32_t>& output) {
      tokens_ = request_.prompt_ids;
      tokens_.insert(tokens_.end(), output.begin(), output.end());
      num_computed_ = 0;
      hash_ = 0;
      epoch_ = rules_.epoch(std::ssize(tokens_));
      is_poisoned = is_poisoned || !compute();
      // Nothing more is asked after the row that fails.
      return is_poisoned ? std::vector<float>() : beam_row(hash_);
    });
    if (is_poisoned) {
      answer.hypotheses.clear();
      answer.reason = FinishReason::kError;
      return answer;
    }
    answer.tokens = answer.hypotheses[0].token_ids;
    answer.stop_id = answer.hypotheses[0].stop_id;
    if (answer.stop_id >= 0) answer.reason = FinishReason::kStop;
    return answer;
  }

  Answer answer() {
    tokens_ = request_.prompt_ids;
    Answer answer;
    while (true) {
      if (!compute()) {
        answer.reason = FinishReason::kError;
        break;
      }
      if (request_.max_tokens == 0) break;
      const int32_t token = next();
      if (ends(token)) {
        answer.reason = FinishReason::kStop;
        answer.stop_id = token;
        break;
      }
      tokens_.push_back(token);
      answer.tokens.push_back(token);
      answer.logprobs.push_back(logprob_after(hash_));
      const bool is_last =
          std::ssize(answer.tokens) >= request_.max_tokens || std::ssize(tokens_) >= max_context_;
      if (is_last) break;
    }
    return answer;
  }

 private:
  // Rows of all tokens; false: one is poisoned.
  bool compute() {
    const int64_t epoch = rules_.epoch(std::ssize(tokens_));
    if (epoch != epoch_) {
      num_computed_ = 0;
      hash_ = 0;
      epoch_ = epoch;
    }
    for (; num_computed_ < tokens_.size(); ++num_computed_) {
      hash_ = hash_after(hash_, who_, tokens_[num_computed_], static_cast<int64_t>(num_computed_),
                         epoch);
      if (rules_.is_poisoned(hash_)) return false;
    }
    return true;
  }
  int32_t next() const {
    const int64_t num_output = std::ssize(tokens_) - std::ssize(request_.prompt_ids);
    return token_after(hash_, who_, [&](int32_t id) {
      return who_.salt < 0 || EveryThirdForbidden::allows(who_.salt, num_output, id);
    });
  }
  bool ends(int32_t token) const {
    const auto& stops = request_.stop_ids;
    return (token == kEndToken && !request_.ignore_eos) ||
           std::find(stops.begin(), stops.end(), token) != stops.end();
  }

  const ModelRules& rules_;
  const Request& request_;
  const Identity who_;
  const int64_t max_context_;
  std::vector<int32_t> tokens_;
  size_t num_computed_ = 0;
  int64_t epoch_ = 0;
  uint64_t hash_ = 0;
};

// The hashes of one sequence's prefixes, as far as they were computed under one epoch.
struct Prefixes {
  std::vector<uint64_t> hashes;
  int64_t epoch = 0;
};

// Slots of a pool of blocks, all positions of a sequence in one column; where the model has state,
// a second one whose blocks hold one hash. Counts what does not fit in num_errors().
class Slots {
 public:
  explicit Slots(const SchedulerOptions& options)
      : has_state_(!KvCache::can_roll_back(options.cache_rules)),
        slots_(static_cast<size_t>(options.num_blocks) * kBlockTokens) {}

  // Checks what the span reads, writes its rows; the hash of each row in row_hashes().
  void run(const ModelRules& rules, const Identity& who, const Span& span,
           std::span<const int32_t> tokens, Prefixes* prefixes) {
    if (prefixes->epoch != span.rope_epoch) *prefixes = {{}, span.rope_epoch};
    const auto first = static_cast<size_t>(span.first_position);
    const auto extend = [&](size_t position, uint64_t before) {
      return hash_after(before, who, tokens[position], static_cast<int64_t>(position),
                        span.rope_epoch);
    };
    std::vector<uint64_t>& known = prefixes->hashes;
    while (known.size() < first)
      known.push_back(extend(known.size(), known.empty() ? 0 : known.back()));
    for (size_t p = 0; p < first; p += p + kBlockTokens < first ? kBlockTokens : 1) {
      // The first slot of each block, every slot of the last.
      const Slot& slot = at(span, p);
      num_errors_ += slot.hash != known[p] || slot.poisoned ? 1 : 0;
    }
    if (has_state_ && first > 0) {
      const Slot& state = state_at(span, first - 1)[0];
      num_errors_ += state.hash != known[first - 1] || state.poisoned ? 1 : 0;
    }
    row_hashes_.clear();
    uint64_t hash = first == 0 ? 0 : known[first - 1];
    const size_t end = first + static_cast<size_t>(span.num_rows);
    for (size_t p = first; p < end; ++p) {
      hash = extend(p, hash);
      row_hashes_.push_back(hash);
      at(span, p) = {hash, rules.is_poisoned(hash)};
    }
    // What kernels may read with weight 0: a value that is not finite there would be seen.
    for (size_t p = end; p % kBlockTokens != 0; ++p) num_errors_ += at(span, p).poisoned ? 1 : 0;
    if (has_state_) write_states(rules, span);
  }
  void scrub(std::span<const int32_t> block_ids) {
    for (const int32_t id : block_ids) {
      std::fill_n(slots_.begin() + int64_t{id} * kBlockTokens, kBlockTokens, Slot{});
    }
  }
  void copy(const BlockCopy& blocks) {
    std::copy_n(slots_.begin() + int64_t{blocks.from} * kBlockTokens, kBlockTokens,
                slots_.begin() + int64_t{blocks.to} * kBlockTokens);
  }
  std::span<const uint64_t> row_hashes() const { return row_hashes_; }
  int64_t num_errors() const { return num_errors_; }

 private:
  struct Slot {
    uint64_t hash = 0;
    bool poisoned = false;
  };
  Slot* block(int32_t block_id) { return &slots_[static_cast<size_t>(block_id) * kBlockTokens]; }
  Slot* state_at(const Span& span, size_t position) {
    return block(span.tables[1][position / kBlockTokens]);
  }
  // What is not finite stays in a state.
  void write_states(const ModelRules& rules, const Span& span) {
    const auto num_known = static_cast<size_t>(span.num_rows - span.num_ahead());
    Slot state;
    for (size_t row = 0; row < row_hashes_.size(); ++row) {
      state.hash = row_hashes_[row];
      state.poisoned |= rules.is_poisoned(state.hash);
      const size_t position = static_cast<size_t>(span.first_position) + row;
      if (row + 1 == num_known) std::fill_n(state_at(span, position), kBlockTokens, state);
    }
    if (span.num_ahead() > 0) std::fill_n(block(span.states_ahead[1]), kBlockTokens, state);
  }
  Slot& at(const Span& span, size_t position) {
    const auto block_id = static_cast<size_t>(span.tables[0][position / kBlockTokens]);
    return slots_[block_id * kBlockTokens + position % kBlockTokens];
  }

  const bool has_state_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> row_hashes_;
  int64_t num_errors_ = 0;
};

// What a step gives a span, from the hashes of its rows.
inline SpanResult result_of(const ModelRules& rules, const Request& request, const Identity& who,
                            const Span& span, std::span<const uint64_t> hashes) {
  SpanResult result;
  const auto num_known = static_cast<size_t>(span.num_rows - span.num_draft);
  for (size_t row = 0; row < num_known; ++row) {
    if (rules.is_poisoned(hashes[row])) result.failure = "poisoned";
  }
  for (int32_t i = 0; i < span.num_scored; ++i) {
    TokenLogprobs score;
    score.rank =
        score_after(hashes[static_cast<size_t>(span.first_scored + i - span.first_position)]);
    result.scored.push_back(std::move(score));
  }
  for (int32_t i = 0; i < span.num_sampled; ++i) {
    const uint64_t hash = hashes[num_known - 1 + static_cast<size_t>(i)];
    const uint64_t* mask = span.masks == nullptr
                               ? nullptr
                               : span.masks + static_cast<size_t>(i) * mask_words(kVocabSize);
    SampledToken sampled;
    sampled.token_id = token_after(
        hash, who, [&](int32_t id) { return mask == nullptr || mask_allows(mask, id); });
    if (request.num_logprobs) sampled.logprobs = TokenLogprobs{logprob_after(hash), 1, {}};
    if (request.beams.width > 0) {
      sampled.token_id = -1;
      sampled.candidates =
          beam_candidates(beam_row(hash), request.beams.width, end_ids_of(request));
    }
    if (i > 0 && rules.is_poisoned(hash)) sampled.failure = "poisoned";
    result.sampled.push_back(std::move(sampled));
  }
  return result;
}

}  // namespace headrace::sim
