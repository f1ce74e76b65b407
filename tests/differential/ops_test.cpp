// Ops of several phases against the plain ops that they are made of, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel_cases.h"

namespace headrace {
namespace {

struct Shape {
  int64_t rows, inputs, outputs;
};
constexpr Shape kShapes[] = {{1, 64, 40}, {2, 576, 97}, {9, 288, 640}, {70, 96, 33}, {301, 64, 50}};

// Weights whose segments are all coded, all dense, and both.
std::vector<std::vector<DType>> mixtures() {
  return {{DType::kQ8_0}, {DType::kF32}, {DType::kQ4_1, DType::kBF16, DType::kQ5_0}};
}

std::unique_ptr<PackedWeight> pack_mixture(Backend& backend, const std::vector<DType>& formats,
                                           const Shape& shape, WeightRole role) {
  Random random(50);
  std::vector<std::unique_ptr<TestWeight>> weights;
  std::vector<WeightView> parts;
  for (const DType format : formats) {
    weights.push_back(random_weight(format, shape.outputs, shape.inputs, random));
    parts.push_back(weights.back()->view);
  }
  auto packed = backend.pack(parts, role);
  EXPECT_TRUE(packed.ok());
  EXPECT_TRUE(backend.reserve(512).ok());
  return std::move(packed).value();
}

std::vector<float> normed(Backend& backend, const std::vector<float>& x, const Norm& norm,
                          int64_t width) {
  std::vector<float> out(x.size());
  backend.norm({.kind = norm.kind,
                .x = on_device(x.data()),
                .weight = norm.weight,
                .out = on_device(out.data()),
                .num_rows = std::ssize(x) / width,
                .width = width,
                .eps = norm.eps});
  return out;
}

// Calls check(backend, formats, shape) for every unit, number of threads, mixture and shape.
template <typename F>
void for_each_case(const F& check) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    for (const int num_threads : {1, 2, 5}) {
      const auto backend = make_backend(isa, num_threads);
      for (const auto& formats : mixtures()) {
        for (const Shape& shape : kShapes) {
          SCOPED_TRACE(isa + " threads " + std::to_string(num_threads) + " rows " +
                       std::to_string(shape.rows) + " formats " + std::to_string(formats.size()));
          check(*backend, formats, shape);
          ++num_cases;
        }
      }
    }
  }
  EXPECT_GE(num_cases, 3 * 3 * 5);
}

TEST(Ops, NormsInsideLinearEqualNormsAround) {
  for_each_case([](Backend& backend, const std::vector<DType>& formats, const Shape& shape) {
    const auto packed = pack_mixture(backend, formats, shape, WeightRole::kLinear);
    Random random(51);
    const auto outputs = packed->num_outputs();
    const auto x = random_floats(static_cast<size_t>(shape.rows * shape.inputs), random);
    const auto norm_weight = random_floats(static_cast<size_t>(shape.inputs), random);
    const auto post_weight = random_floats(static_cast<size_t>(outputs), random);
    const auto bias = random_floats(static_cast<size_t>(outputs), random);
    const auto residual = random_floats(static_cast<size_t>(shape.rows * outputs), random);
    const Norm norm{NormKind::kRms, on_device(norm_weight.data()), 1e-5f};
    const Norm post{NormKind::kLayer, on_device(post_weight.data()), 1e-6f};

    const auto rows = normed(backend, x, norm, shape.inputs);
    std::vector<float> branch(residual.size()), expected = residual;
    backend.linear(*packed, on_device(rows.data()), shape.rows, {.bias = on_device(bias.data())},
                   on_device(branch.data()));
    backend.norm({post.kind, on_device(branch.data()), post.weight, on_device(expected.data()),
                  nullptr, on_device(expected.data()), shape.rows, outputs, post.eps, 0.25f});

    std::vector<float> room(x.size()), branch_room(residual.size()), out = residual;
    const int64_t joins = backend.num_joins();
    backend.linear(*packed, {on_device(x.data()), norm, on_device(room.data())}, shape.rows,
                   {.bias = on_device(bias.data()),
                    .residual = on_device(out.data()),
                    .scale = 0.25f,
                    .post_norm = post,
                    .branch = on_device(branch_room.data())},
                   on_device(out.data()));
    EXPECT_EQ(backend.num_joins() - joins, 1);
    EXPECT_TRUE(same_bits(out, expected));
  });
}

