// Memory and movement of the CPU back end: what each call of backend.h promises.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_access.h"

namespace headrace {
namespace memory_test {

template <typename T>
concept Dereferenced = requires(T pointer) { *pointer; };
template <typename T>
concept Indexed = requires(T pointer) { pointer[0]; };
template <typename T>
concept Member = requires(T pointer) { pointer.operator->(); };
using Floats = DevicePtr<float>;
static_assert(!Dereferenced<Floats> && !Indexed<Floats> && !Member<Floats>);
static_assert(Dereferenced<float*> && Indexed<float*>, "what the concepts find");
static_assert(!std::is_convertible_v<Floats, float*> && !std::is_convertible_v<float*, Floats>);
static_assert(!std::is_constructible_v<Floats, float*>);
static_assert(std::is_convertible_v<Floats, DevicePtr<const float>>);
static_assert(!std::is_convertible_v<DevicePtr<const float>, Floats>);
static_assert(!std::is_copy_constructible_v<DeviceMemory>);
static_assert(sizeof(Floats) == sizeof(float*) && std::is_trivially_copyable_v<Floats>);

class MemoryTest : public testing::Test {
 protected:
  DeviceMemory floats(size_t count, MemoryUse use = MemoryUse::kActivations) {
    return backend_->allocate(count * sizeof(float), use).value();
  }
  DeviceMemory floats_of(const std::vector<float>& values) {
    DeviceMemory memory = floats(values.size());
    backend_->upload(values, memory.as<float>());
    return memory;
  }
  std::vector<float> values_at(DevicePtr<const float> from, size_t count) {
    std::vector<float> values(count);
    backend_->download(from, std::span(values));
    return values;
  }

  std::unique_ptr<Backend> backend_ =
      create_cpu_backend({.isa = "reference", .num_threads = 3}).value();
};

std::vector<float> counted(size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(DevicePtr, MovesAndCompares) {
  float values[8] = {};
  const DevicePtr<float> start = on_device(values), none = nullptr;
  EXPECT_TRUE(start);
  EXPECT_FALSE(none);
  EXPECT_EQ(none, DevicePtr<float>());
  EXPECT_EQ((start + 3) - start, 3);
  DevicePtr<float> next = start;
  next += 5;
  EXPECT_EQ(next, start + 5);
  EXPECT_NE(next, start);
  EXPECT_EQ(raw(next), values + 5);
  EXPECT_EQ(next.bytes() - start.bytes(), 20);
  const DevicePtr<const float> seen = next;
  EXPECT_EQ(raw(seen), values + 5);
  EXPECT_EQ(raw(seen.cast<const int32_t>() + 1), reinterpret_cast<const int32_t*>(values + 6));
}

TEST_F(MemoryTest, AllocatedMemoryIsZeroAlignedAndApart) {
  for (const MemoryUse use :
       {MemoryUse::kWeights, MemoryUse::kKv, MemoryUse::kActivations, MemoryUse::kResults}) {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{3} << 20}) {
      const DeviceMemory a = floats(count, use), b = floats(count, use);
      EXPECT_GE(a.size(), count * sizeof(float));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(raw(a.data())) % 64, 0u);
      EXPECT_GE(std::abs(a.data() - b.data()), static_cast<ptrdiff_t>(a.size()));
      EXPECT_EQ(values_at(a.as<float>(), count), std::vector<float>(count));
    }
  }
  const DeviceMemory nothing = backend_->allocate(0, MemoryUse::kWeights).value();
  EXPECT_EQ(nothing.size(), 0u);
}

TEST_F(MemoryTest, MovesLeaveOneOwner) {
  DeviceMemory first = floats_of({1, 2, 3});
  const DevicePtr<std::byte> start = first.data();
  DeviceMemory second = std::move(first);
  EXPECT_FALSE(first.data());
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(second.data(), start);
  DeviceMemory third = floats_of({7});
  third = std::move(second);
  EXPECT_EQ(values_at(third.as<float>(), 3), (std::vector<float>{1, 2, 3}));
}

