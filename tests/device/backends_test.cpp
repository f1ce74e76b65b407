// The test back ends themselves: a host access does fault, and an op is done late.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_access.h"
#include "device/deferring_backend.h"
#include "device/faulting_backend.h"

namespace headrace::device {
namespace {

std::unique_ptr<Backend> cpu_backend() {
  return create_cpu_backend({.isa = "reference", .num_threads = 2}).value();
}

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

class Faulting : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    memory_ = backend_.allocate(kCount * sizeof(float), MemoryUse::kResults).value();
    calls_.upload(counted(kCount), memory_.as<float>());
  }
  // What a careless caller does: takes device memory for the host's.
  void host_reads(size_t index) { sum_ = sum_ + raw(memory_.as<float>())[index]; }
  void host_writes(size_t index) { raw(memory_.as<float>())[index] = 1; }

  static constexpr size_t kCount = 4096;  // four pages
  FaultingBackend backend_{cpu_backend()};
  Backend& calls_ = backend_;
  DeviceMemory memory_;
  volatile float sum_ = 0;
};
using FaultingDeathTest = Faulting;

TEST_F(FaultingDeathTest, AHostReadDies) { EXPECT_DEATH(host_reads(0), ""); }

TEST_F(FaultingDeathTest, AHostWriteDies) { EXPECT_DEATH(host_writes(kCount - 1), ""); }

TEST_F(FaultingDeathTest, AReadViewIsForReading) {
  const std::span<const float> view = calls_.read_view(memory_.as<float>(), 10);
  EXPECT_EQ(view[9], 10);
  host_reads(9);
  EXPECT_EQ(sum_, 10);
  EXPECT_DEATH(host_writes(0), "");
  EXPECT_DEATH(host_reads(2048), "");  // another page
}

TEST_F(FaultingDeathTest, AViewEndsWithTheNextCall) {
  const std::span<const float> view = calls_.read_view(memory_.as<float>(), 10);
  backend_.synchronize();
  EXPECT_DEATH(sum_ = sum_ + view[0], "");
  const std::span<float> given = calls_.write_view(memory_.as<float>(), 10);
  given[0] = 2;
  backend_.zero(memory_.data() + 64, 4);
  EXPECT_DEATH(given[0] = 3, "");
  EXPECT_EQ(calls_.read_view(memory_.as<float>(), 1)[0], 2);
}

TEST_F(FaultingDeathTest, MemoryThatIsFreedIsGone) {
  const DevicePtr<float> pointer = memory_.as<float>();
  memory_ = DeviceMemory();
  EXPECT_DEATH(calls_.read_view(pointer, 1), "no device memory");
}

TEST_F(Faulting, ViewsStayOpenBesideOthersAndForTheTeam) {
  const auto first = calls_.read_view(memory_.as<float>(), 8);
  const auto second = calls_.read_view(memory_.as<float>() + 2048, 8);
  std::atomic<int> sum = 0;
  backend_.run_on_team(8, [&](int64_t item, int) {
    const auto i = static_cast<size_t>(item);
    sum += static_cast<int>(first[i] + second[i]);
  });
  EXPECT_EQ(sum, 36 + 36 + 8 * 2048);
}

TEST_F(Faulting, CallsSeeTheMemory) {
  std::vector<float> values(4);
  DeviceMemory other = backend_.allocate(16 * sizeof(float), MemoryUse::kActivations).value();
  backend_.copy(memory_.data() + 4, other.data(), 12);
  calls_.download(other.as<float>(), std::span(values));
  EXPECT_EQ(values, (std::vector<float>{2, 3, 4, 0}));
  const std::vector<int32_t> rows = {1, 0};
  backend_.gather_rows({.x = memory_.as<float>(),
                        .num_rows = 2,
                        .width = 2,
                        .rows = rows,
                        .out = other.as<float>()});
  bool finite[2] = {};
  backend_.find_finite_rows(other.as<float>(), 2, 2, finite);
  calls_.download(other.as<float>(), std::span(values));
  EXPECT_EQ(values, (std::vector<float>{3, 4, 1, 2}));
  EXPECT_TRUE(finite[0] && finite[1]);
  EXPECT_GT(backend_.num_calls(), 5);
}

TEST(FaultingMemory, OutlivesItsBackend) {
  auto backend = std::make_unique<FaultingBackend>(cpu_backend());
  DeviceMemory memory = backend->allocate(100, MemoryUse::kKv).value();
  backend.reset();
  EXPECT_TRUE(memory.data());
}

