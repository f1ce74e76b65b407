// What the CPU back end refuses, and its facts. Its arithmetic is tested in tests/differential.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/verify/samples.h"
#include "backend/device_access.h"

namespace headrace {
namespace cpu_backend_test {

using cpu::Random;
using cpu::SampleWeight;

std::unique_ptr<SampleWeight> floats(int64_t num_outputs, int64_t num_inputs) {
  Random random(7);
  return cpu::sample_weight(DType::kF32, cpu::WeightSample::kRandom, num_outputs, num_inputs,
                            random);
}

TEST(CreateCpuBackend, RefusesWhatThisMachineCannot) {
  const auto unknown = create_cpu_backend({.isa = "quantum"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("quantum"), std::string::npos);
  for (const int num_threads : {-1, 1025}) {
    const auto backend = create_cpu_backend({.isa = "reference", .num_threads = num_threads});
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(backend.error().message,
              fmt::format("num_threads is {}; it must be 0 (automatic) to 1024", num_threads));
  }
}

TEST(CreateCpuBackend, HasTheThreadsAskedFor) {
  for (const int num_threads : {1, 3}) {
    const auto backend = create_cpu_backend({.isa = "reference", .num_threads = num_threads});
    ASSERT_TRUE(backend.ok());
    EXPECT_EQ((*backend)->num_threads(), num_threads);
    EXPECT_EQ((*backend)->isa(), "reference");
    EXPECT_EQ((*backend)->num_joins(), 0);
  }
  EXPECT_GE(create_cpu_backend({.isa = "reference"}).value()->num_threads(), 1);
}

TEST(CpuBackendFacts, KernelsInUseAreAvailableAndNamedOnce) {
  const auto backend = create_cpu_backend({.num_threads = 1}).value();
  std::set<std::string> names;
  int num_selected = 0;
  for (const KernelInfo& kernel : backend->kernels()) {
    EXPECT_FALSE(kernel.op.empty() || kernel.name.empty() || kernel.numerics_class.empty());
    if (!kernel.selected) continue;
    EXPECT_TRUE(kernel.available) << kernel.name;
    names.insert(kernel.op + kernel.name + kernel.layout);
    ++num_selected;
  }
  EXPECT_GT(num_selected, 10);
  EXPECT_EQ(std::ssize(names), num_selected);
}

TEST(CpuBackendFacts, NumericsNameWhatDecidesABit) {
  const auto reference = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const auto threads = create_cpu_backend({.isa = "reference", .num_threads = 3}).value();
  EXPECT_EQ(reference->numerics(KvType::kF16), threads->numerics(KvType::kF16));
  EXPECT_NE(reference->numerics(KvType::kF16).find("keys and values in splits of"),
            std::string::npos);
  const auto fast = create_cpu_backend(
      {.isa = "reference", .num_threads = 1, .activations = ActivationArithmetic::kFast});
  ASSERT_TRUE(fast.ok());
  EXPECT_NE(reference->numerics(KvType::kF16), (*fast)->numerics(KvType::kF16));
  EXPECT_EQ(reference->packing_id(), threads->packing_id());
}

TEST(CpuBackendFacts, KeysAndValuesAreWholeNumbersWhereTilesMultiplyThem) {
  constexpr uint32_t kEveryIsa = std::numeric_limits<uint32_t>::max();
  for (const cpu::KernelUnit* unit : cpu::all_units()) {
    const KvType type = default_kv_type(cpu::select_kernels(*unit, kEveryIsa));
    // amx_integer has the bits of other processors.
    EXPECT_EQ(type, std::string_view(unit->name) == "amx" ? KvType::kInt16 : KvType::kF16)
        << unit->name;
  }
  const auto reference = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  EXPECT_EQ(reference->default_kv_type(), KvType::kF16);
}

TEST(CpuBackendFacts, ABlockHoldsKeysAndValues) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const size_t one = backend->kv_layer_bytes({KvType::kF32, 1, 64});
  EXPECT_GE(one, 2 * kBlockTokens * 64 * sizeof(float));
  EXPECT_EQ(backend->kv_layer_bytes({KvType::kF32, 3, 64}), 3 * one);
  EXPECT_LT(backend->kv_layer_bytes({KvType::kBF16, 1, 64}), one);
  const size_t int8 = backend->kv_layer_bytes({KvType::kInt8, 1, 64});
  EXPECT_GT(int8, size_t{2} * kBlockTokens * 64);  // scales beside the codes
  EXPECT_LT(int8, one / 2);
}

class CpuBackendTest : public testing::Test {
 protected:
  std::unique_ptr<PackedWeight> pack(int64_t outputs, int64_t inputs,
                                     WeightRole role = WeightRole::kLinear) {
    weights_.push_back(floats(outputs, inputs));
    return backend_->pack({&weights_.back()->view, 1}, role).value();
  }
  DevicePtr<float> room() { return on_device(room_.data()); }

