// The golden suite on back ends that stand for a device, through the model and through the engine:
// nothing outside of a backend looks at device memory, and nobody looks at a result too early.
#include <gtest/gtest.h>

#include <functional>

#include "device/deferring_backend.h"
#include "device/faulting_backend.h"
#include "golden/golden_data.h"
#include "sim/collector.h"
#include "verify/golden.h"

namespace headrace::device {
namespace {

const ModelOptions kOptions = {
    .max_batch_tokens = 64, .max_logit_rows = 64, .kv_type = KvType::kF32};

struct DeviceCase {
  const char* name;
  std::unique_ptr<Backend> (*wrap)(std::unique_ptr<Backend> cpu);
};

std::unique_ptr<Backend> faulting(std::unique_ptr<Backend> cpu) {
  return std::make_unique<FaultingBackend>(std::move(cpu));
}
std::unique_ptr<Backend> deferring(std::unique_ptr<Backend> cpu) {
  return std::make_unique<DeferringBackend>(faulting(std::move(cpu)));
}

class DeviceTest : public testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Backend> backend() const {
    return GetParam().wrap(golden::backend_for("auto", 2));
  }
  static std::vector<std::string> folders() {
    return golden::folders_matched(test::archive_root(), "tiny");
  }
};

TEST_P(DeviceTest, EveryFamilyPassesThroughTheModel) {
  const auto device = backend();
  int num_passed = 0;
  for (const std::string& folder : folders()) {
    const auto report = verify_golden_folder(folder, *device, kOptions);
    ASSERT_TRUE(report.ok()) << folder << ": " << report.error().message;
    EXPECT_TRUE(report->passed) << folder << ": " << report->error;
    ++num_passed;
  }
  EXPECT_GE(num_passed, 25);
}

TEST_P(DeviceTest, EveryQuantisedLayoutPassesThroughTheModel) {
  const auto device = backend();
  const auto quantised = golden::folders_run(test::archive_root(), "quant");
  EXPECT_GE(quantised.size(), 13u);
  for (const std::string& folder : quantised) {
    const auto report = verify_golden_folder(folder, *device, kOptions);
    ASSERT_TRUE(report.ok()) << folder << ": " << report.error().message;
    EXPECT_TRUE(report->passed) << folder << ": " << report->error;
  }
}

// Greedy ids of prompts that run together, with log-probs, which read the logits.
TEST_P(DeviceTest, EveryFamilyPassesThroughTheEngine) {
  int num_prompts = 0;
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    const Golden golden = read_golden(folder).value();
    const auto device = backend();
    const auto checkpoint = open_folder(folder).value();
    const auto model = Model::load(*checkpoint, *device, kOptions).value();
    EngineOptions options;
    options.max_batch_tokens = 48;  // long prompts take several steps
    options.max_sequences = 8;
    options.num_kv_blocks = 64;
    options.max_context = 180;  // beyond the 48 of the models with a changing rope table
    const auto engine = Engine::create(*model, *device, options, {}).value();
    std::vector<Request> requests;
    std::vector<const GoldenPrompt*> prompts;
    for (const GoldenPrompt& prompt : golden.prompts) {
      if (prompt.greedy.empty()) continue;
      Request& request = requests.emplace_back();
      request.prompt_ids = prompt.ids;
      request.max_tokens = static_cast<int32_t>(prompt.greedy.size());
      request.sampling.temperature = 0;
      if (prompts.size() % 2 == 0) request.num_logprobs = 2;
      prompts.push_back(&prompt);
    }
    const auto collectors = run_together(*engine, requests);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(collectors[i].output(), prompts[i]->greedy) << "prompt " << i;
      ++num_prompts;
    }
  }
  EXPECT_GE(num_prompts, 25);
}

// Packed weights that are written to a file and read from it pass through views.
TEST_P(DeviceTest, TheWeightCacheReadsAndWritesThroughViews) {
  const std::string folder = (test::archive_root() / "tiny/llama").string();
  ModelOptions options = kOptions;
  options.weight_cache = {.directory = golden::temporary_folder(GetParam().name),
                          .max_bytes = uint64_t{1} << 30};
  const auto device = backend();
  for (const char* what : {"written", "read"}) {
    const auto report = verify_golden_folder(folder, *device, options);
    ASSERT_TRUE(report.ok()) << what << ": " << report.error().message;
    EXPECT_TRUE(report->passed) << what << ": " << report->error;
  }
  EXPECT_FALSE(golden::entries(options.weight_cache.directory, "").empty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceTest,
                         testing::Values(DeviceCase{"faulting", faulting},
                                         DeviceCase{"deferring", deferring}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace headrace::device
