// Profiles of steps on a clock that the test turns, and what they come to.
#include "engine/step_profiler.h"

#include <gtest/gtest.h>

#include "engine/profile_summary.h"
#include "engine/sequence.h"

namespace headrace {
namespace step_profiler_test {

using namespace std::chrono_literals;

int64_t turned_ns = 0;
int64_t turned_clock() { return turned_ns; }

class StepProfilerTest : public testing::Test {
 protected:
  StepProfilerTest() {
    turned_ns = 1000;
    sequence_.num_prompt = 8;
  }

  // Each part takes ten more than the one before; forward has two ops of eight.
  void step(int64_t first_position, int32_t num_tokens) {
    StepPlan plan;
    plan.step_idx = ++step_idx_;
    plan.num_tokens = num_tokens;
    plan.spans = {Span{0, num_tokens, first_position}};
    plan.sequences = {&sequence_};
    profiler_.begin_step();
    turned_ns += 10;
    profiler_.planned(plan);
    turned_ns += 20;
    profiler_.mark(StepPart::kBlocks);
    run_ops();
    profiler_.mark(StepPart::kForward);
    turned_ns += 40;
    profiler_.mark(StepPart::kDeliver);
    turned_ns += 50;
    profiler_.mark(StepPart::kSample);
    turned_ns += 60;
    profiler_.end_step();
    turned_ns += 5;
  }
  void run_ops() {
    for (int i = 0; i < 2; ++i) {
      const int64_t start_ns = turned_ns + 1;
      turned_ns += 15;
      if (watched_ == nullptr) continue;
      watched_->push_back({.kind = i == 0 ? OpKind::kLinear : OpKind::kAttention,
                           .num_rows = 1,
                           .num_outputs = i == 0 ? 4 : 0,
                           .num_inputs = i == 0 ? 6 : 0,
                           .layout = i == 0 ? "q8_0" : "",
                           .start_ns = start_ns,
                           .end_ns = start_ns + 8,
                           .bytes = 100,
                           .operations = 48});
    }
  }

  std::vector<OpRecord>* watched_ = nullptr;
  StepProfiler profiler_{[this](auto* records) { watched_ = records; }, turned_clock};
  Sequence sequence_;
  uint64_t step_idx_ = 0;
};

TEST_F(StepProfilerTest, RecordsAsManyStepsAsAreAskedFor) {
  step(0, 4);
  ASSERT_TRUE(profiler_.start(2).ok());
  EXPECT_FALSE(profiler_.wait(0ms));
  for (int i = 0; i < 5; ++i) step(4 * i, 4);
  EXPECT_TRUE(profiler_.wait(0ms));
  EXPECT_EQ(watched_, nullptr);
  const Profile profile = profiler_.take();
  EXPECT_TRUE(profile.complete);
  ASSERT_EQ(profile.steps.size(), 2u);
  EXPECT_EQ(profile.steps[0].step_idx, 2u);
  EXPECT_EQ(profile.steps[1].step_idx, 3u);
}

TEST_F(StepProfilerTest, PartsAndWhatLiesBetweenOpsMakeTheStep) {
  ASSERT_TRUE(profiler_.start(1).ok());
  step(6, 3);
  const Profile profile = profiler_.take();
  const StepProfile& recorded = profile.steps.at(0);
  EXPECT_EQ(recorded.num_tokens, 3);
  EXPECT_EQ(recorded.num_prompt_tokens, 2) << "positions 6 and 7 of a prompt of 8";
  EXPECT_EQ(recorded.num_sequences, 1);
  constexpr int64_t kParts[] = {10, 20, 30, 40, 50, 60};
  for (size_t i = 0; i < kNumStepParts; ++i) {
    EXPECT_EQ(recorded.part_ns(static_cast<StepPart>(i)), kParts[i]) << kStepPartNames[i];
  }
  EXPECT_EQ(recorded.end_ns() - recorded.start_ns, 210);
  const auto phases = summarise(profile);
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].name, "prompt");
  double sum = phases[0].between_ops_s;
  for (const ProfileRow& row : phases[0].rows) sum += row.seconds;
  EXPECT_NEAR(sum, phases[0].part_s[static_cast<size_t>(StepPart::kForward)], 1e-15);
  EXPECT_NEAR(phases[0].between_ops_s, 14e-9, 1e-15);
}

