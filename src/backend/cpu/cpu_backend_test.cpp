// What the CPU back end refuses, and its facts. Its arithmetic is tested in tests/differential.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

#include "backend/cpu/verify/samples.h"
#include "backend/device_access.h"

namespace headrace {
namespace {

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
  EXPECT_EQ(reference->numerics(), threads->numerics());
  EXPECT_NE(reference->numerics().find("keys and values in splits of"), std::string::npos);
  const auto int8 = create_cpu_backend(
      {.isa = "reference", .num_threads = 1, .activations = ActivationArithmetic::kInt8});
  ASSERT_TRUE(int8.ok());
  EXPECT_NE(reference->numerics(), (*int8)->numerics());
  EXPECT_EQ(reference->packing_id(), threads->packing_id());
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
  };
  for (const QkvCase& row : cases) {
    QkvArgs args = good;
    row.change(&args);
    EXPECT_DEATH(backend_->finish_qkv(args), std::string(row.what)) << row.what;
  }
  const auto projection = pack(17, 32);
  EXPECT_DEATH(backend_->qkv_linear(*projection, room(), nullptr, room(), good),
               "17 outputs for 4 heads and 2 kv heads of 16");
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

}  // namespace
}  // namespace headrace
