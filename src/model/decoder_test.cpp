// The network's step: what it asks of a batch, and what it gives back. Its numbers are tested
// against recorded ones in tests/golden.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "model/model.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace decoder_test {

using testing::FakeCheckpoint;

constexpr int64_t kHidden = 8, kVocab = 12, kMlp = 16;
constexpr int kRows = 40;
constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 12,
        "max_position_embeddings": 32)";

std::vector<float> some_values(int64_t count, uint32_t seed) {
  std::vector<float> values;
  uint32_t state = seed * 2654435761u + 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16) / 65536.0f - 0.5f);
  }
  return values;
}

std::vector<float> embedding_values() { return some_values(kVocab * kHidden, 1); }

// A Llama of two layers with values from a generator.
FakeCheckpoint small_llama(const std::string& more_config, const std::vector<float>& embedding) {
  FakeCheckpoint checkpoint(kConfig + more_config + "}");
  uint32_t seed = 2;
  const auto matrix = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    checkpoint.tensor_of(name, {outputs, inputs}, some_values(outputs * inputs, ++seed));
  };
  const auto norm = [&](const std::string& name) {
    std::vector<float> values = some_values(kHidden, ++seed);
    for (float& value : values) value += 1.0f;
    checkpoint.tensor_of(name, {kHidden}, values);
  };
  checkpoint.tensor_of("model.embed_tokens.weight", {kVocab, kHidden}, embedding);
  norm("model.norm.weight");
  matrix("lm_head.weight", kVocab, kHidden);
  for (const char* number : {"0", "1"}) {
    const std::string layer = std::string("model.layers.") + number + ".";
    norm(layer + "input_layernorm.weight");
    norm(layer + "post_attention_layernorm.weight");
    matrix(layer + "self_attn.q_proj.weight", 8, kHidden);
    matrix(layer + "self_attn.k_proj.weight", 4, kHidden);
    matrix(layer + "self_attn.v_proj.weight", 4, kHidden);
    matrix(layer + "self_attn.o_proj.weight", kHidden, 8);
    matrix(layer + "mlp.gate_proj.weight", kMlp, kHidden);
    matrix(layer + "mlp.up_proj.weight", kMlp, kHidden);
    matrix(layer + "mlp.down_proj.weight", kHidden, kMlp);
  }
  return checkpoint;
}

// A model with its KV store and room for results.
class Network {
 public:
  explicit Network(const std::string& more_config = "",
                   const std::vector<float>& embedding = embedding_values())
      : backend_(create_cpu_backend({.isa = "reference", .num_threads = 2}).value()),
        model_(Model::load(small_llama(more_config, embedding), *backend_,
                           {.max_batch_tokens = kRows, .max_logit_rows = kRows})
                   .value()),
        store_(
            KvStore::create(*backend_, plan_cache(model_->cache_groups(), *backend_), 16).value()),
        logits_(backend_->allocate(kRows * kVocab * sizeof(float), MemoryUse::kResults).value()) {
    CHECK(store_.num_columns() == 1, "{} columns", store_.num_columns());  // as kTables have
  }

  // Logits of the rows asked for, one after the other.
  std::vector<float> run(const Batch& batch, bool* finite = nullptr, const HiddenTap& tap = {}) {
    model_->forward(batch, store_, {logits_.as<float>(), best_, finite}, tap);
    std::vector<float> found(batch.logit_rows.size() * kVocab);
    backend_->download(logits_.as<float>(), std::span(found));
    return found;
  }
  const BestOutput& best(size_t row) const { return best_[row]; }
  Backend& backend() { return *backend_; }
  Model& model() { return *model_; }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  KvStore store_;
  DeviceMemory logits_;
  BestOutput best_[kRows];
};

constexpr int32_t kBlocks[3][4] = {{0, 1, 2, 3}, {9, 8, 7, 6}, {12, 13, 14, 15}};
constexpr const int32_t* kTables[3] = {kBlocks[0], kBlocks[1], kBlocks[2]};

