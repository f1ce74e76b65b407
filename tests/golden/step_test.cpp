// What a step of a whole model does beside its arithmetic: joins, allocations, best rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "fuzz/counting_allocator.h"
#include "golden/golden_data.h"
#include "model/whole_tables.h"
#include "verify/golden.h"
#include "verify/sequence_runner.h"

namespace headrace::golden {
namespace {

constexpr int kRows = 40;

// One sequence on a model with room for everything a step needs, made beforehand.
class Stepper {
 public:
  explicit Stepper(const std::string& path, int num_threads = 2)
      : backend_(backend_for("auto", num_threads)) {
    auto checkpoint = path.ends_with(".gguf") ? Checkpoint::open(path) : open_folder(path);
    EXPECT_TRUE(checkpoint.ok());
    auto model =
        Model::load(**checkpoint, *backend_, {.max_batch_tokens = kRows, .max_logit_rows = kRows});
    EXPECT_TRUE(model.ok());
    model_ = std::move(model).value();
    const CacheLayout layout = plan_cache(model_->cache_groups(), *backend_);
    table_.emplace(std::vector<int32_t>{3, 1, 0, 2, 7, 6, 5, 4}, layout.num_columns, 8);
    auto store = KvStore::create(*backend_, layout, 8 * layout.num_columns);
    EXPECT_TRUE(store.ok());
    store_ = std::move(store).value();
    const auto num_logits = static_cast<size_t>(kRows * model_->config().vocab_size);
    logits_ = backend_->allocate(num_logits * sizeof(float), MemoryUse::kResults).value();
    best_.resize(kRows);
  }

  // Computes tokens [first, first + count) of a fixed sequence.
  void step(int64_t first, int32_t count, std::span<const int32_t> logit_rows,
            std::span<const int32_t> best_rows) {
    std::array<int32_t, kRows> ids;
    for (int32_t i = 0; i < count; ++i) {
      const int64_t vocab_size = model_->config().vocab_size;
      ids[static_cast<size_t>(i)] = static_cast<int32_t>((first + i) * 37 % vocab_size);
    }
    const Span span{0, count, first, table_->data()};
    const Batch batch{
        std::span(ids).first(static_cast<size_t>(count)), {&span, 1}, logit_rows, best_rows};
    model_->forward(batch, store_, {logits_.as<float>(), best_.data()});
  }

  const Backend& backend() const { return *backend_; }
  const Model& model() const { return *model_; }
  std::span<const float> logits(size_t row) const {
    const int64_t width = model_->config().vocab_size;
    return backend_->read_view(logits_.as<float>() + static_cast<int64_t>(row) * width,
                               static_cast<size_t>(width));
  }
  const BestOutput& best(size_t row) const { return best_[row]; }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  KvStore store_;
  DeviceMemory logits_;
  std::vector<BestOutput> best_;
  std::optional<WholeTables> table_;
};

std::vector<std::string> all_models() {
  std::vector<std::string> paths = folders_run(test::archive_root(), "tiny");
  for (const std::string& path : folders_run(test::archive_root(), "quant")) paths.push_back(path);
  return paths;
}

int64_t mixer_joins(const LayerConfig& layer) {
  if (layer.mixer == MixerKind::kAttention) return 3;
  if (layer.mixer != MixerKind::kLatent) return 8;
  return layer.latent.index_topk > 0 ? 14 : 9;
}

int64_t mlp_joins(const LayerConfig& layer) {
  if (layer.mlp == MlpKind::kExperts) return 5;  // with a shared expert
  return layer.mlp == MlpKind::kDenseAndExperts ? 9 : 2;
}

// Five for a layer of attention and a dense MLP; other kinds of layers have more parts.
int64_t allowed_joins(const ModelConfig& config) {
  const bool has_inputs = config.hidden_size_per_layer_input > 0;
  const bool has_streams = config.num_streams > 1;  // predicted, a branch of low rank, corrected
  int64_t joins = has_inputs ? 6 : 3;  // embedding and its norm, head; inputs of layers
  for (const LayerConfig& layer : config.layers) {
    joins += mixer_joins(layer) + mlp_joins(layer) + (has_inputs ? 2 : 0) + (has_streams ? 11 : 0);
  }
  return joins;
}

TEST(Step, JoinsAreFew) {
  int num_models = 0;
  std::set<std::string> families;
  for (const std::string& path : all_models()) {
    Stepper stepper(path);
    const std::vector<int32_t> last_of_many = {32}, last_of_one = {0};
    const int64_t start = stepper.backend().num_joins();
    stepper.step(0, 33, last_of_many, {});
    const int64_t prefill = stepper.backend().num_joins() - start;
    stepper.step(33, 1, {}, last_of_one);
    const int64_t decode = stepper.backend().num_joins() - start - prefill;
    const int64_t allowed = allowed_joins(stepper.model().config());
    EXPECT_LE(prefill, allowed) << path;
    EXPECT_LE(decode, allowed) << path;
    EXPECT_GT(decode, 0) << path;
    families.insert(stepper.model().config().family);
    ++num_models;
  }
  EXPECT_GE(num_models, 38);
  EXPECT_GE(families.size(), 15u);
}

TEST(Step, AllocatesNothing) {
  int num_models = 0;
  for (const std::string& path : all_models()) {
    Stepper stepper(path);
    const std::vector<int32_t> scored = {0, 7, 30}, best = {31, 32}, one = {0};
    const size_t before = fuzz::num_allocations();
    stepper.step(0, 33, scored, best);
    stepper.step(33, 1, one, {});
    stepper.step(34, 1, {}, one);
    stepper.step(35, 5, {}, {});
    EXPECT_EQ(fuzz::num_allocations() - before, 0u) << path;
    ++num_models;
  }
  EXPECT_GE(num_models, 38);
}

// Rows of which only the best token is wanted give the token that the logits have.
TEST(Step, BestRowsEqualTheLogits) {
  int num_rows = 0;
  std::vector<int32_t> all, some, others;
  for (int32_t row = 0; row < 33; ++row) {
    all.push_back(row);
    (row % 3 == 0 ? some : others).push_back(row);
  }
  for (const std::string& path : all_models()) {
    Stepper whole(path), mixed(path, 3);
    whole.step(0, 33, all, {});
    mixed.step(0, 33, some, others);
    for (size_t i = 0; i < others.size(); ++i) {
      const auto logits = whole.logits(static_cast<size_t>(others[i]));
      EXPECT_TRUE(mixed.best(i).finite) << path;
      EXPECT_EQ(mixed.best(i).output, argmax(logits)) << path << " row " << others[i];
      EXPECT_EQ(mixed.best(i).value, logits[static_cast<size_t>(mixed.best(i).output)]) << path;
      ++num_rows;
    }
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(mixed.logits(i), whole.logits(static_cast<size_t>(some[i]))))
          << path << " row " << some[i];
    }
  }
  EXPECT_GE(num_rows, 38 * 22);
}

}  // namespace
}  // namespace headrace::golden
