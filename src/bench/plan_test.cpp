// Forecasts of every recorded network: numbers, in order, and adding up; and by hand of one.

#include "bench/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/kernels/isa.h"
#include "base/testing/temp_folder.h"
#include "bench/step_points.h"
#include "bench/synth.h"
#include "model/model.h"
#include "model/testing/recorded_networks.h"

namespace headrace {
namespace plan_test {

std::string read_row(const char* bytes, const char* one_thread, const char* all_threads) {
  return fmt::format(R"({{"kind":"read","working_set_bytes":{},"threads":4,)"
                     R"("one_thread_byte_s":{},"all_threads_byte_s":{}}})"
                     "\n",
                     bytes, one_thread, all_threads);
}
std::string peak_row(const char* kind, const char* isa, const char* one, const char* all) {
  return fmt::format(R"({{"kind":"peak","name":"p","arithmetic":"{}","isa":"{}","threads":4,)"
                     R"("one_thread_op_s":{},"all_threads_op_s":{}}})"
                     "\n",
                     kind, isa, one, all);
}

std::string file_text() {
  return R"({"kind":"machine","processor":"P","isa":"avx2+fma+f16c","memory_bytes":2e9})"
         "\n" +
         peak_row("f32", "avx2+fma", "1e9", "4e9") + peak_row("int8", "avx2", "4e9", "16e9") +
         read_row("1024", "9e9", "8e9") + read_row("1048576", "2e9", "4e9");
}

MachineFile machine() { return parse_machine(file_text(), "m.json").value(); }

// Reads as fast whatever their size, so that more work never takes less time.
MachineFile flat_machine() {
  MachineFile flat = machine();
  flat.limits.reads.resize(1);
  return flat;
}

TEST(PlanMachine, KeysAndValuesAreAsTheMachineMultipliesThem) {
  MachineFile file = machine();
  EXPECT_EQ(default_kv_type(file).value(), KvType::kF16);
  file.isa = cpu::kAmxUnitIsa;
  EXPECT_EQ(default_kv_type(file).value(), KvType::kInt16);
}

TEST(PlanMachine, FileIsReadAndBandwidthLiesBetweenWhatWasMeasured) {
  const MachineFile file = machine();
  EXPECT_EQ(file.processor, "P");
  EXPECT_EQ(file.memory_bytes, 2000000000u);
  EXPECT_EQ(file.isa, cpu::kIsaAvx2 | cpu::kIsaFma | cpu::kIsaF16c);
  EXPECT_EQ(file.limits.num_threads, 4);
  EXPECT_EQ(file.peak(cpu::PeakKind::kInt8), 16e9);
  EXPECT_EQ(file.peak(cpu::PeakKind::kBF16), 0);
  EXPECT_EQ(file.bandwidth(10), 8e9);
  EXPECT_NEAR(file.bandwidth(32768), 6e9, 1) << "half way, in doublings";
  EXPECT_EQ(file.bandwidth(1e12), 4e9);
}

constexpr std::string_view kOpRows =
    R"({"kind":"op","op":"product","of":"q8_0x16 int16","size":4,"working_set_bytes":1e6,)"
    R"("threads":4,"unit_s":2e-12})"
    "\n"
    R"({"kind":"op","op":"join","size":1,"threads":4,"unit_s":1e-6})"
    "\n"
    R"({"kind":"op","op":"of a later program","size":1,"threads":4,"unit_s":1})"
    "\n";

TEST(PlanMachine, WhatOpsReachIsReadAndMayBeMissing) {
  EXPECT_TRUE(machine().rates.empty()) << "a file of before";
  const MachineFile file = parse_machine(file_text() + std::string(kOpRows), "m.json").value();
  EXPECT_EQ(file.rates.all().size(), 2u) << "of ops that are known";
  EXPECT_EQ(file.rates.seconds(RatedOp::kProduct, "q8_0x16 int16", 9), 2e-12);
  EXPECT_EQ(file.rates.seconds(RatedOp::kJoin), 1e-6);
  const auto wrong = parse_machine(R"({"kind":"op","op":"join","size":1,"unit_s":-1})", "m");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "m:1: \"unit_s\": a number above 0 is missing");
}

TEST(PlanMachine, SequencesChangeNoForecast) {
  constexpr std::string_view kRow =
      R"({"kind":"sequence","name":"amx tdpbssd, 1 row","isa":"amx_tile+amx_int8","of":"product",)"
      R"("threads":4,"one_thread_s":4e-9,"all_threads_s":5e-9})";
  const MachineFile file = parse_machine(file_text() + std::string(kRow), "m.json").value();
  EXPECT_EQ(file.limits.peaks.size(), machine().limits.peaks.size());
  EXPECT_EQ(file.limits.reads.size(), machine().limits.reads.size());
  EXPECT_EQ(file.isa, machine().isa);
}

TEST(PlanMachine, BadFilesAreRefusedByLine) {
  struct Case {
    std::string_view text, message;
  };
  const Case cases[] = {
      {R"({"kind":"wheel"})",
       R"(m:1: "kind": 'wheel' is none of machine, peak, read, sequence and op)"},
      {R"({"kind":"read","working_set_bytes":-4})",
       R"(m:1: "working_set_bytes": a number above 0 is missing)"},
      {R"({"kind":"peak","arithmetic":"f12"})",
       R"(m:1: "arithmetic": 'f12' is none that is known)"},
      {"[1]", R"(m:1: "kind": a text is missing)"},
      {"\n", "m lacks rows of the kinds machine, peak and read"},
  };
  for (const Case& c : cases) {
    const auto wrong = parse_machine(c.text, "m");
    ASSERT_FALSE(wrong.ok()) << c.text;
    EXPECT_EQ(wrong.error().message, c.message);
  }
  EXPECT_FALSE(parse_machine("{", "m").ok());
}

PlanRequest request_of(const ModelConfig& config) {
  PlanRequest request;
  request.context = std::min<int64_t>(config.max_position_embeddings, 256);
  request.clients = 3;
  request.chunk = 64;
  request.memory_bytes = 2000000000;
  return request;
}

void expect_whole(const StepForecast& step, const std::string& what) {
  for (const double value : {step.bytes, step.operations, step.memory_s, step.seconds()}) {
    EXPECT_TRUE(std::isfinite(value) && value > 0) << what;
  }
  EXPECT_TRUE(std::isfinite(step.arithmetic_s()) && step.mixer_s >= 0) << what;
}

void expect_sound(const Forecast& forecast, int64_t longest, const std::string& name) {
  double last = 0;
  for (const int64_t depth : {0, 20, 100, 255}) {
    const StepForecast step = forecast.decode(1, depth);
    expect_whole(step, name);
    EXPECT_GE(step.seconds(), last) << name << ": deeper is not faster";
    last = step.seconds();
  }
  last = 0;
  double last_rate = 0;
  for (int64_t batch = 1; batch <= 64; batch *= 2) {
    const double seconds = forecast.decode(batch, 50).seconds();
    const double rate = forecast.decode_tokens_per_s(batch, 50);
    EXPECT_GE(seconds, last) << name;
    EXPECT_GE(rate, last_rate * (1 - 1e-9)) << name << ": more together are not slower in sum";
    last = seconds;
    last_rate = rate;
  }
  last = 0;
  for (const int64_t tokens : {1, 16, 65, 200}) {
    expect_whole(forecast.prefill(tokens), name);
    EXPECT_GT(forecast.prefill(tokens).seconds(), last) << name;
    last = forecast.prefill(tokens).seconds();
  }
  const PlanRequest& request = forecast.request();
  const MemoryPlan& memory = forecast.memory();
  EXPECT_GE(forecast.total_bytes(3, request.context),
            memory.weights + memory.workspace + memory.other + memory.least_kv())
      << name;
  EXPECT_LE(forecast.total_bytes(3, 64), forecast.total_bytes(4, 64)) << name;
  const int64_t context = forecast.longest_context(3);
  EXPECT_TRUE(forecast.fits(3, context)) << name;
  EXPECT_TRUE(context == longest || !forecast.fits(3, context + 1)) << name;
  const int64_t clients = forecast.most_clients(request.context);
  EXPECT_TRUE(forecast.fits(clients, request.context)) << name;
  EXPECT_GE(forecast.best_batch(50), 1) << name;
}

TEST(Plan, ForecastsOfEveryRecordedNetworkAreSound) {
  const MachineFile flat = flat_machine();
  const int num_read = testing::each_recorded_network(
      [&](const std::string& name, const Checkpoint& checkpoint, const ModelConfig& config) {
        const auto forecast = Forecast::create(checkpoint, config, flat, request_of(config));
        ASSERT_TRUE(forecast.ok()) << name << ": " << forecast.error().message;
        expect_sound(*forecast, config.max_position_embeddings, name);
      });
  EXPECT_GT(num_read, 60);
}

constexpr SynthShape kShape = {"small", "llama", 256, 2, 4, 2, 64, 512, 320, true, 10000, 128};

class PlanOfOneTest : public ::testing::Test {
 protected:
  PlanOfOneTest() {
    for (const SynthFormat& format : synth_formats()) {
      if (format.name == "q8_0") {
        EXPECT_TRUE(write_synth(kShape, format, 1, folder_.file("m.gguf")).ok());
      }
    }
    checkpoint_ = Checkpoint::open(folder_.file("m.gguf")).value();
    config_ = Model::read_config(*checkpoint_).value();
  }
  Forecast forecast(const PlanRequest& request, std::optional<DType> format = std::nullopt) {
    return Forecast::create(*checkpoint_, config_, machine_, request, format).value();
  }

