// The continuations of a beam: a row of log-probs, what forbids and penalises them, the best.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/sampler.h"

namespace headrace {

bool Sampler::ends_output(const Request& request, const SampleContext& context, int32_t id) {
  const auto contains = [id](const auto& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return contains(request.stop_ids) || (!request.ignore_eos && contains(context.end_ids));
}

// Into weights_. As score() has them.
Status Sampler::fill_logprobs(const float* logits, const RowParts& parts) {
  static const SamplingParams kAsComputed;
  const VocabRange range = TRY(checked_range(logits, parts));
  const auto log_sum =
      static_cast<float>(std::log(sum_weights({logits, range, kAsComputed, parts, 0, 0, 0}, 1.0f)));
  parts.run(vocab_size_, [&](size_t, size_t first, size_t end) {
    for (size_t id = first; id < end; ++id) weights_[id] = (logits[id] - range.largest) - log_sum;
  });
  return {};
}

Result<std::vector<BeamCandidate>> Sampler::continuations(const float* logits,
                                                          const Request& request,
                                                          const SampleContext& context) {
  TRY(fill_logprobs(logits, context.parts));
  const float* row = weights_.data();
  if (modifies(request, context)) {
    modify(row, request, context);
    row = modified_.data();
  }
  const auto width = static_cast<size_t>(request.beams.width);
  // As many may stand before the last that is wanted.
  const size_t num_ends =
      request.stop_ids.size() + (request.ignore_eos ? 0 : context.end_ids.size());
  const size_t count = std::min(width + num_ends, vocab_size_);
  const std::span<int32_t> ids = search_.ids().first(gather_best(row, count, context.parts));
  const auto last = ids.begin() + static_cast<int64_t>(count);
  const auto is_before = [row](int32_t a, int32_t b) {
    return row[a] != row[b] ? row[a] > row[b] : a < b;
  };
  std::nth_element(ids.begin(), last - 1, ids.end(), is_before);
  std::sort(ids.begin(), last, is_before);
  std::vector<BeamCandidate> candidates;
  size_t num_live = 0;
  for (auto id = ids.begin(); id != last && num_live < width; ++id) {
    if (row[*id] == -std::numeric_limits<float>::infinity()) break;
    const bool ends = ends_output(request, context, *id);
    if (ends && candidates.size() >= width) continue;
    candidates.push_back({*id, row[*id], ends});
    num_live += ends ? 0 : 1;
  }
  return candidates;
}

}  // namespace headrace
