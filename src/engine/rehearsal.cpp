#include "engine/rehearsal.h"

#include <utility>

#include "engine/text_drafter.h"

namespace headrace {
namespace {

constexpr int kNumStreams = 2;
constexpr int64_t kMaxContext = 1024;
constexpr TimeUs kStepUs = 20'000;

// A text of 24 tokens again and again, in which every twelfth or so is another.
int32_t token_at(int64_t position) {
  const auto mixed = static_cast<uint64_t>(position) * 0x9E3779B97F4A7C15u;
  return (mixed >> 32) % 12 == 0 ? 100 + static_cast<int32_t>(mixed >> 60)
                                 : static_cast<int32_t>(position % 24);
}

SchedulerOptions options_like(const SchedulerOptions& like, Drafter* drafter) {
  SchedulerOptions options;
  options.max_context = kMaxContext;
  options.num_blocks = 2 * kNumStreams * kMaxContext / kBlockTokens;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  options.drafter = drafter;
  options.max_draft_tokens = like.max_draft_tokens;
  options.inter_token_target_us = like.inter_token_target_us;
  return options;
}

}  // namespace

Rehearsal::Rehearsal(const SchedulerOptions& like)
    : drafter_(like.drafter != nullptr ? std::make_unique<TextDrafter>() : nullptr),
      core_(options_like(like, drafter_.get()), {"f32", 1}, nullptr) {}

void Rehearsal::step() {
  deliver();
  if (const StepPlan* plan = core_.in_flight()) {
    make_results(*plan);
    now_ += kStepUs;
    core_.commit(results_, now_);
  }
  while (num_running_ < kNumStreams) admit();
  core_.draft(now_);
  core_.plan(now_);
}

void Rehearsal::admit() {
  Request request;
  for (int64_t i = 0; i < kBlockTokens; ++i) request.prompt_ids.push_back(token_at(i));
  request.max_tokens = static_cast<int32_t>(kMaxContext - kBlockTokens);
  request.ignore_eos = true;
  ++num_running_;
  core_.admit({++next_id_, std::move(request), [](Event&&) { return true; }, now_});
}

void Rehearsal::deliver() {
  core_.settle();
  while (core_.has_events()) {
    core_.count_events();
    core_.deliver_events(now_, [this](RequestId) { --num_running_; });
  }
}

void Rehearsal::make_results(const StepPlan& plan) {
  results_.resize(plan.spans.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    const Span& span = plan.spans[i];
    results_[i].sampled.resize(static_cast<size_t>(span.num_sampled));
    int64_t position = span.first_position + span.num_rows - span.num_sampled;
    for (SampledToken& sampled : results_[i].sampled) {
      sampled.clear();
      sampled.token_id = token_at(++position);
    }
  }
}

}  // namespace headrace
