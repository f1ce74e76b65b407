// Adapters in linear ops and in tables: what they add, against sums in double precision; and that
// no other row, thread or adapter of a step reaches a bit of a row.
#include "backend/cpu/adapters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/verify/samples.h"
#include "backend/device_access.h"

namespace headrace {
namespace adapters_test {

constexpr int64_t kIns = 96;     // inputs
constexpr int64_t kOuts = 72;    // outputs: the last panel is not full
constexpr int64_t kTokens = 29;  // rows of a step

using Numbers = std::vector<float>;

// As an adapter is trained: not numbers of bf16, which are kept in another form.
Numbers trained(uint64_t seed, int64_t count, float size = 0.3f) {
  cpu::Random random(seed);
  Numbers values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal() * size;
  return values;
}

Numbers rounded_to_bf16(Numbers values) {
  for (float& value : values) {
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
  }
  return values;
}

// A delta and what it refers to.
struct OwnedDelta {
  WeightDelta delta;
  Numbers a, b;

  OwnedDelta(uint64_t seed, int64_t rank, int64_t first_output = 0, int64_t num_outputs = kOuts,
             int64_t num_inputs = kIns)
      : a(trained(seed, rank * num_inputs)), b(trained(seed + 1, rank * num_outputs)) {
    delta.first_output = first_output;
    delta.num_outputs = num_outputs;
    delta.rank = rank;
    delta.scale = 0.75f;
  }
  WeightDelta of(const PackedWeight& weight) const {
    WeightDelta whole = delta;
    whole.weight = &weight;
    whole.a = a;
    whole.b = b;
    return whole;
  }
  // scale * (x A^T) B^T of one row and one output of the weight.
  double product(const float* x, int64_t output) const {
    const int64_t n = output - delta.first_output;
    if (n < 0 || n >= delta.num_outputs) return 0;
    double sum = 0;
    for (int64_t j = 0; j < delta.rank; ++j) sum += b[at(n * delta.rank + j)] * low(x, j);
    return sum * double{delta.scale};
  }
  double low(const float* x, int64_t j) const {
    const int64_t width = std::ssize(a) / delta.rank;
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += double{a[at(j * width + k)]} * x[k];
    return sum;
  }
  static size_t at(int64_t index) { return static_cast<size_t>(index); }
};

// Rows of a step that take one adapter; -1: the model alone.
struct Piece {
  int32_t num_rows;
  int adapter;
};
// Adapters side by side, twice the same in spans of their own, and rows without between them.
const std::vector<Piece> kMixed = {{3, 0}, {5, -1}, {9, 1}, {2, 1}, {10, 2}};

class AdapterOpsTest : public testing::Test {
 protected:
  explicit AdapterOpsTest(int num_threads = 3, DType dtype = DType::kF32) {
    backend_ = create_cpu_backend({.num_threads = num_threads}).value();
    cpu::Random random(5);
    sample_ = cpu::sample_weight(dtype, cpu::WeightSample::kRandom, kOuts, kIns, random);
    weight_ = backend_->pack({&sample_->view, 1}, WeightRole::kLinear).value();
    for (const OwnedDelta& own : owned_) packed_.push_back(pack({own.of(*weight_)}));
  }