TEST(Ops, NormInsideGatedLinearEqualsNormBefore) {
  for_each_case([](Backend& backend, const std::vector<DType>& formats, const Shape& shape) {
    const std::vector<DType> two = {formats.front(), formats.back()};
    const auto packed = pack_mixture(backend, two, shape, WeightRole::kGateUp);
    Random random(52);
    auto x = random_floats(static_cast<size_t>(shape.rows * shape.inputs), random);
    const auto norm_weight = random_floats(static_cast<size_t>(shape.inputs), random);
    const Norm norm{NormKind::kLayer, on_device(norm_weight.data()), 1e-5f};
    const auto rows = normed(backend, x, norm, shape.inputs);
    GuardedFloats expected(static_cast<size_t>(shape.rows * shape.outputs));
    GuardedFloats out(static_cast<size_t>(shape.rows * shape.outputs));
    backend.gated_linear(*packed, on_device(rows.data()), shape.rows, Activation::kSilu, nullptr,
                         on_device(expected.data()));
    const int64_t joins = backend.num_joins();
    backend.gated_linear(*packed, {on_device(x.data()), norm, on_device(x.data())}, shape.rows,
                         Activation::kSilu, nullptr,
                         on_device(out.data()));  // the room may be the input itself
    EXPECT_EQ(backend.num_joins() - joins, 1);
    EXPECT_TRUE(same_bits(out.values(), expected.values()));
    EXPECT_TRUE(out.intact() && out.all_finite());
  });
}

TEST(Ops, QkvLinearEqualsItsTwoHalves) {
  constexpr int kHeads = 4, kKvHeads = 2, kDim = 24, kRows = 37;
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const Shape shape{kRows, 96, kHeads * kDim};
    Random random(53);
    std::vector<std::unique_ptr<TestWeight>> weights;
    std::vector<WeightView> parts;
    for (const int heads : {kHeads, kKvHeads, kKvHeads}) {
      weights.push_back(random_weight(DType::kQ8_0, heads * kDim, shape.inputs, random));
      parts.push_back(weights.back()->view);
    }
    const auto packed = backend->pack(parts, WeightRole::kLinear);
    ASSERT_TRUE(packed.ok());
    const auto x = random_floats(static_cast<size_t>(kRows * shape.inputs), random);
    const auto norm_weight = random_floats(static_cast<size_t>(shape.inputs), random);
    const auto bias = random_floats(static_cast<size_t>((kHeads + 2 * kKvHeads) * kDim), random);
    const auto tables = random_floats(size_t{kRows} * kDim, random);
    const auto head_norm = random_floats(kDim, random);
    const Norm norm{NormKind::kRms, on_device(norm_weight.data()), 1e-5f};
    const KvShape kv{KvType::kF32, kKvHeads, kDim};
    const size_t stride = backend->kv_layer_bytes(kv);
    const int32_t blocks[] = {0, 1, 2};
    const int32_t* const table = blocks;
    const Span spans[] = {{0, 20, 0, &table}, {20, 17, 20, &table}};
    std::vector<float> q[2];
    std::vector<std::byte> memory[2];
    std::vector<float> projection[2];
    for (const int fused : {0, 1}) {
      q[fused].resize(size_t{kRows} * kHeads * kDim);
      memory[fused].assign(3 * stride, std::byte{0});
      projection[fused].resize(kRows * bias.size());
      QkvArgs args;
      args.qkv = on_device(projection[fused].data());
      args.q_out = on_device(q[fused].data());
      args.num_rows = kRows;
      args.num_heads = kHeads;
      args.kv = {kv, on_device(memory[fused].data()), stride};
      args.step = backend->begin_step(spans);
      args.qk_norm = QkNorm::kPerHead;
      args.q_norm_weight = args.k_norm_weight = on_device(head_norm.data());
      args.rope_dims = 16;
      args.rope_cos = on_device(tables.data());
      args.rope_sin = on_device(tables.data() + kRows * 8);
      std::vector<float> room(x.size());
      if (fused == 1) {
        args.qkv = nullptr;
        backend->qkv_linear(**packed, {on_device(x.data()), norm, on_device(room.data())},
                            on_device(bias.data()), on_device(projection[fused].data()), args);
        continue;
      }
      const auto rows = normed(*backend, x, norm, shape.inputs);
      backend->linear(**packed, on_device(rows.data()), kRows, {.bias = on_device(bias.data())},
                      on_device(projection[fused].data()));
      backend->finish_qkv(args);
    }
    EXPECT_TRUE(same_bits(q[0], q[1])) << isa;
    EXPECT_EQ(memory[0], memory[1]) << isa;
    EXPECT_NE(memory[0], std::vector<std::byte>(3 * stride, std::byte{0})) << isa;
    ++num_cases;
  }
  EXPECT_GE(num_cases, 1);
}

