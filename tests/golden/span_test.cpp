// What a span may ask for beside its tokens: values in the place of embeddings, places of its own
// for rope, rows of the last state.
#include <gtest/gtest.h>

#include <numeric>

#include "golden/golden_data.h"
#include "model/whole_tables.h"
#include "verify/golden.h"

namespace headrace::golden {
namespace {

constexpr int32_t kNumTokens = 21;

struct Seen {
  std::vector<float> logits;      // [kNumTokens, vocab_size]
  std::vector<float> hidden;      // [hidden rows, hidden_size]
  std::vector<float> embedded;    // [kNumTokens, hidden_size] what the first layer reads
  std::vector<float> last_state;  // [kNumTokens, hidden_size] after the final norm
};

class SpanTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = backend_for("auto");
    ASSERT_NE(backend_, nullptr);
    checkpoint_ = open_folder((test::archive_root() / "tiny" / GetParam()).string()).value();
    auto model =
        Model::load(*checkpoint_, *backend_, {.max_batch_tokens = 32, .max_logit_rows = 32});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    ids_.resize(kNumTokens);
    for (int32_t i = 0; i < kNumTokens; ++i) {
      ids_[static_cast<size_t>(i)] =
          static_cast<int32_t>((i * 31 + 5) % model_->config().vocab_size);
    }
  }

  // One step over all tokens; change() says what the span asks for.
  template <typename Change>
  Seen run(const std::vector<int32_t>& ids, const std::vector<int32_t>& hidden_rows,
           const Change& change) {
    const ModelConfig& config = model_->config();
    const CacheLayout layout = plan_cache(model_->cache_groups(), *backend_);
    const WholeTables tables = WholeTables::in_order(kNumTokens, layout.num_columns, 2);
    KvStore store = KvStore::create(*backend_, layout, 2 * layout.num_columns).value();
    Span span;
    span.num_rows = kNumTokens;
    span.tables = tables.data();
    span.rope_epoch = model_->rope_epoch(kNumTokens);
    change(&span);
    std::vector<int32_t> rows(kNumTokens);
    std::iota(rows.begin(), rows.end(), 0);

    Seen seen;
    seen.logits.resize(static_cast<size_t>(kNumTokens * config.vocab_size));
    seen.hidden.resize(hidden_rows.size() * static_cast<size_t>(config.hidden_size));
    DeviceMemory logits = allocate(seen.logits.size());
    DeviceMemory hidden = allocate(seen.hidden.size() + 1);
    StepOutput output(logits.as<float>());
    output.hidden = hidden.as<float>();
    const auto tap = [&](int layer, const float* values, int64_t num_rows, int64_t width) {
      if (layer == -1) seen.embedded.assign(values, values + num_rows * width);
      if (layer == config.num_layers()) seen.last_state.assign(values, values + num_rows * width);
    };
    model_->forward(
        Batch{
            .token_ids = ids, .spans = {&span, 1}, .logit_rows = rows, .hidden_rows = hidden_rows},
        store, output, tap);
    backend_->download(logits.as<float>(), std::span(seen.logits));
    backend_->download(hidden.as<float>(), std::span(seen.hidden));
    return seen;
  }

  Seen run() {
    return run(ids_, {}, [](Span*) {});
  }

  DeviceMemory allocate(size_t num_values) {
    return backend_->allocate(num_values * sizeof(float), MemoryUse::kResults).value();
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
};

TEST_P(SpanTest, ValuesInThePlaceOfEmbeddingsAreWhatTheFirstLayerReads) {
  const Seen plain = run();
  const std::vector<int32_t> other_ids(kNumTokens, 1);
  const Seen given =
      run(other_ids, {}, [&](Span* span) { span->embeddings = plain.embedded.data(); });
  EXPECT_EQ(given.embedded, plain.embedded);
  EXPECT_EQ(given.logits, plain.logits);
  EXPECT_NE(run(other_ids, {}, [](Span*) {}).logits, plain.logits);
}

TEST_P(SpanTest, PlacesForRopeAreTakenFromTheSpan) {
  const Seen plain = run();
  std::vector<int64_t> places(kNumTokens);
  std::iota(places.begin(), places.end(), 0);
  const auto placed = [&] {
    return run(ids_, {}, [&](Span* span) { span->rope_positions = places.data(); }).logits;
  };
  EXPECT_EQ(placed(), plain.logits);
  places.back() += 3;  // only the last row looks from elsewhere
  const std::vector<float> moved = placed();
  const auto last = static_cast<ptrdiff_t>((kNumTokens - 1) * model_->config().vocab_size);
  EXPECT_TRUE(std::equal(moved.begin(), moved.begin() + last, plain.logits.begin()));
  EXPECT_FALSE(std::equal(moved.begin() + last, moved.end(), plain.logits.begin() + last));
}

TEST_P(SpanTest, RowsOfTheLastStateComeAfterTheFinalNorm) {
  const std::vector<int32_t> wanted = {0, 7, kNumTokens - 1};
  const Seen seen = run(ids_, wanted, [](Span*) {});
  const auto width = static_cast<size_t>(model_->config().hidden_size);
  ASSERT_EQ(seen.last_state.size(), kNumTokens * width);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto row =
        seen.last_state.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(wanted[i]) * width);
    EXPECT_TRUE(std::equal(row, row + static_cast<ptrdiff_t>(width),
                           seen.hidden.begin() + static_cast<ptrdiff_t>(i * width)))
        << "row " << wanted[i];
  }
  EXPECT_EQ(seen.logits, run().logits) << "asking for them changes nothing else";
}

INSTANTIATE_TEST_SUITE_P(Families, SpanTest, ::testing::Values("llama", "gemma3", "cohere2"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace headrace::golden