  std::unique_ptr<PackedAdapter> pack(const std::vector<WeightDelta>& deltas) {
    return backend_->pack_adapter(deltas).value();
  }
  void begin(const std::vector<Piece>& pieces) {
    spans_.clear();
    int32_t first = 0;
    for (const Piece& piece : pieces) {
      Span span;
      span.first_row = first;
      span.num_rows = piece.num_rows;
      if (piece.adapter >= 0) span.adapter = packed_[static_cast<size_t>(piece.adapter)].get();
      spans_.push_back(span);
      first += piece.num_rows;
    }
    backend_->begin_step(spans_);
  }
  // All rows with one adapter that is not among the three.
  void begin_all(const PackedAdapter* adapter) {
    Span span;
    span.num_rows = kTokens;
    span.adapter = adapter;
    backend_->begin_step({&span, 1});
  }
  Numbers linear(int64_t first_row = 0, int64_t num_rows = kTokens, const Epilogue& epilogue = {}) {
    Numbers out(static_cast<size_t>(num_rows * kOuts));
    backend_->linear(*weight_, on_device(x_.data() + first_row * kIns), num_rows, epilogue,
                     on_device(out.data()));
    return out;
  }
  double plain(int64_t row, int64_t output) const {
    double sum = 0;
    for (int64_t k = 0; k < kIns; ++k) {
      sum += double{sample_->values[static_cast<size_t>(output * kIns + k)]} * input(row)[k];
    }
    return sum;
  }
  const float* input(int64_t row) const { return x_.data() + row * kIns; }
  static int adapter_of(int64_t row) {
    for (const Piece& piece : kMixed) {
      if (row < piece.num_rows) return piece.adapter;
      row -= piece.num_rows;
    }
    return -1;
  }
  static Numbers row_of(const Numbers& rows, int64_t row, int64_t width = kOuts) {
    return {rows.begin() + row * width, rows.begin() + (row + 1) * width};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<cpu::SampleWeight> sample_;
  std::unique_ptr<PackedWeight> weight_;
  // Ranks of less and of more than the items of a phase take, and one of bf16 numbers.
  std::vector<OwnedDelta> owned_ = [] {
    std::vector<OwnedDelta> owned = {{11, 1}, {13, 5}, {15, 40}};
    owned[1].a = rounded_to_bf16(owned[1].a);
    return owned;
  }();
  std::vector<std::unique_ptr<PackedAdapter>> packed_;
  std::vector<Span> spans_;
  Numbers x_ = trained(3, kTokens* kIns, 1.0f);
};

TEST_F(AdapterOpsTest, EachRowGetsWhatItsOwnAdapterAdds) {
  begin(kMixed);
  const Numbers out = linear();
  for (int64_t row = 0; row < kTokens; ++row) {
    const int adapter = adapter_of(row);
    for (int64_t n = 0; n < kOuts; ++n) {
      double expected = plain(row, n);
      if (adapter >= 0) {
        expected += owned_[static_cast<size_t>(adapter)].product(input(row), n);
      }
      ASSERT_NEAR(out[static_cast<size_t>(row * kOuts + n)], expected, 1e-3) << row << " " << n;
    }
  }
}

// Nothing of a step with adapters is left in the next one.
TEST_F(AdapterOpsTest, RowsWithoutAnAdapterAreThoseOfTheModelAlone) {
  begin({{static_cast<int32_t>(kTokens), -1}});
  const Numbers alone = linear();
  begin(kMixed);
  const Numbers mixed = linear();
  begin({{static_cast<int32_t>(kTokens), -1}});
  EXPECT_EQ(linear(), alone);
  for (int64_t row = 0; row < kTokens; ++row) {
    const bool equal = row_of(mixed, row) == row_of(alone, row);
    EXPECT_EQ(equal, adapter_of(row) < 0) << row;
  }
}

class AdapterBitsTest : public AdapterOpsTest,
                        public testing::WithParamInterface<std::tuple<DType, int>> {
 protected:
  AdapterBitsTest() : AdapterOpsTest(std::get<1>(GetParam()), std::get<0>(GetParam())) {}

  // The whole step by a back end with one thread.
  Numbers with_one_thread() {
    const auto one = create_cpu_backend({.num_threads = 1}).value();
    const auto weight = one->pack({&sample_->view, 1}, WeightRole::kLinear).value();
    std::vector<std::unique_ptr<PackedAdapter>> packed;
    for (const OwnedDelta& own : owned_) {
      const WeightDelta delta = own.of(*weight);
      packed.push_back(one->pack_adapter({&delta, 1}).value());
    }
    std::vector<Span> spans = spans_;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (kMixed[i].adapter >= 0) {
        spans[i].adapter = packed[static_cast<size_t>(kMixed[i].adapter)].get();
      }
    }
    one->begin_step(spans);
    Numbers out(kTokens * kOuts);
    one->linear(*weight, on_device(x_.data()), kTokens, {}, on_device(out.data()));
    return out;
  }
};

TEST_P(AdapterBitsTest, ARowIsTheSameAloneAndTogetherAndOnAnyThreads) {
  begin(kMixed);
  const Numbers together = linear();
  EXPECT_EQ(together, with_one_thread());
  for (int64_t row = 0; row < kTokens; ++row) {
    begin({{1, adapter_of(row)}});
    EXPECT_EQ(linear(row, 1), row_of(together, row)) << row;
  }
}

TEST_P(AdapterBitsTest, AChunkIsTheSameHoweverItIsCut) {
  begin({{static_cast<int32_t>(kTokens), 2}});
  const Numbers whole = linear();
  for (const int32_t chunk : {1, 7, 8, 16}) {
    for (int32_t first = 0; first < kTokens; first += chunk) {
      const int32_t count = std::min<int32_t>(chunk, kTokens - first);
      begin({{count, 2}});
      const Numbers part = linear(first, count);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * kOuts))
          << chunk << " from " << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, AdapterBitsTest,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kQ8_0),
                                          testing::Values(1, 2, 3)));

