#include "engine/text_drafter.h"

#include "base/prefetch.h"

namespace headrace {

int32_t TextDrafter::propose(std::span<DraftTask> tasks) {
  asked_.clear();
  for (const DraftTask& task : tasks) {
    const Sequence& sequence = *task.sequence;
    const auto known = std::span(sequence.tokens).first(static_cast<size_t>(sequence.num_known()));
    TextMatcher& matcher =
        matchers_.try_emplace(sequence.id, sequence.request.predicted_ids).first->second;
    matcher.append(known.subspan(static_cast<size_t>(matcher.size())));
    asked_.push_back({&matcher, {}});
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    DraftTask& task = tasks[i];
    TextMatcher& matcher = *asked_[i].matcher;
    const TextMatcher::Match match = matcher.find();
    const bool is_predicted = matcher.is_in_reference(match);
    task.draft.ground = {is_predicted ? DraftSource::kPrediction : DraftSource::kText,
                         match.length};
    matcher.copy(match, task.max_tokens, &task.draft.token_ids);
    asked_[i].ahead = matcher.look_ahead(task.draft.token_ids);
  }
  return 0;
}

void TextDrafter::touch() const {
  for (const Asked& asked : asked_) prefetch(asked.matcher, sizeof(TextMatcher));
  for (const Asked& asked : asked_) asked.matcher->touch_ends(asked.ahead);
}

void TextDrafter::forget(RequestId id) {
  asked_.clear();  // it may be one of them
  matchers_.erase(id);
}

}  // namespace headrace
