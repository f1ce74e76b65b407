#include "verify/sequence_runner.h"

#include <algorithm>
#include <utility>

namespace headrace {

Result<SequenceRunner> SequenceRunner::create(Model& model, Backend& backend, int64_t max_tokens,
                                              int chunk_tokens) {
  const int64_t num_blocks = (max_tokens + kBlockTokens - 1) / kBlockTokens;
  const CacheLayout layout = plan_cache(model.cache_groups(), backend);
  KvStore store =
      TRY(KvStore::create(backend, layout, std::max<int64_t>(num_blocks, 1) * layout.num_columns));
  if (chunk_tokens <= 0) chunk_tokens = model.options().max_batch_tokens;
  const auto num_logits = static_cast<size_t>(model.options().max_logit_rows) *
                          static_cast<size_t>(model.config().vocab_size);
  DeviceMemory logits = TRY(backend.allocate(num_logits * sizeof(float), MemoryUse::kResults));
  return SequenceRunner(model, backend, std::move(store), std::move(logits), chunk_tokens);
}

SequenceRunner::SequenceRunner(Model& model, Backend& backend, KvStore store, DeviceMemory logits,
                               int chunk_tokens)
    : model_(&model),
      backend_(&backend),
      store_(std::move(store)),
      chunk_tokens_(chunk_tokens),
      tables_(WholeTables::in_order(store_.num_blocks() / store_.num_columns() * kBlockTokens,
                                    store_.num_columns(),
                                    store_.num_blocks() / store_.num_columns())),
      logits_(std::move(logits)) {}

void SequenceRunner::restart() {
  tokens_.clear();
  num_computed_ = 0;
  rope_epoch_ = 0;
}

void SequenceRunner::append(std::span<const int32_t> ids, int64_t first_visited,
                            const LogitVisitor& visit, const HiddenTap& tap) {
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  CHECK(num_tokens() <= tables_.num_tokens(), "{} tokens, there is room for {}", num_tokens(),
        tables_.num_tokens());
  const int64_t epoch = model_->rope_epoch(num_tokens());
  if (epoch != rope_epoch_) num_computed_ = 0;
  rope_epoch_ = epoch;
  while (num_computed_ < num_tokens()) compute_chunk(first_visited, visit, tap);
}

// One forward of at most chunk_tokens_ tokens, and no more logit rows than the model has room for.
void SequenceRunner::compute_chunk(int64_t first_visited, const LogitVisitor& visit,
                                   const HiddenTap& tap) {
  const int64_t begin = num_computed_;
  int64_t end = std::min<int64_t>(num_tokens(), begin + chunk_tokens_);
  const int64_t first_logit = std::max(begin, first_visited);
  end = std::min(end, first_logit + model_->options().max_logit_rows);
  logit_rows_.clear();
  for (int64_t position = first_logit; position < end; ++position) {
    logit_rows_.push_back(static_cast<int32_t>(position - begin));
  }
  Span span{0, static_cast<int32_t>(end - begin), begin, tables_.data(), rope_epoch_};
  span.adapter = adapter_;
  const auto ids =
      std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  model_->forward(Batch{ids, {&span, 1}, logit_rows_}, store_, logits_.as<float>(), tap);
  num_computed_ = end;
  if (logit_rows_.empty()) return;
  const auto vocab_size = static_cast<size_t>(model_->config().vocab_size);
  const auto logits = backend_->read_view(logits_.as<float>(), logit_rows_.size() * vocab_size);
  for (size_t i = 0; i < logit_rows_.size(); ++i) {
    visit(begin + logit_rows_[i], logits.subspan(i * vocab_size, vocab_size));
  }
}

std::vector<int32_t> SequenceRunner::generate_greedy(std::span<const int32_t> prompt,
                                                     int num_tokens) {
  std::vector<int32_t> generated;
  int32_t next = -1;
  const auto take = [&next](int64_t, std::span<const float> logits) { next = argmax(logits); };
  append(prompt, this->num_tokens() + static_cast<int64_t>(prompt.size()) - 1, take);
  for (int i = 0; i < num_tokens; ++i) {
    generated.push_back(next);
    if (i + 1 < num_tokens) append({&next, 1}, this->num_tokens(), take);
  }
  return generated;
}

int32_t argmax(std::span<const float> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace headrace
