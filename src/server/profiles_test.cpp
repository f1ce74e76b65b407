// Profiles over HTTP: forms of the answer, who may ask, bad input; and the trace of a profile.
#include "server/profiles.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/sequence.h"
#include "engine/step_profiler.h"
#include "server/api/json.h"
#include "server/profile_json.h"
#include "server/test_support.h"

namespace headrace {
namespace profiles_test {

using test::Client;
using test::RunningServer;

// Two steps of two layers and the head, each op 2 us long and 1 us from the next.
Profile small_profile() {
  Profile profile;
  int64_t now_ns = 5'000'000;
  for (uint64_t i = 0; i < 2; ++i) {
    StepProfile step;
    step.step_idx = 7 + i;
    step.num_tokens = i == 0 ? 4 : 1;
    step.num_prompt_tokens = i == 0 ? 4 : 0;
    step.num_sequences = 1;
    step.start_ns = now_ns;
    step.part_ends_ns[0] = now_ns += 1000;
    step.part_ends_ns[1] = now_ns;
    for (int layer : {0, 0, 1, 1, kNoOpLayer}) {
      OpRecord op;
      op.kind = layer == kNoOpLayer ? OpKind::kHead : OpKind::kLinear;
      op.layer = layer;
      op.num_rows = step.num_tokens;
      op.num_outputs = 8;
      op.num_inputs = 4;
      op.layout = "q4_0";
      op.start_ns = now_ns += 1000;
      op.end_ns = now_ns += 2000;
      op.bytes = 64;
      op.operations = 128;
      step.ops.push_back(op);
    }
    for (size_t part = 2; part < kNumStepParts; ++part) step.part_ends_ns[part] = now_ns += 500;
    profile.steps.push_back(std::move(step));
  }
  profile.complete = true;
  return profile;
}

ModelInfo small_model() {
  ModelInfo model;
  model.name = "tiny \"one\"";
  model.isa = "avx512";
  model.num_threads = 2;
  return model;
}

double number_at(const boost::json::value& value, std::string_view key) {
  return value.at(key).to_number<double>();
}

TEST(ProfileJson, HasWhatItComesToAndEveryOp) {
  const auto json = parse_json(profile_json(small_profile(), small_model()), "profile").value();
  EXPECT_EQ(json.at("format"), "headrace-profile");
  EXPECT_EQ(json.at("model"), "tiny \"one\"");
  ASSERT_EQ(json.at("phases").as_array().size(), 2u);
  const auto& phase = json.at("phases").at(0);
  double sum = number_at(phase, "between_ops_us");
  for (const auto& row : phase.at("ops").as_array()) sum += number_at(row, "us");
  EXPECT_NEAR(sum, number_at(phase.at("parts"), "forward"), 1e-6);
  ASSERT_EQ(json.at("steps").as_array().size(), 2u);
  const auto& step = json.at("steps").at(1);
  EXPECT_EQ(step.at("index"), 8);
  EXPECT_EQ(step.at("ops").as_array().size(), 5u);
  const auto& op = step.at("ops").at(2);
  EXPECT_EQ(json.at("kinds").at(static_cast<size_t>(op.at(0).as_int64())).at(1), "8 x 4 q4_0");
  EXPECT_EQ(op.at(1), 1) << "the layer";
  EXPECT_EQ(op.at(4).to_number<double>(), 2) << "microseconds";
}

TEST(ProfileJson, SharesOfALimitStandWhereItIsKnown) {
  const auto none = profile_json(small_profile(), small_model());
  EXPECT_EQ(none.find("share_of_limit"), none.npos);
  const auto half = [](const OpRecord&, double) { return 1e-6; };
  const auto json = parse_json(profile_json(small_profile(), small_model(), half), "p").value();
  EXPECT_NEAR(number_at(json.at("phases").at(0).at("ops").at(0), "share_of_limit"), 0.5, 1e-9);
}

struct TraceEvent {
  double start, end;
  std::string category;
};

// Events of one row lie in each other or apart.
void expect_nested(std::vector<TraceEvent> events) {
  std::vector<TraceEvent> open;
  for (const TraceEvent& event : events) {
    while (!open.empty() && open.back().end <= event.start + 1e-6) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(event.end, open.back().end + 1e-6) << event.category;
    }
    open.push_back(event);
  }
}

TEST(ProfileTrace, EventsNest) {
  const auto json = parse_json(profile_trace(small_profile(), small_model()), "trace").value();
  std::map<int64_t, std::vector<TraceEvent>> rows;
  std::map<std::string, int> counts;
  for (const auto& event : json.at("traceEvents").as_array()) {
    if (event.at("ph") == "M") continue;
    const double start = number_at(event, "ts");
    const std::string category(event.at("cat").as_string());
    rows[event.at("tid").as_int64()].push_back({start, start + number_at(event, "dur"), category});
    ++counts[category];
  }
  EXPECT_EQ(counts,
            (std::map<std::string, int>{{"step", 2}, {"part", 12}, {"layer", 4}, {"op", 10}}));
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& [row, events] : rows) expect_nested(events);
}