  testing::TempFolder folder_;
  MachineFile machine_ = flat_machine();
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
};

// Two layers, 256 wide, 4 query and 2 KV heads of 64, MLP of 512, 320 tokens; 8.5 bits a weight.
TEST_F(PlanOfOneTest, CountsAreThoseDoneByHand) {
  const Forecast plan = forecast(request_of(config_));
  constexpr double kLayer = 256.0 * 256 + 2 * 256 * 128 + 256 * 256 + 3 * 256 * 512;
  constexpr double kHead = 320.0 * 256;
  constexpr double kPosition = 2 * 2 * 64 * 2;  // K and V of a layer, in f16
  const StepForecast step = plan.decode(4, 9);
  EXPECT_EQ(step.bytes, (2 * kLayer + kHead) * 34 / 32 + 4 * 2 * 10 * kPosition);
  EXPECT_EQ(step.operations, 4 * (2 * (2 * kLayer + kHead) + 2 * 10 * 4.0 * 4 * 64));
  EXPECT_DOUBLE_EQ(step.memory_s, step.bytes / 8e9);
  EXPECT_DOUBLE_EQ(step.linear_s, 4 * 2 * (2 * kLayer + kHead) * 2 / 16e9) << "in two passes";
  EXPECT_DOUBLE_EQ(step.mixer_s, 4 * 2 * 10 * 4.0 * 4 * 64 / 4e9);
  EXPECT_EQ(step.bound_by(), "products");
  EXPECT_FALSE(step.expected) << "this machine's file has no rates";
  EXPECT_EQ(step.seconds(), step.limit_s());
  ASSERT_EQ(plan.groups().size(), 1u);
  EXPECT_EQ(plan.groups()[0].bytes, 2 * kPosition);
  EXPECT_EQ(plan.groups()[0].num_layers, 2u);
}

TEST_F(PlanOfOneTest, TheForecastIsTheLimitOfBenchStep) {
  const PlanRequest request = request_of(config_);
  const Forecast plan = forecast(request);
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const cpu::KernelSet kernels =
      cpu::select_kernels(*cpu::select_unit("auto", machine_.isa).value(), machine_.isa);
  const StepWork work = step_work(*checkpoint_, config_, *backend, kernels, KvType::kF16).value();
  PointPlan points;
  points.prefills = {100};
  points.depths = {40};
  points.batches = {8};
  points.decode_steps = 1;
  points.batch_depth = 40;
  Ceilings ceilings(machine_.limits.peaks, matmul_isa(kernels), 8e9);
  const double forecasts[] = {100 / plan.prefill(100).seconds(), plan.decode_tokens_per_s(1, 40),
                              plan.decode_tokens_per_s(8, 40)};
  std::vector<Point> made = make_points(work, points, ceilings, request.chunk);
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].seconds = {1};
    EXPECT_DOUBLE_EQ(figures_of(made[i], 2, ceilings)->limit, forecasts[i]) << i;
  }
}