// Of q, k and v in one weight an adapter may change q and v alone, at ranks of their own.
TEST_F(AdapterOpsTest, PartsOfAStackedWeightAreChangedAlone) {
  const OwnedDelta q(21, 3, 0, 30), v(23, 20, 50, 22);
  const auto adapter = pack({v.of(*weight_), q.of(*weight_)});
  begin_all(nullptr);
  const Numbers before = linear();
  begin_all(adapter.get());
  const Numbers out = linear();
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t n = 0; n < kOuts; ++n) {
      const auto at = static_cast<size_t>(row * kOuts + n);
      if (n >= 30 && n < 50) {
        ASSERT_EQ(out[at], before[at]) << row << " " << n;
      } else {
        const double expected = plain(row, n) + q.product(input(row), n) + v.product(input(row), n);
        ASSERT_NEAR(out[at], expected, 1e-3) << row << " " << n;
      }
    }
  }
}

// The direction of a row of W + scale * B A, at a length that was trained for itself.
TEST_F(AdapterOpsTest, MagnitudesTakeThePlaceOfTheLengthsOfRows) {
  const OwnedDelta own(31, 4, 8, 40);
  const Numbers magnitudes = trained(33, 40, 2.0f);
  WeightDelta delta = own.of(*weight_);
  delta.magnitudes = magnitudes;
  const auto adapter = pack({delta});
  begin_all(adapter.get());
  const Numbers out = linear();
  for (int64_t n = 0; n < kOuts; ++n) {
    const bool changed = n >= 8 && n < 48;
    double squares = 0;
    for (int64_t k = 0; k < kIns; ++k) {
      Numbers one_hot(kIns);
      one_hot[static_cast<size_t>(k)] = 1;
      const double value = sample_->values[static_cast<size_t>(n * kIns + k)];
      squares += std::pow(value + own.product(one_hot.data(), n), 2);
    }
    const double factor =
        changed ? magnitudes[static_cast<size_t>(n - 8)] / std::sqrt(squares) : 1.0;
    for (int64_t row = 0; row < kTokens; ++row) {
      const double expected = factor * (plain(row, n) + own.product(input(row), n));
      ASSERT_NEAR(out[static_cast<size_t>(row * kOuts + n)], expected, 1e-3) << row << " " << n;
    }
  }
}

TEST_F(AdapterOpsTest, ABiasIsAddedOrTakesTheModelsPlace) {
  const Numbers own_bias = trained(41, kOuts), model_bias = trained(42, kOuts);
  WeightDelta delta;  // of no rank: the bias is all that was trained
  delta.weight = weight_.get();
  delta.num_outputs = kOuts;
  delta.bias = own_bias;
  const auto added = pack({delta});
  delta.replaced_bias = on_device(model_bias.data());
  const auto in_place = pack({delta});
  const Epilogue epilogue = {.bias = on_device(model_bias.data())};
  begin_all(added.get());
  const Numbers sum = linear(0, kTokens, epilogue);
  begin_all(in_place.get());
  const Numbers other = linear(0, kTokens, epilogue);
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t n = 0; n < kOuts; ++n) {
      const auto at = static_cast<size_t>(row * kOuts + n);
      const auto of = static_cast<size_t>(n);
      ASSERT_NEAR(sum[at], plain(row, n) + own_bias[of] + model_bias[of], 1e-3);
      ASSERT_NEAR(other[at], plain(row, n) + own_bias[of], 1e-3);
    }
  }
}