// ---- Ops that are done late ---------------------------------------------------------------------

class Deferring : public testing::Test {
 protected:
  DeferringBackend backend_{cpu_backend()};
  Backend& calls_ = backend_;
};

TEST_F(Deferring, NothingIsDoneBeforeTheCallerWaits) {
  DeviceMemory memory = backend_.allocate(8 * sizeof(float), MemoryUse::kResults).value();
  calls_.upload(std::vector<float>{1, NAN, 3, 4}, memory.as<float>());
  bool finite[2] = {true, false};
  backend_.find_finite_rows(memory.as<float>(), 2, 2, finite);
  EXPECT_EQ(raw(memory.as<float>())[0], 0);
  EXPECT_TRUE(finite[0]);
  EXPECT_EQ(backend_.num_waiting(), 2u);
  backend_.synchronize();
  EXPECT_EQ(raw(memory.as<float>())[0], 1);
  EXPECT_FALSE(finite[0]);
  EXPECT_TRUE(finite[1]);
  EXPECT_EQ(backend_.num_waiting(), 0u);
  EXPECT_EQ(backend_.most_waiting(), 2u);
}

TEST_F(Deferring, DownloadsAndViewsWaitForWhatWasBefore) {
  DeviceMemory memory = backend_.allocate(8 * sizeof(float), MemoryUse::kResults).value();
  calls_.upload(std::vector<float>{1, 2}, memory.as<float>());
  std::vector<float> found(2);
  calls_.download(memory.as<float>(), std::span(found));
  EXPECT_EQ(found[1], 2);
  backend_.copy(memory.data(), memory.data() + 8, 8);
  EXPECT_EQ(calls_.read_view(memory.as<float>() + 3, 1)[0], 2);
}

TEST_F(Deferring, ArgumentsInHostMemoryMayChangeAfterTheCall) {
  DeviceMemory memory = backend_.allocate(64 * sizeof(float), MemoryUse::kResults).value();
  std::vector<float> values = counted(4), frequencies = {0.5f};
  std::vector<int32_t> rows = {3};
  std::vector<int64_t> positions = {4};
  const DevicePtr<float> at = memory.as<float>();
  calls_.upload(values, at);
  backend_.gather_rows({.x = at, .num_rows = 4, .width = 1, .rows = rows, .out = at + 8});
  backend_.rope_rows({.frequencies = frequencies,
                      .factor = 1,
                      .positions = positions,
                      .cos = at + 16,
                      .sin = at + 17});
  values.assign(4, 0);
  frequencies[0] = 0;
  rows[0] = 0;
  positions[0] = 0;
  EXPECT_EQ(calls_.read_view(at + 8, 1)[0], 4);
  EXPECT_EQ(calls_.read_view(at + 16, 1)[0], std::cos(2.0f));
  EXPECT_EQ(calls_.read_view(at + 17, 1)[0], std::sin(2.0f));
}

// A step's ops are of the step that was begun before them, however late they are done.
TEST_F(Deferring, OpsBelongToTheirStep) {
  const KvShape shape{KvType::kF32, 1, 16};
  const size_t stride = backend_.kv_layer_bytes(shape);
  DeviceMemory memory = backend_.allocate(4 * stride, MemoryUse::kKv).value();
  DeviceMemory rows = backend_.allocate(1024 * sizeof(float), MemoryUse::kActivations).value();
  calls_.upload(counted(48), rows.as<float>());
  const int32_t blocks[] = {1, 2};
  const int32_t* const tables[] = {&blocks[0], &blocks[1]};
  for (const int32_t* const& table : tables) {
    Span span;
    span.num_rows = 1;
    span.tables = &table;
    QkvArgs args;
    args.qkv = rows.as<float>();
    args.q_out = rows.as<float>() + 512;
    args.num_rows = 1;
    args.num_heads = 1;
    args.kv = {shape, memory.data(), stride};
    args.step = backend_.begin_step({&span, 1});
    backend_.finish_qkv(args);
  }
  const auto kv = calls_.read_view(memory.data(), 4 * stride);
  for (size_t block = 0; block < 4; ++block) {
    const auto bytes = kv.subspan(block * stride, stride);
    const bool written =
        std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
    EXPECT_EQ(written, block == 1 || block == 2) << block;
  }
}

}  // namespace
}  // namespace headrace::device