BestOutput best_of(std::span<const float> row) {
  BestOutput best{0, true, row[0]};
  for (size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) return {static_cast<int32_t>(i), false, row[i]};
    if (row[i] > best.value) best = {static_cast<int32_t>(i), true, row[i]};
  }
  return best;
}

TEST(Ops, HeadWritesSomeRowsAndComparesTheOthers) {
  for_each_case([](Backend& backend, const std::vector<DType>& formats, const Shape& shape) {
    const auto packed = pack_mixture(backend, formats, shape, WeightRole::kEmbedding);
    Random random(54);
    const auto outputs = static_cast<size_t>(packed->num_outputs());
    const auto x = random_floats(static_cast<size_t>(shape.rows * shape.inputs), random);
    std::vector<float> expected(static_cast<size_t>(shape.rows) * outputs);
    backend.linear(*packed, on_device(x.data()), shape.rows, {.scale = 0.5f, .softcap = 30.0f},
                   on_device(expected.data()));
    for (const int64_t num_written : {int64_t{0}, shape.rows / 2, shape.rows}) {
      GuardedFloats logits(static_cast<size_t>(num_written) * outputs);
      std::vector<BestOutput> best(static_cast<size_t>(shape.rows - num_written));
      backend.head(*packed, on_device(x.data()),
                   {.num_rows = shape.rows,
                    .num_written = num_written,
                    .scale = 0.5f,
                    .softcap = 30.0f,
                    .logits = on_device(logits.data()),
                    .best = best.data()});
      ASSERT_TRUE(logits.intact());
      EXPECT_TRUE(same_bits(logits.values(), std::span(expected).first(logits.values().size())));
      for (size_t i = 0; i < best.size(); ++i) {
        const size_t row = static_cast<size_t>(num_written) + i;
        const BestOutput wanted = best_of(std::span(expected).subspan(row * outputs, outputs));
        EXPECT_EQ(best[i].output, wanted.output) << "row " << row;
        EXPECT_EQ(best[i].finite, wanted.finite) << "row " << row;
        EXPECT_EQ(best[i].value, wanted.value) << "row " << row;
      }
    }
  });
}

