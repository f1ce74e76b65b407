// Draft: guesses at the next tokens of a sequence, and what they rest on. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace headrace {

// Who guesses: what a constraint hardly leaves open, a repetition in the text, the text that the
// client expects, a smaller model, a head of the model itself.
enum class DraftSource : uint8_t { kConstraint, kText, kPrediction, kModel, kHead };
inline constexpr size_t kNumDraftSources = 5;
// As metrics name them.
inline constexpr std::string_view kDraftSourceNames[kNumDraftSources] = {
    "constraint", "ngram", "prediction", "draft", "mtp"};

// What guesses rest on.
struct DraftGround {
  DraftSource source = DraftSource::kText;
  int32_t match_length = 0;  // kText, kPrediction: tokens that are the same before the guesses
};

struct Draft {
  std::vector<int32_t> token_ids;
  DraftGround ground;
};

// How guesses of one sequence fared lately; engine/draft_policy.h.
struct DraftRecord {
  float tried = 0;
  float kept = 0;
};

// Guesses since the start, by source.
struct DraftCounts {
  static constexpr size_t kNumPositions = 8;
  uint64_t num_drafts = 0;                            // spans with guesses
  uint64_t num_tokens = 0;                            // guessed and computed
  uint64_t num_accepted = 0;                          // of them, right
  std::array<uint64_t, kNumPositions> accepted_at{};  // [i]: drafts whose guess i was kept
};

}  // namespace headrace
