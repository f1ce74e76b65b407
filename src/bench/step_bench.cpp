#include "bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "backend/run_apart.h"
#include "base/numeric.h"

namespace headrace {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t blocks_for(int64_t num_tokens) { return (num_tokens + kBlockTokens - 1) / kBlockTokens; }

// Of each column of layers.
int64_t blocks_of_column(const StepBench::Room& room) {
  return blocks_for(room.single_tokens) + room.max_sequences * blocks_for(room.batch_tokens);
}

std::vector<int32_t> fixed_ids(int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  uint64_t state = 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

}  // namespace

Result<StepBench> StepBench::create(Model& model, Backend& backend, const Room& room) {
  const CacheLayout layout = plan_cache(model.cache_groups(), backend);
  KvStore store =
      TRY(KvStore::create(backend, layout, blocks_of_column(room) * layout.num_columns));
  const auto num_logits =
      static_cast<size_t>(room.max_sequences) * static_cast<size_t>(model.config().vocab_size);
  DeviceMemory logits = TRY(backend.allocate(num_logits * sizeof(float), MemoryUse::kResults));
  return StepBench(model, backend, std::move(store), std::move(logits), room);
}

StepBench::StepBench(Model& model, Backend& backend, KvStore store, DeviceMemory logits,
                     const Room& room)
    : model_(&model),
      backend_(&backend),
      store_(std::move(store)),
      single_tables_(
          WholeTables::in_order(room.single_tokens, store_.num_columns(), blocks_of_column(room))),
      logits_(std::move(logits)) {
  for (int64_t s = 0; s < room.max_sequences; ++s) {
    const int64_t first = blocks_for(room.single_tokens) + s * blocks_for(room.batch_tokens);
    batch_tables_.push_back(WholeTables::in_order(room.batch_tokens, store_.num_columns(),
                                                  blocks_of_column(room),
                                                  static_cast<int32_t>(first)));
  }
  token_ids_ = fixed_ids(model.options().max_batch_tokens, model.config().vocab_size);
  best_.resize(static_cast<size_t>(room.max_sequences));
}

void StepBench::fill_contexts(int64_t num_tokens) {
  prefill(num_tokens);
  const auto whole = static_cast<int32_t>(std::max<int64_t>(num_tokens / kBlockTokens, 1));
  const auto stride = static_cast<int32_t>(store_.num_blocks() / store_.num_columns());
  for (int32_t first = 0; first < static_cast<int32_t>(store_.num_blocks()); first += stride) {
    for (int32_t i = whole; i < stride; ++i) store_.copy_block(first + i % whole, first + i);
  }
}

// One step of the first tokens of the fixed text.
void StepBench::forward(std::vector<Span>& spans, std::span<const int32_t> rows, Wanted wanted) {
  int32_t num_rows = 0;
  for (Span& span : spans) {
    span.first_row = num_rows;
    span.rope_epoch = model_->rope_epoch(span.first_position + span.num_rows);
    num_rows += span.num_rows;
  }
  Batch batch{std::span(token_ids_).first(static_cast<size_t>(num_rows)), spans, {}};
  if (wanted == Wanted::kLogits) batch.logit_rows = rows;
  if (wanted == Wanted::kBest) batch.best_rows = rows;
  model_->forward(batch, store_, {logits_.as<float>(), best_.data()});
  backend_->synchronize();
  ++num_steps_;
}

template <typename F>
StepTiming StepBench::time(size_t num_logit_rows, const F& work) {
  StepTiming timing;
  const int64_t steps_before = num_steps_, joins_before = backend_->num_joins();
  run_apart(*backend_, [&] {
    const auto start = std::chrono::steady_clock::now();
    work();
    timing.seconds = seconds_since(start);
  });
  timing.num_steps = num_steps_ - steps_before;
  timing.num_joins = backend_->num_joins() - joins_before;
  timing.digest = 14695981039346656037u;
  const size_t count = num_logit_rows * static_cast<size_t>(model_->config().vocab_size);
  for (const float logit : backend_->read_view(logits_.as<float>(), count)) {
    timing.digest = (timing.digest ^ float_to_bits(logit)) * 1099511628211u;
    timing.finite &= std::isfinite(logit);
  }
  return timing;
}

StepTiming StepBench::prefill(int64_t num_tokens) {
  const int64_t chunk = model_->options().max_batch_tokens;
  std::vector<Span> spans(1);
  return time(1, [&] {
    for (int64_t first = 0; first < num_tokens; first += chunk) {
      const auto count = static_cast<int32_t>(std::min(chunk, num_tokens - first));
      spans[0] = {0, count, first, single_tables_.data()};
      spans[0].adapter = adapter_of(0);
      const int32_t last_row = count - 1;
      const bool last = first + count == num_tokens;
      forward(spans, {&last_row, 1}, last ? Wanted::kLogits : Wanted::kNothing);
    }
  });
}

StepTiming StepBench::decode(int64_t depth, int64_t num_steps) {
  std::vector<Span> spans(1);
  constexpr int32_t kRow = 0;
  return time(1, [&] {
    for (int64_t i = 0; i < num_steps; ++i) {
      spans[0] = {0, 1, depth + i, single_tables_.data()};
      spans[0].adapter = adapter_of(0);
      forward(spans, {&kRow, 1}, i + 1 == num_steps ? Wanted::kLogits : Wanted::kBest);
    }
  });
}

StepTiming StepBench::decode_batch(int num_sequences, int64_t depth, int64_t num_steps) {
  std::vector<Span> spans(static_cast<size_t>(num_sequences));
  std::vector<int32_t> rows(static_cast<size_t>(num_sequences));
  std::iota(rows.begin(), rows.end(), 0);
  return time(spans.size(), [&] {
    for (int64_t i = 0; i < num_steps; ++i) {
      for (size_t s = 0; s < spans.size(); ++s) {
        spans[s] = {0, 1, depth + i, batch_tables_[s].data()};
        spans[s].adapter = adapter_of(s);
      }
      forward(spans, rows, i + 1 == num_steps ? Wanted::kLogits : Wanted::kBest);
    }
  });
}

}  // namespace headrace