TEST_F(PlanOfOneTest, OtherFormatsAndTypesTakeWhatTheyTake) {
  PlanRequest request = request_of(config_);
  const Forecast as_it_is = forecast(request), q8 = forecast(request, DType::kQ8_0),
                 q4 = forecast(request, DType::kQ4K), bf16 = forecast(request, DType::kBF16);
  EXPECT_EQ(as_it_is.memory().weights, q8.memory().weights);
  EXPECT_EQ(as_it_is.decode(1, 9).bytes, q8.decode(1, 9).bytes);
  EXPECT_LT(q4.memory().weights, q8.memory().weights);
  EXPECT_GT(bf16.memory().weights, q8.memory().weights);
  EXPECT_LT(q4.decode(1, 9).memory_s, q8.decode(1, 9).memory_s);
  request.kv_type = KvType::kInt8;
  const Forecast int8 = forecast(request);
  EXPECT_LT(int8.groups()[0].bytes, as_it_is.groups()[0].bytes);
  request.activations = ActivationArithmetic::kFast;
  EXPECT_DOUBLE_EQ(2 * forecast(request).decode(1, 9).linear_s, int8.decode(1, 9).linear_s);
}

TEST_F(PlanOfOneTest, WhatFitsFollowsTheMemory) {
  PlanRequest request = request_of(config_);
  const Forecast roomy = forecast(request);
  EXPECT_EQ(roomy.longest_context(1), config_.max_position_embeddings);
  request.memory_bytes = roomy.total_bytes(2, 64);
  const Forecast tight = forecast(request);
  EXPECT_EQ(tight.most_clients(64), 2);
  EXPECT_TRUE(tight.fits(2, 64));
  request.memory_bytes = 1000;
  const Forecast none = forecast(request);
  EXPECT_EQ(none.longest_context(1), 0);
  EXPECT_EQ(none.most_clients(64), 0);
  EXPECT_EQ(none.best_batch(64), 1);
  EXPECT_DOUBLE_EQ(price_of_million(3.6, 1000), 1.0);
}

}  // namespace plan_test
}  // namespace headrace