TEST(ProfileTrace, OfNoStepsIsATraceStill) {
  const auto json = parse_json(profile_trace({}, small_model()), "trace").value();
  EXPECT_EQ(json.at("traceEvents").as_array().size(), 3u);
}

class ProfilesTest : public testing::Test {
 protected:
  void step() {
    StepProfiler& profiler = *server_.engine().profiler();
    StepPlan plan;
    plan.num_tokens = 1;
    profiler.begin_step();
    profiler.planned(plan);
    profiler.end_step();
  }
  test::ClientResponse ask(const std::string& body) {
    return Client(server_.port()).post("/api/headrace/profile", body);
  }
  std::string error_of(const std::string& body, int status) {
    const auto response = ask(body);
    EXPECT_EQ(response.status, status) << response.body;
    const auto json = parse_json(response.body, "body").value();
    return std::string(json.at("error").at("message").as_string());
  }

  RunningServer server_;
};

TEST_F(ProfilesTest, AnswersWhenTheStepsHaveRun) {
  std::atomic<bool> answered = false;
  std::thread steps([&] {
    while (!answered) step();
  });
  const auto response = ask(R"({"steps":3,"timeout":60})");
  answered = true;
  steps.join();
  ASSERT_EQ(response.status, 200) << response.body;
  const auto json = parse_json(response.body, "body").value();
  EXPECT_EQ(json.at("steps").as_array().size(), 3u);
  EXPECT_EQ(json.at("complete"), true);
}

TEST_F(ProfilesTest, SaysWhenNoStepRan) {
  EXPECT_EQ(error_of(R"({"steps":9,"timeout":0.05})", 503),
            "no step of 'scripted' ran within 0.05 s (ask while it answers requests)");
  EXPECT_EQ(error_of(R"({"steps":9,"timeout":0.05})", 503).substr(0, 7), "no step")
      << "and may be asked again";
}

TEST_F(ProfilesTest, OneAtATime) {
  StepProfiler& profiler = *server_.engine().profiler();
  ASSERT_TRUE(profiler.start(1).ok());
  EXPECT_EQ(error_of(R"({"steps":9,"timeout":0.05})", 409),
            "another profile of this model is being made");
  profiler.take();
  EXPECT_EQ(ask(R"({"steps":9,"timeout":0.05})").status, 503);
}

TEST_F(ProfilesTest, RefusesBadInput) {
  EXPECT_EQ(error_of(R"({"steps":0})", 400),
            "steps is 0, but it must be a whole number from 1 to 1000");
  EXPECT_EQ(error_of(R"({"steps":1001})", 400),
            "steps is 1001, but it must be a whole number from 1 to 1000");
  EXPECT_NE(error_of(R"({"steps":9,"timeout":1e9})", 400).find("timeout"), std::string::npos);
  EXPECT_NE(error_of(R"({"step":5})", 400).find("steps, timeout or model"), std::string::npos);
  EXPECT_NE(error_of(R"({"steps":1,"model":"none"})", 404).find("none"), std::string::npos);
  EXPECT_EQ(error_of("{}", 400), "steps is missing, but it must be a whole number from 1 to 1000");
  EXPECT_NE(error_of("[]", 400).find("object"), std::string::npos);
}

TEST(Profiles, OneIsMadeAtATimeAndEndsWithTheServer) {
  const TextBundle bundle = test::make_bundle(true);
  test::ScriptedEngine engine;
  const auto model = std::make_shared<const ServedModel>(engine, bundle, test::make_model_info());
  std::vector<std::string> errors;
  const auto keep = [&](const Result<std::string>& profile) {
    errors.push_back(profile.ok() ? "" : profile.error().message);
  };
  Profiles profiles;
  ASSERT_TRUE(profiles.start(model, 1, std::chrono::seconds(300), keep).ok());
  const Status second = profiles.start(model, 1, std::chrono::seconds(300), keep);
  EXPECT_EQ(second.error().code, ErrorCode::kExhausted);
  profiles.stop();
  ASSERT_EQ(errors.size(), 1u) << "the second was never begun";
  EXPECT_EQ(errors[0], "the server is shutting down");
  const Status late = profiles.start(model, 1, std::chrono::seconds(300), keep);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
}

}  // namespace profiles_test
}  // namespace headrace