// Ties go to the lowest index, -0 equals +0, and what is not finite is named: lowest index first.
TEST(Ops, HeadFollowsTheRulesOfTheSampler) {
  const int64_t outputs = 300;
  std::vector<std::vector<float>> rows(6, std::vector<float>(outputs, -3.0f));
  rows[0][70] = rows[0][71] = rows[0][299] = 5.0f;  // a tie within and across tiles
  rows[1].assign(outputs, -0.0f);
  rows[1][120] = 0.0f;  // equal to all before it
  rows[2][250] = NAN;
  rows[2][199] = INFINITY;
  rows[2][3] = 1e30f;
  rows[3].assign(outputs, -1e-40f);
  rows[3][299] = 1e-44f;
  rows[4][0] = -2.0f;
  rows[5][17] = -INFINITY;
  const BestOutput expected[] = {{70, true, 5.0f},    {0, true, 0.0f},  {199, false, INFINITY},
                                 {299, true, 1e-44f}, {0, true, -2.0f}, {17, false, -INFINITY}};
  // Row i of the weight is column i of the rows; a unit vector picks it.
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 3);
    for (size_t r = 0; r < rows.size(); ++r) {
      std::vector<std::byte> bytes(rows[r].size() * sizeof(float));
      std::memcpy(bytes.data(), rows[r].data(), bytes.size());
      Random random(1);
      auto weight = random_weight(DType::kF32, outputs, 1, random);
      std::memcpy(weight->bytes.data(), bytes.data(), bytes.size());
      auto packed = backend->pack({&weight->view, 1}, WeightRole::kLinear);
      ASSERT_TRUE(packed.ok());
      const float one = 1.0f;
      BestOutput best;
      backend->head(**packed, on_device(&one), {.num_rows = 1, .best = &best});
      EXPECT_EQ(best.output, expected[r].output) << isa << " row " << r;
      EXPECT_EQ(best.finite, expected[r].finite) << isa << " row " << r;
      EXPECT_EQ(best.value, expected[r].value) << isa << " row " << r;
    }
  }
}

// The rest of K lies with another backend, as another process would hold it.
class OtherHalf final : public Reduction {
 public:
  OtherHalf(Backend& backend, const PackedWeight& weight, const std::vector<float>& x)
      : backend_(backend), weight_(weight), x_(x) {}

  void reduce(DevicePtr<float> products, int64_t num_rows, int64_t num_outputs) override {
    std::vector<float> own(static_cast<size_t>(num_rows * num_outputs));
    backend_.linear(weight_, on_device(x_.data()), num_rows, {}, on_device(own.data()));
    for (size_t i = 0; i < own.size(); ++i) raw(products)[i] += own[i];
    ++num_calls_;
  }
  int num_calls() const { return num_calls_; }

 private:
  Backend& backend_;
  const PackedWeight& weight_;
  const std::vector<float>& x_;
  int num_calls_ = 0;
};

// Columns [first, first + count) of rows of `width`.
std::vector<float> columns(const std::vector<float>& values, int64_t width, int64_t first,
                           int64_t count) {
  std::vector<float> out;
  for (auto row = values.begin(); row != values.end(); row += width) {
    out.insert(out.end(), row + first, row + first + count);
  }
  return out;
}

std::unique_ptr<PackedWeight> pack_floats(Backend& backend, const std::vector<float>& values,
                                          int64_t num_outputs, int64_t num_inputs) {
  Random random(1);
  auto weight = random_weight(DType::kF32, num_outputs, num_inputs, random);
  std::memcpy(weight->bytes.data(), values.data(), values.size() * sizeof(float));
  return backend.pack({&weight->view, 1}, WeightRole::kLinear).value();
}