// The branch is scaled and normed with what the adapter adds, the residual is not.
TEST_F(AdapterOpsTest, WhatIsAddedComesBeforeTheEpilogue) {
  const Numbers residual = trained(51, kTokens * kOuts);
  const Epilogue epilogue = {.residual = on_device(residual.data()), .scale = 0.5f};
  begin(kMixed);
  const Numbers out = linear(0, kTokens, epilogue);
  const Numbers capped = linear(0, kTokens, {.softcap = 2.0f});
  for (int64_t row = 0; row < kTokens; ++row) {
    const int adapter = adapter_of(row);
    for (int64_t n = 0; n < kOuts; ++n) {
      const auto at = static_cast<size_t>(row * kOuts + n);
      double sum = plain(row, n);
      if (adapter >= 0) sum += owned_[static_cast<size_t>(adapter)].product(input(row), n);
      ASSERT_NEAR(out[at], residual[at] + 0.5 * sum, 1e-3);
      ASSERT_NEAR(capped[at], 2 * std::tanh(sum / 2), 1e-3);
    }
  }
}

TEST_F(AdapterOpsTest, AReplacementComputesAsThatWeight) {
  const Numbers values = trained(61, kOuts * kIns, 1.0f);
  WeightDelta delta;
  delta.weight = weight_.get();
  delta.num_outputs = kOuts;
  delta.replacement = values;
  const auto adapter = pack({delta});
  EXPECT_GT(adapter->num_bytes(), values.size() * sizeof(float) - 1);
  begin_all(adapter.get());
  const Numbers out = linear();
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t n = 0; n < kOuts; ++n) {
      double expected = 0;
      for (int64_t k = 0; k < kIns; ++k) {
        expected += double{values[static_cast<size_t>(n * kIns + k)]} * input(row)[k];
      }
      ASSERT_NEAR(out[static_cast<size_t>(row * kOuts + n)], expected, 1e-3) << row << " " << n;
    }
  }
}

// Files repeat weights that were not trained.
TEST_F(AdapterOpsTest, AReplacementThatChangesNothingIsNothing) {
  WeightDelta delta;
  delta.weight = weight_.get();
  delta.num_outputs = kOuts;
  delta.replacement = sample_->values;
  EXPECT_EQ(pack({delta})->num_bytes(), 0u);
  EXPECT_EQ(pack({})->num_bytes(), 0u);
}

// What the delta adds to the first row, beside the sums in double precision.
void expect_added(const Numbers& out, const OwnedDelta& own, const float* x,
                  const std::function<double(int64_t)>& plain, double tolerance) {
  for (int64_t n = 0; n < kOuts; ++n) {
    ASSERT_NEAR(out[static_cast<size_t>(n)], plain(n) + own.product(x, n), tolerance) << n;
  }
}

// Over weights whose products round what they multiply.
class QuantisedAdapterOpsTest : public AdapterOpsTest {
 protected:
  QuantisedAdapterOpsTest() : AdapterOpsTest(3, DType::kQ8_0) {}
  void expect_added_by(const OwnedDelta& own) {
    const auto adapter = pack({own.of(*weight_)});
    begin_all(adapter.get());
    expect_added(linear(), own, input(0), [&](int64_t n) { return plain(0, n); }, 5e-3);
  }
};