TEST_F(StepProfilerTest, OneProfileAtATime) {
  ASSERT_TRUE(profiler_.start(1).ok());
  EXPECT_EQ(profiler_.start(1).error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(profiler_.take().steps.empty());
  EXPECT_TRUE(profiler_.start(StepProfiler::kMaxSteps).ok());
  profiler_.take();
  for (const int num_steps : {0, -1, StepProfiler::kMaxSteps + 1}) {
    EXPECT_EQ(profiler_.start(num_steps).error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(StepProfilerTest, AStepOfAProfileThatWasTakenBelongsToNone) {
  ASSERT_TRUE(profiler_.start(3).ok());
  profiler_.begin_step();
  EXPECT_NE(watched_, nullptr);
  EXPECT_TRUE(profiler_.take().steps.empty());
  ASSERT_TRUE(profiler_.start(1).ok());
  profiler_.end_step();
  EXPECT_EQ(watched_, nullptr);
  step(8, 1);
  const Profile profile = profiler_.take();
  ASSERT_EQ(profile.steps.size(), 1u);
  EXPECT_EQ(profile.steps[0].step_idx, 1u);
}

TEST_F(StepProfilerTest, AStepWithoutAPlanIsDropped) {
  ASSERT_TRUE(profiler_.start(1).ok());
  profiler_.begin_step();
  profiler_.drop_step();
  EXPECT_EQ(watched_, nullptr);
  EXPECT_FALSE(profiler_.wait(0ms));
  EXPECT_TRUE(profiler_.take().steps.empty());
}

TEST_F(StepProfilerTest, EndsEarlyWhenThereAreTooManyOps) {
  ASSERT_TRUE(profiler_.start(2).ok());
  profiler_.begin_step();
  watched_->resize(StepProfiler::kMaxOps);
  profiler_.end_step();
  EXPECT_TRUE(profiler_.wait(0ms));
  const Profile profile = profiler_.take();
  EXPECT_EQ(profile.steps.size(), 1u);
  EXPECT_FALSE(profile.complete);
}

TEST_F(StepProfilerTest, SumsPromptsAndAnswersApartBesideTheirLimits) {
  ASSERT_TRUE(profiler_.start(4).ok());
  step(0, 8);
  for (int i = 0; i < 3; ++i) step(8 + i, 1);
  const auto phases = summarise(profiler_.take(), [](const OpRecord& op, double working_set) {
    EXPECT_EQ(working_set, 200);
    return op.kind == OpKind::kLinear ? 4e-9 : 0;
  });
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].num_tokens, 8);
  EXPECT_EQ(phases[1].name, "answer");
  EXPECT_EQ(phases[1].num_steps, 3);
  EXPECT_NEAR(phases[0].waiting_s, 0, 1e-15);
  EXPECT_NEAR(phases[1].waiting_s, 15e-9, 1e-15);
  ASSERT_EQ(phases[1].rows.size(), 2u);
  const ProfileRow& attention = phases[1].rows[0];
  const ProfileRow& linear = phases[1].rows[1];
  EXPECT_EQ(attention.op, "attention") << "equal times: by name";
  EXPECT_EQ(attention.shape, "");
  EXPECT_EQ(attention.share_of_limit(), 0);
  EXPECT_EQ(linear.shape, "4 x 6 q8_0");
  EXPECT_EQ(linear.count, 3);
  EXPECT_EQ(linear.bytes, 300);
  EXPECT_NEAR(linear.share_of_limit(), 0.5, 1e-12);
  EXPECT_TRUE(summarise({}).empty());
}

}  // namespace step_profiler_test
}  // namespace headrace