Span span_of(int32_t first_row, int32_t num_rows, int sequence, int64_t rope_epoch = 0) {
  Span span;
  span.first_row = first_row;
  span.num_rows = num_rows;
  span.tables = &kTables[sequence];
  span.rope_epoch = rope_epoch;
  return span;
}

std::vector<int32_t> some_ids(size_t count, uint32_t seed) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((i * 7 + seed * 5 + i * i) % kVocab));
  }
  return ids;
}

using DecoderDeathTest = ::testing::Test;

TEST(DecoderDeathTest, SpansCoverTheRowsInOrder) {
  Network network;
  const auto ids = some_ids(5, 0);
  const auto run = [&](std::vector<Span> spans) { network.run({ids, spans, {}}); };
  EXPECT_DEATH(run({span_of(0, 2, 0), span_of(3, 2, 1)}), "span of 2 rows at 3, expected at 2");
  EXPECT_DEATH(run({span_of(1, 4, 0)}), "span of 4 rows at 1, expected at 0");
  EXPECT_DEATH(run({span_of(0, 0, 0), span_of(0, 5, 0)}), "span of 0 rows");
  EXPECT_DEATH(run({span_of(0, 4, 0)}), "4 rows in spans, 5 tokens");
}

TEST(DecoderDeathTest, ABatchKeepsWithinItsLimits) {
  Network network;
  const auto ids = some_ids(kRows + 1, 0);
  const Span whole = span_of(0, kRows + 1, 0), three = span_of(0, 3, 0);
  EXPECT_DEATH(network.run({ids, {&whole, 1}, {}}), "41 tokens, but the workspace holds 40");
  const std::vector<int32_t> rows(kRows + 1, 0), late = {3};
  const auto first = std::span(ids).first(3);
  EXPECT_DEATH(network.run({first, {&three, 1}, rows}), "41 rows of logits");
  EXPECT_DEATH(network.run({first, {&three, 1}, late}), "row 3 of 3");
  EXPECT_DEATH(network.run({first, {&three, 1}, {}, late}), "row 3 of 3");
}

TEST(Decoder, AnEmptyBatchIsNoWork) {
  Network network;
  const int64_t joins = network.backend().num_joins();
  EXPECT_TRUE(network.run({{}, {}, {}}).empty());
  EXPECT_EQ(network.backend().num_joins(), joins);
}

TEST(Decoder, LogitsAndBestRowsAreThoseAskedFor) {
  Network network;
  const auto ids = some_ids(9, 3);
  const Span span = span_of(0, 9, 0);
  std::vector<int32_t> all;
  for (int32_t row = 0; row < 9; ++row) all.push_back(row);
  const auto every = network.run({ids, {&span, 1}, all});
  const std::vector<int32_t> some = {1, 4, 8}, best = {0, 7};
  const auto found = network.run({ids, {&span, 1}, some, best});
  for (size_t i = 0; i < some.size(); ++i) {
    for (size_t v = 0; v < kVocab; ++v) {
      EXPECT_EQ(found[i * kVocab + v], every[static_cast<size_t>(some[i]) * kVocab + v]);
    }
  }
  for (size_t i = 0; i < best.size(); ++i) {
    const auto row = every.begin() + best[i] * kVocab;
    const auto largest = std::max_element(row, row + kVocab);
    EXPECT_EQ(network.best(i).output, largest - row);
    EXPECT_EQ(network.best(i).value, *largest);
  }
}

TEST(Decoder, ATapSeesEveryLayerInOrder) {
  Network network;
  const auto ids = some_ids(3, 1);
  const Span span = span_of(0, 3, 0);
  std::vector<int> layers;
  std::vector<std::vector<float>> hidden;
  const auto tap = [&](int layer, const float* rows, int64_t num_rows, int64_t width) {
    EXPECT_EQ(num_rows, 3);
    EXPECT_EQ(width, kHidden);
    layers.push_back(layer);
    hidden.emplace_back(rows, rows + num_rows * width);
  };
  const std::vector<int32_t> rows = {2};
  const auto tapped = network.run({ids, {&span, 1}, rows}, nullptr, tap);
  EXPECT_EQ(layers, (std::vector<int>{-1, 0, 1, 2}));
  const auto embedding = embedding_values();
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < kHidden; ++k) {
      EXPECT_EQ(hidden[0][i * kHidden + k], embedding[static_cast<size_t>(ids[i]) * kHidden + k]);
    }
  }
  EXPECT_NE(hidden[1], hidden[0]);
  EXPECT_NE(hidden[3], hidden[2]);
  EXPECT_EQ(network.run({ids, {&span, 1}, rows}), tapped);  // a look changes nothing
}