// Two bytes a number: numbers of bf16 as they are, others as whole numbers of 16 bits.
TEST_F(QuantisedAdapterOpsTest, NumbersAreKeptInTwoBytes) {
  OwnedDelta own(71, 128);
  const size_t numbers = own.a.size() + own.b.size() / kOuts * 96;  // of whole blocks
  for (const bool rounds_b : {false, true}) {
    if (rounds_b) own.b = rounded_to_bf16(own.b);
    EXPECT_LE(pack({own.of(*weight_)})->num_bytes(), 2 * numbers + 8192) << "of whole pages";
    expect_added_by(own);
  }
}

// One number of a rank that is far larger than the others would leave them few bits.
TEST_F(QuantisedAdapterOpsTest, RanksThatWouldLoseTooMuchStayInFloat32) {
  OwnedDelta own(73, 64);
  const size_t rounded = pack({own.of(*weight_)})->num_bytes();
  own.a[5] = 30.0f;
  EXPECT_GE(pack({own.of(*weight_)})->num_bytes(), rounded + 2 * own.a.size() - 4096);
}

TEST_F(QuantisedAdapterOpsTest, RanksOfZerosAndOfTinyNumbersAddWhatTheyAre) {
  OwnedDelta own(75, 6);
  std::fill_n(own.a.begin(), kIns, 0.0f);
  expect_added_by(own);
  for (int64_t k = kIns; k < 2 * kIns; ++k) own.a[static_cast<size_t>(k)] *= 1e-38f;
  expect_added_by(own);
}

TEST_F(AdapterOpsTest, OverDenseWeightsNothingIsRounded) {
  OwnedDelta own(77, 64);
  EXPECT_GE(pack({own.of(*weight_)})->num_bytes(), 4 * (own.a.size() + own.b.size()));
  own.a = rounded_to_bf16(own.a);
  EXPECT_LT(pack({own.of(*weight_)})->num_bytes(), 4 * (own.a.size() + own.b.size()))
      << "that form loses nothing";
}

// The rows of a head are some of the step's; each brings its own adapter.
TEST_F(AdapterOpsTest, RowsOfTheHeadTakeTheAdaptersOfTheirRows) {
  begin(kMixed);
  const Numbers all = linear();
  const std::vector<int32_t> rows = {28, 1, 5, 9};
  Numbers picked, logits(rows.size() * kOuts), without(rows.size() * kOuts);
  for (const int32_t row : rows) picked.insert(picked.end(), input(row), input(row) + kIns);
  HeadArgs args = {.num_rows = 4, .num_written = 4, .logits = on_device(logits.data())};
  args.rows = rows;
  backend_->head(*weight_, on_device(picked.data()), args);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(row_of(logits, static_cast<int64_t>(i)), row_of(all, rows[i])) << rows[i];
  }
  BestOutput best[4];
  args.num_written = 0;
  args.best = best;
  backend_->head(*weight_, on_device(picked.data()), args);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Numbers row = row_of(all, rows[i]);
    EXPECT_EQ(best[i].output, std::max_element(row.begin(), row.end()) - row.begin());
  }
}

class AdapterOpsDeathTest : public AdapterOpsTest {
 protected:
  AdapterOpsDeathTest() : AdapterOpsTest(1) {}
};

TEST_F(AdapterOpsDeathTest, DeltasFitTheirWeight) {
  struct Case {
    std::string_view what;
    void (*spoil)(WeightDelta*);
  };
  const OwnedDelta own(81, 4);
  const Case cases[] = {
      {"a weight for a delta", [](WeightDelta* delta) { delta->weight = nullptr; }},
      {"outputs 72 from 1 of 72, rank 4", [](WeightDelta* delta) { delta->first_output = 1; }},
      {"outputs 72 from -1 of 72", [](WeightDelta* delta) { delta->first_output = -1; }},
      {"outputs 0 from 0", [](WeightDelta* delta) { delta->num_outputs = 0; }},
      {"a of 384, b of 288 for rank 5", [](WeightDelta* delta) { delta->rank = 5; }},
      {"magnitudes or bias", [](WeightDelta* delta) { delta->bias = delta->a.first(71); }},
      {"magnitudes or bias", [](WeightDelta* delta) { delta->magnitudes = delta->a.first(73); }},
      {"a replacement of 9", [](WeightDelta* delta) { delta->replacement = delta->a.first(9); }},
  };
  for (const Case& at : cases) {
    WeightDelta delta = own.of(*weight_);
    at.spoil(&delta);
    EXPECT_DEATH((void)backend_->pack_adapter({&delta, 1}), std::string(at.what)) << at.what;
  }
}