TEST_F(MemoryTest, OutlivesItsBackend) {
  DeviceMemory memory = floats_of(counted(100));
  backend_.reset();
  EXPECT_EQ(raw(memory.as<float>())[99], 99);
}

TEST_F(MemoryTest, WhatThereIsNotIsRefusedByName) {
  const struct {
    MemoryUse use;
    std::string_view name;
  } cases[] = {{MemoryUse::kWeights, "weights"},
               {MemoryUse::kKv, "keys and values"},
               {MemoryUse::kActivations, "activations"},
               {MemoryUse::kResults, "results"}};
  for (const auto& row : cases) {
    const auto memory = backend_->allocate(std::numeric_limits<size_t>::max() - 10, row.use);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().code, ErrorCode::kExhausted);
    EXPECT_TRUE(memory.error().message.starts_with(std::string(row.name) + ": not enough memory"))
        << memory.error().message;
    EXPECT_FALSE(memory.error().hint.empty());
  }
}

TEST_F(MemoryTest, UploadTakesACopyAndDownloadGivesOne) {
  std::vector<float> values = counted(50);
  DeviceMemory memory = floats(60);
  backend_->upload(values, memory.as<float>() + 5);
  values.assign(50, -1);
  const std::vector<float> found = values_at(memory.as<float>(), 60);
  for (size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(found[i], i >= 5 && i < 55 ? static_cast<float>(i - 5) : 0) << i;
  }
  backend_->upload(std::vector<float>{}, DevicePtr<float>());
  backend_->download(DevicePtr<float>(), std::span<float>());
}

TEST_F(MemoryTest, ViewsShowAndTake) {
  DeviceMemory memory = floats(20, MemoryUse::kResults);
  const std::span<float> given = backend_->write_view(memory.as<float>() + 4, 3);
  ASSERT_EQ(given.size(), 3u);
  std::iota(given.begin(), given.end(), 1.0f);
  backend_->synchronize();
  const std::span<const float> seen = backend_->read_view(memory.as<float>(), 8);
  EXPECT_EQ(std::vector<float>(seen.begin(), seen.end()),
            (std::vector<float>{0, 0, 0, 0, 1, 2, 3, 0}));
  const DeviceMemory& constant = memory;
  EXPECT_EQ(backend_->read_view(constant.as<float>() + 5, 1)[0], 2);
}

TEST_F(MemoryTest, CopyMovesExactlyItsBytes) {
  DeviceMemory from = floats_of(counted(10, 100)), to = floats_of(counted(10));
  backend_->copy(from.as<float>().bytes() + 8, to.as<float>().bytes() + 12, 8);
  EXPECT_EQ(values_at(to.as<float>(), 10), (std::vector<float>{0, 1, 2, 102, 103, 5, 6, 7, 8, 9}));
  backend_->copy(to.data(), to.data() + 20, 20);  // side by side
  EXPECT_EQ(values_at(to.as<float>() + 5, 5), (std::vector<float>{0, 1, 2, 102, 103}));
  backend_->copy(to.data(), to.data(), 0);
  EXPECT_DEATH(backend_->copy(to.data(), to.data() + 4, 8), "a copy of 8 bytes onto itself");
}

TEST_F(MemoryTest, ZeroClearsExactlyItsBytes) {
  DeviceMemory memory = floats_of(counted(6, 1));
  backend_->zero(memory.data() + 4, 12);
  backend_->zero(memory.data(), 0);
  EXPECT_EQ(values_at(memory.as<float>(), 6), (std::vector<float>{1, 0, 0, 0, 5, 6}));
}

TEST_F(MemoryTest, GatherTakesRowsInTheOrderAsked) {
  DeviceMemory x = floats_of(counted(12)), out = floats(15);
  const std::vector<int32_t> rows = {2, 0, 2, 3};
  backend_->gather_rows(
      {.x = x.as<float>(), .num_rows = 4, .width = 3, .rows = rows, .out = out.as<float>()});
  EXPECT_EQ(values_at(out.as<float>(), 15),
            (std::vector<float>{6, 7, 8, 0, 1, 2, 6, 7, 8, 9, 10, 11, 0, 0, 0}));
}