// Whole numbers, so that the sum of two parts of K is the sum over K bit for bit.
TEST(Ops, PartsOfKOnTwoBackendsAddUp) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto first = make_backend(isa, 2), second = make_backend(isa, 1);
    for (const Shape& shape : {Shape{1, 96, 40}, Shape{9, 288, 97}, Shape{60, 64, 33}}) {
      SCOPED_TRACE(isa + " rows " + std::to_string(shape.rows));
      Random random(57);
      const int64_t half = shape.inputs / 2;
      const auto num_values = static_cast<size_t>(shape.rows * shape.outputs);
      const auto w = whole_floats(static_cast<size_t>(shape.outputs * shape.inputs), random);
      const auto x = whole_floats(static_cast<size_t>(shape.rows * shape.inputs), random);
      const auto bias = random_floats(static_cast<size_t>(shape.outputs), random);
      const auto post = random_floats(static_cast<size_t>(shape.outputs), random);
      const auto residual = random_floats(num_values, random);
      const auto whole = pack_floats(*first, w, shape.outputs, shape.inputs);
      const auto left = pack_floats(*first, columns(w, shape.inputs, 0, half), shape.outputs, half);
      const auto right =
          pack_floats(*second, columns(w, shape.inputs, half, half), shape.outputs, half);
      const auto x_left = columns(x, shape.inputs, 0, half);
      const auto x_right = columns(x, shape.inputs, half, half);
      OtherHalf other(*second, *right, x_right);
      std::vector<float> room(num_values);
      Epilogue forms[3] = {{.bias = on_device(bias.data())},
                           {.bias = on_device(bias.data()), .scale = 0.5f, .softcap = 3.0f},
                           {.bias = on_device(bias.data()),
                            .scale = 0.25f,
                            .post_norm = {NormKind::kRms, on_device(post.data()), 1e-5f}}};
      for (Epilogue& form : forms) {
        form.branch = on_device(room.data());
        std::vector<float> expected = residual, found = residual;
        form.residual = on_device(std::as_const(expected).data());
        first->linear(*whole, on_device(x.data()), shape.rows, form, on_device(expected.data()));
        form.residual = on_device(std::as_const(found).data());
        form.reduction = &other;
        first->linear(*left, on_device(x_left.data()), shape.rows, form, on_device(found.data()));
        EXPECT_TRUE(same_bits(found, expected)) << "form " << &form - forms;
        EXPECT_FALSE(same_bits(found, residual));
        ++num_cases;
      }
      EXPECT_EQ(other.num_calls(), 3);
    }
  }
  EXPECT_GE(num_cases, 9);
}

TEST(Ops, AReductionNeedsRoom) {
  const auto backend = make_backend("reference", 1);
  const std::vector<float> w(16 * 8, 1.0f), x(8, 1.0f);
  const auto weight = pack_floats(*backend, w, 16, 8);
  OtherHalf other(*backend, *weight, x);
  std::vector<float> out(16);
  const auto call = [&] {
    backend->linear(*weight, on_device(x.data()), 1, {.reduction = &other}, on_device(out.data()));
  };
  EXPECT_DEATH(call(), "a reduction needs room");
}

// However many members share it, every output is the same.
TEST(Ops, CuttingIntoTilesChangesNothing) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    if (isa == "reference") continue;  // slow, and cut by the same code
    for (const Shape& shape : {Shape{512, 320, 560}, Shape{67, 512, 1000}, Shape{1, 1024, 5000}}) {
      Random random(55);
      const auto x = random_floats(static_cast<size_t>(shape.rows * shape.inputs), random);
      std::vector<float> expected;
      for (const int num_threads : {1, 2, 7, 64}) {
        const auto backend = make_backend(isa, num_threads);
        const auto packed = pack_mixture(*backend, {DType::kQ4_1}, shape, WeightRole::kLinear);
        GuardedFloats out(static_cast<size_t>(shape.rows * shape.outputs));
        backend->linear(*packed, on_device(x.data()), shape.rows, {}, on_device(out.data()));
        ASSERT_TRUE(out.intact() && out.all_finite());
        if (expected.empty()) expected.assign(out.values().begin(), out.values().end());
        EXPECT_TRUE(same_bits(expected, out.values())) << isa << " threads " << num_threads;
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, available_isas().size() > 1 ? 12 : 0);
}

}  // namespace
}  // namespace headrace