// Else rows would get the adapters of others.
TEST_F(AdapterOpsDeathTest, OpsOfAStepWithAdaptersHaveItsRows) {
  begin(kMixed);
  EXPECT_DEATH(linear(0, kTokens - 1), "an op of 28 rows in a step of 29 with adapters");
}

// Tables: the row of a token, and what adapters add to it.
class EmbedTest : public testing::TestWithParam<int> {
 protected:
  static constexpr int64_t kVocab = 50, kWidth = 41;

  EmbedTest() {
    cpu::Random random(9);
    sample_ = cpu::sample_weight(DType::kF32, cpu::WeightSample::kRandom, kVocab, kWidth, random);
    table_ = backend_->pack({&sample_->view, 1}, WeightRole::kEmbedding).value();
  }
  // A of the vocabulary, B of the width.
  std::unique_ptr<PackedAdapter> adapt(const OwnedDelta& own) {
    WeightDelta delta = own.of(*table_);
    delta.of_table = true;
    delta.num_outputs = kVocab;
    return backend_->pack_adapter({&delta, 1}).value();
  }
  Numbers embed(std::span<const int32_t> ids, float scale = 1, const float* addend = nullptr) {
    Numbers out(ids.size() * kWidth);
    backend_->embed(*table_, ids, scale, on_device(addend), on_device(out.data()));
    return out;
  }

  std::unique_ptr<Backend> backend_ = create_cpu_backend({.num_threads = GetParam()}).value();
  std::unique_ptr<cpu::SampleWeight> sample_;
  std::unique_ptr<PackedWeight> table_;
};

// Rows of every place within a panel, the first and the last of the table, and one twice.
TEST_P(EmbedTest, RowsAreThoseOfTheTableBitByBit) {
  const std::vector<int32_t> ids = {0, 49, 15, 16, 17, 31, 32, 33, 48, 16};
  backend_->begin_step({});
  const Numbers out = embed(ids);
  const Numbers doubled = embed(ids, 2.0f);
  const Numbers added = embed(ids, 2.0f, out.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t k = 0; k < kWidth; ++k) {
      const float value = sample_->values[static_cast<size_t>(ids[i]) * kWidth + k];
      ASSERT_EQ(out[i * kWidth + k], value) << ids[i] << " " << k;
      ASSERT_EQ(doubled[i * kWidth + k], 2 * value);
      ASSERT_EQ(added[i * kWidth + k], value + 2 * value);
    }
  }
}

TEST_P(EmbedTest, AnAdapterAddsItsColumnOfTheToken) {
  const OwnedDelta own(91, 6, 0, kWidth, kVocab);
  const auto adapter = adapt(own);
  const std::vector<int32_t> ids = {7, 49, 7, 0};
  Span spans[2];
  spans[0].num_rows = 2;
  spans[0].adapter = adapter.get();
  spans[1].first_row = 2;
  spans[1].num_rows = 2;
  backend_->begin_step(spans);
  const Numbers out = embed(ids, 3.0f);
  backend_->begin_step({});
  const Numbers plain = embed(ids, 3.0f);
  for (size_t i = 0; i < ids.size(); ++i) {
    Numbers one_hot(kVocab);
    one_hot[static_cast<size_t>(ids[i])] = 1;
    for (size_t k = 0; k < kWidth; ++k) {
      const float before = plain[i * kWidth + k], after = out[i * kWidth + k];
      if (i >= 2) {
        ASSERT_EQ(after, before) << i;  // the same token without the adapter
      } else {
        const double added = 3 * own.product(one_hot.data(), static_cast<int64_t>(k));
        ASSERT_NEAR(after, before + added, 1e-4) << i << " " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, EmbedTest, testing::Values(1, 2, 3));

}  // namespace adapters_test
}  // namespace headrace