TEST(Decoder, RowsThatAreNotFiniteAreNamed) {
  std::vector<float> embedding = embedding_values();
  embedding[5 * kHidden + 2] = NAN;
  Network network("", embedding);
  const std::vector<int32_t> ids = {1, 2, 3, 5, 4, 6};
  const Span spans[] = {span_of(0, 2, 0), span_of(2, 3, 1), span_of(5, 1, 2)};
  bool finite[6] = {};
  network.run({ids, spans, {}}, finite);
  const bool expected[] = {true, true, true, false, false, true};  // the row after it attends to it
  for (int i = 0; i < 6; ++i) EXPECT_EQ(finite[i], expected[i]) << i;
}

// Spans side by side share an op where their rope tables are the same, and only there.
TEST(Decoder, RopeEpochsSideBySideEqualEachAlone) {
  Network network(R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0})");
  ASSERT_NE(network.model().rope_epoch(40), network.model().rope_epoch(50));
  const int64_t first = network.model().rope_epoch(40), second = network.model().rope_epoch(50);
  const std::vector<std::vector<int64_t>> cases = {
      {0, 0, first}, {first, second, second}, {first, first, first}, {second, 0, first}};
  for (const auto& epochs : cases) {
    const auto ids = some_ids(18, 4);
    const Span spans[] = {span_of(0, 5, 0, epochs[0]), span_of(5, 7, 1, epochs[1]),
                          span_of(12, 6, 2, epochs[2])};
    std::vector<int32_t> all;
    for (int32_t row = 0; row < 18; ++row) all.push_back(row);
    const auto together = network.run({ids, spans, all});
    for (const Span& span : spans) {
      Span alone = span;
      alone.first_row = 0;
      const auto rows = std::span(all).first(static_cast<size_t>(span.num_rows));
      const auto own = std::span(ids).subspan(static_cast<size_t>(span.first_row), rows.size());
      const auto found = network.run({own, {&alone, 1}, rows});
      EXPECT_TRUE(
          std::equal(found.begin(), found.end(), together.begin() + span.first_row * kVocab));
    }
  }
}

TEST(Decoder, TheRopeEpochIsThatOfTheLength) {
  Network plain, dynamic(R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0})");
  EXPECT_EQ(plain.model().rope_epoch(1'000), 0);
  EXPECT_EQ(dynamic.model().rope_epoch(32), 0);
  EXPECT_EQ(dynamic.model().rope_epoch(33), 33);
}

// One sequence in one step, in several, and beside another.
TEST(Decoder, StepsOfAnySizeGiveTheSameBits) {
  Network network;
  const auto ids = some_ids(20, 6);
  const Span whole = span_of(0, 20, 0);
  const std::vector<int32_t> last = {19};
  const auto expected = network.run({ids, {&whole, 1}, last});
  for (const int32_t cut : {1, 7, 16, 19}) {
    const Span head = span_of(0, cut, 1);
    network.run({std::span(ids).first(static_cast<size_t>(cut)), {&head, 1}, {}});
    Span tail = span_of(0, 20 - cut, 1);
    tail.first_position = cut;
    const std::vector<int32_t> row = {19 - cut};
    const auto found =
        network.run({std::span(ids).subspan(static_cast<size_t>(cut)), {&tail, 1}, row});
    EXPECT_EQ(found, expected) << "cut at " << cut;
  }
}

}  // namespace decoder_test
}  // namespace headrace