TEST_F(MemoryTest, GatherRefusesRowsThatThereAreNot) {
  DeviceMemory x = floats(12), out = floats(3);
  for (const int32_t row : {-1, 4}) {
    const auto gather = [&] {
      backend_->gather_rows({.x = x.as<float>(),
                             .num_rows = 4,
                             .width = 3,
                             .rows = {&row, 1},
                             .out = out.as<float>()});
    };
    EXPECT_DEATH(gather(), "row -?[0-9]+ of 4");
  }
}

TEST_F(MemoryTest, RopeTablesAreOfTheirPositions) {
  const std::vector<float> frequencies = {1.0f, 0.25f, 0.001f};
  const std::vector<int64_t> positions = {0, 7, 7, 100'000, 3};  // in any order
  DeviceMemory cos = floats(16), sin = floats(16);
  backend_->rope_rows({.frequencies = frequencies,
                       .factor = 1.5f,
                       .positions = positions,
                       .cos = cos.as<float>(),
                       .sin = sin.as<float>()});
  const auto found_cos = values_at(cos.as<float>(), 16), found_sin = values_at(sin.as<float>(), 16);
  for (size_t i = 0; i < 15; ++i) {
    const float angle = static_cast<float>(positions[i / 3]) * frequencies[i % 3];
    EXPECT_EQ(found_cos[i], std::cos(angle) * 1.5f) << i;
    EXPECT_EQ(found_sin[i], std::sin(angle) * 1.5f) << i;
  }
  EXPECT_EQ(found_cos[15], 0);
}

TEST_F(MemoryTest, RowsAreFiniteWhereAllOfThemIs) {
  constexpr int64_t kWidth = 37;
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = INFINITY;
  std::vector<float> x(7 * kWidth, std::numeric_limits<float>::max());
  x[1 * kWidth] = nan;
  x[2 * kWidth + 36] = inf;
  x[4 * kWidth + 18] = -inf;
  x[5 * kWidth + 3] = std::numeric_limits<float>::denorm_min();
  x[6 * kWidth + 3] = -0.0f;
  const DeviceMemory memory = floats_of(x);
  bool finite[8] = {};
  finite[7] = true;
  backend_->find_finite_rows(memory.as<float>(), 7, kWidth, finite);
  backend_->synchronize();
  const bool expected[] = {true, false, false, true, false, true, true, true};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(finite[i], expected[i]) << i;
}

TEST_F(MemoryTest, MovingJoinsNobody) {
  DeviceMemory x = floats_of(counted(64)), y = floats(64);
  bool finite[8];
  const int32_t row = 3;
  const int64_t joins = backend_->num_joins();
  backend_->copy(x.data(), y.data(), 64);
  backend_->zero(y.data(), 64);
  backend_->find_finite_rows(x.as<float>(), 8, 8, finite);
  backend_->gather_rows(
      {.x = x.as<float>(), .num_rows = 8, .width = 8, .rows = {&row, 1}, .out = y.as<float>()});
  backend_->synchronize();
  EXPECT_EQ(backend_->num_joins(), joins);
}

TEST_F(MemoryTest, EachItemOfHostWorkRunsOnceAsOneMember) {
  for (const int64_t num_items : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(num_items));
    std::vector<std::atomic<int>> busy(static_cast<size_t>(backend_->num_threads()));
    std::atomic<int> num_clashes = 0;
    backend_->run_on_team(num_items, [&](int64_t item, int member) {
      num_clashes += busy.at(static_cast<size_t>(member)).fetch_add(1);
      ++runs.at(static_cast<size_t>(item));
      std::this_thread::yield();
      --busy.at(static_cast<size_t>(member));
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    EXPECT_EQ(num_clashes, 0);
  }
}

TEST_F(MemoryTest, HostWorkRunsOnSeveralThreads) {
  std::atomic<int> arrived = 0;
  // Each waits for the others: only as many threads as items get through.
  backend_->run_on_team(backend_->num_threads(), [&](int64_t, int) {
    ++arrived;
    while (arrived < backend_->num_threads()) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
}

}  // namespace memory_test
}  // namespace headrace
