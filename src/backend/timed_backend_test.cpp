// Records of ops: when they are made, and what they say; results stay what they are.
#include "backend/timed_backend.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/verify/samples.h"

namespace headrace {
namespace timed_backend_test {

constexpr int64_t kOutputs = 48, kInputs = 64, kRows = 3;

class TimedBackendTest : public testing::Test {
 protected:
  DevicePtr<float> room(int64_t count) {
    memory_.push_back(
        backend_.allocate(static_cast<size_t>(count) * sizeof(float), MemoryUse::kResults).value());
    return memory_.back().as<float>();
  }
  std::unique_ptr<PackedWeight> weight() {
    cpu::Random random(7);
    const auto sample =
        cpu::sample_weight(DType::kF32, cpu::WeightSample::kRandom, kOutputs, kInputs, random);
    const WeightView parts[] = {sample->view};
    return backend_.pack(parts, WeightRole::kLinear).value();
  }
  std::vector<float> multiply(const PackedWeight& weight) {
    std::vector<float> x(kRows * kInputs), y(kRows * kOutputs);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 6;
    const DevicePtr<float> in = room(std::ssize(x)), out = room(std::ssize(y));
    backend_.upload(x, in);
    backend_.linear(weight, in, kRows, {}, out);
    backend_.download(out, std::span(y));
    return y;
  }

  TimedBackend timed_{create_cpu_backend({.isa = "reference", .num_threads = 2}).value()};
  Backend& backend_ = timed_;  // as whoever uses one sees it
  std::vector<DeviceMemory> memory_;
  std::vector<OpRecord> records_;
};

TEST_F(TimedBackendTest, WatchedOpsSayWhatTheyDidAndComputeTheSame) {
  const auto packed = weight();
  const std::vector<float> unwatched = multiply(*packed);
  ASSERT_TRUE(backend_.watch_ops(&records_));
  backend_.enter_layer(5);
  EXPECT_EQ(multiply(*packed), unwatched);
  ASSERT_EQ(records_.size(), 1u);
  const OpRecord& op = records_[0];
  EXPECT_EQ(op.kind, OpKind::kLinear);
  EXPECT_EQ(op.layer, 5);
  EXPECT_EQ(op.num_rows, kRows);
  EXPECT_EQ(op.num_outputs, kOutputs);
  EXPECT_EQ(op.num_inputs, kInputs);
  EXPECT_EQ(op.layout, packed->layout());
  EXPECT_LT(op.start_ns, op.end_ns);
  EXPECT_EQ(op.operations, 2.0 * kRows * kOutputs * kInputs);
  EXPECT_EQ(op.bytes, static_cast<double>(packed->num_bytes()) +
                          sizeof(float) * kRows * (kOutputs + kInputs));
}

TEST_F(TimedBackendTest, UnwatchedOpsLeaveNoRecord) {
  const auto packed = weight();
  multiply(*packed);
  backend_.watch_ops(&records_);
  multiply(*packed);
  backend_.watch_ops(nullptr);
  multiply(*packed);
  EXPECT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0].layer, kNoOpLayer);
}

TEST_F(TimedBackendTest, RecordsAreInOrderAndApart) {
  backend_.watch_ops(&records_);
  const DevicePtr<float> rows = room(kRows * kInputs), ones = room(kInputs);
  backend_.zero(rows.bytes(), kRows * kInputs * sizeof(float));
  for (int i = 0; i < 4; ++i) {
    backend_.norm({.x = rows, .weight = ones, .out = rows, .num_rows = kRows, .width = kInputs});
  }
  bool finite[kRows] = {};
  backend_.find_finite_rows(rows, kRows, kInputs, finite);
  ASSERT_EQ(records_.size(), 5u);
  for (size_t i = 0; i + 1 < records_.size(); ++i) {
    EXPECT_LE(records_[i].end_ns, records_[i + 1].start_ns);
  }
  EXPECT_EQ(records_.back().kind, OpKind::kFindFiniteRows);
  EXPECT_EQ(records_[0].bytes, 2.0 * sizeof(float) * kRows * kInputs);
  EXPECT_EQ(records_[0].operations, 0);
}

TEST(OpNames, AreOneForEachKind) {
  EXPECT_EQ(kOpNames[static_cast<size_t>(OpKind::kHead)], "head");
  EXPECT_EQ(kOpNames[static_cast<size_t>(OpKind::kAttention)], "attention");
  EXPECT_EQ(kOpNames[static_cast<size_t>(OpKind::kFindFiniteRows)], "find_finite_rows");
}

}  // namespace timed_backend_test
}  // namespace headrace