  std::unique_ptr<Backend> backend_ =
      create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  std::vector<std::unique_ptr<SampleWeight>> weights_;
  std::vector<float> room_ = std::vector<float>(1 << 16);
};
using CpuBackendDeathTest = CpuBackendTest;

TEST_F(CpuBackendTest, PackedBytesAreAdoptedAsTheyAre) {
  const auto weight = floats(40, 64);
  const std::span<const WeightView> parts(&weight->view, 1);
  const size_t num_bytes = backend_->packed_bytes(parts, WeightRole::kLinear);
  DeviceMemory memory = backend_->allocate(num_bytes, MemoryUse::kWeights).value();
  const auto packed = backend_->pack_into(parts, WeightRole::kLinear, memory.data()).value();
  EXPECT_EQ(packed->num_outputs(), 40);
  EXPECT_EQ(packed->num_inputs(), 64);
  EXPECT_EQ(packed->num_bytes(), num_bytes);
  DeviceMemory other = backend_->allocate(num_bytes, MemoryUse::kWeights).value();
  backend_->copy(memory.data(), other.data(), num_bytes);
  const auto adopted = backend_->adopt(parts, WeightRole::kLinear, other.data()).value();
  std::vector<float> x(64, 0.5f), first(40), second(40);
  backend_->linear(*packed, on_device(x.data()), 1, {}, on_device(first.data()));
  backend_->linear(*adopted, on_device(x.data()), 1, {}, on_device(second.data()));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::vector<float>(40));
}

TEST_F(CpuBackendTest, ReservedRowsCanBeUsed) {
  const auto weight = pack(16, 32);
  ASSERT_TRUE(backend_->reserve(200).ok());
  ASSERT_TRUE(backend_->reserve(10).ok());  // never takes back
  std::vector<float> x(200 * 32, 1.0f), out(200 * 16);
  backend_->linear(*weight, on_device(x.data()), 200, {}, on_device(out.data()));
  for (size_t i = 16; i < out.size(); ++i) ASSERT_EQ(out[i], out[i - 16]);
}

TEST_F(CpuBackendTest, NoRowsAreNoWork) {
  const auto weight = pack(16, 32);
  const int64_t joins = backend_->num_joins();
  backend_->linear(*weight, room(), 0, {}, room());
  backend_->norm({.x = room(), .weight = room(), .out = room(), .num_rows = 0, .width = 4});
  backend_->head(*weight, room(), {});
  QkvArgs qkv;
  qkv.num_heads = 2;
  qkv.kv = {{KvType::kF32, 1, 16}, nullptr, backend_->kv_layer_bytes({KvType::kF32, 1, 16})};
  qkv.step = backend_->begin_step({});
  backend_->finish_qkv(qkv);
  AttentionArgs attention;
  attention.num_heads = 2;
  attention.kv = qkv.kv;
  attention.step = qkv.step;
  backend_->attention(attention);
  EXPECT_EQ(backend_->num_joins(), joins);
}

std::vector<float> values_from(uint32_t seed, size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return values;
}

// Rows of the other array may lie anywhere; without one the activation is all.
TEST_F(CpuBackendTest, AnActivatedLinearIsTimesRowsOfAnotherArray) {
  const auto weight = pack(24, 32);
  const auto x = values_from(1, 3 * 32), bias = values_from(2, 24),
             factors = values_from(3, 3 * 40);
  std::vector<float> sums(3 * 24), found(3 * 24), alone(3 * 24);
  backend_->linear(*weight, on_device(x.data()), 3, {.bias = on_device(bias.data())},
                   on_device(sums.data()));
  ActivatedArgs args{.activation = Activation::kGeluTanh, .bias = on_device(bias.data())};
  backend_->activated_linear(*weight, on_device(x.data()), 3, args, on_device(alone.data()));
  args.factors = on_device(factors.data()) + 8;
  args.factor_stride = 40;
  backend_->activated_linear(*weight, on_device(x.data()), 3, args, on_device(found.data()));
  for (size_t i = 0; i < sums.size(); ++i) {
    const double s = sums[i];
    const double gelu = s / 2 * (1 + std::tanh(0.7978845608 * (s + 0.044715 * s * s * s)));
    EXPECT_NEAR(alone[i], gelu, 1e-5) << i;
    EXPECT_EQ(found[i], alone[i] * factors[i / 24 * 40 + 8 + i % 24]) << i;
  }
  EXPECT_NE(alone, std::vector<float>(alone.size()));
}

// The residual is multiplied as well; a power of two is exact.
TEST_F(CpuBackendTest, AGainMultipliesAllThatANormGives) {
  const auto weight = pack(24, 32);
  const auto x = values_from(4, 2 * 32), norm = values_from(5, 24), stream = values_from(6, 2 * 24);
  const float four = 4.0f;
  std::vector<float> branch(2 * 24), plain(2 * 24), gained(2 * 24), normed(2 * 24);
  Epilogue epilogue{.residual = on_device(stream.data()),
                    .scale = 0.5f,
                    .post_norm = {NormKind::kRms, on_device(norm.data()), 1e-5f},
                    .branch = on_device(branch.data())};
  backend_->linear(*weight, on_device(x.data()), 2, epilogue, on_device(plain.data()));
  epilogue.gain = on_device(&four);
  backend_->linear(*weight, on_device(x.data()), 2, epilogue, on_device(gained.data()));
  backend_->norm({.x = on_device(branch.data()),
                  .weight = on_device(norm.data()),
                  .residual = on_device(stream.data()),
                  .gain = on_device(&four),
                  .out = on_device(normed.data()),
                  .num_rows = 2,
                  .width = 24,
                  .eps = 1e-5f,
                  .scale = 0.5f});
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(gained[i], 4 * plain[i]) << i;
  EXPECT_EQ(normed, gained);
  EXPECT_NE(plain, stream);
}

// A projection of queries alone leaves the blocks, another layer's, as they are.
TEST_F(CpuBackendTest, QueriesAloneAppendNothing) {
  const KvShape shape{KvType::kF32, 2, 16};
  const size_t num_bytes = backend_->kv_layer_bytes(shape);
  DeviceMemory memory = backend_->allocate(num_bytes, MemoryUse::kKv).value();
  std::memset(backend_->write_view(memory.data(), num_bytes).data(), 7, num_bytes);
  const int32_t block = 0;
  const int32_t* const table = &block;
  Span span;
  span.num_rows = 3;
  span.tables = &table;
  const auto q = values_from(8, 3 * 64);
  std::vector<float> out(q.size());
  QkvArgs args;
  args.qkv = on_device(q.data());
  args.q_out = on_device(out.data());
  args.num_rows = 3;
  args.num_heads = 4;
  args.kv_parts = 0;
  args.kv = {shape, memory.data(), num_bytes};
  args.step = backend_->begin_step({&span, 1});
  backend_->finish_qkv(args);
  EXPECT_EQ(out, q);
  for (const std::byte byte : backend_->read_view(memory.data(), num_bytes)) {
    ASSERT_EQ(byte, std::byte{7});
  }
}

TEST_F(CpuBackendDeathTest, FactorsLieARowApartAtLeast) {
  const auto weight = pack(16, 32);
  EXPECT_DEATH(backend_->activated_linear(*weight, room(), 1,
                                          {.factors = room(), .factor_stride = 15}, room()),
               "factors 15 apart for 16");
}

TEST_F(CpuBackendDeathTest, RowsBeyondTheReservedEnd) {
  const auto weight = pack(16, 32);
  EXPECT_DEATH(backend_->linear(*weight, room(), 65, {}, room()), "65 rows, but 64 are reserved");
  EXPECT_DEATH(backend_->linear(*weight, room(), -1, {}, room()), "-1 rows");
  EXPECT_DEATH(backend_->head(*weight, room(), {.num_rows = 2, .num_written = 3}),
               "3 rows written of 2");
}

TEST_F(CpuBackendDeathTest, RolesAreKept) {
  const auto linear = pack(16, 32);
  const auto table = pack(16, 32, WeightRole::kEmbedding);
  const std::vector<int32_t> ids = {3}, below = {-1}, beyond = {16};
  backend_->embed(*table, ids, 1.0f, nullptr, room());
  EXPECT_DEATH(backend_->embed(*linear, ids, 1.0f, nullptr, room()), "kEmbedding");
  EXPECT_DEATH(backend_->embed(*table, below, 1.0f, nullptr, room()), "token id -1");
  EXPECT_DEATH(backend_->embed(*table, beyond, 1.0f, nullptr, room()), "token id 16");
  EXPECT_DEATH(backend_->gated_linear(*linear, room(), 1, Activation::kSilu, nullptr, room()),
               "not a gate_up weight");
}

TEST_F(CpuBackendDeathTest, NormsNeedRoom) {
  const auto weight = pack(16, 32);
  const Norm norm{NormKind::kRms, room(), 1e-5f};
  EXPECT_DEATH(backend_->linear(*weight, {room(), norm, nullptr}, 1, {}, room()),
               "a norm needs room");
  EXPECT_DEATH(backend_->linear(*weight, room(), 1, {.post_norm = norm}, room()),
               "a norm of the output needs room");
  EXPECT_DEATH(backend_->linear(*weight, room(), 1,
                                {.softcap = 2.0f, .post_norm = norm, .branch = room()}, room()),
               "has no softcap");
  EXPECT_DEATH(backend_->linear(*weight, room(), 1, {.gain = room()}, room()),
               "a gain comes with a norm of the output");
  EXPECT_DEATH(backend_->norm({.x = room(), .out = room(), .num_rows = 1, .width = 0}),
               "\\[1, 0\\]");
}

// Arguments of a KV append that are right but for what a case changes.
struct QkvCase {
  std::string_view what;
  void (*change)(QkvArgs*);
};

TEST_F(CpuBackendDeathTest, KvAppendsAreChecked) {
  const KvShape shape{KvType::kF32, 2, 16};
  DeviceMemory memory =
      backend_->allocate(2 * backend_->kv_layer_bytes(shape), MemoryUse::kKv).value();
  const int32_t blocks[] = {1, 0};
  const int32_t* const tables[] = {blocks};
  Span span;
  span.num_rows = 3;
  span.tables = tables;
  QkvArgs good;
  good.qkv = room();
  good.q_out = room() + 4096;
  good.num_rows = 3;
  good.num_heads = 4;
  good.kv = {shape, memory.data(), backend_->kv_layer_bytes(shape)};
  good.step = backend_->begin_step({&span, 1});
  backend_->finish_qkv(good);
  const QkvCase cases[] = {
      {"4 rows in a step of 3", [](QkvArgs* args) { args->num_rows = 4; }},
      {"a step that was not begun here", [](QkvArgs* args) { args->step = nullptr; }},
      {"3 heads, 2 kv heads", [](QkvArgs* args) { args->num_heads = 3; }},
      {"0 kv heads", [](QkvArgs* args) { args->kv.shape.num_kv_heads = 0; }},
      {"head_dim 0", [](QkvArgs* args) { args->kv.shape.head_dim = 0; }},
      {"head_dim 1024", [](QkvArgs* args) { args->kv.shape.head_dim = 1024; }},
      {"rope_dims 18 of head_dim 16", [](QkvArgs* args) { args->rope_dims = 18; }},
      {"rope_dims 3 of head_dim 16", [](QkvArgs* args) { args->rope_dims = 3; }},
      {"stride 64", [](QkvArgs* args) { args->kv.block_stride = 64; }},
      {"table -1", [](QkvArgs* args) { args->kv.table = -1; }},
      {"3 parts of keys and values", [](QkvArgs* args) { args->kv_parts = 3; }},
  };
  for (const QkvCase& row : cases) {
    QkvArgs args = good;
    row.change(&args);
    EXPECT_DEATH(backend_->finish_qkv(args), std::string(row.what)) << row.what;
  }
  const auto projection = pack(17, 32);
  EXPECT_DEATH(backend_->qkv_linear(*projection, room(), nullptr, room(), good),
               "17 outputs for 4 heads and 2 times 2 kv heads of 16");
}

TEST_F(CpuBackendDeathTest, AttentionIsChecked) {
  Span span;
  span.num_rows = 1;
  AttentionArgs args;
  args.num_heads = 2;
  args.kv = {{KvType::kF32, 1, 16}, nullptr, 4096};
  EXPECT_DEATH(backend_->attention(args), "a step that was not begun here");
  args.step = backend_->begin_step({&span, 1});
  args.window = -1;
  EXPECT_DEATH(backend_->attention(args), "window -1");
  const auto other = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  args.window = 0;
  args.step = other->begin_step({&span, 1});
  EXPECT_DEATH(backend_->attention(args), "a step that was not begun here");
}

}  // namespace cpu_backend_test
}  // namespace headrace
